//! Tools that the model calls: dispatched, awaited, put into the dialogue.

use std::time::Duration;

use super::Call;
use super::input::ToolOutcome;
use super::output::{CallEvent, LlmCommand, ToolStage};
use super::record::{EndReason, Owner, ToolRecord, ToolStatus};
use super::reply::{Reply, RunningTool};
use crate::config::ToolKind;
use crate::dialog::END_CALL;
use crate::leg::ws::ServerEvent;
use crate::speech::{Message, ToolCall};
use crate::time::{Samples, Time};
use crate::turn::Cue;

/// Tools that one reply may call: a model that loops is stopped.
const MAX_TOOLS: usize = 16;

/// Results longer than this are cut in the transcript, bytes.
const KEPT_RESULT: usize = 4096;

impl Call {
    pub(super) fn run_tool(&mut self, call: ToolCall) {
        let now = self.now;
        let spec = self
            .config
            .agent
            .tools
            .iter()
            .find(|tool| tool.name == call.name)
            .cloned();
        let ends = call.name == END_CALL && self.config.agent.end_call_enabled;
        let Some(reply) = &mut self.reply else { return };
        if ends {
            reply.end_after = Some(EndReason::AgentEndCall);
            return;
        }
        let Some(spec) = spec.filter(|_| reply.tool_records.len() + reply.tools.len() < MAX_TOOLS)
        else {
            let error = format!("there is no tool named {}", call.name);
            reply.steps.push(Message::Assistant {
                content: String::new(),
                tool_calls: vec![call.clone()],
            });
            reply.steps.push(Message::Tool {
                tool_call_id: call.id,
                content: error,
                is_error: true,
            });
            reply.unknown_tools += 1;
            return;
        };
        let kind = match spec.kind {
            ToolKind::Client => "client",
            ToolKind::Webhook => "webhook",
            ToolKind::System => "system",
            ToolKind::Automation => "automation",
        };
        let deadline = now + Duration::from_millis(spec.timeout_ms.into());
        let external = spec.kind != ToolKind::Client;
        reply.tools.push(RunningTool {
            call: call.clone(),
            deadline,
            began: now,
            kind,
            external,
            filler_spoken: false,
        });
        let (id, turn_id) = (reply.id, reply.turn_id.clone());
        self.out.event(CallEvent::Tool {
            id: call.id.clone(),
            stage: ToolStage::Running,
        });
        if !external || self.config.events.tool_call {
            self.send(&ServerEvent::ToolCall {
                tool_call_id: &call.id,
                name: &call.name,
                arguments: &call.arguments,
                turn_id: &turn_id,
            });
        }
        if external {
            self.out.tool(id, call);
        }
        self.cue(Cue::ToolBegan);
        if self.ended {
            return;
        }
        if let Some(line) = spec.filler_message {
            let filled = self.fill(line);
            if let Some(tool) = self.reply.as_mut().and_then(|reply| reply.tools.last_mut()) {
                tool.filler_spoken = filled;
            }
        }
    }

    pub(super) fn tool_answered(&mut self, outcome: ToolOutcome) {
        let status = if outcome.is_error {
            ToolStatus::Error
        } else {
            ToolStatus::Ok
        };
        self.tool_over(&outcome.id, status, outcome.result);
    }

    pub(super) fn tool_deadline(&self) -> Option<Time> {
        self.reply
            .as_ref()?
            .tools
            .iter()
            .map(|tool| tool.deadline)
            .min()
    }

    pub(super) fn tool_timeouts(&mut self, now: Time) {
        while let Some(reply) = &self.reply
            && let Some(tool) = reply.tools.iter().find(|tool| tool.deadline <= now)
        {
            let (id, external) = (tool.call.id.clone(), tool.external);
            if external {
                self.out.cancel_tool(id.clone());
            }
            self.tool_over(
                &id,
                ToolStatus::Timeout,
                "\"the tool did not answer in time\"".to_owned(),
            );
        }
    }

    fn tool_over(&mut self, id: &str, status: ToolStatus, result: String) {
        let now = self.now;
        let origin = self.origin.unwrap_or(now);
        let Some(reply) = &mut self.reply else { return };
        let Some(at) = reply.tools.iter().position(|tool| tool.call.id == id) else {
            return;
        };
        let tool = reply.tools.remove(at);
        let is_error = status != ToolStatus::Ok;
        reply.steps.push(Message::Assistant {
            content: String::new(),
            tool_calls: vec![tool.call.clone()],
        });
        reply.steps.push(Message::Tool {
            tool_call_id: tool.call.id.clone(),
            content: result.clone(),
            is_error,
        });
        reply.marks.tools += now - tool.began;
        reply.marks.step("tool", Owner::Tool, now);
        reply
            .tool_records
            .push(record(tool, status, Some(result), origin, now));
        let stage = if status == ToolStatus::Timeout {
            ToolStage::Expired
        } else {
            ToolStage::Answered
        };
        self.out.event(CallEvent::Tool {
            id: id.to_owned(),
            stage,
        });
        self.step_over();
    }

    /// The model's step is done: with its tools answered it goes on, without any the text is whole.
    pub(super) fn step_over(&mut self) {
        let Some(reply) = &mut self.reply else { return };
        if !reply.step_done
            || !reply.tools.is_empty()
            || reply.text_complete
            || !reply.held.is_empty()
        {
            return;
        }
        let asked_more = matches!(reply.steps.last(), Some(Message::Tool { .. }))
            && reply.steps.len() > reply.answered;
        if asked_more && reply.end_after.is_none() && reply.unknown_tools < 3 {
            reply.answered = reply.steps.len();
            reply.step_done = false;
            let request = self
                .dialog
                .request(&self.config.agent, &reply.opening, &reply.steps);
            self.out.llm(LlmCommand::Start(reply.id, Box::new(request)));
            self.cue(Cue::ToolsDone);
            return;
        }
        if reply.end_after.is_none() && !reply.has_words() {
            return self.model_failed("the answer has neither words nor calls");
        }
        reply.text_over();
        if reply.end_after.is_some() && reply.text.text().is_empty() && reply.committed {
            // The model hangs up without a word.
            self.cancel_reply();
            self.settle_caller_turn();
            self.cue(Cue::Goodbye(EndReason::AgentEndCall));
        }
    }

    /// Nobody waits for this reply's tools any more.
    pub(super) fn cancel_tools(&mut self, reply: &mut Reply) {
        let now = self.now;
        let origin = self.origin.unwrap_or(now);
        for tool in reply.tools.drain(..) {
            if tool.external {
                self.out.cancel_tool(tool.call.id.clone());
            }
            self.out.event(CallEvent::Tool {
                id: tool.call.id.clone(),
                stage: ToolStage::Expired,
            });
            let canceled = record(tool, ToolStatus::Canceled, None, origin, now);
            reply.tool_records.push(canceled);
        }
    }
}

fn record(
    tool: RunningTool,
    status: ToolStatus,
    result: Option<String>,
    origin: Time,
    now: Time,
) -> ToolRecord {
    let mut result = result;
    let mut result_truncated = false;
    if let Some(text) = &mut result
        && text.len() > KEPT_RESULT
    {
        let cut = (0..=KEPT_RESULT)
            .rev()
            .find(|&at| text.is_char_boundary(at))
            .unwrap_or(0);
        text.truncate(cut);
        result_truncated = true;
    }
    let error = (status != ToolStatus::Ok).then(|| result.clone()).flatten();
    ToolRecord {
        id: tool.call.id,
        name: tool.call.name,
        arguments: tool.call.arguments,
        result,
        result_truncated,
        status,
        error,
        started_ms: Samples::in_duration(tool.began - origin).ms(),
        duration_ms: (now - tool.began).as_millis() as u64,
        filler_spoken: tool.filler_spoken,
        r#type: tool.kind.to_owned(),
    }
}
