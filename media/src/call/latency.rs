//! Where the time of a turn went: from the caller's last voiced sample to the agent's first audible
//! one, in parts that touch and add up.

use std::time::Duration;

use super::record::{Contribution, Latency, Owner, Speculative};
use crate::time::{Samples, Time};

/// What happened on the way to a reply's first sound, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// The caller's last voiced sample.
    pub(super) voice_end: Option<Time>,
    /// How long that had waited in the jitter buffer before it was heard.
    pub(super) voice_held: Duration,
    /// The configured silence that ends the turn, and the part of it that makes a voice stopped.
    pub(super) endpoint: Duration,
    pub(super) voice_stop: Duration,
    pub(super) committed: Option<Time>,
    pub(super) asked: Option<Time>,
    pub(super) first_word: Option<Time>,
    pub(super) first_clause: Option<Time>,
    pub(super) spoken: Option<Time>,
    pub(super) first_audio: Option<Time>,
    pub(super) tools: Duration,
    pub(super) attempts: u32,
    pub(super) speculative: bool,
    pub(super) steps: Vec<(&'static str, Owner, Time)>,
}

impl Marks {
    /// The part of the way called `key` ended at `at`.
    pub(super) fn step(&mut self, key: &'static str, owner: Owner, at: Time) {
        // A reply with many tools has as many parts; none is worth unbounded memory.
        if self.steps.len() < 64 {
            self.steps.push((key, owner, at));
        }
    }

    /// The account of a reply whose first audible sample is played at `heard`. `None`: it answers
    /// nobody's voice.
    pub(super) fn latency(&self, heard: Time, trimmed: u64) -> Option<Latency> {
        let zero = self.voice_end?;
        let committed = self.committed?;
        let ms = |at: Time| (((at - zero).as_micros() + 500) / 1000) as u64;
        let response_ms = ms(heard);
        let mut contributions: Vec<Contribution> = Vec::with_capacity(self.steps.len() + 5);
        let mut reached = 0;
        let mut part = |key: &str, owner: Owner, until: u64| {
            let until = until.min(response_ms);
            if until > reached {
                let duration_ms = until - reached;
                contributions.push(Contribution {
                    key: key.to_owned(),
                    owner,
                    start_ms: reached,
                    duration_ms,
                });
                reached = until;
            }
        };
        let configured = (zero + self.endpoint).min(committed);
        part(
            "vad_hangover",
            Owner::Setting,
            ms((zero + self.voice_stop).min(configured)),
        );
        part("endpoint", Owner::Setting, ms(configured));
        part("stt_final", Owner::Stt, ms(committed));
        for &(key, owner, at) in &self.steps {
            part(key, owner, ms(at));
        }
        part("playout_buffer", Owner::Engine, response_ms);
        let between = |from: Option<Time>, to: Option<Time>| Some((to? - from?).as_millis() as u64);
        let length = |key: &str| {
            contributions
                .iter()
                .filter(|c| c.key == key)
                .map(|c| c.duration_ms)
                .sum()
        };
        Some(Latency {
            response_ms,
            endpoint_ms: ms(committed),
            vad_hangover_ms: length("vad_hangover"),
            stt_final_ms: Some(length("stt_final")),
            llm_ttft_ms: between(self.asked, self.first_word),
            llm_first_clause_ms: between(self.first_word, self.first_clause),
            tool_ms: self.tools.as_millis() as u64,
            rag_ms: 0,
            tts_ttfb_ms: between(self.spoken, self.first_audio),
            tts_leading_silence_ms: Samples(trimmed).ms(),
            playout_buffer_ms: length("playout_buffer"),
            network_rtt_ms: 0,
            jitter_buffer_ms: ((self.voice_held.as_micros() + 500) / 1000) as u64,
            speculative: Speculative {
                attempts: self.attempts,
                used: self.speculative,
            },
            contributions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contributions_touch_and_sum_to_the_response() {
        let at = |ms: u64| Time::from_micros(ms * 1000 + 333);
        let mut marks = Marks {
            voice_end: Some(at(1000)),
            endpoint: Duration::from_millis(400),
            voice_stop: Duration::from_millis(200),
            committed: Some(at(1450)),
            ..Marks::default()
        };
        marks.step("llm_ttft", Owner::Llm, at(1300));
        marks.step("llm_first_clause", Owner::Llm, at(1500));
        marks.step("tts_ttfb", Owner::Tts, at(1580));
        let latency = marks.latency(at(1600), 160).unwrap_or_default();
        assert_eq!(latency.response_ms, 600);
        let mut reached = 0;
        for part in &latency.contributions {
            assert_eq!(part.start_ms, reached);
            reached += part.duration_ms;
        }
        assert_eq!(reached, 600);
        let keys: Vec<&str> = latency
            .contributions
            .iter()
            .map(|c| c.key.as_str())
            .collect();
        assert_eq!(
            keys,
            [
                "vad_hangover",
                "endpoint",
                "stt_final",
                "llm_first_clause",
                "tts_ttfb",
                "playout_buffer"
            ]
        );
    }
}
