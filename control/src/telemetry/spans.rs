//! From a call's turns and its end to spans. Pure: the same call gives the same spans, ids included.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use media::call::record::{Role, Source, Summary, ToolRecord, ToolStatus, Turn};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use uuid::Uuid;

use super::parent::TraceParent;
use crate::metrics::owner_name;
use crate::secret;

/// What the spans of a call say of it.
#[derive(Clone, Debug)]
pub struct About {
    pub call: Uuid,
    pub account: String,
    pub agent: String,
    pub channel: String,
    pub direction: String,
}

/// The trace of one call that goes on.
#[derive(Debug)]
pub struct CallTrace {
    about: About,
    trace: TraceId,
    root: SpanId,
    parent: Option<SpanId>,
    /// Wall time of the sample clock's zero.
    began: SystemTime,
    /// Spans so far: each id is made from its number.
    spans: u64,
    /// Where the last turn ended, ms: for one whose times were not measured.
    reached: u64,
}

impl CallTrace {
    /// `percent`: of the calls that nobody else traces, so many are traced. With a parent its owner
    /// decides. `None`: this one is not.
    pub fn begin(
        about: About,
        parent: Option<TraceParent>,
        began: SystemTime,
        percent: u32,
    ) -> Option<Self> {
        let bytes = about.call.into_bytes();
        // The end of a call's id is random.
        let lot = u64::from_be_bytes(bytes[8..].try_into().unwrap_or_default()) % 100;
        let traced = parent.map_or(lot < u64::from(percent), |parent| parent.sampled);
        traced.then(|| Self {
            trace: TraceId::from_bytes(parent.map_or(bytes, |parent| parent.trace)),
            root: span_id(about.call, 0),
            parent: parent.map(|parent| SpanId::from_bytes(parent.span)),
            about,
            began,
            spans: 0,
            reached: 0,
        })
    }

    /// The spans of a finished turn.
    pub fn turn(&mut self, turn: &Turn) -> Vec<SpanData> {
        let heard = turn.start_ms.or(turn.end_ms).unwrap_or(self.reached);
        let end = turn.end_ms.unwrap_or(heard).max(heard);
        self.reached = self.reached.max(end);
        // The caller's last sound, which an answer's parts count from.
        let asked = turn
            .latency
            .as_ref()
            .map(|latency| heard.saturating_sub(latency.response_ms));
        let name = match turn.role {
            Role::User => "caller turn",
            Role::Assistant => "agent turn",
            Role::HumanAgent => "human agent turn",
        };
        let source = match turn.source {
            Source::Speech => "speech",
            Source::Keypad => "keypad",
            Source::Text => "text",
            Source::System => "system",
        };
        let mut attributes = vec![
            KeyValue::new("sidetone.turn.index", i64::from(turn.index)),
            KeyValue::new("sidetone.turn.source", source),
            KeyValue::new("sidetone.turn.interrupted", turn.interrupted),
        ];
        if let Some(latency) = &turn.latency {
            attributes.push(ms("sidetone.turn.response_ms", latency.response_ms));
            attributes.push(KeyValue::new(
                "sidetone.turn.speculative",
                latency.speculative.used,
            ));
        }
        let root = self.root;
        let own = self.span(root, name, (asked.unwrap_or(heard), end), attributes);
        let parent = own.span_context.span_id();
        let mut spans = vec![own];
        for part in turn.latency.iter().flat_map(|l| &l.contributions) {
            let start = asked.unwrap_or(heard) + part.start_ms;
            let name = Cow::Owned(part.key.clone());
            let stage = KeyValue::new("sidetone.stage", owner_name(part.owner));
            let times = (start, start + part.duration_ms);
            spans.push(self.span(parent, name, times, vec![stage]));
        }
        for tool in &turn.tool_calls {
            spans.push(self.tool(parent, tool));
        }
        if turn.role != Role::User && turn.start_ms.is_some() {
            spans.push(self.span(parent, "speech", (heard, end), Vec::new()));
        }
        spans
    }

    /// The span of the call itself, which comes last.
    pub fn ended(&mut self, summary: &Summary) -> SpanData {
        let About {
            call,
            account,
            agent,
            channel,
            direction,
        } = self.about.clone();
        let attributes = vec![
            KeyValue::new("sidetone.call.id", call.to_string()),
            KeyValue::new("sidetone.account.id", account),
            KeyValue::new("sidetone.agent.id", agent),
            KeyValue::new("sidetone.channel", channel),
            KeyValue::new("sidetone.direction", direction),
            KeyValue::new("sidetone.end_reason", summary.reason.name()),
            KeyValue::new("sidetone.turns", i64::from(summary.turn_count)),
            KeyValue::new("sidetone.interruptions", i64::from(summary.interruptions)),
            KeyValue::new("sidetone.underruns", i64::from(summary.underruns)),
            KeyValue::new(
                "sidetone.errors",
                i64::try_from(summary.errors.len()).unwrap_or(i64::MAX),
            ),
            ms("sidetone.recording_gap_ms", summary.recording_gap_ms),
        ];
        let parent = self.parent.unwrap_or(SpanId::INVALID);
        let times = (0, summary.duration_ms.max(self.reached));
        let mut span = self.make(self.root, parent, "call".into(), times, attributes);
        span.span_kind = SpanKind::Server;
        span.parent_span_is_remote = self.parent.is_some();
        if summary.reason.is_failure() {
            span.status = Status::error(summary.reason.name());
        }
        span
    }

    fn tool(&mut self, parent: SpanId, tool: &ToolRecord) -> SpanData {
        let status = match tool.status {
            ToolStatus::Ok => "ok",
            ToolStatus::Error => "error",
            ToolStatus::Timeout => "timeout",
            ToolStatus::Canceled => "canceled",
        };
        let attributes = vec![
            KeyValue::new("sidetone.stage", "tool"),
            KeyValue::new("sidetone.tool.name", tool.name.clone()),
            KeyValue::new("sidetone.tool.type", tool.r#type.clone()),
            KeyValue::new("sidetone.tool.status", status),
        ];
        let times = (tool.started_ms, tool.started_ms + tool.duration_ms);
        let mut span = self.span(parent, "tool call", times, attributes);
        if tool.status != ToolStatus::Ok {
            span.status = Status::error(status);
        }
        span
    }

    fn span(
        &mut self,
        parent: SpanId,
        name: impl Into<Cow<'static, str>>,
        times: (u64, u64),
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        self.spans += 1;
        let id = span_id(self.about.call, self.spans);
        self.make(id, parent, name.into(), times, attributes)
    }

    fn make(
        &self,
        id: SpanId,
        parent: SpanId,
        name: Cow<'static, str>,
        (start, end): (u64, u64),
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        let at = |ms| self.began + Duration::from_millis(ms);
        SpanData {
            span_context: SpanContext::new(
                self.trace,
                id,
                TraceFlags::SAMPLED,
                false,
                TraceState::default(),
            ),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name,
            start_time: at(start),
            end_time: at(end),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("sidetone")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }
}

fn ms(key: &'static str, ms: u64) -> KeyValue {
    KeyValue::new(key, i64::try_from(ms).unwrap_or(i64::MAX))
}

/// The id of a call's span of this number; number 0 is the call's own.
fn span_id(call: Uuid, number: u64) -> SpanId {
    let mut bytes = call.into_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    let digest = secret::sha256(&bytes);
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    // All zeros is no id.
    id[7] |= u8::from(id == [0; 8]);
    SpanId::from_bytes(id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use std::time::UNIX_EPOCH;

    use media::call::record::{Contribution, EndReason, EndedBy, Latency, Offsets, Owner};

    use super::*;

    const PRIVATE: &str = "my card number is four two";

    fn about() -> About {
        About {
            call: Uuid::from_u128(0x0195_7a3f_0000_7000_8000_0000_0000_0007),
            account: "acc".into(),
            agent: "agent".into(),
            channel: "websocket".into(),
            direction: "inbound".into(),
        }
    }

    fn turn(index: u32, role: Role, times: (u64, u64)) -> Turn {
        Turn {
            index,
            turn_id: format!("t{index}"),
            role,
            text: PRIVATE.into(),
            text_raw: Some(PRIVATE.into()),
            language: "english".into(),
            start_ms: Some(times.0),
            end_ms: Some(times.1),
            interrupted: false,
            interrupted_after_ms: None,
            estimated_text_spoken: Some(PRIVATE.into()),
            source: Source::Speech,
            confidence: None,
            latency: None,
            tool_calls: Vec::new(),
        }
    }

    fn answer() -> Turn {
        let part = |key: &str, owner, start_ms, duration_ms| Contribution {
            key: key.to_owned(),
            owner,
            start_ms,
            duration_ms,
        };
        Turn {
            latency: Some(Latency {
                response_ms: 500,
                contributions: vec![
                    part("endpoint", Owner::Setting, 0, 300),
                    part("llm_ttft", Owner::Llm, 300, 150),
                    part("tts_ttfb", Owner::Tts, 450, 50),
                ],
                ..Latency::default()
            }),
            tool_calls: vec![ToolRecord {
                id: "c1".into(),
                name: "look_up".into(),
                arguments: PRIVATE.into(),
                result: Some(PRIVATE.into()),
                result_truncated: false,
                status: ToolStatus::Timeout,
                error: Some(PRIVATE.into()),
                started_ms: 1300,
                duration_ms: 40,
                filler_spoken: false,
                r#type: "client".into(),
            }],
            ..turn(1, Role::Assistant, (1500, 3000))
        }
    }

    fn summary(reason: EndReason) -> Summary {
        Summary {
            reason,
            ended_by: EndedBy::Caller,
            duration_ms: 4000,
            turn_count: 2,
            recording_gap_ms: 0,
            offsets: Offsets::default(),
            interruptions: 0,
            underruns: 0,
            characters: 0,
            heard_ms: 0,
            media: None,
            errors: vec![PRIVATE.into()],
        }
    }

    fn ms_of(span: &SpanData) -> (u128, u128) {
        let ms = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap().as_millis();
        (ms(span.start_time), ms(span.end_time))
    }

    #[test]
    fn an_answer_is_a_turn_with_its_parts_its_tools_and_its_speech() {
        let mut trace = CallTrace::begin(about(), None, UNIX_EPOCH, 100).unwrap();
        let caller = trace.turn(&turn(0, Role::User, (200, 1000)));
        let agent = trace.turn(&answer());
        let call = trace.ended(&summary(EndReason::CallerHangup));
        assert_eq!(caller.len(), 1);
        let told: Vec<(&str, (u128, u128))> = agent
            .iter()
            .map(|span| (span.name.as_ref(), ms_of(span)))
            .collect();
        assert_eq!(
            told,
            [
                ("agent turn", (1000, 3000)),
                ("endpoint", (1000, 1300)),
                ("llm_ttft", (1300, 1450)),
                ("tts_ttfb", (1450, 1500)),
                ("tool call", (1300, 1340)),
                ("speech", (1500, 3000)),
            ]
        );
        let all: Vec<&SpanData> = caller.iter().chain(&agent).chain([&call]).collect();
        let mut ids: Vec<SpanId> = all.iter().map(|span| span.span_context.span_id()).collect();
        ids.sort_by_key(|id| id.to_bytes());
        ids.dedup();
        assert_eq!(ids.len(), all.len());
        for span in &all {
            assert_eq!(
                span.span_context.trace_id().to_bytes(),
                about().call.into_bytes()
            );
            assert!(
                !format!("{span:?}").contains(PRIVATE),
                "what was said is in {span:?}"
            );
        }
        assert_eq!(call.parent_span_id, SpanId::INVALID);
        assert_eq!(agent[0].parent_span_id, call.span_context.span_id());
        for part in &agent[1..] {
            assert_eq!(part.parent_span_id, agent[0].span_context.span_id());
        }
        assert_eq!(agent[4].status, Status::error("timeout"));
        assert_eq!((ms_of(&call), call.status), ((0, 4000), Status::Unset));
    }

    #[test]
    fn a_parent_s_trace_goes_on_if_its_owner_keeps_it() {
        let parent = TraceParent {
            trace: [7; 16],
            span: [9; 8],
            sampled: true,
        };
        let mut trace = CallTrace::begin(about(), Some(parent), UNIX_EPOCH, 0).unwrap();
        let call = trace.ended(&summary(EndReason::EngineError));
        assert_eq!(call.span_context.trace_id().to_bytes(), [7; 16]);
        assert_eq!(
            (call.parent_span_id.to_bytes(), call.parent_span_is_remote),
            ([9; 8], true)
        );
        assert_eq!(call.status, Status::error("engine_error"));
        let dropped = TraceParent {
            sampled: false,
            ..parent
        };
        assert!(CallTrace::begin(about(), Some(dropped), UNIX_EPOCH, 100).is_none());
        assert!(CallTrace::begin(about(), None, UNIX_EPOCH, 0).is_none());
    }

    #[test]
    fn a_turn_without_times_stands_where_the_last_one_ended() {
        let mut trace = CallTrace::begin(about(), None, UNIX_EPOCH, 100).unwrap();
        trace.turn(&turn(0, Role::Assistant, (0, 900)));
        let mut typed = turn(1, Role::User, (0, 0));
        (typed.start_ms, typed.end_ms) = (None, None);
        assert_eq!(ms_of(&trace.turn(&typed)[0]), (900, 900));
    }
}
