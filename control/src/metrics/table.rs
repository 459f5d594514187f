//! The table of all metrics: what is counted, in which unit, by which labels. The text of `/metrics` and
//! `docs/metrics.md` are written from it, and nothing is written that does not stand in it.
//!
//! Labels are bounded: their values are listed here, or come from the route table or the settings file.
//! No id of an account, an agent or a call is one.

/// One metric with all its labels.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    /// What one unit of the value is.
    pub unit: &'static str,
    pub labels: &'static [Label],
    /// Upper bounds of a histogram's buckets, rising, without the infinite one.
    pub buckets: &'static [f64],
    pub help: &'static str,
    /// Empty: it is always there. Else, when it is.
    pub only: &'static str,
}

/// The types of the exposition format that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// The word of the exposition format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One label.
#[derive(Debug)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

/// What a label's value may be.
#[derive(Debug)]
pub enum Values {
    /// One of these.
    Of(&'static [&'static str]),
    /// Something else that is bounded; in words.
    From(&'static str),
}

const fn of(name: &'static str, values: &'static [&'static str]) -> Label {
    Label {
        name,
        values: Values::Of(values),
    }
}

const fn from(name: &'static str, what: &'static str) -> Label {
    Label {
        name,
        values: Values::From(what),
    }
}

const fn family(
    kind: Kind,
    name: &'static str,
    unit: &'static str,
    labels: &'static [Label],
    help: &'static str,
) -> Family {
    Family {
        name,
        kind,
        unit,
        labels,
        buckets: &[],
        help,
        only: "",
    }
}

const fn counter(
    name: &'static str,
    unit: &'static str,
    labels: &'static [Label],
    help: &'static str,
) -> Family {
    family(Kind::Counter, name, unit, labels, help)
}

const fn gauge(
    name: &'static str,
    unit: &'static str,
    labels: &'static [Label],
    help: &'static str,
) -> Family {
    family(Kind::Gauge, name, unit, labels, help)
}

const fn seconds(
    name: &'static str,
    labels: &'static [Label],
    buckets: &'static [f64],
    help: &'static str,
) -> Family {
    Family {
        buckets,
        ..family(Kind::Histogram, name, "seconds", labels, help)
    }
}

impl Family {
    const fn only(self, only: &'static str) -> Self {
        Self { only, ..self }
    }
}

/// Why calls end: the words of the API's `end_reason`.
pub const END_REASONS: &[&str] = &[
    "caller_hangup",
    "agent_end_call",
    "phrase",
    "max_duration",
    "max_turns",
    "silence_timeout",
    "idle_limit",
    "transferred",
    "voicemail",
    "no_answer",
    "busy",
    "declined",
    "invalid_number",
    "suppressed",
    "carrier_error",
    "media_timeout",
    "provider_error",
    "engine_error",
    "ended_by_api",
    "node_lost",
    "session_expired",
    "other",
];

/// How calls come: the words of the API's `channel`.
pub const CHANNELS: &[&str] = &[
    "telco",
    "sip",
    "webrtc",
    "websocket",
    "collab",
    "chatapp",
    "other",
];

/// The parts of a response, in the order in which they may come.
pub const PARTS: &[&str] = &[
    "vad_hangover",
    "endpoint",
    "stt_final",
    "llm_ttft",
    "tool",
    "llm_first_clause",
    "tts_ttfb",
    "playout_buffer",
    "other",
];

const OWNERS: &[&str] = &[
    "engine",
    "setting",
    "stt",
    "llm",
    "tool",
    "tts",
    "transport",
];

const STEP: Label = of("step", &["acquire", "adopt"]);
const STAGE: Label = of("stage", &["stt", "llm", "tts"]);
const PROVIDER: Label = from(
    "provider",
    "the built-in ones, and the names in the settings file",
);
const TOOL: Label = of("type", &["client", "webhook", "system", "automation"]);

/// Of answers to callers, in steps that tell a good one from a bad one.
const ANSWER: &[f64] = &[
    0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0,
];
const PART: &[f64] = &[0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 8.0];
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.5, 2.5, 10.0];
const LEASE: &[f64] = &[
    0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.15, 0.5,
];
const CALL: &[f64] = &[
    1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];

macro_rules! families {
    ($($id:ident = $family:expr;)+) => {
        $(pub static $id: Family = $family;)+
        /// Every metric, in the order of the output.
        pub static ALL: &[&Family] = &[$(&$id),+];
    };
}

families! {
    BUILD = gauge("sidetone_build_info", "1", &[from("version", "this program's"), from("node", "`cluster.node`")],
        "Which program this is, on which node.");
    NODE_STATE = gauge("sidetone_node_state", "0 or 1",
        &[of("state", &["ready", "draining", "lost", "recovering", "late"])],
        "1 for the states that hold: new calls are taken while `ready` alone does.");
    DRAINING = gauge("sidetone_draining", "0 or 1", &[], "1 while the process is ending.");

    HTTP_REQUESTS = counter("sidetone_http_requests_total", "requests",
        &[from("route", "the patterns of the route table, or `unmatched`"),
          of("method", &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"]),
          from("status", "the statuses of HTTP")],
        "Requests answered.");
    HTTP_SECONDS = seconds("sidetone_http_request_seconds",
        &[from("route", "the patterns of the route table, or `unmatched`")], REQUEST,
        "From the request's head to the answer's.");

    LIVE_CALLS = gauge("sidetone_live_calls", "calls", &[], "Calls that run on this node.");
    CALL_CAP = gauge("sidetone_call_cap", "calls", &[of("resource", &["account", "pool", "node"])],
        "The settings `limits.*_calls`.");
    CALLS_ENDED = counter("sidetone_calls_ended_total", "calls",
        &[of("reason", END_REASONS), of("channel", CHANNELS)],
        "Calls whose end this node wrote down.");
    CALL_SECONDS = seconds("sidetone_call_seconds", &[], CALL,
        "How long calls were that somebody had joined.");

    ADMISSIONS = counter("sidetone_admissions_total", "answers",
        &[STEP,
          of("outcome", &["admitted", "capacity", "duplicate_lease", "service_unavailable", "redis_unavailable",
                          "redis_error"]),
          of("resource", &["none", "account", "pool", "agent", "trunk", "node"])],
        "What those were told who asked for a slot (acquire) or joined with one (adopt), and the cap that was reached.");
    LEASES = gauge("sidetone_leases", "leases", &[of("state", &["pending", "live"])],
        "Call leases held; on all nodes where they share a Redis.").only("while the lease store answers");
    SIP_TRUNKS = gauge("sidetone_sip_trunks", "trunks",
        &[of("state", &["active", "disabled", "unregistered", "registered", "failed"])],
        "SIP trunks of all accounts; those that are active and register, by how that stands.").only("while the database answers");
    TRUNK_CALLS = gauge("sidetone_trunk_calls", "calls", &[of("direction", &["inbound", "outbound"])],
        "Calls over SIP trunks of all accounts, on all nodes, that are not over; those that ring among them.")
        .only("while the database answers");
    TRUNK_FAILURES = counter("sidetone_trunk_failures_total", "calls",
        &[of("direction", &["inbound", "outbound"]),
          from("code", "final responses of SIP, 300 to 699, or `none` where nobody gave one")],
        "Calls over SIP trunks that ended as `failed`, `no-answer` or `busy` and whose end this node wrote down.");
    SIP_NOT_LED = counter("sidetone_sip_not_led_total", "commands", &[],
        "Commands of calls that found no room at the SIP stack; each ended its call.");
    LEASE_STORE_READY = gauge("sidetone_lease_store_ready", "0 or 1", &[], "1 while call leases can be had.");
    LEASE_SECONDS = seconds("sidetone_lease_seconds", &[STEP], LEASE, "How long the lease store took to answer.");
    REDIS_UP = gauge("sidetone_redis_up", "0 or 1", &[], "1 while Redis answers.").only("with `redis.url`");

    TURNS = counter("sidetone_turns_total", "turns",
        &[of("role", &["user", "assistant", "human_agent"]), of("source", &["speech", "keypad", "text", "system"])],
        "Turns of the callers and of the agents.");
    TURN_RESPONSE = seconds("sidetone_turn_response_seconds", &[], ANSWER,
        "From the caller's last voiced sample to the agent's first audible one.");
    TURN_PART = seconds("sidetone_turn_part_seconds", &[of("part", PARTS), of("owner", OWNERS)], PART,
        "The parts of that time; those of one response touch and add up to it.");
    INTERRUPTIONS = counter("sidetone_interruptions_total", "replies", &[],
        "Replies of agents that their callers cut short; counted as calls end.");
    UNDERRUNS = counter("sidetone_underruns_total", "gaps", &[],
        "Gaps within a sentence of an agent, because its voice was slower than real time; counted as calls end.");
    TOOL_CALLS = counter("sidetone_tool_calls_total", "calls",
        &[TOOL, of("status", &["ok", "error", "timeout", "canceled"])], "Tool calls of agents.");
    TOOL_SECONDS = seconds("sidetone_tool_seconds", &[TOOL], PART, "How long tools took to answer.");

    PROVIDER_REQUESTS = counter("sidetone_provider_requests_total", "requests",
        &[STAGE, PROVIDER, of("outcome", &["answered", "failed", "cancelled", "unanswered"])],
        "Utterances, replies and segments that a provider was asked for. What a fallback takes over has failed here, and counts as its own.");
    PROVIDER_SECONDS = seconds("sidetone_provider_first_answer_seconds", &[STAGE, PROVIDER], PART,
        "To the text of an utterance, the first word of a reply, the first sound of a segment.");
    PROVIDER_FAULTS = counter("sidetone_provider_faults_total", "tries",
        &[STAGE, PROVIDER, of("kind", &["busy", "refused", "broken", "stalled", "wrong"])],
        "Tries that failed: 429 or 5xx, another status, no connection, no answer in time, an answer that is none.")
        .only("with providers outside this process, once one failed");

    ENGINE_CALLS = counter("sidetone_engine_calls_total", "calls", &[], "Calls taken.");
    ENGINE_PASSES = counter("sidetone_engine_passes_total", "passes", &[], "Wake-ups of the media threads.");
    ENGINE_PASS_LATENESS = seconds("sidetone_engine_pass_lateness_seconds", &[], media::shell::LATENESS_BOUNDS,
        "How late media threads served what was due.");
    ENGINE_LATENESS = gauge("sidetone_engine_lateness_seconds", "seconds", &[of("quantile", &["0.5", "0.99", "1"])],
        "The same over about the last ten seconds; beyond 10 ms at 0.99 the node takes no new calls.");
    ENGINE_BYTES_IN = counter("sidetone_engine_bytes_in_total", "bytes", &[], "Read from callers.");
    ENGINE_BYTES_OUT = counter("sidetone_engine_bytes_out_total", "bytes", &[], "Written to callers.");
    ENGINE_PANICS = counter("sidetone_engine_panics_total", "panics", &[], "Panics caught; each ended its call.");
    ENGINE_STALLED = counter("sidetone_engine_stalled_total", "calls", &[],
        "Callers closed because they stopped reading.");
    ENGINE_VIOLATIONS = counter("sidetone_engine_violations_total", "calls", &[],
        "Callers closed for how they sent.");
    ENGINE_STRANGERS = counter("sidetone_engine_strangers_total", "datagrams", &[],
        "Datagrams at the media ports for no call, or from strangers: dropped.");
    ENGINE_DROPPED_EVENTS = counter("sidetone_engine_dropped_events_total", "events", &[],
        "Answers of providers that were dropped because their call did not take them.");
    ENGINE_RECORD_GAP = counter("sidetone_engine_record_gap_seconds_total", "seconds", &[],
        "Sound lost on the way to the disk: its ring was full.");
    ENGINE_STOPPED_TAPES = counter("sidetone_engine_stopped_tapes_total", "tapes", &[], "Tapes stopped early.");
    ENGINE_FAILED_RECORDINGS = counter("sidetone_engine_failed_recordings_total", "recordings", &[],
        "Recordings that failed.");
    ENGINE_REFUSED_RECORDINGS = counter("sidetone_engine_refused_recordings_total", "recordings", &[],
        "Recordings that were not begun because the disk was nearly full.");
    TTS_ACTIVE = gauge("sidetone_tts_active", "texts", &[], "Texts of requests that are being spoken.");

    WEBHOOK_ATTEMPTS = counter("sidetone_webhook_attempts_total", "attempts",
        &[of("status", &["delivered", "failed", "exhausted", "unsafe", "skipped"])],
        "Attempts to deliver an event, by how they ended.");
    WEBHOOK_SECONDS = seconds("sidetone_webhook_attempt_seconds", &[], REQUEST,
        "How long attempts to deliver an event took.");
    WEBHOOKS_IN_FLIGHT = gauge("sidetone_webhooks_in_flight", "attempts", &[],
        "Attempts to deliver an event that run now.");
    WEBHOOK_EVENTS = gauge("sidetone_webhook_events", "events", &[of("status", &["pending", "failed", "delivering"])],
        "Events in the outbox of all nodes that are not settled; `failed` ones are tried again.")
        .only("while the database answers");
    WEBHOOK_OLDEST = gauge("sidetone_webhook_oldest_seconds", "seconds", &[],
        "The age of the oldest of them; 0: there is none.").only("while the database answers");

    DATABASE_UP = gauge("sidetone_database_up", "0 or 1", &[], "0 while the database is known to be away, or to take no writes.");
    DATABASE_CONNECTIONS = gauge("sidetone_database_connections", "connections", &[of("state", &["idle", "used"])],
        "Connections of this process to the database.");
    SPOOL_FREE = gauge("sidetone_spool_free_bytes", "bytes", &[], "Free where calls are spooled.");
    SPOOL_MIN_FREE = gauge("sidetone_spool_min_free_bytes", "bytes", &[],
        "Below this no new recording begins (`recordings.min_free_mib`).");
    TRACE_SPANS = counter("sidetone_trace_spans_total", "spans", &[of("outcome", &["exported", "failed", "dropped"])],
        "Spans of traces: taken by the collector, refused by it or lost on the way, or more than the queue holds.")
        .only("with `telemetry.endpoint`");

    PROCESS_START = gauge("process_start_time_seconds", "seconds", &[], "When the process began, Unix time.");
    PROCESS_CPU = counter("process_cpu_seconds_total", "seconds", &[], "Processor time that the process used.");
    PROCESS_MEMORY = gauge("process_resident_memory_bytes", "bytes", &[], "Resident memory.");
    PROCESS_FDS = gauge("process_open_fds", "files", &[], "Open file descriptors.");
    PROCESS_MAX_FDS = gauge("process_max_fds", "files", &[], "How many there may be.");
}

/// The table as `docs/metrics.md` shows it.
pub fn markdown() -> String {
    let mut text = String::from("| Name | Type | Unit | Labels | What |\n|---|---|---|---|---|\n");
    for family in ALL {
        let labels: Vec<String> = family.labels.iter().map(label).collect();
        let only = match family.only {
            "" => String::new(),
            only => format!(" ({only})"),
        };
        text += &format!(
            "| `{}` | {} | {} | {} | {}{only} |\n",
            family.name,
            family.kind.name(),
            family.unit,
            labels.join("; "),
            family.help,
        );
    }
    text
}

fn label(label: &Label) -> String {
    match label.values {
        Values::Of(values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{}`: {}", label.name, values.join(", "))
        }
        Values::From(what) => format!("`{}`: {what}", label.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What <https://prometheus.io/docs/practices/naming/> asks for.
    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let mut names: Vec<&str> = ALL.iter().map(|family| family.name).collect();
        for family in ALL {
            let name = family.name;
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(plain), "{name}");
            let ours = name.starts_with("sidetone_") || name.starts_with("process_");
            assert!(ours, "{name}");
            let total = name.ends_with("_total");
            assert_eq!(total, family.kind == Kind::Counter, "{name}");
            let bare = name.trim_end_matches("_total");
            for unit in ["seconds", "bytes"] {
                assert_eq!(
                    family.unit == unit,
                    bare.ends_with(unit) || (unit == "bytes" && bare.contains("_bytes_")),
                    "{name} in {}",
                    family.unit
                );
            }
            assert_eq!(
                family.buckets.is_empty(),
                family.kind != Kind::Histogram,
                "{name}"
            );
            assert!(family.buckets.is_sorted(), "{name}");
            assert!(
                family.help.ends_with('.') && !family.help.contains('|'),
                "{name}"
            );
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len(), "a name stands twice");
    }

    /// Not one per account, agent or call: so many series at most.
    #[test]
    fn labels_that_are_listed_have_few_combinations() {
        for family in ALL {
            let combinations: usize = family
                .labels
                .iter()
                .map(|label| match label.values {
                    Values::Of(values) => values.len(),
                    Values::From(_) => 1,
                })
                .product();
            assert!(combinations <= 200, "{}: {combinations}", family.name);
        }
    }
}
