//! The wall clock jumps under live calls (libfaketime): nothing that is heard, awaited or measured may
//! follow it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::receiver::Receiver;
use kit::server::Setup;
use kit::socket::{Caller, native, telco, ulaw};
use serde_json::json;
use tokio::time::Instant;

use crate::stage;

/// Seconds by which the clock is off, one after the other.
const JUMPS: [i64; 4] = [3600, 0, -3600, 7200];

/// What a call lasts between two jumps.
const BETWEEN: u64 = 1500;

/// Where `scripts/setup.sh test` has it from.
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut places = folders.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    places
        .find(|path| path.exists())
        .expect("libfaketime is missing: run `bash scripts/setup.sh test`")
}

/// A server whose wall clock goes by the offset in a file.
fn under_a_clock(file: &Path) -> Setup {
    let preload = format!("LD_PRELOAD={}", library().display());
    let offset = format!("FAKETIME_TIMESTAMP_FILE={}", file.display());
    stage::setup().through(&[
        "env",
        &preload,
        &offset,
        // The file is read again each time, and time that only grows is left alone.
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "DONT_FAKE_MONOTONIC=1",
    ])
}

fn set(file: &Path, seconds: i64) {
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
    std::fs::rename(new, file).unwrap();
}

fn now() -> i64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// Row 25.
#[tokio::test]
async fn calls_outlive_jumps_of_the_clock_and_last_as_long_as_they_are_heard() {
    let _few = stage::among_few().await;
    let count = if stage::soak() { 48 } else { 6 };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offset");
    set(&file, 0);
    let receiver = Receiver::start().await;
    let setup = under_a_clock(&file).set("EGRESS__ALLOW", "127.0.0.1");
    let server = setup.start().await;
    let client = server.client();
    let agent = stage::agent(
        &client,
        json!({"first_message": stage::long_greeting(), "interruption_enabled": false,
            "webhook_url": format!("{}/ends", receiver.url)}),
    )
    .await;
    let kinds = [native(&agent), ulaw(&agent), telco(&agent)];
    let calls = (0..count).map(|number| Caller::call(&client, &kinds[number % 3]));
    let mut callers = join_all(calls).await;
    let heard_from = Instant::now();
    for seconds in JUMPS {
        join_all(callers.iter_mut().map(|caller| caller.listen(BETWEEN))).await;
        set(&file, seconds);
    }
    // The clock that the program sees has jumped.
    let made = client.post("/api-keys", &json!({"name": "late"})).await;
    let made = made.expect(201).text("created_at");
    let ahead = seconds_of(&made) - now();
    assert!(
        (7190..=7210).contains(&ahead),
        "the clock is {ahead} s ahead"
    );
    join_all(callers.iter_mut().map(|caller| caller.listen(BETWEEN))).await;
    let (mut worst_gap, mut worst_length) = (Duration::ZERO, 0.0_f64);
    let (mut ids, mut ending) = (Vec::new(), Vec::new());
    for caller in callers {
        assert_eq!(caller.closed, None, "a call ended by itself");
        worst_gap = worst_gap.max(gap(&caller, heard_from));
        ids.push(caller.session_id.clone());
        ending.push(caller);
    }
    // All at once: who waited for the others' goodbyes would have said nothing meanwhile.
    join_all(ending.into_iter().map(Caller::hang_up)).await;
    for id in &ids {
        let call = stage::over(&client, id, Duration::from_secs(20)).await;
        assert_eq!(call["end_reason"], "caller_hangup", "{call}");
        // What was recorded went by samples, what was counted by a clock that only grows.
        let heard = stage::recording(&client, id).await[0].len() as f64 / 16_000.0;
        let told = call["duration_seconds"].as_f64().unwrap();
        worst_length = worst_length.max((told - heard).abs());
        assert!(told > 7.0 && told < 120.0, "{told} s");
    }
    println!(
        "{count} calls through jumps of {JUMPS:?} s: the longest gap {worst_gap:?}, durations off by {:.0} ms at most",
        worst_length * 1000.0
    );
    assert!(worst_gap <= Duration::from_millis(500), "{worst_gap:?}");
    assert!(worst_length <= 0.05, "{worst_length} s");
    let ended = |got: &[kit::receiver::Got]| got.iter().filter(|g| g.event == "call.ended").count();
    let got = receiver
        .until(Duration::from_secs(20), |got| ended(got) == count)
        .await;
    for got in got.iter().filter(|got| got.event == "call.ended") {
        let t = got
            .signature
            .strip_prefix("t=")
            .and_then(|rest| rest.split(',').next());
        let ahead = t.unwrap().parse::<i64>().unwrap() - now();
        assert!((7190..=7210).contains(&ahead), "signed {ahead} s ahead");
    }
}

/// Seconds by which the clock is off, one after the other.
const FAR: [i64; 4] = [3_600, -3_600, 86_400, -86_400];

/// Failed authentications that pass, one after the other, until one is refused.
async fn failures(stranger: &Client) -> u32 {
    let mut passed = 0;
    while stranger.get("/agents").await.status == 401 {
        passed += 1;
    }
    passed
}

/// Row 67. Three calls live through it all, one more slot changes hands after each jump.
#[tokio::test]
async fn limits_leases_sessions_and_claims_follow_no_jump_of_an_hour_or_a_day() {
    let _together = stage::together().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offset");
    set(&file, 0);
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], kit::ports::free_port()));
    let setup = under_a_clock(&file)
        .telephones(listen)
        .set("EGRESS__ALLOW", "127.0.0.1")
        .set("LIMITS__ACCOUNT_CALLS", "4")
        // One a second after a burst.
        .set("LIMITS__FAILED_AUTH_PER_MINUTE", "60");
    let server = setup.start().await;
    let (client, stranger) = (server.client(), server.client().with_key("nobody's key"));
    let more = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let agent = stage::agent(&client, more).await;
    // Nobody answers this trunk; what counts is who registers it.
    let trunk = json!({"name": "registers", "type": "inbound", "auth_mode": "register",
        "auth_username": "a", "auth_password": "b",
        "outbound_address": format!("127.0.0.1:{}", kit::ports::free_port())});
    client.post("/sip-trunks", &trunk).await.expect(201);
    let kind = native(&agent);
    let calls = (0..3).map(|_| Caller::call(&client, &kind));
    let mut callers = join_all(calls).await;
    let connect = async || client.post("/conversation/connect", &kind).await;
    failures(&stranger).await;
    for seconds in FAR {
        let pending = connect().await.expect(200);
        assert_eq!(connect().await.status, 429, "{seconds} s");
        failures(&stranger).await;
        set(&file, seconds);
        let jumped = Instant::now();
        // Whoever comes now: three live and one waits.
        for _ in 0..3 {
            assert_eq!(connect().await.status, 429, "{seconds} s: one too many");
        }
        let mut gained = failures(&stranger).await;
        join_all(callers.iter_mut().map(|caller| caller.listen(2_500))).await;
        gained += failures(&stranger).await;
        let most = u32::try_from(jumped.elapsed().as_secs()).unwrap() + 1;
        assert!(
            (most - 2..=most).contains(&gained),
            "{seconds} s: {gained} of {most} came back"
        );
        let mut joined = Caller::join(&pending, "").await.unwrap();
        joined.wait_for("session_started", 5_000).await;
        assert_eq!(connect().await.status, 429, "{seconds} s");
        let path = format!("/conversation/{}/status", callers[0].session_id);
        let status = client.get(&path).await.expect(200);
        let lasted = status.body["duration_seconds"].as_f64().unwrap();
        assert!((2.0..120.0).contains(&lasted), "{seconds} s: {lasted} s");
        joined.hang_up().await;
        stage::over(
            &client,
            &pending.text("session_id"),
            Duration::from_secs(20),
        )
        .await;
    }
    for caller in &callers {
        assert_eq!(caller.closed, None, "a call ended by itself");
    }
    // The claim is renewed by a clock that did not jump.
    let db = server.database().await;
    let until = db
        .query("select registrar_until from sip_trunks")
        .one(|row| row.time("registrar_until"))
        .await
        .unwrap();
    db.close().await;
    let left = until.seconds() - now();
    assert!((-2..=16).contains(&left), "claimed for {left} s");
}

/// Seconds since 1970 of a time as the API writes it.
fn seconds_of(text: &str) -> i64 {
    let time: control::time::Timestamp = serde_json::from_value(json!(text)).unwrap();
    time.0 / 1_000_000
}

/// The longest time in which the caller had nothing to play.
fn gap(caller: &Caller, from: Instant) -> Duration {
    let mut played = from;
    let mut worst = Duration::ZERO;
    for (at, samples) in caller.audio_since(from) {
        worst = worst.max(at.saturating_duration_since(played));
        let rate = caller.rate();
        played = played.max(at) + Duration::from_secs_f64(samples as f64 / rate);
    }
    worst
}
