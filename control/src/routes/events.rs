//! The events that are sent out, for the API's document.

use schemars::SchemaGenerator;

use crate::http::openapi::Event;
use crate::jobs::schedule::Class;
use crate::usage::wire::ThresholdCrossed;
use crate::webhooks::bodies::{CallEnded, PromptVariablesUnfilled, RecordingReady};
use crate::webhooks::event::EventType;

/// Every one of them.
pub const EVENTS: &[Event] = &[
    Event {
        name: EventType::CallEnded.name(),
        delivery: delivery(EventType::CallEnded.class()),
        summary: "A call has ended",
        target: "the agent's `webhook_url`",
        body: SchemaGenerator::subschema_for::<CallEnded<'static>>,
    },
    Event {
        name: EventType::RecordingReady.name(),
        delivery: delivery(EventType::RecordingReady.class()),
        summary: "A recording can be heard",
        target: "the agent's `webhook_url`",
        body: SchemaGenerator::subschema_for::<RecordingReady<'static>>,
    },
    Event {
        name: EventType::PromptVariablesUnfilled.name(),
        delivery: delivery(EventType::PromptVariablesUnfilled.class()),
        summary: "A conversation began although its prompt has placeholders that nothing fills; once an agent and UTC day",
        target: "the agent's `webhook_url`",
        body: SchemaGenerator::subschema_for::<PromptVariablesUnfilled<'static>>,
    },
    Event {
        name: EventType::UsageThresholdCrossed.name(),
        delivery: delivery(EventType::UsageThresholdCrossed.class()),
        summary: "What was used has reached a trigger's threshold; once in each of its periods",
        target: "the trigger's `event_callback_url`",
        body: SchemaGenerator::subschema_for::<ThresholdCrossed>,
    },
];

/// How hard an event of this class is delivered.
const fn delivery(class: Class) -> &'static str {
    match class {
        Class::Durable => {
            "It makes three attempts in a row, then up to 20 rounds over three days; `webhook_delivery_status` of the call tells where the delivery stands"
        }
        Class::Short => "It makes three attempts in a row, and no more",
        Class::BestEffort => "It tries for a few minutes and then drops the event",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stands_once() {
        for (place, event) in EVENTS.iter().enumerate() {
            let later = &EVENTS[place + 1..];
            assert!(later.iter().all(|other| other.name != event.name));
        }
    }
}
