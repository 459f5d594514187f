//! baresip calls an agent: it is greeted, interrupts, presses keys and hangs up, in each codec, in plain and
//! over TLS with encrypted audio; and an agent calls it.

mod phone;
mod proxy;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kit::ports::free_port;
use kit::server::Server;
use media::audio::tones::{db, goertzel};
use serde_json::{Value, json};
use tokio::time::sleep;

use self::phone::{Account, Phone};
use self::proxy::proxy_to;
use crate::outbound;
use crate::stage::{self, loud};
use crate::telephone::{records, server};

/// What the caller says: a word into the greeting, and nothing any more.
fn said() -> Vec<i16> {
    let mut said = vec![0; 16_000 * 3];
    said.extend(stage::voice(800));
    said.resize(16_000 * 30, 0);
    said
}

/// One call from its beginning to its end; its record.
async fn call(server: &Server, to: &str, account: Account<'_>, calls: usize) -> Value {
    let client = server.client();
    let mut phone = Phone::start(account, &said()).await;
    phone.tell("dial", to).await;
    phone.until("CALL_ESTABLISHED").await;
    if account.encryption.is_some() {
        phone.until("CALL_MENC").await;
    }
    // The greeting, a word into it, and the answer to that.
    sleep(Duration::from_secs(7)).await;
    for key in ["4", "#"] {
        phone.tell("sndcode", key).await;
        sleep(Duration::from_millis(300)).await;
    }
    sleep(Duration::from_millis(2_500)).await;
    phone.tell("hangup", "").await;
    phone.until("CALL_CLOSED").await;

    let call = records(&client, calls).await.remove(0);
    let told = format!("{account:?}: {call}; {}", phone.log());
    assert_eq!(call["status"], "completed", "{told}");
    assert_eq!(call["end_reason"], "caller_hangup", "{told}");
    // Its From has a name, which is no number.
    assert_eq!(call["from_number"], Value::Null, "{told}");
    let id = call["id"].as_str().unwrap();
    let path = format!("/conversations/{id}/transcript");
    let turns = client.get(&path).await.expect(200).body["turns"].clone();
    let turns = turns.as_array().unwrap();
    let words = |n: usize| (turns[n]["source"].as_str(), turns[n]["text"].as_str());
    assert_eq!(turns[0]["interrupted"], true, "{turns:?}; {told}");
    assert_eq!(
        words(1),
        (Some("speech"), Some("hello there")),
        "{turns:?}; {told}"
    );
    let keys = turns.iter().find(|turn| turn["source"] == "keypad");
    assert_eq!(
        keys.map(|turn| &turn["text"]),
        Some(&json!("4#")),
        "{turns:?}; {told}"
    );

    // Both sides heard the other's tone, and nothing that was louder.
    let [caller, agent] = stage::recording(&client, id).await;
    assert!(
        (0.6..1.2).contains(&loud(&caller)),
        "{} s; {told}",
        loud(&caller)
    );
    let word = caller
        .chunks(320)
        .skip_while(|frame| frame.iter().all(|s| s.unsigned_abs() < 330));
    let word: Vec<i16> = word.take(30).flatten().copied().collect();
    let level = db(goertzel(&word[1_600..8_000], 16_000, 500.0));
    assert!((level + 12.0).abs() < 2.0, "{level} dB; {told}");
    let (heard, rate) = phone.heard();
    let heard = resampled(&heard, rate);
    let (spoken, heard) = (loud(&agent), loud(&heard));
    assert!(
        spoken > 2.0 && (spoken - heard).abs() < 0.5,
        "{spoken} {heard}; {told}"
    );
    call
}

/// As much of it at 16 kHz as loudness needs.
fn resampled(samples: &[i16], rate: u32) -> Vec<i16> {
    let step = f64::from(rate) / 16_000.0;
    let length = (samples.len() as f64 / step) as usize;
    (0..length)
        .map(|at| samples[(at as f64 * step) as usize])
        .collect()
}

fn talkative() -> Value {
    json!({"first_message": stage::long_greeting()})
}

#[tokio::test]
async fn baresip_calls_in_plain_with_each_codec() {
    let _together = stage::together().await;
    let port = free_port();
    let listen = SocketAddr::from(([127, 0, 0, 1], port));
    let (server, _) = server(
        talkative(),
        &[("SIP__LISTEN", &*format!("udp:{listen},tcp:{listen}"))],
    )
    .await;
    let codecs = [
        ("PCMU/8000", "udp"),
        ("PCMA/8000", "tcp"),
        ("G722/16000", "udp"),
        ("opus/48000/2", "udp"),
    ];
    for (calls, (codec, transport)) in (1..).zip(codecs) {
        let account = Account {
            codec,
            transport,
            encryption: None,
            authority: None,
            answers: None,
        };
        let to = format!("sip:+4930123456@{listen};transport={transport}");
        let call = call(&server, &to, account, calls).await;
        assert_eq!(call["to_number"], "+4930123456");
    }
}

/// A certificate for `localhost` and 127.0.0.1, and its key.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let files = (folder.join("sip.crt"), folder.join("sip.key"));
    let made = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args(["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout",
        ])
        .arg(&files.1)
        .arg("-out")
        .arg(&files.0)
        .output()
        .expect("openssl is missing: run `bash scripts/setup.sh test`");
    assert!(made.status.success(), "{made:?}");
    files
}

#[tokio::test]
async fn baresip_calls_over_tls_with_encrypted_audio_and_not_without() {
    let _together = stage::together().await;
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(folder.path());
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (server, _) = server(
        talkative(),
        &[
            ("SIP__LISTEN", &*format!("tls:{listen}")),
            ("SIP__TLS_CERTIFICATE", &*certificate.display().to_string()),
            ("SIP__TLS_KEY", &*key.display().to_string()),
            ("SIP__MEDIA_ENCRYPTION", "require"),
        ],
    )
    .await;
    let to = format!("sip:+4930123456@{listen};transport=tls");
    let account = Account {
        codec: "PCMU/8000",
        transport: "tls",
        encryption: Some("srtp-mand"),
        authority: Some(&certificate),
        answers: None,
    };
    call(&server, &to, account, 1).await;
    let opus = Account {
        codec: "opus/48000/2",
        ..account
    };
    call(&server, &to, opus, 2).await;

    // A trunk that demands encryption takes no plain call (488), and nothing is spent on it.
    let plain = Account {
        encryption: None,
        ..account
    };
    let mut phone = Phone::start(plain, &said()).await;
    phone.tell("dial", &to).await;
    let closed = phone.until("CALL_CLOSED").await;
    assert!(
        closed["param"].as_str().unwrap().contains("488"),
        "{closed}"
    );
    assert_eq!(records(&server.client(), 2).await.len(), 2);
}

/// An authority, and a certificate of its for 127.0.0.1 with its key in one file.
fn vouched(folder: &Path) -> (PathBuf, PathBuf) {
    const SCRIPT: &str = "
        curve='ec -pkeyopt ec_paramgen_curve:P-256'
        openssl req -x509 -newkey $curve -nodes -days 2 -subj '/CN=sidetone tests' -keyout ca.key -out ca.crt
        openssl req -newkey $curve -nodes -subj /CN=127.0.0.1 -keyout leaf.key -out leaf.csr
        printf 'subjectAltName=IP:127.0.0.1' >leaf.ext
        openssl x509 -req -in leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile leaf.ext -out leaf.crt
        cat leaf.crt leaf.key >both.pem";
    let made = std::process::Command::new("sh")
        .args(["-ec", SCRIPT])
        .current_dir(folder)
        .output()
        .expect("a shell");
    assert!(made.status.success(), "{made:?}");
    (folder.join("ca.crt"), folder.join("both.pem"))
}

/// An agent calls baresip over TLS, with encrypted audio and nothing else, and both hear each other.
#[tokio::test]
async fn an_agent_calls_baresip_over_tls_with_encrypted_audio() {
    let _together = stage::together().await;
    let folder = tempfile::tempdir().unwrap();
    let (authority, both) = vouched(folder.path());
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let file = |name: &str| folder.path().join(name).display().to_string();
    let server = stage::setup()
        .set("SIP__LISTEN", &format!("tls:{listen}"))
        .set("SIP__TLS_CERTIFICATE", &file("leaf.crt"))
        .set("SIP__TLS_KEY", &file("leaf.key"))
        .set("EGRESS__ALLOW", "127.0.0.1")
        .env("SSL_CERT_FILE", &authority.display().to_string())
        .start()
        .await;
    let account = Account {
        codec: "PCMU/8000",
        transport: "tls",
        encryption: Some("srtp-mand"),
        authority: Some(&authority),
        answers: Some((outbound::TO, both.as_path())),
    };
    let phone = Phone::start(account, &answer()).await;
    let trunk = json!({"transport": "tls", "media_encryption": "require"});
    let carrier = phone.tls;
    called(&server, phone, account, (carrier, trunk)).await;
}

/// What somebody says who is called: a word after a second.
fn answer() -> Vec<i16> {
    let mut said = vec![0; 16_000];
    said.extend(stage::voice(800));
    said.resize(16_000 * 30, 0);
    said
}

/// An agent calls this telephone over a carrier and its trunk, both hear each other, and the telephone hangs up.
async fn called(
    server: &Server,
    mut phone: Phone,
    account: Account<'_>,
    (carrier, trunk): (SocketAddr, Value),
) {
    let client = server.client();
    let wish = outbound::line(&client, carrier, trunk).await;
    let id = outbound::place(&client, &wish).await;
    outbound::standing(&client, &id, "in_progress").await;
    phone.until("CALL_ESTABLISHED").await;
    if account.encryption.is_some() {
        phone.until("CALL_MENC").await;
    }
    // What it says, and the answer to that.
    sleep(Duration::from_secs(7)).await;
    phone.tell("hangup", "").await;
    phone.until("CALL_CLOSED").await;
    let call = outbound::over(server, &id).await;
    let told = format!("{call}; {}", phone.log());
    assert_eq!(call["status"], "completed", "{told}");
    assert_eq!(call["end_reason"], "caller_hangup", "{told}");
    let [callee, agent] = stage::recording(&client, &id).await;
    assert!((0.6..1.2).contains(&loud(&callee)), "{told}");
    let (heard, rate) = phone.heard();
    let (spoken, heard) = (loud(&agent), loud(&resampled(&heard, rate)));
    assert!(
        spoken > 1.0 && (spoken - heard).abs() < 0.5,
        "{spoken} {heard}; {told}"
    );
}

/// The same through a proxy that stays between both sides: our requests and theirs go over it.
#[tokio::test]
async fn an_agent_calls_baresip_through_kamailio() {
    let _together = stage::together().await;
    let folder = tempfile::tempdir().unwrap();
    let (_, both) = vouched(folder.path());
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let server = stage::setup()
        .set("SIP__LISTEN", &format!("udp:{listen}"))
        .set("EGRESS__ALLOW", "127.0.0.1")
        .start()
        .await;
    let account = Account {
        codec: "PCMU/8000",
        transport: "udp",
        encryption: None,
        authority: None,
        answers: Some((outbound::TO, both.as_path())),
    };
    let phone = Phone::start(account, &answer()).await;
    let proxy = proxy_to(phone.sip).await;
    called(&server, phone, account, (proxy.address, json!({}))).await;
    // The INVITE and its ACK are ours, the goodbye is theirs.
    for told in ["SEEN INVITE from", "SEEN ACK from"] {
        let told = format!("{told} {listen}\n");
        assert_eq!(proxy.told(&told), 1, "{told}: {}", proxy.log());
    }
    assert_eq!(proxy.told("SEEN BYE "), 1, "{}", proxy.log());
    assert_eq!(proxy.told(&format!("SEEN BYE from {listen}\n")), 0);
}

/// Through a proxy that stays between both sides: their requests and ours go over it.
#[tokio::test]
async fn baresip_calls_through_kamailio() {
    let _together = stage::together().await;
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (server, agent) = server(talkative(), &[("SIP__LISTEN", &*format!("udp:{listen}"))]).await;
    let proxy = proxy_to(listen).await;
    let account = Account {
        codec: "PCMA/8000",
        transport: "udp",
        encryption: None,
        authority: None,
        answers: None,
    };
    let to = format!("sip:+4930123456@{}", proxy.address);
    call(&server, &to, account, 1).await;
    for method in ["INVITE", "ACK", "BYE"] {
        assert_eq!(proxy.told(&format!("SEEN {method} ")), 1, "{}", proxy.log());
    }

    // An agent that hangs up: our goodbye goes the way that their INVITE came.
    let client = server.client();
    let path = format!("/agents/{agent}");
    let patch = json!({"end_call_phrases": ["hello there"]});
    client.patch(&path, &patch).await.expect(200);
    let mut phone = Phone::start(account, &said()).await;
    phone.tell("dial", &to).await;
    phone.until("CALL_ESTABLISHED").await;
    phone.until("CALL_CLOSED").await;
    let ours = format!("SEEN BYE from {listen}\n");
    assert_eq!(proxy.told(&ours), 1, "{}", proxy.log());
    let ended = records(&client, 2).await;
    assert!(
        ended.iter().any(|call| call["end_reason"] == "phrase"),
        "{ended:?}"
    );
}
