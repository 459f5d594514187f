//! `sidetone call --sip`: the program as a telephone, to its own server and to SIPp.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use kit::ports::free_port;
use kit::server::program;
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use crate::stage::{self, loud};
use crate::telephone::{records, server};
use crate::trunks::sipp;

/// The caller's words: a tone of so long.
fn words(folder: &Path, ms: usize) -> PathBuf {
    let file = folder.join("words.wav");
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::create(&file, spec).unwrap();
    for sample in stage::voice(ms) {
        writer.write_sample(sample).unwrap();
    }
    writer.finalize().unwrap();
    file
}

/// What was saved, 16 kHz.
fn saved(file: &Path) -> Vec<i16> {
    let mut reader = hound::WavReader::open(file).unwrap();
    assert_eq!(
        (reader.spec().channels, reader.spec().sample_rate),
        (1, 16_000)
    );
    reader.samples::<i16>().map(Result::unwrap).collect()
}

/// `sidetone call --sip` to this address.
async fn call(address: &str, args: &[&str]) -> (Output, String) {
    let running = Command::new(program())
        .args(["call", "--sip", address])
        .args(args)
        .kill_on_drop(true)
        .output();
    let output = timeout(Duration::from_secs(60), running)
        .await
        .expect("it ends")
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output, text)
}

#[tokio::test]
async fn the_terminal_calls_an_agent_over_sip() {
    let _together = stage::together().await;
    for (encryption, args, answered) in [
        (
            "allow",
            &["--codec", "pcmu"][..],
            "answered: PCMU over RTP, keypad events",
        ),
        (
            "require",
            &["--srtp"][..],
            "answered: opus over SRTP, keypad events",
        ),
    ] {
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let over = format!("udp:{listen},tcp:{listen}");
        let settings = [
            ("SIP__LISTEN", &*over),
            ("SIP__MEDIA_ENCRYPTION", encryption),
        ];
        let (server, _) = server(json!({}), &settings).await;
        let (wav, out) = (words(&server.data, 800), server.data.join("reply.wav"));
        let transport = if encryption == "allow" { "udp" } else { "tcp" };
        let address = format!("sip:+4930123456@{listen};transport={transport}");
        let files = [
            "--wav",
            wav.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ];
        let more = ["--from", "+33123456789", "--linger", "2"];
        let (output, text) = call(&address, &[&files[..], &more, args].concat()).await;
        assert!(output.status.success(), "{text}");
        let steps = [
            "calling sip:",
            answered,
            "the other side speaks",
            "speaking",
            "hanging up",
            "packets, 0 lost",
        ];
        let places = steps.map(|step| text.find(step));
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{text}"
        );
        assert!(!text.contains("does not answer our goodbye"), "{text}");

        let record = records(&server.client(), 1).await.remove(0);
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(record["end_reason"], "caller_hangup");
        assert_eq!(
            (&record["from_number"], &record["to_number"]),
            (&json!("+33123456789"), &json!("+4930123456"))
        );
        let [caller, agent] =
            stage::recording(&server.client(), record["id"].as_str().unwrap()).await;
        let spoken = loud(&caller);
        assert!((0.7..1.1).contains(&spoken), "{spoken}: {text}");
        // What it saved is what the agent said.
        let (said, heard) = (loud(&agent), loud(&saved(&out)));
        assert!(
            said > 1.0 && (said - heard).abs() < 0.5,
            "{said} {heard}: {text}"
        );
        // Without words it presses keys and listens.
        let args = [&["--press", "4#", "--seconds", "5"][..], args].concat();
        let (output, text) = call(&address, &args).await;
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains("pressing 4") && text.contains("pressing #"),
            "{text}"
        );
        let keys = |call: &serde_json::Value| {
            let turns = call["transcript"].as_array().unwrap();
            turns
                .iter()
                .any(|turn| turn["source"] == "keypad" && turn["text"] == "4#")
        };
        let calls = records(&server.client(), 2).await;
        assert!(calls.iter().any(keys), "{calls:?}");
    }
}

#[tokio::test]
async fn the_terminal_calls_sipp_and_hears_its_echo() {
    let _together = stage::together().await;
    let folder = tempfile::tempdir().unwrap();
    let (port, media) = (free_port().to_string(), free_port().to_string());
    let args = [
        "-sn",
        "uas",
        "-i",
        "127.0.0.1",
        "-p",
        &port,
        "-mi",
        "127.0.0.1",
        "-mp",
        &media,
        "-rtp_echo",
        "-m",
        "1",
    ];
    let mut uas = sipp(folder.path(), &args);
    let (wav, out) = (words(folder.path(), 1_500), folder.path().join("echo.wav"));
    let (output, text) = call(
        &format!("sip:100@127.0.0.1:{port}"),
        &[
            "--wav",
            wav.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
            "--seconds",
            "6",
            "--trace",
        ],
    )
    .await;
    assert!(output.status.success(), "{text}");
    for step in [
        "180 Ringing",
        "answered: PCMU over RTP",
        "INVITE sip:100@127.0.0.1",
        "BYE sip:",
    ] {
        assert!(text.contains(step), "{step}: {text}");
    }
    let echoed = loud(&saved(&out));
    assert!((1.4..1.8).contains(&echoed), "{echoed}: {text}");
    let ended = timeout(Duration::from_secs(20), uas.wait()).await;
    assert!(ended.expect("sipp ends").unwrap().success(), "{text}");
}

#[tokio::test]
async fn who_does_not_answer_is_told_with_the_reason() {
    let closed = free_port();
    let (output, text) = call(&format!("sip:100@127.0.0.1:{closed}"), &["--ring", "2"]).await;
    assert!(
        !output.status.success() && text.contains("not answered: "),
        "{text}"
    );
    let (output, text) = call("mailto:nobody", &[]).await;
    assert!(
        !output.status.success() && text.contains("no SIP address"),
        "{text}"
    );
}
