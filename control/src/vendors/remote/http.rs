//! Requests to a provider: where they go, with which key, and what their failures mean.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::{RequestBuilder, Response, StatusCode, Url, header};
use tokio::time::timeout;

use super::blame::Blame;
use super::complaint;
use super::plan::Fault;
use super::settings::ProviderSettings;
use crate::secret::Secret;

/// A connection is made within this or not at all.
const CONNECT: Duration = Duration::from_secs(3);

/// How long idle connections are kept: a call asks again within seconds, another call within minutes.
const IDLE: Duration = Duration::from_secs(90);

/// The longest list of models that is read while a connection is opened, bytes.
const LIST: usize = 1 << 20;

/// How long an error's body is read.
const ERROR_PATIENCE: Duration = Duration::from_millis(500);

/// The HTTP client of all providers. It follows no redirect, so that a key goes nowhere but to the
/// address that the operator wrote down.
pub(super) fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("sidetone/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// One provider's HTTP side.
pub(super) struct Endpoint {
    client: reqwest::Client,
    base: Url,
    key: Option<Secret<String>>,
}

impl Endpoint {
    pub(super) fn new(client: reqwest::Client, settings: &ProviderSettings) -> Self {
        Self {
            client,
            base: settings.base_url.clone(),
            key: settings.key.clone(),
        }
    }

    pub(super) fn post(&self, path: &str) -> RequestBuilder {
        self.signed(self.client.post(self.url(path)))
    }

    /// Opens a connection, so that the first request of a call does not wait for one. What is answered
    /// is of no interest, and neither is a failure: the request will meet the same.
    pub(super) async fn warm_up(&self) {
        let request = self.signed(self.client.get(self.url("models")));
        let warm = async {
            // Only a connection whose answer was read to its end is kept.
            if let Ok(mut response) = request.send().await {
                let mut size = 0;
                while let Ok(Some(part)) = response.chunk().await {
                    size += part.len();
                    if size > LIST {
                        return;
                    }
                }
            }
        };
        let _ = timeout(CONNECT, warm).await;
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base.as_str().trim_end_matches('/'))
    }

    fn signed(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        }
    }

    /// The answer's head, which has to come within the deadline and be a success.
    pub(super) async fn send(
        &self,
        provider: &Blame,
        request: RequestBuilder,
        within: Duration,
    ) -> Result<Response, Fault> {
        let response = match timeout(within, request.send()).await {
            Err(_) => return Err(Fault::Stalled(within)),
            Ok(Err(error)) => return Err(broken(error)),
            Ok(Ok(response)) => response,
        };
        provider.answered(response.headers());
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let after = retry_after(&response);
        let body = self.beginning(response).await;
        let words = complaint::read(&String::from_utf8_lossy(&body));
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Fault::Busy {
                status: status.as_u16(),
                after,
                words,
            },
            status if status.is_server_error() => Fault::Busy {
                status: status.as_u16(),
                after,
                words,
            },
            status => Fault::Refused {
                status: status.as_u16(),
                words,
            },
        })
    }

    /// How a body begins that is an error or no answer, without the key, which some servers repeat.
    pub(super) async fn beginning(&self, response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        let read = async {
            let mut bytes = response.bytes_stream();
            while body.len() < complaint::READ {
                match bytes.next().await {
                    Some(Ok(part)) => body.extend_from_slice(&part),
                    Some(Err(_)) => return false,
                    None => return true,
                }
            }
            false
        };
        // A body that does not come leaves the status, which says the most.
        let whole = timeout(ERROR_PATIENCE, read).await.unwrap_or(false);
        let key = self.key.as_ref().map(|key| key.expose().as_str());
        let text = complaint::without_key(&String::from_utf8_lossy(&body), key);
        match whole {
            true => text.into_bytes(),
            false => complaint::without_cut_key(&text).into_bytes(),
        }
    }
}

/// A connection's failure, without the address: that is in the settings.
pub(super) fn broken(error: reqwest::Error) -> Fault {
    let error = error.without_url();
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    Fault::Broken(complaint::line(&words))
}

/// Whether a media type is that of a JSON document. Its letters have no case (RFC 9110, section 8.3.1).
pub(super) fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    matches!(kind.as_str(), "application/json" | "text/json") || kind.ends_with("+json")
}

/// `Retry-After` in seconds (RFC 9110, section 10.2.3); a date is not worth waiting for within a turn.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds: f64 = value.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
