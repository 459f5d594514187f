-- When a call was placed, by the time that all processes of this database share: what a trunk's calls per
-- hour are counted by. created_at is the wall clock's, which may be set.
alter table calls add column placed_at bigint;
update calls set placed_at = created_at where direction = 'outbound' and trunk_id is not null;
create index calls_by_trunk_placed on calls (trunk_id, placed_at);
