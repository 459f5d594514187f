//! Events of a real call, told to a real receiver by the real program.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use control::webhooks::sign;
use kit::client::Client;
use kit::receiver::{Answer, Receiver};
use kit::server::{Server, Setup};
use kit::socket::{Caller, agent, native, scripted_voice};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn setup() -> Setup {
    Setup::default()
        .scripted()
        .set("EGRESS__ALLOW", "127.0.0.1")
}

/// An agent whose events go to `url`.
pub(crate) async fn agent_to(client: &Client, url: &str) -> String {
    let fields = json!({
        "voice_id": scripted_voice(client).await, "llm_model": "echo",
        "first_message": "Good morning.", "webhook_url": url,
    });
    agent(client, fields).await
}

/// A short call that the caller hangs up. Its id.
async fn a_call(client: &Client, agent: &str) -> String {
    let mut caller = Caller::call(client, &native(agent)).await;
    caller.listen(600).await;
    let id = caller.session_id.clone();
    caller.send(&json!({"type": "end"})).await;
    assert!(caller.close_code(PATIENCE).await.is_some());
    id
}

fn now() -> i64 {
    control::time::Clock::system().now().seconds()
}

#[tokio::test]
async fn a_call_tells_its_end_and_its_recording_signed() {
    let server = setup().start().await;
    let receiver = Receiver::start().await;
    let client = server.client();
    let rotated = client
        .post("/usage/webhook-secret/rotate", &json!({}))
        .await;
    let secret = rotated.expect(200).text("secret");
    let agent = agent_to(&client, &format!("{}/calls", receiver.url)).await;
    let id = a_call(&client, &agent).await;
    let got = receiver.until(PATIENCE, |got| got.len() >= 2).await;
    for one in &got {
        assert_eq!(
            (one.path.as_str(), one.text("call_id")),
            ("/calls", id.clone())
        );
        assert_eq!(
            sign::verify(secret.as_bytes(), now(), &one.body, &one.signature),
            Ok(())
        );
        let timestamp = one.json()["timestamp"].as_i64().unwrap();
        assert!((now() - timestamp).abs() < 60);
    }
    let of = |kind: &str| got.iter().find(|one| one.event == kind).unwrap().json();
    let ended = of("call.ended");
    assert_eq!(
        (&ended["status"], &ended["direction"]),
        (&json!("completed"), &json!("inbound"))
    );
    let text = ended["transcript_text"].as_str().unwrap();
    assert!(text.starts_with("Agent: Good morning"), "{text}");

    let ready = of("recording.ready");
    let names: Vec<&String> = ready.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "audio_url",
            "call_id",
            "conversation_id",
            "event_id",
            "recording_region",
            "size_bytes",
            "timestamp"
        ]
    );
    let audio = server
        .anonymous()
        .get(ready["audio_url"].as_str().unwrap())
        .await
        .expect(200);
    assert_eq!(json!(audio.bytes.len()), ready["size_bytes"]);

    let call = settled(&client, &id, "delivered").await;
    assert_eq!(call["webhook_attempts"], json!(1));
    assert!(call["webhook_delivered_at"].is_string());
    let metrics = server.anonymous().get("//metrics").await.expect(200);
    let metrics = String::from_utf8(metrics.bytes).unwrap();
    assert!(
        metrics.contains("sidetone_webhook_attempts_total{status=\"delivered\"} 2"),
        "{metrics}"
    );
}

/// The call, once its report stands so.
async fn settled(client: &Client, id: &str, status: &str) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
        if call["webhook_delivery_status"] == status {
            return call;
        }
        assert!(Instant::now() < until, "{call:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn no_unsafe_address_becomes_a_webhook() {
    let server = Server::scripted().await;
    let client = server.client();
    let agent = agent(&client, json!({"voice_id": scripted_voice(&client).await})).await;
    let table = include_str!("../../fixtures/unsafe_urls.txt");
    for url in table.lines() {
        let change = json!({"webhook_url": url});
        let answer = client.patch(&format!("/agents/{agent}"), &change).await;
        assert_eq!(
            (answer.status, answer.wrong_fields()),
            (422, vec!["body.webhook_url".to_owned()]),
            "{url}"
        );
    }
    let kept = client.get(&format!("/agents/{agent}")).await.expect(200);
    assert_eq!(kept.body["webhook_url"], Value::Null);
}

#[tokio::test]
async fn an_endless_answer_costs_neither_memory_nor_time() {
    let server = setup().start().await;
    let receiver = Receiver::answering(|_| Answer::Endless).await;
    let client = server.client();
    let agent = agent_to(&client, &receiver.url).await;
    let mut before = 0;
    for round in 0..60 {
        let id = super::webhook_delivery::ended(&client, &agent).await;
        settled(&client, &id, "delivered").await;
        if round == 19 {
            before = server.memory_kib();
        }
    }
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < 2048, "{grown} KiB more after 40 endless bodies");
}

#[tokio::test]
async fn what_is_due_when_the_server_ends_is_delivered_first() {
    let mut server = setup().start().await;
    let receiver = Receiver::start().await;
    let client = server.client();
    let agent = agent_to(&client, &receiver.url).await;
    let mut caller = Caller::call(&client, &native(&agent)).await;
    caller.listen(200).await;
    let hang_up = async {
        caller.send(&json!({"type": "end"})).await;
        caller.close_code(PATIENCE).await
    };
    server.terminate();
    assert!(hang_up.await.is_some());
    assert_eq!(server.ended(PATIENCE).await, Some(0));
    let mut kinds: Vec<String> = receiver.got().into_iter().map(|got| got.event).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["call.ended", "recording.ready"]);
}

/// `sidetone webhooks listen`, ended with the test.
struct Listener {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Listener {
    fn start(secret: &str) -> (Self, String) {
        let mut child = Command::new(kit::server::program())
            .args(["webhooks", "listen", "--port", "0", "--secret", secret])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        let listener = Self { child, lines };
        let first = listener.line("listening");
        let url = first.split_whitespace().last().unwrap().to_owned();
        (listener, url)
    }

    /// The next line that holds these words.
    fn line(&self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
            if line.contains(words) {
                return line;
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_command_line_prints_events_and_checks_them() {
    let server = setup().start().await;
    let client = server.client();
    let rotate = async || {
        let rotated = client
            .post("/usage/webhook-secret/rotate", &json!({}))
            .await;
        rotated.expect(200).text("secret")
    };
    let (listener, url) = Listener::start(&rotate().await);
    let agent = agent_to(&client, &url).await;
    let id = super::webhook_delivery::ended(&client, &agent).await;
    let line = listener.line("call.ended");
    assert!(line.ends_with("(signature holds)"), "{line}");
    assert!(listener.line("call_id").contains(&id));
    // With another secret the listener refuses, and the server will try again.
    rotate().await;
    let id = super::webhook_delivery::ended(&client, &agent).await;
    let line = listener.line("call.ended");
    assert!(line.contains("REFUSED"), "{line}");
    settled(&client, &id, "failed").await;
}
