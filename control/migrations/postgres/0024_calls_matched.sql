-- Of a call that came in, as JSON: what showed whose trunk it came over, and how its number was found.
alter table calls add column matched_by text;
