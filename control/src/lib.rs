//! The control plane of sidetone: the API, the database and the program around `media` and `sip`.
//!
//! This crate alone knows both others. A call over SIP is put together in `calls/bridge`; besides it only
//! the settings and the command `sidetone call` name both. A resource is a folder: `mod.rs` tells what it
//! is, `http.rs` holds its routes and handlers, `wire.rs` the bodies, `store.rs` the SQL, `rules.rs`
//! pure decisions, `service.rs` the work that touches other resources.
//!
//! | The program | What it holds |
//! |---|---|
//! | [`cli`] | The command line, one file a subcommand; `serve` puts everything together |
//! | [`config`] | Settings: defaults, over them a file, over that the environment |
//! | [`app`] | The whole application, put together from its parts |
//! | [`routes`] | Every route: the tables of all resources |
//! | [`supervisor`] | The watch over tasks and threads: what dies is noticed |
//! | [`testing`] | A whole application for tests, without a server |
//!
//! | Rooms that resources share | What they hold |
//! |---|---|
//! | [`http`] | Who calls, what they may, how often, what a body must look like, how an error reads |
//! | [`db`] | SQLite or PostgreSQL, behind one text of SQL |
//! | [`idempotency`] | A request that is sent again makes nothing anew |
//! | [`jobs`] | Work that outlives the request which asked for it |
//! | [`ids`], [`words`], [`numbers`], [`credential`] | Typed ids; closed sets of words; phone numbers and keys as text |
//! | [`time`], [`secret`] | The clock; what must not be seen |
//! | [`node`], [`live`] | What every resource works on; the calls that this process hosts |
//! | [`catalogue`] | Voices, models and providers, as data |
//! | [`storage`] | The object store of recordings and tapes |
//! | [`egress`] | The one client for addresses that users gave |
//! | [`redis_link`] | The connection to Redis |
//! | [`rotation`] | A new master key, while the server runs |
//! | [`metrics`], [`telemetry`] | What is counted; traces of calls |
//! | [`web`] | The console and `sidetone.js`, served out of the binary |
//!
//! | Calls | What they hold |
//! |---|---|
//! | [`calls`] | The record of a call and its life, dialling, the bridge to the engine and the SIP stack |
//! | [`sessions`] | How a caller gets onto a call, over a WebSocket or WebRTC |
//! | [`conversations`], [`recordings`], [`sip_traces`] | What was said, the audio, the SIP messages |
//! | [`transcript`] | A turn as the API shows it |
//! | [`admission`] | Leases: who may have one more call |
//! | [`cluster`] | Which nodes live, and what becomes of what a dead one left |
//! | [`vendors`] | Recognisers, language models and voices |
//! | [`tts`] | A text spoken by request |
//!
//! | Other resources | What they hold |
//! |---|---|
//! | [`accounts`], [`api_keys`] | Tenants, and the keys that open them |
//! | [`agents`], [`models`], [`voices`] | Who answers and calls, and what an agent chooses from |
//! | [`phone_numbers`], [`sip_trunks`], [`suppressions`] | Numbers, carriers, numbers that are not called |
//! | [`webhooks`] | Events, told to an address of the user's |
//! | [`usage`], [`billing`] | What is used, and what it costs |
//! | [`changelog`] | What changed for clients |
//!
//! Which room may name which stands in `docs/architecture.md`; `tests/tidy.rs` keeps it.
//!
//! # Contract
//!
//! - **In.** HTTP requests, WebSockets and WebRTC offers at one address; SIP at others. A request passes
//!   the gate of its route: who calls, how often, with which scope, with what credit. A handler starts
//!   with values that are right in form.
//! - **Out.** JSON, with one shape for every error; events as webhooks, at least once each; calls, placed on
//!   the engine.
//! - **Accounts.** A store function that takes an id takes the account before it. Another account's row is `None`, which a client
//!   sees as 404.
//! - **Writes.** What belongs together is one transaction: a call's end with its event, usage with what
//!   it costs. The row of a live call is fenced by the number of the process that hosts it.
//! - **Time.** [`Clock`](time::Clock) tells three: wall time for people and for the expiry of tokens,
//!   monotonic time for waits within the process, the database's time for deadlines that stand in it.
//! - **Failures.** Every refusal is an [`ApiError`](http::ApiError), with a slug that a program can
//!   read; one that a client should retry says when. While the database is away, live calls go on and what
//!   happens to them is kept. A task or a thread that lives as long as the process and dies before it makes
//!   the process drain and end with an error.
//! - **Never.** No work of the API runs on a media thread. No secret is serialized or printed. No address
//!   that a user gave is connected to but through [`egress`]. Nothing is started without somebody who
//!   notices its end.

pub mod accounts;
pub mod admission;
pub mod agents;
pub mod api_keys;
pub mod app;
pub mod billing;
pub mod calls;
pub mod catalogue;
pub mod changelog;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod conversations;
pub mod credential;
pub mod db;
pub mod egress;
pub mod http;
pub mod idempotency;
pub mod ids;
pub mod jobs;
pub mod live;
pub mod metrics;
pub mod models;
pub mod node;
pub mod numbers;
pub mod phone_numbers;
pub mod recordings;
pub mod redis_link;
pub mod rotation;
pub mod routes;
pub mod secret;
pub mod sessions;
pub mod sip_traces;
pub mod sip_trunks;
pub mod storage;
pub mod supervisor;
pub mod suppressions;
pub mod telemetry;
pub mod testing;
pub mod time;
pub mod transcript;
pub mod tts;
pub mod usage;
pub mod vendors;
pub mod voices;
pub mod web;
pub mod webhooks;
pub mod words;
