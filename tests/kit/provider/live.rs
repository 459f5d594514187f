//! A live recogniser that hears tones: each of 200 ms is a word, `w0` at 300 Hz, `w1` at 400 Hz and so
//! on. It speaks the messages of the real service, and its connections can be cut.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{SinkExt, StreamExt};
use media::audio::tones;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderValue;

/// How many words there are.
pub const WORDS: usize = 20;

/// What the server calls its connections in their heads, and in its results. (The real one has one name
/// for both.)
pub const CONNECTION: &str = "0b6f3c1e-live-connection";
pub const RESULT: &str = "0b6f3c1e-live-result";

const FRAME: usize = 320;

/// The sound of a word, 200 ms at 16 kHz.
pub fn word(number: usize) -> Vec<i16> {
    tones::sine(16_000, 300.0 + 100.0 * number as f64, -12.0, 3200)
}

/// How the server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    #[default]
    Words,
    /// Takes everything and answers nothing.
    Nothing,
    /// As always, but without any words.
    Empty,
    /// What it says is never final.
    Interims,
    /// Takes a connection, and does not complete it.
    NoHandshake,
}

/// What has happened at the server.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub connections: usize,
    pub paths: Vec<String>,
    pub keys: Vec<String>,
    /// Messages of text by their type.
    pub messages: Vec<String>,
}

/// The server.
pub struct LiveProvider {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    generation: watch::Sender<u64>,
    /// How many of the next connections are refused, and with which status.
    refusals: Arc<(AtomicUsize, AtomicUsize)>,
    answers: watch::Sender<Answers>,
    server: JoinHandle<()>,
}

impl LiveProvider {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let refusals = Arc::new((AtomicUsize::new(0), AtomicUsize::new(401)));
        let (generation, watched) = watch::channel(0);
        let (answers, how) = watch::channel(Answers::Words);
        let server = tokio::spawn({
            let (seen, refusals) = (Arc::clone(&seen), Arc::clone(&refusals));
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(
                        stream,
                        Arc::clone(&seen),
                        Arc::clone(&refusals),
                        watched.clone(),
                        how.clone(),
                    ));
                }
            }
        });
        Self {
            address,
            seen,
            generation,
            refusals,
            answers,
            server,
        }
    }

    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Cuts every connection, without a close.
    pub fn cut(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Refuses the next `count` connections.
    pub fn refuse(&self, count: usize, status: usize) {
        self.refusals.1.store(status, Ordering::SeqCst);
        self.refusals.0.store(count, Ordering::SeqCst);
    }

    /// How it answers from now on.
    pub fn answer(&self, how: Answers) {
        self.answers.send_replace(how);
    }

    pub fn seen(&self) -> Seen {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for LiveProvider {
    fn drop(&mut self) {
        self.server.abort();
        self.cut();
    }
}

async fn serve(
    stream: TcpStream,
    seen: Arc<Mutex<Seen>>,
    refusals: Arc<(AtomicUsize, AtomicUsize)>,
    mut watched: watch::Receiver<u64>,
    how: watch::Receiver<Answers>,
) {
    let note = |change: &dyn Fn(&mut Seen)| {
        change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner));
    };
    watched.mark_unchanged();
    #[allow(clippy::result_large_err, reason = "the library's own type")]
    let look = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        let refuse = refusals
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        let key = request.headers().get("authorization");
        let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
        note(&|seen| {
            seen.connections += 1;
            seen.paths.push(request.uri().to_string());
            seen.keys.push(key.to_owned());
        });
        let name = HeaderValue::from_static(CONNECTION);
        response.headers_mut().insert("dg-request-id", name);
        if refuse.is_ok() {
            let words = json!({"err_code": "INVALID_AUTH", "err_msg": "Invalid credentials.", "request_id": CONNECTION});
            let mut refusal = ErrorResponse::new(Some(words.to_string()));
            let status = u16::try_from(refusals.1.load(Ordering::SeqCst)).unwrap_or(500);
            *refusal.status_mut() = status.try_into().expect("a status");
            return Err(refusal);
        }
        Ok(response)
    };
    if *how.borrow() == Answers::NoHandshake {
        note(&|seen| seen.connections += 1);
        let _ = watched.changed().await;
        return;
    }
    let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, look).await else {
        return;
    };
    let mut ears = Ears::default();
    loop {
        let message = tokio::select! {
            message = socket.next() => message,
            _ = watched.changed() => return,
        };
        let answers = match message {
            Some(Ok(Message::Binary(bytes))) => {
                let samples: Vec<i16> = bytes
                    .chunks_exact(2)
                    .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
                    .collect();
                ears.hear(&samples)
            }
            Some(Ok(Message::Text(text))) => {
                let message: Value = serde_json::from_str(&text).expect("JSON");
                let kind = message["type"].as_str().unwrap_or_default().to_owned();
                note(&|seen| seen.messages.push(kind.clone()));
                match kind.as_str() {
                    "Finalize" => vec![ears.result(true, true)],
                    "CloseStream" => return drop(socket.close(None).await),
                    _ => Vec::new(),
                }
            }
            Some(Ok(_)) => Vec::new(),
            Some(Err(_)) | None => return,
        };
        let how = *how.borrow();
        for mut answer in answers {
            match how {
                Answers::Words => {}
                Answers::Nothing | Answers::NoHandshake => continue,
                Answers::Empty => answer["channel"]["alternatives"][0]["transcript"] = json!(""),
                Answers::Interims if answer["is_final"] == true => continue,
                Answers::Interims => {}
            }
            if socket
                .send(Message::text(answer.to_string()))
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

/// Hears words in tones.
#[derive(Default)]
struct Ears {
    pending: Vec<i16>,
    /// Samples heard in whole frames.
    heard: usize,
    /// Where the audio begins that no final result covers.
    open_from: usize,
    /// Words since then.
    words: Vec<usize>,
    /// The tone that sounds, where it began, and its frames.
    run: Option<(usize, usize, usize)>,
    /// The run has been written down as a word.
    written: bool,
}

impl Ears {
    fn hear(&mut self, samples: &[i16]) -> Vec<Value> {
        self.pending.extend(samples);
        let mut answers = Vec::new();
        while self.pending.len() >= FRAME {
            let frame: Vec<i16> = self.pending.drain(..FRAME).collect();
            let tone = tone(&frame);
            let at = self.heard;
            self.heard += FRAME;
            let Some(tone) = tone else { continue };
            match &mut self.run {
                Some((number, _, frames)) if *number == tone => *frames += 1,
                _ => {
                    self.run = Some((tone, at, 1));
                    self.written = false;
                }
            }
            let long = self.run.is_some_and(|(_, _, frames)| frames >= 4);
            if long && !self.written {
                self.written = true;
                // What was before this word is certain now.
                if self.words.len() >= 5 {
                    let (_, began, _) = self.run.unwrap_or_default();
                    answers.push(self.result_until(began, true, false));
                }
                self.words.push(tone);
                answers.push(self.result(false, false));
            }
        }
        answers
    }

    fn result(&mut self, is_final: bool, from_finalize: bool) -> Value {
        if from_finalize {
            self.heard += self.pending.len();
            self.pending.clear();
        }
        self.result_until(self.heard, is_final, from_finalize)
    }

    fn result_until(&mut self, until: usize, is_final: bool, from_finalize: bool) -> Value {
        let text: Vec<String> = self.words.iter().map(|word| format!("w{word}")).collect();
        let seconds = |samples: usize| samples as f64 / 16_000.0;
        let from = self.open_from;
        if is_final {
            self.words.clear();
            self.open_from = until;
        }
        if from_finalize {
            self.run = None;
            self.written = false;
        }
        json!({
            "type": "Results", "channel_index": [0, 1],
            "start": seconds(from), "duration": seconds(until - from),
            "is_final": is_final, "speech_final": false, "from_finalize": from_finalize,
            "channel": {"alternatives": [{
                "transcript": text.join(" "), "confidence": 0.9, "words": [],
            }]},
            "metadata": {"request_id": RESULT},
        })
    }
}

/// The word whose tone fills the frame.
fn tone(frame: &[i16]) -> Option<usize> {
    let loud = frame.iter().map(|s| i32::from(*s).abs()).max().unwrap_or(0) > 1000;
    let rising = frame.windows(2).filter(|pair| pair[0] < 0 && pair[1] >= 0);
    // Between the first and the last rising edge lies a whole number of periods.
    let edges: Vec<usize> = rising_edges(frame);
    if !loud || rising.count() < 3 {
        return None;
    }
    let (first, last) = (*edges.first()?, *edges.last()?);
    let hz = 16_000.0 * (edges.len() - 1) as f64 / (last - first) as f64;
    let number = (hz - 300.0) / 100.0;
    let nearest = number.round();
    (nearest >= 0.0 && (number - nearest).abs() < 0.3 && (nearest as usize) < WORDS)
        .then_some(nearest as usize)
}

fn rising_edges(frame: &[i16]) -> Vec<usize> {
    frame
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[0] < 0 && pair[1] >= 0)
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_heard_wherever_the_frames_begin() {
        for silence in [0, 100, 250, 4800] {
            let mut ears = Ears::default();
            let mut sound = vec![0; silence];
            let said: Vec<usize> = (0..40).map(|n| n * 7 % WORDS).collect();
            sound.extend(said.iter().flat_map(|number| word(*number)));
            let mut heard = Vec::new();
            let mut answers = ears.hear(&sound);
            answers.push(ears.result(true, true));
            for answer in answers.iter().filter(|answer| answer["is_final"] == true) {
                let text = answer["channel"]["alternatives"][0]["transcript"].as_str();
                heard.extend(text.unwrap().split_whitespace().map(str::to_owned));
            }
            let wanted: Vec<String> = said.iter().map(|n| format!("w{n}")).collect();
            assert_eq!(heard, wanted, "after {silence} samples of silence");
        }
    }
}
