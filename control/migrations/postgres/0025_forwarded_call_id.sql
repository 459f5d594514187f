-- Of a call that goes out because another one is forwarded: the call that came in. metadata names it for clients, who
-- may write the same into that of their own calls. Of the rows before only those of calls that are not over matter.
alter table calls add column forwarded_call_id text;
update calls set forwarded_call_id = substr(metadata, 23, 36)
where ended_at is null and direction = 'outbound' and metadata like '{"forwarded_call_id":"%';
create index calls_forwarded_open on calls (created_at) where forwarded_call_id is not null and ended_at is null;
