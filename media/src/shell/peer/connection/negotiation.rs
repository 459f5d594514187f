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
use super::super::plain::{Plain, answering, offering, plain, without_group};
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
        let direction = self.check(offer)?;
        let both_ways = Some(Direction::Sendrecv);
        let (usable, candidates) = usable(offer, both_ways, self.known_opus, self.near)?;
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
            self.passive = sdp::attribute(offer, "setup") == Some("active");
        }
        self.known_opus.get_or_insert(usable.codecs.opus);
        self.remember(offer, candidates);
        direct(&mut self.core, self.sender, sdp::mirrored(direction));
        self.advertise(net)?;
        let answer = self.core.create_answer(None).map_err(|e| invalid(&e))?;
        self.core
            .set_local_description(at, answer)
            .map_err(|e| invalid(&e))?;
        let mut answer = answering(&self.described(net)?, offer);
        has_audio(&answer)?;
        if self.passive {
            answer = sdp::as_passive(&answer);
        }
        if !usable.bundled {
            answer = without_group(&answer);
        }
        self.agree(&usable.codecs, direction);
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
        let direction = self.check(answer)?;
        let (usable, candidates) = usable(answer, None, self.known_opus, self.near)?;
        let (told, stream) = sdp::with_one_stream(&usable.sdp, !self.ssrc);
        let description = RTCSessionDescription::answer(told).map_err(|e| invalid(&e))?;
        self.hours.go_on(now);
        self.core
            .set_remote_description(self.instant(now, net), description)
            .map_err(|e| invalid(&e))?;
        self.measured.declared.store(stream, Ordering::Relaxed);
        self.remember(answer, candidates);
        for line in std::mem::take(&mut self.early) {
            self.candidates += 1;
            // Their request was answered long ago: one that the core cannot use is a way less to the caller.
            let _ = self.add(line);
        }
        self.passive = sdp::attribute(answer, "setup") == Some("active");
        self.agree(&usable.codecs, direction);
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
            if line.is_empty() {
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

    fn add(&mut self, line: String) -> Result<(), rtc::shared::error::Error> {
        self.core.add_remote_candidate(RTCIceCandidateInit {
            candidate: line,
            ..Default::default()
        })
    }

    /// Looks at a description before the core does.
    fn check(&self, sdp: &str) -> Result<Direction, PeerError> {
        let direction = check(sdp)?;
        // The key exchange was with the first certificate; another is another peer.
        if !self.fingerprints.is_empty() && self.fingerprints != sdp::fingerprints(sdp) {
            return Err(wrong(
                "the fingerprint has changed: ask for a new connection (restart_pc)",
            ));
        }
        Ok(direction)
    }

    /// `candidates`: how many of the description the core was given. One that is no new round names those again
    /// that it knows.
    fn remember(&mut self, remote: &str, candidates: usize) {
        let name = sdp::attribute(remote, "ice-ufrag").unwrap_or_default();
        if name != self.remote_name {
            name.clone_into(&mut self.remote_name);
            self.candidates = 0;
        }
        self.candidates = self.candidates.max(candidates);
        self.fingerprints = sdp::fingerprints(remote);
        self.remote_password = sdp::attribute(remote, "ice-pwd")
            .unwrap_or_default()
            .to_owned();
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
    let direction = check(offer)?;
    // As few candidates count as may, so nothing is refused that is taken where callers may be nearer.
    let (usable, _) = usable(offer, Some(Direction::Sendrecv), None, Near::Nobody)?;
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
    direct(&mut core, sender, sdp::mirrored(direction));
    let answer = core.create_answer(None).map_err(|e| invalid(&e))?;
    core.set_local_description(at, answer)
        .map_err(|e| invalid(&e))?;
    let answer = core.local_description();
    has_audio(&answer.map_or_else(String::new, |answer| answering(&answer.sdp, offer)))
}

/// An answer that refuses the audio is none.
fn has_audio(answer: &str) -> Result<(), PeerError> {
    match sdp::audio_direction(answer) {
        Some(_) => Ok(()),
        None => Err(wrong("its audio cannot be taken")),
    }
}

/// Whether a description has all that a connection needs; the direction of its audio.
fn check(sdp: &str) -> Result<Direction, PeerError> {
    if sdp.len() > sdp::LONGEST {
        return Err(wrong("longer than 64 KiB"));
    }
    let direction = sdp::audio_direction(sdp).ok_or_else(|| wrong("no audio"))?;
    if sdp::attribute(sdp, "ice-ufrag").is_none() || sdp::attribute(sdp, "ice-pwd").is_none() {
        return Err(wrong("no ice-ufrag or ice-pwd"));
    }
    let fingerprints = sdp::fingerprints(sdp);
    if fingerprints.is_empty() {
        return Err(wrong("no fingerprint"));
    }
    let known = |print: &String| print.split(' ').next() == Some(sdp::HASH);
    if !fingerprints.iter().any(known) {
        return Err(wrong("no fingerprint of sha-256"));
    }
    Ok(direction)
}

/// A description as the core is given it, without the fingerprints and candidates that are of no use, and how many of
/// these are left. `audio`: which way its first audio is said to flow, where that is not what it says. `opus`: the number
/// under which the core knows it.
fn usable(
    sdp: &str,
    audio: Option<Direction>,
    opus: Option<u8>,
    near: Near,
) -> Result<(Plain, usize), PeerError> {
    let mut plain = plain(sdp, audio, opus).map_err(wrong)?;
    plain.sdp = sdp::with_known_fingerprints(&plain.sdp);
    let (usable, candidates) = offered::with_reachable(&plain.sdp, near);
    plain.sdp = usable;
    if candidates > MOST_CANDIDATES {
        return Err(wrong(&format!("more than {MOST_CANDIDATES} candidates")));
    }
    Ok((plain, candidates))
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
