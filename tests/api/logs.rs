//! The log of a call: every line says which call of which account, and none says what was said.

use std::time::Duration;

use kit::provider::{Answer, HttpProvider, chat};
use kit::server::{Server, Setup};
use kit::socket::{self, Caller, native};
use media::audio::tones;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(15);
/// What a canary begins with.
const CANARY: &str = "zyx-canary";

fn canary(what: &str) -> String {
    format!("{CANARY}-{what}")
}

/// A program whose providers repeat what they are told in their errors, and whose log shows all it can.
async fn server(format: &str, model: &HttpProvider, ears: &HttpProvider) -> Server {
    Setup::default()
        .set("ENGINE__VAD", "energy")
        .set("SERVER__LOG", "trace")
        .set("LOG__FORMAT", format)
        .set("PROVIDERS__CLOUD__KIND", "openai")
        .set("PROVIDERS__CLOUD__BASE_URL", &model.url())
        .set("PROVIDERS__CLOUD__API_KEY", &canary("key"))
        .set("PROVIDERS__CLOUD__MODELS", "m")
        .set("PROVIDERS__EARS__KIND", "openai")
        .set("PROVIDERS__EARS__BASE_URL", &ears.url())
        .set("PROVIDERS__EARS__API_KEY", &canary("key"))
        .set("PROVIDERS__EARS__STT_MODEL", "hears")
        .start()
        .await
}

/// A call with a spoken and a typed turn, in which everything that is private has its canary.
async fn a_call(server: &Server) -> String {
    let client = server.client();
    let fields = json!({
        "name": canary("agent"), "system_prompt": format!("You know {} and {{{{word}}}}.", canary("prompt")),
        "voice_id": socket::scripted_voice(&client).await, "llm_model": "m",
        "first_message": format!("Hello {}.", canary("greeting")), "turn_eagerness": "eager",
        "idle_check_in_after_secs": 600, "end_call_phrases": [canary("phrase")],
    });
    let agent = socket::agent(&client, fields).await;
    let mut connect = native(&agent);
    connect["caller_phone"] = json!("+15550177");
    connect["dynamic_variables"] = json!({"word": canary("variable")});
    let mut caller = Caller::call(&client, &connect).await;
    caller.wait_for("audio", 5000).await;
    caller.listen(2000).await;
    caller
        .speak(&tones::sine(16_000, 500.0, -12.0, 16_000))
        .await;
    caller.wait_for("user_transcript", 10_000).await;
    caller.wait_for("agent_response", 20_000).await;
    caller
        .send(&json!({"type": "user_message", "text": format!("I say {}.", canary("typed"))}))
        .await;
    caller.wait_for("agent_response", 20_000).await;
    caller.wait_for("audio", 5000).await;
    let id = caller.session_id.clone();
    let reason = json!({"reason": canary("reason")});
    client
        .post(&format!("/calls/{id}/end"), &reason)
        .await
        .expect(200);
    assert!(caller.close_code(PATIENCE).await.is_some());
    let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
    let text = call["transcript_text"].as_str().unwrap();
    // The canaries are alive: they are where they belong.
    for what in ["greeting", "heard", "typed"] {
        assert!(text.contains(&canary(what)), "{what}: {text}");
    }
    id
}

async fn providers() -> (HttpProvider, HttpProvider) {
    let model = HttpProvider::start(|asked| {
        let words = chat::asked(&asked.json());
        if words.contains(&canary("heard")) {
            let error = json!({"error": {"message": format!("cannot say {words}"), "type": "x"}});
            return Answer::status_of(503, &error.to_string());
        }
        chat::text(&[&format!("You said {}.", canary("answer"))])
    })
    .await;
    let ears = HttpProvider::start(|_| {
        let heard = json!({"text": format!("I heard {}.", canary("heard"))});
        Answer::ok("application/json").send(heard.to_string())
    })
    .await;
    (model, ears)
}

#[tokio::test]
async fn every_line_of_a_call_names_it_and_no_line_says_what_was_said() {
    let (model, ears) = providers().await;
    let mut server = server("json", &model, &ears).await;
    let id = a_call(&server).await;
    let account = {
        let db = server.database().await;
        let found = db
            .query("select account_id from calls where id = $1")
            .bind(id.as_str())
            .one(|row| row.text("account_id"))
            .await
            .unwrap();
        db.close().await;
        found
    };
    server.terminate();
    assert_eq!(server.ended(PATIENCE).await, Some(0));
    let log = server.log();
    assert!(!log.contains(CANARY), "{}", around(&log, CANARY));
    assert!(!log.contains("5550177"), "{}", around(&log, "5550177"));
    assert!(!log.contains(&server.key));

    let lines: Vec<Value> = log
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).expect("a line is one object"))
        .collect();
    // What is not JSON is what the program prints at its start.
    assert!(lines.len() > 3, "{log}");
    let of_call: Vec<&Value> = lines
        .iter()
        .filter(|line| line["span"]["name"] == "call")
        .collect();
    for line in &of_call {
        assert_eq!(line["span"]["call"], id.as_str(), "{line}");
        assert_eq!(line["span"]["account"], account.as_str(), "{line}");
    }
    let says = |words: &str| of_call.iter().any(|line| line["message"] == words);
    for words in [
        "a call begins",
        "a model did not answer",
        "an API client ends a call",
        "a call is over",
    ] {
        assert!(says(words), "{words:?} is not in\n{log}");
    }
    // And nothing about a call stands in a line without its name.
    for line in lines.iter().filter(|line| line["span"]["name"] != "call") {
        let text = line.to_string();
        assert!(!text.contains(&id), "{text}");
    }
    let fault = of_call
        .iter()
        .find(|line| line["message"] == "a model did not answer")
        .unwrap();
    assert_eq!(
        (&fault["provider"], &fault["kind"], &fault["status"]),
        (&json!("cloud"), &json!("busy"), &json!(503))
    );
    // The provider's own words, without those that it repeats.
    let said = fault["said"].as_str().unwrap();
    assert!(said.starts_with("status 503: cannot"), "{said}");
    assert!(said.contains("•••"), "{said}");
}

#[tokio::test]
async fn text_lines_name_the_call_too() {
    let (model, ears) = providers().await;
    let mut server = server("text", &model, &ears).await;
    let id = a_call(&server).await;
    server.terminate();
    assert_eq!(server.ended(PATIENCE).await, Some(0));
    let log = server.log();
    assert!(!log.contains(CANARY), "{}", around(&log, CANARY));
    for words in ["a call begins", "a model did not answer", "a call is over"] {
        let line = log.lines().find(|line| line.contains(words)).unwrap();
        assert!(
            line.contains(&format!("call{{call={id} account=")),
            "{line}"
        );
    }
}

/// The lines that hold something.
fn around<'a>(log: &'a str, what: &str) -> String {
    let lines: Vec<&'a str> = log.lines().filter(|line| line.contains(what)).collect();
    lines.join("\n")
}
