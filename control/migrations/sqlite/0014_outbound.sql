-- Calls that are placed: how they rang, what the carrier said, and which requests were answered before.

-- when the other side first said that it rings
alter table calls add column rang_at bigint;
-- the final response to our INVITE
alter table calls add column sip_code bigint;
-- in place of the agent's
alter table calls add column max_duration_seconds bigint;

-- Requests with an Idempotency-Key that made something, for a day.
create table idempotency_keys (
  account_id text not null references accounts (id),
  -- SHA-256 of the key, hex
  key_hash text not null,
  -- SHA-256 of route and body, hex
  fingerprint text not null,
  -- what was made
  resource_id text not null,
  created_at bigint not null,
  primary key (account_id, key_hash)
);
create index idempotency_keys_by_age on idempotency_keys (created_at);
