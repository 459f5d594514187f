//! Which transaction a message belongs to (RFC 3261 17.1.3, 17.2.3).

use crate::ids::MAGIC_COOKIE;
use crate::message::{Method, Name, Request, Response};

/// The key of a client transaction: our own branch, and the method.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey {
    branch: String,
    method: Method,
}

impl ClientKey {
    pub fn new(branch: &str, method: Method) -> Self {
        Self {
            branch: branch.to_owned(),
            method,
        }
    }

    pub fn of(response: &Response) -> Option<Self> {
        Some(Self::new(
            response.via()?.branch()?,
            response.cseq()?.method,
        ))
    }
}

/// The key of a server transaction: the branch, who made it, and the method, where ACK counts as
/// INVITE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerKey {
    id: String,
    method: Method,
}

impl ServerKey {
    /// Of a request that was validated. Requests of RFC 2543, whose branch lacks the cookie, are told
    /// apart by the fields that 17.2.3 names.
    pub fn of(request: &Request) -> Option<Self> {
        let via = request.via()?;
        let port = via.port.unwrap_or(0);
        let id = match via.branch() {
            Some(branch) if has_cookie(branch) => {
                // Host names compare without case.
                format!("{branch} {}:{port}", via.host).to_ascii_lowercase()
            }
            _ => {
                let from = request.from()?;
                // The To tag is left out: an ACK carries one that its INVITE lacked.
                format!(
                    "2543 {} {} {} {} {via}",
                    request.uri,
                    from.tag().unwrap_or_default(),
                    request.headers.get(&Name::CallId).unwrap_or_default(),
                    request.cseq()?.number,
                )
            }
        };
        Some(Self {
            id,
            method: match &request.method {
                Method::Ack => Method::Invite,
                method => method.clone(),
            },
        })
    }

    /// The INVITE that a CANCEL with this key asks to end (RFC 3261 9.2).
    pub fn invite(&self) -> Self {
        Self {
            id: self.id.clone(),
            method: Method::Invite,
        }
    }
}

fn has_cookie(branch: &str) -> bool {
    branch
        .get(..MAGIC_COOKIE.len())
        .is_some_and(|begin| begin.eq_ignore_ascii_case(MAGIC_COOKIE))
}
