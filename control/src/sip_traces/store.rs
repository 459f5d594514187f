//! The `sip_traces` table.

use super::wire::SipMessage;
use crate::db::{self, Db, Tx, args};
use crate::ids::{AccountId, CallId};
use crate::time::Timestamp;

/// The messages of a call, and how many found no room.
#[derive(Clone, Default)]
pub struct Kept {
    pub messages: Vec<SipMessage>,
    pub left_out: u32,
}

/// Writes what is known of a call's messages, in place of what was. Nothing for a call that is not there.
pub async fn keep(
    tx: &mut Tx,
    account: AccountId,
    call: CallId,
    kept: &Kept,
    now: Timestamp,
) -> db::Result<()> {
    // Strings and a number: this cannot fail.
    let messages = serde_json::to_string(&kept.messages).unwrap_or_else(|_| "[]".to_owned());
    tx.query(
        "insert into sip_traces (call_id, account_id, messages, left_out, updated_at)
         select id, account_id, $1, $2, $3 from calls where account_id = $4 and id = $5
         on conflict (call_id) do update set messages = excluded.messages, left_out = excluded.left_out,
            updated_at = excluded.updated_at",
    )
    .bind_all(args![messages, kept.left_out, now, account, call])
    .execute()
    .await
    .map(drop)
}

/// What is written of a call's messages. `None`: nothing.
pub async fn get(db: &Db, account: AccountId, call: CallId) -> db::Result<Option<Kept>> {
    db.query("select messages, left_out from sip_traces where account_id = $1 and call_id = $2")
        .bind_all(args![account, call])
        .optional(|row| {
            Ok(Kept {
                messages: row.json("messages")?,
                left_out: row.u32("left_out")?,
            })
        })
        .await
}
