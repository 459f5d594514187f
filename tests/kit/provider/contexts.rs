//! A voice behind a socket, of either kind: says every text as a tone, 50 ms a character, and fails as it
//! is told to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64_simd::STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

use super::sound::{mp3, pcm, silence, streamed_wav};

/// How a context goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// Nothing comes.
    Stall,
    /// A part comes, then nothing.
    Part,
    /// A part comes, then the connection breaks.
    Cut,
    /// Digital silence.
    Silence,
    /// An error of the context.
    Error,
    /// All sound, and nothing says that it is all.
    NoEnd,
    /// The same, and the server closes the connection in good order.
    NoEndAndClosed,
    /// The end stands beside the last sound, in a message without a type.
    EndBeside,
    /// The end comes two seconds late.
    LateEnd,
    /// Messages name no context.
    Nameless,
    /// MP3 in place of samples.
    Mp3,
    /// A WAV header before the samples.
    Wav,
    /// 1.2 s of silence before the sound.
    Slow,
    /// An error of the account, after which the connection closes without a word.
    Quota,
}

/// What has happened at the server.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub connections: usize,
    pub paths: Vec<String>,
    pub keys: Vec<String>,
    pub messages: Vec<Value>,
}

struct Shared {
    seen: Seen,
    troubles: VecDeque<Trouble>,
}

/// The server.
pub struct ContextProvider {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    server: JoinHandle<()>,
}

impl ContextProvider {
    /// The first contexts go as `troubles` say, the others well.
    pub async fn start(troubles: &[Trouble]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Mutex::new(Shared {
            seen: Seen::default(),
            troubles: troubles.iter().copied().collect(),
        }));
        let server = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&shared)));
                }
            }
        });
        Self {
            address,
            shared,
            server,
        }
    }

    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    pub fn seen(&self) -> Seen {
        lock(&self.shared).seen.clone()
    }
}

impl Drop for ContextProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(stream: TcpStream, shared: Arc<Mutex<Shared>>) {
    #[allow(clippy::result_large_err, reason = "the library's own type")]
    let look = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        let key = ["xi-api-key", "x-api-key"]
            .into_iter()
            .find_map(|name| request.headers().get(name)?.to_str().ok());
        let mut shared = lock(&shared);
        shared.seen.connections += 1;
        shared.seen.paths.push(request.uri().to_string());
        shared.seen.keys.push(key.unwrap_or_default().to_owned());
        Ok(response)
    };
    let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, look).await else {
        return;
    };
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else {
            continue;
        };
        let message: Value = serde_json::from_str(&text).expect("JSON");
        lock(&shared).seen.messages.push(message.clone());
        let context = message["context_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        // The one kind flushes a context's text, the other sends it as one.
        let (text, eleven) = if message["flush"] == true {
            (message["text"].as_str().unwrap_or_default().trim(), true)
        } else if let Some(text) = message["transcript"].as_str() {
            (text, false)
        } else {
            continue;
        };
        let trouble = lock(&shared).troubles.pop_front().unwrap_or(Trouble::None);
        let ms = 50 * u32::try_from(text.chars().count()).expect("short");
        let sound = match trouble {
            Trouble::Stall | Trouble::Error => Vec::new(),
            Trouble::Part | Trouble::Cut => pcm(16_000, ms / 2),
            Trouble::Silence => silence(16_000, 2000),
            Trouble::Mp3 => mp3(20),
            Trouble::Wav => streamed_wav(16_000, &pcm(16_000, ms)),
            Trouble::Slow => [silence(16_000, 1200), pcm(16_000, ms)].concat(),
            Trouble::Quota => Vec::new(),
            Trouble::None
            | Trouble::NoEnd
            | Trouble::NoEndAndClosed
            | Trouble::EndBeside
            | Trouble::LateEnd
            | Trouble::Nameless => pcm(16_000, ms),
        };
        let mut answers = Vec::new();
        // Pieces of an odd length: a sample may lie in two.
        for piece in sound.chunks(3201) {
            let audio = STANDARD.encode_to_string(piece);
            answers.push(if eleven {
                json!({"audio": audio, "contextId": context, "alignment": null})
            } else {
                json!({"type": "chunk", "data": audio, "done": false, "status_code": 206, "context_id": context})
            });
        }
        match trouble {
            Trouble::EndBeside => {
                if let Some(last) = answers.last_mut().and_then(Value::as_object_mut) {
                    last.remove("type");
                    last.insert("done".to_owned(), json!(true));
                }
            }
            Trouble::Quota => answers.push(if eleven {
                json!({"message": "You have used up your quota.", "error": "quota_exceeded", "code": 1008})
            } else {
                json!({"type": "error", "title": "You have used up your quota.", "error_code": "quota_exceeded", "status_code": 402})
            }),
            Trouble::None
            | Trouble::Silence
            | Trouble::LateEnd
            | Trouble::Nameless
            | Trouble::Mp3
            | Trouble::Wav
            | Trouble::Slow => answers.push(if eleven {
                json!({"isFinal": true, "contextId": context})
            } else {
                json!({"type": "done", "done": true, "status_code": 200, "context_id": context})
            }),
            Trouble::Error => answers.push(if eleven {
                json!({"error": "voice_failed", "message": "no", "contextId": context})
            } else {
                json!({"type": "error", "error": "no", "done": true, "status_code": 500, "context_id": context})
            }),
            Trouble::Stall
            | Trouble::Part
            | Trouble::Cut
            | Trouble::NoEnd
            | Trouble::NoEndAndClosed => {}
        }
        let last = answers.len().saturating_sub(1);
        for (at, mut answer) in answers.into_iter().enumerate() {
            if trouble == Trouble::Nameless
                && let Some(fields) = answer.as_object_mut()
            {
                fields.retain(|name, _| name != "contextId" && name != "context_id");
            }
            if trouble == Trouble::LateEnd && at == last {
                sleep(Duration::from_secs(2)).await;
            }
            if socket
                .send(Message::text(answer.to_string()))
                .await
                .is_err()
            {
                return;
            }
        }
        if matches!(
            trouble,
            Trouble::Cut | Trouble::NoEndAndClosed | Trouble::Quota
        ) {
            // What was sent arrives before the end does.
            sleep(Duration::from_millis(20)).await;
            if trouble == Trouble::NoEndAndClosed {
                let _ = socket.close(None).await;
            }
            return;
        }
    }
}
