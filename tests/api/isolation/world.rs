//! Two accounts, each with a row of every kind that a path can name.

use std::collections::BTreeMap;
use std::time::Duration;

use control::http::Access;
use control::http::endpoint::Operation;
use http::Method;
use kit::client::Client;
use kit::server::{Server, Setup};
use kit::socket::{Caller, agent, native, scripted_voice};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::grid::{ADMIN, a_trigger_on};

/// Stands in every text of the first account's rows, and in nothing else.
pub(super) const MARK: &str = "kept71kept";

/// The program with two accounts in it.
pub(super) struct World {
    pub(super) server: Server,
    /// The account whose rows nobody else may learn of.
    pub(super) first: Account,
    pub(super) other: Account,
}

/// An account and its rows.
pub(super) struct Account {
    /// With all scopes.
    pub(super) client: Client,
    /// A row's id by its kind.
    rows: BTreeMap<&'static str, String>,
    live: JoinHandle<bool>,
}

impl World {
    pub(super) async fn new() -> Self {
        let setup = Setup::default().scripted().set("ENGINE__VAD", "energy");
        let server = setup.set("ADMIN_TOKEN", ADMIN).start().await;
        let admin = server.anonymous().with_bearer(ADMIN);
        let made = admin
            .post("/admin/accounts", &json!({"name": "other"}))
            .await
            .expect(201);
        let keys = format!("/admin/accounts/{}/api-keys", made.text("id"));
        let scopes = json!({"name": "all", "scopes": control::http::Scope::NAMES});
        let key = admin.post(&keys, &scopes).await.expect(201).text("key");
        let accounts = admin.get("/admin/accounts").await.expect(200);
        let id_of = |name: &str| {
            let items = accounts.body["items"].as_array().unwrap();
            let account = items.iter().find(|account| account["name"] == name);
            account.unwrap()["id"].as_str().unwrap().to_owned()
        };
        let client = server.client();
        let first = Account::new(client.clone(), id_of("default"), MARK).await;
        let other = Account::new(client.with_key(&key), id_of("other"), "theirs").await;
        Self {
            server,
            first,
            other,
        }
    }
}

impl Account {
    async fn new(client: Client, account: String, mark: &str) -> Self {
        let fields = json!({
            "name": mark, "system_prompt": format!("You are kind. {mark}"), "llm_model": "echo",
            "voice_id": scripted_voice(&client).await, "idle_check_in_after_secs": 600,
            "webhook_url": format!("https://hooks.acme.com/{mark}"),
            "first_message": format!("Hello from {mark}."),
        });
        let agent = agent(&client, fields).await;
        let callback = format!("https://hooks.acme.com/{mark}");
        let trigger = a_trigger_on(&client, "tts_characters", &callback).await;
        let key = client
            .post("/api-keys", &json!({"name": mark}))
            .await
            .expect(201)
            .text("id");
        let suppression = json!({"phone_number": "+15550100", "reason": mark});
        let suppression = client.post("/suppressions", &suppression).await.expect(201);
        let trunk = json!({
            "name": mark, "outbound_address": format!("{mark}.acme.com"),
            // A number is one account's at a time.
            "numbers": [if mark == MARK { "+15550111" } else { "+15550112" }],
            "auth_username": mark, "auth_password": mark, "agent_id": agent,
        });
        let trunk = client
            .post("/sip-trunks/onboard", &trunk)
            .await
            .expect(201)
            .body;
        let made = |of: &Value| of["id"].as_str().unwrap().to_owned();
        let (trunk, number) = (made(&trunk["trunk"]), made(&trunk["phone_numbers"][0]));
        let said = json!({"text": format!("Hello, {mark}.")});
        client.post("/tts", &said).await.expect(200);
        let (call, recording) = a_call(&client, &agent, mark).await;
        let firings = format!("/usage/triggers/{trigger}/firings");
        let firing = until(&client, &firings, |body| {
            body["items"][0]["id"].as_str().map(str::to_owned)
        });
        let firing = firing.await;
        let mut caller = Caller::call(&client, &native(&agent)).await;
        caller.wait_for("agent_response", 5000).await;
        let session = caller.session_id.clone();
        let live = tokio::spawn(async move {
            // Until the test is over, or the server ends the call.
            while caller.closed.is_none() {
                caller.listen(100).await;
            }
            false
        });
        let voice = scripted_voice(&client).await;
        let rows = [
            ("account", account),
            ("voice", voice),
            ("agent", agent),
            ("key", key),
            ("trigger", trigger),
            ("firing", firing),
            ("suppression", suppression.text("id")),
            ("trunk", trunk),
            ("number", number),
            ("call", call),
            ("recording", recording),
            ("session", session),
        ];
        Self {
            client,
            rows: rows.into_iter().collect(),
            live,
        }
    }

    pub(super) fn row(&self, kind: &str) -> &str {
        &self.rows[kind]
    }

    /// The ids of all its own rows.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        let own = self.rows.iter().filter(|(kind, _)| **kind != "voice");
        own.map(|(_, id)| id.as_str())
    }

    /// Whether the call that was live at the beginning still is.
    pub(super) fn is_live(&self) -> bool {
        !self.live.is_finished()
    }

    /// All that the account sees of its rows, without what passes with time.
    pub(super) async fn seen(&self) -> BTreeMap<String, Value> {
        let mut seen = BTreeMap::new();
        for endpoint in control::routes::endpoints() {
            let path = endpoint.full_path();
            // A live session's status, and URLs that are signed anew each time.
            let steady = ["/conversation/", "/audio", "/voices"]
                .iter()
                .all(|word| !path.contains(word));
            if endpoint.method != Method::GET || !is_keyed(&endpoint) || !steady {
                continue;
            }
            let mut path = with_ids(&endpoint, |kind| self.row(kind).to_owned());
            // What a search looks for has no default.
            if path.ends_with("/search") {
                path += "?q=hello";
            }
            let mut answer = self.client.get(&format!("/{path}")).await.expect(200).body;
            if let Some(items) = answer["items"].as_array_mut() {
                items.retain(|item| item["id"] != self.row("session"));
                answer["total"] = items.len().into();
            }
            blank(&mut answer);
            seen.insert(path, answer);
        }
        seen
    }
}

/// Blanks what changes by itself: where time and the delivery of events have got to.
fn blank(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let moves = ["deliver", "attempts", "updated_at", "period_ends_at"]
                    .iter()
                    .any(|word| key.contains(word));
                if moves {
                    *value = Value::Null;
                } else {
                    blank(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(blank),
        _ => {}
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.live.abort();
    }
}

/// A call with a recording that is over; the ids of both.
async fn a_call(client: &Client, agent: &str, mark: &str) -> (String, String) {
    let mut connect = native(agent);
    connect["dynamic_variables"] = json!({"who": mark});
    let mut caller = Caller::call(client, &connect).await;
    let id = caller.session_id.clone();
    caller.wait_for("agent_response", 5000).await;
    caller.listen(500).await;
    caller.hang_up().await;
    let path = format!("/calls/{id}");
    let recording = until(client, &path, |call| {
        let ready = call["has_recording"] == true && !call["ended_at"].is_null();
        ready.then(|| call["recording_id"].as_str().unwrap().to_owned())
    });
    let recording = recording.await;
    (id, recording)
}

/// Asks until the answer has what is looked for.
async fn until(client: &Client, path: &str, find: impl Fn(&Value) -> Option<String>) -> String {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let body = client.get(path).await.expect(200).body;
        if let Some(found) = find(&body) {
            return found;
        }
        assert!(Instant::now() < patience, "{path}: {body}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Whether a key opens the route.
pub(super) fn is_keyed(endpoint: &Operation) -> bool {
    matches!(endpoint.access, Access::Scopes(_) | Access::AnyScope(_))
}

/// The route's path as [`Client`] takes one from the root, with an id of each kind that it names.
pub(super) fn with_ids(endpoint: &Operation, id: impl Fn(&'static str) -> String) -> String {
    let full = endpoint.full_path();
    let part = |part: &str| kind(&full, part).map_or_else(|| part.to_owned(), &id);
    full.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// What a part of a path names, if it names anything.
pub(super) fn kind(path: &str, part: &str) -> Option<&'static str> {
    let ends = path.ends_with("/end");
    Some(match part {
        "{agent_id}" => "agent",
        "{session_id}" => "session",
        "{call_id}" if ends => "session",
        "{call_id}" | "{conversation_id}" => "call",
        "{recording_id}" => "recording",
        "{trigger_id}" => "trigger",
        "{firing_id}" => "firing",
        "{suppression_id}" => "suppression",
        "{trunk_id}" => "trunk",
        "{phone_number_id}" => "number",
        "{account_id}" => "account",
        "{id}" if path.contains("/api-keys/") => "key",
        // Everybody's, and a credential.
        "{voice_id}" => "voice",
        "{token}" => "token",
        part if part.starts_with('{') => panic!(
            "{path}: say here what {part} names, and give each account such a row in `Account::new`"
        ),
        _ => return None,
    })
}
