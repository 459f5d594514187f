-- Whether a challenge with MD5 and without qop is answered. Trunks that are there already go on as they did.
alter table sip_trunks add column allow_md5_without_qop boolean not null default false;
update sip_trunks set allow_md5_without_qop = true;
-- The latest challenge to a request over the trunk that was not answered, and why.
alter table sip_trunks add column challenge_at bigint;
alter table sip_trunks add column challenge_code bigint;
alter table sip_trunks add column challenge_reason text;
