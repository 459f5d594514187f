//! Counters, as Prometheus text (exposition format 0.0.4). Everything here is bounded: routes by the
//! route table, statuses by HTTP.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};

use crate::admission::Health;
use crate::app::Inner;

/// The counters of this process.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, &'static str, u16), u64>>,
    acquire: Histogram,
    adopt: Histogram,
}

/// A step at the lease store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    Acquire,
    Adopt,
}

/// Upper bounds of the lease steps' buckets, seconds.
const BOUNDS: [f64; 10] = [
    0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.15, 0.5,
];

/// How often something took how long.
#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    fn observe(&self, took: Duration) {
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            if took.as_secs_f64() <= bound {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(micros, Ordering::Relaxed);
    }

    fn write(&self, text: &mut Text, name: &str, labels: &str) {
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            text.line(
                &format!("{name}_bucket"),
                &format!("{labels},le=\"{bound}\""),
                bucket.load(Ordering::Relaxed) as f64,
            );
        }
        let count = self.count.load(Ordering::Relaxed) as f64;
        text.line(
            &format!("{name}_bucket"),
            &format!("{labels},le=\"+Inf\""),
            count,
        );
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        text.line(&format!("{name}_sum"), labels, sum);
        text.line(&format!("{name}_count"), labels, count);
    }
}

impl Metrics {
    /// Counts one answered request.
    pub fn request(&self, method: &Method, route: &'static str, status: StatusCode) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests
            .entry((route, method_name(method), status.as_u16()))
            .or_insert(0) += 1;
    }

    /// Counts one step at the lease store.
    pub fn lease(&self, step: LeaseStep, took: Duration) {
        match step {
            LeaseStep::Acquire => self.acquire.observe(took),
            LeaseStep::Adopt => self.adopt.observe(took),
        }
    }

    /// All of it as text.
    pub async fn render(&self, app: &Inner) -> String {
        // Counts that the store does not tell are left out: none is not zero.
        let counts = app.admission.counts().await.ok();
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
        if let Some(counts) = counts {
            text.family("sidetone_leases", "gauge", "Call leases held, by state.");
            for (state, count) in [("pending", counts.pending), ("live", counts.live)] {
                text.line(
                    "sidetone_leases",
                    &format!("state=\"{state}\""),
                    f64::from(count),
                );
            }
        }
        text.family(
            "sidetone_lease_store_ready",
            "gauge",
            "1 while call leases can be had.",
        );
        let ready = app.admission.health() == Health::Ready;
        text.line("sidetone_lease_store_ready", "", f64::from(u8::from(ready)));
        text.family(
            "sidetone_lease_seconds",
            "histogram",
            "How long the lease store took to answer, by step.",
        );
        for (step, histogram) in [("acquire", &self.acquire), ("adopt", &self.adopt)] {
            histogram.write(
                &mut text,
                "sidetone_lease_seconds",
                &format!("step=\"{step}\""),
            );
        }
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
        if let Ok(disk) = rustix::fs::statvfs(crate::calls::spool_dir(&app.config)) {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let help = "Free where calls are spooled; new recordings need recordings.min_free_mib.";
            text.family("sidetone_spool_free_bytes", "gauge", help);
            text.line("sidetone_spool_free_bytes", "", free as f64);
        }
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
        refused_recordings,
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
        (
            "refused_recordings",
            "Recordings that were not begun because the disk was nearly full.",
            refused_recordings,
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
