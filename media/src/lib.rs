//! The real-time engine of sidetone: packets to turns of a conversation and back, sans-IO outside
//! `shell/`.
//!
//! This crate knows frames, turns and legs. It names neither `sip` nor `control`, and knows no account,
//! no database, no HTTP and no URL: a call arrives with its settings, its providers of speech and its
//! connection (an open WebSocket, or a telephone's ports), or is connected by what it is told (WebRTC).
//!
//! | Module | What it holds |
//! |---|---|
//! | [`config`] | What a call is told at its start |
//! | [`shell`] | Sockets, clock, threads and files; [`Engine`](shell::Engine) is the face of this crate |
//! | [`call`] | One call as one machine: inputs and time in, outputs and a deadline out |
//! | [`turn`] | Whose turn it is |
//! | [`dialog`] | What the model is told: the prompt, and the dialogue as it was heard |
//! | [`speech`] | The interfaces of recogniser, language model and synthesiser |
//! | [`leg`] | Wire bytes to the caller's audio and back: WebSocket, WebRTC, RTP |
//! | [`rtp`] | RTP, RTCP, SRTP, keypad digits, SDP |
//! | [`peer`] | What the WebRTC side of a call is asked, and what it tells |
//! | [`relay`] | Two telephone legs joined, without an agent |
//! | [`audio`] | Codecs, resampling, jitter buffer, playout |
//! | [`vad`] | Speech or not, for each frame |
//! | [`frame`] | The unit of audio: 20 ms at 16 kHz |
//! | [`record`] | The recording: both sides on one sample clock, as a WAV file |
//! | [`tape`] | Every input of a call with its time, and the replay |
//! | [`time`] | Monotonic time, and samples |
//! | [`error`] | Why a call was not taken, what is wrong with a tape |
//! | `bucket` | A limit on how often a caller may do what costs something |
//!
//! # Contract
//!
//! - **In.** [`Engine::place`](shell::Engine::place) takes a [`NewCall`](shell::NewCall): settings, the
//!   connection, what makes the providers, and a listener. Afterwards come the caller's packets, the
//!   providers' answers through a [`SpeechSink`](speech::SpeechSink), and the requests of a
//!   [`CallHandle`](shell::CallHandle) (end, press a key, a tool's answer, an offer of WebRTC).
//! - **Out.** The caller gets packets, the providers get audio and text, and the listener gets
//!   [`CallNews`](shell::CallNews) in order. A call ends with one summary. The recording, or a redacted
//!   tape where nothing is recorded, lies in a local folder afterwards.
//! - **Cores.** Everything outside `shell` is pure. A [`Call`](call::Call) has one `handle(now, input)`,
//!   then `poll(now)` until it says to wait. An early timeout changes nothing; a late one does all that is
//!   due, in order. The same inputs at the same times give the same outputs, byte for byte.
//! - **Time.** *Now* ([`Time`](time::Time)) is monotonic and rules deadlines. *Media time*
//!   ([`Samples`](time::Samples)) counts samples of the recording and rules what is heard. Wall time is
//!   unknown.
//! - **Threads.** A call lives on one media thread from its first packet to its last. On the way of an
//!   audio frame that thread takes no lock, awaits nothing and, once warm, allocates nothing on the heap
//!   (the WebRTC library has allocations of its own). Every queue has a bound.
//! - **Failures.** A call that cannot be taken is [`Refused`](shell::Refused). A provider's fault is one of
//!   its turn, and the call goes on. A panic within a call ends that call alone. A media thread that ends
//!   takes its calls along, and [`Engine::fallen`](shell::Engine::fallen) names it. A disk that is full or
//!   slow costs recordings, not calls.

pub mod audio;
mod bucket;
pub mod call;
pub mod config;
pub mod dialog;
pub mod error;
pub mod frame;
pub mod leg;
#[cfg(test)]
#[path = "../../tests/kit/offer_answer.rs"]
pub mod offer_answer;
pub mod peer;
pub mod record;
pub mod relay;
pub mod rtp;
pub mod shell;
pub mod speech;
pub mod tape;
pub mod time;
pub mod turn;
pub mod vad;
