//! The demo agent, asked by voice over the socket: synthetic callers read `fixtures/questions.tsv`,
//! and the stored transcript tells whether the right sentence of the prompt answered.
//!
//! A few questions always; all of them in all voices with `SIDETONE_SOAK=1`. The same set without
//! sockets, much faster: `sidetone wer --set questions`.

use std::time::Duration;

use control::voices::Engine;
use kit::client::Client;
use kit::server::{Server, Setup};
use kit::socket::{self, Caller};
use kit::speech::spoken;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const QUESTIONS: &str = include_str!("../../fixtures/questions.tsv");
const PROMPT: &str = include_str!("../../control/src/vendors/demo_prompt.txt");

const FLITE: [Engine; 3] = [
    Engine::Flite { name: "rms" },
    Engine::Flite { name: "slt" },
    Engine::Flite { name: "awb" },
];
const ESPEAK: Engine = Engine::Espeak {
    name: "en-us",
    pitch: 50,
    words_per_minute: 150,
};

/// Who hears no answer for this long asks the next question.
const PATIENCE: Duration = Duration::from_secs(8);

/// The agent has finished when nothing has come for this long.
const QUIET: Duration = Duration::from_millis(600);

#[tokio::test]
async fn questions_at_16_khz_are_answered() {
    questions(socket::native, 0.9).await;
}

#[tokio::test]
async fn questions_by_telephone_are_answered() {
    questions(socket::telco, 0.8).await;
}

/// Asks, counts, and holds the share of the three flite voices against the least that is wanted.
async fn questions(connect: fn(&str) -> Value, least: f64) {
    let soak = std::env::var_os("SIDETONE_SOAK").is_some();
    let server = Setup::default().start().await;
    let client = server.client();
    let fields = json!({
        "system_prompt": PROMPT,
        "first_message": "Harbor House.",
        "voice_id": socket::scripted_voice(&client).await,
        "llm_model": "faq",
        "idle_check_in_after_secs": 600,
    });
    let agent = socket::agent(&client, fields).await;
    let count = if soak { usize::MAX } else { 3 };
    let mut shares = Vec::new();
    for voice in if soak { &FLITE[..] } else { &FLITE[..1] } {
        let share = ask(&server, &connect(&agent), *voice, count).await;
        shares.push((*voice, share));
    }
    if soak {
        ask(&server, &connect(&agent), ESPEAK, count).await;
    }
    // All were asked the same number of questions.
    let share = shares.iter().map(|(_, share)| share).sum::<f64>() / shares.len() as f64;
    // One of the three of a short run may go wrong.
    let least = if soak { least } else { 0.6 };
    assert!(
        share >= least,
        "{:.0} % were answered rightly; of each voice: {shares:.2?}",
        share * 100.0
    );
}

/// One call in which a voice asks; the share of right answers.
async fn ask(server: &Server, connect: &Value, voice: Engine, count: usize) -> f64 {
    let client = server.client();
    let mut caller = Caller::call(&client, connect).await;
    let begin = Instant::now();
    quiet(&mut caller).await;
    let mut asked = Vec::new();
    for line in QUESTIONS.lines().skip(1).take(count) {
        let (question, answer) = line.split_once('\t').unwrap();
        let sound = spoken(
            voice,
            question,
            &server.data,
            connect["protocol"] == "telco",
        );
        asked.push((begin.elapsed(), question, answer));
        caller.speak(&sound).await;
        answered(&mut caller).await;
        quiet(&mut caller).await;
    }
    let id = caller.session_id.clone();
    caller.hang_up().await;
    let turns = transcript(&client, &id).await;
    let mut right = 0;
    for (at, (began, question, answer)) in asked.iter().enumerate() {
        let next = asked.get(at + 1).map_or(Duration::MAX, |next| next.0);
        let during = turns.iter().filter(|turn| {
            let start = Duration::from_millis(turn["start_ms"].as_u64().unwrap_or(0));
            start >= *began && start < next
        });
        let texts: Vec<(&str, &str)> = during
            .map(|turn| {
                (
                    turn["role"].as_str().unwrap_or(""),
                    turn["text"].as_str().unwrap_or(""),
                )
            })
            .collect();
        if texts
            .iter()
            .any(|(role, text)| *role == "assistant" && text.starts_with(answer))
        {
            right += 1;
        } else {
            println!("{question}: {texts:?}");
        }
    }
    let share = f64::from(right) / asked.len() as f64;
    println!(
        "{voice:?}, {}: {right} of {}, {:.0} %",
        connect["protocol"],
        asked.len(),
        share * 100.0
    );
    share
}

/// Listens until the agent speaks: within 2.5 s of the question, and the recogniser's time on a busy machine.
async fn answered(caller: &mut Caller) {
    let asked = Instant::now();
    while caller.audio_since(asked).is_empty() && asked.elapsed() < PATIENCE {
        caller.listen(100).await;
    }
}

/// Listens until the agent has said all, so far.
async fn quiet(caller: &mut Caller) {
    let longest = Instant::now() + Duration::from_secs(30);
    loop {
        let from = Instant::now();
        caller.listen(QUIET.as_millis() as u64).await;
        if caller.audio_since(from).is_empty() {
            return;
        }
        assert!(Instant::now() < longest, "the agent speaks without end");
    }
}

async fn transcript(client: &Client, id: &str) -> Vec<Value> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
        if !call["ended_at"].is_null() {
            break;
        }
        assert!(Instant::now() < until, "the call did not end");
        sleep(Duration::from_millis(50)).await;
    }
    let path = format!("/conversations/{id}/transcript");
    let body = client.get(&path).await.expect(200).body;
    body["turns"].as_array().cloned().unwrap_or_default()
}
