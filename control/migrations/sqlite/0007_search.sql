-- What was said in a turn, in small letters: searched by GET /conversations/search.
alter table turns add column words text not null default '';
update turns set words = lower(coalesce(json_extract(body, '$.text'), ''));
-- What the providers of a call's speech call their answers: to be asked about with them. JSON list.
alter table calls add column provider_request_ids text not null default '[]';
