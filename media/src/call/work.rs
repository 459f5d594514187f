//! What a reply has done before anything of it was heard. When the caller speaks on it stays with their turn: the next
//! reply begins with it, so that nothing is done twice, and the transcript has it.

use super::Call;
use super::record::ToolRecord;
use super::reply::{Kind, Reply, Unheard};
use crate::dialog::Dialog;
use crate::speech::Message;

/// Tools that ran for a turn of the caller, and what they answered.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The caller's words before the first step.
    opening: String,
    /// All words that were answered so far; those after the opening stand among the steps.
    asked: String,
    steps: Vec<Message>,
    records: Vec<ToolRecord>,
}

impl Work {
    /// The reply goes on from here, and is told what the caller said since.
    pub(super) fn go_on(mut self, reply: &mut Reply) {
        reply.tool_records = self.records;
        if self.steps.is_empty() {
            return;
        }
        match reply.asked.strip_prefix(self.asked.as_str()) {
            Some(since) => {
                self.steps.extend(said(since));
                reply.opening = self.opening;
            }
            // The recogniser changed its mind: all words come first.
            None => self
                .steps
                .retain(|step| !matches!(step, Message::User { .. })),
        }
        reply.answered = self.steps.len();
        reply.steps = self.steps;
    }

    /// No reply goes on from here: the dialogue keeps the caller's words and the steps, the transcript gets what is
    /// returned.
    pub(super) fn settle(mut self, text: &str, dialog: &mut Dialog) -> Vec<ToolRecord> {
        let since = text.strip_prefix(self.asked.as_str());
        match since.filter(|_| !self.steps.is_empty()) {
            Some(since) => {
                dialog.caller_said(&self.opening);
                self.steps.extend(said(since));
            }
            None => dialog.caller_said(text),
        }
        dialog.steps(self.steps);
        self.records
    }
}

fn said(words: &str) -> Option<Message> {
    let content = words.trim().to_owned();
    (!content.is_empty()).then_some(Message::User { content })
}

impl Call {
    /// Nothing was heard of this reply, and nothing will be.
    pub(super) fn put_back(&mut self, mut reply: Reply) {
        self.cancel_tools(&mut reply);
        if reply.kind == Kind::Resume {
            let text = reply.text.text().to_owned();
            self.unheard = Some(Unheard { text });
        }
        if let Some(turn) = &mut self.caller_turn
            && !(reply.steps.is_empty() && reply.tool_records.is_empty())
        {
            turn.work = Work {
                opening: reply.opening,
                asked: reply.asked,
                steps: reply.steps,
                records: reply.tool_records,
            };
        }
    }
}
