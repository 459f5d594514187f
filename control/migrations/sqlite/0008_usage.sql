-- What accounts use, what it costs them, what they want to be told of it, and whom they may not call.
-- Amounts are whole numbers of the smallest part that is counted: milliseconds of a call and of audio,
-- characters, tokens, segments, messages. Money is in millionths of a cent.

alter table accounts add column balance_microcents bigint not null default 0;
-- when the operator blocked it, and why; null: not blocked
alter table accounts add column blocked_at bigint;
alter table accounts add column block_reason text;

-- One row a thing that was used. Its source (a call, a request) counts once for each resource.
create table usage_records (
  account_id text not null references accounts (id),
  resource_type text not null,
  -- call:<id>, tts:<id>, …
  source text not null,
  agent_id text,
  call_id text,
  amount bigint not null,
  cost_microcents bigint not null,
  used_at bigint not null,
  primary key (account_id, resource_type, source)
);
create index usage_records_by_time on usage_records (account_id, used_at);

-- The same, summed by UTC day: what triggers are judged by.
create table usage_days (
  account_id text not null references accounts (id),
  resource_type text not null,
  -- days since 1970-01-01
  day bigint not null,
  amount bigint not null,
  primary key (account_id, resource_type, day)
);

create table usage_triggers (
  id text primary key not null,
  account_id text not null references accounts (id),
  name text,
  resource_type text not null,
  -- absolute, percent_of_limit
  threshold_type text not null,
  threshold_value bigint not null,
  -- day, week, month, all_time
  period text not null,
  event_callback_url text not null,
  -- beginning of the period in which it fired last
  fired_period_at bigint,
  created_at bigint not null,
  updated_at bigint not null
);
create index usage_triggers_by_account on usage_triggers (account_id, created_at desc, id);

-- A trigger fires once a period.
create table usage_firings (
  id text primary key not null,
  account_id text not null references accounts (id),
  trigger_id text not null references usage_triggers (id),
  event_id text not null,
  -- the event as it was told
  body text not null,
  period_started_at bigint not null,
  created_at bigint not null,
  unique (trigger_id, period_started_at)
);
create index usage_firings_newest_first on usage_firings (trigger_id, created_at desc, id);

-- Credit given to or taken from an account by the operator.
create table billing_adjustments (
  id text primary key not null,
  account_id text not null references accounts (id),
  amount_cents bigint not null,
  note text,
  balance_cents bigint not null,
  created_at bigint not null
);
create index billing_adjustments_by_account on billing_adjustments (account_id, created_at);

-- Numbers that are not called. A number may stand for several reasons; each is released by itself.
create table suppressions (
  id text primary key not null,
  account_id text not null references accounts (id),
  phone_number text not null,
  -- manual, person_request, sms_stop
  source text not null,
  reason text,
  -- active, released
  status text not null,
  created_at bigint not null,
  updated_at bigint not null,
  released_at bigint
);
create unique index suppressions_active on suppressions (account_id, phone_number, source)
  where status = 'active';
create index suppressions_newest_first on suppressions (account_id, created_at desc, id);

-- Tapes of calls without a recording, until they are old.
create table tapes (
  call_id text primary key not null references calls (id),
  account_id text not null,
  storage_key text not null,
  created_at bigint not null
);
create index tapes_by_age on tapes (created_at);
