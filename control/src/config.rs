//! Settings: defaults from the binary, over them the file, over that the environment. All are
//! checked at the start; a wrong one is named.

mod providers;
pub mod proxies;
mod read;
pub mod sip;
pub mod stores;
pub mod webrtc;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use self::proxies::Proxies;
use crate::catalogue::providers::{RecogniserKind, RemoteSettings};
use crate::credential::Presented;
use crate::egress::Allow;
use crate::jobs::schedule::Schedule;
use crate::secret::Secret;

pub use read::ConfigError;
pub use stores::{Cluster, Database, Storage};
pub use webrtc::{Turn, WebRtc};

/// The commented defaults.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: Server,
    pub log: Log,
    pub telemetry: Telemetry,
    pub database: Database,
    /// `redis://…`, or `rediss://…` over TLS; unset: leases are kept in this process.
    pub redis_url: Option<Secret<String>>,
    pub cluster: Cluster,
    pub limits: Limits,
    pub engine: Engine,
    pub speech: Speech,
    pub egress: Egress,
    pub sip: sip::Sip,
    pub webhooks: Webhooks,
    pub storage: Storage,
    pub recordings: Recordings,
    pub billing: Billing,
    pub usage: Usage,
    pub webrtc: WebRtc,
    /// `SIDETONE_BOOTSTRAP_API_KEY`: a full-scope key of the account `default`.
    pub bootstrap_api_key: Option<Secret<String>>,
    /// `SIDETONE_MASTER_KEY`: 32 bytes in base64; unset: kept in the data folder.
    pub master_key: Option<Secret<String>>,
    /// `SIDETONE_ADMIN_TOKEN`; unset: the admin routes are not mounted.
    pub admin_token: Option<Secret<String>>,
}

#[derive(Clone, Debug)]
pub struct Server {
    pub listen: SocketAddr,
    /// Without a slash at its end. Made from the bound address at the start when empty.
    pub public_url: String,
    pub data_dir: PathBuf,
    pub drain_seconds: u32,
    pub max_connections: usize,
    pub max_connections_per_ip: usize,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Proxies,
    pub log: String,
    /// Unset: plain HTTP.
    pub tls: Option<Tls>,
}

#[derive(Clone, Copy, Debug)]
pub struct Log {
    pub format: LogFormat,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// Where traces of calls go.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    /// Of the collector, without a slash at its end and without `/v1/traces`. Empty: nowhere.
    pub endpoint: String,
    /// Sent with every request; values may be keys.
    pub headers: Vec<(String, Secret<String>)>,
    /// Of a hundred calls that nobody else traces, so many are.
    pub sample_percent: u32,
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Recordings {
    pub min_free_mib: u32,
    /// 0: not kept.
    pub unrecorded_tape_days: u32,
}

#[derive(Clone, Debug)]
pub struct Limits {
    pub account_calls: u32,
    pub pool_calls: u32,
    pub node_calls: u32,
    pub reads_per_minute: u32,
    pub writes_per_minute: u32,
    pub call_creations_per_minute: u32,
    pub tts_per_minute: u32,
    pub failed_auth_per_minute: u32,
    pub keyless_per_minute: u32,
    /// Calls at a time of one address without a key.
    pub keyless_calls: u32,
}

#[derive(Clone, Debug)]
pub struct Engine {
    /// 0: as many as cores.
    pub media_threads: usize,
    pub lead_ms: u32,
    /// Steps of niceness.
    pub priority: u8,
    pub max_duration_seconds: u32,
    /// Of an agent without one of its own, tokens.
    pub max_tokens: u32,
    pub vad: media::config::VadKind,
}

#[derive(Clone, Debug)]
pub struct Speech {
    pub recogniser: RecogniserKind,
    /// Who listens when the recogniser's provider fails.
    pub recogniser_fallback: Option<RecogniserKind>,
    /// Providers outside this process, and what is used of them.
    pub remote: RemoteSettings,
    /// A voice key; empty: the catalogue's first.
    pub default_voice: String,
    /// 0: as many as cores.
    pub workers: usize,
    /// Sound of `POST /tts` in memory at a time, MiB.
    pub tts_memory_mib: u32,
}

#[derive(Clone, Debug)]
pub struct Egress {
    /// Host names and address ranges let through.
    pub allow: Allow,
    /// The one name server to ask; `None`: those of the system.
    pub dns: Option<SocketAddr>,
}

#[derive(Clone, Debug)]
pub struct Webhooks {
    pub schedule: Schedule,
    /// Attempts in flight for one account, and for one receiver of it.
    pub per_account: usize,
    pub per_host: usize,
    /// How long a settled event is kept; unset: for ever.
    pub kept: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Billing {
    pub mode: BillingMode,
    /// Where a blocked account can be helped.
    pub action_url: Option<String>,
    pub prices: Prices,
}

/// Whether balances count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BillingMode {
    Off,
    Prepaid,
}

/// Thousandths of a cent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prices {
    pub call_minute_millicents: u32,
    pub tts_thousand_characters_millicents: u32,
    pub transcription_minute_millicents: u32,
    pub llm_thousand_tokens_millicents: u32,
    pub sms_segment_millicents: u32,
    pub chatapp_message_millicents: u32,
}

#[derive(Clone, Debug)]
pub struct Usage {
    pub limits: UsageLimits,
}

/// What an account's usage in a calendar month is held against, in units; 0: none.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageLimits {
    pub call_minutes: u32,
    pub tts_characters: u32,
    pub transcription_seconds: u32,
    pub sms_segments: u32,
    pub chatapp_messages: u32,
    pub llm_tokens: u32,
}

impl Config {
    /// Defaults, the text of a file (TOML) and the environment put together and checked.
    pub fn load(file: Option<&str>, env: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let mut settings = read::Settings::merge(DEFAULTS, file, env)?;
        let data_dir = PathBuf::from(settings.text("server.data_dir"));
        let database = stores::database(&mut settings, &data_dir);
        let redis_url = stores::redis_url(&mut settings);
        let cluster = stores::cluster(&mut settings);
        let chosen = providers::read(&mut settings);
        let config = Self {
            server: Server {
                listen: settings.parsed(
                    "server.listen",
                    "an address and port",
                    ([127, 0, 0, 1], 8080).into(),
                ),
                public_url: public_url(&mut settings),
                data_dir,
                drain_seconds: settings.int("server.drain_seconds", 0, 3600),
                max_connections: settings.int("server.max_connections", 1, 1_000_000) as usize,
                max_connections_per_ip: settings.int("server.max_connections_per_ip", 1, 1_000_000)
                    as usize,
                trusted_proxies: trusted_proxies(&mut settings),
                log: settings.text("server.log"),
                tls: tls(&mut settings, "server.tls.certificate", "server.tls.key"),
            },
            log: Log {
                format: settings.word(
                    "log.format",
                    &[("text", LogFormat::Text), ("json", LogFormat::Json)],
                ),
            },
            telemetry: telemetry(&mut settings),
            database,
            redis_url,
            cluster,
            limits: limits(&mut settings),
            engine: Engine {
                media_threads: settings.int("engine.media_threads", 0, 256) as usize,
                lead_ms: settings.int("engine.lead_ms", 0, 400),
                priority: settings.int("engine.priority", 0, 20) as u8,
                max_duration_seconds: settings.int("engine.max_duration_seconds", 1, 86_400),
                max_tokens: settings.int("engine.max_tokens", 1, 8192),
                vad: settings.word(
                    "engine.vad",
                    &[
                        ("neural", media::config::VadKind::Neural),
                        ("energy", media::config::VadKind::Energy),
                    ],
                ),
            },
            speech: Speech {
                recogniser: chosen.recogniser,
                recogniser_fallback: chosen.recogniser_fallback,
                remote: chosen.remote,
                default_voice: settings.text("speech.default_voice"),
                workers: settings.int("speech.workers", 0, 256) as usize,
                tts_memory_mib: settings.int("speech.tts_memory_mib", 16, 65_536),
            },
            egress: Egress {
                allow: allow(&mut settings),
                dns: dns(&mut settings),
            },
            sip: sip::read(&mut settings),
            webhooks: webhooks(&mut settings),
            storage: stores::storage(&mut settings),
            recordings: Recordings {
                min_free_mib: settings.int("recordings.min_free_mib", 0, 1 << 30),
                unrecorded_tape_days: settings.int("recordings.unrecorded_tape_days", 0, 36_500),
            },
            billing: billing(&mut settings),
            usage: Usage {
                limits: usage_limits(&mut settings),
            },
            webrtc: webrtc::read(&mut settings),
            bootstrap_api_key: settings.secret("SIDETONE_BOOTSTRAP_API_KEY"),
            master_key: settings.secret("SIDETONE_MASTER_KEY"),
            admin_token: settings.secret("SIDETONE_ADMIN_TOKEN"),
        };
        if let Some(key) = &config.master_key
            && crate::secret::MasterKey::from_base64(key.expose()).is_none()
        {
            settings.wrong("SIDETONE_MASTER_KEY", "must be 32 bytes in base64");
        }
        if let Some(key) = &config.bootstrap_api_key
            && Presented::chosen(key.expose()).is_none()
        {
            settings.wrong(
                "SIDETONE_BOOTSTRAP_API_KEY",
                "must be an API key, or at least 16 visible ASCII characters",
            );
        }
        settings.finish(config)
    }

    /// The defaults alone, for tests.
    pub fn defaults() -> Result<Self, ConfigError> {
        Self::load(None, &BTreeMap::new())
    }
}

fn limits(settings: &mut read::Settings) -> Limits {
    let mut limit = |key: &str| settings.int(&format!("limits.{key}"), 0, 10_000_000);
    Limits {
        account_calls: limit("account_calls"),
        pool_calls: limit("pool_calls"),
        node_calls: limit("node_calls"),
        reads_per_minute: limit("reads_per_minute"),
        writes_per_minute: limit("writes_per_minute"),
        call_creations_per_minute: limit("call_creations_per_minute"),
        tts_per_minute: limit("tts_per_minute"),
        failed_auth_per_minute: limit("failed_auth_per_minute"),
        keyless_per_minute: limit("keyless_per_minute"),
        keyless_calls: limit("keyless_calls"),
    }
}

fn webhooks(settings: &mut read::Settings) -> Webhooks {
    const DAY_MS: u32 = 86_400_000;
    let mut ms = |key: &str, min, max| {
        let ms = settings.int(&format!("webhooks.{key}"), min, max);
        Duration::from_millis(ms.into())
    };
    let schedule = Schedule {
        attempt: ms("attempt_ms", 100, 60_000),
        short: ms("short_pause_ms", 1, DAY_MS),
        first_round: ms("first_round_ms", 1, DAY_MS),
        longest: ms("longest_pause_ms", 1, DAY_MS),
    };
    Webhooks {
        schedule,
        per_account: settings.int("webhooks.per_account", 1, 128) as usize,
        per_host: settings.int("webhooks.per_host", 1, 128) as usize,
        kept: match settings.int("webhooks.keep_days", 0, 36_500) {
            0 => None,
            days => Some(Duration::from_secs(u64::from(days) * 86_400)),
        },
    }
}

/// The files that two settings name: both or none.
fn tls(settings: &mut read::Settings, certificate: &str, key: &str) -> Option<Tls> {
    let files = (settings.text(certificate), settings.text(key));
    match (files.0.is_empty(), files.1.is_empty()) {
        (true, true) => None,
        (false, false) => Some(Tls {
            certificate: files.0.into(),
            key: files.1.into(),
        }),
        (true, false) => {
            settings.wrong(certificate, &format!("is missing beside {key}"));
            None
        }
        (false, true) => {
            settings.wrong(key, &format!("is missing beside {certificate}"));
            None
        }
    }
}

fn telemetry(settings: &mut read::Settings) -> Telemetry {
    let endpoint = settings
        .text("telemetry.endpoint")
        .trim_end_matches('/')
        .to_owned();
    if !endpoint.is_empty() && !endpoint.starts_with("http://") && !endpoint.starts_with("https://")
    {
        settings.wrong("telemetry.endpoint", "must begin with http:// or https://");
    }
    let mut headers = Vec::new();
    for header in settings.list("telemetry.headers") {
        let pair = header.split_once('=').map(|(n, v)| (n.trim(), v.trim()));
        let valid = pair.filter(|(name, value)| {
            name.parse::<::http::HeaderName>().is_ok()
                && value.parse::<::http::HeaderValue>().is_ok()
        });
        match valid {
            Some((name, value)) => headers.push((name.to_owned(), Secret::new(value.to_owned()))),
            // The value is not shown: it may be a key.
            None => settings.wrong(
                "telemetry.headers",
                "must be name=value, with commas between",
            ),
        }
    }
    Telemetry {
        endpoint,
        headers,
        sample_percent: settings.int("telemetry.sample_percent", 0, 100),
    }
}

fn billing(settings: &mut read::Settings) -> Billing {
    let mode = settings.word(
        "billing.mode",
        &[("off", BillingMode::Off), ("prepaid", BillingMode::Prepaid)],
    );
    let action_url = settings.text("billing.action_url");
    if !action_url.is_empty()
        && !action_url.starts_with("http://")
        && !action_url.starts_with("https://")
    {
        settings.wrong("billing.action_url", "must begin with http:// or https://");
    }
    let mut price =
        |key: &str| settings.int(&format!("billing.{key}_millicents"), 0, 1_000_000_000);
    Billing {
        mode,
        action_url: Some(action_url).filter(|url| !url.is_empty()),
        prices: Prices {
            call_minute_millicents: price("call_minute"),
            tts_thousand_characters_millicents: price("tts_thousand_characters"),
            transcription_minute_millicents: price("transcription_minute"),
            llm_thousand_tokens_millicents: price("llm_thousand_tokens"),
            sms_segment_millicents: price("sms_segment"),
            chatapp_message_millicents: price("chatapp_message"),
        },
    }
}

fn usage_limits(settings: &mut read::Settings) -> UsageLimits {
    let mut limit = |key: &str| settings.int(&format!("usage.monthly_{key}"), 0, u32::MAX);
    UsageLimits {
        call_minutes: limit("call_minutes"),
        tts_characters: limit("tts_characters"),
        transcription_seconds: limit("transcription_seconds"),
        sms_segments: limit("sms_segments"),
        chatapp_messages: limit("chatapp_messages"),
        llm_tokens: limit("llm_tokens"),
    }
}

fn allow(settings: &mut read::Settings) -> Allow {
    Allow::parse(&settings.list("egress.allow")).unwrap_or_else(|entry| {
        settings.wrong(
            "egress.allow",
            &format!("{entry:?} is no host name, address or range"),
        );
        Allow::default()
    })
}

fn trusted_proxies(settings: &mut read::Settings) -> Proxies {
    Proxies::parse(&settings.list("server.trusted_proxies")).unwrap_or_else(|entry| {
        settings.wrong(
            "server.trusted_proxies",
            &format!("{entry:?} is no address or address range"),
        );
        Proxies::default()
    })
}

fn dns(settings: &mut read::Settings) -> Option<SocketAddr> {
    let text = settings.text("egress.dns");
    let server = text.parse().ok();
    if server.is_none() && !text.is_empty() {
        settings.wrong("egress.dns", "must be an address and port");
    }
    server
}

fn public_url(settings: &mut read::Settings) -> String {
    let url = settings
        .text("server.public_url")
        .trim_end_matches('/')
        .to_owned();
    if !url.is_empty() && !url.starts_with("http://") && !url.starts_with("https://") {
        settings.wrong("server.public_url", "must begin with http:// or https://");
    }
    url
}

#[cfg(test)]
mod tests;
