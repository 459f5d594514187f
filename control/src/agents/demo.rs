//! The demo agent: made once for an account, so that there is somebody to talk to at the first start.

use std::fmt;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    http::world,
    rules::{Refused, change},
    store,
};
use crate::{
    catalogue::voices,
    db::DbError,
    ids::{AccountId, AgentId},
    node::Node,
};

/// What the agent knows: plain facts in short sentences.
const PROMPT: &str = include_str!("../vendors/demo_prompt.txt");

/// Why there is no demo agent.
#[derive(Debug)]
pub enum DemoError {
    Database(DbError),
    /// The rules refuse it: no offline voice is installed.
    Refused(Refused),
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(error) => error.fmt(f),
            Self::Refused(refused) => write!(f, "the demo agent cannot be made: {refused:?}"),
        }
    }
}

impl std::error::Error for DemoError {}

impl From<DbError> for DemoError {
    fn from(error: DbError) -> Self {
        Self::Database(error)
    }
}

/// The id of an account's demo agent: always the same, so that a script can find it.
pub fn id(account: AccountId) -> AgentId {
    AgentId(Uuid::new_v5(&account.0, b"demo agent"))
}

/// Makes the demo agent of an account the first time; one that was changed or deleted is left so.
pub async fn ensure(app: &Node, account: AccountId) -> Result<AgentId, DemoError> {
    let id = id(account);
    let (stored, settings) =
        change(&Map::new(), &body(), &world(app)).map_err(DemoError::Refused)?;
    let now = app.clock.now();
    let mut tx = app.db.begin_write().await?;
    if store::note_demo(&mut tx, account, id, now).await? {
        store::create(&mut tx, account, id, stored, settings, now).await?;
        tx.commit().await?;
    }
    Ok(id)
}

fn body() -> Map<String, Value> {
    let voice = voices::default_voice().map_or_else(String::new, |voice| voice.id.to_string());
    let settings = [
        ("name", json!("Demo")),
        ("system_prompt", json!(PROMPT)),
        ("voice_id", json!(voice)),
        (
            "first_message",
            json!("Harbor House, good day. How can I help you?"),
        ),
        ("metadata", json!({"demo": true})),
    ];
    settings
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
