//! The end of a call on its thread: the call is over, or cut off because something in it panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Live;
use crate::call::output::CallEvent;
use crate::call::record::{EndReason, EndedBy, Offsets, Summary};
use crate::shell::counters::count;
use crate::shell::engine::{CallNews, tell};
use crate::shell::tools::Tools;
use crate::time::Time;

impl Live {
    /// The call is over; its socket closes in its own time.
    pub(super) fn finish(&mut self, now: Time, tools: &mut Tools) {
        self.gate.0.close();
        self.deadline = Time::NEVER;
        self.line.close(now, 1000, "");
        let machine = self.machine.take();
        // A provider that panics as it goes has nothing left to break.
        if catch_unwind(AssertUnwindSafe(|| drop(machine))).is_err() {
            count(&tools.tallies.panics, 1);
        }
        if self.opened {
            self.end_owed = !self.recorder.end(&mut tools.ring);
        } else if self.recording {
            tell(
                &self.on_event,
                CallNews::Recorded(Err("not recorded: the disk is behind".to_owned())),
            );
        }
    }

    /// Runs what belongs to this call alone; a panic in it ends this call alone.
    pub(super) fn guarded(
        &mut self,
        now: Time,
        tools: &mut Tools,
        run: impl FnOnce(&mut Self, &mut Tools),
    ) {
        if catch_unwind(AssertUnwindSafe(|| run(self, tools))).is_err() {
            count(&tools.tallies.panics, 1);
            self.fault(now, tools, "the engine failed in this call");
        }
    }

    pub(super) fn fault(&mut self, now: Time, tools: &mut Tools, error: &str) {
        tracing::error!(parent: &self.span, error, "a call is cut off");
        self.tell_fault(now, tools);
        self.line.close(now, 1011, "internal error");
        if !self.ended {
            self.ended = true;
            let summary = Summary {
                reason: EndReason::EngineError,
                ended_by: EndedBy::System,
                duration_ms: now.since(self.started).as_millis() as u64,
                turn_count: self.turns,
                recording_gap_ms: self.recorder.gap_ms(),
                offsets: Offsets::default(),
                // What is broken is not asked.
                interruptions: 0,
                underruns: 0,
                characters: 0,
                heard_ms: 0,
                media: None,
                errors: vec![error.to_owned()],
            };
            tell(
                &self.on_event,
                CallNews::Event(CallEvent::Ended(Box::new(summary))),
            );
        }
        if self.machine.is_some() || !self.gate.0.is_closed() {
            self.finish(now, tools);
        }
    }

    /// The caller's last messages. The call is broken, and may break again over them.
    fn tell_fault(&mut self, now: Time, tools: &mut Tools) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let line = &mut self.line;
        let told = catch_unwind(AssertUnwindSafe(|| {
            machine
                .call
                .tell_fault(&mut |text| line.say(now, text, tools));
        }));
        if told.is_err() {
            tracing::error!(parent: &self.span, "the caller was not told");
        }
    }
}
