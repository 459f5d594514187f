//! A recogniser behind `/audio/transcriptions`: a whole utterance as one WAV when its voice has stopped,
//! and its text as the answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use media::speech::words::{has_words, names_a_noise};
use media::speech::{Recogniser, RecogniserEvent, SpeechEvent, SpeechSink, UtteranceId};
use media::time::RATE;
use reqwest::header;
use reqwest::multipart::{Form, Part};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use super::blame::Blame;
use super::complaint;
use super::deliver::deliver;
use super::http::{Endpoint, broken, is_json};
use super::mute::{Muteness, Verdict};
use super::plan::{Fault, Next, Plan, Try};
use super::recogniser::{AudioCommand, RemoteRecogniser};
use crate::vendors::fallback::Fallback;
use crate::vendors::meter::IN_VAIN;
use crate::vendors::queue::lock;

/// The longest utterance, samples: a minute of voice without a pause. What is said after it is not sent.
const LONGEST: usize = 60 * RATE as usize;

/// The longest answer, bytes: a minute of speech is a thousand characters.
const LONGEST_ANSWER: usize = 256 << 10;

/// A provider's recogniser, for any number of calls.
pub(super) struct Transcriber {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) provider: Blame,
    pub(super) model: String,
    pub(super) punctuates: bool,
}

/// What a call's utterances share.
struct Shared {
    transcriber: Arc<Transcriber>,
    /// ISO 639-1.
    language: &'static str,
    sink: Arc<dyn SpeechSink>,
    /// Listens where this one fails.
    fallback: Fallback<Box<dyn Recogniser>>,
    /// Held for a few instructions an utterance.
    muteness: Mutex<Muteness>,
}

/// The recogniser of one call.
pub(super) fn ears(
    transcriber: Arc<Transcriber>,
    language: &'static str,
    fallback: Fallback<Box<dyn Recogniser>>,
    runtime: &Handle,
    sink: Arc<dyn SpeechSink>,
) -> RemoteRecogniser {
    let (ears, line) = RemoteRecogniser::new(Arc::clone(&sink), transcriber.punctuates);
    let shared = Arc::new(Shared {
        transcriber,
        language,
        sink,
        muteness: Mutex::new(Muteness::new(fallback.is_there())),
        fallback,
    });
    runtime.spawn(listen(shared, line).in_current_span());
    ears
}

/// Serves one call until it is over.
async fn listen(shared: Arc<Shared>, mut line: mpsc::Receiver<AudioCommand>) {
    let mut open: Option<(UtteranceId, Vec<i16>)> = None;
    // Dropped with this task, and all its requests with it.
    let mut tasks = JoinSet::new();
    let mut running: Vec<(UtteranceId, Instant, AbortHandle)> = Vec::new();
    while let Some(told) = line.recv().await {
        while tasks.try_join_next().is_some() {}
        running.retain(|(_, _, task)| !task.is_finished());
        match told {
            AudioCommand::Begin(utterance) => open = Some((utterance, Vec::new())),
            AudioCommand::Audio(utterance, piece) => {
                if let Some((of, samples)) = &mut open
                    && *of == utterance
                    && samples.len() < LONGEST
                {
                    samples.extend_from_slice(piece.samples());
                }
            }
            AudioCommand::Finish(utterance) => {
                if let Some((_, samples)) = open.take_if(|(of, _)| *of == utterance) {
                    let shared = Arc::clone(&shared);
                    let task = tasks.spawn(
                        async move { shared.transcribe(utterance, &samples).await }
                            .in_current_span(),
                    );
                    running.push((utterance, Instant::now(), task));
                }
            }
            AudioCommand::Cancel(utterance) => {
                if open.as_ref().is_some_and(|(of, _)| *of == utterance) {
                    open = None;
                }
                for (_, since, task) in running.iter().filter(|(of, _, _)| *of == utterance) {
                    task.abort();
                    let waited = since.elapsed();
                    if waited >= IN_VAIN {
                        let provider = &shared.transcriber.provider;
                        provider.fault(&Fault::Stalled(waited), "a recogniser did not answer");
                    }
                }
                shared.fallback.tell(|other| other.cancel(utterance));
            }
        }
    }
}

impl Shared {
    async fn transcribe(&self, utterance: UtteranceId, samples: &[i16]) {
        let began = Instant::now();
        let mut plan = Plan::transcript(self.fallback.is_there());
        let mut next = plan.first();
        let event = loop {
            sleep(next.pause).await;
            let provider = &self.transcriber.provider;
            let (fault, after) = match self.try_once(samples, next).await {
                Ok(text) => match self.judge(samples, &text) {
                    Verdict::Believed => {
                        break RecogniserEvent::Final {
                            utterance,
                            text,
                            confidence: None,
                        };
                    }
                    Verdict::Doubtful => return self.fallback.hear(utterance, samples),
                    // The same sound would be answered alike.
                    Verdict::Mute => {
                        let fault = Fault::Wrong("no words came for a voice".to_owned());
                        let after = match self.fallback.is_there() {
                            true => Next::HandOver,
                            false => Next::GiveUp,
                        };
                        (fault, after)
                    }
                },
                Err(fault) => {
                    let after = plan.next(began.elapsed(), &fault);
                    (fault, after)
                }
            };
            provider.fault(&fault, "a recogniser did not answer");
            match after {
                Next::Again(again) => next = again,
                Next::HandOver => return self.fallback.hear(utterance, samples),
                Next::GiveUp => {
                    break RecogniserEvent::Failed {
                        utterance,
                        message: provider.told(&fault),
                    };
                }
            }
        };
        deliver(&*self.sink, SpeechEvent::Recogniser(event)).await;
    }

    /// Whether the answer is one.
    fn judge(&self, samples: &[i16], text: &str) -> Verdict {
        let mut muteness = lock(&self.muteness);
        if has_words(text) {
            muteness.words();
            return Verdict::Believed;
        }
        if names_a_noise(text) {
            return Verdict::Believed;
        }
        muteness.no_words(Instant::now(), samples.len() as u64, true)
    }

    async fn try_once(&self, samples: &[i16], turn: Try) -> Result<String, Fault> {
        let Transcriber {
            endpoint,
            provider,
            model,
            ..
        } = &*self.transcriber;
        let file = Part::bytes(wav(samples))
            .file_name("utterance.wav")
            .mime_str("audio/wav")
            .map_err(broken)?;
        let form = Form::new()
            .part("file", file)
            .text("model", model.clone())
            .text("language", self.language)
            .text("response_format", "json");
        let began = Instant::now();
        let sent = endpoint.post("audio/transcriptions").multipart(form);
        let mut response = endpoint.send(provider, sent, turn.within).await?;
        let kind = response.headers().get(header::CONTENT_TYPE);
        let json = kind.and_then(|kind| kind.to_str().ok()).is_none_or(is_json);
        let mut body = Vec::new();
        loop {
            let left = turn.within.saturating_sub(began.elapsed());
            match timeout(left.max(Duration::from_millis(1)), response.chunk()).await {
                Err(_) => return Err(Fault::Stalled(turn.within)),
                Ok(Err(error)) => return Err(broken(error)),
                Ok(Ok(Some(part))) => body.extend_from_slice(&part),
                Ok(Ok(None)) => break,
            }
            if body.len() > LONGEST_ANSWER {
                return Err(Fault::Wrong("the transcript is too long".to_owned()));
            }
        }
        transcript(json, &body)
    }
}

/// The text in an answer's body. `json`: it is called a JSON document; an object is one, whatever it is called.
fn transcript(json: bool, body: &[u8]) -> Result<String, Fault> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let words = if json || begins_object(body) {
        let answer: Value = serde_json::from_slice(body)
            .map_err(|_| garbage("the transcript is not JSON", body))?;
        if complaint::is_error(&answer) {
            let words = complaint::read(&answer.to_string());
            return Err(Fault::Told(words));
        }
        let text = answer["text"].as_str();
        text.ok_or_else(|| garbage("the transcript has no text", body))?
            .to_owned()
    } else {
        String::from_utf8_lossy(body).into_owned()
    };
    Ok(words.trim().to_owned())
}

/// Whether a JSON object begins here: `{laughs}` is none.
fn begins_object(body: &[u8]) -> bool {
    let inside = body.trim_ascii_start().strip_prefix(b"{");
    inside.is_some_and(|inside| matches!(inside.trim_ascii_start().first(), Some(b'"' | b'}')))
}

fn garbage(what: &str, body: &[u8]) -> Fault {
    Fault::Garbage {
        what: what.to_owned(),
        page: complaint::page(body),
    }
}

/// 16 kHz PCM16 mono as a WAV file.
fn wav(samples: &[i16]) -> Vec<u8> {
    let length = u32::try_from(2 * samples.len()).unwrap_or(u32::MAX - 44);
    let mut file = Vec::with_capacity(44 + 2 * samples.len());
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(36 + length).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&16_u32.to_le_bytes());
    file.extend_from_slice(&1_u16.to_le_bytes());
    file.extend_from_slice(&1_u16.to_le_bytes());
    file.extend_from_slice(&RATE.to_le_bytes());
    file.extend_from_slice(&(2 * RATE).to_le_bytes());
    file.extend_from_slice(&2_u16.to_le_bytes());
    file.extend_from_slice(&16_u16.to_le_bytes());
    file.extend_from_slice(b"data");
    file.extend_from_slice(&length.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_what_others_read() {
        let samples = [1, -2, 300];
        let reader = hound::WavReader::new(std::io::Cursor::new(wav(&samples))).unwrap();
        let spec = reader.spec();
        assert_eq!((spec.sample_rate, spec.channels), (16_000, 1));
        let read: Vec<i16> = reader.into_samples().map(Result::unwrap).collect();
        assert_eq!(read, samples);
    }

    #[test]
    fn the_text_is_found_in_both_kinds_of_answer() {
        assert_eq!(
            transcript(true, br#"{"text":" Hello. ","usage":{}}"#).unwrap(),
            "Hello."
        );
        assert_eq!(transcript(false, b"Hello.\n").unwrap(), "Hello.");
        assert!(transcript(true, b"{}").is_err());
        assert!(transcript(true, b"<html>").is_err());
        assert_eq!(
            transcript(false, b"\xef\xbb\xbf { \"text\": \"Hello.\"}").unwrap(),
            "Hello.",
            "JSON under another name"
        );
        assert!(transcript(false, b"{}").is_err());
        assert!(matches!(
            transcript(false, br#"{"error": {"message": "no such model"}}"#),
            Err(Fault::Told(_))
        ));
        assert_eq!(transcript(false, b"{laughs}").unwrap(), "{laughs}");
        for kind in [
            "Application/JSON",
            "text/json; charset=utf-8",
            "application/problem+json",
        ] {
            assert!(is_json(kind), "{kind}");
        }
        assert!(!is_json("text/plain"));
    }
}
