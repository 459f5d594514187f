//! The telephony vendor's protocol.

use serde_json::{Value, json};

use super::*;

const START: &str = r#"{"event":"start","sequenceNumber":"1","start":{"accountSid":"AC1",
    "streamSid":"MZ1","callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":
    "audio/x-mulaw","sampleRate":8000,"channels":1},"customParameters":{"token":"tk"}},
    "streamSid":"MZ1"}"#;

fn unstarted() -> WsLeg {
    WsLeg::new(Protocol::Telco, AudioFormat::Ulaw8000)
}

fn leg() -> WsLeg {
    let mut leg = unstarted();
    assert_eq!(heard(&mut leg, START), [r#"Started { token: Some("tk") }"#]);
    leg
}

/// 20 ms of audio in the vendor's own shape.
fn media(timestamp: u64) -> String {
    let payload = ulaw(&[0; 160]);
    format!(
        r#"{{"event":"media","sequenceNumber":"3","media":{{"track":"inbound","chunk":"1","timestamp":"{timestamp}","payload":"{payload}"}},"streamSid":"MZ1"}}"#
    )
}

#[test]
fn a_call_in_the_vendors_words() {
    let mut leg = unstarted();
    assert!(!leg.ready());
    for (text, expected) in [
        (
            r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#,
            vec![],
        ),
        (START, vec![r#"Started { token: Some("tk") }"#]),
        (&media(160), vec!["audio 320"]),
        (
            r#"{"event":"dtmf","streamSid":"MZ1","sequenceNumber":"5","dtmf":{"track":"inbound_track","digit":"1"}}"#,
            vec!["Digit('1')"],
        ),
        (
            r#"{"event":"mark","sequenceNumber":"4","streamSid":"MZ1","mark":{"name":"my label"}}"#,
            vec![],
        ),
        (
            r#"{"event":"stop","sequenceNumber":"9","streamSid":"MZ1","stop":{"callSid":"CA1"}}"#,
            vec!["End"],
        ),
    ] {
        assert_eq!(heard(&mut leg, text), expected, "{text}");
    }
    assert!(leg.ready());
}

#[test]
fn audio_of_every_spelling_is_the_same_audio() {
    let sound: Vec<i16> = (0..160).map(|n| (n * 400 - 32_000) as i16).collect();
    let payload = ulaw(&sound);
    let expected = samples(
        &mut leg(),
        &format!(r#"{{"event":"media","media":{{"payload":"{payload}"}}}}"#),
    );
    assert_eq!(expected.len(), 320);
    let slashed = payload.replace('/', "\\/");
    for text in [
        format!(
            r#"{{"event":"media","media":{{"track":"inbound","chunk":2,"timestamp":5,"payload":"{payload}"}},"sequenceNumber":3,"streamSid":"MZ1"}}"#
        ),
        format!(
            r#"{{"streamSid":"MZ1","media":{{"payload":"{payload}","timestamp":"5"}},"event":"media"}}"#
        ),
        format!("{{ \"event\" : \"media\",\n \"media\" : {{ \"payload\" : \"{payload}\" }} }}\n"),
        format!(r#"{{"event":"media","media":{{"payload":"{slashed}","timestamp":5.5}}}}"#),
        format!(
            r#"{{"event":"media","media":{{"payload":"{payload}","timestamp":null,"x":{{}}}}}}"#
        ),
        format!(r#"{{"event":"media","media":{{"payload":"!","payload":"{payload}"}}}}"#),
    ] {
        assert_eq!(samples(&mut leg(), &text), expected, "{text}");
    }
}

#[test]
fn only_the_inbound_track_counts() {
    for track in [r#""outbound""#, r#""other""#, r#""outb\u006fund""#] {
        let text = format!(
            r#"{{"event":"media","media":{{"track":{track},"timestamp":"0","payload":"AAAA"}}}}"#
        );
        assert_eq!(heard(&mut leg(), &text), Vec::<String>::new());
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    for (text, says) in [
        ("", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("{}", "event is missing"),
        (r#"{"event":1}"#, "event must be a string"),
        (r#"{"event":"media"}"#, "media is missing"),
        (
            r#"{"event":"media","media":["inbound","1","2","AAAA"]}"#,
            "media must be an object",
        ),
        (r#"{"event":"media","media":{}}"#, "payload is missing"),
        (
            r#"{"event":"media","media":{"payload":""}}"#,
            "audio is empty",
        ),
        (r#"{"event":"media","media":{"payload":"AAA"}}"#, "base64"),
        (
            r#"{"event":"media","media":{"track":"outbound","payload":"AA\"}}"#,
            "not a JSON object",
        ),
        (r#"{"event":"dtmf"}"#, "dtmf is missing"),
        (r#"{"event":"dtmf","dtmf":{}}"#, "digit is missing"),
        (
            r#"{"event":"dtmf","dtmf":{"digit":"w"}}"#,
            "keypad presses are",
        ),
        (r#"{"event":"mark","mark":{}}"#, "name is missing"),
        (START, "start came twice"),
    ] {
        let found = heard(&mut leg(), text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with("invalid_frame: "), "{text}: {found:?}");
        assert!(found[0].contains(says), "{text}: {found:?}");
    }
    let found = heard(&mut leg(), r#"{"event":"hold"}"#);
    assert_eq!(
        found,
        [r#"unknown_type: messages of type "hold" are not known"#]
    );
}

#[test]
fn before_start_there_is_neither_audio_nor_an_answer() {
    let mut leg = unstarted();
    // However much of it comes, and whatever is in it.
    for _ in 0..20 {
        assert_eq!(heard(&mut leg, &media(0)), [""; 0]);
        let nonsense = r#"{"event":"media","media":"x"}"#;
        assert_eq!(heard(&mut leg, nonsense), [""; 0]);
    }
    let mut out = String::new();
    leg.audio(&mut out, &HEADER, &[0; 320], "t", 0);
    assert!(!leg.mark(&mut out, 320));
    leg.clear(&mut out, &HEADER, &interruption());
    assert!(!leg.event(&mut out, &HEADER, &ServerEvent::Ping { ping_ms: 1 }));
    assert_eq!(out, "");
}

#[test]
fn start_says_which_audio_and_which_stream() {
    for (start, says) in [
        (r#"{"event":"start"}"#, "start is missing"),
        (r#"{"event":"start","start":{}}"#, "streamSid is missing"),
        (
            r#"{"event":"start","start":{"streamSid":"M","mediaFormat":{"encoding":"audio/l16"}}}"#,
            "mediaFormat must be",
        ),
        (
            r#"{"event":"start","start":{"streamSid":"M","mediaFormat":{"sampleRate":16000}}}"#,
            "mediaFormat must be",
        ),
        (
            r#"{"event":"start","start":{"streamSid":"M","mediaFormat":{"channels":2}}}"#,
            "mediaFormat must be",
        ),
    ] {
        let mut leg = unstarted();
        assert!(heard(&mut leg, start)[0].contains(says), "{start}");
        assert!(!leg.ready());
    }
    for start in [
        r#"{"event":"start","start":{"streamSid":"M"}}"#,
        r#"{"event":"start","streamSid":"M","start":{"customParameters":{}}}"#,
        r#"{"event":"start","streamSid":"M","start":{"customParameters":{"token":5},
            "mediaFormat":{"encoding":"AUDIO/PCMU","sampleRate":"8000"}}}"#,
    ] {
        assert_eq!(
            heard(&mut unstarted(), start),
            ["Started { token: None }"],
            "{start}"
        );
    }
}

/// Instead of a loss: the clock tells what is missing.
const RESTART: u64 = u64::MAX;

#[test]
fn lost_audio_is_told_by_its_timestamps() {
    // Each chunk has 20 ms; the timestamps are the vendor's, the answers ms of lost audio.
    for (why, timestamps, lost) in [
        ("whole stream", vec![0, 20, 40, 60], vec![0, 0, 0, 0]),
        ("begins late", vec![3000, 3020], vec![0, 0]),
        ("one lost", vec![0, 40, 60], vec![0, 20, 0]),
        ("three lost", vec![100, 180, 200], vec![0, 60, 0]),
        (
            "a clock that jitters",
            vec![0, 31, 45, 58, 80],
            vec![0, 0, 0, 0, 0],
        ),
        (
            "late once, not paid twice",
            vec![0, 50, 40, 60, 80, 100],
            vec![0, 30, 0, 0, 0, 0],
        ),
        (
            "a slow leak adds up",
            vec![0, 28, 56, 84],
            vec![0, 0, 0, 24],
        ),
        ("ten seconds", vec![0, 10_020], vec![0, 10_000]),
        (
            "over ten seconds: a new timeline",
            vec![0, 10_021, 10_041],
            vec![0, RESTART, 0],
        ),
        (
            "back to zero: a new timeline",
            vec![5000, 0, 20, 60],
            vec![0, RESTART, 0, 20],
        ),
        (
            "the end of time",
            vec![0, u64::MAX, u64::MAX, 20, 40],
            vec![0, RESTART, 0, RESTART, 0],
        ),
    ] {
        let mut leg = leg();
        for (timestamp, lost) in timestamps.into_iter().zip(lost) {
            let mut expected = vec!["audio 320".to_owned()];
            match lost {
                0 => {}
                RESTART => expected.insert(0, "Unplaced".to_owned()),
                lost => expected.insert(0, format!("Lost {{ samples: {} }}", lost * 16)),
            }
            assert_eq!(
                heard(&mut leg, &media(timestamp)),
                expected,
                "{why}: {timestamp}"
            );
        }
    }
}

#[test]
fn audio_without_timestamps_takes_its_place_behind_what_came() {
    let mut leg = leg();
    let plain = format!(
        r#"{{"event":"media","media":{{"payload":"{}"}}}}"#,
        ulaw(&[0; 160])
    );
    assert_eq!(heard(&mut leg, &plain), ["audio 320"]);
    assert_eq!(heard(&mut leg, &media(0)), ["audio 320"]);
    assert_eq!(heard(&mut leg, &plain), ["audio 320"]);
    assert_eq!(heard(&mut leg, &media(40)), ["audio 320"]);
    assert_eq!(
        heard(&mut leg, &media(80)),
        ["Lost { samples: 320 }", "audio 320"]
    );
}

#[test]
fn a_refused_message_does_not_move_the_timeline() {
    let mut leg = leg();
    heard(&mut leg, &media(0));
    let junk = r#"{"event":"media","media":{"timestamp":"9000","payload":"AAA"}}"#;
    assert!(heard(&mut leg, junk)[0].starts_with("invalid_frame"));
    assert_eq!(heard(&mut leg, &media(20)), ["audio 320"]);
}

#[test]
fn what_goes_to_the_vendor() {
    let mut leg = unstarted();
    heard(
        &mut leg,
        r#"{"event":"start","start":{"streamSid":"M\"Z"}}"#,
    );
    let mut messages = Vec::new();
    let mut out = String::new();
    leg.audio(&mut out, &HEADER, &[0; 300], "t", 0);
    messages.push(std::mem::take(&mut out));
    assert!(leg.mark(&mut out, 3200));
    messages.push(std::mem::take(&mut out));
    leg.clear(&mut out, &HEADER, &interruption());
    messages.push(std::mem::take(&mut out));
    let messages: Vec<Value> = messages
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    assert_eq!(
        messages,
        [
            json!({"event": "media", "streamSid": "M\"Z", "media": {"payload": ulaw(&[0; 160])}}),
            json!({"event": "mark", "streamSid": "M\"Z", "mark": {"name": "0:3200"}}),
            json!({"event": "clear", "streamSid": "M\"Z"}),
        ]
    );
    assert_eq!(messages[0]["media"]["payload"].as_str().unwrap().len(), 216);
}

#[test]
fn marks_of_an_older_epoch_prove_nothing() {
    let mut leg = leg();
    let mut out = String::new();
    for sent in [3200, 6400, 9600] {
        leg.mark(&mut out, sent);
    }
    assert_eq!(echo(&mut leg, "0:3200"), ["Marked { sent: 3200 }"]);
    leg.clear(&mut out, &HEADER, &interruption());
    // The vendor echoes all that was pending at once.
    for name in ["0:6400", "0:9600", "1:9600", "1:0x", "2:100"] {
        assert_eq!(echo(&mut leg, name), Vec::<String>::new(), "{name}");
    }
    leg.mark(&mut out, 12_800);
    assert_eq!(echo(&mut leg, "0:9600"), Vec::<String>::new());
    assert_eq!(echo(&mut leg, "1:12800"), ["Marked { sent: 12800 }"]);
}

#[test]
fn an_echo_beyond_what_was_sent_or_behind_what_was_echoed_is_ignored() {
    let mut leg = leg();
    let mut out = String::new();
    leg.mark(&mut out, 3200);
    leg.mark(&mut out, 6400);
    for name in [
        "0:6401",
        "0:18446744073709551615",
        "0:18446744073709551616",
        ":",
        "0:",
        "0:-1",
    ] {
        assert_eq!(echo(&mut leg, name), Vec::<String>::new(), "{name}");
    }
    assert_eq!(echo(&mut leg, "0:6400"), ["Marked { sent: 6400 }"]);
    assert_eq!(echo(&mut leg, "0:3200"), Vec::<String>::new());
}

fn echo(leg: &mut WsLeg, name: &str) -> Vec<String> {
    heard(
        leg,
        &format!(r#"{{"event":"mark","streamSid":"MZ1","mark":{{"name":"{name}"}}}}"#),
    )
}

fn interruption() -> Interruption<'static> {
    Interruption {
        up_to_event_id: 0,
        turn_id: "t",
        spoken_ms: 0,
        estimated_text_spoken: "",
    }
}
