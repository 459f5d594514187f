//! A provider's name in a call, what is counted, noted and logged of its faults, and what it calls its answers.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;

use super::complaint::{self, Said};
use super::plan::Fault;
use super::settings::ProviderSettings;
use crate::metrics::providers::{ProviderMetrics, Stage};
use crate::secret::Secret;
use crate::vendors::queue::lock;
use crate::vendors::usage::SpeechUsage;

/// The headers in which providers name their answers, after the first that did so: OpenAI and most that
/// speak its protocol; ElevenLabs and Anthropic; Deepgram; Azure; Amazon.
const REQUEST_ID: [&str; 5] = [
    "x-request-id",
    "request-id",
    "dg-request-id",
    "apim-request-id",
    "x-amzn-requestid",
];

/// A provider in one of a call's parts. Shown, it is its name.
#[derive(Clone)]
pub(super) struct Blame {
    name: String,
    key: Option<Secret<String>>,
    stage: Stage,
    metrics: Arc<ProviderMetrics>,
    ration: Arc<Ration>,
    usage: Arc<SpeechUsage>,
}

impl Blame {
    pub(super) fn new(
        settings: &ProviderSettings,
        stage: Stage,
        metrics: &Arc<ProviderMetrics>,
        ration: &Arc<Ration>,
        usage: &Arc<SpeechUsage>,
    ) -> Self {
        Self {
            name: settings.name.clone(),
            key: settings.key.clone(),
            stage,
            metrics: Arc::clone(metrics),
            ration: Arc::clone(ration),
            usage: Arc::clone(usage),
        }
    }

    /// The head of an answer came, of a refusal too: the call's diagnostics tell what the provider calls
    /// it.
    pub(super) fn answered(&self, headers: &HeaderMap) {
        let mut names = REQUEST_ID.iter().filter_map(|name| headers.get(*name));
        if let Some(id) = names.find_map(|value| value.to_str().ok()) {
            self.named(id);
        }
    }

    /// As [`answered`](Self::answered), where a message holds the name.
    pub(super) fn named(&self, id: &str) {
        self.usage.add_request_id(id);
    }

    /// As [`fault_about`](Self::fault_about), of a request that had no text of the conversation.
    pub(super) fn fault(&self, fault: &Fault, what: &'static str) {
        self.fault_about(fault, [], what);
    }

    /// Counts a try that failed, notes it for the call's diagnostics, and says so in the log: in the provider's own
    /// words, but for those of `sent`, which are the conversation's.
    pub(super) fn fault_about<'a>(
        &self,
        fault: &Fault,
        sent: impl IntoIterator<Item = &'a str>,
        what: &'static str,
    ) {
        self.metrics.fault(self.stage, &self.name, fault.kind());
        let message = self.words(fault);
        let (now, stage) = (Instant::now(), self.stage.part());
        let code = complaint::without_key(&fault.code(), self.key());
        let faults = &self.usage.faults;
        faults.add(now, stage, &self.name, code.clone(), message);
        let Some(left_out) = self.ration.line(now, &self.name, self.stage) else {
            return;
        };
        let sent = Said::of(sent);
        let said = self.shown(fault, |words| complaint::for_log(&words, &sent));
        tracing::warn!(
            provider = %self.name,
            stage = self.stage.name(),
            kind = fault.kind(),
            status = fault.status(),
            code,
            said,
            left_out,
            "{what}"
        );
    }
}

impl Blame {
    /// What the provider said of a fault, without its key: some repeat it.
    pub(super) fn words(&self, fault: &Fault) -> String {
        self.shown(fault, |words| words)
    }

    /// The same after the provider's name, as a call notes it.
    pub(super) fn told(&self, fault: &Fault) -> String {
        format!("{}: {}", self.name, self.words(fault))
    }

    /// What is shown of a fault: without keys and without what `less` leaves out, and only then cut.
    fn shown(&self, fault: &Fault, less: impl Fn(String) -> String) -> String {
        fault.words(|words| complaint::cut(&less(complaint::without_keys(words, self.key()))))
    }

    fn key(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.expose().as_str())
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// How many lines a provider's faults in one stage get within [`WITHIN`]: one that is away fails in every turn of
/// every call.
const LINES: u32 = 20;
const WITHIN: Duration = Duration::from_secs(10);

/// Who may write how many lines. It holds as many entries as the settings have providers, times their stages.
#[derive(Default)]
pub(super) struct Ration(Mutex<HashMap<(String, &'static str), Window>>);

struct Window {
    since: Instant,
    lines: u32,
    left_out: u64,
}

impl Ration {
    /// Whether this fault gets a line, and how many before it got none.
    fn line(&self, now: Instant, provider: &str, stage: Stage) -> Option<u64> {
        let mut windows = lock(&self.0);
        let window = windows
            .entry((provider.to_owned(), stage.name()))
            .or_insert(Window {
                since: now,
                lines: 0,
                left_out: 0,
            });
        if now.saturating_duration_since(window.since) >= WITHIN {
            (window.since, window.lines) = (now, 0);
        }
        if window.lines == LINES {
            window.left_out += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::super::complaint::Complaint;
    use super::*;

    #[test]
    fn a_provider_that_is_away_does_not_fill_the_log_and_others_are_heard() {
        let (ration, began) = (Ration::default(), Instant::now());
        let line =
            |ms, provider, stage| ration.line(began + Duration::from_millis(ms), provider, stage);
        let lines = (0..1000).filter_map(|ms| line(ms, "cloud", Stage::Llm));
        assert_eq!(lines.collect::<Vec<_>>(), [0; LINES as usize]);
        assert_eq!(line(999, "cloud", Stage::Tts), Some(0));
        assert_eq!(line(999, "ears", Stage::Llm), Some(0));
        assert_eq!(line(10_000, "cloud", Stage::Llm), Some(980));
        assert_eq!(line(10_001, "cloud", Stage::Llm), Some(0));
    }

    fn blame(key: &str) -> Blame {
        Blame {
            name: "cloud".to_owned(),
            key: Some(Secret::new(key.to_owned())),
            stage: Stage::Llm,
            metrics: Arc::default(),
            ration: Arc::default(),
            usage: Arc::default(),
        }
    }

    #[test]
    fn a_key_that_a_provider_repeats_stands_in_no_note() {
        let blame = blame("hunter2");
        let note = blame.told(&Fault::Wrong("hunter2 opens nothing".to_owned()));
        assert!(
            note.starts_with("cloud: ") && note.contains("opens nothing"),
            "{note}"
        );
        assert!(!note.contains("hunter2"), "{note}");
    }

    /// Where what is shown ends, wherever in the key that is.
    #[test]
    fn a_key_or_a_word_of_the_call_is_left_out_before_its_fault_is_cut() {
        let key = "correct/horse+battery";
        let blame = blame(key);
        let sent = Said::of(["my knee is insufferable"]);
        let padding = "x ".repeat(130);
        for before in 0..padding.len() {
            let told = |secret: &str| {
                let message = format!("{}{secret} is wrong", &padding[..before]);
                Fault::Told(Complaint {
                    code: None,
                    message,
                })
            };
            let shown = blame.words(&told(key));
            let kept = shown.trim_start_matches(['x', ' ']);
            assert!("••• is wrong".starts_with(kept), "{shown}");
            assert!(shown.chars().count() <= 200, "{shown}");
            let logged = blame.shown(&told(" insufferable"), |words| {
                complaint::for_log(&words, &sent)
            });
            let kept = logged.trim_start_matches(['x', ' ']);
            assert!("••• is wrong".starts_with(kept), "{logged}");
        }
        let refused = Fault::Refused {
            status: 401,
            words: Complaint {
                code: None,
                message: format!("key={key}, or \"sk-abcdef\""),
            },
        };
        assert_eq!(
            blame.told(&refused),
            "cloud: status 401: key=•••, or \"•••\""
        );
    }

    #[test]
    fn a_key_is_no_code_of_a_fault() {
        let blame = blame("swordfish");
        let fault = Fault::Told(Complaint {
            code: Some("no_swordfish".to_owned()),
            message: "no".to_owned(),
        });
        blame.fault(&fault, "a model did not answer");
        let noted = blame.usage.faults.over(Instant::now(), Duration::ZERO);
        assert_eq!(noted.kept[0].code, "no_•••");
    }
}
