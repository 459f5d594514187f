//! What both sides of a connection say of it: offers, answers and candidates (RFC 8829, RFC 8838).

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use rtc::peer_connection::RTCPeerConnection;
use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::peer_connection::transport::RTCIceCandidateInit;
use rtc::rtp_transceiver::{RTCRtpSenderId, RTCRtpTransceiverDirection as Direction};

use super::super::codecs::Codecs;
use super::super::identity::Identity;
use super::super::net::Net;
use super::super::offered::Near;
use super::super::plain::{Plain, Way, offering, plain};
use super::super::{channel, offered, sdp};
use super::Connection;
use crate::leg::webrtc::{DIGITS, OPUS};
use crate::peer::{Candidate, PeerError};
use crate::time::Time;

/// Candidates of one caller until they restart ICE, those of descriptions included: each is checked again and again,
/// wherever it points.
const MOST_CANDIDATES: usize = 100;

/// The stream of a connection that nobody uses.
const SSRC: u32 = 1;

impl Connection {
    /// Takes an offer; the answer.
    pub(in super::super) fn answer(
        &mut self,
        now: Time,
        offer: &str,
        net: &mut Net,
    ) -> Result<String, PeerError> {
        let offer = sdp::without_end(offer);
        let usable = self.usable(offer, Some(Direction::Sendrecv))?;
        let (told, stream) = sdp::with_one_stream(&usable.sdp, !self.ssrc);
        // The caller is back. Perhaps none of its datagrams reaches us before one of ours has opened its way.
        self.hours.go_on(now);
        let at = self.instant(now, net);
        let description = RTCSessionDescription::offer(told).map_err(|e| invalid(&e))?;
        if let Err(error) = self.core.set_remote_description(at, description) {
            // An offer that was half taken is taken back.
            if let Ok(back) = RTCSessionDescription::rollback(None) {
                let _ = self.core.set_remote_description(at, back);
            }
            return Err(invalid(&error));
        }
        self.measured.declared.store(stream, Ordering::Relaxed);
        if self.fingerprints.is_empty() {
            self.passive = usable.way.setup.as_deref() == Some("active");
        }
        self.known_opus.get_or_insert(usable.codecs.opus);
        self.remember(&usable.way);
        direct(&mut self.core, self.sender, sdp::mirrored(usable.flows));
        self.advertise(net)?;
        let answer = self.core.create_answer(None).map_err(|e| invalid(&e))?;
        self.core
            .set_local_description(at, answer)
            .map_err(|e| invalid(&e))?;
        let described = self.described(net)?;
        has_audio(&described)?;
        let mut answer = usable.answering(&described, offer);
        if self.passive {
            answer = sdp::as_passive(&answer);
        }
        self.agree(&usable.codecs, usable.flows);
        Ok(answer)
    }

    /// Makes an offer.
    pub(in super::super) fn offer(
        &mut self,
        now: Time,
        net: &mut Net,
    ) -> Result<String, PeerError> {
        let at = self.instant(now, net);
        self.advertise(net)?;
        self.core
            .create_data_channel(channel::NAME, None)
            .map_err(|e| failed(&e))?;
        let offer = self.core.create_offer(None).map_err(|e| failed(&e))?;
        self.core
            .set_local_description(at, offer)
            .map_err(|e| failed(&e))?;
        self.known_opus = Some(OPUS);
        self.hear_as(&Codecs::ours());
        Ok(offering(&self.described(net)?))
    }

    /// Takes the answer to our offer.
    pub(in super::super) fn answered(
        &mut self,
        now: Time,
        answer: &str,
        net: &mut Net,
    ) -> Result<(), PeerError> {
        let usable = self.usable(answer, None)?;
        let (told, stream) = sdp::with_one_stream(&usable.sdp, !self.ssrc);
        let description = RTCSessionDescription::answer(told).map_err(|e| invalid(&e))?;
        self.hours.go_on(now);
        self.core
            .set_remote_description(self.instant(now, net), description)
            .map_err(|e| invalid(&e))?;
        self.measured.declared.store(stream, Ordering::Relaxed);
        self.remember(&usable.way);
        for line in std::mem::take(&mut self.early) {
            self.candidates += 1;
            // Their request was answered long ago: one that the core cannot use is a way less to the caller.
            let _ = self.add(line);
        }
        self.passive = usable.way.setup.as_deref() == Some("active");
        self.agree(&usable.codecs, usable.flows);
        Ok(())
    }

    pub(in super::super) fn add_candidates(
        &mut self,
        candidates: &[Candidate],
    ) -> Result<(), PeerError> {
        let mut usable = Vec::new();
        for (index, candidate) in candidates.iter().enumerate() {
            let line = candidate.candidate.trim();
            let line = line.strip_prefix("a=").unwrap_or(line);
            if line.is_empty() || !self.is_of_this_round(line) {
                continue;
            }
            match offered::reachable(line, self.near) {
                Some(true) => usable.push((index, line.to_owned())),
                Some(false) => {}
                None => {
                    let why = "not a candidate as RFC 8839 section 5.1 has it".to_owned();
                    return Err(PeerError::InvalidCandidate(index, why));
                }
            }
        }
        let room = MOST_CANDIDATES.saturating_sub(self.candidates);
        if let Some((index, _)) = usable.get(room) {
            let why = format!("more than {MOST_CANDIDATES} until ICE is restarted");
            return Err(PeerError::InvalidCandidate(*index, why));
        }
        self.candidates += usable.len();
        if self.remote_password.is_empty() {
            // Our offer is not answered yet: a caller's candidates may overtake its answer.
            self.early.extend(usable.into_iter().map(|(_, line)| line));
            return Ok(());
        }
        for (index, line) in usable {
            self.add(line)
                .map_err(|error| PeerError::InvalidCandidate(index, error.to_string()))?;
        }
        Ok(())
    }

    /// Whether a candidate is of the way that was taken: one may name its round (RFC 8838 section 11), and a caller may
    /// go on gathering for media whose own ways are given up.
    fn is_of_this_round(&self, line: &str) -> bool {
        let mut words = line.split_ascii_whitespace();
        let named = words.find(|word| *word == "ufrag").and(words.next());
        self.remote_name.is_empty() || named.is_none_or(|name| name == self.remote_name)
    }

    fn add(&mut self, line: String) -> Result<(), rtc::shared::error::Error> {
        self.core.add_remote_candidate(RTCIceCandidateInit {
            candidate: line,
            ..Default::default()
        })
    }

    /// Reads a description before the core does.
    fn usable(&self, sdp: &str, flows: Option<Direction>) -> Result<Plain, PeerError> {
        let usable = usable(sdp, flows, self.known_opus, self.near)?;
        // The key exchange was with the first certificate; another is another peer.
        if !self.fingerprints.is_empty() && self.fingerprints != usable.way.fingerprints {
            return Err(wrong(
                "the fingerprint has changed: ask for a new connection (restart_pc)",
            ));
        }
        Ok(usable)
    }

    /// A way that is no new round of ICE names those candidates again that the core knows.
    fn remember(&mut self, way: &Way) {
        if way.name != self.remote_name {
            self.remote_name.clone_from(&way.name);
            self.candidates = 0;
        }
        self.candidates = self.candidates.max(way.candidates.len());
        self.fingerprints.clone_from(&way.fingerprints);
        self.remote_password.clone_from(&way.password);
    }

    fn advertise(&mut self, net: &Net) -> Result<(), PeerError> {
        for public in &net.public {
            let line = offered::candidate(*public).map_err(|e| failed(&e))?;
            self.core
                .add_local_candidate(line)
                .map_err(|e| failed(&e))?;
        }
        Ok(())
    }

    /// Our description as it is now; the names in it are ours from here on.
    fn described(&mut self, net: &mut Net) -> Result<String, PeerError> {
        let description = self.core.local_description();
        let sdp = description
            .ok_or(PeerError::Failed("no description".to_owned()))?
            .sdp;
        let of = |name| sdp::attribute(&sdp, name).unwrap_or_default().to_owned();
        let (name, password) = (of("ice-ufrag"), of("ice-pwd"));
        if name != self.name {
            net.unname(&self.name);
            net.name(&name, self.key);
            self.name = name;
            // After a restart the core sees for itself where the caller is.
            self.moving = None;
            self.moved = None;
        }
        self.password = password;
        Ok(sdp)
    }

    /// What holds from now on, as the caller says it of their audio.
    fn agree(&mut self, codecs: &Codecs, said: Direction) {
        self.opus = Some(codecs.opus);
        self.limit = codecs.most_bits;
        self.hold = sdp::holds(said);
        self.sends = matches!(said, Direction::Sendrecv | Direction::Sendonly);
        self.hear_as(codecs);
    }

    /// The caller's packets may have these payload types, too. Earlier ones are still on their way, and an answer may
    /// name others than the offer that it answers (RFC 3264 section 6.1).
    fn hear_as(&mut self, codecs: &Codecs) {
        let events = codecs.events.iter().map(|(number, _)| (*number, DIGITS));
        for (number, format) in events.chain([(codecs.opus, OPUS)]) {
            self.formats.retain(|(known, _)| *known != number);
            self.formats.push((number, format));
        }
    }
}

/// Sets the directions: the first audio as given, all other media not at all.
fn direct(core: &mut RTCPeerConnection, sender: RTCRtpSenderId, audio: Direction) {
    let all: Vec<_> = core.get_transceivers().collect();
    for id in all {
        if let Some(mut transceiver) = core.rtp_transceiver(id) {
            let ours = transceiver.sender() == Some(sender);
            transceiver.set_direction(if ours { audio } else { Direction::Inactive });
        }
    }
}

/// Why a first offer would be refused: it is answered by a connection that nobody uses.
pub fn check_offer(offer: &str) -> Result<(), PeerError> {
    // Nobody can ask for its key: no packet ever comes of it.
    static IDENTITY: LazyLock<Result<Identity, String>> = LazyLock::new(Identity::new);
    // As few candidates count as may, so nothing is refused that is taken where callers may be nearer.
    let usable = usable(offer, Some(Direction::Sendrecv), None, Near::Nobody)?;
    let (told, _) = sdp::with_one_stream(&usable.sdp, !SSRC);
    let description = RTCSessionDescription::offer(told).map_err(|e| invalid(&e))?;
    let identity = IDENTITY
        .as_ref()
        .map_err(|why| PeerError::Failed(why.clone()))?;
    let at = Instant::now();
    let (mut core, sender) =
        super::core(identity, at, SSRC, Arc::default()).map_err(|e| failed(&e))?;
    core.set_remote_description(at, description)
        .map_err(|e| invalid(&e))?;
    direct(&mut core, sender, sdp::mirrored(usable.flows));
    let answer = core.create_answer(None).map_err(|e| invalid(&e))?;
    core.set_local_description(at, answer)
        .map_err(|e| invalid(&e))?;
    let answer = core.local_description();
    has_audio(answer.as_ref().map_or("", |answer| answer.sdp.as_str()))
}

/// An answer that refuses the audio is none.
fn has_audio(answer: &str) -> Result<(), PeerError> {
    match sdp::audio_direction(answer) {
        Some(_) => Ok(()),
        None => Err(wrong("its audio cannot be taken")),
    }
}

/// A description, if it has all that a connection needs. `flows`: which way its audio is said to the core to flow, where
/// that is not what it says. `opus`: the number under which the core knows it.
fn usable(
    sdp: &str,
    flows: Option<Direction>,
    opus: Option<u8>,
    near: Near,
) -> Result<Plain, PeerError> {
    if sdp.len() > sdp::LONGEST {
        return Err(wrong("longer than 64 KiB"));
    }
    let plain = plain(sdp::without_end(sdp), flows, opus, near).map_err(wrong)?;
    if plain.way.candidates.len() > MOST_CANDIDATES {
        return Err(wrong(&format!("more than {MOST_CANDIDATES} candidates")));
    }
    Ok(plain)
}

fn wrong(why: &str) -> PeerError {
    PeerError::InvalidSdp(format!("sdp: {why}"))
}

fn invalid(error: &rtc::shared::error::Error) -> PeerError {
    PeerError::InvalidSdp(format!("sdp: {error}"))
}

fn failed(error: &rtc::shared::error::Error) -> PeerError {
    PeerError::Failed(error.to_string())
}
