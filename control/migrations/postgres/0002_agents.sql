-- Agents. Settings are one JSON object that holds only what was set; what is searched or sorted by has
-- a column of its own.
create table agents (
    id            text    not null primary key,
    account_id    text    not null references accounts (id),
    name          text    not null,
    status        text    not null,
    status_reason text,
    settings      text    not null,
    version       bigint  not null,
    created_at    bigint  not null,
    updated_at    bigint  not null
);

create index agents_newest_first on agents (account_id, created_at desc, id desc);

-- Which accounts have been given their demo agent, so that a deleted one does not come back.
create table demo_agents (
    account_id text    not null primary key references accounts (id),
    agent_id   text    not null,
    created_at bigint not null
);
