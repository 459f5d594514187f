//! The account's signing secret, and the event about unfilled placeholders.

use std::io;

use super::bodies::PromptVariablesUnfilled;
use super::event::EventType;
use super::outbox::{self, NewEvent, Target};
use super::store;
use crate::agents::{self, Agent, placeholders};
use crate::db::{DbError, Tx};
use crate::ids::{AccountId, CallId, EventId};
use crate::node::Node;
use crate::secret::{self, Purpose, Secret};
use crate::time::Timestamp;

/// Bytes of randomness in a secret.
const SECRET_BYTES: usize = 32;

/// Why there is no secret.
#[derive(Debug)]
pub enum NoSecret {
    Database(DbError),
    /// No randomness, or no encryption.
    System(io::Error),
    /// What is stored was made with another master key.
    Sealed,
}

impl std::fmt::Display for NoSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Database(error) => write!(f, "{error}"),
            Self::System(error) => write!(f, "{error}"),
            Self::Sealed => f.write_str("the stored secret does not open with this master key"),
        }
    }
}

impl std::error::Error for NoSecret {}

impl From<DbError> for NoSecret {
    fn from(error: DbError) -> Self {
        Self::Database(error)
    }
}

impl From<io::Error> for NoSecret {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// The secret that signs the account's events now. An account that never asked for one has one all the
/// same, so that no event goes out unsigned.
pub async fn signing_secret(app: &Node, account: AccountId) -> Result<Secret<Vec<u8>>, NoSecret> {
    let sealed = match store::sealed(&app.db, account).await? {
        Some(sealed) => sealed,
        None => {
            let (_, sealed) = fresh(app, account)?;
            store::create(&app.db, account, &sealed, app.clock.now()).await?;
            // Another process may have been quicker.
            store::sealed(&app.db, account).await?.unwrap_or(sealed)
        }
    };
    app.master_key
        .open(Purpose::WebhookSecret, &account.to_string(), &sealed)
        .ok_or(NoSecret::Sealed)
}

/// Gives the account a new secret, which signs every attempt from now on.
pub async fn rotate(
    app: &Node,
    account: AccountId,
) -> Result<(Secret<String>, Timestamp), NoSecret> {
    let (secret, sealed) = fresh(app, account)?;
    let now = app.clock.now();
    store::replace(&app.db, account, &sealed, now).await?;
    Ok((secret, now))
}

fn fresh(app: &Node, account: AccountId) -> io::Result<(Secret<String>, String)> {
    let text = format!("whsec_{}", secret::random_token::<SECRET_BYTES>()?);
    let row = account.to_string();
    let sealed = app
        .master_key
        .seal(Purpose::WebhookSecret, &row, text.as_bytes())?;
    Ok((Secret::new(text), sealed))
}

/// Adds `agent.prompt_variables.unfilled` for a conversation that proceeds although the agent's prompt
/// asks for what neither it nor the session gives: once an agent and UTC day. Without an address
/// nothing is noted. Says whether an event was added: then the worker is to be woken after the commit.
pub async fn tell_unfilled(
    app: &Node,
    tx: &mut Tx,
    account: AccountId,
    agent: &Agent,
    session: &agents::Variables,
    conversation: CallId,
) -> Result<bool, DbError> {
    let given = placeholders::merged(&agent.settings.dynamic_variables, session);
    let variables = placeholders::unfilled([agent.settings.system_prompt.as_str()], &given);
    if variables.is_empty() || agent.settings.webhook_url.is_none() {
        return Ok(false);
    }
    let now = app.clock.now();
    let day = now.to_string().chars().take(10).collect::<String>();
    if !outbox::note_unfilled(tx, account, agent.id, &day).await? {
        return Ok(false);
    }
    let kind = EventType::PromptVariablesUnfilled;
    let id = EventId::new(&app.clock);
    let body = PromptVariablesUnfilled {
        event: kind.name(),
        event_id: id,
        agent_id: agent.id,
        conversation_id: conversation,
        channel: "voice",
        reason_code: "unfilled_prompt_variables",
        reason: format!(
            "Nothing fills these placeholders of the prompt: {}",
            variables.join(", ")
        ),
        variables: &variables,
    };
    let event = NewEvent {
        id,
        r#type: kind,
        target: Target::Agent(agent.id),
        call: Some(conversation),
        body: serde_json::to_string(&body).unwrap_or_default(),
    };
    outbox::insert(tx, account, &event, now, app.clock.shared()).await?;
    Ok(true)
}
