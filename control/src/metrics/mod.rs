//! What this process counts, and `GET /metrics`, which tells it to Prometheus.
//!
//! [`table`] names every metric; [`values`] are the counters and histograms that are kept here;
//! [`text`] writes them; [`crate::routes`] reads them and what the engine, the stores and the system tell.

pub mod providers;
pub mod table;
pub mod text;
pub mod values;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use media::call::record::{Owner, Role, Source, Summary, ToolStatus, Turn};

use self::values::{Counts, Timings};

/// The counters of this process that belong to no other part of it.
#[derive(Debug)]
pub struct Metrics {
    pub(crate) http_requests: Counts<3>,
    pub(crate) http_seconds: Timings<1>,
    pub(crate) calls_ended: Counts<2>,
    pub(crate) call_seconds: Timings<0>,
    pub(crate) trunk_failures: Counts<2>,
    pub(crate) admissions: Counts<3>,
    pub(crate) lease_seconds: Timings<1>,
    pub(crate) turns: Counts<2>,
    pub(crate) turn_response: Timings<0>,
    pub(crate) turn_part: Timings<2>,
    pub(crate) interruptions: Counts<0>,
    pub(crate) underruns: Counts<0>,
    pub(crate) tool_calls: Counts<2>,
    pub(crate) tool_seconds: Timings<1>,
    pub(crate) webhook_seconds: Timings<0>,
    webhooks_ended: [AtomicU64; WEBHOOK_ENDS.len()],
}

/// The states that an attempt to deliver an event can end in; the words of the outbox.
const WEBHOOK_ENDS: [&str; 5] = ["delivered", "failed", "exhausted", "unsafe", "skipped"];

/// A step at the lease store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    Acquire,
    Adopt,
}

impl LeaseStep {
    const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Adopt => "adopt",
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            http_requests: Counts::new(&table::HTTP_REQUESTS),
            http_seconds: Timings::new(&table::HTTP_SECONDS),
            calls_ended: Counts::new(&table::CALLS_ENDED),
            call_seconds: Timings::new(&table::CALL_SECONDS),
            trunk_failures: Counts::new(&table::TRUNK_FAILURES),
            admissions: Counts::new(&table::ADMISSIONS),
            lease_seconds: Timings::new(&table::LEASE_SECONDS),
            turns: Counts::new(&table::TURNS),
            turn_response: Timings::new(&table::TURN_RESPONSE),
            turn_part: Timings::new(&table::TURN_PART),
            interruptions: Counts::new(&table::INTERRUPTIONS),
            underruns: Counts::new(&table::UNDERRUNS),
            tool_calls: Counts::new(&table::TOOL_CALLS),
            tool_seconds: Timings::new(&table::TOOL_SECONDS),
            webhook_seconds: Timings::new(&table::WEBHOOK_SECONDS),
            webhooks_ended: Default::default(),
        }
    }
}

impl Metrics {
    /// Counts one answered request.
    pub fn request(
        &self,
        method: &Method,
        route: &'static str,
        status: StatusCode,
        took: Duration,
    ) {
        let status = Cow::Owned(status.as_str().to_owned());
        self.http_requests
            .add([route.into(), method_name(method).into(), status], 1);
        self.http_seconds.observe([route.into()], took);
    }

    /// Counts one step at the lease store.
    pub fn lease(&self, step: LeaseStep, took: Duration) {
        self.lease_seconds.observe([step.name().into()], took);
    }

    /// Counts somebody who got a slot.
    pub fn admitted(&self, step: LeaseStep) {
        self.answered(step, "admitted", None);
    }

    /// Counts somebody who got none, for this reason.
    pub fn refused(&self, step: LeaseStep, reason: &'static str, resource: Option<&'static str>) {
        self.answered(step, reason, resource);
    }

    fn answered(&self, step: LeaseStep, outcome: &'static str, resource: Option<&'static str>) {
        let resource = resource.unwrap_or("none");
        self.admissions
            .add([step.name().into(), outcome.into(), resource.into()], 1);
    }

    /// Counts a call whose end is in the database. `duration_ms`: of one that somebody had joined.
    pub fn call_ended(&self, reason: &str, channel: &str, duration_ms: Option<u64>) {
        let labels = [
            listed(reason, table::END_REASONS).into(),
            listed(channel, table::CHANNELS).into(),
        ];
        self.calls_ended.add(labels, 1);
        if let Some(ms) = duration_ms {
            self.call_seconds.observe([], Duration::from_millis(ms));
        }
    }

    /// Counts a call over a SIP trunk that failed, or that nobody answered, with the final response that
    /// ended it.
    pub fn trunk_failed(&self, direction: &str, code: Option<u32>) {
        let direction = match direction {
            "outbound" => "outbound",
            _ => "inbound",
        };
        let code = match code.filter(|code| (300..700).contains(code)) {
            Some(code) => Cow::Owned(code.to_string()),
            None => Cow::Borrowed("none"),
        };
        self.trunk_failures.add([direction.into(), code], 1);
    }

    /// Counts what only the engine knows of a call that is over.
    pub fn call_over(&self, summary: &Summary) {
        self.interruptions.add([], summary.interruptions.into());
        self.underruns.add([], summary.underruns.into());
    }

    /// Counts one finished turn.
    pub fn turn(&self, turn: &Turn) {
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::HumanAgent => "human_agent",
        };
        let source = match turn.source {
            Source::Speech => "speech",
            Source::Keypad => "keypad",
            Source::Text => "text",
            Source::System => "system",
        };
        self.turns.add([role.into(), source.into()], 1);
        if let Some(latency) = &turn.latency {
            let ms = Duration::from_millis;
            self.turn_response.observe([], ms(latency.response_ms));
            for part in &latency.contributions {
                let key = listed(&part.key, table::PARTS);
                let labels = [key.into(), owner_name(part.owner).into()];
                self.turn_part.observe(labels, ms(part.duration_ms));
            }
        }
        for tool in &turn.tool_calls {
            let kind = match tool.r#type.as_str() {
                "webhook" => "webhook",
                "system" => "system",
                "automation" => "automation",
                _ => "client",
            };
            let status = match tool.status {
                ToolStatus::Ok => "ok",
                ToolStatus::Error => "error",
                ToolStatus::Timeout => "timeout",
                ToolStatus::Canceled => "canceled",
            };
            self.tool_calls.add([kind.into(), status.into()], 1);
            self.tool_seconds
                .observe([kind.into()], Duration::from_millis(tool.duration_ms));
        }
    }

    /// Counts an attempt to deliver an event, by the state that it ended in. One that goes on is not counted.
    pub fn webhook_ended(&self, status: &str) {
        let place = WEBHOOK_ENDS.iter().position(|end| *end == status);
        if let Some(count) = place.and_then(|place| self.webhooks_ended.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many attempts ended in each state that one can end in.
    pub fn webhooks_ended(&self) -> [(&'static str, u64); WEBHOOK_ENDS.len()] {
        std::array::from_fn(|place| {
            let count = self.webhooks_ended[place].load(Ordering::Relaxed);
            (WEBHOOK_ENDS[place], count)
        })
    }

    /// Counts one attempt to deliver an event.
    pub fn webhook_attempt(&self, took: Duration) {
        self.webhook_seconds.observe([], took);
    }
}

/// Who is behind a part of a response; the words of the API.
pub const fn owner_name(owner: Owner) -> &'static str {
    match owner {
        Owner::Engine => "engine",
        Owner::Setting => "setting",
        Owner::Stt => "stt",
        Owner::Llm => "llm",
        Owner::Tool => "tool",
        Owner::Tts => "tts",
        Owner::Transport => "transport",
    }
}

/// The value as it is listed, or `other`, which every such list has.
fn listed(value: &str, values: &'static [&'static str]) -> &'static str {
    values
        .iter()
        .copied()
        .find(|known| *known == value)
        .unwrap_or("other")
}

/// Methods that exist; a client can send any word.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::text::Text;
    use super::*;

    #[test]
    fn what_nobody_listed_is_other_and_makes_no_series_of_its_own() {
        let metrics = Metrics::default();
        for number in 0..1000 {
            metrics.call_ended(&format!("reason {number}"), "websocket", None);
        }
        metrics.call_ended("phrase", "carrier pigeon", Some(2500));
        let mut text = Text::default();
        metrics.calls_ended.write(&mut text);
        metrics.call_seconds.write(&mut text);
        let text = text.finish();
        let samples: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("sidetone_calls_ended_total"))
            .collect();
        assert_eq!(
            samples,
            [
                "sidetone_calls_ended_total{reason=\"other\",channel=\"websocket\"} 1000",
                "sidetone_calls_ended_total{reason=\"phrase\",channel=\"other\"} 1",
            ]
        );
        assert!(text.contains("sidetone_call_seconds_sum 2.5\n"), "{text}");
    }
}
