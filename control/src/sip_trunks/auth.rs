//! Which fields of authentication go together (document 3, SIP trunks). Pure.

use super::rules::{AuthMode, TrunkType};

/// What a trunk is to be known by.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub kind: TrunkType,
    pub mode: AuthMode,
    pub username: bool,
    pub password: bool,
    /// Some address that inbound calls may come from.
    pub addresses: bool,
    /// A field that only trunks that register have.
    pub register_only: bool,
}

/// Whether they do; the error is for people.
pub fn check(given: Given) -> Result<(), &'static str> {
    let Given {
        kind,
        mode,
        username,
        password,
        addresses,
        register_only,
    } = given;
    if mode == AuthMode::Register && kind == TrunkType::Outbound {
        return Err("auth_mode register is for inbound trunks");
    }
    if mode != AuthMode::Register && register_only {
        return Err(
            "realm, register_expires, outbound_auth and outbound_from_user need auth_mode register",
        );
    }
    if mode.has_credentials() && !(username && password) {
        return Err("this auth_mode needs both auth_username and auth_password");
    }
    if !mode.has_credentials() && (username || password) {
        return Err("auth_mode ip_acl takes no credentials: both controls are digest_plus_ip_acl");
    }
    if kind == TrunkType::Inbound && mode.has_addresses() && !addresses {
        return Err("this auth_mode needs allowed_addresses");
    }
    if mode == AuthMode::Digest && addresses {
        return Err(
            "auth_mode digest takes no allowed_addresses: both controls are digest_plus_ip_acl",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_takes_its_own_fields_and_no_others() {
        use AuthMode::{Digest, DigestPlusIpAcl, IpAcl, Register};
        use TrunkType::{Inbound, Outbound};
        // Kind, mode, user name, password, addresses, fields of registrations; whether they go together.
        let cases = [
            (Outbound, Digest, true, true, false, false, true),
            (Outbound, Digest, true, false, false, false, false),
            (Outbound, Digest, false, true, false, false, false),
            (Outbound, Digest, false, false, false, false, false),
            (Outbound, Digest, true, true, true, false, false),
            (Outbound, Digest, true, true, false, true, false),
            (Outbound, IpAcl, false, false, false, false, true),
            (Outbound, IpAcl, true, false, false, false, false),
            (Outbound, IpAcl, false, true, true, false, false),
            (Outbound, DigestPlusIpAcl, true, true, false, false, true),
            (Outbound, Register, true, true, false, false, false),
            (Inbound, IpAcl, false, false, true, false, true),
            (Inbound, IpAcl, false, false, false, false, false),
            (Inbound, DigestPlusIpAcl, true, true, true, false, true),
            (Inbound, DigestPlusIpAcl, true, true, false, false, false),
            (Inbound, DigestPlusIpAcl, false, false, true, false, false),
            (Inbound, Register, true, true, false, true, true),
            (Inbound, Register, false, false, false, false, false),
        ];
        for (kind, mode, username, password, addresses, register_only, right) in cases {
            let given = Given {
                kind,
                mode,
                username,
                password,
                addresses,
                register_only,
            };
            assert_eq!(check(given).is_ok(), right, "{given:?}");
        }
    }
}
