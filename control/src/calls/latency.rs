//! The summary of a call's turn times, pure: percentiles over its agent turns.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The parts of a turn's `latency` that are summed up, ms each.
const KEYS: [&str; 13] = [
    "response_ms",
    "endpoint_ms",
    "vad_hangover_ms",
    "stt_final_ms",
    "llm_ttft_ms",
    "llm_first_clause_ms",
    "tool_ms",
    "rag_ms",
    "tts_ttfb_ms",
    "tts_leading_silence_ms",
    "playout_buffer_ms",
    "network_rtt_ms",
    "jitter_buffer_ms",
];

/// Percentiles of one key, ms (nearest rank).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Spread {
    /// Half of the turns took at most this long.
    p50: u64,
    /// 90 % of the turns took at most this long.
    p90: u64,
    /// 95 % of the turns took at most this long.
    p95: u64,
    /// 99 % of the turns took at most this long.
    p99: u64,
    /// The longest.
    max: u64,
    /// How many turns measured it.
    count: usize,
}

/// `{"response_ms":{p50,p90,p95,p99,max,count},…}` over the turns that have a `latency`; `None` when
/// none has. A key that no turn measured is left out.
pub fn summarise(turns: &[Value]) -> Option<Value> {
    let latencies: Vec<&Value> = turns
        .iter()
        .filter_map(|turn| turn.get("latency"))
        .filter(|latency| latency.is_object())
        .collect();
    let entries: serde_json::Map<String, Value> = KEYS
        .iter()
        .filter_map(|key| {
            let mut values: Vec<u64> = latencies
                .iter()
                .filter_map(|latency| latency.get(key)?.as_u64())
                .collect();
            let spread = spread(&mut values)?;
            Some(((*key).to_owned(), serde_json::to_value(spread).ok()?))
        })
        .collect();
    (!entries.is_empty()).then_some(Value::Object(entries))
}

fn spread(values: &mut [u64]) -> Option<Spread> {
    values.sort_unstable();
    let max = *values.last()?;
    let rank = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
    Some(Spread {
        p50: rank(50),
        p90: rank(90),
        p95: rank(95),
        p99: rank(99),
        max,
        count: values.len(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]

    use serde_json::json;

    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let turns: Vec<Value> = (1..=100)
            .rev()
            .map(|ms| json!({"latency": {"response_ms": ms, "stt_final_ms": null}}))
            .chain([json!({"latency": null}), json!({"role": "user"})])
            .collect();
        let summary = summarise(&turns).unwrap();
        assert_eq!(
            summary,
            json!({"response_ms": {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100, "count": 100}})
        );
    }

    #[test]
    fn one_turn_is_every_percentile() {
        let summary = summarise(&[json!({"latency": {"response_ms": 7}})]).unwrap();
        assert_eq!(
            summary["response_ms"],
            json!({"p50": 7, "p90": 7, "p95": 7, "p99": 7, "max": 7, "count": 1})
        );
    }

    #[test]
    fn a_call_without_answers_has_no_summary() {
        assert_eq!(summarise(&[]), None);
        assert_eq!(summarise(&[json!({"latency": null})]), None);
    }
}
