//! `GET /metrics`: all that is counted here, and all that others tell when they are asked.

use std::time::Duration;

use crate::admission::{Counts, Health};
use crate::app::App;
use crate::metrics::Metrics;
use crate::metrics::table::{self, ENGINE_PASS_LATENESS};
use crate::metrics::text::Text;
use crate::metrics::values::Histogram;
use crate::sip_trunks;
use crate::webhooks::outbox::{self, Depth};

/// What the stores tell within this is shown; a scrape does not wait for those that are away.
const PATIENCE: Duration = Duration::from_secs(1);

/// All of it as text.
pub(super) async fn render(app: &App) -> String {
    // What the stores do not tell is left out: none is not zero.
    let leases = async { app.admission.counts().await.ok() };
    let depth = async { outbox::depth(&app.db, app.clock.now()).await.ok() };
    let trunks = async { sip_trunks::store::states(&app.db).await.ok() };
    let calls = async { sip_trunks::store::calls(&app.db).await.ok() };
    let (leases, depth, trunks, calls) =
        tokio::join!(within(leases), within(depth), within(trunks), within(calls));
    let mut text = Text::default();
    node(&mut text, app);
    let Metrics {
        http_requests,
        http_seconds,
        calls_ended,
        call_seconds,
        trunk_failures,
        admissions,
        lease_seconds,
        turns,
        turn_response,
        turn_part,
        interruptions,
        underruns,
        tool_calls,
        tool_seconds,
        webhook_seconds,
        ..
    } = &*app.metrics;
    http_requests.write(&mut text);
    http_seconds.write(&mut text);

    text.one(&table::LIVE_CALLS, app.engine.live_calls() as f64);
    caps(&mut text, app);
    calls_ended.write(&mut text);
    call_seconds.write(&mut text);
    admissions.write(&mut text);
    if let Some(Counts { pending, live }) = leases {
        let mut samples = text.family(&table::LEASES);
        samples.value(&["pending"], pending.into());
        samples.value(&["live"], live.into());
    }
    if let Some(trunks) = trunks {
        let mut samples = text.family(&table::SIP_TRUNKS);
        for state in ["active", "disabled", "unregistered", "registered", "failed"] {
            let count = trunks.iter().find(|(name, _)| name == state);
            samples.value(&[state], count.map_or(0.0, |(_, count)| f64::from(*count)));
        }
    }
    if let Some(calls) = calls {
        let mut samples = text.family(&table::TRUNK_CALLS);
        for direction in ["inbound", "outbound"] {
            let count = calls.iter().find(|(name, _)| name == direction);
            samples.value(
                &[direction],
                count.map_or(0.0, |(_, count)| f64::from(*count)),
            );
        }
    }
    trunk_failures.write(&mut text);
    text.flag(
        &table::LEASE_STORE_READY,
        app.admission.health() == Health::Ready,
    );
    lease_seconds.write(&mut text);
    if app.config.redis_url.is_some() {
        text.flag(&table::REDIS_UP, app.admission.health() != Health::Away);
    }

    turns.write(&mut text);
    turn_response.write(&mut text);
    turn_part.write(&mut text);
    interruptions.write(&mut text);
    underruns.write(&mut text);
    tool_calls.write(&mut text);
    tool_seconds.write(&mut text);
    app.speech.metrics().write(&mut text);

    engine(&mut text, app);
    text.one(&table::TTS_ACTIVE, app.tts.active() as f64);

    let mut samples = text.family(&table::WEBHOOK_ATTEMPTS);
    for (status, count) in app.metrics.webhooks_ended() {
        samples.value(&[status], count as f64);
    }
    webhook_seconds.write(&mut text);
    text.one(&table::WEBHOOKS_IN_FLIGHT, app.webhooks.in_flight() as f64);
    if let Some(depth) = depth {
        waiting(&mut text, &depth);
    }
    stores(&mut text, app);
    app.telemetry.write(&mut text);
    process(&mut text);
    text.finish()
}

async fn within<T>(answer: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::time::timeout(PATIENCE, answer).await.ok().flatten()
}

fn node(text: &mut Text, app: &App) {
    text.family(&table::BUILD)
        .value(&[env!("CARGO_PKG_VERSION"), &app.config.cluster.node], 1.0);
    let states = [
        ("draining", app.is_draining()),
        ("lost", app.is_lost()),
        ("recovering", app.is_recovering()),
        ("late", app.media_is_late()),
    ];
    let ready = !app.is_draining()
        && !app.is_lost()
        && !app.media_is_late()
        && !app.db.is_away()
        && app.admission.health() == Health::Ready;
    let mut samples = text.family(&table::NODE_STATE);
    for (state, on) in [("ready", ready)].into_iter().chain(states) {
        samples.value(&[state], f64::from(u8::from(on)));
    }
    text.flag(&table::DRAINING, app.is_draining());
}

fn caps(text: &mut Text, app: &App) {
    let limits = &app.config.limits;
    let mut samples = text.family(&table::CALL_CAP);
    for (resource, cap) in [
        ("account", limits.account_calls),
        ("pool", limits.pool_calls),
        ("node", limits.node_calls),
    ] {
        samples.value(&[resource], cap.into());
    }
}

fn engine(text: &mut Text, app: &App) {
    let media::shell::Counters {
        calls,
        passes,
        bytes_in,
        bytes_out,
        panics,
        stalled,
        violations,
        strangers,
        dropped_events,
        record_gap_ms,
        stopped_tapes,
        failed_recordings,
        refused_recordings,
    } = app.engine.counters();
    let exchange = app.telephone.exchange();
    let not_led = exchange.map_or(0, |exchange| exchange.not_led());
    text.one(&table::SIP_NOT_LED, not_led as f64);
    text.one(&table::ENGINE_CALLS, calls as f64);
    text.one(&table::ENGINE_PASSES, passes as f64);
    let totals = app.engine.lateness_totals();
    let late = Histogram {
        counts: totals.counts.to_vec(),
        sum: totals.sum_us as f64 / 1e6,
    };
    text.family(&ENGINE_PASS_LATENESS).histogram(&[], &late);
    let lateness = app.engine.lateness();
    let mut samples = text.family(&table::ENGINE_LATENESS);
    for (quantile, micros) in [
        ("0.5", lateness.p50_us),
        ("0.99", lateness.p99_us),
        ("1", lateness.max_us),
    ] {
        samples.value(&[quantile], micros as f64 / 1e6);
    }
    for (family, value) in [
        (&table::ENGINE_BYTES_IN, bytes_in),
        (&table::ENGINE_BYTES_OUT, bytes_out),
        (&table::ENGINE_PANICS, panics),
        (&table::ENGINE_STALLED, stalled),
        (&table::ENGINE_VIOLATIONS, violations),
        (&table::ENGINE_STRANGERS, strangers),
        (&table::ENGINE_DROPPED_EVENTS, dropped_events),
    ] {
        text.one(family, value as f64);
    }
    text.one(&table::ENGINE_RECORD_GAP, record_gap_ms as f64 / 1000.0);
    for (family, value) in [
        (&table::ENGINE_STOPPED_TAPES, stopped_tapes),
        (&table::ENGINE_FAILED_RECORDINGS, failed_recordings),
        (&table::ENGINE_REFUSED_RECORDINGS, refused_recordings),
    ] {
        text.one(family, value as f64);
    }
}

fn waiting(text: &mut Text, depth: &Depth) {
    let mut samples = text.family(&table::WEBHOOK_EVENTS);
    for status in ["pending", "failed", "delivering"] {
        let count = depth.of.iter().find(|(name, _)| name == status);
        samples.value(&[status], count.map_or(0.0, |(_, count)| *count as f64));
    }
    text.one(&table::WEBHOOK_OLDEST, depth.oldest.as_secs_f64());
}

fn stores(text: &mut Text, app: &App) {
    text.flag(&table::DATABASE_UP, !app.db.is_away());
    let (idle, used) = app.db.connections();
    let mut samples = text.family(&table::DATABASE_CONNECTIONS);
    samples.value(&["idle"], idle.into());
    samples.value(&["used"], used.into());
    if let Ok(disk) = rustix::fs::statvfs(crate::calls::spool_dir(&app.config)) {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        text.one(&table::SPOOL_FREE, free as f64);
    }
    let least = u64::from(app.config.recordings.min_free_mib) << 20;
    text.one(&table::SPOOL_MIN_FREE, least as f64);
}

/// What Linux tells of this process. What cannot be read is left out.
fn process(text: &mut Text) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may hold anything, the fields are plain (proc(5)): the first is number 3.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect())
        .unwrap_or_default();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    if let (Some(began), Some(boot)) = (field(22), boot_time()) {
        text.one(&table::PROCESS_START, boot + began / ticks);
    }
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        text.one(&table::PROCESS_CPU, (user + system) / ticks);
    }
    if let Some(pages) = field(24) {
        let bytes = pages * rustix::param::page_size() as f64;
        text.one(&table::PROCESS_MEMORY, bytes);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        text.one(&table::PROCESS_FDS, files.count() as f64);
    }
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    text.one(
        &table::PROCESS_MAX_FDS,
        most.map_or(f64::INFINITY, |most| most as f64),
    );
}

/// Unix time at which the system began.
fn boot_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}
