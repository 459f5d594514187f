//! `sidetone call`: places a call with a WAV file as the caller's voice, streams it in real time, prints
//! the transcript live with each answer's latency, and saves what the caller would have heard. Over a
//! socket it calls an agent of a server; with `--sip` it is a telephone and calls any SIP address.

mod outcome;
mod player;
mod screen;
mod script;
mod telephone;
mod wire;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use media::audio::resample::Resampler;
use media::config::AudioFormat;
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use self::outcome::Outcome;
use self::player::Player;
use self::screen::Screen;
use self::script::{Act, AgentSpeech, Script};
use self::wire::{Said, Wire};
use super::client::{Client, ClientError, Connect, Server, Session};
use super::recognise::LineCodec;

/// Place a call from a WAV file.
#[derive(Debug, Clone, clap::Args)]
pub struct CallArgs {
    /// Address of the server, without /api/v1.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// API key.
    #[arg(
        long,
        env = "SIDETONE_API_KEY",
        hide_env_values = true,
        required_unless_present = "sip"
    )]
    pub key: Option<String>,
    /// The agent to call, by id or name.
    #[arg(long, value_name = "ID", required_unless_present = "sip")]
    pub agent: Option<String>,
    /// What the caller says: a WAV file of any rate. It is spoken after the greeting.
    #[arg(long, value_name = "FILE", required_unless_present = "sip")]
    pub wav: Option<PathBuf>,
    /// Save what the caller hears, on the call's own time line.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Speak this long after the agent began to speak, instead of letting it finish.
    #[arg(long, value_name = "MS")]
    pub barge_in_at: Option<u64>,
    /// Audio of the socket; ulaw_8000 with --telco.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Speak as a telephony vendor's media stream.
    #[arg(long)]
    pub telco: bool,
    /// The agent calls: it greets after the other side's first words.
    #[arg(long)]
    pub outbound: bool,
    /// Hang up this long after the agent's last answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub linger: f64,
    /// Be a telephone and call this SIP address, as in sip:+4930123456@203.0.113.5:5060;transport=tcp; no
    /// server or key is needed. Without --wav it listens until the other side hangs up.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["agent", "telco", "format", "outbound"])]
    pub sip: Option<String>,
    /// The number that calls.
    #[arg(
        long,
        requires = "sip",
        default_value = "sidetone",
        value_name = "NUMBER"
    )]
    pub from: String,
    /// Offer this codec alone.
    #[arg(long, requires = "sip", value_enum)]
    pub codec: Option<LineCodec>,
    /// Offer encrypted audio and nothing else.
    #[arg(long, requires = "sip")]
    pub srtp: bool,
    /// Press these keys once the call is answered.
    #[arg(long, requires = "sip", value_name = "KEYS")]
    pub press: Option<String>,
    /// Let it ring this long.
    #[arg(long, requires = "sip", value_name = "SECONDS", default_value_t = 60)]
    pub ring: u64,
    /// Hang up this long after the answer, whatever is said.
    #[arg(long, requires = "sip", value_name = "SECONDS")]
    pub seconds: Option<u64>,
    /// Who we are where the other side asks for a password.
    #[arg(long, requires = "sip", value_name = "NAME")]
    pub sip_user: Option<String>,
    /// That password.
    #[arg(long, env = "SIDETONE_SIP_PASSWORD", hide_env_values = true)]
    pub sip_password: Option<String>,
    /// Print each SIP message.
    #[arg(long, requires = "sip")]
    pub trace: bool,
}

/// What the audio on the socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    #[value(name = "pcm_16000")]
    Pcm16000,
    #[value(name = "ulaw_8000")]
    Ulaw8000,
}

/// Runs the command on a runtime of its own. Fails when the call could not be made, did not end well, or had an agent
/// that never heard, answered or spoke because its providers failed.
pub fn run(args: &CallArgs) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CallError::Socket(error.to_string()))
        .and_then(|runtime| {
            runtime.block_on(async {
                match &args.sip {
                    Some(address) => telephone::call(address, args).await,
                    None => call(args).await,
                }
            })
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug)]
enum CallError {
    Wav(PathBuf, String),
    Choice(&'static str),
    Api(ClientError),
    Socket(String),
    /// The server ended the call in a way that is no success.
    Failed(String),
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A frame of caller audio.
const FRAME_MS: u64 = 20;

async fn call(args: &CallArgs) -> Result<(), CallError> {
    let format = format_of(args)?;
    // clap asks for them where there is no --sip.
    let missing = CallError::Choice("--key, --agent and --wav are needed to call an agent");
    let (Some(key), Some(agent), Some(wav)) = (&args.key, &args.agent, &args.wav) else {
        return Err(missing);
    };
    let voice = read_wav(wav, format.sample_rate())?;
    let client = Client::new(&Server {
        url: args.url.clone(),
        key: key.clone(),
    })?;
    let agent = client.agent_id(agent).await?;
    let wish = Connect {
        agent: &agent,
        direction: if args.outbound { "outbound" } else { "inbound" },
        protocol: if args.telco { "telco" } else { "native" },
        audio_format: format.name(),
    };
    let session = client.connect(wish).await?;
    eprintln!("Call {}", session.id);
    let mut line = OpenCall::open(&session, args, format, voice).await?;
    let mut ended = line.talk().await;
    show(line.screen.flush());
    if let Some(path) = &args.out {
        write_wav(path, format.sample_rate(), line.player.sound())?;
        eprintln!("What the caller heard is in {}", path.display());
    }
    if let Err(error) = over(&client, &session.id).await {
        // The call itself went as it went.
        eprintln!("Whether the server has written the call down is not known: {error}");
    }
    line.outcome.spoke = outcome::is_audible(line.player.sound());
    if args.telco {
        // This protocol carries no text: the API has it once the call is over.
        let turns = client.transcript(&session.id).await?;
        line.outcome.read(&turns);
        show(screen::transcript(&turns));
    }
    let path = format!("/conversations/{}/diagnostics", session.id);
    match client.get(&path).await {
        Ok(told) => {
            for line in screen::faults(&told) {
                eprintln!("{line}");
            }
            match line.outcome.unserved(&told) {
                Some(why) if ended.is_ok() => ended = Err(CallError::Failed(why)),
                // The server gave up first, for that reason.
                Some(why) => eprintln!("{why}"),
                None => {}
            }
        }
        // The call itself went as it went.
        Err(error) => eprintln!("What went wrong in the call is not known: {error}"),
    }
    ended
}

/// One call in progress, from the caller's side.
struct OpenCall {
    socket: Socket,
    wire: Wire,
    player: Player,
    script: Script,
    voice: Vec<i16>,
    /// The next sample of the voice to be sent.
    at: usize,
    rate: u64,
    began: Instant,
    ears: AgentSpeech,
    screen: Screen,
    outcome: Outcome,
    hung_up: bool,
    end_reason: Option<String>,
    complaint: Option<String>,
}

impl OpenCall {
    async fn open(
        session: &Session,
        args: &CallArgs,
        format: AudioFormat,
        voice: Vec<i16>,
    ) -> Result<Self, CallError> {
        let mut wire = if args.telco {
            Wire::telco(format!("MZ{}", session.id.replace('-', "")))
        } else {
            Wire::Native { format }
        };
        let mut address = session.ws_url.clone();
        if !args.telco {
            address += if address.contains('?') { "&" } else { "?" };
            address += "events=turn_metrics";
        }
        let connecting = timeout(
            Duration::from_secs(10),
            tokio_tungstenite::connect_async(&address),
        );
        let (mut socket, _) = connecting
            .await
            .map_err(|_| CallError::Socket("the socket did not open within 10 s".to_owned()))?
            .map_err(|error| CallError::Socket(error.to_string()))?;
        for text in wire.opening(&session.id) {
            send(&mut socket, text).await?;
        }
        let rate = u64::from(format.sample_rate());
        let file_ms = voice.len() as u64 * 1000 / rate;
        let linger_ms = (args.linger.clamp(0.0, 3600.0) * 1000.0) as u64;
        Ok(Self {
            socket,
            wire,
            player: Player::new(format.sample_rate()),
            script: Script::new(file_ms, linger_ms, args.barge_in_at),
            voice,
            at: 0,
            rate,
            began: Instant::now(),
            ears: AgentSpeech::default(),
            screen: Screen::default(),
            outcome: Outcome::default(),
            hung_up: false,
            end_reason: None,
            complaint: None,
        })
    }

    /// Speaks and listens until the line is closed.
    async fn talk(&mut self) -> Result<(), CallError> {
        let mut frames = interval(Duration::from_millis(FRAME_MS));
        frames.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        // How long the server may take to close the line after we hung up.
        let mut closing = std::pin::pin!(sleep(Duration::MAX / 4));
        loop {
            let was_on_line = !self.hung_up;
            tokio::select! {
                _ = frames.tick(), if !self.hung_up => self.speak().await?,
                message = self.socket.next() => match message {
                    Some(Ok(Message::Text(text))) => self.hear(text.as_str()).await?,
                    Some(Ok(Message::Close(frame))) => return self.closed(frame.as_ref()),
                    Some(Ok(_)) => {}
                    Some(Err(error)) if self.hung_up => {
                        eprintln!("(the line broke while closing: {error})");
                        return self.closed(None);
                    }
                    Some(Err(error)) => return Err(CallError::Socket(error.to_string())),
                    None => return self.closed(None),
                },
                _ = &mut interrupted, if !self.hung_up => self.hang_up().await?,
                () = &mut closing => return Err(CallError::Failed("the server did not close the line".to_owned())),
            }
            if was_on_line && self.hung_up {
                closing
                    .as_mut()
                    .reset(Instant::now() + Duration::from_secs(10));
            }
        }
    }

    async fn speak(&mut self) -> Result<(), CallError> {
        let now = self.now();
        for heard in self.player.advance(now) {
            if let Some(text) = self.wire.heard(heard) {
                send(&mut self.socket, text).await?;
            }
        }
        match self.script.act(now * 1000 / self.rate, self.ears) {
            Act::HangUp => return self.hang_up().await,
            Act::Begin => self.at = 0,
            Act::Silence => self.at = self.voice.len(),
            Act::Speak => {}
        }
        let mut frame = vec![0; usize::try_from(self.rate * FRAME_MS / 1000).unwrap_or_default()];
        let spoken = self.voice.len().saturating_sub(self.at).min(frame.len());
        frame[..spoken].copy_from_slice(&self.voice[self.at..self.at + spoken]);
        self.at += spoken;
        let text = self.wire.audio(&frame);
        send(&mut self.socket, text).await
    }

    async fn hear(&mut self, text: &str) -> Result<(), CallError> {
        let now = self.now();
        let at_ms = now * 1000 / self.rate;
        match self.wire.read(text) {
            Said::Audio { id, samples } => {
                let quiet_from = self.player.end();
                let start = self.player.play(now, id, &samples);
                if start > quiet_from || self.ears.voice_since.is_none() {
                    self.ears.voice_since = Some(start * 1000 / self.rate);
                }
                self.ears.voice_until = self.player.end() * 1000 / self.rate;
            }
            Said::Interruption {
                up_to,
                turn,
                spoken_ms,
                spoken_text,
            } => {
                let heard = self.player.drop_to(now, up_to);
                show(
                    self.screen
                        .interrupted(&turn, spoken_ms, spoken_text.as_deref()),
                );
                self.taken_back(heard).await?;
            }
            Said::Clear => {
                let heard = self.player.clear(now);
                println!("{}", screen::line(at_ms, "", "(the agent is interrupted)"));
                self.taken_back(heard).await?;
            }
            Said::Mark(name) => self.player.mark(name),
            Said::Ping(id) => {
                let pong = serde_json::json!({"type": "pong", "event_id": id}).to_string();
                send(&mut self.socket, pong).await?;
            }
            Said::Caller {
                text,
                is_final: true,
            } => {
                self.outcome.heard |= !text.trim().is_empty();
                show(self.screen.caller(at_ms, &text));
            }
            Said::Agent {
                turn,
                text,
                is_final,
            } => show(self.screen.agent(at_ms, &turn, &text, is_final)),
            Said::Metrics { turn, record } => {
                self.outcome.answered |= outcome::is_of_model(&record);
                show(self.screen.metrics(&turn, &record));
            }
            Said::Ended(reason) => self.end_reason = Some(reason),
            Said::Error { code, message } => {
                eprintln!("The server says: {message} ({code})");
                self.complaint = Some(message);
            }
            Said::Started | Said::Caller { .. } | Said::Other => {}
        }
        Ok(())
    }

    async fn taken_back(&mut self, heard: Vec<player::PlaybackReport>) -> Result<(), CallError> {
        self.ears.voice_until = self.player.end() * 1000 / self.rate;
        for heard in heard {
            if let Some(text) = self.wire.heard(heard) {
                send(&mut self.socket, text).await?;
            }
        }
        Ok(())
    }

    async fn hang_up(&mut self) -> Result<(), CallError> {
        self.hung_up = true;
        let text = self.wire.end();
        send(&mut self.socket, text).await
    }

    fn closed(&self, frame: Option<&CloseFrame>) -> Result<(), CallError> {
        let code = frame.map_or(1006, |frame| u16::from(frame.code));
        if self.hung_up || (code == 1000 && self.complaint.is_none()) {
            eprintln!(
                "The call ended{}",
                self.end_reason
                    .as_ref()
                    .map_or_else(String::new, |why| format!(": {why}"))
            );
            return Ok(());
        }
        let why = self
            .complaint
            .clone()
            .or_else(|| frame.map(|frame| frame.reason.to_string()));
        Err(CallError::Failed(format!(
            "the server closed the line ({code}): {}",
            why.unwrap_or_default()
        )))
    }

    /// Samples since the call began.
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX) * self.rate / 1_000_000
    }
}

fn show(lines: Vec<String>) {
    for line in lines {
        println!("{line}");
    }
}

async fn send(socket: &mut Socket, text: String) -> Result<(), CallError> {
    socket
        .send(Message::text(text))
        .await
        .map_err(|error| CallError::Socket(error.to_string()))
}

/// Waits until the call's row says that it is over, at most 5 s.
async fn over(client: &Client, id: &str) -> Result<(), CallError> {
    for _ in 0..50 {
        let status = client.get(&format!("/conversation/{id}/status")).await?;
        if matches!(status["status"].as_str(), Some("ended" | "failed")) {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn format_of(args: &CallArgs) -> Result<AudioFormat, CallError> {
    match (args.format, args.telco) {
        (Some(Format::Pcm16000), true) => Err(CallError::Choice("--telco takes only ulaw_8000")),
        (Some(Format::Ulaw8000), _) | (None, true) => Ok(AudioFormat::Ulaw8000),
        (Some(Format::Pcm16000) | None, false) => Ok(AudioFormat::Pcm16000),
    }
}

/// Reads a WAV file of 8 to 32 bits or float as mono at that rate; further channels are left out.
fn read_wav(path: &Path, rate: u32) -> Result<Vec<i16>, CallError> {
    let wrong = |why: String| CallError::Wav(path.to_owned(), why);
    let mut reader = hound::WavReader::open(path).map_err(|error| wrong(error.to_string()))?;
    let spec = reader.spec();
    let channels = usize::from(spec.channels.max(1));
    let samples: Result<Vec<i16>, hound::Error> = match spec.sample_format {
        hound::SampleFormat::Float => reader
            .samples::<f32>()
            .step_by(channels)
            .map(|sample| Ok((sample?.clamp(-1.0, 1.0) * 32_767.0) as i16))
            .collect(),
        hound::SampleFormat::Int => reader
            .samples::<i32>()
            .step_by(channels)
            .map(|sample| {
                // The upper 16 bits, whatever the width; a shift cannot leave the range.
                let wide = i64::from(sample?) << 32;
                Ok(i16::try_from(wide >> (16 + spec.bits_per_sample)).unwrap_or_default())
            })
            .collect(),
    };
    let samples = samples.map_err(|error| wrong(error.to_string()))?;
    if samples.is_empty() {
        return Err(wrong("it holds no sound".to_owned()));
    }
    let mut resampler =
        Resampler::new(spec.sample_rate, rate).map_err(|error| wrong(error.to_string()))?;
    let mut out = Vec::new();
    resampler.process(&samples, &mut out);
    resampler.finish(&mut out);
    Ok(out)
}

fn write_wav(path: &Path, rate: u32, samples: &[i16]) -> Result<(), CallError> {
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: rate,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let write = || -> Result<(), hound::Error> {
        let mut writer = hound::WavWriter::create(path, spec)?;
        for sample in samples {
            writer.write_sample(*sample)?;
        }
        writer.finalize()
    };
    write().map_err(|error| CallError::Wav(path.to_owned(), error.to_string()))
}

impl From<ClientError> for CallError {
    fn from(error: ClientError) -> Self {
        Self::Api(error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wav(path, why) => write!(f, "{}: {why}", path.display()),
            Self::Choice(why) => f.write_str(why),
            Self::Api(error) => error.fmt(f),
            Self::Socket(why) => write!(f, "the line: {why}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}
