//! Whether the agent of a call was ever heard, heard anything, and had an answer: where it never did, and a provider
//! failed, the call is no success. Pure.

use serde_json::Value;

/// Louder than this is sound: −50 dBFS.
const AUDIBLE: u16 = 104;

/// What the agent did in a call, as far as its caller can tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Words of the caller were understood.
    pub(super) heard: bool,
    /// A model answered them.
    pub(super) answered: bool,
    /// Some sound of the agent came.
    pub(super) spoke: bool,
}

impl Outcome {
    /// Takes it from the transcript, for a protocol that carries no text.
    pub(super) fn read(&mut self, turns: &[Value]) {
        let is_speech = |turn: &Value| turn["role"] == "user" && turn["source"] == "speech";
        self.heard |= turns.iter().any(is_speech);
        self.answered |= turns.iter().any(|turn| is_of_model(&turn["latency"]));
    }

    /// What the agent could not do in the whole call because its providers failed, of the call's diagnostics. A part
    /// that failed and then worked, or whose fallback did, is no reason.
    pub(super) fn unserved(&self, diagnostics: &Value) -> Option<String> {
        let errors = diagnostics["errors"].as_array()?;
        let failed = |stage: &str| errors.iter().any(|error| error["stage"] == stage);
        let why = if !self.heard && failed("recogniser") {
            "the agent understood nothing: its recogniser failed"
        } else if !self.answered && failed("model") {
            "the agent never had an answer: its model failed"
        } else if !self.spoke && failed("voice") {
            "the agent was never heard: its voice failed"
        } else {
            return None;
        };
        Some(why.to_owned())
    }
}

/// Whether a turn's latency is that of a model's answer.
pub(super) fn is_of_model(latency: &Value) -> bool {
    latency["llm_ttft_ms"].is_u64()
}

/// Whether there is anything to hear.
pub(super) fn is_audible(samples: &[i16]) -> bool {
    samples.iter().any(|sample| sample.unsigned_abs() > AUDIBLE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_that_failed_all_the_time_is_why_a_call_is_no_success() {
        let told = |stage| json!({"errors": [{"source": "provider", "stage": stage}]});
        for (stage, did) in [
            ("recogniser", "understood nothing"),
            ("model", "never had an answer"),
            ("voice", "never heard"),
        ] {
            let why = Outcome::default().unserved(&told(stage));
            assert!(why.is_some_and(|why| why.contains(did)), "{stage}");
            let worked = Outcome {
                heard: true,
                answered: true,
                spoke: true,
            };
            assert_eq!(worked.unserved(&told(stage)), None);
        }
        let quiet = json!({"errors": [{"source": "call", "message": "x", "stage": null}]});
        assert_eq!(Outcome::default().unserved(&quiet), None);
    }

    #[test]
    fn a_transcript_tells_what_the_socket_does_not() {
        let mut outcome = Outcome::default();
        outcome.read(&[
            json!({"role": "assistant", "source": "speech", "latency": null}),
            json!({"role": "assistant", "source": "speech", "latency": {"response_ms": 900, "llm_ttft_ms": null}}),
        ]);
        assert!(!outcome.heard && !outcome.answered);
        outcome.read(&[
            json!({"role": "user", "source": "speech", "latency": null}),
            json!({"role": "assistant", "source": "speech", "latency": {"response_ms": 900, "llm_ttft_ms": 40}}),
        ]);
        assert!(outcome.heard && outcome.answered);
    }
}
