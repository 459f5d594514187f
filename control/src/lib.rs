//! The control plane.

pub mod accounts;
pub mod admission;
pub mod agents;
pub mod api_keys;
pub mod app;
pub mod calls;
pub mod cli;
pub mod config;
pub mod conversations;
pub mod db;
pub mod egress;
pub mod http;
pub mod ids;
pub mod metrics;
pub mod models;
pub mod recordings;
pub mod routes;
pub mod secret;
pub mod sessions;
pub mod storage;
pub mod time;
pub mod vendors;
pub mod voices;
pub mod web;
pub mod webhooks;
