//! The reply under way: its text, its segments at the voice, and how much of it was heard.

use super::latency::Marks;
use super::record::{EndReason, Latency, ToolRecord};
use crate::audio::resample::Resampler;
use crate::dialog::clean::Cleaner;
use crate::dialog::plain::Plain;
use crate::dialog::sentences::{Segment, Sentences};
use crate::speech::{Message, ReplyId, TAKEN_BACK, ToolCall};
use crate::time::{Samples, Time};

/// Samples of one spoken character when nothing better is known: 14.5 characters a second.
const SAMPLES_PER_CHARACTER: u64 = 1100;

/// Why the agent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The model answers the caller.
    Answer,
    Greeting,
    CheckIn,
    Apology,
    Reprompt,
    Goodbye,
    /// After it the caller leaves a message; it has no words.
    Tone,
    /// What an interrupted reply still had to say.
    Resume,
}

/// A reply.
pub(super) struct Reply {
    pub(super) id: ReplyId,
    pub(super) kind: Kind,
    pub(super) turn_id: String,
    /// Whether it may be heard. A speculative reply waits for its turn to be committed.
    pub(super) committed: bool,
    /// The caller's words that it answers.
    pub(super) asked: String,
    /// Those of them that came before its steps: all, unless it goes on with what another reply began.
    pub(super) opening: String,
    pub(super) text: Sentences,
    /// Turns what the model writes into what is said.
    pub(super) plain: Option<Plain>,
    /// Takes out of the model's words what the content guardrail forbids.
    pub(super) cleaner: Option<Cleaner>,
    /// No more text will come.
    pub(super) text_complete: bool,
    /// The model's step (a text, or tool calls) is over.
    pub(super) step_done: bool,
    /// Tool calls of a speculative reply: nothing runs before the turn is committed.
    pub(super) held: Vec<ToolCall>,
    /// Steps that the model has been told of.
    pub(super) answered: usize,
    pub(super) unknown_tools: u32,
    pub(super) segments: Vec<Spoken>,
    /// Text that went to the voice and to the client.
    pub(super) told: usize,
    pub(super) told_final: bool,
    /// Its first audible sample was sent.
    pub(super) announced: bool,
    pub(super) latency: Option<Latency>,
    /// What the model did in this reply before its words: tools and their answers.
    pub(super) steps: Vec<Message>,
    pub(super) retried: bool,
    pub(super) tools: Vec<RunningTool>,
    pub(super) tool_records: Vec<ToolRecord>,
    pub(super) end_after: Option<EndReason>,
    /// Index (see `Playout`) of the first audible sample.
    pub(super) first_audible: Option<u64>,
    /// Positions in the recording of the first audible sample and after the last one played.
    pub(super) start: Option<u64>,
    pub(super) end: u64,
    /// Samples of silence at the voice's beginning that were cut off.
    pub(super) trimmed: u64,
    pub(super) resampler: Option<(u32, Resampler)>,
    pub(super) marks: Marks,
    /// When the voice last gave a sign, while it owes audio.
    pub(super) voice_since: Option<Time>,
}

/// A segment that the voice was asked to speak.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spoken {
    pub(super) segment: Segment,
    /// Index of its first sample.
    pub(super) first: u64,
    pub(super) length: u64,
    pub(super) done: bool,
}

/// A tool that runs.
#[derive(Debug)]
pub(super) struct RunningTool {
    pub(super) call: ToolCall,
    pub(super) deadline: Time,
    pub(super) began: Time,
    pub(super) kind: &'static str,
    pub(super) external: bool,
    pub(super) filler_spoken: bool,
}

/// A filler line, spoken while the reply is awaited.
pub(super) struct Filler {
    pub(super) id: ReplyId,
    pub(super) turn_id: String,
    pub(super) text: String,
    pub(super) done: bool,
    pub(super) resampler: Option<(u32, Resampler)>,
    pub(super) first: Option<u64>,
    pub(super) length: u64,
    /// Index after its last frame, once it is done.
    pub(super) over: u64,
    pub(super) start: Option<u64>,
    pub(super) end: u64,
}

/// What an interrupted reply still had to say.
#[derive(Debug)]
pub(super) struct Unheard {
    pub(super) text: String,
}

impl Filler {
    pub(super) fn new(id: ReplyId, turn_id: String, text: String) -> Self {
        Self {
            id,
            turn_id,
            text,
            done: false,
            resampler: None,
            first: None,
            length: 0,
            over: 0,
            start: None,
            end: 0,
        }
    }
}

impl Reply {
    pub(super) fn new(id: ReplyId, kind: Kind, turn_id: String, marks: Marks) -> Self {
        Self {
            id,
            kind,
            turn_id,
            committed: true,
            asked: String::new(),
            opening: String::new(),
            text: Sentences::default(),
            plain: None,
            cleaner: None,
            text_complete: false,
            step_done: false,
            held: Vec::new(),
            answered: 0,
            unknown_tools: 0,
            segments: Vec::with_capacity(8),
            told: 0,
            told_final: false,
            announced: false,
            latency: None,
            steps: Vec::new(),
            retried: false,
            tools: Vec::new(),
            tool_records: Vec::new(),
            end_after: None,
            first_audible: None,
            start: None,
            end: 0,
            trimmed: 0,
            resampler: None,
            marks,
            voice_since: None,
        }
    }

    /// More of the model's words.
    pub(super) fn say(&mut self, text: &str) {
        let mut parts = text.split(TAKEN_BACK);
        self.write(parts.next().unwrap_or_default());
        for part in parts {
            self.take_back();
            self.write(part);
        }
    }

    fn write(&mut self, text: &str) {
        match &mut self.plain {
            Some(plain) => {
                let said = plain.push(text);
                self.push(&said);
            }
            None => self.push(text),
        }
    }

    fn push(&mut self, text: &str) {
        match &mut self.cleaner {
            Some(cleaner) => self.text.push(&cleaner.push(text)),
            None => self.text.push(text),
        }
    }

    /// What the model wrote so far was not meant for the caller. What the voice has of it stays.
    fn take_back(&mut self) {
        self.end_step();
        self.text.drop_rest();
        self.text.end_line();
    }

    /// The model's step is over: what was held back of it is said, whatever the next step begins with.
    pub(super) fn end_step(&mut self) {
        if let Some(plain) = &mut self.plain {
            let held = plain.finish();
            self.push(&held);
        }
        if let Some(cleaner) = &mut self.cleaner {
            let held = cleaner.finish();
            self.text.push(&held);
        }
        self.text.end_line();
    }

    /// Whether there is anything to say, or was.
    pub(super) fn has_words(&self) -> bool {
        !self.segments.is_empty() || self.text.text().contains(char::is_alphanumeric)
    }

    /// The model is asked anew, for nothing of its answer can be said.
    pub(super) fn start_over(&mut self) {
        self.text = Sentences::default();
        self.step_done = false;
    }

    /// No more text will come.
    pub(super) fn text_over(&mut self) {
        self.end_step();
        self.text.finish();
        self.text_complete = true;
    }

    /// Whether it answers the caller, who has heard nothing of it, and answers other words than these.
    pub(super) fn is_answer_to_other_words(&self, text: &str) -> bool {
        self.kind == Kind::Answer
            && !self.announced
            && !text.is_empty()
            && !same_words(&self.asked, text)
    }

    /// The segment that the voice is speaking.
    pub(super) fn speaking(&mut self) -> Option<&mut Spoken> {
        self.segments.last_mut().filter(|spoken| !spoken.done)
    }

    /// All text is known, spoken, and no tool runs.
    pub(super) fn is_complete(&self) -> bool {
        self.text_complete
            && self.tools.is_empty()
            && self.segments.iter().all(|s| s.done)
            && self.text.text().len() <= self.segments.last().map_or(0, |s| s.segment.end)
    }

    /// How long it was heard before sample `index`, ms: on the recording's clock, so that a moment in
    /// which the client's ear ran dry counts.
    pub(super) fn spoken_ms(&self, index: u64) -> u64 {
        let samples = match self.start {
            Some(start) => self.end.saturating_sub(start),
            None => index.saturating_sub(self.first_audible.unwrap_or(index)),
        };
        Samples(samples).ms()
    }

    /// How much of the text fits into what was played before sample `index`: whole words, a prefix
    /// of the text.
    pub(super) fn heard_text(&self, index: u64) -> &str {
        let text = self.text.text();
        let mut end = 0;
        for spoken in &self.segments {
            if index <= spoken.first {
                break;
            }
            let segment = text
                .get(spoken.segment.start..spoken.segment.end)
                .unwrap_or_default();
            let characters = segment.chars().count() as u64;
            let length = if spoken.done {
                spoken.length
            } else {
                spoken.length.max(characters * SAMPLES_PER_CHARACTER)
            };
            let played = index - spoken.first;
            if played >= length {
                end = spoken.segment.end;
                continue;
            }
            let heard = (characters * played / length.max(1)) as usize;
            end = spoken.segment.start + whole_words(segment, heard);
            break;
        }
        text.get(..end).unwrap_or_default().trim_end()
    }
}

/// Whether two texts differ in nothing but marks and case.
fn same_words(one: &str, other: &str) -> bool {
    let words = |text: &'_ str| -> String {
        let letters = text.chars().filter(|c| c.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect()
    };
    words(one) == words(other)
}

/// The bytes of the whole words within the first `characters`.
fn whole_words(text: &str, characters: usize) -> usize {
    let cut = text
        .char_indices()
        .nth(characters)
        .map_or(text.len(), |(at, _)| at);
    if cut == text.len() || text[cut..].starts_with(char::is_whitespace) {
        return cut;
    }
    text[..cut].rfind(char::is_whitespace).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Language;

    fn reply(text: &str, lengths: &[(u64, bool)]) -> Reply {
        let mut reply = Reply::new(ReplyId(1), Kind::Answer, "turn_1".into(), Marks::default());
        reply.text.push(text);
        reply.text.finish();
        let mut first = 100;
        for &(length, done) in lengths {
            if let Some(segment) = reply.text.take() {
                reply.segments.push(Spoken {
                    segment,
                    first,
                    length,
                    done,
                });
            }
            first += length;
        }
        reply
    }

    #[test]
    fn what_was_heard_is_a_prefix_of_whole_words() {
        let reply = reply(
            "One two three. Four five six.",
            &[(14_000, true), (14_000, true)],
        );
        assert_eq!(reply.heard_text(100), "");
        assert_eq!(reply.heard_text(100 + 3_000), "One");
        assert_eq!(reply.heard_text(100 + 6_999), "One");
        assert_eq!(reply.heard_text(100 + 7_000), "One two");
        assert_eq!(reply.heard_text(100 + 14_000), "One two three.");
        assert_eq!(
            reply.heard_text(100 + 14_000 + 9_000),
            "One two three. Four five"
        );
        assert_eq!(reply.heard_text(u64::MAX), "One two three. Four five six.");
    }

    #[test]
    fn steps_are_apart_and_what_is_taken_back_is_not_said() {
        let mut reply = Reply::new(ReplyId(1), Kind::Answer, "turn_1".into(), Marks::default());
        reply.plain = Some(Plain::new(Language::English));
        reply.cleaner = Some(Cleaner::default());
        reply.say("The user asks me. ");
        reply.say(&format!("I should{TAKEN_BACK}**One** moment."));
        assert!(!reply.text.text().contains("user"));
        reply.end_step();
        reply.say("It is fucking *open*: example.com");
        reply.text_over();
        assert!(reply.has_words());
        assert_eq!(
            reply.text.text(),
            "One moment.\nIt is open: example dot com"
        );
        let mut reply = Reply::new(ReplyId(1), Kind::Answer, "turn_1".into(), Marks::default());
        reply.plain = Some(Plain::new(Language::English));
        reply.say("👍 …");
        reply.end_step();
        assert!(!reply.has_words());
        reply.start_over();
        reply.say("Yes.");
        reply.text_over();
        assert_eq!(reply.text.text(), "Yes.");
    }

    #[test]
    fn a_segment_still_being_spoken_is_not_longer_than_it_sounds() {
        let reply = reply("Twenty characters in.", &[(2_200, false)]);
        assert_eq!(reply.heard_text(100 + 2_200), "");
    }
}
