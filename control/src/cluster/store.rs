//! The `nodes` table. It belongs to the installation and not to an account.

use crate::admission::Owner;
use crate::db::{Db, DbError, Row};
use crate::time::Timestamp;

/// A node at its start.
pub struct NewNode<'a> {
    pub incarnation: i64,
    pub name: &'a str,
    /// `http://host:port`, for the other nodes.
    pub address: &'a str,
    /// Calls.
    pub capacity: u32,
}

/// One start of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub incarnation: i64,
    pub name: String,
    pub address: String,
    pub beats: i64,
}

impl NodeRow {
    /// As leases name it.
    pub fn owner(&self) -> Owner {
        Owner::new(&self.name, self.incarnation)
    }
}

/// Adds a node, in place of earlier ones of its name.
pub async fn register(db: &Db, node: &NewNode<'_>, now: Timestamp) -> Result<(), DbError> {
    let mut tx = db.begin_write().await?;
    tx.query("delete from nodes where name = $1 and incarnation < $2")
        .bind(node.name)
        .bind(node.incarnation)
        .execute()
        .await?;
    tx.query(
        "insert into nodes (incarnation, name, address, capacity, beats, beat_at, started_at)
         values ($1, $2, $3, $4, 0, $5, $5)
         on conflict (incarnation) do update set lost_at = null, beats = nodes.beats + 1, beat_at = $5",
    )
    .bind(node.incarnation)
    .bind(node.name)
    .bind(node.address)
    .bind(node.capacity)
    .bind(now)
    .execute()
    .await?;
    tx.commit().await
}

/// One more beat. `false`: the others took this node for dead.
pub async fn beat(db: &Db, incarnation: i64, now: Timestamp) -> Result<bool, DbError> {
    let rows = db
        .query(
            "update nodes set beats = beats + 1, beat_at = $1
             where incarnation = $2 and lost_at is null",
        )
        .bind(now)
        .bind(incarnation)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// The nodes that nobody took for dead, oldest first.
pub async fn live(db: &Db) -> Result<Vec<NodeRow>, DbError> {
    db.query(
        "select incarnation, name, address, beats from nodes where lost_at is null
         order by incarnation",
    )
    .all(read)
    .await
}

/// The node of this incarnation, unless it is dead.
pub async fn find(db: &Db, incarnation: i64) -> Result<Option<NodeRow>, DbError> {
    db.query(
        "select incarnation, name, address, beats from nodes
         where incarnation = $1 and lost_at is null",
    )
    .bind(incarnation)
    .optional(read)
    .await
}

/// Declares a node dead whose number still stands at `beats`. `false`: it beat meanwhile, or somebody
/// else was first.
pub async fn bury(db: &Db, incarnation: i64, beats: i64, now: Timestamp) -> Result<bool, DbError> {
    let rows = db
        .query(
            "update nodes set lost_at = $1
             where incarnation = $2 and beats = $3 and lost_at is null",
        )
        .bind(now)
        .bind(incarnation)
        .bind(beats)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Takes a node away that ends in order.
pub async fn leave(db: &Db, incarnation: i64) -> Result<(), DbError> {
    db.query("delete from nodes where incarnation = $1")
        .bind(incarnation)
        .execute()
        .await?;
    Ok(())
}

/// Forgets nodes that died before then and left nothing behind.
pub async fn forget(db: &Db, before: Timestamp) -> Result<(), DbError> {
    db.query(
        "delete from nodes where lost_at < $1 and not exists
            (select 1 from calls where owner_incarnation = nodes.incarnation and ended_at is null)",
    )
    .bind(before)
    .execute()
    .await?;
    Ok(())
}

fn read(row: &Row) -> Result<NodeRow, DbError> {
    Ok(NodeRow {
        incarnation: row.i64("incarnation")?,
        name: row.text("name")?,
        address: row.text("address")?,
        beats: row.i64("beats")?,
    })
}
