//! Requests to a provider: where they go, with which key, and what their failures mean.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::{RequestBuilder, Response, StatusCode, Url, header};
use serde_json::Value;
use tokio::time::timeout;

use super::blame::Blame;
use super::plan::Fault;
use super::settings::ProviderSettings;
use crate::secret::Secret;

/// A connection is made within this or not at all.
const CONNECT: Duration = Duration::from_secs(3);

/// How long idle connections are kept: a call asks again within seconds, another call within minutes.
const IDLE: Duration = Duration::from_secs(90);

/// The longest list of models that is read while a connection is opened, bytes.
const LIST: usize = 1 << 20;

/// What is read of an error's body, bytes, and for how long.
const ERROR_BODY: usize = 4 << 10;
const ERROR_PATIENCE: Duration = Duration::from_millis(500);

/// What is kept of an error's words.
const MESSAGE: usize = 200;

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
        let message = self.words_of(response).await;
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Fault::Busy {
                status: status.as_u16(),
                after,
                message,
            },
            status if status.is_server_error() => Fault::Busy {
                status: status.as_u16(),
                after,
                message,
            },
            status => Fault::Refused {
                status: status.as_u16(),
                message,
            },
        })
    }

    /// What an error's body says, without the key, which some servers repeat.
    async fn words_of(&self, response: Response) -> String {
        let mut body = Vec::new();
        let read = async {
            let mut bytes = response.bytes_stream();
            while let Some(Ok(part)) = bytes.next().await {
                body.extend_from_slice(&part);
                if body.len() >= ERROR_BODY {
                    break;
                }
            }
        };
        // A body that does not come leaves the status, which says the most.
        let _ = timeout(ERROR_PATIENCE, read).await;
        let mut words = error_words(&String::from_utf8_lossy(&body));
        if let Some(key) = &self.key
            && !key.expose().is_empty()
        {
            words = words.replace(key.expose().as_str(), "•••");
        }
        words.chars().take(MESSAGE).collect()
    }
}

/// The message of an error in any of its common forms.
pub(super) fn error_words(body: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(body) else {
        return body.trim().to_owned();
    };
    let places = [
        &value["error"]["message"],
        &value["error"],
        &value["message"],
        &value["detail"]["message"],
        &value["detail"],
    ];
    let told = places.into_iter().find_map(Value::as_str);
    told.unwrap_or(body.trim()).to_owned()
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
    Fault::Broken(words.chars().take(MESSAGE).collect())
}

/// `Retry-After` in seconds (RFC 9110, section 10.2.3); a date is not worth waiting for within a turn.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds: f64 = value.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_error_are_found_in_its_common_forms() {
        for (body, words) in [
            (
                r#"{"error":{"message":"no such model","code":null}}"#,
                "no such model",
            ),
            (r#"{"error":"model not found"}"#, "model not found"),
            (r#"{"message":"slow down"}"#, "slow down"),
            (
                r#"{"detail":{"status":"x","message":"no voice"}}"#,
                "no voice",
            ),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (" plain words\n", "plain words"),
            ("{}", "{}"),
        ] {
            assert_eq!(error_words(body), words);
        }
    }
}
