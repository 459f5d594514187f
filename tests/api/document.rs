//! The OpenAPI document: its copy in `docs/` is what the program serves. (That its examples and every answer are
//! what it says: `tests/peers/document`.)

use control::http::openapi::{EVENTS, document};
use control::routes;
use control::webhooks::event::EventType;
use kit::server::Setup;
use serde_json::{Value, json};

const COPY: &str = include_str!("../../docs/openapi.json");

fn made() -> Value {
    document(&routes::endpoints(), "")
}

/// Where two documents begin to differ.
fn difference(one: &Value, other: &Value, at: &str) -> Option<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys());
            keys.into_iter().find_map(|key| {
                let at = format!("{at}/{key}");
                match (one.get(key), other.get(key)) {
                    (Some(one), Some(other)) => difference(one, other, &at),
                    _ => Some(at),
                }
            })
        }
        _ => (one != other).then(|| at.to_owned()),
    }
}

#[test]
fn the_copy_is_up_to_date() {
    let copy: Value = serde_json::from_str(COPY).unwrap();
    if let Some(at) = difference(&copy, &made(), "") {
        panic!(
            "{at} differs: run `cargo run --release -p sidetone -- openapi > docs/openapi.json`"
        );
    }
}

#[tokio::test]
async fn the_program_serves_and_prints_it() {
    let server = Setup::default().scripted().start().await;
    let mut served = server
        .anonymous()
        .get("/openapi.json")
        .await
        .expect(200)
        .body;
    assert_eq!(served["servers"], json!([{"url": server.url}]));
    served["servers"] = json!([{"url": ""}]);
    assert_eq!(difference(&made(), &served, ""), None);
    let printed: Value = serde_json::from_str(&server.command(&["openapi"])).unwrap();
    assert_eq!(difference(&made(), &printed, ""), None);
}

/// An event that the program makes stands in `webhooks`, and no other.
#[test]
fn every_event_that_is_sent_is_documented() {
    let sources = sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../control/src"));
    for kind in EventType::ALL {
        let word = format!("EventType::{kind:?}");
        let sent = sources.iter().any(|(path, text)| {
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            !path.ends_with("event.rs")
                && !path.ends_with("openapi_events.rs")
                && !path.ends_with("_tests.rs")
                && product.contains(&word)
        });
        let told = EVENTS.iter().any(|event| event.kind == *kind);
        assert_eq!(sent, told, "{word}: sent against documented");
    }
}

fn sources(folder: &std::path::Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path.to_string_lossy().into_owned(), text));
        }
    }
    found
}

/// The words in quotes that follow `before` in the text.
fn quoted<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    text.split(before)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

/// The page of the socket names every message of the native protocol with all of its members.
#[test]
fn the_page_of_the_socket_knows_every_message() {
    let page = include_str!("../../docs/websocket.md");
    let source = include_str!("../../media/src/leg/ws/native.rs");
    let row = |kind: &str| {
        let start = format!("| `{kind}` |");
        page.lines()
            .find(|line| line.starts_with(&start))
            .unwrap_or_else(|| panic!("docs/websocket.md has no row of {kind}"))
    };
    let sent: Vec<&str> = source.split("Message::open(out, \"").skip(1).collect();
    assert!(sent.len() >= 10, "{}", sent.len());
    for message in sent {
        let kind = message.split('"').next().unwrap();
        let body = message.split("\n        ServerEvent::").next().unwrap();
        let members = [
            "text",
            "number",
            "number_or_null",
            "flag",
            "fraction",
            "json",
        ];
        for member in members
            .iter()
            .flat_map(|write| quoted(body, &format!(".{write}(\"")))
        {
            assert!(
                row(kind).contains(&format!("`{member}`")),
                "{kind}: {member}"
            );
        }
    }
    let received = source
        .split("match fields.text(\"type\")? {")
        .nth(1)
        .unwrap();
    let received = received.split("unknown =>").next().unwrap();
    let arms: Vec<&str> = received
        .lines()
        .filter_map(|line| line.strip_prefix("            \"")?.split_once("\" =>"))
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(arms.len(), 8, "{arms:?}");
    for kind in arms {
        row(kind);
    }
    // The codes that close a socket or come before it.
    let refusals = include_str!("../../control/src/sessions/ws.rs");
    for code in quoted(refusals, "        code: \"") {
        assert!(
            page.contains(&format!("`{code}`")) || page.contains(&format!("code: {code}")),
            "{code}"
        );
    }
}
