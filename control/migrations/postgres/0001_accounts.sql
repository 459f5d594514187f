-- Tenants.
create table accounts (
    id text primary key,
    name text not null unique,
    created_at bigint not null,
    updated_at bigint not null
);

-- API keys. The strings that open them are in api_key_secrets: during the grace of a rotation there
-- are two for one key.
create table api_keys (
    id text primary key,
    account_id text not null references accounts (id),
    name text not null,
    key_prefix text not null,
    scopes text not null,
    expires_at bigint,
    revoked_at bigint,
    created_at bigint not null,
    updated_at bigint not null
);

create index api_keys_by_account on api_keys (account_id, created_at desc, id);

create table api_key_secrets (
    public_id text primary key,
    key_id text not null references api_keys (id),
    hash bytea not null,
    valid_until bigint
);

create index api_key_secrets_by_key on api_key_secrets (key_id);

-- Numbers that only grow, across restarts: a process start takes the next incarnation.
create table counters (
    name text primary key,
    value bigint not null
);

insert into counters (name, value) values ('incarnation', 0);
