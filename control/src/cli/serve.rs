//! `sidetone serve`: put everything together, serve, end in order.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use media::call::input::EndRequest;
use media::shell::{Engine, EngineConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::Level;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use super::Failure;
use crate::admission::Leases;
use crate::admission::lease::Redis;
use crate::admission::local::Local;
use crate::admission::policy::Caps;
use crate::app::App;
use crate::calls::bridge::telephone::Calling;
use crate::cluster::folder::Unclaimed;
use crate::config::{Config, ConfigError, LogFormat};
use crate::db::Db;
use crate::egress::Egress;
use crate::http::serve::{Patience, serve_with};
use crate::http::tls::{self, Greeting};
use crate::node::{Incarnation, Node, Parts};
use crate::redis_link::{Link, SERVER_CLOCK};
use crate::secret::MasterKey;
use crate::storage::Storage;
use crate::supervisor::Supervisor;
use crate::telemetry::Telemetry;
use crate::time::Clock;
use crate::vendors::{Speech, SpeechSettings};
use crate::{
    accounts, agents, calls, cluster, jobs, models, recordings, rotation, routes, sessions, usage,
    voices, webhooks,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write the log as JSON lines.
    #[arg(long)]
    log_json: bool,
}

pub(super) fn run(args: &Args, config: Config) -> Result<(), Failure> {
    start_log(args, &config)?;
    raise_file_limit();
    super::make_data_dir(&config)?;
    // Until everything of this process is over.
    let _own = match cluster::folder::claim(&config.server.data_dir, &config.cluster.node) {
        Ok(own) => own,
        Err(Unclaimed::Held(why)) => return Err(ConfigError::one("server.data_dir", why).into()),
        Err(failed) => return Err(failed.into()),
    };
    tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(STACK)
        .enable_all()
        .build()?
        .block_on(run_async(config))
}

/// The stack of each thread of the runtime, bytes: what tests that are not optimised take, too.
const STACK: usize = 8 << 20;

async fn run_async(mut config: Config) -> Result<(), Failure> {
    // Before anything is made, so that the first of two signals is never lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind(config.server.listen)
        .await
        .map_err(|error| {
            ConfigError::one(
                "server.listen",
                format!("{}: {error}", config.server.listen),
            )
        })?;
    let address = listener.local_addr()?;
    if config.server.public_url.is_empty() {
        config.server.public_url = own_url(&config, address);
    }
    let supervisor = Supervisor::default();
    let greeting = match &config.server.tls {
        Some(files) => Some(
            Greeting::start(files.clone(), tls::LOOK_EVERY, &supervisor)
                .map_err(|error| ConfigError::one("server.tls", error))?,
        ),
        None => None,
    };
    let db = super::open_db(&config).await?;
    let clock = Clock::system();
    cluster::heart::agree(&db, &clock).await?;
    let bootstrap = accounts::bootstrap(&db, &clock, config.bootstrap_api_key.as_ref()).await?;
    greet(&bootstrap, &config);
    if config.cluster.address.is_empty() {
        config.cluster.address = own_url(&config, address);
        if config.redis_url.is_some() && is_nobody_elses(address) {
            tracing::warn!(
                address = config.cluster.address,
                "other nodes cannot reach this one: give cluster.address, or listen where they can"
            );
        }
    }
    let incarnation = Incarnation::take(&db, &config.cluster.node).await?;
    let app = assemble(config, db, clock, incarnation, supervisor.clone())?;
    let node = app.node.clone();
    cluster::register(&node).await?;
    match agents::demo::ensure(&app, bootstrap.account.id).await {
        Ok(agent) => println!("demo agent: {agent}"),
        // Without an offline voice there is nobody to talk to, but the server is whole.
        Err(error) => tracing::warn!(%error, "no demo agent"),
    }
    app.set_recovering(true);
    let watch = &supervisor;
    watch.once("the recovery of calls", recover(node.clone()));
    watch.keep(
        "the sweeper of sessions",
        sessions::run_sweeper(node.clone()),
    );
    let recordings = recordings::run_sweeper(node.clone());
    watch.keep("the sweeper of recordings", recordings);
    let spool = recordings::spool::run(node.clone());
    watch.keep("the sweeper of the spool", spool);
    watch.keep("the renewals of leases", calls::run_renewals(node.clone()));
    watch.keep("the node's heart", cluster::run_node_heart(node.clone()));
    let leases = cluster::run_lease_heart(node.clone());
    watch.keep("the heart at the lease store", leases);
    watch.keep("the reconciler", cluster::run_reconciler(node.clone()));
    watch.keep("the guard of balances", usage::run_guard(node.clone()));
    watch.keep("the reader of the master key", rotation::run(node.clone()));
    // It has nothing to do where events are kept for ever.
    watch.once("the pruning of events", webhooks::run_pruning(node.clone()));
    calls::bridge::telephone::start(&Calling::from_ref(&app))
        .await
        .map_err(|error| ConfigError::one("sip", error))?;
    let (stop, stopped) = watch::channel(false);
    let delivery = webhooks::Delivery::new(node.clone());
    let delivering = jobs::run(delivery, app.db.clone(), app.clock.clone(), stopped.clone());
    let delivering = watch.keep("the delivery of events", delivering);
    let serving = watch.keep("the server of requests", {
        let (router, settings) = (routes::router(&app), app.config.server.clone());
        let how = (Patience::default(), greeting);
        async move { serve_with(listener, router, &settings, how, stopped).await }
    });
    tracing::info!(%address, "ready");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        fault = app.failed() => {
            tracing::error!(%fault, "the process cannot go on: it ends as if it had been told to, and with an error");
        }
    }
    drain(&app).await;
    supervisor.ends();
    stop.send_replace(true);
    serving.await?;
    delivering.await?;
    app.telemetry.flush(SETTLE).await;
    // What is not given back now runs out.
    let _ = tokio::time::timeout(SETTLE, app.admission.settled()).await;
    if let Err(error) = cluster::leave(&app).await {
        tracing::warn!(%error, "this node could not take its leave: the others will take it for dead");
    }
    if tokio::time::timeout(GOODBYE, app.db.close()).await.is_err() {
        tracing::warn!("the database did not close in time");
    }
    match supervisor.fault() {
        Some(fault) => Err(fault.into()),
        None => Ok(()),
    }
}

/// Where this server is, as far as it can tell by itself.
fn own_url(config: &Config, address: SocketAddr) -> String {
    let scheme = match &config.server.tls {
        Some(_) => "https",
        None => "http",
    };
    format!("{scheme}://{address}")
}

/// Whether an address leads another machine to itself, or nowhere.
fn is_nobody_elses(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    ip.is_unspecified() || ip.is_loopback()
}

/// Each connection, call and file of a call takes a descriptor: as many as the system lets this process
/// have, not the smaller number that it starts with.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!(limit = ?limit.maximum, "open files"),
        Err(error) => tracing::warn!(%error, "the limit of open files could not be raised"),
    }
}

fn assemble(
    config: Config,
    db: Db,
    clock: Clock,
    incarnation: Incarnation,
    supervisor: Supervisor,
) -> Result<App, Failure> {
    let master_key = match &config.master_key {
        Some(key) => MasterKey::from_base64(key.expose())
            .ok_or_else(|| ConfigError::one("SIDETONE_MASTER_KEY", "must be 32 bytes in base64"))?,
        None => {
            let file = config.server.data_dir.join("master.key");
            MasterKey::load_or_create(&file).map_err(super::at_path(&file))?
        }
    };
    let redis = config.redis_url.as_ref().map(Link::new).transpose();
    let redis = redis.map_err(|why| ConfigError::one("redis.url", why))?;
    let admission: Arc<dyn Leases> = match &redis {
        Some(link) => Redis::start(
            link.clone(),
            Caps::from(&config.limits),
            incarnation.owner.clone(),
            SERVER_CLOCK,
            &supervisor,
        ),
        None => Local::start(&config.limits, clock.clone()),
    };
    let engine = Arc::new(Engine::start(EngineConfig {
        threads: or_cores(config.engine.media_threads),
        node_calls: config.limits.node_calls as usize,
        spool_dir: calls::spool_dir(&config),
        min_free: u64::from(config.recordings.min_free_mib) << 20,
        lead_ms: config.engine.lead_ms,
        webrtc: Some(config.webrtc.to_engine(config.server.listen)),
        priority: config.engine.priority,
    })?);
    models::catalogue::configure(&config.speech.remote);
    voices::catalogue::configure(&config.speech.remote);
    let speech = SpeechSettings {
        recogniser: config.speech.recogniser.clone(),
        recogniser_fallback: config.speech.recogniser_fallback.clone(),
        remote: config.speech.remote.clone(),
        recogniser_threads: or_cores(config.speech.workers),
        voice_threads: or_cores(config.speech.workers) * VOICES_PER_WORKER,
        request_threads: or_cores(config.speech.workers),
        supervisor: supervisor.clone(),
    };
    let data_dir = &config.server.data_dir;
    let speech =
        Speech::start(speech, data_dir).map_err(super::at_path(&data_dir.join("speech")))?;
    let storage = if config.storage.url.is_empty() {
        let folder = data_dir.join("objects");
        Storage::local(folder.clone()).map_err(super::at_path(&folder))?
    } else {
        Storage::remote(&config.storage, std::env::vars())
            .map_err(|error| ConfigError::one("storage.url", error))?
    };
    let egress = Egress::start(config.egress.allow.clone(), config.egress.dns)?;
    let telemetry = Telemetry::start(&config.telemetry, &config.cluster.node, &supervisor)
        .map_err(|error| ConfigError::one("telemetry.endpoint", error))?;
    Ok(App::new(Parts {
        config,
        db,
        clock,
        master_key,
        admission,
        redis,
        incarnation,
        engine,
        speech,
        storage,
        egress,
        telemetry,
        supervisor,
    }))
}

/// A voice waits for its program more than it computes.
const VOICES_PER_WORKER: usize = 2;

/// A number of threads; 0 stands for one a core.
fn or_cores(threads: usize) -> usize {
    if threads > 0 {
        threads
    } else {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

/// Ends the calls that the process before this one left behind. New calls need not wait for it.
async fn recover(app: Node) {
    while let Err(error) = calls::recover(&app).await {
        tracing::error!(%error, "calls of an earlier process could not be ended");
        if !error.is_unavailable() {
            break;
        }
        app.db.returned().await;
        tokio::time::sleep(RECOVER_AGAIN).await;
    }
    app.set_recovering(false);
}

/// Between two tries to end the calls of an earlier process.
const RECOVER_AGAIN: Duration = Duration::from_secs(1);

/// No new calls; those that live go on for a while.
async fn drain(app: &App) {
    app.start_draining();
    tracing::info!(
        seconds = app.config.server.drain_seconds,
        "ending: waiting for live calls"
    );
    let wait = Duration::from_secs(app.config.server.drain_seconds.into());
    let over = tokio::time::Instant::now() + wait;
    idle(app, over).await;
    // Who comes now keeps the ticket, for another node or for the next process; who was being let in at
    // this moment is waited for as well.
    app.start_leaving();
    app.live.cancel_dialling();
    tokio::time::sleep(JOINING).await;
    idle(app, over).await;
    app.engine.drain(EndRequest::Drain);
    idle(app, tokio::time::Instant::now() + GOODBYE).await;
    // It joins threads, which may take its while.
    tokio::task::block_in_place(|| app.engine.shutdown(GOODBYE));
    if !app.live.drained(GOODBYE).await {
        tracing::error!(
            left = app.live.len(),
            "some calls were not written down; the next start ends them"
        );
    }
    calls::bridge::telephone::settle(&Calling::from_ref(app)).await;
}

/// For giving back leases to a store that may be away, and for the last spans.
const SETTLE: Duration = Duration::from_secs(1);

/// For those who have shown their ticket and are not counted among the live calls yet.
const JOINING: Duration = Duration::from_millis(200);

/// For goodbyes, and for the last blocks of recordings.
const GOODBYE: Duration = Duration::from_secs(3);

/// Waits until no call lives or rings, at most until then.
async fn idle(app: &App, until: tokio::time::Instant) {
    while app.engine.live_calls() + app.live.count_dialling() > 0
        && tokio::time::Instant::now() < until
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What the operator must learn at the start. The key appears here and never again.
fn greet(bootstrap: &accounts::Bootstrap, config: &Config) {
    println!("sidetone is at {}", config.server.public_url);
    if let Some(key) = &bootstrap.new_key {
        println!(
            "API key of the account {} (shown once): {}",
            bootstrap.account.name,
            key.expose()
        );
    }
}

fn start_log(args: &Args, config: &Config) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.server.log)
        .map_err(|error| ConfigError::one("server.log", error))?;
    // Without a word on the most that it lets through, each line of the crates below would be made and then dropped.
    let most = filter.max_level_hint().unwrap_or(LevelFilter::TRACE);
    let shown = filter_fn(|line| is_shown(line.target(), *line.level())).with_max_level_hint(most);
    let filter = filter.and(shown);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry();
    if args.log_json || config.log.format == LogFormat::Json {
        // One object a line; what a span says of a call stands in `span`.
        let lines = lines.json().flatten_event(true).with_span_list(false);
        registry.with(lines.with_filter(filter)).try_init()?;
    } else {
        let lines = lines.with_ansi(std::io::stderr().is_terminal());
        registry.with(lines.with_filter(filter)).try_init()?;
    }
    Ok(())
}

/// Whether lines of this crate may stand in the log at all, whatever the filter says. Below `info` the
/// crates that this program uses show what they carry: headers with keys, frames with speech, statements.
fn is_shown(target: &str, level: Level) -> bool {
    let own = ["control", "media", "sip", "sidetone"];
    let crate_name = target.split("::").next().unwrap_or_default();
    level <= Level::INFO || own.contains(&crate_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_a_certificate_says_so_to_the_other_nodes() {
        let mut config = Config::defaults().expect("the defaults are right");
        let address = SocketAddr::from(([192, 0, 2, 7], 8443));
        assert_eq!(own_url(&config, address), "http://192.0.2.7:8443");
        config.server.tls = Some(crate::config::Tls {
            certificate: "a.pem".into(),
            key: "b.pem".into(),
        });
        assert_eq!(own_url(&config, address), "https://192.0.2.7:8443");
    }

    #[test]
    fn an_address_of_this_machine_only_is_known() {
        for (text, is_own) in [
            ("0.0.0.0:8080", true),
            ("127.0.0.1:8080", true),
            ("[::]:8080", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]:8080", true),
            ("192.0.2.7:8080", false),
            ("[2001:db8::7]:8080", false),
        ] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(is_nobody_elses(address), is_own, "{text}");
        }
    }

    #[test]
    fn other_crates_show_nothing_of_what_they_carry() {
        for target in [
            "control",
            "control::calls::writer",
            "media::shell::live",
            "sip",
        ] {
            assert!(is_shown(target, Level::TRACE), "{target}");
        }
        for target in [
            "tungstenite::protocol",
            "hyper::proto::h1::io",
            "h2::codec::framed_read",
            "sqlx::query",
            "controls",
        ] {
            assert!(!is_shown(target, Level::DEBUG), "{target}");
            assert!(is_shown(target, Level::WARN), "{target}");
        }
    }
}
