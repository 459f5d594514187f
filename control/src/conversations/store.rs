//! What a conversation keeps beside its call: feedback.

use crate::db::{Db, DbError};
use crate::ids::{AccountId, CallId};
use crate::time::Timestamp;

/// Keeps a rating, in place of an earlier one. `false`: the account has no such conversation.
pub async fn rate(
    db: &Db,
    account: AccountId,
    id: CallId,
    rating: i64,
    comment: Option<&str>,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = db
        .query(
            "update calls set feedback_rating = $1, feedback_comment = $2, feedback_at = $3, updated_at = $3
             where account_id = $4 and id = $5",
        )
        .bind(rating)
        .bind(comment)
        .bind(now)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(rows == 1)
}
