-- Delivery of events. A claim is a number that only grows; an event goes to its agent's address, or to
-- one of its own.
alter table events drop column claim_token;
alter table events add column claim_token bigint not null default 0;
alter table events add column url text;

drop index events_due;
create index events_due_by_account on events (account_id, next_attempt_at)
  where status in ('pending', 'failed', 'delivering');

-- The secret with which an account's events are signed, encrypted with the master key.
create table webhook_secrets (
  account_id text primary key not null references accounts (id),
  sealed text not null,
  rotated_at bigint not null
);

-- The UTC day of the last event about an agent's unfilled placeholders: one a day.
create table unfilled_notices (
  agent_id text primary key not null,
  account_id text not null,
  day text not null
);
