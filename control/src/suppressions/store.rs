//! The `suppressions` table.

use super::rules::{Source, Status};
use crate::db::{self, Db, Record, args, named, record};
use crate::ids::{AccountId, SuppressionId};
use crate::time::{Clock, Timestamp};

record! {
    /// One reason not to call a number. It has no `Debug`: it holds a phone number.
    #[derive(Clone)]
    pub struct Suppression in "suppressions" {
        id: SuppressionId,
        phone_number: String,
        source: Source,
        reason: Option<String>,
        status: Status,
        released_at: Option<Timestamp>,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

/// Puts a number on the list. `None`: it is on it for this reason already.
pub async fn suppress(
    db: &Db,
    clock: &Clock,
    account: AccountId,
    phone_number: &str,
    source: Source,
    reason: Option<&str>,
) -> db::Result<Option<Suppression>> {
    let now = clock.now();
    let entry = Suppression {
        id: SuppressionId::new(clock),
        phone_number: phone_number.to_owned(),
        source,
        reason: reason.map(str::to_owned),
        status: Status::Active,
        released_at: None,
        created_at: now,
        updated_at: now,
    };
    let listed =
        "on conflict (account_id, phone_number, source) where status = 'active' do nothing";
    let added = db.insert(account, &entry).unless(listed).run().await?;
    Ok(added.then_some(entry))
}

/// The entries that stand against calling this number, in either spelling.
pub async fn active(
    db: &Db,
    account: AccountId,
    phone_number: &str,
    or: Option<&str>,
) -> db::Result<Vec<Suppression>> {
    db.query(
        "select * from suppressions where account_id = $1 and phone_number in ($2, $3)
            and status = 'active'",
    )
    .bind_all(args![account, phone_number, or.unwrap_or(phone_number)])
    .all(Suppression::read)
    .await
}

/// Takes an entry off the list, once.
pub async fn release(
    db: &Db,
    account: AccountId,
    id: SuppressionId,
    now: Timestamp,
) -> db::Result<()> {
    let active = db
        .of::<Suppression>(account)
        .whose("status", Status::Active);
    let released = named! { status: Status::Released, released_at: now, updated_at: now };
    active.whose("id", id).set(released).await.map(drop)
}
