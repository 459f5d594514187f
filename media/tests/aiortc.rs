//! A call with aiortc, which shares no code with us: connected, both sides heard, events, typed text.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use media::audio::tones::{db, goertzel};
use media::call::input::EndRequest;
use media::config::{
    AgentConfig, AudioFormat, CallConfig, Direction, OptionalEvents, Protocol, VadKind,
};
use media::peer::{PeerReply, PeerRequest};
use media::shell::{CallNews, Carrier, Engine, EngineConfig, NewCall, WebRtcConfig};
use media::speech::{
    LanguageModel, LlmEvent, ModelRequest, Providers, Recogniser, ReplyId, SpeechEvent, SpeechSink,
    Synthesiser, TtsEvent, UtteranceId,
};
use serde_json::{Value, json};

/// More than a busy machine takes for any step.
const PATIENCE: Duration = Duration::from_secs(30);

/// Python with aiortc, as `scripts/setup.sh test` installs it.
fn python() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let targets = [
        std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from),
        Some(root.join("target")),
    ];
    let own = targets
        .into_iter()
        .flatten()
        .map(|target| target.join("peers/aiortc/bin/python"))
        .find(|python| python.exists());
    own.unwrap_or_else(|| panic!("aiortc is missing: run scripts/setup.sh test"))
}

struct Caller {
    child: Child,
    lines: mpsc::Receiver<Value>,
}

impl Caller {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/aiortc/caller.py");
        let mut child = Command::new(python())
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let Ok(value) = serde_json::from_str(&line) else {
                    continue;
                };
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn tell(&mut self, value: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{value}").unwrap();
    }

    fn wait(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let value = self.lines.recv_timeout(PATIENCE).unwrap();
            if wanted(&value) {
                return value;
            }
        }
    }

    fn hears(&self, seconds: f64) {
        self.wait(|line| line["heard"].as_f64().is_some_and(|heard| heard >= seconds));
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hears nothing, answers "Yes.", and speaks a tone of 400 Hz for 3 s a segment.
struct Quick(Arc<dyn SpeechSink>);

impl Recogniser for Quick {
    fn begin(&mut self, _: UtteranceId) {}
    fn audio(&mut self, _: UtteranceId, _: &[i16]) {}
    fn finish(&mut self, _: UtteranceId) {}
    fn cancel(&mut self, _: UtteranceId) {}
}

impl LanguageModel for Quick {
    fn start(&mut self, reply: ReplyId, _: ModelRequest) {
        for event in [LlmEvent::Text("Yes.".to_owned()), LlmEvent::Done] {
            self.0.send(SpeechEvent::Llm { reply, event });
        }
    }
    fn cancel(&mut self, _: ReplyId) {}
}

impl Synthesiser for Quick {
    fn speak(&mut self, reply: ReplyId, segment: u32, _: &str) {
        let samples = (0..48_000)
            .map(|n| if n % 40 < 20 { 6000 } else { -6000 })
            .collect();
        for event in [
            TtsEvent::Audio {
                rate: 16_000,
                samples,
            },
            TtsEvent::Done,
        ] {
            self.0.send(SpeechEvent::Tts {
                reply,
                segment,
                event,
            });
        }
    }
    fn cancel(&mut self, _: ReplyId) {}
}

#[test]
fn aiortc_calls_and_both_are_heard() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(EngineConfig {
        threads: 1,
        node_calls: 4,
        spool_dir: folder.path().join("spool"),
        min_free: 0,
        lead_ms: 400,
        webrtc: Some(WebRtcConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            public_addresses: Vec::new(),
        }),
        priority: 0,
    })
    .unwrap();
    let (sender, news) = mpsc::channel();
    let handle = engine
        .place(NewCall {
            config: CallConfig {
                session_id: "aiortc".to_owned(),
                agent_id: "agent".to_owned(),
                direction: Direction::Inbound,
                protocol: Protocol::WebRtc,
                audio_format: AudioFormat::Opus48000,
                agent: AgentConfig {
                    first_message: Some("Hello.".to_owned()),
                    interruption_enabled: false,
                    ..AgentConfig::default()
                },
                recording: true,
                events: OptionalEvents::default(),
                vad: VadKind::Energy,
                lead_ms: 0,
            },
            carrier: Carrier::Peer,
            providers: Box::new(|sink| Providers {
                stt: Box::new(Quick(sink.clone())),
                llm: Box::new(Quick(sink.clone())),
                tts: Box::new(Quick(sink)),
            }),
            on_event: Arc::new(move |news| {
                let _ = sender.send(news);
            }),
        })
        .unwrap();
    let mut caller = Caller::start();
    let sdp = caller.wait(|line| line["sdp"].is_string())["sdp"]
        .as_str()
        .unwrap()
        .to_owned();
    let (sender, answer) = mpsc::channel();
    let request = PeerRequest::Offer { sdp, fresh: false };
    assert!(handle.peer(
        request,
        Box::new(move |reply| {
            let _ = sender.send(reply);
        })
    ));
    let PeerReply::Description(sdp) = answer.recv_timeout(PATIENCE).unwrap().unwrap() else {
        panic!("no answer");
    };
    caller.tell(&json!({ "sdp": sdp }));
    caller.wait(|line| line["event"] == "session_started");
    caller.hears(1.0);
    // After the greeting's 3 s only an answer can be heard.
    caller.tell(&json!({ "say": "Are you there?" }));
    caller.hears(3.8);
    assert!(handle.end(EndRequest::Api));
    caller.wait(|line| line["event"] == "call_ended");
    let recorded = loop {
        if let CallNews::Recorded(recorded) = news.recv_timeout(PATIENCE).unwrap() {
            break recorded.unwrap();
        }
    };
    let mut wav = hound::WavReader::open(&recorded.path).unwrap();
    let samples: Vec<i16> = wav.samples().map(|sample| sample.unwrap()).collect();
    for (side, hz, name) in [(0, 700.0, "caller"), (1, 400.0, "agent")] {
        let heard: Vec<i16> = samples.iter().skip(side).step_by(2).copied().collect();
        let loud = heard
            .chunks_exact(1600)
            .filter(|part| db(goertzel(part, 16_000, hz)) > -30.0)
            .count();
        assert!(
            loud >= 20,
            "{name}: {loud} tenths of a second in the recording"
        );
    }
}
