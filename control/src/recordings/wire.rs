//! Bodies of the recording routes.

use schemars::JsonSchema;
use serde::Serialize;

use super::store::{RecordingRow, Status};
use crate::http::validate::Kind;
use crate::http::wire::{answer, body};
use crate::ids::{AgentId, CallId, RecordingId};
use crate::time::Timestamp;

answer! {
    /// A recording; never its bytes.
    pub struct RecordingRecord = "Recording" of RecordingRow uses(agent_id, samples, region) hides(account, key) {
        id: RecordingId,
        call_id: CallId,
        conversation_id: CallId = call_id,
        /// The agent that speaks. Null where no agent answered.
        agent_id: Option<AgentId> = agent_id.known(),
        /// Where it stands: only a `ready` recording can be heard.
        status: Status,
        /// The file format, always `wav`.
        format: &'static str = "wav",
        /// How many channels it has, always 2.
        channels: u8 = 2,
        /// Who is heard on which channel, in order.
        channel_map: [&'static str; 2] = ["caller", "agent"],
        /// Samples a second of each channel.
        sample_rate: i64,
        duration_seconds: f64 = seconds(samples, sample_rate),
        size_bytes: i64,
        /// The SHA-256 of the WAV, in hex. Null until it is stored.
        sha256: Option<String>,
        /// Where the recording is stored.
        recording_region: String = region,
        created_at: Timestamp,
        updated_at: Timestamp,
        /// When it was stored.
        ready_at: Option<Timestamp>,
    }
}

/// Milliseconds are finer than anybody needs and print shortly.
fn seconds(samples: i64, rate: i64) -> f64 {
    (samples * 1000 / rate.max(1)) as f64 / 1000.0
}

/// A signed URL of a recording's WAV.
#[derive(Serialize, JsonSchema)]
pub struct DownloadLink {
    /// The URL of the WAV. It is good without a key until `expires_at`.
    pub audio_url: String,
    pub expires_at: Timestamp,
    /// How many seconds it lasts.
    pub expires_in: u64,
    pub content_type: &'static str,
    pub size_bytes: i64,
}

body! {
    /// The query of a signed download URL.
    pub query DownloadQuery;
    // Whatever is no token is no credential.
    optional token: String = Kind::Any, "What signs the URL.";
}
