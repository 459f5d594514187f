//! One request to an address that a user gave, with its bounds.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder};

use super::resolve::{Guard, NoAddress, NotPublic, Resolver, System};
use super::url::{self, Allow, Ports};

/// A connection must stand within this: look-up, TCP and TLS together.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a request may take, from the look-up to the last byte that is read.
pub const TOTAL: Duration = Duration::from_secs(10);
/// What is read of an answer's body; the rest is left in the network.
pub const MAX_BODY: usize = 64 * 1024;
/// Idle connections kept to one host: a burst of events goes over one or two.
const IDLE: (usize, Duration) = (2, Duration::from_secs(30));

/// The client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Egress {
    http: reqwest::Client,
    allow: Allow,
}

/// A request.
#[derive(Debug)]
pub struct Call<'a> {
    pub method: Method,
    pub url: &'a str,
    pub ports: Ports,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// At most this in all; [`TOTAL`] where nobody chose.
    pub timeout: Duration,
}

/// What came back, whatever the status: a redirection is an answer and is not followed.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// At most [`MAX_BODY`] bytes.
    pub body: Vec<u8>,
    /// The body came to its end within the bounds.
    pub whole: bool,
}

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The policy forbids the address; trying again is of no use while it stays what it is.
    Unsafe(String),
    /// No address, no connection, a certificate that does not hold, a broken answer.
    Unreachable(String),
    TimedOut,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsafe(why) | Self::Unreachable(why) => f.write_str(why),
            Self::TimedOut => f.write_str("timed out"),
        }
    }
}

impl Egress {
    /// With the system's certificates and name servers, or the name server given.
    pub fn start(allow: Allow, dns: Option<SocketAddr>) -> Result<Self, String> {
        let resolver = Arc::new(System::new(dns)?);
        match Self::build(builder(), resolver.clone(), allow.clone()) {
            Ok(egress) => Ok(egress),
            Err(error) => {
                // A machine without certificates can still talk to what `egress.allow` names.
                tracing::warn!(%error, "no certificates: no https address of a user can be reached");
                Self::build(builder().tls_certs_only([]), resolver, allow)
            }
        }
    }

    /// With these certificates only and another resolver.
    pub fn with(
        allow: Allow,
        resolver: Arc<dyn Resolver>,
        roots: Vec<Certificate>,
    ) -> Result<Self, String> {
        Self::build(builder().tls_certs_only(roots), resolver, allow)
    }

    fn build(
        builder: ClientBuilder,
        resolver: Arc<dyn Resolver>,
        allow: Allow,
    ) -> Result<Self, String> {
        let guard = Guard {
            resolver,
            allow: allow.clone(),
        };
        let http = builder.dns_resolver(Arc::new(guard)).build();
        let http = http.map_err(|error| chain(&error))?;
        Ok(Self { http, allow })
    }

    /// Sends a request and reads what the bounds let in.
    pub async fn send(&self, call: Call<'_>) -> Result<Answer, Failure> {
        let Call {
            method,
            url,
            ports,
            headers,
            body,
            timeout,
        } = call;
        let url = url::check(url, ports, &self.allow)
            .map_err(|refusal| Failure::Unsafe(refusal.to_string()))?;
        let request = self.http.request(method, url).headers(headers).body(body);
        let mut answer = request
            .timeout(timeout)
            .send()
            .await
            .map_err(|error| failure(&error))?;
        let (mut body, mut whole) = (Vec::new(), false);
        while body.len() < MAX_BODY {
            match answer.chunk().await {
                Ok(Some(chunk)) => {
                    let room = MAX_BODY - body.len();
                    body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                }
                Ok(None) => {
                    whole = true;
                    break;
                }
                // The status is known; a body that breaks off or drips is only cut.
                Err(_) => break,
            }
        }
        Ok(Answer {
            status: answer.status().as_u16(),
            headers: std::mem::take(answer.headers_mut()),
            body,
            whole,
        })
    }
}

fn builder() -> ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
        .timeout(TOTAL)
        .pool_max_idle_per_host(IDLE.0)
        .pool_idle_timeout(IDLE.1)
        .user_agent(concat!("sidetone/", env!("CARGO_PKG_VERSION")))
}

fn failure(error: &reqwest::Error) -> Failure {
    if let Some(refused) = cause::<NotPublic>(error) {
        return Failure::Unsafe(refused.to_string());
    }
    if let Some(missing) = cause::<NoAddress>(error) {
        return Failure::Unreachable(missing.to_string());
    }
    if error.is_timeout() {
        return Failure::TimedOut;
    }
    Failure::Unreachable(chain(error))
}

/// The first cause of this type.
fn cause<'a, E: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a E> {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref())
}

/// An error with its causes, without the address: it may hold a token.
fn chain(error: &reqwest::Error) -> String {
    let causes: Vec<String> =
        std::iter::successors(std::error::Error::source(error), |error| error.source())
            .map(ToString::to_string)
            .collect();
    if causes.is_empty() {
        "the request failed".to_owned()
    } else {
        causes.join(": ")
    }
}
