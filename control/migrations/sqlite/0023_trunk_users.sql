-- A carrier that proves itself by a user name and a password: over accounts the password tells whose it is.
drop index sip_trunks_one_user;
create unique index sip_trunks_one_user on sip_trunks (account_id, auth_username)
  where type = 'inbound' and auth_mode in ('digest', 'digest_plus_ip_acl') and deleted_at is null;
