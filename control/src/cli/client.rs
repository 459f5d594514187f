//! A client of the API, for the commands that act as one: a base address, a key, JSON in and out.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// Where the server is and who asks. Flattened into every command that talks to a server.
#[derive(Debug, Clone, clap::Args)]
pub struct Server {
    /// Address of the server, without /api/v1.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// API key.
    #[arg(long, env = "SIDETONE_API_KEY", hide_env_values = true)]
    pub key: String,
}

/// The REST side of a server.
pub struct Client {
    base: String,
    key: String,
    http: reqwest::Client,
}

/// What to ask `POST /conversation/connect` for.
#[derive(Debug, Clone, Copy)]
pub struct Connect<'a> {
    pub agent: &'a str,
    /// `inbound` or `outbound`.
    pub direction: &'a str,
    /// `native` or `telco`.
    pub protocol: &'a str,
    /// `pcm_16000` or `ulaw_8000`.
    pub audio_format: &'a str,
}

/// A session that waits for its one socket.
#[derive(Debug, Clone)]
pub struct Session {
    pub id: String,
    pub ws_url: String,
}

/// Why a request brought no usable answer.
#[derive(Debug)]
pub enum ClientError {
    /// No answer at all.
    Unreachable(String),
    /// An error body of the API.
    Refused {
        status: u16,
        code: String,
        message: String,
        retry_after: Option<u64>,
    },
    /// No agent has that name.
    NoAgent { wanted: String, names: String },
    /// An answer that is not what the API documents.
    Odd(String),
}

impl Client {
    /// A client for that server. Requests end after 30 s.
    pub fn new(server: &Server) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(30))
            // Between two requests a load run keeps this thread busy for long; a connection kept for
            // the second one would be found closed.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| ClientError::Unreachable(error.to_string()))?;
        Ok(Self {
            base: server.url.trim_end_matches('/').to_owned(),
            key: server.key.clone(),
            http,
        })
    }

    /// The id of an agent that is named by its id or its name.
    pub async fn agent_id(&self, wanted: &str) -> Result<String, ClientError> {
        if wanted.parse::<uuid::Uuid>().is_ok() {
            return Ok(wanted.to_owned());
        }
        let answer = self.get("/agents?limit=100").await?;
        let agents = answer["items"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let named = |agent: &&Value| {
            agent["name"]
                .as_str()
                .is_some_and(|name| name.eq_ignore_ascii_case(wanted))
        };
        let found = agents
            .iter()
            .find(named)
            .and_then(|agent| agent["id"].as_str());
        found.map(str::to_owned).ok_or_else(|| {
            let names: Vec<&str> = agents
                .iter()
                .filter_map(|agent| agent["name"].as_str())
                .collect();
            ClientError::NoAgent {
                wanted: wanted.to_owned(),
                names: names.join(", "),
            }
        })
    }

    /// Reserves a session for a WebSocket call.
    pub async fn connect(&self, wish: Connect<'_>) -> Result<Session, ClientError> {
        let body = json!({
            "agent_id": wish.agent,
            "transport": "websocket",
            "direction": wish.direction,
            "protocol": wish.protocol,
            "audio_format": wish.audio_format,
        });
        let answer = self.post("/conversation/connect", &body).await?;
        let text = |key: &str| {
            answer[key]
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| missing(key))
        };
        Ok(Session {
            id: text("session_id")?,
            ws_url: text("ws_url")?,
        })
    }

    /// The turns of a conversation, oldest first.
    pub async fn transcript(&self, conversation: &str) -> Result<Vec<Value>, ClientError> {
        let mut answer = self
            .get(&format!("/conversations/{conversation}/transcript"))
            .await?;
        match answer["turns"].take() {
            Value::Array(turns) => Ok(turns),
            _ => Err(missing("turns")),
        }
    }

    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.send(self.http.get(self.address(path))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.send(self.http.post(self.address(path)).json(body))
            .await
    }

    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(self.http.delete(self.address(path)))
            .await
            .map(drop)
    }

    fn address(&self, path: &str) -> String {
        format!("{}/api/v1{path}", self.base)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Value, ClientError> {
        let answer = request.header("X-API-Key", &self.key).send().await;
        let answer = answer.map_err(|error| ClientError::Unreachable(chain(&error)))?;
        let status = answer.status();
        let retry_after = answer
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = answer
            .bytes()
            .await
            .map_err(|error| ClientError::Unreachable(chain(&error)))?;
        if status.is_success() {
            if bytes.is_empty() {
                return Ok(Value::Null);
            }
            return serde_json::from_slice(&bytes)
                .map_err(|error| ClientError::Odd(error.to_string()));
        }
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Err(ClientError::Refused {
            status: status.as_u16(),
            code: body["code"].as_str().unwrap_or_default().to_owned(),
            message: explain(&body),
            retry_after,
        })
    }
}

fn missing(key: &str) -> ClientError {
    ClientError::Odd(format!("the answer has no {key}"))
}

/// The message, and the wrong fields if the body names some.
fn explain(body: &Value) -> String {
    let mut text = body["error"].as_str().unwrap_or("no message").to_owned();
    for field in body["fields"].as_array().into_iter().flatten() {
        let place: Vec<String> = field["loc"]
            .as_array()
            .into_iter()
            .flatten()
            .map(plain)
            .collect();
        text += &format!(
            "\n  {}: {}",
            place.join("."),
            field["msg"].as_str().unwrap_or_default()
        );
    }
    text
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// An error with its causes: the outermost alone often says only that something failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "the server does not answer: {why}"),
            Self::Refused { status: 401, .. } => f.write_str("the API key is not accepted (401)"),
            Self::Refused {
                status,
                code,
                message,
                retry_after,
            } => {
                write!(f, "the server refused ({status} {code}): {message}")?;
                retry_after.map_or(Ok(()), |seconds| write!(f, " (try again in {seconds} s)"))
            }
            Self::NoAgent { wanted, names } if names.is_empty() => {
                write!(f, "there is no agent “{wanted}”, nor any other")
            }
            Self::NoAgent { wanted, names } => {
                write!(f, "there is no agent “{wanted}”; there are: {names}")
            }
            Self::Odd(why) => write!(f, "the server's answer is not understood: {why}"),
        }
    }
}

impl std::error::Error for ClientError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_wrong_fields() {
        let body = json!({
            "error": "Validation failed",
            "fields": [{"loc": ["body", "agent_id"], "msg": "not a UUID", "type": "uuid_parsing"},
                       {"loc": ["body", "items", 3], "msg": "too long", "type": "string_too_long"}],
        });
        assert_eq!(
            explain(&body),
            "Validation failed\n  body.agent_id: not a UUID\n  body.items.3: too long"
        );
    }

    #[test]
    fn a_refusal_says_when_to_come_again() {
        let error = ClientError::Refused {
            status: 429,
            code: "capacity".to_owned(),
            message: "all lines are busy".to_owned(),
            retry_after: Some(5),
        };
        assert_eq!(
            error.to_string(),
            "the server refused (429 capacity): all lines are busy (try again in 5 s)"
        );
    }
}
