//! Addresses that point inside, in every textual form, through every field that takes one: refused where
//! they are written, and never connected to where they stand already.

use std::time::Duration;

use control::http::endpoint::Operation;
use control::http::validate::Kind;
use control::routes;
use http::Method;
use kit::client::Client;
use kit::server::Setup;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

/// Nobody may write these.
const INSIDE: [&str; 64] = [
    // Dotted, short, decimal, octal, hexadecimal, mixed; with a dot at the end; in other digits.
    "https://127.0.0.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://0x7F.0x0.0x0.0x1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://127.0.0.1./",
    "https://127。0。0。1/",
    "https://①②⑦.⓪.⓪.①/",
    "https://%31%32%37.0.0.1/",
    "https://0/",
    "https://0.0.0.0/",
    "https://127.255.255.254/",
    // Networks that are nobody's or somebody's own.
    "https://10.0.0.1/",
    "https://100.64.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://0xa9fea9fe/",
    "https://2852039166/",
    "https://172.16.0.1/",
    "https://172.31.255.255/",
    "https://192.0.0.1/",
    "https://192.0.2.1/",
    "https://192.168.0.1/",
    "https://198.18.0.1/",
    "https://198.51.100.1/",
    "https://203.0.113.1/",
    "https://224.0.0.1/",
    "https://240.0.0.1/",
    "https://255.255.255.255/",
    // IPv6: loopback, mapped, compatible, translated, tunnelled, local.
    "https://[::1]/",
    "https://[::]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::ffff:169.254.169.254]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[2002:7f00:1::]/",
    "https://[2002:a00:1::1]/",
    "https://[2001:0:7f00:1::]/",
    "https://[fe80::1]/",
    "https://[fc00::1]/",
    "https://[fd00:ec2::254]/",
    "https://[ff02::1]/",
    "https://[2001:db8::1]/",
    // Names of this machine and its network.
    "https://localhost/",
    "https://LOCALHOST./",
    "https://a.localhost/",
    "https://metadata.google.internal/",
    "https://printer.local/",
    "https://x.home.arpa/",
    "https://intranet/",
    // What is not https on 443 without a user.
    "http://example.com/",
    "https://example.com:8443/",
    "https://user@example.com/",
    "https://example.com@127.0.0.1/",
    "https://[::1].example.com/",
    "https://127.0.0.1#@example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
];

/// The fields of a route's body that hold an address for the server to connect to.
fn addresses(endpoint: &Operation) -> Vec<&'static str> {
    let fields = endpoint.body.map_or(&[][..], |schema| schema.fields);
    let urls = fields
        .iter()
        .filter(|field| matches!(field.kind, Kind::HttpsUrl) || field.name == "webhook_url");
    urls.map(|field| field.name).collect()
}

/// A body whose other fields are right.
fn body(endpoint: &Operation, voice: &str) -> Value {
    match (endpoint.method.clone(), endpoint.path) {
        (Method::POST, "/agents") => {
            json!({"name": "x", "system_prompt": "You are kind.", "voice_id": voice})
        }
        (Method::POST, "/usage/triggers") => json!({
            "resource_type": "call_minutes", "threshold_type": "absolute",
            "threshold_value": 1, "period": "month",
        }),
        (Method::PATCH, _) => json!({}),
        (_, path) => panic!("say here what else {path} needs"),
    }
}

/// Row 58.
#[tokio::test]
async fn no_field_takes_an_address_that_points_inside() {
    let setup = Setup::default().scripted();
    let server = setup.start().await;
    let client = server.client();
    let voice = kit::socket::scripted_voice(&client).await;
    let agent = kit::socket::agent(&client, json!({})).await;
    let trigger = crate::grid::a_trigger_on(&client, "call_minutes", "https://example.com/").await;
    let mut fields = 0;
    for endpoint in routes::endpoints() {
        for name in addresses(&endpoint) {
            fields += 1;
            let path = endpoint
                .path
                .replace("{agent_id}", &agent)
                .replace("{trigger_id}", &trigger);
            let mut body = body(&endpoint, &voice);
            for address in INSIDE {
                body[name] = json!(address);
                let sent = Some(body.to_string().into_bytes());
                let answer = client.send(endpoint.method.clone(), &path, sent).await;
                let what = format!("{} {path}: {name} = {address}", endpoint.method);
                assert_eq!(answer.status, 422, "{what}: {}", answer.body);
                assert_eq!(answer.wrong_fields(), [format!("body.{name}")], "{what}");
            }
            body[name] = json!("https://hooks.example.com/in");
            let sent = Some(body.to_string().into_bytes());
            let answer = client.send(endpoint.method.clone(), &path, sent).await;
            assert!(
                (200..300).contains(&answer.status),
                "{path}: {}",
                answer.body
            );
        }
    }
    println!("{fields} fields, {} addresses each", INSIDE.len());
    assert!(fields >= 4, "only {fields} fields");
}

/// What was let in once (by a setting, by a rule of yesterday) is judged again before each connection.
#[tokio::test]
async fn what_stands_in_the_database_is_judged_before_each_connection() {
    let setup = Setup::default().scripted();
    let server = setup.set("WEBHOOKS__SHORT_PAUSE_MS", "10").start().await;
    let client = server.client();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let agent = kit::socket::agent(&client, json!({"webhook_url": "https://example.com/"})).await;
    let trigger =
        crate::grid::a_trigger_on(&client, "tts_characters", "https://example.com/").await;
    let db = server.database().await;
    let inside = [
        format!("http://127.0.0.1:{port}/"),
        format!("https://[::ffff:127.0.0.1]:{port}/"),
        format!("https://localhost:{port}/"),
    ];
    for (number, address) in inside.iter().enumerate() {
        stands(&db, &agent, &trigger, address).await;
        let session = client
            .connect(&kit::socket::native(&agent))
            .await
            .text("session_id");
        client
            .post(&format!("/calls/{session}/end"), &json!({}))
            .await
            .expect(200);
        if number == 0 {
            client
                .post("/tts", &json!({"text": "Hello."}))
                .await
                .expect(200);
        }
        all_unsafe(&client, &db).await;
    }
    let came = tokio::time::timeout(Duration::from_millis(500), listener.accept()).await;
    assert!(came.is_err(), "somebody connected");
    db.close().await;
}

/// Writes the address past the rules.
async fn stands(db: &control::db::Db, agent: &str, trigger: &str, address: &str) {
    let agents = db
        .query("update agents set settings = replace(settings, $2, $3) where id = $1")
        .bind(agent)
        .bind("https://example.com/")
        .bind(address);
    assert_eq!(agents.execute().await.unwrap(), 1);
    let triggers = db
        .query("update usage_triggers set event_callback_url = $2 where id = $1")
        .bind(trigger)
        .bind(address);
    assert_eq!(triggers.execute().await.unwrap(), 1);
}

/// Every event there is ends as `unsafe`.
async fn all_unsafe(client: &Client, db: &control::db::Db) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let states: Vec<String> = db
            .query("select status from events")
            .all(|row| row.text("status"))
            .await
            .unwrap();
        if !states.is_empty() && states.iter().all(|status| status == "unsafe") {
            return;
        }
        assert!(Instant::now() < until, "{states:?}");
        client.get("/calls").await.expect(200);
        sleep(Duration::from_millis(50)).await;
    }
}
