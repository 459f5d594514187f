-- SIP trunks and phone numbers. Deleted trunks and released numbers stay, for the calls that name them.
create table sip_trunks (
  id text primary key not null,
  account_id text not null references accounts (id),
  name text not null,
  -- inbound, outbound
  type text not null,
  -- JSON lists of text
  numbers text not null default '[]',
  allowed_addresses text not null default '[]',
  -- digest, ip_acl, digest_plus_ip_acl, register
  auth_mode text not null,
  auth_username text,
  password_sealed text,
  -- host or host:port
  outbound_address text,
  realm text,
  register_expires bigint,
  -- proxy, direct
  outbound_auth text,
  -- number, username
  outbound_from_user text,
  -- udp, tcp, tls
  transport text not null,
  -- allow, disable, require
  media_encryption text not null,
  -- e164, digits, national
  outbound_dial_format text not null,
  -- JSON: mode, entries
  destination_allowlist text,
  max_concurrent_calls bigint not null,
  calls_per_hour_limit bigint,
  is_default_outbound boolean not null default false,
  -- active, disabled
  status text not null,
  -- of trunks that register: unregistered, registered, failed
  registration_status text,
  registration_expires_at bigint,
  registration_error text,
  -- which process registers, and until when nobody else may
  registrar text,
  registrar_until bigint,
  created_at bigint not null,
  updated_at bigint not null,
  deleted_at bigint
);
create index sip_trunks_newest_first on sip_trunks (account_id, created_at desc, id desc);
create unique index sip_trunks_one_default on sip_trunks (account_id) where is_default_outbound;
-- A carrier that proves itself by a user name alone is found by it.
create unique index sip_trunks_one_user on sip_trunks (auth_username)
  where type = 'inbound' and auth_mode in ('digest', 'digest_plus_ip_acl') and deleted_at is null;

create table phone_numbers (
  id text primary key not null,
  account_id text not null references accounts (id),
  -- as it was given
  phone_number text not null,
  -- the same without the plus: two spellings are one number
  digits text not null,
  -- telco, sip, or a regional short code's carrier
  provider text not null,
  friendly_name text not null default '',
  agent_id text,
  outbound_enabled boolean not null default false,
  trunk_id text references sip_trunks (id),
  -- JSON: fallback_action, fallback_number, max_ring_seconds
  routing_rules text,
  telco_account_id text,
  messaging_account_id text,
  sms_sender boolean not null default false,
  sms_sender_default boolean not null default false,
  sms_inbound boolean not null default false,
  replies_acknowledged_at bigint,
  created_at bigint not null,
  updated_at bigint not null,
  released_at bigint
);
create index phone_numbers_newest_first on phone_numbers (account_id, created_at desc, id desc);
create index phone_numbers_by_agent on phone_numbers (account_id, agent_id);
-- A number is one account's; short codes are their carrier's and not ours to compare.
create unique index phone_numbers_one_owner on phone_numbers (digits)
  where released_at is null and provider in ('telco', 'sip');

alter table calls add column phone_number_id text;
alter table calls add column trunk_id text;
create index calls_by_trunk on calls (trunk_id, created_at);

-- Grows with every change of a trunk: how the nodes learn of it.
insert into counters (name, value) values ('sip_trunks', 0);
