-- Sessions, calls (a call, its conversation and its session share one id), turns, recordings,
-- signed audio tokens, and the outbox of events. Times are microseconds since 1970 in UTC.

create table calls (
  id text primary key not null,
  account_id text not null references accounts (id),
  agent_id text not null,
  agent_name text not null,
  -- queued, ringing, in_progress, completed, failed, no-answer, busy, canceled
  status text not null,
  -- created, in_progress, completed, failed, abandoned
  conversation_status text not null,
  -- inbound, outbound
  direction text not null,
  -- websocket (later also webrtc, sip, telco, collab, chatapp)
  channel text not null,
  language text not null,
  from_number text,
  to_number text,
  dynamic_variables text not null default '{}',
  metadata text not null default '{}',
  batch_id text,
  batch_recipient_index bigint,
  started_at bigint,
  answered_at bigint,
  ended_at bigint,
  duration_ms bigint,
  end_reason text,
  -- caller, agent, system, api
  ended_by text,
  turn_count bigint not null default 0,
  latency_summary text,
  -- JSON list of what went wrong inside the call, oldest first
  errors text not null default '[]',
  cost_cents bigint not null default 0,
  -- once the recording is ready and not deleted
  has_recording boolean not null default false,
  recording_id text,
  feedback_rating bigint,
  feedback_comment text,
  feedback_at bigint,
  -- who hosts the live call; null until somebody joins
  owner_node text,
  owner_incarnation bigint,
  created_at bigint not null,
  updated_at bigint not null
);
create index calls_by_account on calls (account_id, created_at desc, id);
create index calls_by_agent on calls (account_id, agent_id, created_at desc);
create index calls_live on calls (owner_node, owner_incarnation) where ended_at is null;

-- How somebody may join a call, once.
create table sessions (
  id text primary key not null references calls (id),
  account_id text not null,
  transport text not null,
  protocol text not null,
  audio_format text not null,
  -- SHA-256 of the one-time token, hex
  token_hash text not null,
  expires_at bigint not null,
  -- when it was used or given up; a session is joined at most once
  spent_at bigint,
  created_at bigint not null
);
create index sessions_waiting on sessions (expires_at) where spent_at is null;

create table turns (
  call_id text not null references calls (id),
  idx bigint not null,
  account_id text not null,
  -- the turn as the engine gave it, JSON
  body text not null,
  created_at bigint not null,
  primary key (call_id, idx)
);

create table recordings (
  id text primary key not null,
  account_id text not null,
  call_id text not null unique references calls (id),
  agent_id text not null,
  -- uploading, ready, failed
  status text not null,
  sample_rate bigint not null,
  samples bigint not null default 0,
  size_bytes bigint not null default 0,
  sha256 text,
  region text not null,
  -- names inside the object store; null when there is none
  storage_key text,
  tape_key text,
  error text,
  created_at bigint not null,
  updated_at bigint not null,
  ready_at bigint,
  deleted_at bigint
);
create index recordings_by_account on recordings (account_id, created_at desc, id);

-- One row a signed audio token; a token without its row is refused.
create table audio_tokens (
  id text primary key not null,
  account_id text not null,
  call_id text not null,
  expires_at bigint not null,
  revoked_at bigint,
  created_at bigint not null
);
create index audio_tokens_by_expiry on audio_tokens (expires_at);

-- The outbox: an event is inserted in the transaction that made it true; its body never changes.
create table events (
  id text primary key not null,
  account_id text not null,
  type text not null,
  -- durable, short, best_effort
  class text not null,
  agent_id text,
  call_id text,
  body text not null,
  -- pending, delivering, failed, delivered, unsafe, skipped, exhausted
  status text not null,
  attempts bigint not null default 0,
  next_attempt_at bigint,
  delivered_at bigint,
  last_error text,
  claim_token text,
  created_at bigint not null,
  updated_at bigint not null
);
-- The second wall beside the fence: a call ends once, whatever races.
create unique index events_one_end on events (call_id) where type = 'call.ended';
create index events_due on events (next_attempt_at) where status in ('pending', 'failed');
