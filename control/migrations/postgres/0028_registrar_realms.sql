-- In which realms the registrar of a trunk asks for its password, as whoever registers it has heard: a JSON list, empty
-- where the registrar asks for none. null: it was not heard since the trunk was made or enabled.
alter table sip_trunks add column registrar_realms text;
-- Forwarded calls of nodes that knew no forwarded_call_id: metadata alone names the call that came in. They knew no
-- placed_at either, which tells them from the calls of clients who write the same. To go with the question that reads it.
create index calls_forwarded_before on calls (created_at)
  where forwarded_call_id is null and placed_at is null and direction = 'outbound' and ended_at is null;
