//! The two hearts of a node: one beats in the database, so that the others know that it lives; one
//! in the lease store, so that its counts stay trusted. Either may stop for a while without the other.

use std::time::Duration;

use media::call::input::EndRequest;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::rules::Standing;
use super::watch::Watch;
use super::{reconcile, rules, store};
use crate::admission::{Health, Roll};
use crate::calls;
use crate::db::{Db, DbError};
use crate::node::Node;
use crate::time::Clock;

/// How often a heart beats.
pub const BEAT: Duration = Duration::from_secs(2);
/// How long the database may take to tell its time: half of it is the most that nodes then differ by.
const PROMPT: Duration = Duration::from_millis(500);
/// How often a lease store is tried that is away or cold.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// Beats in the database and watches the others, until the process ends.
pub async fn run_node_heart(app: Node) {
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut watch, started) = (Watch::default(), Instant::now());
    loop {
        ticks.tick().await;
        if let Err(error) = agree(&app.db, &app.clock).await {
            tracing::warn!(%error, "the database did not tell its time");
        }
        if let Err(error) = beat(&app).await {
            tracing::warn!(%error, "this node could not say that it lives");
            continue;
        }
        if let Err(error) = look(&app, &mut watch, started.elapsed()).await {
            tracing::warn!(%error, "the other nodes could not be watched");
        }
    }
}

/// Has the clock take over the database's time, if that is a server. An answer that was long on its way
/// tells too little.
pub async fn agree(db: &Db, clock: &Clock) -> Result<(), DbError> {
    let asked = clock.moment();
    if let Some(theirs) = db.time().await? {
        let way = clock.moment().since(asked);
        if way <= PROMPT {
            clock.agree(theirs, asked.plus(way / 2));
        }
    }
    Ok(())
}

/// One beat. Whom the others took for dead takes no calls until it has none of its old ones, which are
/// not its own any more.
pub async fn beat(app: &Node) -> Result<(), DbError> {
    let beaten = store::beat(&app.db, app.incarnation.number, app.clock.shared()).await?;
    match rules::standing(beaten, app.is_draining(), app.live.len()) {
        Standing::Well => {
            app.set_lost(false);
            return Ok(());
        }
        Standing::Gone => return Ok(()),
        Standing::Lost | Standing::Free => {}
    }
    if !app.is_lost() {
        tracing::error!(
            node = app.config.cluster.node,
            "the other nodes took this one for dead (or run under its name): its calls are over"
        );
    }
    app.set_lost(true);
    app.engine.drain(EndRequest::Lost);
    if app.live.is_empty() {
        super::register(app).await?;
        app.set_lost(false);
        tracing::info!("this node is back");
    }
    Ok(())
}

async fn look(app: &Node, watch: &mut Watch, now: Duration) -> Result<(), DbError> {
    let nodes = store::live(&app.db).await?;
    let others = nodes
        .iter()
        .filter(|node| node.incarnation != app.incarnation.number);
    let mut buried = false;
    for (incarnation, beats) in watch.look(others.map(|node| (node.incarnation, node.beats)), now) {
        if store::bury(&app.db, incarnation, beats, app.clock.shared()).await? {
            tracing::warn!(incarnation, "a node is dead");
            buried = true;
        }
    }
    if buried {
        reconcile::end_calls(app).await?;
    }
    Ok(())
}

/// Keeps the lease store's counts trusted until the process ends: quickly while they are not. Whoever
/// comes to trust them looks at once whether a host does not renew its leases: they may have no more
/// left than the counts had.
pub async fn run_lease_heart(app: Node) {
    let mut trusted = false;
    loop {
        let health = tend(&app).await;
        let trusts = health == Health::Ready;
        if trusts
            && !trusted
            && let Err(error) = reconcile::mend_leases(&app).await
        {
            tracing::warn!(%error, "leases could not be reconciled");
        }
        trusted = trusts;
        match health {
            Health::Ready => {
                tokio::select! {
                    () = sleep(BEAT) => {}
                    () = app.admission.trouble() => {}
                }
            }
            Health::Cold | Health::Away => sleep(TRY_AGAIN).await,
        }
    }
}

/// One beat in the lease store; a cold one is opened once all nodes have told it of their calls.
pub async fn tend(app: &Node) -> Health {
    let health = app.admission.beat().await;
    if health != Health::Cold || app.is_lost() || app.is_recovering() {
        return health;
    }
    match open(app).await {
        Ok(health) => health,
        Err(error) => {
            tracing::warn!(%error, "a cold lease store could not be opened");
            Health::Cold
        }
    }
}

async fn open(app: &Node) -> Result<Health, DbError> {
    let nodes = store::live(&app.db).await?;
    let mut roll = Roll {
        owners: nodes.iter().map(store::NodeRow::owner).collect(),
        open: Vec::new(),
    };
    if !app.admission.is_complete(&roll).await {
        return Ok(Health::Cold);
    }
    // What the dead left is over before their slots are given to others.
    reconcile::end_calls(app).await?;
    // Read once all nodes are back: a session that is written now is known to its node, and one that
    // was written before is found here.
    let now = app.clock.shared();
    let open = calls::store::open(&app.db, now).await?;
    roll.open = open
        .iter()
        .map(|call| rules::open_call(call, now))
        .collect();
    Ok(app.admission.open(&roll).await)
}
