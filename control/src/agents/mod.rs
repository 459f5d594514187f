//! Agents (document 2, Agent).

pub mod placeholders;
