-- The SIP messages of telephone calls, bounded and with credentials and keys masked.

create table sip_traces (
  call_id text primary key not null references calls (id),
  account_id text not null references accounts (id),
  -- JSON list, oldest first: {at, direction, transport, peer, message}
  messages text not null,
  -- how many in the middle found no room
  left_out bigint not null,
  updated_at bigint not null
);
