-- What housekeeping looks for often and finds seldom.
create index calls_open_by_agent on calls (account_id, agent_id) where ended_at is null;
create index recordings_to_clear on recordings (deleted_at)
  where deleted_at is not null and storage_key is not null;
create index recordings_uploading on recordings (created_at) where status = 'uploading';
