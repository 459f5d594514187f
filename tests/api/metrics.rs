//! `/metrics` and the table that describes it: the running program tells what stands there, all of it and
//! nothing else, in a form that Prometheus' own client library reads.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use control::metrics::table::{self, Family, Kind, Values};
use kit::client::Client;
use kit::collector::Collector;
use kit::ports::free_port;
use kit::provider::{Answer, HttpProvider};
use kit::receiver::Receiver;
use kit::redis::Redis;
use kit::server::{Server, Setup};
use kit::socket::{self, Caller, native};
use media::audio::tones;
use serde_json::{Value, json};
use tokio::time::Instant;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");

/// Series of one node after a test's traffic; an operator's Prometheus holds so many for each.
const MOST_SERIES: usize = 1500;

#[test]
fn the_document_has_the_table_of_the_code() {
    let table = table::markdown();
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = text.split_once("| Name |").expect("a table");
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    let now = format!("{before}{table}\n{after}");
    if std::env::var_os("SIDETONE_WRITE_DOCS").is_some() {
        std::fs::write(DOCUMENT, &now).unwrap();
    }
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    assert!(
        text == now,
        "docs/metrics.md is not what the code says: run this test with SIDETONE_WRITE_DOCS=1"
    );
}

/// Reads the text with Prometheus' client library for Python: one JSON array a sample or a family.
const READ: &str = r#"
import json, sys
from prometheus_client.parser import text_string_to_metric_families as read
families = []
for f in read(sys.stdin.read()):
    samples = [[s.name, s.labels, s.value] for s in f.samples]
    families.append({"name": f.name, "type": f.type, "help": f.documentation, "samples": samples})
print(json.dumps(families))
"#;

fn parsed(text: &str) -> Vec<Value> {
    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", READ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is missing: run `bash scripts/setup.sh test`");
    let mut input = python.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = python.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "python3-prometheus-client is missing (run `bash scripts/setup.sh test`), or cannot read:\n{text}"
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn scrape(client: &Client) -> String {
    let answer = client.get("//metrics").await.expect(200);
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    String::from_utf8(answer.bytes).unwrap()
}

/// A call that is greeted, interrupts, is answered, and hangs up.
async fn a_call(client: &Client, agent: &str) -> String {
    let mut caller = Caller::call(client, &native(agent)).await;
    caller.wait_for("audio", 5000).await;
    let voice = tones::sine(16_000, 500.0, -12.0, 16_000);
    caller.speak(&voice).await;
    assert_eq!(caller.of_kind("interruption").len(), 1);
    caller.wait_for("agent_response", 10_000).await;
    caller.wait_for("audio", 5000).await;
    caller.listen(600).await;
    caller.send(&json!({"type": "end"})).await;
    assert_eq!(caller.close_code(Duration::from_secs(5)).await, Some(1000));
    caller.session_id
}

/// A call of an agent whose model fails.
async fn a_failing_call(client: &Client, agent: &str) {
    let mut caller = Caller::call(client, &native(agent)).await;
    caller.wait_for("audio", 5000).await;
    caller
        .send(&json!({"type": "user_message", "text": "Are you there?"}))
        .await;
    caller.wait_for("agent_response", 15_000).await;
    caller.send(&json!({"type": "end"})).await;
    caller.close_code(Duration::from_secs(5)).await;
}

/// A call to a carrier that is not there.
async fn a_call_that_no_carrier_takes(client: &Client, agent: &str) {
    let (from, to) = ("+4930123456", "+4930654321");
    let trunk = json!({"name": "carrier", "outbound_address": format!("127.0.0.1:{}", free_port()),
        "transport": "tcp", "auth_mode": "ip_acl", "numbers": [from]});
    client.post("/sip-trunks/onboard", &trunk).await.expect(201);
    let wish = json!({"agent_id": agent, "to_number": to, "from_number": from});
    let call = client.post("/calls", &wish).await.expect(202);
    let path = format!("/calls/{}", call.text("call_id"));
    let until = Instant::now() + Duration::from_secs(20);
    while client.get(&path).await.expect(200).body["status"] != "failed" {
        assert!(Instant::now() < until, "the call has no end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A server with everything that a metric is about.
async fn busy() -> (Server, Vec<String>, Redis) {
    let redis = Redis::start().await;
    let collector = Collector::start().await;
    let receiver = Receiver::start().await;
    let failing = HttpProvider::start(|_| Answer::status(500)).await;
    let server = Setup::default()
        .scripted()
        .set("ENGINE__VAD", "energy")
        .set("EGRESS__ALLOW", "127.0.0.1")
        .set("SIP__LISTEN", "udp:127.0.0.1:0,tcp:127.0.0.1:0")
        .set("TELEMETRY__ENDPOINT", &collector.url)
        .set("PROVIDERS__CLOUD__KIND", "openai")
        .set("PROVIDERS__CLOUD__BASE_URL", &failing.url())
        .set("PROVIDERS__CLOUD__API_KEY", "none")
        .set("PROVIDERS__CLOUD__MODELS", "broken")
        .env("REDIS_URL", &redis.url())
        .start()
        .await;
    let client = server.client();
    let fields = |model: &str, voice: String| {
        json!({
            "voice_id": voice, "llm_model": model, "turn_eagerness": "eager",
            "first_message": "This greeting goes on and on, until somebody says something. ".repeat(4),
            "barge_in_min_speech_secs": 0, "idle_check_in_after_secs": 600,
            "webhook_url": format!("{}/calls", receiver.url),
        })
    };
    let voice = socket::scripted_voice(&client).await;
    let agent = socket::agent(&client, fields("echo", voice.clone())).await;
    let broken = socket::agent(&client, fields("broken", voice)).await;
    let call = a_call(&client, &agent).await;
    a_failing_call(&client, &broken).await;
    a_call_that_no_carrier_takes(&client, &agent).await;
    client.get("/no/such/route").await.expect(404);
    receiver
        .until(Duration::from_secs(20), |got| got.len() >= 4)
        .await;
    collector.until("call", Duration::from_secs(10)).await;
    let private = vec![call, agent, broken, server.key.clone()];
    (server, private, redis)
}

/// What a family's samples are named and labelled by.
fn check(family: &Family, told: &Value) {
    let name = family.name;
    assert_eq!(told["type"], family.kind.name(), "{name}");
    assert_eq!(told["help"], family.help, "{name}");
    let samples = told["samples"].as_array().unwrap();
    assert!(!samples.is_empty(), "{name} has no samples");
    let mut buckets: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        let mut labels = sample[1].as_object().unwrap().clone();
        let bound = labels
            .remove("le")
            .filter(|_| family.kind == Kind::Histogram);
        let given: BTreeSet<&str> = labels.keys().map(String::as_str).collect();
        let known: BTreeSet<&str> = family.labels.iter().map(|label| label.name).collect();
        assert_eq!(given, known, "{name}: {sample}");
        for label in family.labels {
            let value = labels[label.name].as_str().unwrap();
            if let Values::Of(values) = label.values {
                assert!(values.contains(&value), "{name}: {value:?} is not listed");
            }
        }
        let value = sample[2].as_f64().unwrap();
        assert!(value >= 0.0, "{name}: {sample}");
        let suffix = sample[0].as_str().unwrap();
        if suffix.ends_with("_bucket") {
            assert!(bound.is_some(), "{name}: {sample}");
        }
        if suffix.ends_with("_bucket") || suffix.ends_with("_count") {
            let series = buckets.entry(Value::from(labels).to_string()).or_default();
            series.push(value);
        }
    }
    if family.kind == Kind::Histogram {
        for series in buckets.values() {
            // One a bound, the infinite one, and the count.
            assert_eq!(series.len(), family.buckets.len() + 2, "{name}");
            assert!(series.is_sorted(), "{name}: {series:?}");
            assert_eq!(series[series.len() - 2], series[series.len() - 1], "{name}");
        }
    }
}

/// The sum of a family's samples with this suffix and these labels.
fn sum(told: &[Value], family: &str, suffix: &str, labels: &[(&str, &str)]) -> f64 {
    let wanted = format!("{family}{suffix}");
    let samples = told
        .iter()
        .flat_map(|family| family["samples"].as_array().unwrap());
    let mine = samples.filter(|sample| {
        sample[0] == wanted.as_str()
            && labels
                .iter()
                .all(|(name, value)| sample[1][*name] == *value)
    });
    mine.map(|sample| sample[2].as_f64().unwrap()).sum()
}

#[tokio::test]
async fn the_running_program_tells_what_the_table_says_and_nothing_else() {
    let (server, private, _redis) = busy().await;
    let client = server.client();
    // What is written down last is there soon.
    let until = Instant::now() + Duration::from_secs(10);
    let (text, told) = loop {
        let text = scrape(&client).await;
        let told = parsed(&text);
        let ended = sum(&told, "sidetone_calls_ended_total", "", &[]);
        if ended >= 2.0 || Instant::now() > until {
            break (text, told);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // The library takes the suffix off the names of counters.
    let bare = |family: &Family| family.name.trim_end_matches("_total").to_owned();
    let names: Vec<String> = told
        .iter()
        .map(|family| family["name"].as_str().unwrap().to_owned())
        .collect();
    let known: Vec<String> = table::ALL.iter().map(|family| bare(family)).collect();
    let missing: Vec<&String> = known.iter().filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "not told: {missing:?}");
    let unknown: Vec<&String> = names.iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "not in the table: {unknown:?}");
    assert_eq!(names.len(), known.len(), "a family comes twice");
    for (family, name) in table::ALL.iter().zip(&known) {
        let one = told.iter().find(|one| one["name"] == name.as_str());
        check(family, one.unwrap());
    }

    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series < MOST_SERIES, "{series} series");
    for id in private {
        assert!(!text.contains(&id), "{id} is in the metrics");
    }

    let of = |family, labels: &[(&str, &str)]| sum(&told, family, "", labels);
    let hangups = [("reason", "caller_hangup"), ("channel", "websocket")];
    assert_eq!(of("sidetone_calls_ended_total", &hangups), 2.0);
    assert_eq!(sum(&told, "sidetone_call_seconds", "_count", &[]), 2.0);
    // The call that nobody took had its slot from the start.
    for (step, calls) in [("acquire", 3.0), ("adopt", 2.0)] {
        let admitted = [("step", step), ("outcome", "admitted")];
        assert_eq!(of("sidetone_admissions_total", &admitted), calls, "{step}");
        let timed = sum(&told, "sidetone_lease_seconds", "_count", &[("step", step)]);
        assert!(timed >= 2.0, "{step}");
    }
    assert!(of("sidetone_interruptions_total", &[]) >= 1.0);
    // The parts of the responses add up to them.
    let response = sum(&told, "sidetone_turn_response_seconds", "_sum", &[]);
    let parts = sum(&told, "sidetone_turn_part_seconds", "_sum", &[]);
    assert!(
        response > 0.0 && (response - parts).abs() < 1e-6,
        "{parts} of {response}"
    );
    let failed = [
        ("stage", "llm"),
        ("provider", "cloud"),
        ("outcome", "failed"),
    ];
    assert!(of("sidetone_provider_requests_total", &failed) >= 1.0);
    let busy = [("stage", "llm"), ("provider", "cloud"), ("kind", "busy")];
    assert_eq!(of("sidetone_provider_faults_total", &busy), 2.0);
    for (stage, provider) in [("stt", "scripted"), ("llm", "echo"), ("tts", "scripted")] {
        let labels = [("stage", stage), ("provider", provider)];
        let answered = [labels[0], labels[1], ("outcome", "answered")];
        assert!(
            of("sidetone_provider_requests_total", &answered) >= 1.0,
            "{stage}"
        );
        let first = "sidetone_provider_first_answer_seconds";
        assert!(sum(&told, first, "_count", &labels) >= 1.0, "{stage}");
    }
    let delivered = [("status", "delivered")];
    assert!(of("sidetone_webhook_attempts_total", &delivered) >= 4.0);
    let missed = [("route", "unmatched"), ("status", "404")];
    assert_eq!(of("sidetone_http_requests_total", &missed), 1.0);
    assert_eq!(of("sidetone_node_state", &[("state", "ready")]), 1.0);
    assert!(of("sidetone_trace_spans_total", &[("outcome", "exported")]) >= 4.0);
    assert!(of("process_resident_memory_bytes", &[]) > 1e6);
}

#[tokio::test]
async fn what_is_away_or_full_is_told() {
    let mut redis = Redis::start().await;
    let server = Setup::default()
        .scripted()
        .set("LIMITS__ACCOUNT_CALLS", "1")
        .env("REDIS_URL", &redis.url())
        .start()
        .await;
    let client = server.client();
    let agent = socket::agent(&client, json!({})).await;
    client.connect(&native(&agent)).await;
    client
        .post("/conversation/connect", &native(&agent))
        .await
        .expect(429);
    redis.kill();
    let refused = client.post("/conversation/connect", &native(&agent)).await;
    assert_eq!(refused.status, 503);
    let told = parsed(&scrape(&client).await);
    let of = |family, labels: &[(&str, &str)]| sum(&told, family, "", labels);
    for (outcome, resource) in [
        ("admitted", "none"),
        ("capacity", "account"),
        (
            if refused.body["code"] == "redis_error" {
                "redis_error"
            } else {
                "redis_unavailable"
            },
            "pool",
        ),
    ] {
        let labels = [
            ("step", "acquire"),
            ("outcome", outcome),
            ("resource", resource),
        ];
        assert_eq!(
            of("sidetone_admissions_total", &labels),
            1.0,
            "{outcome} {resource}"
        );
    }
    assert_eq!(of("sidetone_lease_store_ready", &[]), 0.0);
    assert_eq!(of("sidetone_node_state", &[("state", "ready")]), 0.0);
    assert_eq!(of("sidetone_call_cap", &[("resource", "account")]), 1.0);
    // None is not zero: what the store would have to tell is left out.
    let names: Vec<&str> = told
        .iter()
        .map(|family| family["name"].as_str().unwrap())
        .collect();
    assert!(!names.contains(&"sidetone_leases"), "{names:?}");
}
