//! `sidetone webhooks listen`: a receiver for development. It prints each event and says whether its
//! signature holds.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;

use super::Failure;
use crate::secret::Secret;
use crate::time::Clock;
use crate::webhooks::bodies::BODY_LIMIT;
use crate::webhooks::sign;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Print the events that a server sends to this machine, and check their signatures.
    Listen(Listen),
}

#[derive(Debug, clap::Args)]
pub(super) struct Listen {
    /// Port on 127.0.0.1; 0: any free one.
    #[arg(long, default_value_t = 9000)]
    port: u16,
    /// The secret from POST /usage/webhook-secret/rotate. Without it signatures are not checked.
    #[arg(long, env = "SIDETONE_WEBHOOK_SECRET", hide_env_values = true)]
    secret: Option<String>,
}

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Listen(listen) = command;
    super::block_on(listen_on(listen))
}

async fn listen_on(listen: &Listen) -> Result<(), Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, listen.port));
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("{address}: {error}"))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}/");
    println!("A server on this machine sends here when its setting egress.allow holds 127.0.0.1");
    println!("and an agent's webhook_url is that address.");
    let secret = listen
        .secret
        .clone()
        .map(|text| Arc::new(Secret::new(text)));
    let router = Router::new()
        .fallback(take)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(secret);
    axum::serve(listener, router).await?;
    Ok(())
}

/// 200 for an event, 400 for one whose signature does not hold: the server tries it again.
async fn take(
    State(secret): State<Option<Arc<Secret<String>>>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let header = |name| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    };
    let now = Clock::system().now();
    let held = secret.map(|secret| {
        let signature = header(sign::SIGNATURE_HEADER);
        sign::verify(secret.expose().as_bytes(), now.seconds(), &body, signature)
    });
    let (told, status) = match held {
        None => ("signature not checked".to_owned(), StatusCode::OK),
        Some(Ok(())) => ("signature holds".to_owned(), StatusCode::OK),
        Some(Err(why)) => (format!("REFUSED: {why}"), StatusCode::BAD_REQUEST),
    };
    println!("{now} {} ({told})", header(sign::EVENT_HEADER));
    println!("{}", pretty(&body));
    status
}

/// JSON with line breaks; anything else as it came.
fn pretty(body: &[u8]) -> String {
    serde_json::from_slice::<Value>(body)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned())
}
