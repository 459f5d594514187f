//! The end of a call, once.

use super::Call;
use super::input::EndRequest;
use super::output::CallEvent;
use super::record::{EndReason, EndedBy, Offsets, Summary};
use crate::leg::ws::ServerEvent;
use crate::time::Samples;
use crate::turn::Cue;

/// What a caller is told of a call that failed.
const FAILED: &str = "The call failed";

impl Call {
    pub(super) fn end_requested(&mut self, request: EndRequest) {
        self.end_request = Some(request);
        let reason = match request {
            EndRequest::Api | EndRequest::Drain | EndRequest::Blocked => EndReason::EndedByApi,
            EndRequest::Fault => EndReason::EngineError,
            EndRequest::Lost => EndReason::NodeLost,
        };
        self.cue(Cue::End(reason));
    }

    /// The call is over: say so to everybody, close, and be done.
    pub(super) fn finish(&mut self, reason: EndReason) {
        if self.ended {
            return;
        }
        if let Some(heard) = self.ear.pad()
            && self.config.recording
        {
            self.out
                .record(super::output::Side::Caller, heard.at, self.ear.newest());
        }
        self.end_speech();
        self.cancel_utterances();
        let length = Samples(self.position(self.now));
        let status = if reason.is_failure() {
            "failed"
        } else {
            "completed"
        };
        let (code, why) = match (self.end_request, reason) {
            (Some(EndRequest::Blocked), _) => {
                self.refuse("billing_blocked", "The account may not go on", None);
                (1013, "billing_blocked")
            }
            (_, reason) if reason.is_failure() => {
                self.refuse(reason.name(), FAILED, None);
                (1011, reason.name())
            }
            (_, reason) => (1000, reason.name()),
        };
        let duration_seconds = length.duration().as_secs_f64();
        self.send(&ServerEvent::CallEnded {
            reason: reason.name(),
            status,
            duration_seconds,
        });
        self.out.close(code, why);
        let (characters, heard) = self.out.used();
        let summary = Summary {
            reason,
            ended_by: self.ended_by(reason),
            duration_ms: length.ms(),
            turn_count: self.turn_index,
            recording_gap_ms: 0,
            offsets: if self.timeline.is_reconnected() {
                Offsets::Unknown
            } else if self.timeline.is_whole() {
                Offsets::Known
            } else {
                Offsets::AgentOnly
            },
            interruptions: self.interruptions,
            underruns: self.underruns,
            characters,
            heard_ms: heard.ms(),
            media: self.media_totals(),
            errors: std::mem::take(&mut self.errors),
        };
        self.out.event(CallEvent::Ended(Box::new(summary)));
        self.out.done();
        self.ended = true;
    }

    /// Writes what tells the caller of a fault that the call cannot end by itself, and `say`s each
    /// message. A call that has told its end has nothing to add.
    pub(crate) fn tell_fault(&mut self, say: &mut dyn FnMut(&str)) {
        if self.ended {
            return;
        }
        let reason = EndReason::EngineError.name();
        let error = ServerEvent::Error {
            code: reason,
            message: FAILED,
            retry_after: None,
            request_id: None,
        };
        let over = ServerEvent::CallEnded {
            reason,
            status: "failed",
            duration_seconds: self.clock(self.now).as_secs_f64(),
        };
        let mut text = String::new();
        for event in [error, over] {
            let header = self.header();
            text.clear();
            if self.leg.event(&mut text, &header, &event) {
                say(&text);
            }
        }
    }

    fn ended_by(&self, reason: EndReason) -> EndedBy {
        match reason {
            EndReason::CallerHangup | EndReason::Phrase => EndedBy::Caller,
            EndReason::Voicemail if self.caller_left => EndedBy::Caller,
            EndReason::AgentEndCall => EndedBy::Agent,
            EndReason::EndedByApi if self.end_request == Some(EndRequest::Api) => EndedBy::Api,
            EndReason::MaxDuration
            | EndReason::MaxTurns
            | EndReason::SilenceTimeout
            | EndReason::IdleLimit
            | EndReason::Voicemail
            | EndReason::MediaTimeout
            | EndReason::ProviderError
            | EndReason::EngineError
            | EndReason::EndedByApi
            | EndReason::NodeLost => EndedBy::System,
        }
    }
}
