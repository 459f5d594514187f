//! A voice behind a socket: one connection a call, opened when the call begins; each segment is a context
//! on it. A segment that stalls, breaks off or is silent is asked for again on a new connection, and what
//! was heard of it is not repeated.

mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use media::audio::resample::Resampler;
use media::config::Language;
use media::speech::{ReplyId, SpeechEvent, SpeechSink, Synthesiser, SynthesiserEvent};
use media::time::RATE;
use reqwest::Url;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tracing::Instrument;

use self::wire::{Dialect, Said};
use super::blame::Blame;
use super::deliver::deliver;
use super::plan::{Fault, Next, Plan};
use super::samples::Samples;
use super::segment::{Other, SpokenSegment};
use super::settings::ProviderKind;
use super::socket::{self, Backoff, Socket, address};
use crate::secret::Secret;
use crate::vendors::fallback::Fallback;

/// Orders that may wait for the task: a reply has one segment under way, and a filler may be beside it.
/// What does not fit fails at once.
const ORDERS: usize = 32;

/// The longest pause within a segment that has begun.
const STALL: Duration = Duration::from_millis(1_500);

/// An unused connection is told that somebody is there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// How long the farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// A provider's voice behind a socket, for any number of calls.
pub(super) struct Speaker {
    pub(super) base_url: Url,
    pub(super) key: Option<Secret<String>>,
    pub(super) provider: Blame,
    pub(super) kind: ProviderKind,
    pub(super) model: String,
    pub(super) voice: String,
    pub(super) sample_rate: u32,
    pub(super) language: Language,
}

enum Order {
    Speak(ReplyId, u32, String),
    Cancel(ReplyId),
}

/// The voice of one call, held by the call.
pub(super) struct SocketVoice {
    orders: mpsc::Sender<Order>,
    sink: Arc<dyn SpeechSink>,
}

impl SocketVoice {
    pub(super) fn new(
        speaker: Speaker,
        fallback: Fallback<Other>,
        runtime: &Handle,
        sink: Arc<dyn SpeechSink>,
    ) -> Self {
        let (orders, line) = mpsc::channel(ORDERS);
        let dialect = Dialect {
            kind: speaker.kind,
            model: speaker.model,
            voice: speaker.voice,
            sample_rate: speaker.sample_rate,
            language: speaker.language,
        };
        let (path, query) = dialect.address();
        let query: Vec<(&str, &str)> = query.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let task = Task {
            url: address(&speaker.base_url, &path, &query),
            key: speaker.key,
            provider: speaker.provider,
            dialect,
            sink: Arc::clone(&sink),
            fallback,
            line,
            jobs: HashMap::new(),
            tries: 0,
            pace: None,
            backoff: Backoff::default(),
        };
        runtime.spawn(task.run().in_current_span());
        Self { orders, sink }
    }
}

impl Synthesiser for SocketVoice {
    fn speak(&mut self, reply: ReplyId, segment: u32, text: &str) {
        let order = Order::Speak(reply, segment, text.to_owned());
        if let Err(TrySendError::Full(_) | TrySendError::Closed(_)) = self.orders.try_send(order) {
            let message = "too many sentences wait for the voice".to_owned();
            self.sink.send(SpeechEvent::Synthesiser {
                reply,
                segment,
                event: SynthesiserEvent::Failed { message },
            });
        }
    }

    fn cancel(&mut self, reply: ReplyId) {
        // When it does not fit, the voice speaks on and the call drops what it says.
        let _ = self.orders.try_send(Order::Cancel(reply));
    }
}

/// A segment under way.
struct Job {
    reply: ReplyId,
    segment: u32,
    text: String,
    heard: SpokenSegment,
    plan: Plan,
    began: Instant,
    /// It has been asked for on this connection.
    asked: bool,
    /// The next sign of it has to come until then.
    deadline: Instant,
    /// Reads what comes of this try.
    sound: Samples,
}

struct Task {
    url: Url,
    key: Option<Secret<String>>,
    provider: Blame,
    dialect: Dialect,
    sink: Arc<dyn SpeechSink>,
    fallback: Fallback<Other>,
    line: mpsc::Receiver<Order>,
    /// By the names of their contexts.
    jobs: HashMap<String, Job>,
    /// Makes contexts' names unique.
    tries: u64,
    /// The least sound that this voice has needed for a character of a segment which it said was complete, microseconds.
    pace: Option<u64>,
    backoff: Backoff,
}

/// Why a connection is not used any longer.
enum Left {
    Lost(Fault),
    Over,
}

impl Left {
    /// The connection broke, or is not trusted any longer.
    fn lost() -> Self {
        Self::Lost(Fault::Broken("the connection broke".to_owned()))
    }
}

impl Task {
    async fn run(mut self) {
        loop {
            let Some(mut socket) = self.open().await else {
                return;
            };
            match self.talk(&mut socket).await {
                Left::Over => {
                    if let Some(farewell) = self.dialect.farewell() {
                        socket::send(&mut socket, Message::text(farewell)).await;
                    }
                    // The server may close first, or not at all: nobody waits for it.
                    let _ = timeout(FAREWELL, socket.close(None)).await;
                    return;
                }
                Left::Lost(fault) => {
                    for context in self.asked_for() {
                        self.fault(&context, &fault).await;
                    }
                }
            }
        }
    }

    /// A new connection. `None`: the call is over.
    async fn open(&mut self) -> Option<Socket> {
        loop {
            let at = Instant::now() + self.backoff.next();
            let header = self
                .key
                .as_ref()
                .map(|key| (self.dialect.header(), key.expose().clone()));
            let (url, provider) = (self.url.clone(), self.provider.clone());
            let opening = async move {
                sleep_until(at).await;
                socket::connect(&provider, &url, header).await
            };
            tokio::pin!(opening);
            let opened = loop {
                let deadline = self.next_deadline();
                tokio::select! {
                    opened = &mut opening => break opened,
                    order = self.line.recv() => { self.order(order?); }
                    () = until(deadline) => {
                        self.expire().await;
                    }
                }
            };
            match opened {
                Ok(socket) => return Some(socket),
                Err(fault) => {
                    let sent = self.jobs.values().map(|job| job.text.as_str());
                    self.provider
                        .fault_about(&fault, sent, "a voice is not reached");
                    let contexts: Vec<String> = self.jobs.keys().cloned().collect();
                    for context in contexts {
                        self.fault(&context, &fault).await;
                    }
                }
            }
        }
    }

    async fn talk(&mut self, socket: &mut Socket) -> Left {
        let mut quiet_since = Instant::now();
        loop {
            for (context, text) in self.take_unasked() {
                quiet_since = Instant::now();
                for message in self.dialect.speak(&context, &text) {
                    if !socket::send(socket, Message::text(message)).await {
                        return Left::lost();
                    }
                }
            }
            let deadline = self.next_deadline();
            tokio::select! {
                order = self.line.recv() => match order {
                    Some(order) => {
                        for context in self.order(order) {
                            let message = self.dialect.cancel(&context);
                            if !socket::send(socket, Message::text(message)).await {
                                return Left::lost();
                            }
                        }
                    }
                    None => return Left::Over,
                },
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => {
                        for said in wire::read(&text) {
                            if let Err(fault) = self.said(said).await {
                                return Left::Lost(fault);
                            }
                        }
                    }
                    Some(Ok(Message::Close(frame))) => {
                        return Left::Lost(socket::closed(frame.as_ref()));
                    }
                    Some(Err(_)) | None => return Left::lost(),
                    Some(Ok(_)) => {}
                },
                // A connection on which a segment stalls is not trusted with the next try.
                () = until(deadline) => {
                    if self.expire().await {
                        return Left::lost();
                    }
                }
                () = sleep_until(quiet_since + KEEP_ALIVE) => {
                    let message = Message::Ping(Vec::new().into());
                    if !socket::send(socket, message).await {
                        return Left::lost();
                    }
                    quiet_since = Instant::now();
                }
            }
        }
    }

    /// Takes an order. The contexts that are to be stopped.
    fn order(&mut self, order: Order) -> Vec<String> {
        match order {
            Order::Speak(reply, segment, text) => {
                let plan = Plan::sound(self.fallback.is_there());
                let now = Instant::now();
                let job = Job {
                    reply,
                    segment,
                    heard: SpokenSegment::new(&text),
                    text,
                    deadline: now + plan.first().within,
                    plan,
                    began: now,
                    asked: false,
                    sound: Samples::new(self.dialect.sample_rate),
                };
                let context = self.context(&job);
                self.jobs.insert(context, job);
                Vec::new()
            }
            Order::Cancel(reply) => {
                self.fallback.tell(|other| other.cancel(reply));
                let stopped = self.jobs.iter().filter(|(_, job)| job.reply <= reply);
                let (asked, waiting): (Vec<_>, Vec<_>) = stopped
                    .map(|(context, job)| (context.clone(), job.asked))
                    .partition(|(_, asked)| *asked);
                for (context, _) in asked.iter().chain(&waiting) {
                    self.jobs.remove(context);
                }
                asked.into_iter().map(|(context, _)| context).collect()
            }
        }
    }

    fn context(&mut self, job: &Job) -> String {
        self.tries += 1;
        format!("r{}s{}t{}", job.reply.0, job.segment, self.tries)
    }

    /// What has not been asked for on this connection, in order.
    fn take_unasked(&mut self) -> Vec<(String, String)> {
        let mut found: Vec<(ReplyId, u32, String, String)> = Vec::new();
        for (context, job) in self.jobs.iter_mut().filter(|(_, job)| !job.asked) {
            job.asked = true;
            found.push((job.reply, job.segment, context.clone(), job.text.clone()));
        }
        found.sort();
        found
            .into_iter()
            .map(|(_, _, context, text)| (context, text))
            .collect()
    }

    fn asked_for(&self) -> Vec<String> {
        let asked = self.jobs.iter().filter(|(_, job)| job.asked);
        asked.map(|(context, _)| context.clone()).collect()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.jobs.values().map(|job| job.deadline).min()
    }

    /// Judges the segments that are due. Whether one of them has stalled.
    async fn expire(&mut self) -> bool {
        let now = Instant::now();
        let due: Vec<String> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.deadline <= now)
            .map(|(context, _)| context.clone())
            .collect();
        let mut stalled = false;
        for context in due {
            stalled |= !self.is_whole(&context);
            self.fault(&context, &Fault::Stalled(STALL)).await;
        }
        stalled
    }

    /// Whether the caller has heard all of a segment, though the voice did not say so.
    fn is_whole(&self, context: &str) -> bool {
        let job = self.jobs.get(context);
        job.is_some_and(|job| job.heard.is_whole(self.pace))
    }

    /// The context that a message is about: the one that it names, or the only one under way.
    fn about(&self, named: Option<String>) -> Option<String> {
        named.or_else(|| {
            let mut asked = self.asked_for();
            asked.pop().filter(|_| asked.is_empty())
        })
    }

    /// Takes what the voice said. `Err`: the connection is of no use any longer.
    async fn said(&mut self, said: Said) -> Result<(), Fault> {
        match said {
            Said::Audio(context, bytes) => {
                self.backoff.reset();
                if let Some(context) = self.about(context) {
                    self.audio(&context, &bytes).await;
                }
            }
            Said::Done(context) => {
                if let Some(context) = self.about(context) {
                    self.done(&context).await;
                }
            }
            Said::Failed(Some(context), words) => {
                self.fault(&context, &Fault::Told(words)).await;
            }
            Said::Failed(None, words) => {
                let fault = Fault::Told(words);
                if self.asked_for().is_empty() {
                    self.provider.fault(&fault, "a voice gave up");
                }
                return Err(fault);
            }
            Said::Other => {}
        }
        Ok(())
    }

    /// Sound of a context.
    async fn audio(&mut self, context: &str, bytes: &[u8]) {
        let Some(job) = self.jobs.get_mut(context) else {
            return;
        };
        job.deadline = Instant::now() + STALL;
        let mut samples = Vec::new();
        let read = job.sound.push(bytes, &mut samples);
        match read {
            Ok(()) => self.hand_on(context, samples).await,
            Err(fault) => self.fault(context, &fault).await,
        }
    }

    /// Gives the call what it has not heard of these samples.
    async fn hand_on(&mut self, context: &str, samples: Vec<i16>) {
        let Some(job) = self.jobs.get_mut(context) else {
            return;
        };
        let (reply, segment, rate) = (job.reply, job.segment, job.sound.rate());
        if !samples.is_empty() && Resampler::new(rate, RATE).is_err() {
            let fault = Fault::Wrong(format!("the voice sent sound at {rate} Hz"));
            return self.fault(context, &fault).await;
        }
        match job.heard.take(rate, samples) {
            Ok(Some(samples)) => {
                let event = SynthesiserEvent::Audio { rate, samples };
                self.send(reply, segment, event).await;
            }
            Ok(None) => {}
            Err(fault) => self.fault(context, &fault).await,
        }
    }

    /// A context is complete.
    async fn done(&mut self, context: &str) {
        let Some(job) = self.jobs.get_mut(context) else {
            return;
        };
        let mut samples = Vec::new();
        if let Err(fault) = job.sound.finish(&mut samples) {
            return self.fault(context, &fault).await;
        }
        self.hand_on(context, samples).await;
        let Some(job) = self.jobs.get(context) else {
            return;
        };
        match job.heard.finish() {
            Ok(()) => {
                let pace = job.heard.pace().into_iter().chain(self.pace).min();
                self.pace = pace;
                self.over(context).await;
            }
            Err(fault) => self.fault(context, &fault).await,
        }
    }

    /// Nothing more comes of a segment, and nothing is missing.
    async fn over(&mut self, context: &str) {
        if let Some(job) = self.jobs.remove(context) {
            self.send(job.reply, job.segment, SynthesiserEvent::Done)
                .await;
        }
    }

    /// A segment's try failed: what is next.
    async fn fault(&mut self, context: &str, fault: &Fault) {
        let lacks_end = lacks_end(fault);
        if lacks_end && self.is_whole(context) {
            // What was heard counts, and is not bought twice.
            let (provider, what) = (
                &self.provider,
                "a voice did not say that a sentence was complete",
            );
            if matches!(fault, Fault::Stalled(_)) {
                tracing::info!(%provider, kind = fault.kind(), "{what}");
            } else {
                let sent = self.jobs.get(context).map(|job| job.text.as_str());
                provider.fault_about(fault, sent, what);
            }
            return self.over(context).await;
        }
        let Some(mut job) = self.jobs.remove(context) else {
            return;
        };
        let sent = [job.text.as_str()];
        self.provider
            .fault_about(fault, sent, "a voice did not speak");
        // Sound that came before the fault took its time; only silence spends the budget.
        let spent = if job.heard.any() {
            Duration::ZERO
        } else {
            job.began.elapsed()
        };
        match job.plan.next(spent, fault) {
            Next::Again(again) => {
                job.heard.again();
                job.asked = false;
                job.sound = Samples::new(self.dialect.sample_rate);
                job.deadline = Instant::now() + again.pause + again.within;
                let context = self.context(&job);
                self.jobs.insert(context, job);
            }
            Next::HandOver => {
                let known = job.heard.micros();
                self.fallback
                    .tell(|other| other.take_over(job.reply, job.segment, &job.text, known));
            }
            Next::GiveUp if job.heard.ended_alike() => {
                if lacks_end {
                    // It never says so: what it needs for a text is known from now on.
                    self.pace = job.heard.pace().into_iter().chain(self.pace).min();
                }
                self.send(job.reply, job.segment, SynthesiserEvent::Done)
                    .await;
            }
            Next::GiveUp => {
                let message = self.provider.told(fault);
                let event = SynthesiserEvent::Failed { message };
                self.send(job.reply, job.segment, event).await;
            }
        }
    }

    async fn send(&self, reply: ReplyId, segment: u32, event: SynthesiserEvent) {
        // A call that is gone closes its line, which is noticed there.
        deliver(
            &*self.sink,
            SpeechEvent::Synthesiser {
                reply,
                segment,
                event,
            },
        )
        .await;
    }
}

/// Whether nothing but the mark of a segment's end may be missing: nothing more comes, or the server closes the socket in
/// good order and gives no reason.
fn lacks_end(fault: &Fault) -> bool {
    matches!(fault, Fault::Stalled(_)) || *fault == socket::closed(None)
}

/// Sleeps until then; for ever when there is no deadline.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendors::remote::complaint;

    #[test]
    fn only_an_end_that_is_not_told_may_be_missing() {
        assert!(lacks_end(&Fault::Stalled(STALL)));
        assert!(lacks_end(&socket::closed(None)));
        let Left::Lost(broke) = Left::lost() else {
            unreachable!("it is lost");
        };
        let words = complaint::read("quota_exceeded");
        let busy = Fault::Busy {
            status: 429,
            after: None,
            words: words.clone(),
        };
        let refused = Fault::Refused {
            status: 402,
            words: words.clone(),
        };
        let closed = Fault::Broken("the socket closed (1008): quota_exceeded".to_owned());
        let wrong = Fault::Wrong("no sound".to_owned());
        for fault in [broke, Fault::Told(words), busy, refused, closed, wrong] {
            assert!(!lacks_end(&fault), "{fault:?}");
        }
    }
}
