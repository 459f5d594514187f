//! `sidetone load`: many calls at once against a running server, by telephone (over sockets) or of browsers
//! (over WebRTC), made by one thread, and what they cost: CPU a session-second, pacing, answer and barge-in times, memory, underruns.

mod arrival;
mod browser;
mod connection;
mod frames;
mod generator;
mod listener;
mod process;
mod report;
mod socket;
mod stimulus;
mod times;
mod witness;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::browser::BrowserCaller;
pub use self::connection::{Connection, Received};
use self::generator::{Call, Plan};
pub use self::report::Bars;
use self::report::{Report, Setting};
use self::socket::SocketCaller;
pub use self::stimulus::CALLER_BITS;
use super::client::{Client, ClientError, Connect, Server};

/// How the calls' audio travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// Telephone calls: a vendor's media stream over a WebSocket, μ-law.
    Telco,
    /// Browsers' calls: Opus over SRTP.
    Webrtc,
}

/// Place many calls at once and measure.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadArgs {
    #[command(flatten)]
    pub server: Server,
    /// How the audio travels.
    #[arg(long, value_enum, default_value_t = Transport::Telco)]
    pub transport: Transport,
    /// Calls at once. The server's caps on concurrent calls and on call creation must allow them.
    #[arg(long, default_value_t = 40)]
    pub sessions: usize,
    /// How long to measure.
    #[arg(long, default_value_t = 30)]
    pub seconds: u64,
    /// How long to run before measuring.
    #[arg(long, default_value_t = 8)]
    pub warm_up: u64,
    /// The agent to call; without it one is made for the run (model `echo`, interrupted by the first
    /// voiced frame, recorded) and deleted afterwards.
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Voice of the agent made for the run, by id or voice key.
    #[arg(long, value_name = "ID")]
    pub voice: Option<String>,
    /// The agent made for the run is not recorded.
    #[arg(long)]
    pub no_recording: bool,
    /// Process of the server on this machine: its CPU time and memory are measured.
    #[arg(long)]
    pub pid: Option<u32>,
    /// Silence that the agent waits for before it answers, ms; without it, taken from the transcripts.
    #[arg(long, value_name = "MS")]
    pub hangover: Option<f64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub bars: Bars,
}

/// Runs the command. Fails when a bar is missed, a session is lost, or the run could not be made.
pub fn run(args: &LoadArgs) -> ExitCode {
    match load(args) {
        Ok(report) => {
            if args.json {
                println!("{}", report.json());
            } else {
                print!("{}", report.table());
            }
            let missed = report.missed(&args.bars);
            for line in &missed {
                eprintln!("MISSED: {line}");
            }
            if missed.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn load(args: &LoadArgs) -> Result<Report, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let mut stimulus = stimulus::render()?;
    if args.transport == Transport::Webrtc {
        stimulus.encode()?;
    }
    let client = Client::new(&args.server).map_err(|error| error.to_string())?;
    let made = match &args.agent {
        Some(_) => None,
        None => Some(
            runtime
                .block_on(make_agent(&client, args))
                .map_err(|error| error.to_string())?,
        ),
    };
    let agent = args
        .agent
        .as_deref()
        .or(made.as_deref())
        .unwrap_or_default();
    let report = measure(args, &runtime, &client, agent, &stimulus);
    if let Some(id) = made {
        let gone = runtime.block_on(client.delete(&format!("/agents/{id}?force=true")));
        gone.map_err(|error| format!("the agent made for the run could not be deleted: {error}"))?;
    }
    report
}

fn measure(
    args: &LoadArgs,
    runtime: &Runtime,
    client: &Client,
    agent: &str,
    stimulus: &stimulus::Stimulus,
) -> Result<Report, String> {
    let callers = Callers {
        runtime,
        client,
        agent,
        transport: args.transport,
    };
    rehearse(&callers, stimulus)?;
    let rss_before_kib = args
        .pid
        .and_then(process::read)
        .map(|reading| reading.rss_kib);
    let bar = progress_bar(args.sessions as u64);
    let (mut calls, mut sessions) = (Vec::new(), Vec::new());
    for index in 0..args.sessions {
        // Any two calls are at different places of the loop, and speech spreads evenly over them.
        let at = index * 37 % stimulus.frames.len();
        let (session, call) = callers
            .call(at, index as u32)
            .map_err(|error| format!("session {index}: {error}"))?;
        calls.push(call);
        sessions.push(session);
        bar.inc(1);
    }
    bar.finish_and_clear();

    let plan = Plan {
        warm_up: Duration::from_secs(args.warm_up),
        measured: Duration::from_secs(args.seconds),
        pid: args.pid,
    };
    let bar = progress_bar(1000);
    let outcome = generator::run(calls, stimulus, &plan, |share| {
        bar.set_position((share * 1000.0) as u64)
    })
    .map_err(|error| error.to_string())?;
    bar.finish_and_clear();

    let hangover_ms = match args.hangover {
        Some(ms) => Some(ms),
        None => runtime
            .block_on(hangover(client, &sessions))
            .map_err(|error| error.to_string())?,
    };
    let setting = Setting {
        sessions: args.sessions,
        speech_share: stimulus.speech_share,
        hangover_ms,
        rss_before_kib,
    };
    Ok(Report::new(&setting, &outcome))
}

/// Two short calls before anything is measured: what a server makes or maps once, with its first call
/// (connections to its store, pages of its program), is no cost of a session.
fn rehearse(callers: &Callers<'_>, stimulus: &stimulus::Stimulus) -> Result<(), String> {
    let failed = |error: String| format!("rehearsal: {error}");
    let mut calls = Vec::new();
    for index in 0..2 {
        let at = index * stimulus.frames.len() / 2;
        let (_, call) = callers.call(at, index as u32).map_err(failed)?;
        calls.push(call);
    }
    let plan = Plan {
        warm_up: Duration::from_secs(4),
        measured: Duration::from_secs(2),
        pid: None,
    };
    generator::run(calls, stimulus, &plan, |_| {})
        .map(drop)
        .map_err(|error| failed(error.to_string()))
}

/// Who calls whom, and how.
struct Callers<'a> {
    runtime: &'a Runtime,
    client: &'a Client,
    agent: &'a str,
    transport: Transport,
}

impl Callers<'_> {
    /// Places a call that starts its stimulus at that frame; the session's id with it.
    fn call(&self, at: usize, number: u32) -> Result<(String, Call), String> {
        match self.transport {
            Transport::Telco => {
                let wish = Connect {
                    agent: self.agent,
                    direction: "inbound",
                    protocol: "telco",
                    audio_format: "ulaw_8000",
                };
                let session = self
                    .runtime
                    .block_on(patiently(async || self.client.connect(wish).await))
                    .map_err(|error| error.to_string())?;
                let socket = generator::dial(&session.ws_url)?;
                let line = SocketCaller::new(&session.id, at, number);
                let call = Call::on(socket, line).map_err(|error| error.to_string())?;
                Ok((session.id, call))
            }
            Transport::Webrtc => {
                let (mut peer, offer) = BrowserCaller::new(at, number)?;
                let (id, answer) = self
                    .runtime
                    .block_on(self.negotiate(&offer))
                    .map_err(|error| error.to_string())?;
                peer.accept(&answer)?;
                Ok((id, Call::Peer(Box::new(peer))))
            }
        }
    }

    /// Opens a browser's session and has its offer answered: its id, and the answer.
    async fn negotiate(&self, offer: &str) -> Result<(String, String), ClientError> {
        let missing = |key: &str| ClientError::Odd(format!("the answer has no {key}"));
        let text = |answer: &Value, key: &str| {
            let value = answer[key].as_str().map(str::to_owned);
            value.ok_or_else(|| missing(key))
        };
        let wish = json!({"agent_id": self.agent, "transport": "webrtc"});
        let session = patiently(async || self.client.post("/conversation/connect", &wish).await);
        let id = text(&session.await?, "session_id")?;
        let body = json!({"sdp": offer, "type": "offer"});
        let path = format!("/conversation/{id}/offer");
        let answer = self.client.post(&path, &body).await?;
        Ok((id, text(&answer, "sdp")?))
    }
}

/// Asks, and waits as long as the server says for a few times: the rehearsal's calls may not be over yet.
async fn patiently<T>(
    mut ask: impl AsyncFnMut() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    /// A minute's rate is refilled in a minute; more waiting would not help.
    const TRIES: u32 = 12;
    let mut tries = 0;
    loop {
        match ask().await {
            Err(ClientError::Refused {
                code,
                retry_after: Some(seconds),
                ..
            }) if ["rate_limited", "capacity"].contains(&code.as_str()) && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(Duration::from_secs(seconds.clamp(1, 5))).await;
            }
            other => return other,
        }
    }
}

/// An agent whose answers cost as little as may be, so that the figures are the engine's.
async fn make_agent(client: &Client, args: &LoadArgs) -> Result<String, ClientError> {
    let voice = match &args.voice {
        Some(voice) => voice.clone(),
        None => cheapest_voice(client).await?,
    };
    let body = json!({
        "name": "load",
        "system_prompt": "Repeat what the caller says.",
        "voice_id": voice,
        "llm_model": "echo",
        "barge_in_min_speech_secs": 0,
        "idle_check_in_after_secs": 600,
        "max_duration_seconds": 3600,
        "recording_enabled": !args.no_recording,
    });
    let answer = client.post("/agents", &body).await?;
    answer["id"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| ClientError::Odd("the agent has no id".to_owned()))
}

/// The scripted voice where the server has one, else the first English one.
async fn cheapest_voice(client: &Client) -> Result<String, ClientError> {
    let answer = client.get("/voices?limit=500").await?;
    let voices = answer["items"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let scripted = voices.iter().find(|voice| {
        voice["voice_key"]
            .as_str()
            .is_some_and(|key| key.contains("scripted"))
    });
    let english = || {
        voices.iter().find(|voice| {
            voice["language"]
                .as_str()
                .is_some_and(|name| name.starts_with("en"))
        })
    };
    let voice = scripted
        .or_else(english)
        .and_then(|voice| voice["id"].as_str());
    voice
        .map(str::to_owned)
        .ok_or_else(|| ClientError::Odd("the server has no English voice".to_owned()))
}

/// The median of what the settings contributed to the answers, from a few transcripts, ms.
async fn hangover(client: &Client, sessions: &[String]) -> Result<Option<f64>, ClientError> {
    /// Enough answers for a median.
    const SAMPLES: usize = 8;
    let mut waits = Vec::new();
    for session in sessions.iter().take(SAMPLES) {
        let turns = client.transcript(session).await?;
        waits.extend(turns.iter().filter_map(|turn| waited(&turn["latency"])));
    }
    waits.sort_by(f64::total_cmp);
    Ok(waits.get(waits.len() / 2).copied())
}

fn waited(latency: &Value) -> Option<f64> {
    let parts = latency["contributions"].as_array()?;
    let of_settings = parts.iter().filter(|part| part["owner"] == "setting");
    Some(
        of_settings
            .filter_map(|part| part["duration_ms"].as_f64())
            .sum(),
    )
}

/// A bar on a terminal, nothing elsewhere.
fn progress_bar(length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {elapsed}");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
