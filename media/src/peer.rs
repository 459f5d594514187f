//! What the control plane says to the WebRTC side of a call, and what it hears of it.
//!
//! A call over WebRTC is placed with [`Carrier::Peer`](crate::shell::Carrier::Peer): it has no
//! connection yet. Then it is spoken to with [`CallHandle::peer`](crate::shell::CallHandle::peer), one
//! [`PeerRequest`] at a time; each has one answer, given on the media thread. The conversation begins
//! (and the greeting is spoken) when the peer is connected; who has not connected 30 s after the call was
//! placed, is away for 30 s, or is connected for 30 s without having sent anything is gone: the call ends with
//! `media_timeout`.

use serde::{Deserialize, Serialize};

pub use crate::shell::{WebRtcConfig, check_offer};

/// Where a caller's candidates may point. Nothing is sent to one that points elsewhere; a caller who is there is
/// found all the same, once a packet of theirs has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// To any address that a caller may have, private ones too.
    #[default]
    Private,
    /// To public addresses. A stranger could otherwise have us send checks to any machine of our own network.
    Public,
}

/// One thing asked of the WebRTC side of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerRequest {
    /// The client's offer (RFC 3264): the first, a renegotiation (hold and resume by its directions), or
    /// an ICE restart (told by its new `ice-ufrag`). Answered with [`PeerReply::Description`], an answer.
    Offer {
        sdp: String,
        /// Drop the connection there is and make a new one (`restart_pc`). The media clocks of the two
        /// are unrelated, so no turn of the call has a `start_ms` any more.
        fresh: bool,
    },
    /// Make an offer for the client to answer: audio both ways and the data channel `events`. Answered
    /// with [`PeerReply::Description`], an offer. Only for a call that has no connection yet.
    MakeOffer,
    /// The client's answer to the offer of [`MakeOffer`](Self::MakeOffer). Answered with
    /// [`PeerReply::Done`].
    Answer { sdp: String },
    /// Candidates that came after the description (RFC 8840), in their order. Answered with
    /// [`PeerReply::Accepted`]. All or none are taken.
    Candidates(Vec<Candidate>),
}

/// One ICE candidate of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// As `a=candidate` has it, with or without the prefix `candidate:`. Empty: there are no more.
    pub candidate: String,
    pub sdp_mid: Option<String>,
    pub sdp_mline_index: Option<u16>,
}

/// The answer to a [`PeerRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerReply {
    /// The SDP of our answer or offer, all our candidates in it.
    Description(String),
    Done,
    /// So many candidates were taken; those that name no address (`.local`) and those of other
    /// transports count too, though nothing is sent to them.
    Accepted(usize),
}

/// Why a request was not done. The connection is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// The description cannot be used; says why. A changed fingerprint without `fresh` is one.
    InvalidSdp(String),
    /// This candidate (counted from 0) cannot be read; says why.
    InvalidCandidate(usize, String),
    /// There is no connection that the request could mean: no offer came yet, or the call is over.
    NoPeer,
    /// Our own fault.
    Failed(String),
}

/// Takes the answer to a [`PeerRequest`]. Called at most once, on a media thread: it must not block.
/// Dropped without a call when the call ends first.
pub type PeerAnswer = Box<dyn FnOnce(Result<PeerReply, PeerError>) + Send>;

/// Where the connection of a call stands, in the words of `RTCPeerConnection.connectionState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    New,
    Connecting,
    Connected,
    /// Nothing comes from the client; it may come back.
    Disconnected,
    /// No connection could be made, or the client is not whom its fingerprint says.
    Failed,
    Closed,
}

impl PeerState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Failed => "failed",
            Self::Closed => "closed",
        }
    }
}

/// How the network was in the last two seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Round trip, ms: from the client's receiver reports (RFC 3550 section 6.4.1). `None` before the first.
    pub rtt_ms: Option<f64>,
    /// Packets from the client that never came, per cent of those it sent.
    pub loss_pct: f64,
    /// Of the client's packets, ms (RFC 3550 section 6.4.1).
    pub jitter_ms: f64,
    /// Packets from us that the client says it did not get, per cent. `None` before its first report.
    pub remote_loss_pct: Option<f64>,
    /// What a listener would give the call, 1 to 4.5: the E-model (ITU-T G.107) of loss, jitter and round
    /// trip. An estimate; `None` before the first packet.
    pub mos: Option<f64>,
}

impl Quality {
    /// The E-model (ITU-T G.107) cut down to what is measured here: `loss` in per cent, interarrival
    /// `jitter` and the `round_trip` in ms. From 1 (nobody understands anything) to 4.4 (as good as
    /// speech over this codec is).
    pub fn estimate(loss: f64, jitter: f64, round_trip: f64) -> f64 {
        // One way, with a buffer of twice the jitter and 20 ms to make a packet.
        let delay = round_trip / 2.0 + 2.0 * jitter + 20.0;
        let late = if delay > 177.3 {
            0.11 * (delay - 177.3)
        } else {
            0.0
        };
        // Impairment by loss: Opus with copies bears it about as well as the best of G.113 appendix I.
        let lost = 95.0 * loss / (loss + 20.0);
        let r = (93.2 - 0.024 * delay - late - lost).clamp(0.0, 100.0);
        (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).clamp(1.0, 4.5)
    }
}

/// What the caller's packets came to, all since the call's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MediaTotals {
    /// Packets taken.
    pub packets: u64,
    /// Packets that never came, or came too late.
    pub lost: u64,
    /// Packets that came after their place had been filled.
    pub late: u64,
    pub duplicates: u64,
    /// Lost audio that the next packet held a copy of (in-band FEC), ms.
    pub recovered_ms: u64,
    /// Lost audio that was made up, ms.
    pub concealed_ms: u64,
    /// Lost audio that is silence in the recording: gaps too long to be made up, ms.
    pub gap_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_falls_with_what_is_heard() {
        let good = Quality::estimate(0.0, 2.0, 30.0);
        assert!((4.3..4.5).contains(&good), "{good}");
        assert!(Quality::estimate(2.0, 2.0, 30.0) < good);
        assert!(Quality::estimate(0.0, 2.0, 800.0) < 3.6);
        let bad = Quality::estimate(40.0, 100.0, 800.0);
        assert!((1.0..1.6).contains(&bad), "{bad}");
    }
}
