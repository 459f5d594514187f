//! Writing down what was used: row, day's sum, balance and triggers in the caller's transaction.

use serde::{Deserialize, Serialize};

use super::rules::Resource;
use super::{store, triggers};
use crate::billing;
use crate::db::{DbError, Tx};
use crate::ids::{AccountId, AgentId, CallId};
use crate::node::Node;
use crate::time::Timestamp;

/// Something that an account used.
#[derive(Clone, Copy, Debug)]
pub struct Used<'a> {
    pub resource: Resource,
    /// In stored parts ([`Resource::parts`]): milliseconds, characters, tokens, segments, messages.
    pub amount: i64,
    /// What used it, unique within the account: `call:<id>`, `tts:<id>`. A source counts once.
    pub source: &'a str,
    pub agent: Option<AgentId>,
    pub call: Option<CallId>,
    /// Whether it costs something by itself. What a call uses of speech and model is covered by its
    /// minutes.
    pub priced: bool,
}

/// What a call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallUse {
    /// Length on the sample clock, ms.
    pub duration_ms: u64,
    /// Characters given to the voice.
    pub characters: u64,
    /// Caller audio given to the recogniser, ms.
    pub heard_ms: u64,
    /// Tokens that models outside this process read and wrote.
    pub tokens: u64,
}

/// Writes down what one source used; what it cost, in millionths of a cent. Nothing is written, and
/// nothing costs, when the amount is zero or the source was counted before. A transaction does it once:
/// see [`record_all`].
pub async fn record(
    app: &Node,
    tx: &mut Tx,
    account: AccountId,
    used: &Used<'_>,
    now: Timestamp,
) -> Result<i64, DbError> {
    record_all(app, tx, account, std::slice::from_ref(used), now).await
}

/// As [`record`], of several resources, which come in the order of [`Resource::ALL`]. Of two writers one
/// waits for the other wherever they meet, so all meet in one order: the sums of the day, resource by
/// resource, then the balance, once, then the triggers.
async fn record_all(
    app: &Node,
    tx: &mut Tx,
    account: AccountId,
    all: &[Used<'_>],
    now: Timestamp,
) -> Result<i64, DbError> {
    let mut total = 0;
    let mut counted = Vec::new();
    for used in all.iter().filter(|used| used.amount > 0) {
        let cost = if used.priced {
            used.resource.cost(used.amount, &app.config.billing.prices)
        } else {
            0
        };
        if store::insert(tx, account, used, cost, now).await? {
            store::add_to_day(tx, account, used.resource, used.amount, now).await?;
            total += cost;
            counted.push(used.resource);
        }
    }
    billing::charge(app, tx, account, total).await?;
    for resource in counted {
        triggers::fire(app, tx, account, resource, now).await?;
    }
    Ok(total)
}

/// Writes down what a request used that has no transaction of its own: a synthesis, a transcription.
/// `request` is unique (the id of what was made, or a new one); `amount` is in stored parts.
pub async fn record_request(
    app: &Node,
    account: AccountId,
    resource: Resource,
    amount: usize,
    request: uuid::Uuid,
) -> Result<(), DbError> {
    let source = format!("request:{request}");
    let used = Used {
        resource,
        amount: i64::try_from(amount).unwrap_or(i64::MAX),
        source: &source,
        agent: None,
        call: None,
        priced: true,
    };
    let mut tx = app.db.begin_write().await?;
    record(app, &mut tx, account, &used, app.clock.now()).await?;
    tx.commit().await?;
    app.webhooks.wake();
    Ok(())
}

/// Writes down what a call used, in the transaction that ends it; what it cost.
pub async fn record_call(
    app: &Node,
    tx: &mut Tx,
    account: AccountId,
    (call, agent): (CallId, AgentId),
    used: CallUse,
    now: Timestamp,
) -> Result<i64, DbError> {
    let source = format!("call:{call}");
    let CallUse {
        duration_ms,
        characters,
        heard_ms,
        tokens,
    } = used;
    let all = [
        (Resource::CallMinutes, duration_ms),
        (Resource::TtsCharacters, characters),
        (Resource::TranscriptionSeconds, heard_ms),
        (Resource::LlmTokens, tokens),
    ]
    .map(|(resource, amount)| Used {
        resource,
        amount: i64::try_from(amount).unwrap_or(i64::MAX),
        source: &source,
        agent: agent.known(),
        call: Some(call),
        priced: resource == Resource::CallMinutes,
    });
    record_all(app, tx, account, &all, now).await
}
