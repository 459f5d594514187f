//! Request limits that nodes share.

use std::time::Duration;

use control::admission::lease::KEY_CLOCK;
use control::config::Config;
use control::http::Class;
use control::http::limits::{Limits, Shared, Unmetered};
use control::ids::ApiKeyId;
use control::redis_link::SERVER_CLOCK;
use control::time::{Clock, Moment};
use kit::redis::Redis;
use uuid::Uuid;

use crate::stage::{START, link};

/// The same arithmetic in the script as in the process, over bursts, refills and idle times.
#[tokio::test]
async fn a_shared_bucket_counts_as_one_in_the_process_does() {
    let redis = Redis::start().await;
    let link = link(&redis);
    assert!(link.connect().await);
    let shared = Shared::new(link, KEY_CLOCK);
    let mut settings = Config::defaults().unwrap().limits;
    for (number, per_minute) in [1_u32, 7, 60, 300, 1_000_000].into_iter().enumerate() {
        settings.reads_per_minute = per_minute;
        let own = Limits::new(&settings, None);
        let key = ApiKeyId(Uuid::from_u128(number as u128));
        let mut now = Moment::from_micros(START.0);
        for step in 0..400_u64 {
            // The bucket's key is its own prefix for the clock.
            let clock = format!("sidetone:limit:{{{number}}}:now");
            redis
                .command::<()>(&["SET", &clock, &now.micros().to_string()])
                .await;
            let expected = own.request(key, Class::Read, now).await.unwrap();
            let answer = shared.take(&number.to_string(), per_minute).await;
            assert_eq!(answer, expected, "{per_minute} a minute, step {step}");
            // Somebody sets the server's clock back, by an hour and by a day.
            if step % 100 == 99 {
                let back = if step == 99 { 3_600 } else { 86_400 };
                now = now.minus(Duration::from_secs(back));
            }
            let pause = [0, 0, 0, 1, 999_999, 137_000, 0, 61_000_000][(step % 8) as usize];
            now = now.plus(Duration::from_micros(if step.is_multiple_of(5) {
                pause
            } else {
                0
            }));
        }
    }
}

#[tokio::test]
async fn two_nodes_share_a_key_s_budget_and_one_alone_goes_on_but_for_what_costs_money() {
    let mut redis = Redis::start().await;
    let mut settings = Config::defaults().unwrap().limits;
    settings.reads_per_minute = 5;
    let (first, second) = (link(&redis), link(&redis));
    assert!(first.connect().await && second.connect().await);
    let nodes = [
        Limits::new(&settings, Some(first)),
        Limits::new(&settings, Some(second)),
    ];
    let clock = Clock::system();
    let key = ApiKeyId::new(&clock);
    let now = || -> Moment { clock.moment() };
    let mut passed = 0;
    for turn in 0..20 {
        let decision = nodes[turn % 2].request(key, Class::Read, now()).await;
        passed += u32::from(decision.unwrap().unwrap().retry_after.is_none());
    }
    assert_eq!(passed, 10, "a burst of two minutes for both together");
    let ip = std::net::Ipv4Addr::LOCALHOST.into();
    let left = nodes[0].failed_auth(ip, now()).await.remaining;
    assert_eq!(nodes[1].failed_auth(ip, now()).await.remaining, left - 1);

    redis.kill();
    for (class, expected) in [
        (Class::Tts, Err(Unmetered)),
        (Class::CallCreation, Err(Unmetered)),
        (Class::Exempt, Ok(None)),
    ] {
        assert_eq!(nodes[0].request(key, class, now()).await, expected);
    }
    let alone = nodes[0]
        .request(key, Class::Read, now())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((alone.retry_after, alone.remaining), (None, 9));
    assert_eq!(nodes[1].failed_auth(ip, now()).await.retry_after, None);
    // Tidied up by itself.
    redis.start_again().await;
    let script = Shared::new(link(&redis), SERVER_CLOCK);
    assert_eq!(script.take("x", 1).await, None, "nobody has connected it");
}

/// A crowd keeps a node's own threads from everything else for longer than Redis may take to answer.
#[tokio::test]
async fn an_answer_that_came_counts_however_busy_the_node_was() {
    let redis = Redis::start().await;
    let link = link(&redis);
    assert!(link.connect().await);
    let shared = Shared::new(link.clone(), SERVER_CLOCK);
    // Redis knows the script from here on.
    assert!(shared.take("crowd", 60).await.is_some());
    for _ in 0..4 {
        let busy = async {
            // The answer comes meanwhile, and nobody looks at it.
            std::thread::sleep(Duration::from_millis(400));
        };
        let (answer, ()) = tokio::join!(shared.take("crowd", 60), busy);
        assert!(answer.is_some());
    }
    assert!(link.is_up());
}
