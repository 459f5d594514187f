//! Several processes that share a database, and a Redis: who lives, and what becomes of what a dead
//! one left.
//!
//! Each start of a node has a row and a beating number in it ([`heart`]). A node whose number stands
//! still is dead ([`watch`]): its calls end as `node_lost`, and leases without a call are freed
//! ([`reconcile`]), and leases of a node that does not reach the lease store are renewed by the others.
//! A request for a session that another node hosts goes on to it ([`route`]). A node that finds itself
//! declared dead (it slept) ends its calls and comes back. `rules.rs` decides. What is a node's own lies
//! in its data folder, which no other may have ([`folder`]).

pub mod folder;
pub mod heart;
pub mod reconcile;
pub mod route;
pub mod rules;
pub mod store;
pub mod watch;

use crate::db::DbError;
use crate::node::Node;

pub use heart::{run_lease_heart, run_node_heart};
pub use reconcile::run as run_reconciler;

/// Writes down that this process lives, before it takes any call.
pub async fn register(app: &Node) -> Result<(), DbError> {
    let node = store::NewNode {
        incarnation: app.incarnation.number,
        name: &app.config.cluster.node,
        address: &app.config.cluster.address,
        capacity: app.config.limits.node_calls,
    };
    store::register(&app.db, &node, app.clock.shared()).await
}

/// Whether another node lives that could take a call.
pub async fn has_others(app: &Node) -> Result<bool, DbError> {
    let nodes = store::live(&app.db).await?;
    Ok(nodes
        .iter()
        .any(|node| node.incarnation != app.incarnation.number))
}

/// Writes down that this process is over.
pub async fn leave(app: &Node) -> Result<(), DbError> {
    store::leave(&app.db, app.incarnation.number).await
}
