//! Anything at all: no panic, no growth, and the scanner reads what the parser reads.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// Messages to spoil.
const MODELS: &[&str] = &[
    r#"{"type":"audio","audio":"AAEC/wQFBgc="}"#,
    r#"{"audio":"AAEC/wQFBgc=","n":12,"type":"audio"}"#,
    r#"{"type":"dtmf","digits":"12#"}"#,
    r#"{"type":"contextual_update","text":"a \"b\" \u00e9"}"#,
    r#"{"type":"tool_result","tool_call_id":"t","result":{"a":[1,2.5,null]},"is_error":false}"#,
    r#"{"type":"playback","event_id":3,"played_ms":120}"#,
    r#"{"event":"media","sequenceNumber":"3","media":{"track":"inbound","chunk":"1","timestamp":"40","payload":"fn5+/w=="},"streamSid":"MZ1"}"#,
    r#"{"event":"media","media":{"payload":"fn5+/w==","timestamp":60,"track":"outbound"}}"#,
    r#"{"event":"start","start":{"streamSid":"MZ1","customParameters":{"token":"t"}}}"#,
    r#"{"event":"mark","mark":{"name":"0:320"}}"#,
    r#"{"event":"dtmf","dtmf":{"digit":"1"}}"#,
];

/// What a message is spoilt with, or cut at.
const SPLINTERS: &[&str] = &[
    "",
    "\"",
    "\\",
    "\\\"",
    "\\u0041",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    " ",
    "\n",
    "0",
    "-",
    "1e999",
    "null",
    "true",
    "=",
    "/",
    "\\/",
    "\u{0}",
    "é",
    "🙂",
    "\"type\":\"audio\",",
    "\"payload\":\"AA==\",",
];

fn spoilt() -> impl Strategy<Value = String> {
    let cut = (any::<Index>(), 0..4_usize, select(SPLINTERS));
    (select(MODELS), proptest::collection::vec(cut, 0..4)).prop_map(|(model, cuts)| {
        let mut text: Vec<char> = model.chars().collect();
        for (at, removed, put) in cuts {
            let at = at.index(text.len() + 1);
            let end = (at + removed).min(text.len());
            text.splice(at..end, put.chars());
        }
        text.into_iter().collect()
    })
}

fn legs() -> [WsLeg; 3] {
    let mut started = WsLeg::new(Protocol::Telco, AudioFormat::Ulaw8000);
    heard(
        &mut started,
        r#"{"event":"start","start":{"streamSid":"MZ1"}}"#,
    );
    [
        WsLeg::new(Protocol::Native, AudioFormat::Pcm16000),
        WsLeg::new(Protocol::Native, AudioFormat::Ulaw8000),
        started,
    ]
}

/// What the peer's code finds when it is given the message.
fn found(read: impl FnOnce(Sink<'_>) -> Result<(), Refusal>) -> (Vec<String>, Option<Refusal>) {
    let mut events = Vec::new();
    let refusal = read(&mut |event| match event {
        LegEvent::Audio(samples) => events.push(format!("{samples:?}")),
        other => events.push(told(&other)),
    });
    (events, refusal.err())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn scanner_and_parser_agree(text in spoilt()) {
        for (mut scanning, mut parsing) in legs().into_iter().zip(legs()) {
            let (scanned, parsed) = match (&mut scanning.peer, &mut parsing.peer) {
                (Dialect::Native(scanning), Dialect::Native(parsing)) => (
                    found(|sink| scanning.receive(&text, sink)),
                    found(|sink| parsing.receive_any(&text, sink)),
                ),
                (Dialect::Telco(scanning), Dialect::Telco(parsing)) => (
                    found(|sink| scanning.receive(&text, sink)),
                    found(|sink| parsing.receive_any(&text, sink)),
                ),
                _ => unreachable!("both lists have the same order"),
            };
            prop_assert_eq!(scanned, parsed, "{}", text);
        }
    }

    #[test]
    fn any_sequence_of_messages_is_taken(
        texts in proptest::collection::vec(prop_oneof![spoilt(), any::<String>()], 1..20),
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        for mut leg in legs() {
            for text in &texts {
                prop_assert!(heard(&mut leg, text).len() <= 64);
            }
            let mut refused = 0;
            leg.receive_binary(&bytes, &mut |_| refused += 1);
            prop_assert_eq!(refused, 1);
        }
    }
}
