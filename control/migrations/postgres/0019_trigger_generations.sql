-- A trigger that is changed to watch for something else may fire again in a period in which it has fired:
-- its generation counts such changes, and a firing is of one generation.

alter table usage_triggers add column generation bigint not null default 0;

create table usage_firings_of_generations (
  id text primary key not null,
  account_id text not null references accounts (id),
  trigger_id text not null references usage_triggers (id),
  generation bigint not null,
  event_id text not null,
  -- the event as it was told
  body text not null,
  period_started_at bigint not null,
  created_at bigint not null,
  unique (trigger_id, generation, period_started_at)
);
insert into usage_firings_of_generations
    (id, account_id, trigger_id, generation, event_id, body, period_started_at, created_at)
  select id, account_id, trigger_id, 0, event_id, body, period_started_at, created_at from usage_firings;
drop table usage_firings;
alter table usage_firings_of_generations rename to usage_firings;
create index usage_firings_newest_first on usage_firings (trigger_id, created_at desc, id);
