-- The latest failure of a trunk's registration: it stays while later attempts succeed.
alter table sip_trunks add column failure_at bigint;
-- the registrar's response, when it gave one
alter table sip_trunks add column failure_code bigint;
alter table sip_trunks add column failure_reason text;
