//! The filler line that is said while the answer takes long. Times as in the other rows.

use std::time::Duration;

use kit::virtual_call::{VirtualCall, config};
use media::config::AgentConfig;
use media::speech::script::Script;

use crate::rows::{agent, heard};

#[test]
fn a_filler_that_ends_within_a_frame_is_heard_to_its_end_while_the_voice_is_awaited() {
    let agent = AgentConfig {
        soft_timeout_seconds: Some(1.0),
        soft_timeout_message: "Let me look.".into(),
        ..agent()
    };
    // The filler is 12 characters, 30.6 frames long, and what follows it takes another 1.5 s.
    let script = Script {
        llm_delay: Duration::from_millis(1500),
        tts_delay: Duration::from_millis(1500),
        character: Duration::from_millis(51),
        ..heard(&["I want to"])
    };
    let call = VirtualCall::new(config(agent), script, &[(1000, 2000)]).run(12_000);
    let turns = call.agent_turns();
    let texts: Vec<&str> = turns.iter().map(|t| t.text.as_str()).collect();
    assert_eq!(texts, ["Let me look.", "Hello there."]);
    let (start, end) = (turns[0].start_ms.unwrap(), turns[0].end_ms.unwrap());
    assert_eq!(end - start, 612);
    assert!(!turns[0].interrupted);
    assert!(turns[1].start_ms.unwrap() > end + 700, "{turns:#?}");
}

#[test]
fn a_filler_stops_for_the_apology_when_the_voice_fails_at_the_answer() {
    let agent = AgentConfig {
        soft_timeout_seconds: Some(1.0),
        soft_timeout_message: "Let me look that up for you, it takes a moment.".into(),
        ..agent()
    };
    let script = Script {
        llm_delay: Duration::from_millis(1500),
        broken_segments: ["Hello there.".to_owned()].into(),
        ..heard(&["I want to"])
    };
    let call = VirtualCall::new(config(agent), script, &[(1000, 2000)]).run(16_000);
    let turns = call.agent_turns();
    assert_eq!(turns.len(), 2);
    assert!(turns[0].interrupted && turns[1].text.starts_with("I am sorry"));
    assert_eq!(call.messages("interruption").len(), 1);
}
