//! A caller on a WebSocket: native messages, or those of a telephony vendor.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async, connect_async};

use crate::client::{Answer, Client};

/// An open call.
pub struct Caller {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub session_id: String,
    /// All messages so far, with the time they came.
    pub messages: Vec<(Instant, Value)>,
    /// The code of the server's close, once it came.
    pub closed: Option<u16>,
    pub connected: Instant,
    /// When each message of audio was sent.
    pub sent: Vec<Instant>,
    stream_sid: Option<String>,
    answers_pings: bool,
    narrow: bool,
    sent_samples: u64,
    /// When the next 20 ms of the caller are due.
    next_frame: Instant,
    line: Line,
}

/// What a telephony vendor plays, and the marks that it echoes once it has.
#[derive(Default)]
struct Line {
    /// When the last audio that came will have been played.
    until: Option<Instant>,
    marks: VecDeque<(Instant, String)>,
}

/// What `POST /conversation/connect` is asked for a native call of 16 kHz.
pub fn native(agent_id: &str) -> Value {
    json!({"agent_id": agent_id, "transport": "websocket"})
}

pub fn telco(agent_id: &str) -> Value {
    json!({"agent_id": agent_id, "transport": "websocket", "protocol": "telco", "audio_format": "ulaw_8000"})
}

/// A native call of 8 kHz.
pub fn ulaw(agent_id: &str) -> Value {
    json!({"agent_id": agent_id, "transport": "websocket", "audio_format": "ulaw_8000"})
}

/// Creates an agent and tells its id.
pub async fn agent(client: &Client, fields: Value) -> String {
    let voices = client.get("/voices").await.expect(200);
    let mut body = json!({
        "name": "Test", "system_prompt": "You are kind.", "voice_id": voices.body["items"][0]["id"],
    });
    for (name, value) in fields.as_object().cloned().unwrap_or_default() {
        body[name] = value;
    }
    client.post("/agents", &body).await.expect(201).text("id")
}

/// A voice that needs no program: the tone of the scripted speech.
pub async fn scripted_voice(client: &Client) -> String {
    let voices = client.get("/voices?limit=500").await.expect(200);
    let items = voices.body["items"].as_array().cloned().unwrap_or_default();
    let scripted = items.iter().find(|v| {
        v["voice_key"]
            .as_str()
            .is_some_and(|key| key.contains("scripted"))
    });
    scripted.unwrap_or(&items[0])["id"]
        .as_str()
        .expect("an id")
        .to_owned()
}

impl Caller {
    /// Connects a session and its socket.
    pub async fn call(client: &Client, connect: &Value) -> Self {
        let session = client.connect(connect).await;
        Self::join(&session, "").await.expect("the socket opens")
    }

    /// Opens the socket of a session; `query` is added to its URL (`&events=vad`).
    pub async fn join(session: &Answer, query: &str) -> Result<Self, String> {
        let url = format!("{}{query}", session.text("ws_url"));
        let mut caller = Self::open(&url).await?;
        caller.begin(session).await;
        Ok(caller)
    }

    /// As [`join`](Self::join), on a socket whose receive buffer is as small as the kernel makes one:
    /// a caller that stops reading is noticed soon.
    pub async fn join_narrow(session: &Answer) -> Result<Self, String> {
        let mut caller = Self::open_narrow(&session.text("ws_url")).await?;
        caller.begin(session).await;
        Ok(caller)
    }

    /// What the caller's end of a session does first.
    async fn begin(&mut self, session: &Answer) {
        self.session_id = session.text("session_id");
        self.narrow = session.body["audio_format"] == "ulaw_8000";
        if session.body["protocol"] == "telco" {
            let sid = format!("MZ{}", self.session_id.replace('-', ""));
            self.send(&json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
                .await;
            self.send(
                &json!({"event": "start", "streamSid": sid, "sequenceNumber": "1", "start": {
                    "streamSid": sid, "accountSid": "AC0", "callSid": "CA0", "tracks": ["inbound"],
                    "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
                    "customParameters": {},
                }}),
            )
            .await;
            self.stream_sid = Some(sid);
        }
    }

    pub async fn open(url: &str) -> Result<Self, String> {
        let (socket, _) = connect_async(url)
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self::on(socket))
    }

    async fn open_narrow(url: &str) -> Result<Self, String> {
        let address = url
            .strip_prefix("ws://")
            .and_then(|rest| rest.split('/').next())
            .and_then(|host| host.parse().ok())
            .ok_or("not an address")?;
        let stream = narrow(address).await.map_err(|error| error.to_string())?;
        let (socket, _) = client_async(url, MaybeTlsStream::Plain(stream))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self::on(socket))
    }

    fn on(socket: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Self {
        Self {
            socket,
            session_id: String::new(),
            messages: Vec::new(),
            closed: None,
            connected: Instant::now(),
            sent: Vec::new(),
            stream_sid: None,
            answers_pings: true,
            narrow: false,
            sent_samples: 0,
            next_frame: Instant::now(),
            line: Line::default(),
        }
    }

    /// From now on it is as if nobody were there, but for the audio.
    pub fn answer_no_ping(&mut self) {
        self.answers_pings = false;
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_text(message.to_string()).await;
    }

    pub async fn send_text(&mut self, text: String) {
        // A socket that the server has closed shows itself in what is received.
        let _ = self.socket.send(Message::text(text)).await;
    }

    pub async fn send_raw(&mut self, message: Message) -> bool {
        self.socket.send(message).await.is_ok()
    }

    /// Sends samples at 16 kHz in one message of the call's protocol.
    pub async fn send_audio(&mut self, samples: &[i16]) {
        let bytes = if self.narrow {
            let halves: Vec<i16> = samples
                .chunks(2)
                .map(|pair| {
                    (pair.iter().map(|s| i32::from(*s)).sum::<i32>() / pair.len() as i32) as i16
                })
                .collect();
            let mut bytes = vec![0; halves.len()];
            media::audio::g711::ulaw_encode(&halves, &mut bytes);
            bytes
        } else {
            samples.iter().flat_map(|s| s.to_le_bytes()).collect()
        };
        let audio = base64_simd::STANDARD.encode_to_string(bytes);
        let message = match &self.stream_sid {
            None => json!({"type": "audio", "audio": audio}),
            Some(sid) => {
                let timestamp = (self.sent_samples / 16).to_string();
                json!({"event": "media", "streamSid": sid, "sequenceNumber": "2", "media": {
                    "track": "inbound", "chunk": "1", "timestamp": timestamp, "payload": audio,
                }})
            }
        };
        self.sent_samples += samples.len() as u64;
        self.sent.push(Instant::now());
        self.send(&message).await;
    }

    /// Speaks in real time, 20 ms after 20 ms, and takes what comes meanwhile.
    pub async fn speak(&mut self, samples: &[i16]) {
        for frame in samples.chunks(320) {
            let due = self.next_frame.max(Instant::now());
            self.receive_until(due).await;
            if self.closed.is_some() {
                return;
            }
            let mut padded = [0i16; 320];
            padded[..frame.len()].copy_from_slice(frame);
            self.send_audio(&padded).await;
            self.next_frame = due + Duration::from_millis(20);
        }
    }

    /// Is silent (but sending) in real time, and takes what comes.
    pub async fn listen(&mut self, ms: u64) {
        self.speak(&vec![0; ms as usize * 16]).await;
    }

    /// Is silent until a message of this kind came; the message.
    pub async fn wait_for(&mut self, kind: &str, ms: u64) -> Value {
        let seen = self.messages.len();
        for _ in 0..ms / 20 {
            self.listen(20).await;
            if let Some((_, message)) = self.messages[seen..].iter().find(|(_, m)| is(m, kind)) {
                return message.clone();
            }
            if self.closed.is_some() {
                break;
            }
        }
        let kinds: Vec<&Value> = self.messages[seen..]
            .iter()
            .map(|(_, m)| m)
            .filter(|m| !is(m, "audio"))
            .collect();
        panic!(
            "no {kind:?} within {ms} ms; closed {:?}; {kinds:?}",
            self.closed
        );
    }

    /// Takes what comes until `until`, answering pings and echoing marks as a client does.
    pub async fn receive_until(&mut self, until: Instant) {
        while self.closed.is_none() {
            let mark = self.line.marks.front().map(|(due, _)| *due);
            let next = mark.map_or(until, |due| due.min(until));
            match timeout_at(next, self.socket.next()).await {
                Err(_) if next == until => return,
                Err(_) => self.echo_mark().await,
                Ok(message) => self.take(message).await,
            }
        }
    }

    /// The agent's audio that came since `from`: when, and how many samples at the line's rate.
    pub fn audio_since(&self, from: Instant) -> Vec<(Instant, usize)> {
        self.messages
            .iter()
            .filter(|(at, _)| *at >= from)
            .filter_map(|(at, message)| Some((*at, audio_of(message)?.len())))
            .map(|(at, bytes)| (at, if self.narrow { bytes } else { bytes / 2 }))
            .collect()
    }

    /// Samples a second on the line.
    pub fn rate(&self) -> f64 {
        if self.narrow { 8_000.0 } else { 16_000.0 }
    }

    async fn echo_mark(&mut self) {
        if let Some((_, name)) = self.line.marks.pop_front() {
            let echo = json!({"event": "mark", "streamSid": self.stream_sid, "sequenceNumber": "3",
                "mark": {"name": name}});
            self.send(&echo).await;
        }
    }

    /// Plays what came as a vendor does: marks come back once all before them was played, and all at
    /// once upon `clear`.
    async fn play(&mut self, now: Instant, message: &Value) {
        let until = self.line.until.map_or(now, |until| until.max(now));
        match message["event"].as_str() {
            Some("media") => {
                let samples = audio_of(message).map_or(0, |audio| audio.len());
                self.line.until = Some(until + Duration::from_micros(125 * samples as u64));
            }
            Some("mark") => {
                let name = message["mark"]["name"].as_str().expect("marks have names");
                self.line.marks.push_back((until, name.to_owned()));
            }
            Some("clear") => {
                self.line.until = None;
                while !self.line.marks.is_empty() {
                    self.echo_mark().await;
                }
            }
            _ => {}
        }
    }

    /// Waits for the server's close; its code.
    pub async fn close_code(&mut self, within: Duration) -> Option<u16> {
        let until = Instant::now() + within;
        self.receive_until(until).await;
        self.closed
    }

    /// Hangs up.
    pub async fn hang_up(mut self) {
        self.close().await;
    }

    /// Hangs up, and keeps what was heard.
    pub async fn close(&mut self) {
        // The server may have closed first.
        let _ = timeout(Duration::from_secs(2), self.socket.close(None)).await;
    }

    pub fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.messages
            .iter()
            .map(|(_, message)| message)
            .filter(|message| is(message, kind))
            .collect()
    }

    async fn take(
        &mut self,
        message: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
    ) {
        match message {
            Some(Ok(Message::Text(text))) => {
                let now = Instant::now();
                let value: Value = serde_json::from_str(&text).expect("server messages are JSON");
                if is(&value, "ping") && self.answers_pings {
                    self.send(&json!({"type": "pong", "event_id": value["event_id"]}))
                        .await;
                }
                if self.stream_sid.is_some() {
                    self.play(now, &value).await;
                }
                self.messages.push((now, value));
            }
            Some(Ok(Message::Close(frame))) => {
                self.closed = Some(frame.map_or(1005, |frame| frame.code.into()));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => self.closed = self.closed.or(Some(1006)),
        }
    }
}

/// A connection whose receive buffer is as small as the kernel makes one.
pub async fn narrow(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(2048)?;
    socket.connect(address).await
}

/// The bytes of sound in a message of either protocol.
fn audio_of(message: &Value) -> Option<Vec<u8>> {
    let audio = message["audio"]
        .as_str()
        .or_else(|| message["media"]["payload"].as_str())?;
    Some(
        base64_simd::STANDARD
            .decode_to_vec(audio)
            .expect("audio is base64"),
    )
}

fn is(message: &Value, kind: &str) -> bool {
    message["type"] == kind || message["event"] == kind
}
