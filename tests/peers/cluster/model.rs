//! The scripts do what the policy says: random operations get the same answers from both.

use std::time::Duration;

use control::admission::policy::Book;
use control::admission::{Held, Lease, Leases, Owner, Refusal, Renewal, Request, State};
use control::ids::{AgentId, TrunkId};
use control::time::Moment;
use kit::redis::Redis;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use uuid::Uuid;

use crate::stage::{self, START, call, caps};

#[derive(Clone, Debug)]
enum Step {
    Acquire(u128, &'static str, State),
    Adopt(u128, &'static str),
    Renew(&'static str, Vec<(u128, State)>),
    Release(u128, &'static str),
    Pass(u64),
    /// Somebody sets the server's clock back.
    Back(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let owner = || prop_oneof![Just("a"), Just("b")];
    let state = || {
        prop_oneof![
            Just(State::Pending),
            Just(State::Keyless),
            Just(State::Live)
        ]
    };
    let step = prop_oneof![
        4 => (0..12_u128, owner(), state()).prop_map(|(l, o, s)| Step::Acquire(l, o, s)),
        3 => (0..12_u128, owner()).prop_map(|(l, o)| Step::Adopt(l, o)),
        2 => (owner(), prop::collection::vec((0..12_u128, state()), 0..4))
            .prop_map(|(o, leases)| Step::Renew(o, leases)),
        2 => (0..12_u128, owner()).prop_map(|(l, o)| Step::Release(l, o)),
        // To the microsecond of an end and past it.
        2 => prop_oneof![Just(5_000_000), Just(10_000_000), Just(15_000_000), 0..40_000_000_u64]
            .prop_map(Step::Pass),
        1 => prop_oneof![Just(3_600_000_000), Just(86_400_000_000), 0..120_000_000_u64]
            .prop_map(Step::Back),
    ];
    prop::collection::vec(step, 1..60)
}

/// A lease's account, agent and trunk follow from its number.
fn wish(number: u128, owner: &str, state: State) -> Request {
    Request {
        agent: number
            .is_multiple_of(2)
            .then(|| (AgentId(Uuid::from_u128(number % 4)), 2)),
        trunk: number
            .is_multiple_of(3)
            .then(|| (TrunkId(Uuid::from_u128(1)), 2)),
        ..stage::wish(number, owner, number % 3, state)
    }
}

fn told(mut list: Vec<Held>) -> Vec<Held> {
    list.sort_by_key(|held| held.lease);
    list
}

#[test]
fn random_operations_get_the_same_answers_from_redis_as_from_the_policy() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(Redis::start());
    let caps = caps(3, 6, 4);
    let cases = if stage::soak() { 2000 } else { 100 };
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&steps(), |steps| {
        runtime.block_on(async {
            redis.command::<()>(&["FLUSHALL"]).await;
            let link = stage::link(&redis);
            let clock = control::admission::lease::KEY_CLOCK;
            let a = stage::node(&link, caps, "a", clock);
            let b = stage::node(&link, caps, "b", clock);
            let mut connection = redis.connection().await;
            let mut now = Moment::from_micros(START.0);
            set_time(&mut connection, now).await;
            stage::warm(&*a, &["a"]).await;
            stage::warm(&*b, &["a", "b"]).await;
            let mut book = Book::new(caps);
            for step in steps {
                let store = |owner: &str| if owner == "a" { &a } else { &b };
                match &step {
                    Step::Acquire(number, owner, state) => {
                        let wish = wish(*number, owner, *state);
                        let expected = book.acquire(&wish, now);
                        let answer = store(owner).acquire(wish).await.map(Lease::leave);
                        prop_assert_eq!(answer, expected, "{:?}", step);
                    }
                    Step::Adopt(number, owner) => {
                        let wish = wish(*number, owner, State::Live);
                        let expected = book.adopt(&wish, now);
                        let answer = store(owner).adopt(wish).await.map(Lease::leave);
                        prop_assert_eq!(answer, expected, "{:?}", step);
                    }
                    Step::Renew(owner, leases) => {
                        let renewals: Vec<Renewal> = leases
                            .iter()
                            .map(|(number, state)| (&wish(*number, owner, *state)).into())
                            .collect();
                        let owner_id = Owner::new(owner, 1);
                        book.renew(&owner_id, &renewals, now);
                        let answer = store(owner).renew(&owner_id, &renewals).await;
                        prop_assert_eq!(answer, Ok::<(), Refusal>(()));
                    }
                    Step::Release(number, owner) => {
                        book.release(call(*number), &Owner::new(owner, 1), now);
                        store(owner).release(call(*number), &Owner::new(owner, 1));
                        store(owner).settled().await;
                    }
                    Step::Pass(micros) => {
                        now = now.plus(Duration::from_micros(*micros));
                        set_time(&mut connection, now).await;
                        forget(&mut connection, now).await;
                    }
                    Step::Back(micros) => {
                        now = now.minus(Duration::from_micros(*micros));
                        set_time(&mut connection, now).await;
                    }
                }
                book.expire(now);
                prop_assert_eq!(a.counts().await, Ok(book.counts()), "{:?}", step);
                let list = a.list().await.map(told);
                prop_assert_eq!(list, Ok(told(book.list(now))), "{:?}", step);
            }
            Ok(())
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

async fn set_time(connection: &mut redis::aio::MultiplexedConnection, now: Moment) {
    let key = format!("{}:now", control::admission::lease::PREFIX);
    redis::cmd("SET")
        .arg(key)
        .arg(now.micros())
        .query_async::<()>(connection)
        .await
        .unwrap();
}

/// What was remembered of leases that were given back is forgotten once its time is over: Redis lets such keys run out by
/// the machine's clock, which this test does not move.
async fn forget(connection: &mut redis::aio::MultiplexedConnection, now: Moment) {
    let pattern = format!("{}:gone:*", control::admission::lease::PREFIX);
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg(pattern)
        .query_async(connection)
        .await
        .unwrap();
    for key in keys {
        let until: i64 = redis::cmd("GET")
            .arg(&key)
            .query_async(connection)
            .await
            .unwrap();
        if until <= now.micros() {
            redis::cmd("DEL")
                .arg(&key)
                .query_async::<()>(connection)
                .await
                .unwrap();
        }
    }
}
