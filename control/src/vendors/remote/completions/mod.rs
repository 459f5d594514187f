//! A language model behind `/chat/completions`: one request a reply, on the runtime; the connection is
//! dropped when the reply is cancelled.

mod beside;
mod calls;
pub(super) mod habits;
mod shape;
mod thoughts;
mod wire;
#[cfg(test)]
mod wire_tests;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use media::speech::{
    LanguageModel, LlmEvent, Message, ModelRequest, ReplyId, SpeechEvent, SpeechSink,
};
use reqwest::{Response, header};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument, Span};

use self::habits::Habits;
use self::wire::Answer;
use super::blame::Blame;
use super::complaint;
use super::deliver::deliver;
use super::http::{Endpoint, broken, is_json};
use super::plan::{Fault, Next, Plan, Try};
use super::sse::{Events, TooLong};
use crate::vendors::fallback::Fallback;
use crate::vendors::queue::lock;
use crate::vendors::usage::SpeechUsage;

/// The longest pause within an answer that has begun. What was said until then is spoken.
const STALL: Duration = Duration::from_secs(8);

/// The longest answer, bytes of its body: a reply is a few sentences.
const LONGEST: usize = 4 << 20;

/// A provider's model, for any number of calls.
pub(super) struct Model {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) provider: Blame,
    pub(super) name: String,
    pub(super) habits: Arc<Habits>,
}

/// The model of one call.
pub(super) struct RemoteModel {
    shared: Arc<Shared>,
    runtime: Handle,
    running: Option<(ReplyId, AbortHandle)>,
    /// The call's, for the log.
    span: Span,
}

/// What a call and its requests under way share.
struct Shared {
    model: Arc<Model>,
    sink: Arc<dyn SpeechSink>,
    usage: Arc<SpeechUsage>,
    /// Takes over where nothing was said yet.
    fallback: Fallback<Box<dyn LanguageModel>>,
    /// The request that all tries were made for last: its reply, and how many messages it had.
    exhausted: Mutex<Option<(ReplyId, usize)>>,
}

impl RemoteModel {
    pub(super) fn new(
        model: Arc<Model>,
        fallback: Fallback<Box<dyn LanguageModel>>,
        usage: Arc<SpeechUsage>,
        runtime: Handle,
        sink: Arc<dyn SpeechSink>,
    ) -> Self {
        let endpoint = Arc::clone(&model.endpoint);
        runtime.spawn(async move { endpoint.warm_up().await });
        Self {
            span: Span::current(),
            shared: Arc::new(Shared {
                model,
                sink,
                usage,
                fallback,
                exhausted: Mutex::new(None),
            }),
            runtime,
            running: None,
        }
    }

    fn stop(&mut self) {
        if let Some((_, task)) = self.running.take() {
            task.abort();
        }
    }
}

impl LanguageModel for RemoteModel {
    fn start(&mut self, reply: ReplyId, request: ModelRequest) {
        self.stop();
        // The engine asks once more after a failure. All tries were made already. (The request after a
        // tool's answer is of the same reply, but longer.)
        let exhausted = lock(&self.shared.exhausted).take();
        if exhausted == Some((reply, request.messages.len())) {
            let message = "no answer came before, and all tries were made".to_owned();
            let event = LlmEvent::Failed { message };
            self.shared.sink.send(SpeechEvent::Llm { reply, event });
            return;
        }
        let shared = Arc::clone(&self.shared);
        let task = self.runtime.spawn(
            async move { shared.answer(reply, request).await }.instrument(self.span.clone()),
        );
        self.running = Some((reply, task.abort_handle()));
    }

    fn cancel(&mut self, reply: ReplyId) {
        if self.running.as_ref().is_some_and(|(of, _)| *of <= reply) {
            self.stop();
        }
        self.shared.fallback.tell(|other| other.cancel(reply));
    }
}

impl Drop for RemoteModel {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How one try ended.
enum Tried {
    Done,
    /// The call is gone.
    Gone,
    /// Nothing of it was said: another try is possible.
    Failed(Fault),
    /// The beginning was said.
    Cut(Fault),
}

impl Shared {
    async fn answer(&self, reply: ReplyId, request: ModelRequest) {
        let began = Instant::now();
        let mut plan = Plan::answer(self.fallback.is_there());
        let mut next = plan.first();
        loop {
            sleep(next.pause).await;
            let fault = match self.try_once(reply, &request, next).await {
                Tried::Done => {
                    self.send(reply, LlmEvent::Done).await;
                    return;
                }
                Tried::Gone => return,
                Tried::Cut(fault) => {
                    let what = "a model broke off its answer";
                    let provider = &self.model.provider;
                    provider.fault_about(&fault, texts(&request), what);
                    return self.fail(reply, &fault).await;
                }
                Tried::Failed(fault) => fault,
            };
            let provider = &self.model.provider;
            provider.fault_about(&fault, texts(&request), "a model did not answer");
            let after = plan.next(began.elapsed(), &fault);
            if !matches!(after, Next::Again(_)) {
                *lock(&self.exhausted) = Some((reply, request.messages.len()));
            }
            match after {
                Next::Again(again) => next = again,
                Next::HandOver => {
                    self.fallback.tell(|other| other.start(reply, request));
                    return;
                }
                Next::GiveUp => return self.fail(reply, &fault).await,
            }
        }
    }

    async fn fail(&self, reply: ReplyId, fault: &Fault) {
        let message = self.model.provider.told(fault);
        self.send(reply, LlmEvent::Failed { message }).await;
    }

    async fn try_once(&self, reply: ReplyId, request: &ModelRequest, turn: Try) -> Tried {
        let began = Instant::now();
        let habits = &self.model.habits;
        let response = match self.ask(request, turn.within).await {
            Ok(response) => response,
            Err(fault) => return Tried::Failed(fault),
        };
        let mut listener = Listener {
            shared: self,
            reply,
            answer: Answer::new(&request.tools, habits.thinks()),
            metered: Metered {
                usage: &self.usage,
                prompt: wire::characters(request),
                said: 0,
                counted: false,
            },
        };
        let told = listener
            .read(response, turn.within.saturating_sub(began.elapsed()))
            .await;
        let ended = match told {
            Ok(true) => listener.finish(calls_before(request)).await,
            other => other,
        };
        // An answer without words shows no habit, and neither does the beginning of one.
        let alone = listener.answer.thought_alone();
        if alone || ended == Ok(true) && listener.answer.was_said() {
            habits.answered(alone);
        }
        match ended {
            Ok(true) => Tried::Done,
            Ok(false) => Tried::Gone,
            Err(fault) if listener.answer.was_said() => Tried::Cut(fault),
            Err(fault) => Tried::Failed(fault),
        }
    }

    /// Sends the request; once more without those parameters that it is refused for.
    async fn ask(&self, request: &ModelRequest, within: Duration) -> Result<Response, Fault> {
        let began = Instant::now();
        let Model {
            endpoint,
            provider,
            name,
            habits,
        } = &*self.model;
        loop {
            let body = wire::body(name, request, &habits.omitted(Instant::now()));
            let sent = endpoint
                .post("chat/completions")
                .header(header::ACCEPT, "text/event-stream")
                .json(&body);
            let left = within.saturating_sub(began.elapsed());
            let fault = match endpoint.send(provider, sent, left).await {
                Ok(response) => return Ok(response),
                Err(fault) => fault,
            };
            // Each time there is one parameter less.
            let refused = habits.learn(&fault, &body, Instant::now());
            if refused.is_empty() {
                return Err(fault);
            }
            tracing::info!(
                %provider,
                model = name,
                parameters = refused.join(", "),
                "a model refuses parameters, and is asked without them for a while"
            );
        }
    }

    async fn send(&self, reply: ReplyId, event: LlmEvent) -> bool {
        deliver(&*self.sink, SpeechEvent::Llm { reply, event }).await
    }
}

/// One answer being read.
struct Listener<'a> {
    shared: &'a Shared,
    reply: ReplyId,
    answer: Answer,
    metered: Metered<'a>,
}

impl Listener<'_> {
    /// Reads the body to its end. `false`: the call is gone. The first piece of the answer has to come
    /// within `first`.
    async fn read(&mut self, response: Response, first: Duration) -> Result<bool, Fault> {
        let whole = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(is_json);
        let kind = kind(&response);
        let mut bytes = response.bytes_stream();
        let mut events = Events::default();
        let mut document = Vec::new();
        // What came before any event, in case none comes.
        let mut head = Vec::new();
        let mut size = 0;
        let deadline = Instant::now() + first;
        let mut alive = false;
        while !self.answer.done {
            let within = if alive {
                STALL
            } else {
                deadline.saturating_duration_since(Instant::now())
            };
            let part = match timeout(within, bytes.next()).await {
                Err(_) => return Err(Fault::Stalled(if alive { STALL } else { first })),
                Ok(Some(Err(error))) => return Err(broken(error)),
                Ok(Some(Ok(part))) => part,
                Ok(None) => break,
            };
            size += part.len();
            if size > LONGEST {
                return Err(Fault::Wrong("the answer is too long".to_owned()));
            }
            if whole {
                document.extend_from_slice(&part);
                continue;
            }
            if !self.answer.has_begun() && head.len() < complaint::READ {
                head.extend_from_slice(&part);
            }
            let mut found = Vec::new();
            events
                .push(&part, |data| found.push(data.to_owned()))
                .map_err(|TooLong| Fault::Wrong("an event is too long".to_owned()))?;
            if !self.take(found).await? {
                return Ok(false);
            }
            alive = alive || self.answer.has_words();
        }
        let mut found = Vec::new();
        if whole && begins_event(&document) {
            // A stream under the wrong name.
            events
                .push(&document, |data| found.push(data.to_owned()))
                .map_err(|TooLong| Fault::Wrong("an event is too long".to_owned()))?;
        } else if whole {
            let text = self.answer.whole(&document)?;
            return Ok(self.say(text).await);
        }
        events.finish(|data| found.push(data.to_owned()));
        let told = self.take(found).await?;
        let is_stream = kind.to_ascii_lowercase().starts_with("text/event-stream");
        if told && !is_stream && !self.answer.has_begun() && !head.is_empty() {
            return Err(Fault::Garbage {
                what: format!("the model sent {kind}, not events"),
                page: complaint::page(&head),
            });
        }
        Ok(told)
    }

    /// The events of one part of the body; their text goes to the call as one piece.
    async fn take(&mut self, found: Vec<String>) -> Result<bool, Fault> {
        let mut text = String::new();
        let mut fault = None;
        for data in &found {
            match self.answer.event(data) {
                Ok(piece) => text.push_str(&piece),
                Err(wrong) => {
                    fault = Some(wrong);
                    break;
                }
            }
        }
        if !self.say(text).await {
            return Ok(false);
        }
        fault.map_or(Ok(true), Err)
    }

    async fn say(&mut self, text: String) -> bool {
        if text.is_empty() {
            return true;
        }
        self.metered.said += text.len();
        self.shared.send(self.reply, LlmEvent::Text(text)).await
    }

    async fn finish(&mut self, before: usize) -> Result<bool, Fault> {
        if let Some(count) = self.answer.count {
            self.metered.counted = true;
            self.shared.usage.add_tokens(count.prompt, count.completion);
        }
        let (text, calls) = self.answer.finish(before)?;
        if !self.say(text).await {
            return Ok(false);
        }
        for call in calls {
            self.metered.said += call.arguments.len();
            if !self.shared.send(self.reply, LlmEvent::ToolCall(call)).await {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Counts an answer that ends without the server's own count: one that was cancelled, too.
struct Metered<'a> {
    usage: &'a SpeechUsage,
    prompt: usize,
    said: usize,
    counted: bool,
}

impl Drop for Metered<'_> {
    fn drop(&mut self) {
        if !self.counted && self.said > 0 {
            self.usage.estimate_tokens(self.prompt, self.said);
        }
    }
}

/// Whether a body is a stream of events, whatever it is called.
fn begins_event(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let body = body.trim_ascii_start();
    [&b"data:"[..], b"event:", b":"]
        .iter()
        .any(|field| body.starts_with(field))
}

/// What a body is, as its head says.
fn kind(response: &Response) -> String {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|value| value.to_str().ok());
    complaint::line(kind.unwrap_or("something without a type"))
}

/// All that a request says of its conversation.
fn texts(request: &ModelRequest) -> Vec<&str> {
    let mut texts = Vec::new();
    for message in &request.messages {
        match message {
            Message::System { content }
            | Message::Instructions { content }
            | Message::User { content }
            | Message::Tool { content, .. } => texts.push(content.as_str()),
            Message::Assistant {
                content,
                tool_calls,
            } => {
                texts.push(content);
                texts.extend(tool_calls.iter().map(|call| call.arguments.as_str()));
            }
        }
    }
    texts
}

/// Tool calls that the conversation had so far.
fn calls_before(request: &ModelRequest) -> usize {
    let calls = request.messages.iter().map(|message| match message {
        Message::Assistant { tool_calls, .. } => tool_calls.len(),
        _ => 0,
    });
    calls.sum()
}
