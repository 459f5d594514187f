//! Providers that are broken: what they say of it stands in the log, in the call's diagnostics and on the caller's
//! terminal, and a call in which nobody could be heard is no success there.

use std::time::Duration;

use futures_util::future::join_all;
use kit::provider::{Answer, HttpProvider, LiveProvider, chat};
use kit::server::{Server, Setup, program};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use super::provider;
use crate::stage;

/// How OpenAI refuses a key, which it shows in part.
const BAD_KEY: &str = r#"{"error": {"message": "Incorrect API key provided: sk-canar*****3f9a. You can find your API key at https://platform.openai.com/account/api-keys.", "type": "invalid_request_error", "param": null, "code": "invalid_api_key"}}"#;
const NO_QUOTA: &str = r#"{"error": {"message": "You exceeded your current quota, please check your plan and billing details.", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}}"#;
const NO_MODEL: &str = r#"{"error": {"message": "The model `gpt-9` does not exist or you do not have access to it.", "type": "invalid_request_error", "param": null, "code": "model_not_found"}}"#;
const PAGE: &str = "<html>\n<head><title>Welcome to nginx!</title></head>\n<body></body>\n</html>";

/// A provider that answers every request so.
async fn answers(answer: Answer) -> HttpProvider {
    HttpProvider::start(move |_| answer.clone()).await
}

/// What somebody at a terminal is told of a call, and the exit code.
struct Told {
    id: String,
    text: String,
    code: Option<i32>,
}

/// Calls the agent from the terminal, and says something.
async fn call(server: &Server, agent: &str) -> Told {
    let wav = server.data.join(format!("{agent}.wav"));
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::create(&wav, spec).unwrap();
    for sample in stage::voice(600) {
        writer.write_sample(sample).unwrap();
    }
    writer.finalize().unwrap();
    let running = Command::new(program())
        .args([
            "call",
            "--url",
            &server.url,
            "--agent",
            agent,
            "--linger",
            "1",
        ])
        .arg("--wav")
        .arg(&wav)
        .env("SIDETONE_API_KEY", &server.key)
        .kill_on_drop(true)
        .output();
    let output = timeout(Duration::from_secs(60), running);
    let output = output.await.expect("it ends").unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let id = text.lines().find_map(|line| line.strip_prefix("Call "));
    Told {
        id: id.unwrap_or_else(|| panic!("{text}")).to_owned(),
        code: output.status.code(),
        text,
    }
}

/// The faults of providers in the call's diagnostics.
async fn faults(server: &Server, id: &str) -> Vec<Value> {
    let path = format!("/conversations/{id}/diagnostics");
    let told = server.client().get(&path).await.expect(200).body;
    let errors = told["errors"].as_array().unwrap().iter();
    let of_providers: Vec<Value> = errors
        .filter(|e| e["source"] == "provider")
        .cloned()
        .collect();
    let count = told["provider_error_count"].as_u64().unwrap();
    assert!(count >= of_providers.len() as u64, "{told}");
    // What the call has to say of the same fault is not told beside it.
    let repeated = of_providers.iter().any(|fault| {
        let message = fault["message"].as_str().unwrap();
        let errors = told["errors"].as_array().unwrap().iter();
        errors
            .filter(|e| e["message"].as_str().unwrap().contains(message))
            .any(|e| e["source"] == "call")
    });
    assert!(!repeated, "{told}");
    of_providers
}

/// A provider that is broken, and what is told of it.
#[derive(Clone, Copy)]
struct Case {
    provider: &'static str,
    stage: &'static str,
    code: &'static str,
    /// In diagnostics and on the terminal; in the log, too.
    words: &'static str,
    /// What the agent never did, as the terminal says it.
    never: &'static str,
    /// How the call's record has it.
    status: &'static str,
}

async fn check(server: &Server, agent: &str, case: &Case) {
    let told = call(server, agent).await;
    let Case {
        provider,
        stage,
        code,
        words,
        never,
        status,
    } = case;
    let text = &told.text;
    assert!(text.contains("What went wrong:"), "{provider}: {text}");
    assert!(
        text.contains(&format!("{provider} ({code}): ")),
        "{provider}: {text}"
    );
    assert!(text.contains(words), "{provider}: {text}");
    assert_eq!(
        told.code,
        Some(i32::from(!never.is_empty())),
        "{provider}: {text}"
    );
    assert!(text.contains(never), "{provider}: {text}");
    let faults = faults(server, &told.id).await;
    assert!(!faults.is_empty(), "{provider}: {text}");
    for fault in &faults {
        let part = ["provider", "stage", "code"].map(|key| fault[key].as_str().unwrap());
        assert_eq!(part, [*provider, *stage, *code], "{fault}");
        assert!(
            fault["message"].as_str().unwrap().contains(words),
            "{fault}"
        );
        assert!(
            fault["at_ms"].as_u64().is_some_and(|ms| ms < 30_000),
            "{fault}"
        );
    }
    let turn = &faults[0]["turn_id"];
    assert!(turn.is_string() || *stage != "model", "{faults:?}");
    let log = server.log();
    let line = log
        .lines()
        .find(|line| line.contains(&told.id) && line.contains(words));
    assert!(
        line.is_some_and(|line| line.contains(code)),
        "{provider}: {log}"
    );
    let call = stage::over(&server.client(), &told.id, Duration::from_secs(10)).await;
    assert_eq!(call["status"], *status, "{provider}: {call}");
}

fn model(setup: Setup, name: &str, url: &str) -> Setup {
    let upper = name.to_uppercase();
    provider(setup, name, "openai", url).set(
        &format!("PROVIDERS__{upper}__MODELS"),
        &format!("{name}-model=gpt-9"),
    )
}

#[tokio::test]
async fn what_a_broken_model_or_voice_says_is_in_the_log_in_diagnostics_and_on_the_terminal() {
    let _together = stage::together().await;
    let key = answers(Answer::status_of(401, BAD_KEY)).await;
    let quota = answers(Answer::status_of(429, NO_QUOTA)).await;
    let missing = answers(Answer::status_of(404, NO_MODEL)).await;
    let page = answers(Answer::ok("text/html").send(PAGE)).await;
    let plain = answers(chat::text(&["Never asked over TLS."])).await;
    let voice = answers(Answer::status_of(401, BAD_KEY)).await;
    let mut setup = stage::setup();
    for (name, provider) in [
        ("key", &key),
        ("quota", &quota),
        ("missing", &missing),
        ("page", &page),
    ] {
        setup = model(setup, name, &provider.url());
    }
    // It speaks no TLS.
    setup = model(setup, "tls", &plain.url().replace("http://", "https://"));
    setup =
        provider(setup, "mouth", "openai", &voice.url()).set("PROVIDERS__MOUTH__VOICES", "alloy");
    // Services that want a key, and have none: the second by another path than its own.
    setup = setup
        .set("PROVIDERS__DEAF__KIND", "deepgram")
        .set("PROVIDERS__DUMB__KIND", "elevenlabs")
        .set("PROVIDERS__DUMB__BASE_URL", "https://api.elevenlabs.io/v2");
    setup = setup
        .set("PROVIDERS__KEYLESS__KIND", "openai")
        .set("PROVIDERS__KEYLESS__MODELS", "silent=gpt-9");
    let server = setup.start().await;
    let client = server.client();
    let cases = [
        (
            "key",
            "invalid_api_key",
            "status 401: Incorrect API key provided: •••",
        ),
        (
            "quota",
            "insufficient_quota",
            "status 429: You exceeded your current quota, please check your plan",
        ),
        (
            "missing",
            "model_not_found",
            "status 404: The model `gpt-9` does not exist or you do not have access to it.",
        ),
        (
            "page",
            "wrong",
            "the model sent text/html, not events: Welcome to nginx!",
        ),
        ("tls", "broken", "the connection failed: "),
    ]
    .map(|(provider, code, words)| Case {
        provider,
        stage: "model",
        code,
        words,
        never: "the agent never had an answer: its model failed",
        // A fault of its turn, not of the call.
        status: "completed",
    });
    let calls = cases.iter().map(async |case| {
        let agent = stage::agent(
            &client,
            json!({"llm_model": format!("{}-model", case.provider)}),
        )
        .await;
        check(&server, &agent, case).await;
    });
    let mouth = Case {
        provider: "mouth",
        stage: "voice",
        code: "invalid_api_key",
        words: "status 401: Incorrect API key provided: •••",
        never: "the agent was never heard: its voice failed",
        // Neither the greeting, nor an apology, nor an answer: the third failure in a row ends the call.
        status: "failed",
    };
    let alloy = client
        .get("/voices/mouth-alloy")
        .await
        .expect(200)
        .text("id");
    let mute = stage::agent(&client, json!({"voice_id": alloy})).await;
    tokio::join!(join_all(calls), check(&server, &mute, &mouth));
    let log = server.log();
    assert!(!log.contains(super::KEY) && !log.contains("sk-canar"));
    for (name, variable) in [("deaf", "DEAF"), ("dumb", "DUMB"), ("keyless", "KEYLESS")] {
        let warning = format!("the provider {name} has no key");
        let line = log
            .lines()
            .find(|line| line.contains(&warning) && line.contains("WARN"));
        let names = format!("SIDETONE_PROVIDERS__{variable}__API_KEY");
        let line = line.unwrap_or_else(|| panic!("{warning}: {log}"));
        assert!(
            line.contains(&names) && line.contains(&format!("providers.{name}.api_key")),
            "{line}"
        );
    }
    // Who calls what is not asked is told so.
    let agent = stage::agent(&client, json!({"llm_model": "silent"})).await;
    let refused = client
        .post("/conversation/connect", &kit::socket::native(&agent))
        .await
        .expect(422);
    let why = refused.body["error"].as_str().unwrap();
    assert_eq!(why, "The provider \"keyless\" has no key.");
    // The others have one, or are at an address of their own.
    assert_eq!(log.matches("has no key, and nothing").count(), 3, "{log}");
}

#[tokio::test]
async fn what_a_broken_recogniser_says_is_told_and_its_fallback_saves_the_call() {
    let _together = stage::together().await;
    let http = answers(Answer::status_of(401, BAD_KEY)).await;
    let garbage = answers(Answer::ok("application/json").send(PAGE)).await;
    let live = LiveProvider::start().await;
    live.refuse(1000, 401);
    let refused = Case {
        provider: "ears",
        stage: "recogniser",
        code: "invalid_api_key",
        words: "status 401: Incorrect API key provided: •••",
        never: "the agent understood nothing: its recogniser failed",
        status: "completed",
    };
    let page = Case {
        code: "wrong",
        words: "the transcript is not JSON: Welcome to nginx!",
        ..refused
    };
    let socket = Case {
        code: "INVALID_AUTH",
        words: "status 401: Invalid credentials.",
        ..refused
    };
    let saved = Case {
        never: "",
        ..refused
    };
    let one = async |kind: &str, url: &str, fallback: &str, case: &Case| {
        let setup = provider(stage::setup(), "ears", kind, url)
            .set("PROVIDERS__EARS__STT_MODEL", "hears")
            .set("SPEECH__RECOGNISER", "ears")
            .set("SPEECH__RECOGNISER_FALLBACK", fallback);
        let server = setup.start().await;
        let agent = stage::agent(&server.client(), json!({})).await;
        check(&server, &agent, case).await;
    };
    let (http, garbage, live) = (http.url(), garbage.url(), live.url());
    tokio::join!(
        one("openai", &http, "", &refused),
        one("openai", &garbage, "", &page),
        one("deepgram", &live, "", &socket),
        one("openai", &http, "scripted", &saved),
    );
}
