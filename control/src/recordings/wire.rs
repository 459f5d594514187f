//! Bodies of the recording routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::store::RecordingRow;
use crate::http::extract::Wire;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::ids::{AgentId, CallId, RecordingId};
use crate::time::Timestamp;

/// A recording; never its bytes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Recording")]
pub struct RecordingRecord {
    pub id: RecordingId,
    pub call_id: CallId,
    pub conversation_id: CallId,
    /// The agent that speaks. Null where no agent answered.
    pub agent_id: Option<AgentId>,
    /// Where it stands: only a `ready` recording can be heard.
    #[schemars(extend("enum" = ["uploading", "ready", "failed"]))]
    pub status: String,
    /// The file format, always `wav`.
    pub format: &'static str,
    /// How many channels it has, always 2.
    pub channels: u8,
    /// Who is heard on which channel, in order.
    pub channel_map: [&'static str; 2],
    /// Samples a second of each channel.
    pub sample_rate: i64,
    pub duration_seconds: f64,
    pub size_bytes: i64,
    /// The SHA-256 of the WAV, in hex. Null until it is stored.
    pub sha256: Option<String>,
    /// Where the recording is stored.
    pub recording_region: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When it was stored.
    pub ready_at: Option<Timestamp>,
}

impl From<RecordingRow> for RecordingRecord {
    fn from(recording: RecordingRow) -> Self {
        let RecordingRow {
            id,
            account: _,
            call_id,
            agent_id,
            status,
            sample_rate,
            samples,
            size_bytes,
            sha256,
            region,
            key: _,
            created_at,
            updated_at,
            ready_at,
        } = recording;
        // Milliseconds are finer than anybody needs and print shortly.
        let duration_ms = samples * 1000 / sample_rate.max(1);
        Self {
            id,
            call_id,
            conversation_id: call_id,
            agent_id: agent_id.known(),
            status,
            format: "wav",
            channels: 2,
            channel_map: ["caller", "agent"],
            sample_rate,
            duration_seconds: duration_ms as f64 / 1000.0,
            size_bytes,
            sha256,
            recording_region: region,
            created_at,
            updated_at,
            ready_at,
        }
    }
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

/// The query of a signed download URL.
#[derive(Deserialize)]
pub struct DownloadQuery {
    pub token: Option<String>,
}

impl Wire for DownloadQuery {
    const SCHEMA: &'static Schema = &Schema {
        name: "DownloadQuery",
        unknown: Unknown::Ignore,
        fields: &[Field::opt(
            "token",
            // Whatever is no token is no credential.
            Kind::Any,
            "What signs the URL.",
        )],
    };
}
