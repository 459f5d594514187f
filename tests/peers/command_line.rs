//! The commands of the binary against a server of their own, as a person would use them.

use std::path::Path;
use std::process::{Command, Output};

use kit::server::{Server, program};
use kit::stage;
use media::audio::level;
use serde_json::json;

use super::speaking_agent;

const GREETING: &str = "Good morning, this is the Harbour Hotel.";
const PROMPT: &str = "You answer for the Harbour Hotel. Hello there, welcome to the Harbour Hotel. \
    Breakfast is served from seven to ten.";

/// A command that acts as a client of this server.
fn client(server: &Server, command: &str) -> Command {
    let mut client = Command::new(program());
    client
        .arg(command)
        .args(["--url", &server.url])
        .env("SIDETONE_API_KEY", &server.key);
    client
}

fn said(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{err}");
    out.into_owned()
}

fn question(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("question.wav");
    let made = Command::new("flite")
        .args([
            "-voice",
            "slt",
            "-t",
            "hello there, I have a question about breakfast",
            "-o",
        ])
        .arg(&file)
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "flite is missing: install the package flite"
    );
    file
}

/// Seconds of a WAV file in which there is sound, as spans.
fn heard(file: &Path) -> Vec<(f64, f64)> {
    let mut reader = hound::WavReader::open(file).unwrap();
    let window = reader.spec().sample_rate as usize / 50;
    let samples: Vec<i16> = reader.samples::<i16>().map(Result::unwrap).collect();
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for (index, piece) in samples.chunks(window).enumerate() {
        let (from, to) = (index as f64 / 50.0, (index + 1) as f64 / 50.0);
        if level::rms_dbfs(piece) > -50.0 {
            match spans.last_mut() {
                // Pauses between words part nothing.
                Some(span) if from - span.1 < 0.6 => span.1 = to,
                _ => spans.push((from, to)),
            }
        }
    }
    spans
}

#[tokio::test]
async fn a_call_prints_its_transcript_and_saves_what_was_heard() {
    let server = Server::scripted().await;
    let agent = speaking_agent(&server, "Reception", GREETING, PROMPT).await;
    let (wav, out) = (question(&server.data), server.data.join("reply.wav"));
    let mut call = client(&server, "call");
    call.args(["--agent", &agent, "--linger", "1", "--wav"])
        .arg(&wav)
        .arg("--out")
        .arg(&out);
    let text = said(&call.output().unwrap());
    let places = [
        GREETING,
        "hello there",
        "What would you like to know",
        "answered in ",
    ]
    .map(|words| text.find(words));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{text}"
    );
    let heard = heard(&out);
    assert_eq!(heard.len(), 2, "greeting and answer: {heard:?}");

    // Its tape replays to the same outputs, in this second process.
    let tape = kept(&server, "tape").await;
    let replay = Command::new(program())
        .arg("replay")
        .arg(&tape)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&replay.stderr).into_owned();
    assert!(
        replay.status.success() && told.contains("The same outputs as the recording"),
        "{told}"
    );
    damaged_tapes_are_told(&tape);
}

/// A tape on which the caller said another word, and one that breaks off.
fn damaged_tapes_are_told(tape: &Path) {
    let whole = std::fs::read(tape).unwrap();
    let damaged = tape.with_file_name("damaged.tape");
    let replay = |bytes: &[u8]| {
        std::fs::write(&damaged, bytes).unwrap();
        let output = Command::new(program())
            .args(["replay", "--quiet"])
            .arg(&damaged)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    };
    let word = b"hello there";
    let at = whole
        .windows(word.len())
        .position(|bytes| bytes == word)
        .expect("what the recogniser heard is on the tape");
    let mut other = whole.clone();
    other[at] = b'j';
    let (code, told) = replay(&other);
    assert_eq!(code, Some(1), "{told}");
    let (input, byte) = told
        .split_once("DIFFERENT from input ")
        .and_then(|(_, rest)| rest.split_once(" on ("))
        .and_then(|(input, rest)| Some((input, rest.split_once("byte ")?.1.split_once(')')?.0)))
        .unwrap_or_else(|| panic!("{told}"));
    let (input, byte) = (
        input.parse::<u64>().unwrap(),
        byte.parse::<usize>().unwrap(),
    );
    assert!(input > 0 && (byte..byte + 400).contains(&at), "{told}");
    assert!(
        told.contains("jello there"),
        "the output that differs: {told}"
    );

    let (_, told) = replay(&whole[..at]);
    assert!(
        told.contains("The tape breaks off: ") && !told.contains("DIFFERENT"),
        "{told}"
    );
    let (code, told) = replay(b"hello there");
    assert_eq!(code, Some(2), "{told}");
}

#[tokio::test]
async fn a_call_of_8_khz_hears_and_is_heard() {
    let server = Server::scripted().await;
    let agent = speaking_agent(&server, "Reception", GREETING, PROMPT).await;
    let (wav, out) = (question(&server.data), server.data.join("reply.wav"));
    let mut call = client(&server, "call");
    call.args(["--agent", &agent, "--format", "ulaw_8000", "--linger", "1"])
        .arg("--wav")
        .arg(&wav)
        .arg("--out")
        .arg(&out);
    let text = said(&call.output().unwrap());
    let places =
        [GREETING, "hello there", "What would you like to know"].map(|words| text.find(words));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{text}"
    );
    let spec = hound::WavReader::open(&out).unwrap().spec();
    assert_eq!((spec.sample_rate, spec.channels), (8_000, 1));
    let heard = heard(&out);
    assert_eq!(heard.len(), 2, "greeting and answer: {heard:?}");
    let page = server.client().get("/calls").await.expect(200).body;
    assert_eq!(page["total"], 1, "{page}");
}

#[tokio::test]
async fn a_telephony_call_prints_the_stored_transcript() {
    let server = Server::scripted().await;
    speaking_agent(&server, "Reception", GREETING, PROMPT).await;
    let wav = question(&server.data);
    let mut call = client(&server, "call");
    call.args(["--agent", "reception", "--telco", "--linger", "1", "--wav"])
        .arg(&wav);
    let text = said(&call.output().unwrap());
    let places =
        [GREETING, "hello there", "What would you like to know"].map(|words| text.find(words));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{text}"
    );
    assert!(text.contains("answered in "), "{text}");
}

#[tokio::test]
async fn a_barge_in_is_heard_to_cut_the_greeting() {
    let server = stage::server().await;
    let fields = json!({"first_message": stage::long_greeting()});
    let agent = stage::agent(&server.client(), fields).await;
    let (wav, out) = (server.data.join("tone.wav"), server.data.join("reply.wav"));
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut file = hound::WavWriter::create(&wav, spec).unwrap();
    for sample in stage::voice(1500) {
        file.write_sample(sample).unwrap();
    }
    file.finalize().unwrap();
    let mut call = client(&server, "call");
    call.args(["--agent", &agent, "--barge-in-at", "1500"])
        .args(["--linger", "1", "--wav"])
        .arg(&wav)
        .arg("--out")
        .arg(&out);
    let text = said(&call.output().unwrap());
    let after = text
        .split_once("interrupted after ")
        .and_then(|(_, rest)| rest.split_once(" ms"))
        .and_then(|(ms, _)| ms.parse::<f64>().ok())
        .unwrap_or_else(|| panic!("{text}"));
    let (from, to) = heard(&out)[0];
    // 1.5 s, then the 0.6 s of voice that interrupt by default, and the way there and back.
    assert!(
        (2.05..2.4).contains(&(to - from)),
        "the greeting was heard for {} s",
        to - from
    );
    assert!(
        (after / 1000.0 - (to - from)).abs() <= 0.1,
        "heard for {} s, but {text}",
        to - from
    );
}

#[tokio::test]
async fn a_small_load_run_measures() {
    load_of("telco", (16, 15), &["--max-underruns", "0"]).await;
}

#[tokio::test]
async fn a_small_load_run_of_browsers_measures() {
    // Few callers need longer until one has interrupted the agent.
    load_of("webrtc", (8, 45), &[]).await;
}

async fn load_of(transport: &str, (sessions, seconds): (u32, u32), bars: &[&str]) {
    let server = Server::scripted().await;
    let mut load = client(&server, "load");
    load.args(["--transport", transport, "--json", "--warm-up", "1"]);
    load.args(["--sessions", &sessions.to_string()]);
    load.args(["--seconds", &seconds.to_string()]);
    load.args(bars);
    load.args(["--pid", &server.pid().to_string()]);
    let report: serde_json::Value = serde_json::from_str(&said(&load.output().unwrap())).unwrap();
    let figure = |name: &str| {
        let value = report[name].as_f64();
        value.unwrap_or_else(|| panic!("{name}: {report}"))
    };
    for name in ["cpu_ms_per_session_second", "memory_kib", "underruns"] {
        figure(name);
    }
    // The quantiles of each are in their order.
    for quantiles in [
        &["gap_p50_ms", "gap_p99_ms", "gap_p999_ms", "gap_max_ms"][..],
        &["turn_p50_ms", "turn_p99_ms"],
        &["barge_in_p50_ms", "barge_in_p99_ms"],
        &[
            "own_lateness_p50_ms",
            "own_lateness_p99_ms",
            "own_lateness_max_ms",
        ],
    ] {
        let values = quantiles.iter().map(|name| figure(name));
        assert!(values.is_sorted(), "{quantiles:?}: {report}");
    }
    assert!((19.0..21.0).contains(&figure("gap_p50_ms")), "{report}");
    assert_eq!(report["lost_sessions"], 0.0);
    // The agent that the run made is gone again.
    let agents = server.client().get("/agents").await.expect(200).body;
    assert!(!agents.to_string().contains("\"load\""), "{agents}");
}

#[test]
fn mistakes_are_told_in_one_line() {
    let output = Command::new(program())
        .args(["call", "--key", "x", "--agent", "a", "--wav", "missing.wav"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && told.starts_with("missing.wav: "),
        "{told}"
    );
    let output = Command::new(program())
        .args(["replay", "missing.tape"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = Command::new(program())
        .args(["call", "--key", "x", "--agent", "a", "--wav", "missing.wav"])
        .args(["--telco", "--format", "pcm_16000"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(told, "--telco takes only ulaw_8000\n");
    assert_eq!(output.status.code(), Some(1));
}

/// A file of the call that has found its last place: the disk's work ends a moment after the call.
async fn kept(server: &Server, extension: &str) -> std::path::PathBuf {
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        if let Some(path) = find(&server.data.join("objects"), extension) {
            return path;
        }
        assert!(
            tokio::time::Instant::now() < until,
            "a call leaves a {extension}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn find(folder: &Path, extension: &str) -> Option<std::path::PathBuf> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|own| own == extension) {
                return Some(path);
            }
        }
    }
    None
}
