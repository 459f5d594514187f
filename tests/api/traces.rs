//! A call's trace, as a collector of OTLP gets it from the real program.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kit::client::{Answer, Client};
use kit::collector::{Collector, Got};
use kit::server::{Server, Setup};
use kit::socket::{self, Caller, native};
use media::audio::tones;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(15);
/// Stands in everything that a caller or an agent says; the scripted recogniser has lines of its own.
const PRIVATE: &str = "persimmon";

async fn server(collector: &Collector) -> Server {
    Setup::default()
        .scripted()
        .set("ENGINE__VAD", "energy")
        .set("TELEMETRY__ENDPOINT", &collector.url)
        .set(
            "TELEMETRY__HEADERS",
            "authorization=Bearer of-the-collector",
        )
        .set("CLUSTER__NODE", "node-a")
        .start()
        .await
}

async fn agent(client: &Client) -> String {
    let fields = json!({
        "voice_id": socket::scripted_voice(client).await, "llm_model": "echo",
        "first_message": format!("Hello {PRIVATE}."), "turn_eagerness": "eager",
        "idle_check_in_after_secs": 600,
    });
    socket::agent(client, fields).await
}

/// Speaks a turn, types another, and hangs up.
async fn talk(session: &Answer) -> String {
    let mut caller = Caller::join(session, "").await.unwrap();
    caller.wait_for("audio", 5000).await;
    caller.listen(1500).await;
    caller
        .speak(&tones::sine(16_000, 500.0, -12.0, 16_000))
        .await;
    caller.wait_for("agent_response", 10_000).await;
    caller.wait_for("audio", 5000).await;
    caller
        .send(&json!({"type": "user_message", "text": format!("My word is {PRIVATE}.")}))
        .await;
    caller.wait_for("agent_response", 10_000).await;
    caller.wait_for("audio", 5000).await;
    caller.send(&json!({"type": "end"})).await;
    assert_eq!(caller.close_code(PATIENCE).await, Some(1000));
    caller.session_id
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of<'a>(spans: &'a [Got], name: &str) -> Vec<&'a Got> {
    spans.iter().filter(|got| got.span.name == name).collect()
}

#[tokio::test]
async fn a_call_is_one_trace_with_its_turns_and_where_their_time_went() {
    let collector = Collector::start().await;
    let server = server(&collector).await;
    let client = server.client();
    let agent = agent(&client).await;
    let session = client.connect(&native(&agent)).await;
    let id = talk(&session).await;
    let spans = collector.until("call", PATIENCE).await;

    // One trace, whose id is the call's; one root; every other span hangs under one of it.
    let root = of(&spans, "call");
    assert_eq!(root.len(), 1);
    let (root, ids): (&Got, BTreeMap<&[u8], &Got>) = (
        root[0],
        spans
            .iter()
            .map(|got| (&got.span.span_id[..], got))
            .collect(),
    );
    assert_eq!(ids.len(), spans.len(), "an id comes twice");
    assert!(root.span.parent_span_id.is_empty());
    for got in &spans {
        assert_eq!(hex(&got.span.trace_id), id.replace('-', ""));
        assert_eq!(got.resource("service.name").as_deref(), Some("sidetone"));
        assert_eq!(
            got.resource("service.instance.id").as_deref(),
            Some("node-a")
        );
        let (start, end) = (got.span.start_time_unix_nano, got.span.end_time_unix_nano);
        assert!(start <= end, "{got:?}");
        if got.span.span_id != root.span.span_id {
            assert!(ids.contains_key(&got.span.parent_span_id[..]), "{got:?}");
        }
    }
    let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
    for (key, value) in [
        ("sidetone.call.id", id.as_str()),
        ("sidetone.agent.id", &agent),
        ("sidetone.channel", "websocket"),
        ("sidetone.direction", "inbound"),
        ("sidetone.end_reason", "caller_hangup"),
    ] {
        assert_eq!(root.text(key).as_deref(), Some(value));
    }

    // A span a turn of the transcript, and its times are the transcript's.
    let turns = call["transcript"].as_array().unwrap();
    let told: Vec<&Got> = spans
        .iter()
        .filter(|got| got.span.name.ends_with("turn"))
        .collect();
    assert_eq!(told.len(), turns.len());
    let zero = root.span.start_time_unix_nano;
    let ms = |nanos: u64| (nanos - zero) / 1_000_000;
    for turn in turns {
        let index = turn["index"].to_string();
        let is = |got: &&&Got| got.text("sidetone.turn.index").as_deref() == Some(index.as_str());
        let got = told.iter().find(is).unwrap();
        let name = match turn["role"].as_str() {
            Some("user") => "caller turn",
            _ => "agent turn",
        };
        assert_eq!(got.span.name, name);
        assert_eq!(got.span.parent_span_id, root.span.span_id);
        if let Some(end) = turn["end_ms"].as_u64() {
            assert_eq!(ms(got.span.end_time_unix_nano), end);
        }
        check_parts(&spans, got, turn, ms);
    }
    let answered = turns.iter().filter(|turn| turn["latency"].is_object());
    assert!(answered.count() >= 1, "{call}");
    let stages: BTreeSet<String> = spans
        .iter()
        .filter_map(|got| got.text("sidetone.stage"))
        .collect();
    assert!(stages.contains("setting"), "{stages:?}");

    // Nothing of what was said, and the key only where it belongs.
    let bytes = collector.bytes();
    let has = |word: &str| {
        bytes
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    };
    assert!(has("sidetone.call.id") && !has(PRIVATE));
    assert!(call["transcript_text"].as_str().unwrap().contains(PRIVATE));
    for turn in turns {
        let text = turn["text"].as_str().unwrap();
        assert!(text.len() < 4 || !has(text), "{text:?} is in a span");
    }
    for headers in collector.headers() {
        assert!(headers.contains("Bearer of-the-collector"), "{headers}");
    }
    assert!(!server.log().contains("of-the-collector"));
}

/// The parts of an answer touch, and end where it is heard.
fn check_parts(spans: &[Got], turn: &Got, written: &Value, ms: impl Fn(u64) -> u64) {
    let parts: Vec<&Got> = spans
        .iter()
        .filter(|got| got.span.parent_span_id == turn.span.span_id)
        .filter(|got| got.span.name != "speech")
        .collect();
    let Some(latency) = written["latency"].as_object() else {
        assert!(parts.is_empty(), "{parts:?}");
        return;
    };
    let contributions = latency["contributions"].as_array().unwrap();
    assert_eq!(parts.len(), contributions.len());
    let begin = ms(turn.span.start_time_unix_nano);
    for (part, contribution) in parts.iter().zip(contributions) {
        assert_eq!(part.span.name, contribution["key"].as_str().unwrap());
        assert_eq!(
            part.text("sidetone.stage").as_deref(),
            contribution["owner"].as_str()
        );
        let start = contribution["start_ms"].as_u64().unwrap();
        let length = contribution["duration_ms"].as_u64().unwrap();
        assert_eq!(ms(part.span.start_time_unix_nano), begin + start);
        assert_eq!(ms(part.span.end_time_unix_nano), begin + start + length);
    }
    let heard = written["start_ms"].as_u64().unwrap();
    assert_eq!(
        begin + latency["response_ms"].as_u64().unwrap(),
        heard.max(latency["response_ms"].as_u64().unwrap())
    );
}

#[tokio::test]
async fn a_traceparent_of_connect_is_continued_and_its_owner_s_no_is_heard() {
    let collector = Collector::start().await;
    let server = server(&collector).await;
    let client = server.client();
    let agent = agent(&client).await;
    let connect = async |parent: &str| {
        let body = native(&agent).to_string().into_bytes();
        let headers = [
            ("content-type", "application/json"),
            ("traceparent", parent),
        ];
        let path = "/conversation/connect";
        client
            .send_with(reqwest::Method::POST, path, Some(body), &headers)
            .await
            .expect(200)
    };
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let dropped = connect(&format!("00-{trace}-{span}-00")).await;
    let kept = connect(&format!("00-{trace}-{span}-01")).await;
    let broken = connect("00-none-of-these-01").await;
    talk(&dropped).await;
    talk(&kept).await;
    let own = talk(&broken).await.replace('-', "");
    // What is queued is sent before the program ends.
    server.terminate();
    let mut server = server;
    assert_eq!(server.ended(PATIENCE).await, Some(0));

    let spans = collector.spans();
    let calls = of(&spans, "call");
    let found: Vec<(String, String)> = calls
        .iter()
        .map(|got| (hex(&got.span.trace_id), hex(&got.span.parent_span_id)))
        .collect();
    assert_eq!(
        found,
        [(trace.to_owned(), span.to_owned()), (own, String::new()),]
    );
}

#[tokio::test]
async fn a_collector_that_is_away_costs_no_call_and_is_counted() {
    let nobody = format!("http://127.0.0.1:{}", kit::ports::free_port());
    let server = Setup::default()
        .scripted()
        .set("ENGINE__VAD", "energy")
        .set("TELEMETRY__ENDPOINT", &nobody)
        .start()
        .await;
    let client = server.client();
    let agent = agent(&client).await;
    let session = client.connect(&native(&agent)).await;
    let id = talk(&session).await;
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
        if call["status"] == "completed" {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{call}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A batch is tried again for ten seconds.
    let until = tokio::time::Instant::now() + 4 * PATIENCE;
    loop {
        let text = client.get("//metrics").await.expect(200).bytes;
        let text = String::from_utf8(text).unwrap();
        let failed = text
            .lines()
            .find_map(|line| line.strip_prefix("sidetone_trace_spans_total{outcome=\"failed\"} "))
            .expect("the counter");
        if failed.parse::<f64>().unwrap() >= 4.0 {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "{failed} failed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
