//! Whole calls with a WebRTC client over real sockets on the loopback. The client is the core itself, in
//! the other role, with a socket and a clock of its own.

mod alone;
mod answers;
mod away;
mod codecs;
mod field;
mod limits;
mod ports;
mod streams;
mod unread;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};
use rtc::data_channel::RTCDataChannelId;
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::interceptor_registry::configure_rtcp_reports;
use rtc::peer_connection::configuration::media_engine::MediaEngine;
use rtc::peer_connection::configuration::setting_engine::SettingEngineBuilder;
use rtc::peer_connection::event::{RTCDataChannelEvent, RTCPeerConnectionEvent};
use rtc::peer_connection::message::{RTCMessage, TaggedRTCMessage};
use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::peer_connection::state::RTCPeerConnectionState;
use rtc::peer_connection::transport::{CandidateConfig, CandidateHostConfig, RTCIceCandidate};
use rtc::peer_connection::{RTCPeerConnection, RTCPeerConnectionBuilder};
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters,
    RtpCodecKind,
};
use rtc::rtp_transceiver::{RTCRtpSenderId, RTCRtpTransceiverDirection as Direction};
use rtc::sansio::Protocol as _;
use rtc::shared::{TaggedBytesMut, TransportContext, TransportProtocol};

use super::*;
use crate::audio::opus::{Decoder, Encoder, LONGEST};
use crate::audio::tones::{db, goertzel, sine};
use crate::call::input::EndRequest;
use crate::call::output::{AgentState, CallEvent};
use crate::call::record::{EndReason, Summary};
use crate::config::{AudioFormat, CallConfig, Protocol};
use crate::frame::FRAME;
use crate::offer_answer;
use crate::shell::tests::{config, quick};
use crate::shell::{
    CallHandle, CallNews, Carrier, Engine, EngineConfig, NewCall, RecordedFile, Refused,
    WebRtcConfig,
};
use crate::tape;

/// More than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The caller's tone, and the agent's (`Quick` speaks a square wave of 400 Hz).
const CALLER_HZ: f64 = 700.0;
const AGENT_HZ: f64 = 400.0;

struct Bed {
    engine: Engine,
    _folder: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        Self::of(1, Vec::new())
    }

    /// `public_addresses`: those that clients are told, if not the ones that are listened on.
    fn of(threads: usize, public_addresses: Vec<SocketAddr>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::start(EngineConfig {
            threads,
            node_calls: 200,
            spool_dir: folder.path().join("spool"),
            min_free: 0,
            lead_ms: 400,
            webrtc: Some(WebRtcConfig {
                listen: "127.0.0.1:0".parse().unwrap(),
                public_addresses,
            }),
            priority: 0,
        })
        .unwrap();
        Self {
            engine,
            _folder: folder,
        }
    }

    fn place(&self, session: &str) -> Placed {
        let (sender, news) = unbounded();
        let config = CallConfig {
            protocol: Protocol::WebRtc,
            audio_format: AudioFormat::Opus48000,
            ..config(session)
        };
        let handle = self
            .engine
            .place(NewCall {
                config,
                carrier: Carrier::Peer {
                    reach: Reach::Private,
                },
                providers: Box::new(|sink| quick(sink, 3)),
                on_event: Arc::new(move |news| {
                    let _ = sender.send(news);
                }),
            })
            .unwrap();
        Placed { handle, news }
    }

    /// A call whose client has our answer.
    fn call(&self, session: &str) -> (Placed, Client) {
        let placed = self.place(session);
        let mut client = Client::new();
        let offer = client.offer();
        let answer = placed.offer(&offer, false).unwrap();
        client.accept(&answer);
        (placed, client)
    }
}

struct Placed {
    handle: CallHandle,
    news: Receiver<CallNews>,
}

impl Placed {
    fn ask(&self, request: PeerRequest) -> Result<PeerReply, PeerError> {
        let (sender, receiver) = mpsc::channel();
        assert!(self.handle.peer(
            request,
            Box::new(move |reply| {
                let _ = sender.send(reply);
            })
        ));
        receiver.recv_timeout(PATIENCE).unwrap()
    }

    fn offer(&self, sdp: &str, fresh: bool) -> Result<String, PeerError> {
        let sdp = sdp.to_owned();
        let offer = sdp.clone();
        match self.ask(PeerRequest::Offer { sdp, fresh })? {
            PeerReply::Description(answer) => {
                offer_answer::check(&offer, &answer);
                Ok(answer)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Our own offer.
    fn make_offer(&self) -> String {
        match self.ask(PeerRequest::MakeOffer).unwrap() {
            PeerReply::Description(offer) => offer,
            other => panic!("{other:?}"),
        }
    }

    fn summary(&self) -> Summary {
        loop {
            if let CallNews::Event(CallEvent::Ended(summary)) =
                self.news.recv_timeout(PATIENCE).unwrap()
            {
                return *summary;
            }
        }
    }

    fn recorded(&self) -> RecordedFile {
        loop {
            if let CallNews::Recorded(recorded) = self.news.recv_timeout(PATIENCE).unwrap() {
                return recorded.unwrap();
            }
        }
    }

    fn wait_for(&self, wanted: impl Fn(&CallNews) -> bool) {
        while !wanted(&self.news.recv_timeout(PATIENCE).unwrap()) {}
    }

    /// What was told until now.
    fn told(&self) -> Vec<CallNews> {
        self.news.try_iter().collect()
    }
}

/// A WebRTC client.
struct Client {
    core: RTCPeerConnection,
    socket: UdpSocket,
    /// What the core takes its address for: it does not notice when the socket changes.
    address: SocketAddr,
    sender: RTCRtpSenderId,
    state: RTCPeerConnectionState,
    channel: Option<RTCDataChannelId>,
    /// Those that are open.
    channels: Vec<RTCDataChannelId>,
    messages: Vec<serde_json::Value>,
    encoder: Encoder,
    decoder: Decoder,
    heard: Vec<i16>,
    packets: usize,
    /// Of their payloads.
    bytes: usize,
    frame: usize,
    next_frame: Instant,
    speaks: bool,
    /// The name of its stream.
    ssrc: u32,
    /// What comes on the data channel, and acknowledgements of what was sent there, are taken.
    reads: bool,
}

const SSRC: u32 = 0x5151_5151;

impl Client {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let mut media = MediaEngine::default();
        let codec = RTCRtpCodec {
            mime_type: "audio/opus".to_owned(),
            clock_rate: 48_000,
            channels: 2,
            sdp_fmtp_line: "minptime=10;useinbandfec=1".to_owned(),
            rtcp_feedback: Vec::new(),
        };
        media
            .register_codec(
                RTCRtpCodecParameters {
                    rtp_codec: codec.clone(),
                    payload_type: 96,
                },
                RtpCodecKind::Audio,
            )
            .unwrap();
        let settings = SettingEngineBuilder::new()
            .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
            .build();
        let mut core = RTCPeerConnectionBuilder::new()
            .with_media_engine(media)
            .with_setting_engine(settings)
            .with_interceptor_registry(configure_rtcp_reports(rtc::interceptor::Registry::new()))
            .build(Instant::now())
            .unwrap();
        let track = MediaStreamTrack::new(
            "caller".to_owned(),
            "caller".to_owned(),
            "caller".to_owned(),
            RtpCodecKind::Audio,
            vec![RTCRtpEncodingParameters {
                rtp_coding_parameters: RTCRtpCodingParameters {
                    ssrc: Some(SSRC),
                    ..Default::default()
                },
                codec,
                ..Default::default()
            }],
        );
        let sender = core.add_track(track).unwrap();
        core.create_data_channel("events", None).unwrap();
        Self {
            core,
            socket,
            address,
            sender,
            state: RTCPeerConnectionState::New,
            channel: None,
            channels: Vec::new(),
            messages: Vec::new(),
            encoder: Encoder::new(5).unwrap(),
            decoder: Decoder::new().unwrap(),
            heard: Vec::new(),
            packets: 0,
            bytes: 0,
            frame: 0,
            next_frame: Instant::now(),
            speaks: true,
            ssrc: SSRC,
            reads: true,
        }
    }

    fn offer(&mut self) -> String {
        self.tell_where();
        let offer = self.core.create_offer(None).unwrap();
        self.core
            .set_local_description(Instant::now(), offer)
            .unwrap();
        self.core.local_description().unwrap().sdp
    }

    /// The answer to an offer of ours.
    fn answer(&mut self, offer: String) -> String {
        let now = Instant::now();
        let offer = RTCSessionDescription::offer(offer).unwrap();
        self.core.set_remote_description(now, offer).unwrap();
        self.tell_where();
        let answer = self.core.create_answer(None).unwrap();
        self.core.set_local_description(now, answer).unwrap();
        self.core.local_description().unwrap().sdp
    }

    fn tell_where(&mut self) {
        let candidate = CandidateHostConfig {
            base_config: CandidateConfig {
                network: "udp".to_owned(),
                address: self.address.ip().to_string(),
                port: self.address.port(),
                component: 1,
                ..Default::default()
            },
            ..Default::default()
        };
        let candidate = candidate.new_candidate_host().unwrap();
        let line = RTCIceCandidate::from(&candidate).to_json().unwrap();
        self.core.add_local_candidate(line).unwrap();
    }

    fn accept(&mut self, answer: &str) {
        let answer = RTCSessionDescription::answer(answer.to_owned()).unwrap();
        self.core
            .set_remote_description(Instant::now(), answer)
            .unwrap();
    }

    fn direct(&mut self, direction: Direction) {
        let all: Vec<_> = self.core.get_transceivers().collect();
        for id in all {
            if let Some(mut transceiver) = self.core.rtp_transceiver(id) {
                transceiver.set_direction(direction);
            }
        }
    }

    /// Speaks and listens until `done`; `false` when that takes longer than `patience`.
    fn run_for(&mut self, patience: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let until = Instant::now() + patience;
        let mut buffer = [0; 2048];
        loop {
            self.pump();
            if done(self) {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            if now >= self.next_frame {
                self.next_frame += Duration::from_millis(20);
                self.speak();
            }
            let due = self.core.poll_timeout().unwrap_or(until);
            if due <= now {
                self.core.handle_timeout(now).unwrap();
                continue;
            }
            let wait = due
                .min(self.next_frame)
                .min(until)
                .saturating_duration_since(now);
            self.socket
                .set_read_timeout(Some(wait.max(Duration::from_millis(1))))
                .unwrap();
            if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
                // DTLS (RFC 7983 section 7), which carries the data channel.
                if !self.reads && matches!(buffer[0], 20..=63) {
                    continue;
                }
                let message = TaggedBytesMut {
                    now: Instant::now(),
                    transport: TransportContext {
                        local_addr: self.address,
                        peer_addr: from,
                        ecn: None,
                        transport_protocol: TransportProtocol::UDP,
                    },
                    message: BytesMut::from(&buffer[..length]),
                };
                let _ = self.core.handle_read(message);
            }
        }
    }

    fn run(&mut self, done: impl FnMut(&Self) -> bool) {
        assert!(
            self.run_for(PATIENCE, done),
            "{:?}: {:?}",
            self.state,
            self.messages
        );
    }

    fn connected(&mut self) {
        self.run(|client| client.state == RTCPeerConnectionState::Connected);
    }

    fn has(&self, kind: &str) -> bool {
        self.messages.iter().any(|message| message["type"] == kind)
    }

    /// Whether the agent's tone was heard for so long since `from`, s.
    fn hears(&self, from: usize, seconds: f64) -> bool {
        let heard = &self.heard[from..];
        let loud = heard
            .chunks_exact(1600)
            .filter(|part| db(goertzel(part, 16_000, AGENT_HZ)) > -30.0)
            .count();
        loud as f64 * 0.1 >= seconds
    }

    fn say(&mut self, message: &str) {
        let id = self.channel.unwrap();
        self.core
            .data_channel(id)
            .unwrap()
            .send_text(Instant::now(), message)
            .unwrap();
    }

    fn speak(&mut self) {
        if self.state != RTCPeerConnectionState::Connected || !self.speaks {
            return;
        }
        let tone = sine(16_000, CALLER_HZ, -12.0, FRAME * 50);
        let at = self.frame % 50 * FRAME;
        let frame: [i16; FRAME] = std::array::from_fn(|i| tone[at + i]);
        let mut payload = Vec::new();
        self.encoder.encode(&frame, &mut payload).unwrap();
        let mut packet = rtc::rtp::Packet::default();
        packet.header.version = 2;
        packet.header.payload_type = 96;
        packet.header.ssrc = self.ssrc;
        packet.header.sequence_number = self.frame as u16;
        packet.header.timestamp = (self.frame * 960) as u32;
        packet.payload = Bytes::from(payload);
        self.frame += 1;
        if self.ssrc != SSRC {
            // The core's sender knows one name only.
            let _ = self.core.handle_write(TaggedRTCMessage {
                now: Instant::now(),
                message: RTCMessage::RtpPacket(String::new(), packet),
            });
        } else if let Some(mut sender) = self.core.rtp_sender(self.sender) {
            let _ = sender.write_rtp(Instant::now(), packet);
        }
    }

    fn pump(&mut self) {
        loop {
            let mut moved = false;
            while let Some(message) = self.core.poll_read() {
                moved = true;
                match message.message {
                    RTCMessage::RtpPacket(_, packet) => {
                        self.packets += 1;
                        self.bytes += packet.payload.len();
                        let mut pcm = [0; LONGEST];
                        let n = self.decoder.decode(&packet.payload, &mut pcm).unwrap();
                        self.heard.extend_from_slice(&pcm[..n]);
                    }
                    RTCMessage::DataChannelMessage(_, message) => self
                        .messages
                        .push(serde_json::from_slice(&message.data).unwrap()),
                    _ => {}
                }
            }
            while let Some(event) = self.core.poll_event() {
                moved = true;
                match event {
                    RTCPeerConnectionEvent::OnConnectionStateChangeEvent(state) => {
                        self.state = state
                    }
                    RTCPeerConnectionEvent::OnDataChannel(RTCDataChannelEvent::OnOpen(id)) => {
                        self.channel = Some(id);
                        self.channels.push(id);
                    }
                    RTCPeerConnectionEvent::OnDataChannel(RTCDataChannelEvent::OnClose(id)) => {
                        self.channels.retain(|open| *open != id);
                    }
                    _ => {}
                }
            }
            while let Some(out) = self.core.poll_write() {
                moved = true;
                let _ = self.socket.send_to(&out.message, out.transport.peer_addr);
            }
            if !moved {
                return;
            }
        }
    }
}

fn wav(file: &RecordedFile) -> (Vec<i16>, Vec<i16>) {
    let mut reader = hound::WavReader::open(&file.path).unwrap();
    let samples: Vec<i16> = reader.samples().map(|sample| sample.unwrap()).collect();
    samples.chunks(2).map(|pair| (pair[0], pair[1])).unzip()
}

#[test]
fn both_hear_each_other_and_the_events_come_on_the_data_channel() {
    let bed = Bed::new();
    let (placed, mut client) = bed.call("webrtc-both");
    client.run(|client| client.has("session_started"));
    let started = &client.messages[0];
    assert_eq!(started["protocol"], "webrtc");
    assert_eq!(started["audio_format"], "opus_48000");
    client.run(|client| client.hears(0, 1.0));
    client.run(|client| client.has("agent_response"));
    // Long enough for reports both ways.
    client.run_for(Duration::from_millis(2500), |_| false);
    assert!(placed.handle.end(EndRequest::Api));
    client.run(|client| client.has("call_ended"));
    let told = placed.told();
    let quality = told.iter().find_map(|news| match news {
        CallNews::Network(quality) => Some(*quality),
        _ => None,
    });
    let quality = quality.expect("the network was reported");
    assert!(quality.mos.is_some_and(|mos| mos > 4.0), "{quality:?}");
    let round_trip = told.iter().rev().find_map(|news| match news {
        CallNews::Network(quality) => quality.rtt_ms,
        _ => None,
    });
    assert!(
        round_trip.is_some_and(|ms| ms > 0.0 && ms < 1000.0),
        "{round_trip:?}"
    );
    let summary = told.iter().find_map(|news| match news {
        CallNews::Event(CallEvent::Ended(summary)) => Some(summary.clone()),
        _ => None,
    });
    let summary = summary.unwrap_or_else(|| Box::new(placed.summary()));
    assert_eq!(summary.reason, EndReason::EndedByApi);
    let media = summary.media.unwrap();
    assert!(media.packets > 100, "{media:?}");
    let recorded = told.iter().find_map(|news| match news {
        CallNews::Recorded(recorded) => Some(recorded.clone().unwrap()),
        _ => None,
    });
    let recorded = recorded.unwrap_or_else(|| placed.recorded());
    let (caller, agent) = wav(&recorded);
    let loud = |side: &[i16], hz| {
        side.chunks_exact(1600)
            .filter(|part| db(goertzel(part, 16_000, hz)) > -30.0)
            .count()
    };
    assert!(
        loud(&caller, CALLER_HZ) > 15,
        "the caller is in the recording"
    );
    assert!(loud(&agent, AGENT_HZ) > 8, "the agent is in the recording");
    let tape = std::fs::read(&recorded.tape_path).unwrap();
    assert_eq!(tape::first_difference(&tape).unwrap(), None);
}

#[test]
fn on_hold_nothing_is_sent_and_after_it_the_agent_answers_again() {
    let bed = Bed::new();
    let (placed, mut client) = bed.call("webrtc-hold");
    client.speaks = false;
    client.run(|client| client.channel.is_some() && client.hears(0, 0.3));
    client.direct(Direction::Inactive);
    let offer = client.offer();
    let answer = placed.offer(&offer, false).unwrap();
    assert_eq!(sdp::audio_direction(&answer), Some(Direction::Inactive));
    client.accept(&answer);
    placed.wait_for(|news| matches!(news, CallNews::Event(CallEvent::Agent(AgentState::OnHold))));
    // What was on the way may still come.
    client.run_for(Duration::from_millis(300), |_| false);
    let packets = client.packets;
    client.run_for(Duration::from_millis(500), |_| false);
    assert_eq!(client.packets, packets, "something was sent on hold");
    client.direct(Direction::Sendrecv);
    let offer = client.offer();
    let answer = placed.offer(&offer, false).unwrap();
    assert_eq!(sdp::audio_direction(&answer), Some(Direction::Sendrecv));
    client.accept(&answer);
    let from = client.heard.len();
    client.say(r#"{"type":"user_message","text":"Are you there?"}"#);
    client.run(|client| client.hears(from, 0.5));
}

#[test]
fn an_ice_restart_keeps_the_call() {
    let bed = Bed::new();
    let (placed, mut client) = bed.call("webrtc-restart");
    client.speaks = false;
    client.run(|client| client.channel.is_some() && client.hears(0, 0.3));
    let before = sdp::attribute(&client.core.local_description().unwrap().sdp, "ice-ufrag")
        .unwrap()
        .to_owned();
    client.core.restart_ice();
    let offer = client.offer();
    assert_ne!(sdp::attribute(&offer, "ice-ufrag"), Some(before.as_str()));
    let answer = placed.offer(&offer, false).unwrap();
    client.accept(&answer);
    client.run_for(Duration::from_millis(1000), |_| false);
    let from = client.heard.len();
    client.say(r#"{"type":"user_message","text":"Do you hear me?"}"#);
    client.run(|client| client.hears(from, 0.5));
    assert_eq!(bed.engine.live_calls(), 1);
}

#[test]
fn a_caller_who_closes_the_connection_has_hung_up() {
    let bed = Bed::new();
    let (placed, mut client) = bed.call("closed");
    client.connected();
    client.core.close().unwrap();
    client.pump();
    assert_eq!(placed.summary().reason, EndReason::CallerHangup);
}

#[test]
fn a_caller_whose_address_changes_is_followed() {
    let bed = Bed::new();
    let (_placed, mut client) = bed.call("webrtc-moves");
    client.run(|client| client.channel.is_some() && client.hears(0, 0.3));
    client.socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.speaks = false;
    client.run_for(Duration::from_millis(100), |_| false);
    let from = client.heard.len();
    client.run(|client| client.heard.len() > from);
    client.say(r#"{"type":"user_message","text":"I have moved."}"#);
    let from = client.heard.len();
    client.run(|client| client.hears(from, 0.5));
}

#[test]
fn another_fingerprint_is_another_peer() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-stranger");
    let mut client = Client::new();
    let offer = client.offer();
    let real = sdp::fingerprints(&offer).remove(0);
    let digits = real.split(' ').nth(1).unwrap();
    let turned: String = digits
        .chars()
        .map(|c| {
            if c == '0' {
                '1'
            } else if c == ':' {
                ':'
            } else {
                '0'
            }
        })
        .collect();
    let wrong = offer
        .replace(&digits.to_uppercase(), &turned)
        .replace(digits, &turned);
    assert_ne!(wrong, offer);
    let answer = placed.offer(&wrong, false).unwrap();
    client.accept(&answer);
    let connected = |client: &Client| client.channel.is_some();
    assert!(
        !client.run_for(Duration::from_secs(3), connected),
        "the key exchange went through"
    );
    assert!(
        !placed
            .told()
            .iter()
            .any(|news| matches!(news, CallNews::Event(CallEvent::Started))),
        "the call began with a stranger"
    );
    // With the connection there is, no other certificate is taken.
    let refused = placed.offer(&offer, false).unwrap_err();
    assert!(
        matches!(&refused, PeerError::InvalidSdp(why) if why.contains("fingerprint")),
        "{refused:?}"
    );
    let (placed, mut client) = bed.call("webrtc-known");
    client.connected();
    drop(placed);
}

#[test]
fn a_fingerprint_of_our_hash_is_found_among_others() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-hashes");
    let mut client = Client::new();
    let offer = client.offer();
    let one = "a=fingerprint:sha-256 ";
    assert!(offer.contains(one), "{offer}");
    let none = offer.replace(one, "a=fingerprint:sha-512 ");
    let refused = placed.offer(&none, false).unwrap_err();
    assert!(
        matches!(&refused, PeerError::InvalidSdp(why) if why.contains("sha-256")),
        "{refused:?}"
    );
    let several = "a=fingerprint:sha-512 AB:CD\r\na=fingerprint:SHA-256 ";
    let answer = placed.offer(&offer.replace(one, several), false).unwrap();
    client.accept(&answer);
    client.connected();
}

#[test]
fn strangers_at_the_port_reach_nobody() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-junk");
    let mut client = Client::new();
    let offer = client.offer();
    let answer = placed.offer(&offer, false).unwrap();
    let candidate = answer
        .lines()
        .find(|line| line.starts_with("a=candidate:"))
        .unwrap();
    let fields: Vec<&str> = candidate.split(' ').collect();
    let port: SocketAddr = format!("{}:{}", fields[4], fields[5]).parse().unwrap();
    let name = sdp::attribute(&answer, "ice-ufrag").unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    // A ClientHello's head, a check with the right name and no password, packets, noise.
    let mut hello = vec![22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 1];
    hello.resize(73, 0);
    let user = format!("{name}:zzzz");
    let mut check = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    check.extend([7; 12]);
    check.extend([0, 6, 0, user.len() as u8]);
    check.extend(user.as_bytes());
    check.resize(check.len().next_multiple_of(4), 0);
    let length = (check.len() - 20) as u16;
    check[2..4].copy_from_slice(&length.to_be_bytes());
    for n in 0..500_u16 {
        let noise: Vec<u8> = (0..n % 200).map(|i| (i * 37 + n) as u8).collect();
        for bytes in [
            &hello[..],
            &check,
            &[0x80, 111, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9],
            &noise,
        ] {
            let _ = stranger.send_to(bytes, port);
        }
    }
    client.accept(&answer);
    client.run(|client| client.has("session_started") && client.hears(0, 0.3));
    assert!(bed.engine.counters().strangers > 0);
    let mut buffer = [0; 64];
    assert!(
        stranger.recv_from(&mut buffer).is_err(),
        "a stranger was answered"
    );
}

#[test]
fn descriptions_that_cannot_be_used_are_refused_and_say_why() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-bad");
    let good = Client::new().offer();
    let cut: String = good
        .lines()
        .take_while(|line| !line.starts_with("m="))
        .collect();
    for (sdp, word) in [
        (String::new(), "no audio"),
        ("hello".to_owned(), "no audio"),
        (cut, "no audio"),
        (good.replace("a=fingerprint", "a=fingertip"), "fingerprint"),
        (good.replace("a=ice-pwd", "a=ice-no"), "ice-pwd"),
        (good.replace("opus", "vorbis"), "opus"),
        (good.replace("opus/48000/2", "opus/48000"), "opus/48000/2"),
        (good.replace("opus/48000/2", "opus/16000/2"), "RFC 7587"),
        (
            good.replace("SAVPF 96", "SAVPF 0 8"),
            "no audio codec in common",
        ),
        (good.replace("m=audio 9 ", "m=audio 0 "), "no audio"),
        (good.replace("sha-256", "sha-512"), "sha-256"),
        (good.replace("a=mid:1", "a=mid:0"), "one mid"),
        ("x".repeat(70_000), "64 KiB"),
    ] {
        let refused = placed.offer(&sdp, false);
        match &refused {
            Err(PeerError::InvalidSdp(why)) => assert!(why.contains(word), "{why}"),
            other => panic!("{word}: {other:?}"),
        }
        // It can be known before there is a call.
        assert_eq!(check_offer(&sdp), refused.map(drop), "{word}");
    }
    assert_eq!(check_offer(&good), Ok(()));
    assert_eq!(
        placed.ask(PeerRequest::Candidates(Vec::new())),
        Err(PeerError::NoPeer)
    );
    assert_eq!(
        placed.ask(PeerRequest::Answer { sdp: good.clone() }),
        Err(PeerError::NoPeer)
    );
    placed.offer(&good, false).unwrap();
    let candidate = |text: &str| Candidate {
        candidate: text.to_owned(),
        sdp_mid: Some("0".to_owned()),
        sdp_mline_index: Some(0),
    };
    let trickled = vec![
        candidate("candidate:1 1 udp 2122260223 127.0.0.1 5000 typ host"),
        candidate("candidate:2 1 UDP 2122260223 a8b3.local 5000 typ host"),
        candidate("candidate:3 1 tcp 1518280447 127.0.0.1 9 typ host tcptype active"),
        candidate(""),
    ];
    assert_eq!(
        placed.ask(PeerRequest::Candidates(trickled)),
        Ok(PeerReply::Accepted(4))
    );
    let refused = placed.ask(PeerRequest::Candidates(vec![candidate("nonsense")]));
    assert!(
        matches!(refused, Err(PeerError::InvalidCandidate(0, _))),
        "{refused:?}"
    );
}

#[test]
fn a_new_connection_takes_the_place_of_the_old() {
    let bed = Bed::new();
    let (placed, mut old) = bed.call("webrtc-fresh");
    old.run(|client| client.channel.is_some() && client.hears(0, 0.2));
    let mut client = Client::new();
    client.speaks = false;
    let offer = client.offer();
    let answer = placed.offer(&offer, true).unwrap();
    client.accept(&answer);
    client.run(|client| client.channel.is_some());
    client.say(r#"{"type":"user_message","text":"Here again."}"#);
    client.run(|client| client.hears(0, 0.5));
}

#[test]
fn without_a_port_no_call_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(EngineConfig {
        threads: 1,
        node_calls: 2,
        spool_dir: folder.path().to_owned(),
        min_free: 0,
        lead_ms: 0,
        webrtc: None,
        priority: 0,
    })
    .unwrap();
    let refused = engine.place(NewCall {
        config: config("webrtc-none"),
        carrier: Carrier::Peer {
            reach: Reach::Private,
        },
        providers: Box::new(|sink| quick(sink, 1)),
        on_event: Arc::new(|_| ()),
    });
    assert_eq!(refused.err(), Some(Refused::Socket));
}
