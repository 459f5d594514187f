//! One suite on both lease stores, then what only the shared one knows: other nodes, being cold, being
//! away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use control::admission::{
    Counts, Health, Lease, Leases, OpenCall, Owner, Refusal, Renewal, Request, State,
};
use control::http::error::Reason;
use control::ids::{AgentId, TrunkId};
use futures_util::{StreamExt, stream};
use kit::redis::Redis;
use uuid::Uuid;

use crate::stage::{account, both, call, caps, link, real_node, roll, warm, wish};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Takes a lease and lets it stand.
async fn take(store: &dyn Leases, request: Request) -> Result<(), Refusal> {
    store.acquire(request).await.map(Lease::leave)
}

async fn adopt(store: &dyn Leases, request: Request) -> Result<(), Refusal> {
    store.adopt(request).await.map(Lease::leave)
}

fn renewal(number: u128, of: u128, state: State) -> Renewal {
    Renewal::from(&wish(number, "a", of, state))
}

#[tokio::test]
async fn each_cap_is_named_with_its_numbers() {
    for stage in both(caps(2, 5, 4)).await {
        let (store, name) = (&*stage.store, stage.name);
        for number in 1..=2 {
            let wish = wish(number, "a", 1, State::Pending);
            assert_eq!(take(store, wish).await, Ok(()), "{name}");
        }
        let full = take(store, wish(3, "a", 1, State::Live)).await;
        assert_eq!(full, Err(Refusal::full("account", 2, 2)), "{name}");

        let agent = Some((AgentId(Uuid::from_u128(1)), 1));
        let of_agent = |number, of| Request {
            agent,
            ..wish(number, "a", of, State::Live)
        };
        assert_eq!(take(store, of_agent(4, 2)).await, Ok(()), "{name}");
        let full = take(store, of_agent(5, 3)).await;
        assert_eq!(full, Err(Refusal::full("agent", 1, 1)), "{name}");

        let trunk = Some((TrunkId(Uuid::from_u128(1)), 1));
        let over_trunk = |number, of| Request {
            trunk,
            ..wish(number, "a", of, State::Live)
        };
        assert_eq!(take(store, over_trunk(6, 3)).await, Ok(()), "{name}");
        let full = take(store, over_trunk(7, 4)).await;
        assert_eq!(full, Err(Refusal::full("trunk", 1, 1)), "{name}");

        let full = take(store, wish(8, "a", 4, State::Live)).await.unwrap_err();
        assert_eq!(full, Refusal::full("node", 4, 4), "{name}");
        assert_eq!(full.reason, Reason::ServiceUnavailable, "{name}");
        assert_eq!(take(store, wish(9, "b", 4, State::Live)).await, Ok(()));
        let full = take(store, wish(10, "b", 5, State::Live)).await;
        assert_eq!(full, Err(Refusal::full("pool", 5, 5)), "{name}");
        assert_eq!(stage.counts().await, (2, 3), "{name}");
    }
}

#[tokio::test]
async fn the_same_owner_may_ask_twice_and_a_session_is_adopted_once() {
    for stage in both(caps(2, 3, 3)).await {
        let (store, name) = (&*stage.store, stage.name);
        for _ in 0..3 {
            assert_eq!(take(store, wish(1, "a", 1, State::Pending)).await, Ok(()));
        }
        assert_eq!(stage.counts().await, (1, 0), "{name}");
        let other = take(store, wish(1, "b", 1, State::Pending)).await;
        assert_eq!(other, Err(Refusal::duplicate()), "{name}");
        assert_eq!(other.unwrap_err().retry_after, 1, "{name}");

        assert_eq!(adopt(store, wish(1, "b", 1, State::Live)).await, Ok(()));
        assert_eq!(stage.counts().await, (0, 1), "{name}");
        let late = adopt(store, wish(1, "a", 1, State::Live)).await;
        assert_eq!(late, Err(Refusal::duplicate()), "{name}");
        assert_eq!(adopt(store, wish(1, "b", 1, State::Live)).await, Ok(()));
        // Asked for as pending again, it stays live.
        assert_eq!(take(store, wish(1, "b", 1, State::Pending)).await, Ok(()));
        assert_eq!(stage.counts().await, (0, 1), "{name}");
    }
}

#[tokio::test]
async fn leases_run_out_and_renewal_brings_live_ones_back() {
    for stage in both(caps(1, 9, 9)).await {
        let (store, name) = (&*stage.store, stage.name);
        take(store, wish(1, "a", 1, State::Pending)).await.unwrap();
        take(store, wish(2, "a", 2, State::Keyless)).await.unwrap();
        take(store, wish(3, "a", 3, State::Live)).await.unwrap();
        assert_eq!(stage.counts().await, (2, 1), "{name}");
        stage.pass(s(10)).await;
        let owner = Owner::new("a", 1);
        let renewals = [renewal(3, 3, State::Live)];
        store.renew(&owner, &renewals).await.unwrap();
        stage.pass(s(14)).await;
        assert_eq!(stage.counts().await, (2, 1), "{name}");
        stage.pass(s(6)).await;
        assert_eq!(stage.counts().await, (1, 0), "{name}: at 30 s");
        stage.pass(s(30)).await;
        assert_eq!(stage.counts().await, (0, 0), "{name}: at 60 s");

        // Two calls live, whatever the cap of one says; a third is not let in beside them.
        let renewals = [renewal(3, 3, State::Live), renewal(4, 3, State::Live)];
        store.renew(&owner, &renewals).await.unwrap();
        assert_eq!(stage.counts().await, (0, 2), "{name}");
        let full = take(store, wish(5, "a", 3, State::Live)).await;
        assert_eq!(full, Err(Refusal::full("account", 2, 1)), "{name}");
        // Nobody renews what another owner holds.
        store
            .renew(&Owner::new("b", 1), &[renewal(3, 3, State::Live)])
            .await
            .unwrap();
        let list = store.list().await.unwrap();
        assert!(list.iter().all(|held| held.owner == owner), "{name}");
    }
}

#[tokio::test]
async fn a_lease_is_free_when_it_is_dropped_and_then_not_taken_by_late_requests() {
    for stage in both(caps(1, 9, 9)).await {
        let (store, name) = (&*stage.store, stage.name);
        let lease = store.acquire(wish(1, "a", 1, State::Live)).await.unwrap();
        store.release(call(1), &Owner::new("b", 1));
        assert_eq!(stage.counts().await, (0, 1), "{name}: not theirs");
        drop(lease);
        assert_eq!(stage.counts().await, (0, 0), "{name}");
        let late = take(store, wish(1, "a", 1, State::Live)).await;
        assert_eq!(late, Err(Refusal::duplicate()), "{name}");
        let renewals = [renewal(1, 1, State::Live)];
        store.renew(&Owner::new("a", 1), &renewals).await.unwrap();
        assert_eq!(stage.counts().await, (0, 0), "{name}: a late renewal");
        assert_eq!(take(store, wish(2, "a", 1, State::Pending)).await, Ok(()));
        // A session that waits may be ended by any node.
        store.release(call(2), &Owner::new("b", 1));
        assert_eq!(stage.counts().await, (0, 0), "{name}");
        stage.pass(s(10)).await;
        assert_eq!(take(store, wish(1, "a", 1, State::Live)).await, Ok(()));
    }
}

#[tokio::test]
async fn the_list_tells_owner_state_and_age() {
    for stage in both(caps(9, 9, 9)).await {
        let (store, name) = (&*stage.store, stage.name);
        take(store, wish(1, "a", 1, State::Pending)).await.unwrap();
        stage.pass(s(20)).await;
        adopt(store, wish(1, "b", 1, State::Live)).await.unwrap();
        stage.pass(s(4)).await;
        let list = store.list().await.unwrap();
        assert_eq!(list.len(), 1, "{name}");
        assert_eq!(
            (&list[0].owner, list[0].live, list[0].age),
            (&Owner::new("b", 1), true, s(24)),
            "{name}"
        );
    }
}

/// A thousand wishes, fifty at a time, get the cap and not one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_wishes_get_the_cap_exactly() {
    for stage in both(caps(40, 100, 1000)).await {
        let wishes = (0..1000).map(|number| {
            let store = stage.store.clone();
            tokio::spawn(async move {
                let wish = wish(number, "a", number % 3, State::Pending);
                take(&*store, wish).await.map_err(|refusal| refusal.reason)
            })
        });
        let answers: Vec<_> = stream::iter(wishes).buffer_unordered(50).collect().await;
        let mut admitted = 0;
        for answer in answers {
            match answer.unwrap() {
                Ok(()) => admitted += 1,
                Err(reason) => assert_eq!(reason, Reason::Capacity, "{}", stage.name),
            }
        }
        assert_eq!(admitted, 100, "{}", stage.name);
        assert_eq!(stage.counts().await, (100, 0), "{}", stage.name);
    }
}

/// Two nodes on one Redis, warm.
async fn two_nodes() -> (Redis, Arc<dyn Leases>, Arc<dyn Leases>) {
    let redis = Redis::start().await;
    let (first, second) = (link(&redis), link(&redis));
    let a: Arc<dyn Leases> = real_node(&first, caps(5, 9, 9), "a");
    let b: Arc<dyn Leases> = real_node(&second, caps(5, 9, 9), "b");
    assert_eq!(warm(&*a, &["a"]).await, Health::Ready);
    assert_eq!(warm(&*b, &["a", "b"]).await, Health::Ready);
    (redis, a, b)
}

#[tokio::test]
async fn a_server_that_forgot_takes_calls_once_all_nodes_told_it_of_theirs() {
    let (redis, a, b) = two_nodes().await;
    let mut of_a = Vec::new();
    for number in 1..=2 {
        let lease = a.acquire(wish(number, "a", 1, State::Pending)).await;
        lease.unwrap().leave();
        of_a.push(a.adopt(wish(number, "a", 1, State::Live)).await.unwrap());
    }
    let of_b = b.acquire(wish(3, "b", 1, State::Live)).await.unwrap();
    redis.command::<()>(&["FLUSHALL"]).await;

    let cold = take(&*a, wish(9, "a", 1, State::Pending)).await;
    assert_eq!(cold, Err(Refusal::unavailable()));
    assert_eq!(a.health(), Health::Cold);
    tokio::time::timeout(s(1), a.trouble())
        .await
        .expect("the heart is told");
    // One node alone cannot open it, and a call that lives is not refused meanwhile.
    assert_eq!(warm(&*a, &["a", "b"]).await, Health::Cold);
    assert!(!a.is_complete(&roll(&["a", "b"])).await);
    let cold = take(&*b, wish(9, "b", 1, State::Pending)).await;
    assert_eq!(cold, Err(Refusal::unavailable()));
    assert_eq!(adopt(&*a, wish(1, "a", 1, State::Live)).await, Ok(()));
    of_a.remove(0).leave();

    assert_eq!(b.beat().await, Health::Cold);
    assert!(b.is_complete(&roll(&["a", "b"])).await);
    let mut all = roll(&["a", "b"]);
    all.open.push(OpenCall {
        lease: call(7),
        account: account(1),
        owner: None,
        left: s(20),
    });
    assert_eq!(b.open(&all).await, Health::Ready);
    assert_eq!(a.beat().await, Health::Ready);
    let counts = a.counts().await.unwrap();
    assert_eq!((counts.pending, counts.live), (1, 3));
    assert_eq!(take(&*a, wish(9, "a", 1, State::Pending)).await, Ok(()));
    let full = take(&*b, wish(10, "b", 1, State::Pending)).await;
    assert_eq!(full, Err(Refusal::full("account", 5, 5)));
    drop((of_a, of_b));
}

#[tokio::test]
async fn a_server_that_came_back_or_lost_its_epoch_is_cold() {
    let (mut redis, a, _b) = two_nodes().await;
    redis.kill();
    let away = take(&*a, wish(1, "a", 1, State::Pending)).await;
    assert_eq!(away, Err(Refusal::unavailable()));
    assert_eq!(a.beat().await, Health::Away);
    redis.start_again().await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(a.beat().await, Health::Cold);
    assert_eq!(a.open(&roll(&["a"])).await, Health::Ready);
    assert_eq!(take(&*a, wish(2, "a", 1, State::Pending)).await, Ok(()));

    redis.command::<()>(&["DEL", "sidetone:{adm}:epoch"]).await;
    let cold = take(&*a, wish(3, "a", 1, State::Pending)).await;
    assert_eq!(cold, Err(Refusal::unavailable()));
    // An epoch of another server's data is none.
    let epoch = ["SET", "sidetone:{adm}:epoch", "0123-4567"];
    redis.command::<()>(&epoch).await;
    assert_eq!(a.beat().await, Health::Cold);
    assert_eq!(warm(&*a, &["a"]).await, Health::Ready);
    let ttl: i64 = redis.command(&["PTTL", "sidetone:{adm}:epoch"]).await;
    assert!((9_000..=10_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn a_replica_that_takes_over_is_cold() {
    let old = Redis::start().await;
    let new = Redis::start().await;
    let relay = kit::relay::Relay::to(old.address()).await;
    let url = control::secret::Secret::new(format!("redis://{}", relay.address()));
    let link = control::redis_link::Link::new(&url).unwrap();
    let a: Arc<dyn Leases> = real_node(&link, caps(5, 9, 9), "a");
    assert_eq!(warm(&*a, &["a"]).await, Health::Ready);
    let kept = a.acquire(wish(1, "a", 1, State::Live)).await.unwrap();
    let port = old.address().port().to_string();
    new.command::<()>(&["REPLICAOF", "127.0.0.1", &port]).await;
    let until = Instant::now() + s(10);
    while new.leases().await == 0 {
        assert!(Instant::now() < until, "no replication");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A server that gets its first replica begins a new history.
    assert_eq!(warm(&*a, &["a"]).await, Health::Ready);
    new.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    // The last write does not reach the replica.
    let lost = a.acquire(wish(2, "a", 1, State::Live)).await.unwrap();
    assert_eq!(new.leases().await, 1);
    relay.point(Some(new.address()));
    let cold = take(&*a, wish(3, "a", 1, State::Pending)).await;
    assert_eq!(cold, Err(Refusal::unavailable()));
    assert_eq!(warm(&*a, &["a"]).await, Health::Ready);
    let counts = a.counts().await.unwrap();
    assert_eq!((counts.pending, counts.live), (0, 2), "both are told again");
    drop((kept, lost));
}

#[tokio::test]
async fn a_server_that_hangs_is_bounded_and_leaves_nothing_behind() {
    let (redis, a, _b) = two_nodes().await;
    redis.stop();
    let mut reasons = Vec::new();
    for number in 1..=6 {
        let began = Instant::now();
        let refusal = take(&*a, wish(number, "a", 1, State::Pending)).await;
        assert!(began.elapsed() < Duration::from_millis(300));
        reasons.push(refusal.unwrap_err().reason);
    }
    // Nobody can know what became of the first; soon the breaker is open.
    assert_eq!(reasons[0], Reason::RedisError);
    assert_eq!(reasons[3..], [Reason::RedisUnavailable; 3]);
    redis.go_on();
    assert_eq!(a.beat().await, Health::Ready, "it slept shortly");
    a.settled().await;
    assert_eq!(a.counts().await.unwrap(), Counts::default());
    assert_eq!(take(&*a, wish(10, "a", 1, State::Pending)).await, Ok(()));
}

#[tokio::test]
async fn a_script_that_fails_is_an_error_and_not_an_answer() {
    let (redis, a, _b) = two_nodes().await;
    redis
        .command::<()>(&["SET", "sidetone:{adm}:pool", "no set"])
        .await;
    let refusal = take(&*a, wish(1, "a", 1, State::Pending)).await;
    assert_eq!(refusal, Err(Refusal::error()));
    assert_eq!(refusal.unwrap_err().retry_after, 1);
    assert_eq!(a.counts().await, Err(Refusal::error()));
    redis.command::<()>(&["SCRIPT", "FLUSH"]).await;
    redis.command::<()>(&["DEL", "sidetone:{adm}:pool"]).await;
    assert_eq!(take(&*a, wish(2, "a", 1, State::Pending)).await, Ok(()));
}
