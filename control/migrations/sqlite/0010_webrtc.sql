-- Browser calls: who opened a session and may go on with it, and how the network was.
-- opened without an API key: by a call token, or by nobody who said so
alter table sessions add column keyless boolean not null default false;
-- the id of the call token that opened it; null: an API key did
alter table sessions add column opened_by text;
-- what the visitors of public agents are counted by: an HMAC of their address
alter table sessions add column visitor text;
create index sessions_by_visitor on sessions (visitor) where visitor is not null;
-- JSON; null where the channel measures nothing
alter table calls add column network text;
