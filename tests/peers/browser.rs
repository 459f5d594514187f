//! The console page in a real browser, with a WAV file as its microphone and a server of its own.

use std::path::Path;
use std::process::Command;

use kit::server::Server;

use super::devtools::Browser;
use super::speaking_agent;

const GREETING: &str = "Good morning, this is the Harbour Hotel. How can I help?";
const PROMPT: &str = "You answer for the Harbour Hotel. Hello there, what would you like to know? \
    Breakfast is served from seven to ten. Parking costs twelve euros a night. \
    The swimming pool is on the roof.";

/// A person opens the page, calls the agent by keyboard, speaks, reads along, types, and hangs up.
#[tokio::test]
async fn a_person_talks_to_the_agent_from_the_page() {
    // What the caller says is scripted, so that the test is of the page and not of a recogniser.
    let server = Server::scripted().await;
    speaking_agent(&server, "Reception", GREETING, PROMPT).await;
    let microphone = server.data.join("microphone.wav");
    // The greeting takes about four seconds; the fake microphone starts with the call.
    speak(&microphone, "hello there", 7.0);
    let mut page = Browser::open(&microphone).await;

    page.screen(1280, 800, false).await;
    page.goto(&format!("{}/", server.url)).await;
    page.screenshot("console-empty").await;
    page.goto(&format!("{}/#key={}", server.url, server.key))
        .await;
    page.until("!document.querySelector('#call')?.disabled", 20)
        .await;
    assert_eq!(
        page.eval("location.hash").await,
        "",
        "the key must leave the address bar"
    );
    let options = page
        .eval("document.querySelector('#agent').innerText")
        .await;
    assert!(
        options.as_str().unwrap_or_default().contains("Reception"),
        "{options}"
    );
    choose(&mut page, "Reception").await;

    // To the call button by keyboard alone.
    page.eval("document.querySelector('#agent').focus()").await;
    page.press("Tab", 9, "").await;
    assert_eq!(page.eval("document.activeElement.id").await, "call");
    page.press("Enter", 13, "\r").await;

    page.until(
        "document.querySelector('#state').dataset.state === 'live'",
        20,
    )
    .await;
    page.until(
        "document.querySelector('.turn.agent .text')?.textContent.includes('Harbour Hotel')",
        20,
    )
    .await;
    page.until("document.querySelector('#them').ariaValueNow > 0.2", 20)
        .await;
    page.until("document.querySelector('#you').ariaValueNow > 0.2", 20)
        .await;
    page.until(
        "document.querySelector('.turn.user .text')?.textContent.includes('hello there')",
        20,
    )
    .await;
    page.until("document.querySelectorAll('.turn.agent').length >= 2", 20)
        .await;
    page.until("/^\\d+ ms$/.test(document.querySelectorAll('.turn.agent')[1].querySelector('.ms').textContent)", 20).await;
    page.until(
        "document.querySelector('#median').textContent.endsWith(' ms')",
        5,
    )
    .await;
    page.screenshot("console-live").await;

    // Typed text is answered too.
    page.eval("document.querySelector('#text').focus()").await;
    page.call(
        "Input.insertText",
        serde_json::json!({"text": "what does parking cost?"}),
    )
    .await;
    page.press("Enter", 13, "\r").await;
    page.until("[...document.querySelectorAll('.turn.agent')].some((turn) => /twelve euros/.test(turn.textContent))", 20).await;

    for (width, height, dark) in [
        (390, 844, false),
        (390, 844, true),
        (820, 1180, false),
        (1600, 900, true),
    ] {
        page.screen(width, height, dark).await;
        let overflow = page
            .eval("document.documentElement.scrollWidth - window.innerWidth")
            .await;
        assert!(
            overflow.as_i64().is_some_and(|pixels| pixels <= 0),
            "{width} wide: {overflow} px too wide"
        );
        page.screenshot(&format!(
            "console-{width}-{}",
            if dark { "dark" } else { "light" }
        ))
        .await;
    }

    page.eval("document.querySelector('#call').click()").await;
    page.until(
        "document.querySelector('#state').dataset.state === 'idle'",
        10,
    )
    .await;
    assert_eq!(
        page.eval("document.querySelector('#problem').hidden").await,
        true
    );
    assert_eq!(page.troubles, Vec::<String>::new());

    let calls = server.client().get("/calls").await.expect(200);
    assert_eq!(
        calls.body["items"][0]["end_reason"], "caller_hangup",
        "{}",
        calls.body
    );
}

/// A wrong key is told in words, and the page stays usable.
#[tokio::test]
async fn a_wrong_key_is_told() {
    let server = Server::scripted().await;
    let microphone = server.data.join("microphone.wav");
    speak(&microphone, "hello", 0.5);
    let mut page = Browser::open(&microphone).await;
    page.screen(1280, 800, false).await;
    page.goto(&format!("{}/#key=st_live_nonsense", server.url))
        .await;
    page.until("!document.querySelector('#problem').hidden", 20)
        .await;
    let told = page
        .eval("document.querySelector('#problem').textContent")
        .await;
    assert_eq!(told, "This key is not accepted.");
    assert_eq!(page.eval("sessionStorage.length").await, 0);
}

async fn choose(page: &mut Browser, name: &str) {
    let script = format!(
        "(() => {{ const list = document.querySelector('#agent');
           list.value = [...list.options].find((option) => option.text === '{name}').value; }})()"
    );
    page.eval(&script).await;
}

/// A voice that says this after so much silence, and then nothing for a minute.
fn speak(file: &Path, text: &str, silence: f64) {
    let spoken = file.with_extension("spoken.wav");
    let made = Command::new("flite")
        .args(["-voice", "slt", "-t", text, "-o"])
        .arg(&spoken)
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "flite is missing: install the package flite"
    );
    let mut reader = hound::WavReader::open(&spoken).unwrap();
    let spec = reader.spec();
    let mut writer = hound::WavWriter::create(file, spec).unwrap();
    let quiet = |seconds: f64| (seconds * f64::from(spec.sample_rate)) as usize;
    let mut samples = vec![0_i16; quiet(silence)];
    samples.extend(reader.samples::<i16>().map(Result::unwrap));
    samples.resize(samples.len() + quiet(60.0), 0);
    for sample in samples {
        writer.write_sample(sample).unwrap();
    }
    writer.finalize().unwrap();
}
