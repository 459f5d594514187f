//! Phone numbers: where callers reach an agent, and what it calls from (document 3, phone numbers).
//!
//! A number is active until it is released; then it is hidden, and somebody else may register it. To
//! other resources it is [`PhoneNumber`], [`store::find_active_by_number`] and
//! [`store::of_agent`]; the telephone bridge asks for [`find_meant`].

pub mod http;
pub mod routing;
pub mod rules;
pub mod service;
pub mod store;
pub mod wire;

pub use rules::{FallbackAction, Provider, RoutingRules};
pub use service::{find_meant, register};
pub use store::PhoneNumber;
