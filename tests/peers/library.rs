//! `sidetone.js` over WebRTC in a real browser, against a peer in the same page: offer, candidates, events,
//! tools, mute, levels, and a new path for the same call, also where the network is away for a while; what a page is told
//! when sound is refused, when there is no microphone, when a call fails, when it is left, when it hangs up before the call
//! is live or where nobody answers any more, and when the microphone is taken away.

use kit::server::Server;
use serde_json::{Value, json};

use super::browser::speak;
use super::devtools::Browser;
use super::page::Page;

#[tokio::test]
async fn a_call_from_a_page_over_webrtc() {
    let server = Server::scripted().await;
    let microphone = server.data.join("microphone.wav");
    speak(
        &microphone,
        &"one two three four five six seven eight nine ten, and on it goes. ".repeat(5),
        0.0,
    );
    let mut page = Browser::open(&microphone).await;
    let told = called(&mut page, &server).await;
    went_well(&told);
    // Who hangs up while the path is made anew needs no request.
    assert_eq!(told["lost"]["asked"], json!([]));
    assert_eq!(page.troubles, Vec::<String>::new());
}

/// What the page of `library.js` tells of its calls.
pub(crate) async fn called(page: &mut impl Page, server: &Server) -> Value {
    page.goto(&format!("{}/", server.url)).await;
    let script = include_str!("library.js");
    // It takes longer than one answer of the browser may.
    page.eval(&format!(
        "void ({script})().then((all) => {{ window.told = all; }}, (error) => {{ window.told = {{ failed: error.stack }}; }})"
    ))
    .await;
    page.until("window.told", 90).await;
    page.eval("told").await
}

pub(crate) fn went_well(told: &Value) {
    assert_eq!(told["failed"], Value::Null, "{told}");

    // The token of the connect answer is used from then on; optional events are asked for with the offer.
    let offer = "POST offer?events=tool_call,vad";
    assert_eq!(told["asked"], json!(["POST connect", offer, offer]));
    assert_eq!(
        told["credentials"],
        json!(["none", "Bearer for-this-session"])
    );
    assert!(told["candidates"].as_u64() > Some(0), "{told}");
    assert_eq!(
        told["events"],
        json!([
            "connecting",
            "live",
            "vad true",
            "ended",
            "ended caller_hangup null"
        ])
    );
    let mut got: Vec<String> = told["got"]
        .as_array()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    got.sort();
    let mut expected = [
        json!({"type": "pong", "event_id": 7}),
        json!({"type": "tool_result", "tool_call_id": "t", "result": 3, "is_error": false}),
        json!({"type": "tool_result", "tool_call_id": "x", "result": "no", "is_error": true}),
        json!({"type": "tool_result", "tool_call_id": "h", "result": "the result is larger than 60 KiB", "is_error": true}),
        json!({"type": "dtmf", "digits": "1#"}),
        json!({"type": "user_message", "text": "hello"}),
        json!({"type": "contextual_update", "text": "at the till"}),
        json!({"type": "end"}),
    ]
    .map(|message| message.to_string());
    expected.sort();
    assert_eq!(got, expected);
    assert_eq!(
        (&told["restarted"], &told["measured"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(told["state"], "ended");

    // The far side hears the microphone, nothing of it while it is muted, and then hears it again.
    let levels: [f64; 3] = serde_json::from_value(told["levels"].clone()).unwrap();
    let [before, muted, after] = levels;
    assert!(before > 0.05 && muted < 0.001 && after > 0.05, "{levels:?}");

    // A call that the browser lets nobody hear begins and is heard from the first gesture; one that failed says so;
    // one whose page is left is over.
    assert_eq!(told["refused"], true, "{told}");
    assert!(told["gestures"].as_u64() > Some(0), "{told}");
    assert_eq!(
        told["ends"],
        json!([
            "provider_error provider_error",
            "null null",
            "caller_hangup null",
            "caller_hangup null",
            "caller_hangup null"
        ])
    );
    let lost = (&told["lost"]["soon"], &told["lost"]["reconnecting"]);
    assert_eq!(lost, (&json!(true), &json!("reconnecting")));
    let refusals = ["No new path was made: The token has expired"];
    let goes_on = json!({"refusals": refusals, "state": "live", "ends": ["caller_hangup null"]});
    assert_eq!(told["goesOn"], goes_on);
    assert_eq!(
        told["enabled"],
        json!([false, false, false, true, "live", true])
    );
    // Who has no microphone says that they only listen, and nobody is taken for gone whose microphone gives nothing yet.
    assert_eq!(told["listens"], "recvonly");
    let alive = told["alive"].as_str();
    assert!(alive == Some("sound") || alive == Some("pong"), "{told}");
    assert_eq!(
        told["thrown"],
        json!(["SidetoneError", "error", "InvalidStateError"])
    );
    assert_eq!(told["left"], "ended");
    assert_eq!(
        told["agentStates"],
        json!(["listening", "thinking", "listening"])
    );
    assert_eq!(told["replaced"], true, "{told}");
    // Who hangs up before the call is live has none: the session is given back, the microphone let go.
    let ended = "connecting,ended";
    assert_eq!(
        told["hungUp"],
        json!([
            ["microphone", "ended", ended, ""],
            ["connect", "ended", ended, "POST connect,POST end"],
            ["connect", "ended", ended, "POST connect,POST end"],
            ["offer", "ended", ended, "POST connect,POST offer,POST end"],
            ["socket", "ended", ended, "POST connect,POST end"],
        ])
    );
    assert_eq!(told["silent"], true, "{told}");
    assert_eq!(told["flocks"], json!([64, 64, 22]));
}
