//! What happens to a server that is full of secrets: an account, its calls, strangers, outages.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kit::client::{Answer, Client};
use kit::provider::sound::pcm;
use kit::provider::{Answer as Reply, HttpProvider, LiveProvider, chat};
use kit::receiver::Receiver;
use kit::server::{Server, Setup};
use kit::socket::{Caller, native, telco};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::birds::Birds;
use crate::stage;

/// The words that providers say and hear.
struct Words {
    heard: String,
    answer: String,
    refusal: String,
}

/// Providers of every kind, each with a key.
pub(super) struct Providers {
    http: HttpProvider,
    live: LiveProvider,
}

impl Providers {
    /// They hear, answer and speak.
    pub(super) async fn well(birds: &Birds) -> Self {
        Self::new(birds, true).await
    }

    /// They refuse, and repeat what they were sent, keys and texts, as some do.
    pub(super) async fn ill(birds: &Birds) -> Self {
        Self::new(birds, false).await
    }

    async fn new(birds: &Birds, well: bool) -> Self {
        let words = Arc::new(Words {
            heard: birds.text("the caller's words"),
            answer: birds.text("the agent's answer"),
            refusal: birds.text("what a provider refuses with"),
        });
        let http = HttpProvider::start(move |asked| {
            let listens = asked.path.contains("transcriptions");
            let speaks = asked.path.contains("speech");
            if !well && !listens {
                let repeated = String::from_utf8_lossy(&asked.body);
                let message = format!("{} {}: {repeated}", words.refusal, asked.key);
                let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
                return Reply::status_of(400, &error.to_string());
            }
            if listens {
                return Reply::ok("application/json")
                    .send(json!({"text": words.heard}).to_string());
            }
            if speaks {
                return Reply::ok("audio/pcm").send(pcm(24_000, 300));
            }
            chat::text(&[&words.answer, " it is."])
        });
        Self {
            http: http.await,
            live: LiveProvider::start().await,
        }
    }

    pub(super) fn add_to(&self, setup: Setup, birds: &Birds) -> Setup {
        let key = |what| birds.secret(what);
        let (url, socket) = (self.http.url(), self.live.url());
        setup
            .set("PROVIDERS__CLOUD__KIND", "openai")
            .set("PROVIDERS__CLOUD__BASE_URL", &url)
            .set("PROVIDERS__CLOUD__API_KEY", &key("the key of a model"))
            .set("PROVIDERS__CLOUD__MODELS", "thinker")
            .set("PROVIDERS__CLOUD__STT_MODEL", "listener")
            .set("PROVIDERS__CLOUD__VOICES", "alloy")
            .set("PROVIDERS__LIVE__KIND", "deepgram")
            .set("PROVIDERS__LIVE__BASE_URL", &socket)
            .set(
                "PROVIDERS__LIVE__API_KEY",
                &key("the key of a live recogniser"),
            )
            .set("PROVIDERS__LIVE__STT_MODEL", "nova-3")
            .set("PROVIDERS__ELEVEN__KIND", "elevenlabs")
            .set("PROVIDERS__ELEVEN__BASE_URL", &socket)
            .set("PROVIDERS__ELEVEN__API_KEY", &key("the key of a voice"))
            .set("PROVIDERS__ELEVEN__VOICES", "rachel")
            .set("PROVIDERS__CARTESIA__KIND", "cartesia")
            .set("PROVIDERS__CARTESIA__BASE_URL", &socket)
            .set(
                "PROVIDERS__CARTESIA__API_KEY",
                &key("the key of another voice"),
            )
            .set("PROVIDERS__CARTESIA__VOICES", "katie")
            .set("SPEECH__RECOGNISER", "cloud")
    }
}

/// A server, and all that is done with it.
pub(super) struct Life {
    pub(super) server: Server,
    pub(super) birds: Birds,
    client: Client,
    admin: Client,
    other: Option<Client>,
    agent: String,
    receiver: Option<Receiver>,
    /// Answers in which no canary may stand: errors, and what strangers are told.
    gathered: Vec<u8>,
}

impl Life {
    pub(super) fn new(server: Server, birds: Birds) -> Self {
        birds.shown_once("the first key", &server.key);
        let client = server.client();
        let admin = server.anonymous();
        Self {
            server,
            birds,
            client,
            admin,
            other: None,
            agent: String::new(),
            receiver: None,
            gathered: Vec::new(),
        }
    }

    fn gather(&mut self, answer: &Answer) {
        self.gathered.extend(&answer.bytes);
        for value in answer.headers.values() {
            self.gathered.extend(value.as_bytes());
        }
    }

    /// Keys, an agent with its texts, numbers, events.
    pub(super) async fn of_an_account(&mut self) {
        let receiver = Receiver::answering(|got| {
            let status = if got.event == "call.ended" { 500 } else { 200 };
            kit::receiver::Answer::Status(status)
        });
        let receiver = receiver.await;
        let (client, birds) = (self.client.clone(), &self.birds);
        let name = json!({"name": birds.text("the name of a key")});
        let made = client.post("/api-keys", &name).await.expect(201);
        birds.shown_once("a key", &made.text("key"));
        let rotate = format!("/api-keys/{}/rotate", made.text("id"));
        let grace = json!({"grace_seconds": 600});
        let rotated = client.post(&rotate, &grace).await.expect(200);
        birds.shown_once("a rotated key", &rotated.text("key"));
        for what in ["a webhook secret", "a webhook secret after its rotation"] {
            let made = client
                .post("/usage/webhook-secret/rotate", &json!({}))
                .await;
            birds.shown_once(what, &made.expect(200).text("secret"));
        }
        let hook = format!("{}/{}", receiver.url, birds.text("the path of a webhook"));
        let voice = client.get("/voices/cloud-alloy").await.expect(200);
        let fields = json!({
            "name": birds.text("the name of an agent"),
            "system_prompt": format!("{} {{{{town}}}}", birds.text("a prompt")),
            "first_message": format!("Hello {}.", birds.text("a greeting")),
            "voice_id": voice.text("id"), "llm_model": "thinker", "webhook_url": hook,
            "turn_eagerness": "eager", "idle_check_in_after_secs": 600,
            "messaging_system_prompt": birds.text("a prompt for messages"),
            "soft_timeout_message": birds.text("a filler line"),
            "voicemail_detection_enabled": true,
            "voicemail_message": birds.text("a message for voicemail"),
            "metadata": {"note": birds.text("metadata")},
            "dynamic_variables": {"town": birds.text("a default variable")},
            "custom_guardrails": [{"name": "g", "prompt": birds.text("a guardrail")}],
            "transfer_phone_number": birds.number("the number of a transfer"),
            "end_call_phrases": [birds.text("a closing phrase")],
        });
        self.agent = kit::socket::agent(&client, fields).await;
        let suppression = json!({
            "phone_number": birds.number("a number not to call"),
            "reason": birds.text("why not"),
        });
        client.post("/suppressions", &suppression).await.expect(201);
        let path = birds.text("the path of a trigger");
        let callback = format!("https://hooks.acme.com/{path}");
        let trigger = json!({
            "name": birds.text("the name of a trigger"), "event_callback_url": callback,
            "resource_type": "tts_characters", "threshold_type": "absolute",
            "threshold_value": 1, "period": "month",
        });
        client.post("/usage/triggers", &trigger).await.expect(201);
        self.receiver = Some(receiver);
        self.of_the_operator().await;
    }

    async fn of_the_operator(&mut self) {
        let birds = &self.birds;
        let admin = self.admin.with_bearer(&birds.first("the operator's token"));
        let other = admin
            .post("/admin/accounts", &json!({"name": "other"}))
            .await;
        let path = format!("/admin/accounts/{}", other.expect(201).text("id"));
        let scopes = json!({"name": "all", "scopes": control::http::Scope::NAMES});
        let key = admin.post(&format!("{path}/api-keys"), &scopes).await;
        let key = key.expect(201).text("key");
        birds.shown_once("a key that the operator made", &key);
        let reason = json!({"reason": birds.text("why an account is blocked")});
        admin
            .post(&format!("{path}/block"), &reason)
            .await
            .expect(200);
        admin
            .post(&format!("{path}/unblock"), &json!({}))
            .await
            .expect(200);
        let accounts = admin.get("/admin/accounts").await.expect(200);
        self.other = Some(self.client.with_key(&key));
        self.admin = admin;
        self.gather(&accounts);
    }

    /// Speech on request, and calls by both protocols; `well`: they are heard and answered.
    pub(super) async fn of_calls(&mut self, well: bool) {
        let (client, agent) = (self.client.clone(), self.agent.clone());
        let birds = &self.birds;
        let said = json!({"text": birds.text("what is to be spoken"), "voice_id": "cloud-alloy"});
        let spoken = client.post("/tts", &said).await;
        let preview = json!({"text": birds.text("a preview"), "voice_id": "cloud-alloy"});
        let previewed = client.post("/voices/preview", &preview).await;
        let mut connect = native(&agent);
        connect["caller_phone"] = json!(birds.number("the caller's number"));
        connect["dynamic_variables"] = json!({"town": birds.text("a variable of a call")});
        let session = client.connect(&connect).await;
        let ticket = session
            .text("ws_url")
            .split("token=")
            .nth(1)
            .unwrap()
            .to_owned();
        birds.shown_once("the token of a socket", &ticket);
        let unused = client.connect(&telco(&agent)).await;
        let unused = unused.text("ws_url");
        let unused = unused.rsplit(['/', '=']).next().unwrap();
        birds.shown_once("a token that is not used", unused);
        let mut caller = Caller::join(&session, "&events=vad,turn_metrics")
            .await
            .unwrap();
        let id = caller.session_id.clone();
        caller.listen(600).await;
        // First, for where all fails the call ends before long.
        caller.speak(&stage::voice(600)).await;
        caller.wait_for("user_transcript", 8000).await;
        for message in [
            json!({"type": "user_message", "text": birds.text("a typed message")}),
            json!({"type": "contextual_update", "text": birds.text("background")}),
            json!({"type": "tool_result", "tool_call_id": birds.text("the id of no tool call"),
                "result": {"room": birds.text("the result of no tool call")}}),
            json!({"type": birds.text("a message of no type")}),
            json!({"type": "dtmf", "digits": birds.text("keys that are none")}),
        ] {
            caller.send(&message).await;
            caller.listen(300).await;
        }
        caller
            .send_text(birds.text("a message that is no JSON"))
            .await;
        caller.listen(2500).await;
        let told: Vec<String> = caller.messages.iter().map(|(_, m)| m.to_string()).collect();
        let told = told.join("\n");
        assert!(told.contains(&birds.first("the caller's words")), "{told}");
        assert_eq!(
            well,
            told.contains(&birds.first("the agent's answer")),
            "{told}"
        );
        let result = json!({"tool_call_id": "c1", "result": birds.text("a late tool's result")});
        let refused = client
            .post(&format!("/conversation/{id}/tool-result"), &result)
            .await
            .expect(404);
        caller.hang_up().await;
        self.gather(&refused);
        if !well {
            // What goes wrong is told in other words than the provider's.
            self.gather(&spoken.expect(502));
            self.gather(&previewed.expect(502));
            return sleep(Duration::from_secs(2)).await;
        }
        spoken.expect(200);
        previewed.expect(200);
        self.afterwards(&id).await;
    }

    /// What is asked of a call that is over: its sound under signed URLs, words, an opinion.
    async fn afterwards(&mut self, id: &str) {
        let (client, birds) = (self.client.clone(), &self.birds);
        let call = stage::over(&client, id, Duration::from_secs(20)).await;
        let link = client
            .get(&format!("/conversations/{id}/audio"))
            .await
            .expect(200);
        birds.shown_once("the token of a conversation's sound", &link.text("token"));
        client.get(&link.text("audio_url")).await.expect(200);
        let recording = call["recording_id"].as_str().unwrap();
        let link = client
            .get(&format!("/recordings/{recording}/audio"))
            .await
            .expect(200);
        let url = link.text("audio_url");
        let token = url.split("token=").nth(1).unwrap();
        birds.shown_once("the token of a recording", token);
        client.get(&url).await.expect(200);
        let revoke = json!({"token": birds.thrown("a token that is none")});
        let path = format!("/conversations/{id}/audio/revoke");
        client.post(&path, &revoke).await.expect(200);
        let opinion = json!({"rating": 2, "comment": birds.text("an opinion")});
        let path = format!("/conversations/{id}/feedback");
        client.post(&path, &opinion).await.expect(200);
        let words = birds.first("the caller's words");
        let found = client
            .get(&format!("/conversations/search?q={words}"))
            .await;
        assert_eq!(found.expect(200).body["total"], 1);
        let words = birds.thrown("what is looked for");
        client
            .get(&format!("/conversations/search?q={words}"))
            .await
            .expect(200);
        let number = birds.first("the caller's number");
        client
            .get(&format!("/calls?phone=%2B{number}"))
            .await
            .expect(200);
        let receiver = self.receiver.as_ref().unwrap();
        let patience = Duration::from_secs(20);
        let is = |got: &[kit::receiver::Got], kind: &str| got.iter().any(|g| g.event == kind);
        receiver
            .until(patience, |got| {
                is(got, "call.ended") && is(got, "recording.ready")
            })
            .await;
    }

    /// Requests that are refused, in every form in which somebody gives away a secret.
    pub(super) async fn of_strangers(&mut self) {
        let anonymous = self.server.anonymous();
        let thrown = |what| self.birds.thrown(what);
        let mut answers = Vec::new();
        let headers = [
            ("x-api-key", thrown("a wrong key")),
            (
                "authorization",
                format!("Bearer {}", thrown("a wrong bearer")),
            ),
            (
                "authorization",
                format!("Basic {}", thrown("a wrong password")),
            ),
            ("cookie", format!("session={}", thrown("a cookie"))),
            ("x-request-id", thrown("a header")),
            ("idempotency-key", thrown("a repeated request's key")),
        ];
        for (name, value) in &headers {
            let header = [(*name, value.as_str())];
            let sent = anonymous.send_with(Method::GET, "/agents", None, &header);
            answers.push(refused(sent.await));
        }
        for path in [
            format!("/agents?api_key={}", thrown("a key in a query")),
            format!("/no/such/{}", thrown("a path that is none")),
            format!("//{}", thrown("a path at the root")),
            format!(
                "/conversations/{}/audio.wav?token={}",
                uuid::Uuid::new_v4(),
                thrown("a forged token")
            ),
            format!(
                "/recordings/{}/audio.wav?token={}",
                uuid::Uuid::new_v4(),
                thrown("a forged URL")
            ),
            format!(
                "//ws/v1/conversation/{}?token={}",
                uuid::Uuid::new_v4(),
                thrown("a forged ticket")
            ),
            format!(
                "//ws/v1/conversation/{}/{}",
                uuid::Uuid::new_v4(),
                thrown("a ticket in a path")
            ),
        ] {
            answers.push(refused(anonymous.get(&path).await));
        }
        let bodies = [
            format!("{{\"name\": \"{}\"", thrown("JSON without an end")),
            json!({"name": "x", "system_prompt": [thrown("a prompt of the wrong kind")]})
                .to_string(),
            json!({"name": {"x": thrown("a name of the wrong kind")}}).to_string(),
        ];
        for body in bodies {
            let body = Some(body.into_bytes());
            answers.push(refused(
                self.client.send(Method::POST, "/agents", body).await,
            ));
        }
        for answer in &answers {
            self.gather(answer);
        }
    }

    pub(super) async fn while_the_database_is_away(&mut self) {
        let prompt = self.birds.thrown("a prompt that cannot be kept");
        let agent = json!({"name": "x", "system_prompt": prompt});
        for answer in [
            self.client.get("/agents").await.expect(503),
            self.client.post("/agents", &agent).await.expect(503),
            self.admin.get("/admin/accounts").await.expect(503),
        ] {
            self.gather(&answer);
        }
    }

    pub(super) async fn until_ready(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.client.get("/agents").await.status != 200 {
            assert!(Instant::now() < until, "the database is not back");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// All that has been gathered, with what everybody and the other account may read.
    pub(super) async fn answers(&mut self) -> Vec<u8> {
        let anonymous = self.server.anonymous();
        let mut answers = Vec::new();
        for path in [
            "//metrics",
            "//readyz",
            "//healthz",
            "/openapi.json",
            "/changelog",
        ] {
            answers.push(anonymous.get(path).await);
        }
        let other = self.other.clone().unwrap();
        for list in control::routes::endpoints() {
            let path = list.full_path();
            let keyed = matches!(list.access, control::http::Access::Scopes(_));
            if list.method == Method::GET && keyed && !path.contains('{') {
                answers.push(other.get(&format!("/{path}?q=canary")).await);
            }
        }
        for answer in &answers {
            self.gather(answer);
        }
        // The account sees its texts again, but no secret.
        let mut own = Vec::new();
        for path in [
            "/api-keys",
            "/agents",
            "/calls",
            "/usage/triggers",
            "/billing/status",
        ] {
            own.extend(self.client.get(path).await.bytes);
        }
        self.birds.no_secret_in(&own);
        assert!(self.birds.len() >= 40, "only {} canaries", self.birds.len());
        std::mem::take(&mut self.gathered)
    }
}

/// The stranger's fault, or that of a store which is away.
fn refused(answer: Answer) -> Answer {
    let status = answer.status;
    assert!(
        (400..500).contains(&status) || status == 503,
        "{status}: {}",
        answer.body
    );
    answer
}
