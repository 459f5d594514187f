-- A trunk's calls of the last hour that have no placed_at: those of nodes of the version before it. What came in over
-- the trunk has none either, and is not looked at. Nothing else asks for the calls of a trunk by created_at.
drop index calls_by_trunk;
create index calls_by_trunk_direction on calls (trunk_id, direction, created_at);
