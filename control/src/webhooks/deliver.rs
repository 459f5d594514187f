//! One attempt: sign, send, judge.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::event::Status;
use super::outbox::Event;
use super::schedule::{Class, Schedule};
use super::{service, sign};
use crate::egress::{Answer, Call, Failure, Ports};
use crate::ids::{AccountId, EventId};
use crate::jobs::Finished;
use crate::node::Node;
use crate::time::Timestamp;

/// How an attempt went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer of 2xx.
    Taken,
    /// Anything else that may be better another time, a redirection too.
    Failed(String),
    /// The policy forbids the address.
    Unsafe(String),
}

/// Sends the event to `url`, signed with the secret of this moment.
pub async fn attempt(app: &Node, account: AccountId, event: &Event, url: &str) -> Outcome {
    let secret = match service::signing_secret(app, account).await {
        Ok(secret) => secret,
        Err(error) => {
            tracing::error!(%error, %account, "no secret to sign with");
            return Outcome::Failed("the event could not be signed".to_owned());
        }
    };
    let t = app.clock.now().seconds();
    let signature = sign::header(secret.expose(), t, event.body.as_bytes());
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in [
        (sign::EVENT_HEADER, event.r#type.as_str()),
        (sign::SIGNATURE_HEADER, signature.as_str()),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let call = Call {
        method: Method::POST,
        url,
        ports: Ports::Https,
        headers,
        body: Bytes::copy_from_slice(event.body.as_bytes()),
        timeout: app.config.webhooks.schedule.attempt,
    };
    judge(app.egress.send(call).await)
}

fn judge(answer: Result<Answer, Failure>) -> Outcome {
    match answer {
        Ok(answer) if (200..300).contains(&answer.status) => Outcome::Taken,
        Ok(answer) => Outcome::Failed(format!("the receiver answered {}", answer.status)),
        Err(Failure::Unsafe(why)) => Outcome::Unsafe(why),
        Err(failure) => Outcome::Failed(failure.to_string()),
    }
}

/// What an outcome makes of an event after so many attempts, this one included.
pub fn settle(
    event: EventId,
    class: Class,
    attempts: u32,
    outcome: Outcome,
    schedule: &Schedule,
    now: Timestamp,
) -> Finished<Status> {
    let (status, next_attempt_at, error) = match outcome {
        Outcome::Taken => (Status::Delivered, None, None),
        Outcome::Unsafe(why) => (Status::Unsafe, None, Some(why)),
        Outcome::Failed(why) => {
            let (high, low) = event.0.as_u64_pair();
            match schedule.pause(class, attempts, high ^ low) {
                Some(pause) => (Status::Failed, Some(now.plus(pause)), Some(why)),
                None => (Status::Exhausted, None, Some(why)),
            }
        }
    };
    Finished {
        status,
        next_attempt_at,
        error,
    }
}
