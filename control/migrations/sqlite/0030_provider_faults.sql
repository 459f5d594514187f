-- What the providers of a call's speech did wrong: {"kept":[{"at_ms","stage","provider","code","message"}],"count"}.
-- Null for calls without a fault.
alter table calls add column provider_faults text;
