-- The caller of a call that came in withholds the number: it is stored nowhere.
alter table calls add column from_withheld boolean not null default false;
-- Whether a call goes where the carrier redirects it (302), within the trunk's destinations.
alter table sip_trunks add column follow_redirects boolean not null default false;
-- The latest message of the trunk's carrier that was not used, as JSON: when, what and why.
alter table sip_trunks add column refused_message text;
