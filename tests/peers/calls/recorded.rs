//! A call as it was, against what is kept of it: the transcript's times against the sound of the
//! recording, what the agent is said to have said against what was heard, and the next request to
//! the model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::server::Server;
use kit::socket::{Caller, native, telco, ulaw};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stage;

/// A call in which the caller is greeted, speaks, is answered, speaks again, interrupts the second
/// answer, is answered, and hangs up. Its id.
async fn a_call(client: &Client, connect: Value) -> String {
    let telco = connect["protocol"] == "telco";
    let mut caller = Caller::call(client, &connect).await;
    // 29 characters of greeting at 65 ms.
    caller.listen(2400).await;
    assert!(
        !caller.audio_since(caller.connected).is_empty(),
        "no greeting"
    );
    caller.speak(&stage::voice(600)).await;
    wait_for_audio(&mut caller).await;
    caller.listen(1500).await;
    caller.speak(&stage::voice(600)).await;
    wait_for_audio(&mut caller).await;
    caller.listen(400).await;
    caller.speak(&stage::voice(700)).await;
    let stopped = if telco { "clear" } else { "interruption" };
    assert_eq!(caller.of_kind(stopped).len(), 1, "interrupted once");
    wait_for_audio(&mut caller).await;
    caller.listen(1800).await;
    let end = if telco {
        json!({"event": "stop", "streamSid": "MZ"})
    } else {
        json!({"type": "end"})
    };
    caller.send(&end).await;
    let code = caller.close_code(Duration::from_secs(5)).await;
    assert_eq!(code, Some(1000), "{connect}");
    if !telco {
        assert_eq!(caller.of_kind("call_ended")[0]["reason"], "caller_hangup");
        assert_eq!(caller.of_kind("session_started").len(), 1);
    }
    caller.session_id
}

/// Is silent until the agent speaks.
async fn wait_for_audio(caller: &mut Caller) {
    let from = Instant::now();
    for _ in 0..250 {
        caller.listen(20).await;
        if !caller.audio_since(from).is_empty() {
            return;
        }
    }
    panic!("no answer within 5 s; closed {:?}", caller.closed);
}

#[tokio::test]
async fn turns_stand_in_the_recording_where_the_transcript_says() {
    let _few = stage::among_few().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({"barge_in_min_speech_secs": 0.3})).await;
    let kinds = [native(&agent), ulaw(&agent), telco(&agent)];
    let ids = join_all(kinds.map(|connect| a_call(&client, connect))).await;
    for id in ids {
        let call = stage::over(&client, &id, Duration::from_secs(10)).await;
        assert_eq!(
            (&call["status"], &call["end_reason"], &call["ended_by"]),
            (
                &json!("completed"),
                &json!("caller_hangup"),
                &json!("caller")
            )
        );
        let path = format!("/conversations/{id}/transcript");
        let transcript = client.get(&path).await.expect(200).body;
        let turns = transcript["turns"].as_array().unwrap();
        let said: Vec<(&str, &str)> = turns
            .iter()
            .map(|turn| {
                (
                    turn["role"].as_str().unwrap(),
                    turn["text"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                ("assistant", "Hello, this is the test line."),
                ("user", "hello there"),
                ("assistant", "hello there"),
                ("user", "what time is breakfast"),
                ("assistant", "what time is breakfast"),
                ("user", "how much is parking"),
                ("assistant", "how much is parking"),
            ]
        );
        let sound = stage::recording(&client, &id).await;
        assert!(sound[0].len().abs_diff(sound[1].len()) == 0);
        for turn in turns {
            check_turn(turn, &sound);
        }
        let interrupted: Vec<&Value> = turns.iter().filter(|t| t["interrupted"] == true).collect();
        assert_eq!(interrupted.len(), 1, "{turns:#?}");
        assert_eq!(interrupted[0]["index"], 4);
        check_next_request(&server, &id, interrupted[0]);
        check_latency(turns);
    }
}

/// More sound at once than a caller can have spoken is dropped; from then on nobody knows where in the
/// recording the caller's words stand, those of earlier turns included.
#[tokio::test]
async fn callers_places_are_taken_back_when_their_audio_is_lost_later() {
    let _machine = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({"barge_in_min_speech_secs": 0.3})).await;
    let mut caller = Caller::call(&client, &native(&agent)).await;
    caller.listen(2400).await;
    caller.speak(&stage::voice(600)).await;
    wait_for_audio(&mut caller).await;
    caller.listen(1500).await;
    for _ in 0..20 {
        caller.send_audio(&[0; 4000]).await;
    }
    caller.listen(200).await;
    caller.send(&json!({"type": "end"})).await;
    assert_eq!(caller.close_code(Duration::from_secs(5)).await, Some(1000));
    let told = &caller.of_kind("user_transcript");
    assert!(
        told.iter().any(|t| t["start_ms"].is_u64()),
        "the place was known when it was told: {told:?}"
    );
    stage::over(&client, &caller.session_id, Duration::from_secs(10)).await;
    let path = format!("/conversations/{}/transcript", caller.session_id);
    let transcript = client.get(&path).await.expect(200).body;
    let places: Vec<(&str, bool)> = transcript["turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| (t["role"].as_str().unwrap(), t["start_ms"].is_u64()))
        .collect();
    assert_eq!(
        places,
        [("assistant", true), ("user", false), ("assistant", true)]
    );
}

fn check_turn(turn: &Value, sound: &[Vec<i16>; 2]) {
    let track = &sound[usize::from(turn["role"] == "assistant")];
    let text = turn["text"].as_str().unwrap();
    let start = turn["start_ms"].as_u64().expect("every turn was heard");
    let end = turn["end_ms"].as_u64().unwrap();
    let (first, last) = loud(track, start.saturating_sub(150), end + 60);
    println!(
        "{:9} {text:30} start_ms {start:6}, heard at {first:6}",
        turn["role"].as_str().unwrap()
    );
    assert!(
        first.abs_diff(start) <= 20,
        "{text}: heard from {first}, told {start}"
    );
    let Some(after) = turn["interrupted_after_ms"].as_u64() else {
        assert_eq!(turn["interrupted"], false);
        assert_eq!(turn["estimated_text_spoken"], Value::Null);
        return;
    };
    println!(
        "          interrupted_after_ms {after}, heard for {}",
        last - first
    );
    assert!(
        (last - first).abs_diff(after) <= 20,
        "{text}: heard for {} ms, told {after}",
        last - first
    );
    let spoken = turn["estimated_text_spoken"].as_str().unwrap();
    assert!(
        text.starts_with(spoken) && !spoken.is_empty() && spoken.len() < text.len(),
        "{spoken:?} of {text:?}"
    );
}

/// The first and the last loud sample in a part of a track, ms.
fn loud(track: &[i16], from_ms: u64, to_ms: u64) -> (u64, u64) {
    let (from, to) = (
        from_ms as usize * 16,
        (to_ms as usize * 16).min(track.len()),
    );
    let is_loud = |sample: &i16| sample.unsigned_abs() > 500;
    let first = track[from..to].iter().position(is_loud);
    let last = track[from..to].iter().rposition(is_loud);
    let (first, last) = first.zip(last).unwrap_or_else(|| {
        panic!("nothing sounds from {from_ms} to {to_ms} ms");
    });
    (from_ms + first as u64 / 16, from_ms + last as u64 / 16)
}

/// The tape of the call, replayed: the model was told just what was heard of the cut reply.
fn check_next_request(server: &Server, id: &str, turn: &Value) {
    let tape = tape_of(&server.data, id).expect("a tape beside the recording");
    let replay = media::tape::replay(&std::fs::read(tape).unwrap()).unwrap();
    assert!(replay.difference.is_none(), "{:?}", replay.difference);
    assert!(replay.ended);
    let mut requests = replay.outputs.iter().filter_map(|line| {
        let (_, request) = line.split_once("llm start ")?.1.split_once(' ')?;
        serde_json::from_str::<Value>(request).ok()
    });
    let last = requests.next_back().expect("the model was asked");
    let messages = last["messages"].as_array().unwrap();
    let own = messages.iter().filter(|m| m["role"] == "assistant");
    let own: Vec<&Value> = own.map(|message| &message["content"]).collect();
    let greeting = json!("Hello, this is the test line.");
    let heard = [
        &greeting,
        &json!("hello there"),
        &turn["estimated_text_spoken"],
    ];
    assert_eq!(own, heard, "{last}");
}

fn tape_of(folder: &Path, id: &str) -> Option<PathBuf> {
    let plain = id.replace('-', "");
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() {
            if let Some(found) = tape_of(&path, id) {
                return Some(found);
            }
        } else if name.ends_with(".tape") && (name.contains(id) || name.contains(&plain)) {
            return Some(path);
        }
    }
    None
}

/// The parts of each answer's delay follow on one another and add up; a socket has none of the
/// network's.
fn check_latency(turns: &[Value]) {
    let answers: Vec<&Value> = turns.iter().filter(|t| t["latency"].is_object()).collect();
    assert!(answers.len() >= 3, "{turns:#?}");
    for turn in answers {
        let parts = turn["latency"]["contributions"].as_array().unwrap();
        let sum: f64 = parts
            .iter()
            .map(|p| p["duration_ms"].as_f64().unwrap())
            .sum();
        let whole = turn["latency"]["response_ms"].as_f64().unwrap();
        assert!((sum - whole).abs() < 0.01, "{}", turn["latency"]);
        assert_eq!(turn["latency"]["network_rtt_ms"], 0);
    }
}
