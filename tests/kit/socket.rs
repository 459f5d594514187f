//! A caller on a WebSocket: native messages, or those of a telephony vendor.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

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
    stream_sid: Option<String>,
    sent_samples: u64,
}

/// What `POST /conversation/connect` is asked for a native call of 16 kHz.
pub fn native(agent_id: &str) -> Value {
    json!({"agent_id": agent_id, "transport": "websocket"})
}

pub fn telco(agent_id: &str) -> Value {
    json!({"agent_id": agent_id, "transport": "websocket", "protocol": "telco", "audio_format": "ulaw_8000"})
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
        let session = client
            .post("/conversation/connect", connect)
            .await
            .expect(200);
        Self::join(&session, "").await.expect("the socket opens")
    }

    /// Opens the socket of a session; `query` is added to its URL (`&events=vad`).
    pub async fn join(session: &Answer, query: &str) -> Result<Self, String> {
        let url = format!("{}{query}", session.text("ws_url"));
        let mut caller = Self::open(&url).await?;
        caller.session_id = session.text("session_id");
        if session.body["protocol"] == "telco" {
            let sid = format!("MZ{}", caller.session_id.replace('-', ""));
            caller
                .send(&json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
                .await;
            caller
                .send(&json!({"event": "start", "streamSid": sid, "sequenceNumber": "1", "start": {
                    "streamSid": sid, "accountSid": "AC0", "callSid": "CA0", "tracks": ["inbound"],
                    "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
                    "customParameters": {},
                }}))
                .await;
            caller.stream_sid = Some(sid);
        }
        Ok(caller)
    }

    pub async fn open(url: &str) -> Result<Self, String> {
        let (socket, _) = connect_async(url)
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self {
            socket,
            session_id: String::new(),
            messages: Vec::new(),
            closed: None,
            connected: Instant::now(),
            stream_sid: None,
            sent_samples: 0,
        })
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
        let message = match &self.stream_sid {
            None => {
                let bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
                json!({"type": "audio", "audio": base64_simd::STANDARD.encode_to_string(bytes)})
            }
            Some(sid) => {
                let narrow: Vec<i16> = samples.chunks(2).map(|pair| pair[0]).collect();
                let mut bytes = vec![0; narrow.len()];
                media::audio::g711::ulaw_encode(&narrow, &mut bytes);
                let timestamp = (self.sent_samples / 16).to_string();
                json!({"event": "media", "streamSid": sid, "sequenceNumber": "2", "media": {
                    "track": "inbound", "chunk": "1", "timestamp": timestamp,
                    "payload": base64_simd::STANDARD.encode_to_string(bytes),
                }})
            }
        };
        self.sent_samples += samples.len() as u64;
        self.send(&message).await;
    }

    /// Speaks in real time, 20 ms after 20 ms, and takes what comes meanwhile.
    pub async fn speak(&mut self, samples: &[i16]) {
        let start = Instant::now();
        for (n, frame) in samples.chunks(320).enumerate() {
            self.receive_until(start + Duration::from_millis(20 * n as u64))
                .await;
            if self.closed.is_some() {
                return;
            }
            let mut padded = [0i16; 320];
            padded[..frame.len()].copy_from_slice(frame);
            self.send_audio(&padded).await;
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
            match timeout_at(until, self.socket.next()).await {
                Err(_) => return,
                Ok(message) => self.take(message).await,
            }
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
                if is(&value, "ping") {
                    self.send(&json!({"type": "pong", "event_id": value["event_id"]}))
                        .await;
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

fn is(message: &Value, kind: &str) -> bool {
    message["type"] == kind || message["event"] == kind
}
