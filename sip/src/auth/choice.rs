//! Which of a response's challenges is answered, if any.

use core::fmt;
use core::net::SocketAddr;

use super::{Algorithm, Challenge, Credentials};

/// Why no challenge of a response is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// Its request went to, or it came from, an address that is of none of the trunk's hosts.
    Stranger(SocketAddr),
    /// It asks in another realm than the trunk's carrier.
    Realm(String),
    /// Neither a REGISTER nor the INVITE of a call was challenged before: the trunk's realm is not known.
    NoRealm(String),
    /// MD5 without qop, which the trunk does not allow.
    Md5WithoutQop,
    /// None is of a scheme, algorithm and qop that we know.
    Unknown,
}

/// Characters of a realm that are told; whoever challenges may write any.
const MOST_TOLD: usize = 64;

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |realm: &str| realm.chars().take(MOST_TOLD).collect::<String>();
        match self {
            Self::Stranger(addr) => write!(f, "{addr} is of none of the trunk's hosts"),
            Self::Realm(realm) => write!(f, "realm {:?} is not the trunk's", short(realm)),
            Self::NoRealm(realm) => write!(
                f,
                "realm {:?} was not seen in a challenge to a REGISTER or to the first INVITE",
                short(realm)
            ),
            Self::Md5WithoutQop => {
                f.write_str("MD5 without qop needs the trunk's allow_md5_without_qop")
            }
            Self::Unknown => f.write_str("it has no scheme, algorithm and qop that we know"),
        }
    }
}

impl Challenge {
    /// The challenge that these credentials answer, of the values in a response: one in `realm`, where that is
    /// known, else in that of the first which may be answered. The server's order decides (RFC 8760 2.4), but MD5
    /// comes last.
    pub fn choose<'a>(
        values: impl Iterator<Item = &'a str>,
        credentials: &Credentials,
        realm: Option<&str>,
    ) -> Result<Self, Withheld> {
        let mut fit: Vec<Self> = values.filter_map(Self::parse).collect();
        let asked = fit.first().ok_or(Withheld::Unknown)?.realm.clone();
        if let Some(realm) = credentials.realm.as_deref().or(realm) {
            fit.retain(|challenge| challenge.realm == realm);
        }
        if fit.is_empty() {
            return Err(Withheld::Realm(asked));
        }
        fit.retain(|challenge| credentials.md5_without_qop || !challenge.is_md5_without_qop());
        let realm = fit.first().ok_or(Withheld::Md5WithoutQop)?.realm.clone();
        let rank = |one: &Self| (one.algorithm == Algorithm::Md5, !one.qop);
        fit.into_iter()
            .filter(|challenge| challenge.realm == realm)
            .min_by_key(rank)
            .ok_or(Withheld::Md5WithoutQop)
    }

    fn is_md5_without_qop(&self) -> bool {
        self.algorithm == Algorithm::Md5 && !self.qop
    }
}
