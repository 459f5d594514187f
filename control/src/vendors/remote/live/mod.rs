//! A recogniser behind a live socket: the call's audio goes up while it is spoken, words come back. One
//! connection a call, opened when the call begins and kept alive through its silences; when it drops, a
//! new one gets what no final result covers.

mod finals;
mod session;
#[cfg(test)]
mod session_tests;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use media::speech::{Recogniser, SpeechEvent, SpeechSink};
use reqwest::Url;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tracing::Instrument;

use self::session::{Act, Session};
use self::wire::Said;
use super::blame::Blame;
use super::deliver::deliver;
use super::plan::Fault;
use super::recogniser::{AudioCommand, RemoteRecogniser};
use super::socket::{self, Backoff, Socket, address};
use crate::secret::Secret;
use crate::vendors::fallback::Fallback;

/// A silent connection is closed by the server after 10 s, so it is told that somebody is there.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// How long the farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// The longest piece of audio in one message, samples: half a second, when much has to be sent again.
const PIECE: usize = 8_000;

/// A provider's live recogniser, for any number of calls.
pub(super) struct Listener {
    pub(super) base_url: Url,
    pub(super) key: Option<Secret<String>>,
    pub(super) provider: Blame,
    pub(super) model: String,
    pub(super) punctuates: bool,
}

impl Listener {
    fn address(&self, language: &str) -> Url {
        let rate = media::time::RATE.to_string();
        let punctuate = self.punctuates.to_string();
        let query = [
            ("model", self.model.as_str()),
            ("language", language),
            ("encoding", "linear16"),
            ("sample_rate", &rate),
            ("channels", "1"),
            ("interim_results", "true"),
            ("punctuate", &punctuate),
            ("endpointing", "300"),
        ];
        address(&self.base_url, "v1/listen", &query)
    }
}

/// The recogniser of one call.
pub(super) fn ears(
    listener: &Listener,
    language: &str,
    fallback: Fallback<Box<dyn Recogniser>>,
    runtime: &Handle,
    sink: Arc<dyn SpeechSink>,
) -> RemoteRecogniser {
    let (ears, line) = RemoteRecogniser::new(Arc::clone(&sink), listener.punctuates);
    let task = Task {
        url: listener.address(language),
        header: listener
            .key
            .as_ref()
            .map(|key| Secret::new(format!("Token {}", key.expose()))),
        provider: listener.provider.clone(),
        session: Session::new(fallback.is_there()),
        fallback,
        sink,
        line,
        backoff: Backoff::default(),
    };
    runtime.spawn(task.run().in_current_span());
    ears
}

/// One call's connection and what goes over it.
struct Task {
    url: Url,
    header: Option<Secret<String>>,
    provider: Blame,
    session: Session,
    /// Hears what this one cannot.
    fallback: Fallback<Box<dyn Recogniser>>,
    sink: Arc<dyn SpeechSink>,
    line: mpsc::Receiver<AudioCommand>,
    backoff: Backoff,
}

/// Why a connection is not used any longer.
enum Left {
    /// The connection is gone; why, if the provider has said so.
    Lost(Option<Fault>),
    /// The call is over.
    Over,
}

impl Task {
    async fn run(mut self) {
        loop {
            let Some(mut socket) = self.open().await else {
                return;
            };
            match self.talk(&mut socket).await {
                Left::Over => {
                    socket::send(&mut socket, Message::text(wire::CLOSE_STREAM)).await;
                    // The server may close first, or not at all: nobody waits for it.
                    let _ = timeout(FAREWELL, socket.close(None)).await;
                    return;
                }
                Left::Lost(fault) => {
                    let why = fault.map(|fault| {
                        self.provider.fault(&fault, "a recogniser gave up");
                        self.provider.words(&fault)
                    });
                    self.session.lost(why);
                }
            }
        }
    }

    /// A new connection; meanwhile the call speaks on. `None`: the call is over.
    async fn open(&mut self) -> Option<Socket> {
        loop {
            let at = Instant::now() + self.backoff.next();
            let header = self
                .header
                .as_ref()
                .map(|h| ("Authorization", h.expose().clone()));
            let (url, provider) = (self.url.clone(), self.provider.clone());
            let opening = async move {
                sleep_until(at).await;
                socket::connect(&provider, &url, header).await
            };
            tokio::pin!(opening);
            let opened = loop {
                let deadline = self.session.deadline();
                tokio::select! {
                    opened = &mut opening => break opened,
                    told = self.line.recv() => {
                        self.told(told?);
                    }
                    () = until(deadline) => self.session.tick(Instant::now()),
                }
                if !self.act_all().await {
                    return None;
                }
            };
            match opened {
                Ok(socket) => {
                    self.session.connected(Instant::now());
                    return Some(socket);
                }
                Err(fault) => {
                    self.provider.fault(&fault, "a recogniser is not reached");
                    let words = self.provider.words(&fault);
                    match fault {
                        Fault::Refused { .. } => self.session.refused(Instant::now(), words),
                        _ => self.session.lost(Some(words)),
                    }
                }
            }
        }
    }

    /// Speaks and listens until the connection is lost or the call is over.
    async fn talk(&mut self, socket: &mut Socket) -> Left {
        let mut quiet_since = Instant::now();
        loop {
            let Some(sent) = self.send_all(socket).await else {
                return Left::Lost(None);
            };
            if sent {
                quiet_since = Instant::now();
            }
            let deadline = self.session.deadline();
            tokio::select! {
                told = self.line.recv() => match told {
                    Some(told) => self.told(told),
                    None => return Left::Over,
                },
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => match wire::read(&text) {
                        Said::Result(heard, name) => {
                            if let Some(name) = name {
                                self.provider.named(&name);
                            }
                            // It works, so the next loss is met with a try at once.
                            self.backoff.reset();
                            self.session.result(Instant::now(), heard);
                        }
                        Said::Error(words) => return Left::Lost(Some(Fault::Told(words))),
                        Said::Named(name) => self.provider.named(&name),
                        Said::Other => {}
                    },
                    Some(Ok(Message::Close(Some(frame)))) if socket::says_why(&frame) => {
                        return Left::Lost(Some(socket::closed(Some(&frame))));
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => {
                        tracing::info!(provider = %self.provider, "a recogniser's connection dropped");
                        return Left::Lost(None);
                    }
                    Some(Ok(_)) => {}
                },
                () = until(deadline) => self.session.tick(Instant::now()),
                () = sleep_until(quiet_since + KEEP_ALIVE) => {
                    if !socket::send(socket, Message::text(wire::KEEP_ALIVE)).await {
                        return Left::Lost(None);
                    }
                    quiet_since = Instant::now();
                }
            }
        }
    }

    /// Whether anything was sent; `None`: the connection is lost.
    async fn send_all(&mut self, socket: &mut Socket) -> Option<bool> {
        let mut sent = false;
        while let Some(act) = self.session.take() {
            let messages: Vec<Message> = match act {
                Act::Audio(samples) => samples
                    .chunks(PIECE)
                    .map(|piece| {
                        let bytes: Vec<u8> = piece.iter().flat_map(|s| s.to_le_bytes()).collect();
                        Message::binary(bytes)
                    })
                    .collect(),
                Act::Finalize => vec![Message::text(wire::FINALIZE)],
                act @ (Act::Say(_) | Act::HandOver(..) | Act::Fault(_)) => {
                    // A call that is gone closes its line, which is noticed there.
                    self.act(act).await;
                    continue;
                }
                Act::Reconnect => return None,
            };
            for message in messages {
                if !socket::send(socket, message).await {
                    return None;
                }
            }
            sent = true;
        }
        Some(sent)
    }

    /// Does what needs no connection, until there is nothing left to do. `false`: the call is gone.
    async fn act_all(&mut self) -> bool {
        while let Some(act) = self.session.take() {
            if !self.act(act).await {
                return false;
            }
        }
        true
    }

    async fn act(&self, act: Act) -> bool {
        match act {
            // Only a connection makes these, and a new one begins anew.
            Act::Audio(_) | Act::Finalize | Act::Reconnect => true,
            Act::Say(event) => deliver(&*self.sink, SpeechEvent::Recogniser(event)).await,
            Act::HandOver(utterance, samples) => {
                self.fallback.hear(utterance, &samples);
                true
            }
            Act::Fault(fault) => {
                self.provider.fault(&fault, "a recogniser heard no words");
                true
            }
        }
    }

    fn told(&mut self, told: AudioCommand) {
        let now = Instant::now();
        match told {
            AudioCommand::Begin(utterance) => self.session.begin(utterance),
            AudioCommand::Audio(utterance, piece) => {
                self.session.audio(now, utterance, piece.samples())
            }
            AudioCommand::Finish(utterance) => self.session.finish(now, utterance),
            AudioCommand::Cancel(utterance) => {
                self.session.cancel(now, utterance);
                self.fallback.tell(|other| other.cancel(utterance));
            }
        }
    }
}

/// Sleeps until then; for ever when there is no deadline.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
