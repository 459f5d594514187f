//! Which of a response's challenges is answered, if any.

use core::fmt;
use core::net::SocketAddr;

use super::{Algorithm, Challenge, Credentials};
use crate::message::header::AuthValue;
use crate::message::{Name, Request};

/// Why no challenge of a response is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// Its request went to, or it came from, an address that is of none of the trunk's hosts.
    Stranger(SocketAddr),
    /// It asks in another realm than the trunk's carrier.
    Realm(String),
    /// The trunk is to register, and its registrar was not heard yet: which realm is its carrier's is not known.
    Unregistered,
    /// Neither a REGISTER nor the INVITE that opens a call was challenged before: the trunk's realm is not known.
    NoRealm(String),
    /// The trunk's carrier asks in that realm with another status code.
    Code { asked: u16, usual: u16 },
    /// The INVITE was passed on to somebody already, who may be the one that asks.
    Progressed,
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
            Self::Unregistered => {
                f.write_str("the trunk's registrar, which names the realm, was not heard yet")
            }
            Self::Code { asked, usual } => {
                write!(
                    f,
                    "{asked} in the realm in which the trunk's carrier asks with {usual}"
                )
            }
            Self::Progressed => {
                f.write_str("the call had reached somebody, who is not the carrier")
            }
            Self::Md5WithoutQop => {
                f.write_str("MD5 without qop needs the trunk's allow_md5_without_qop")
            }
            Self::Unknown => f.write_str("it has no scheme, algorithm and qop that we know"),
        }
    }
}

impl Challenge {
    /// The challenge that these credentials answer, of the values in a response: one in one of `realms`, where any are
    /// known, else in that of the first which may be answered. The server's order decides (RFC 8760 2.4), but MD5
    /// comes last, and so does a realm of `given`, in which the request bore credentials.
    pub fn choose<'a>(
        values: impl Iterator<Item = &'a str>,
        credentials: &Credentials,
        realms: &[&str],
        given: &[String],
    ) -> Result<Self, Withheld> {
        let mut fit: Vec<Self> = values.filter_map(Self::parse).collect();
        let asked = fit.first().ok_or(Withheld::Unknown)?.realm.clone();
        fit.retain(|challenge| match &credentials.realm {
            Some(realm) => challenge.realm == *realm,
            None => realms.is_empty() || realms.contains(&challenge.realm.as_str()),
        });
        if fit.is_empty() {
            return Err(Withheld::Realm(asked));
        }
        fit.retain(|challenge| credentials.md5_without_qop || !challenge.is_md5_without_qop());
        let is_new = |one: &&Self| one.stale || !given.contains(&one.realm);
        let first = fit.iter().find(is_new).or(fit.first());
        let realm = first.ok_or(Withheld::Md5WithoutQop)?.realm.clone();
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

/// The header in which a response of this code challenges.
pub(super) fn header_of(code: u16) -> Name {
    match code {
        401 => Name::WwwAuthenticate,
        _ => Name::ProxyAuthenticate,
    }
}

/// The header that answers such a response; `None`: it is no challenge.
pub(super) fn answer_to(code: u16) -> Option<Name> {
    match code {
        401 => Some(Name::Authorization),
        407 => Some(Name::ProxyAuthorization),
        _ => None,
    }
}

/// The realms in which a request bears credentials that answer such a response.
pub(super) fn realms_given(request: &Request, code: u16) -> Vec<String> {
    let Some(answer) = answer_to(code) else {
        return Vec::new();
    };
    let given = request.headers.all(&answer).filter_map(AuthValue::parse);
    given
        .filter_map(|given| given.get("realm").map(str::to_owned))
        .collect()
}
