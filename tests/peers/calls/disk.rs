//! A disk that runs full under live calls: the calls go on, and nothing claims to be a recording that is
//! not one. The spool is a small file system of the server's own, in a mount namespace that ends with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::peer::{self, Mix};
use kit::ports::free_udp;
use kit::server::Server;
use kit::socket::{Caller, native};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stage;

/// Mounts so many MiB as the spool, fills five of them, and becomes the server.
const SMALL_SPOOL: &str = "set -e
    spool=$SIDETONE_SERVER__DATA_DIR/spool
    mkdir -p $spool
    mount -t tmpfs -o size=$1m tmpfs $spool
    head -c 5m /dev/zero > $spool/ballast
    shift
    exec \"$@\"";

/// With room for 12 seconds of so many calls at 64 kB a second.
async fn with_small_spool(calls: usize, listen: SocketAddr) -> Server {
    let namespace = ["unshare", "--map-root-user", "--mount"];
    let size = (5 + calls * 3 / 4).to_string();
    stage::setup()
        .telephones(listen)
        .set("RECORDINGS__MIN_FREE_MIB", "1")
        .through(&[&namespace[..], &["sh", "-c", SMALL_SPOOL, "sh", &size]].concat())
        .start()
        .await
}

/// The value of a metric without labels.
async fn metric(client: &Client, name: &str) -> f64 {
    let answer = client.get("//metrics").await.expect(200);
    let text = String::from_utf8(answer.bytes).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

async fn recording_of(client: &Client, call: &str) -> Value {
    let list = client.get("/recordings?limit=100").await.expect(200);
    let items = list.body["items"].as_array().unwrap();
    let found = items.iter().find(|recording| recording["call_id"] == call);
    found
        .unwrap_or_else(|| panic!("no recording of {call}"))
        .clone()
}

/// What is kept of a call's beginning.
fn partial(server: &Server, call: &str) -> Option<PathBuf> {
    let accounts = std::fs::read_dir(server.data.join("objects/recordings")).ok()?;
    let mut kept = accounts
        .flatten()
        .map(|account| account.path().join(format!("{call}.partial.wav")));
    kept.find(|path| path.exists())
}

#[tokio::test]
async fn calls_go_on_when_the_disk_is_full_and_no_half_recording_is_ready() {
    let _few = stage::among_few().await;
    let (sockets, browsers, telephones, called) = match stage::soak() {
        true => (30, 10, 8, 2),
        false => (3, 1, 1, 1),
    };
    let mix = Mix {
        sockets,
        browsers,
        telephones,
        called,
    };
    let listen = free_udp();
    let server = with_small_spool(mix.count(), listen).await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let agent = stage::agent(&client, fields).await;
    peer::line(&client, &agent).await;
    // A short call while there is room.
    let mut early = Caller::call(&client, &native(&agent)).await;
    early.listen(500).await;
    early.send(&json!({"type": "end"})).await;
    early.close_code(Duration::from_secs(5)).await;
    let early = stage::over(&client, &early.session_id, Duration::from_secs(10)).await;
    assert_eq!(early["has_recording"], true);

    let mut peers = peer::calls(&client, listen, &agent, mix).await;
    let mut seconds = 0;
    // How much is free is asked every five seconds.
    while seconds < 6 || metric(&client, "sidetone_spool_free_bytes").await > 16_384.0 {
        assert!(seconds < 40, "the disk does not run full");
        join_all(peers.iter_mut().map(|peer| peer.speak(1000))).await;
        seconds += 1;
    }
    // No new recording begins; the call itself does.
    let mut late = Caller::call(&client, &native(&agent)).await;
    late.wait_for("audio", 2000).await;
    join_all(peers.iter_mut().map(|peer| peer.speak(1000))).await;
    late.send(&json!({"type": "end"})).await;
    assert_eq!(late.close_code(Duration::from_secs(5)).await, Some(1000));
    // All are heard to the end.
    let last = Instant::now();
    join_all(peers.iter_mut().map(|peer| peer.speak(1000))).await;
    peer::check_heard(&mut peers, last, Duration::from_millis(500));
    let mut ids = peer::hang_up(peers).await;
    ids.push(late.session_id);
    let mut kept = 0;
    for id in &ids {
        let call = stage::over(&client, id, Duration::from_secs(20)).await;
        assert_eq!(
            (&call["status"], &call["end_reason"], &call["has_recording"]),
            (&json!("completed"), &json!("caller_hangup"), &json!(false))
        );
        assert_eq!(recording_of(&client, id).await["status"], "failed");
        assert!(server.events(id, "recording.ready").await.is_empty());
        client
            .get(&format!("/conversations/{id}/audio"))
            .await
            .expect(404);
        if let Some(path) = partial(&server, id) {
            let length = std::fs::metadata(&path).unwrap().len();
            let wav = hound::WavReader::open(&path).unwrap();
            assert_eq!(
                u64::from(wav.duration()) * 4 + 44,
                length,
                "its header tells its length"
            );
            assert!(wav.duration() > 16_000, "more than a second");
            kept += 1;
        }
    }
    assert!(kept > 0, "nothing was kept of {} calls", ids.len());
    assert!(metric(&client, "sidetone_engine_failed_recordings_total").await >= 5.0);
    assert!(metric(&client, "sidetone_engine_refused_recordings_total").await >= 1.0);
    // The early one is as it was.
    stage::recording(&client, early["id"].as_str().unwrap()).await;
}
