-- The processes that share this database, one row a start. A node adds one to `beats` every two
-- seconds; the others take it for dead when the number stands still, whatever their clocks say.
create table nodes (
  incarnation bigint primary key not null,
  name text not null,
  -- where the other nodes reach it
  address text not null,
  -- calls that it takes at most
  capacity bigint not null,
  beats bigint not null,
  -- for people: the node's own clock at its last beat
  beat_at bigint not null,
  started_at bigint not null,
  -- when another node found it dead; its calls are ended
  lost_at bigint
);
create index nodes_by_name on nodes (name);
