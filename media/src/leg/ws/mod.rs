//! A WebSocket leg: text messages to caller audio and events, agent audio and events to text messages.

pub mod native;
pub mod telco;
