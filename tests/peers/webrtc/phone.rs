//! aiortc or webrtc-rs as a browser: a process that does what it is told and tells what it hears.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kit::client::{Answer, Client};
use kit::offer_answer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::ear::{self, Ear};

/// No single step takes longer on loopback, beside other tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// A browser with one peer connection at a time.
pub(crate) struct Phone {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// What it told that nobody has waited for yet.
    told: Vec<Value>,
    /// Of a phone that leaves sound to others.
    ear: Option<Ear>,
    _process: Child,
}

/// A session as a browser has it.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) id: String,
    pub(crate) pc_id: String,
}

/// aiortc's.
pub(crate) fn python() -> PathBuf {
    installed("aiortc/bin/python")
}

/// Where `scripts/setup.sh test` installs a peer, and `scripts/setup.sh soak` webrtc-rs.
fn installed(peer: &str) -> PathBuf {
    let built = kit::server::program();
    let target = built.parent().and_then(Path::parent).unwrap();
    let own = target.join("peers").join(peer);
    assert!(
        own.exists(),
        "{} is missing: run `bash scripts/setup.sh soak`",
        own.display()
    );
    own
}

impl Phone {
    /// aiortc.
    pub(crate) fn start() -> Self {
        let mut command = Command::new(python());
        command.arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/peers/webrtc/phone.py"
        ));
        Self::run(command, None)
    }

    /// webrtc-rs.
    pub(crate) fn webrtc_rs() -> Self {
        let command = Command::new(installed("webrtc-rs/debug/phone"));
        Self::run(command, Some(Ear::new()))
    }

    fn run(mut command: Command, ear: Option<Ear>) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the phone starts");
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            input: process.stdin.take().unwrap(),
            output,
            told: Vec::new(),
            ear,
            _process: process,
        }
    }

    /// Gives a command.
    pub(crate) async fn tell(&mut self, command: Value) {
        let line = format!("{command}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// Reads on until an event of this name; what came before stays to be waited for.
    pub(crate) async fn until(&mut self, event: &str) -> Value {
        self.until_where(event, |_| true).await
    }

    /// The same, of those that are meant.
    pub(crate) async fn until_where(
        &mut self,
        event: &str,
        meant: impl Fn(&Value) -> bool,
    ) -> Value {
        let hit = |told: &Value| told["event"] == event && meant(told);
        if let Some(index) = self.told.iter().position(hit) {
            return self.told.remove(index);
        }
        loop {
            let line = timeout(PATIENCE, self.output.next_line())
                .await
                .unwrap_or_else(|_| panic!("no {event} in time, but {:?}", self.told))
                .unwrap()
                .expect("the phone lives");
            let told = serde_json::from_str(&line).unwrap();
            let Some(told) = self.understand(told) else {
                continue;
            };
            assert_ne!(told["event"], "error", "{told}");
            if hit(&told) {
                return told;
            }
            self.told.push(told);
        }
    }

    fn understand(&mut self, told: Value) -> Option<Value> {
        match &mut self.ear {
            Some(ear) => ear.understand(told),
            None => Some(told),
        }
    }

    /// Reads on until the connection is there.
    pub(crate) async fn connected(&mut self) {
        self.until_where("state", |told| told["state"] == "connected")
            .await;
    }

    /// Reads on until a message of this type comes over the data channel.
    pub(crate) async fn message(&mut self, kind: &str) -> Value {
        let parsed = |told: &Value| -> Value {
            serde_json::from_str(told["data"].as_str().unwrap_or_default()).unwrap_or_default()
        };
        let told = self
            .until_where("message", |told| parsed(told)["type"] == kind)
            .await;
        parsed(&told)
    }

    /// Its offer, with all candidates in it.
    pub(crate) async fn offer(&mut self) -> String {
        self.tell(json!({"do": "offer"})).await;
        self.description().await
    }

    pub(crate) async fn description(&mut self) -> String {
        let told = self.until("description").await;
        told["sdp"].as_str().unwrap().to_owned()
    }

    /// Calls: connect, offer, answer. The session, once the connection is there.
    pub(crate) async fn call(&mut self, client: &Client, connect: &Value) -> Session {
        self.call_with(client, connect, str::to_owned).await
    }

    /// The same, with only the server's address to go by: its own the phone does not tell.
    pub(crate) async fn call_through_router(
        &mut self,
        client: &Client,
        connect: &Value,
    ) -> Session {
        self.call_with(client, connect, without_candidates).await
    }

    async fn call_with(
        &mut self,
        client: &Client,
        connect: &Value,
        told: impl Fn(&str) -> String,
    ) -> Session {
        let answer = client.connect(connect).await;
        let client = match answer.body["token"].as_str() {
            Some(token) => client.with_bearer(token),
            None => client.clone(),
        };
        let servers = &answer.body["ice_config"]["iceServers"];
        self.tell(json!({"do": "new", "ice_servers": servers}))
            .await;
        let mut session = Session::new(client, answer.text("session_id"));
        let offer = told(&self.offer().await);
        let answer = session.offer(&offer, json!({})).await.expect(200);
        session.pc_id = answer.text("pc_id");
        self.answer(&answer).await;
        self.connected().await;
        session
    }

    /// Takes the server's answer.
    pub(crate) async fn answer(&mut self, answer: &Answer) {
        assert_eq!(answer.body["type"], "answer");
        self.tell(json!({"do": "answer", "sdp": answer.body["sdp"]}))
            .await;
        self.until("settled").await;
    }

    /// Speaks a tone.
    pub(crate) async fn speak(&mut self, ms: u32) {
        let command = match self.ear {
            Some(_) => json!({"do": "speak", "packets": ear::spoken(ms)}),
            None => json!({"do": "speak", "ms": ms}),
        };
        self.tell(command).await;
        self.until("spoken").await;
    }

    /// From when to when the agent was heard, on the stream's own clock, ms.
    pub(crate) async fn heard(&mut self) -> Vec<[f64; 2]> {
        if let Some(ear) = &self.ear {
            return ear.parts.clone();
        }
        self.tell(json!({"do": "heard"})).await;
        let heard = self.until("heard").await;
        serde_json::from_value(heard["parts"].clone()).unwrap()
    }
}

/// A description without candidates.
pub(crate) fn without_candidates(sdp: &str) -> String {
    let kept = sdp.split("\r\n").filter(|line| {
        !line.starts_with("a=candidate:") && !line.starts_with("a=end-of-candidates")
    });
    kept.collect::<Vec<_>>().join("\r\n")
}

impl Session {
    pub(crate) fn new(client: Client, id: String) -> Self {
        Self {
            client,
            id,
            pc_id: String::new(),
        }
    }

    pub(crate) fn path(&self, route: &str) -> String {
        format!("/conversation/{}/{route}", self.id)
    }

    /// Posts an offer with more in its body.
    pub(crate) async fn offer(&self, sdp: &str, more: Value) -> Answer {
        let mut body = json!({"sdp": sdp, "type": "offer"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = self.client.post(&self.path("offer"), &body).await;
        if answer.body["type"] == "answer" {
            offer_answer::check(sdp, &answer.text("sdp"));
        }
        answer
    }

    pub(crate) async fn status(&self) -> Value {
        self.client.get(&self.path("status")).await.expect(200).body
    }

    pub(crate) async fn end(&self) -> Answer {
        self.client.post(&self.path("end"), &json!({})).await
    }
}
