//! An interruption on the wire: how soon the agent is stopped, and that nothing of what it was saying
//! comes after.

use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::socket::{Caller, native, telco};
use media::config::VadKind;
use media::frame::FRAME;
use media::vad::Vad;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stage;

/// Calls a case.
const TIMES: usize = 4;

/// How soon an interruption has to be told, ms.
const SOON: f64 = 40.0;

#[tokio::test]
async fn the_agent_is_stopped_within_40_ms_of_the_deciding_frame() {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    for seconds in [0.0, 0.3, 0.6] {
        let fields = json!({
            "first_message": stage::long_greeting(), "barge_in_min_speech_secs": seconds,
        });
        let agent = stage::agent(&client, fields).await;
        for (connect, stop) in [(native(&agent), "interruption"), (telco(&agent), "clear")] {
            let calls = (0..TIMES).map(|_| interrupted(&client, &connect, stop, seconds));
            let mut delays = join_all(calls).await;
            let median = stage::median(&mut delays);
            let worst = delays[delays.len() - 1];
            println!("{seconds} s of speech, {stop}: median {median:.1} ms, worst {worst:.1} ms");
            assert!(median <= SOON, "{seconds} s, {stop}: {delays:?} ms");
        }
    }
}

/// Interrupts a greeting; the time between the frame that decided and the word to stop, ms.
async fn interrupted(client: &Client, connect: &Value, stop: &str, seconds: f64) -> f64 {
    let mut caller = Caller::call(client, connect).await;
    let silence = vec![0; 600 * 16];
    let speech = stage::voice(900);
    caller.speak(&silence).await;
    caller.speak(&speech).await;
    let at = |message: &(Instant, Value)| {
        (message.1["type"] == stop || message.1["event"] == stop).then_some(message.0)
    };
    let stopped = caller.messages.iter().find_map(at);
    let stopped = stopped.unwrap_or_else(|| panic!("not interrupted after {seconds} s"));
    let said: Vec<i16> = [silence, speech].concat();
    let decided = caller.sent[deciding(&said, seconds)];
    assert!(
        stopped >= decided,
        "interrupted before {seconds} s of speech"
    );

    check_nothing_follows(&mut caller, stop, stopped).await;
    caller.hang_up().await;
    (stopped - decided).as_secs_f64() * 1000.0
}

/// Nothing of the reply comes after: the caller still speaks, so the agent is silent altogether.
async fn check_nothing_follows(caller: &mut Caller, stop: &str, stopped: Instant) {
    caller.speak(&stage::voice(200)).await;
    let place = caller
        .messages
        .iter()
        .position(|(at, message)| {
            *at == stopped && (message["type"] == stop || message["event"] == stop)
        })
        .unwrap();
    let (before, after) = caller.messages.split_at(place);
    if stop == "clear" {
        let late = after
            .iter()
            .find(|(_, message)| message["event"] == "media");
        assert!(late.is_none(), "{late:?}");
        return;
    }
    let interruption = &after[0].1;
    let late = after
        .iter()
        .find(|(_, m)| m["type"] == "audio" && m["turn_id"] == interruption["turn_id"]);
    assert!(late.is_none(), "{late:?}");
    let last = before.iter().rev().find(|(_, m)| m["type"] == "audio");
    assert_eq!(interruption["up_to_event_id"], last.unwrap().1["event_id"]);
    let heard = (stopped - caller.connected).as_secs_f64() * 1000.0;
    let told = interruption["spoken_ms"].as_f64().unwrap();
    assert!(
        (heard - told).abs() < 150.0,
        "heard for {heard} ms, told {told}"
    );
}

/// The frame with which so much of the voice has been heard: the detector of the server, told the
/// same sound.
fn deciding(sound: &[i16], seconds: f64) -> usize {
    let mut vad = Vad::new(VadKind::Energy);
    let mut voiced = 0;
    for (number, frame) in sound.as_chunks::<FRAME>().0.iter().enumerate() {
        voiced += usize::from(vad.frame(frame));
        if voiced > 0 && Duration::from_millis(voiced as u64 * 20).as_secs_f64() >= seconds {
            return number;
        }
    }
    panic!("the sound has less than {seconds} s of voice");
}
