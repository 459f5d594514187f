//! What the tests share: agents that speak in tones, a caller's voice, turns at the machine.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::client::Client;
use crate::server::{Server, Setup};
use crate::socket::{self, Caller};
use media::audio::tones;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A minute of the agent's tone: a greeting that outlasts what is done meanwhile.
pub fn long_greeting() -> String {
    "This is a long greeting, and it goes on for a good while. ".repeat(16)
}

/// A server whose ear takes a tone for a voice.
pub async fn server() -> Server {
    setup().start().await
}

pub fn setup() -> Setup {
    Setup::default().scripted().set("ENGINE__VAD", "energy")
}

/// An agent that speaks in a tone and says what it hears. Its id.
pub async fn agent(client: &Client, more: Value) -> String {
    let mut fields = json!({
        "voice_id": socket::scripted_voice(client).await,
        "llm_model": "echo",
        "first_message": "Hello, this is the test line.",
        "turn_eagerness": "eager",
        "idle_check_in_after_secs": 600,
    });
    for (name, value) in more.as_object().unwrap() {
        fields[name] = value.clone();
    }
    socket::agent(client, fields).await
}

/// A session of a native call.
pub async fn session(client: &Client, agent: &str) -> crate::client::Answer {
    client.connect(&socket::native(agent)).await
}

/// The caller's voice, as the energy detector takes it: a tone, 16 kHz.
pub fn voice(ms: usize) -> Vec<i16> {
    tones::sine(16_000, 500.0, -12.0, ms * 16)
}

/// The call's record, once it is over and its recording settled.
pub async fn over(client: &Client, id: &str, within: Duration) -> Value {
    let until = Instant::now() + within;
    loop {
        let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
        if !call["ended_at"].is_null() && !uploading(client, &call).await {
            // It may have got ready between the two questions.
            return client.get(&format!("/calls/{id}")).await.expect(200).body;
        }
        assert!(Instant::now() < until, "not over within {within:?}: {call}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn uploading(client: &Client, call: &Value) -> bool {
    if call["has_recording"] == true {
        return false;
    }
    let list = client.get("/recordings?limit=1000").await.expect(200);
    let items = list.body["items"].as_array().unwrap();
    items
        .iter()
        .any(|r| r["call_id"] == call["id"] && r["status"] == "uploading")
}

/// The WAV of a call: caller and agent at 16 kHz.
pub async fn recording(client: &Client, id: &str) -> [Vec<i16>; 2] {
    let link = client
        .get(&format!("/conversations/{id}/audio"))
        .await
        .expect(200);
    let wav = crate::server::reqwest_client()
        .get(link.text("audio_url"))
        .send()
        .await
        .unwrap();
    assert_eq!(wav.status().as_u16(), 200);
    let bytes = wav.bytes().await.unwrap();
    assert_eq!(
        bytes.len() as u64,
        link.body["size_bytes"].as_u64().unwrap()
    );
    let reader = hound::WavReader::new(&bytes[..]).unwrap();
    let spec = reader.spec();
    assert_eq!((spec.channels, spec.sample_rate), (2, 16_000));
    let samples: Vec<i16> = reader.into_samples().map(Result::unwrap).collect();
    let side = |n| samples.iter().skip(n).step_by(2).copied().collect();
    [side(0), side(1)]
}

/// Seconds of sound above −40 dBFS, 16 kHz.
pub fn loud(samples: &[i16]) -> f64 {
    loud_at(samples, 16_000)
}

/// Seconds of sound above −40 dBFS, at `hz` samples a second.
pub fn loud_at(samples: &[i16], hz: usize) -> f64 {
    let frames = samples.chunks(hz / 50);
    let loud = frames.filter(|frame| frame.iter().any(|s| s.unsigned_abs() > 330));
    loud.count() as f64 / 50.0
}

/// The one frame of an error and the close code that a caller is refused with.
pub async fn refused(url: &str) -> (Value, u16) {
    let mut caller = Caller::open(url).await.expect("the upgrade is given");
    let code = caller.close_code(Duration::from_secs(5)).await;
    let errors = caller.of_kind("error");
    assert_eq!(errors.len(), 1, "{:?}", caller.messages);
    (errors[0].clone(), code.expect("it is closed"))
}

/// What both sides said, as the transcript has it: roles and words.
pub async fn said(client: &Client, id: &str) -> Vec<(String, String)> {
    let path = format!("/conversations/{id}/transcript");
    let transcript = client.get(&path).await.expect(200);
    let turns = transcript.body["turns"].as_array().unwrap().iter();
    turns
        .map(|turn| {
            let text = |key: &str| turn[key].as_str().unwrap_or_default().to_owned();
            (text("role"), text("text"))
        })
        .collect()
}

pub fn soak() -> bool {
    std::env::var_os("SIDETONE_SOAK").is_some()
}

/// The machine, as a test of this binary has it: with others, with few, or for itself.
///
/// One that waits holds nobody up, so a binary runs many tests at once. First come those that mostly wait for a
/// caller's words: so many at once as keeps their own deadlines; the rest of what runs at once (`--test-threads`)
/// waits. Then those with seconds for each deadline and a crowd of callers, a few at once. Those that count
/// milliseconds or load the machine have it for themselves, after all others.
struct Machine {
    turns: Mutex<Turns>,
    changed: Notify,
}

/// How a test has the machine; in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum With {
    Many,
    Few,
    Nobody,
}

impl With {
    const ALL: [Self; 3] = [Self::Many, Self::Few, Self::Nobody];

    /// How many have it so at once.
    fn most(self) -> usize {
        match self {
            Self::Many => 3 * std::thread::available_parallelism().map_or(1, usize::from),
            Self::Few => 3,
            Self::Nobody => 1,
        }
    }
}

/// For each [`With`]: how many have a turn, and how many wait for one.
#[derive(Default)]
struct Turns {
    having: [usize; With::ALL.len()],
    waiting: [usize; With::ALL.len()],
}

impl Turns {
    /// Takes a turn, if one is free.
    fn take(&mut self, with: With) -> bool {
        let free = With::ALL.into_iter().all(|other| {
            let (having, waiting) = (self.having[other as usize], self.waiting[other as usize]);
            match other == with {
                true => having < with.most(),
                false => having == 0 && (other > with || waiting == 0),
            }
        });
        self.having[with as usize] += usize::from(free);
        self.waiting[with as usize] -= usize::from(free);
        free
    }
}

static MACHINE: Machine = Machine {
    turns: Mutex::new(Turns {
        having: [0; With::ALL.len()],
        waiting: [0; With::ALL.len()],
    }),
    changed: Notify::const_new(),
};

/// A test's turn at the machine, until it is dropped.
pub struct Turn(With);

/// The machine for this test alone.
pub async fn alone() -> Turn {
    MACHINE.turn(With::Nobody).await
}

/// The machine beside two others at most.
pub async fn among_few() -> Turn {
    MACHINE.turn(With::Few).await
}

/// The machine beside a few others a core.
pub async fn together() -> Turn {
    MACHINE.turn(With::Many).await
}

impl Machine {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turn(&self, with: With) -> Turn {
        self.turns().waiting[with as usize] += 1;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.turns().take(with) {
                return Turn(with);
            }
            changed.await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        MACHINE.turns().having[self.0 as usize] -= 1;
        MACHINE.changed.notify_waiters();
    }
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
