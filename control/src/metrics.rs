//! Counters, as Prometheus text (exposition format 0.0.4). Everything here is bounded: routes by the
//! route table, statuses by HTTP.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use http::{Method, StatusCode};

use crate::app::Inner;

/// The counters of this process.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, &'static str, u16), u64>>,
}

impl Metrics {
    /// Counts one answered request.
    pub fn request(&self, method: &Method, route: &'static str, status: StatusCode) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests
            .entry((route, method_name(method), status.as_u16()))
            .or_insert(0) += 1;
    }

    /// All of it as text.
    pub fn render(&self, app: &Inner) -> String {
        let mut text = Text::default();
        text.family(
            "sidetone_http_requests_total",
            "counter",
            "Requests answered, by route and status.",
        );
        let requests = self
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for ((route, method, status), count) in requests {
            text.line(
                "sidetone_http_requests_total",
                &format!("route=\"{route}\",method=\"{method}\",status=\"{status}\""),
                count as f64,
            );
        }
        let counts = app.admission.counts();
        text.family("sidetone_leases", "gauge", "Call leases held, by state.");
        text.line(
            "sidetone_leases",
            "state=\"pending\"",
            f64::from(counts.pending),
        );
        text.line("sidetone_leases", "state=\"live\"", f64::from(counts.live));
        text.family(
            "sidetone_live_calls",
            "gauge",
            "Calls that run on this node.",
        );
        text.line("sidetone_live_calls", "", app.engine.live_calls() as f64);
        text.family(
            "sidetone_tts_active",
            "gauge",
            "Texts of requests that are being spoken.",
        );
        text.line("sidetone_tts_active", "", app.tts.active() as f64);
        let lateness = app.engine.lateness();
        text.family(
            "sidetone_engine_lateness_seconds",
            "gauge",
            "How late media passes were over about ten seconds.",
        );
        for (quantile, micros) in [
            ("0.5", lateness.p50_us),
            ("0.99", lateness.p99_us),
            ("1", lateness.max_us),
        ] {
            text.line(
                "sidetone_engine_lateness_seconds",
                &format!("quantile=\"{quantile}\""),
                micros as f64 / 1e6,
            );
        }
        engine(&mut text, app.engine.counters());
        text.family(
            "sidetone_database_up",
            "gauge",
            "0 while the database is known to be away.",
        );
        text.line(
            "sidetone_database_up",
            "",
            f64::from(u8::from(!app.db.is_away())),
        );
        text.family(
            "sidetone_webhook_attempts_total",
            "counter",
            "Attempts to deliver an event, by how they ended.",
        );
        for (status, count) in app.webhooks.ended() {
            text.line(
                "sidetone_webhook_attempts_total",
                &format!("status=\"{status}\""),
                count as f64,
            );
        }
        text.family(
            "sidetone_webhooks_in_flight",
            "gauge",
            "Attempts to deliver an event that run now.",
        );
        text.line(
            "sidetone_webhooks_in_flight",
            "",
            app.webhooks.in_flight() as f64,
        );
        text.family(
            "sidetone_draining",
            "gauge",
            "1 while the process is ending.",
        );
        text.line(
            "sidetone_draining",
            "",
            f64::from(u8::from(app.is_draining())),
        );
        text.0
    }
}

fn engine(text: &mut Text, counters: media::shell::Counters) {
    let media::shell::Counters {
        calls,
        passes,
        bytes_in,
        bytes_out,
        panics,
        stalled,
        violations,
        dropped_events,
        record_gap_ms,
        stopped_tapes,
        failed_recordings,
    } = counters;
    for (name, help, value) in [
        ("calls", "Calls taken.", calls),
        ("passes", "Wake-ups of the media threads.", passes),
        ("bytes_in", "Bytes read from callers.", bytes_in),
        ("bytes_out", "Bytes written to callers.", bytes_out),
        ("panics", "Panics caught; each ended its call.", panics),
        (
            "stalled",
            "Callers closed because they stopped reading.",
            stalled,
        ),
        (
            "violations",
            "Callers closed for how they sent.",
            violations,
        ),
        (
            "dropped_events",
            "Answers of providers that were dropped.",
            dropped_events,
        ),
        (
            "record_gap_ms",
            "Sound lost on the way to the disk, ms.",
            record_gap_ms,
        ),
        ("stopped_tapes", "Tapes stopped early.", stopped_tapes),
        (
            "failed_recordings",
            "Recordings that failed.",
            failed_recordings,
        ),
    ] {
        let name = format!("sidetone_engine_{name}_total");
        text.family(&name, "counter", help);
        text.line(&name, "", value as f64);
    }
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

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.0 += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{labels}}}")
        };
        self.0 += &format!("{name}{labels} {value}\n");
    }
}
