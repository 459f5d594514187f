//! After warm-up a media thread takes nothing from the heap for a frame over WebRTC in our own code; what the core
//! that encrypts and decrypts takes is counted and bounded.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by failing"
)]

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use benches_kit::places;
use benches_kit::providers::{Silent, Talking};
use media::audio::opus::Encoder;
use media::audio::tones::noise;
use media::call::input::EndRequest;
use media::config::{
    AgentConfig, AudioFormat, CallConfig, Direction, OptionalEvents, Protocol, VadKind,
};
use media::frame::FRAME;
use media::peer::{PeerReply, PeerRequest};
use media::shell::{CallHandle, Carrier, Engine, EngineConfig, NewCall, WebRtcConfig};
use media::speech::{Providers, Recogniser, UtteranceId};
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::interceptor_registry::configure_rtcp_reports;
use rtc::peer_connection::configuration::media_engine::{MIME_TYPE_OPUS, MediaEngine};
use rtc::peer_connection::configuration::setting_engine::SettingEngineBuilder;
use rtc::peer_connection::event::RTCPeerConnectionEvent;
use rtc::peer_connection::message::RTCMessage;
use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::peer_connection::state::RTCPeerConnectionState;
use rtc::peer_connection::transport::{CandidateConfig, CandidateHostConfig, RTCIceCandidate};
use rtc::peer_connection::{RTCPeerConnection, RTCPeerConnectionBuilder};
use rtc::rtp_transceiver::RTCRtpSenderId;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters,
    RtpCodecKind,
};
use rtc::sansio::Protocol as _;
use rtc::shared::{TaggedBytesMut, TransportContext, TransportProtocol};

/// Frames that the recogniser is given: the first are warm-up, during the others each place that takes memory is noted.
const WARM_UP: usize = 200;
const WATCHED: usize = 200;

/// How often the core may take memory for a packet each way: as often as when this was written, and a quarter more.
/// Above that one should look at what has changed in it.
const CORE: f64 = 15.5;

/// How often tables of the connection may grow meanwhile: that of our checks does, one of which is made every other
/// second.
const MOST_GROWN: usize = 4;

/// Packets that the caller sends again and again.
const LOOP: u64 = 25;

const SSRC: u32 = 0x5151_5151;

/// More than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Listening(Arc<AtomicUsize>);

impl Recogniser for Listening {
    fn begin(&mut self, _: UtteranceId) {}
    fn audio(&mut self, _: UtteranceId, _: &[i16]) {
        let frame = self.0.fetch_add(1, Ordering::Relaxed);
        if frame == WARM_UP {
            benches_kit::watch(true);
        } else if frame == WARM_UP + WATCHED {
            benches_kit::watch(false);
        }
    }
    fn finish(&mut self, _: UtteranceId) {}
    fn cancel(&mut self, _: UtteranceId) {}
}

#[test]
fn a_frame_both_ways_over_webrtc_allocates_nothing_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(EngineConfig {
        threads: 1,
        node_calls: 4,
        spool_dir: folder.path().to_owned(),
        min_free: 0,
        lead_ms: 60,
        webrtc: Some(WebRtcConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            public_addresses: Vec::new(),
        }),
        priority: 0,
    })
    .unwrap();
    let frames = Arc::new(AtomicUsize::new(0));
    let listening = Listening(frames.clone());
    let call = engine
        .place(NewCall {
            config: config(),
            carrier: Carrier::Peer {
                reach: media::peer::Reach::Private,
            },
            providers: Box::new(move |sink| Providers {
                stt: Box::new(listening),
                llm: Box::new(Silent),
                tts: Box::new(Talking { sink, seconds: 30 }),
            }),
            on_event: Arc::new(|_| ()),
        })
        .unwrap();
    let mut browser = Browser::call(&call);
    let until = Instant::now() + PATIENCE;
    let mut warm = 0;
    while frames.load(Ordering::Relaxed) <= WARM_UP + WATCHED {
        assert!(Instant::now() < until, "{frames:?} frames");
        if frames.load(Ordering::Relaxed) <= WARM_UP {
            warm = browser.heard;
        }
        browser.serve();
    }
    // Both sides were heard: a packet each way and frame.
    let (sent, heard) = (browser.sent, browser.heard);
    assert!(
        sent.abs_diff(heard) < 60,
        "{sent} packets sent, {heard} heard"
    );
    assert!(call.end(EndRequest::Api));

    let (mut ours, mut core) = (BTreeMap::new(), BTreeMap::new());
    for place in places() {
        let known = |path: &str| path.contains("/media/src/") || core_package(path).is_some();
        // A place that nobody answers for could hide one of ours.
        let path = place
            .innermost(known)
            .map_or_else(|| format!("{place:#?}"), str::to_owned);
        match core_package(&path) {
            Some(name) => *core.entry(name.to_owned()).or_insert(0) += 1,
            None => *ours.entry(path).or_insert(0) += 1,
        }
    }
    let total: usize = core.values().sum();
    // The recogniser is not asked at every one.
    let packets = heard - warm;
    let each = total as f64 / packets as f64;
    println!("{each:.1} allocations of the core a packet each way, of {packets}: {core:?}");
    println!("ours, of as many: {ours:#?}");
    // A turn, a report and a check may allocate, a frame may not.
    let frames = ours.iter().filter(|(_, count)| **count >= WATCHED / 4);
    assert_eq!(frames.count(), 0, "{ours:#?}");
    let peers = ours
        .iter()
        .filter(|(path, _)| path.contains("/shell/peer/"));
    let grown: usize = peers.map(|(_, count)| count).sum();
    assert!(grown <= MOST_GROWN, "{ours:#?}");
    assert!(total > 0, "nothing was watched");
    assert!(
        each <= CORE,
        "{each} allocations of the core a packet each way"
    );
}

/// The package of the core whose file this is: `…/registry/src/<registry>/<package>-<version>/…`.
fn core_package(path: &str) -> Option<&str> {
    let (_, path) = path.split_once("/registry/src/")?;
    let (name, _version) = path.split('/').nth(1)?.rsplit_once('-')?;
    name.starts_with("rtc").then_some(name)
}

fn config() -> CallConfig {
    CallConfig {
        session_id: "steady".to_owned(),
        agent_id: "agent".to_owned(),
        direction: Direction::Inbound,
        protocol: Protocol::WebRtc,
        audio_format: AudioFormat::Opus48000,
        agent: AgentConfig {
            first_message: Some("A long story.".to_owned()),
            // Both sides speak: the caller never long enough to interrupt.
            barge_in_min_speech_secs: 3.0,
            ..AgentConfig::default()
        },
        recording: true,
        events: OptionalEvents::default(),
        vad: VadKind::Energy,
        lead_ms: 60,
    }
}

/// The caller's side: the same core in the other role, with a socket and a clock of its own.
struct Browser {
    core: RTCPeerConnection,
    sender: RTCRtpSenderId,
    socket: UdpSocket,
    address: SocketAddr,
    connected: bool,
    voice: Vec<Vec<u8>>,
    next: Instant,
    sent: usize,
    heard: usize,
}

impl Browser {
    /// A browser that has the call's answer.
    fn call(call: &CallHandle) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (core, sender) = core();
        let mut browser = Self {
            core,
            sender,
            socket,
            address,
            connected: false,
            voice: voice(),
            next: Instant::now(),
            sent: 0,
            heard: 0,
        };
        let (reply, replies) = mpsc::channel();
        let request = PeerRequest::Offer {
            sdp: browser.offer(),
            fresh: false,
        };
        let taken = call.peer(
            request,
            Box::new(move |answer| {
                let _ = reply.send(answer);
            }),
        );
        assert!(taken);
        let PeerReply::Description(answer) = replies.recv_timeout(PATIENCE).unwrap().unwrap()
        else {
            panic!("no answer");
        };
        let answer = RTCSessionDescription::answer(answer).unwrap();
        let core = &mut browser.core;
        core.set_remote_description(Instant::now(), answer).unwrap();
        browser
    }

    fn offer(&mut self) -> String {
        let host = CandidateHostConfig {
            base_config: CandidateConfig {
                network: "udp".to_owned(),
                address: self.address.ip().to_string(),
                port: self.address.port(),
                component: 1,
                ..Default::default()
            },
            ..Default::default()
        };
        let candidate = RTCIceCandidate::from(&host.new_candidate_host().unwrap());
        self.core
            .add_local_candidate(candidate.to_json().unwrap())
            .unwrap();
        let offer = self.core.create_offer(None).unwrap();
        self.core
            .set_local_description(Instant::now(), offer)
            .unwrap();
        self.core.local_description().unwrap().sdp
    }

    /// Does what is due, and waits for a packet until something else is.
    fn serve(&mut self) {
        let now = Instant::now();
        if now >= self.next {
            self.next += Duration::from_millis(20);
            self.speak(now);
        }
        let due = self.core.poll_timeout().unwrap_or(self.next);
        if due <= now {
            self.core.handle_timeout(now).unwrap();
        }
        self.pump();
        let wait = due.min(self.next).saturating_duration_since(now);
        self.socket
            .set_read_timeout(Some(wait.max(Duration::from_millis(1))))
            .unwrap();
        let mut buffer = [0; 2048];
        if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
            let message = TaggedBytesMut {
                now: Instant::now(),
                transport: TransportContext {
                    local_addr: self.address,
                    peer_addr: from,
                    ecn: None,
                    transport_protocol: TransportProtocol::UDP,
                },
                message: buffer[..length].into(),
            };
            let _ = self.core.handle_read(message);
            self.pump();
        }
    }

    fn speak(&mut self, now: Instant) {
        if !self.connected {
            return;
        }
        let mut packet = rtc::rtp::Packet::default();
        packet.header.version = 2;
        packet.header.payload_type = 111;
        packet.header.ssrc = SSRC;
        packet.header.sequence_number = self.sent as u16;
        packet.header.timestamp = (self.sent * 960) as u32;
        packet.payload = self.voice[self.sent % self.voice.len()].clone().into();
        self.sent += 1;
        let mut sender = self.core.rtp_sender(self.sender).unwrap();
        sender.write_rtp(now, packet).unwrap();
    }

    fn pump(&mut self) {
        while let Some(message) = self.core.poll_read() {
            self.heard += usize::from(matches!(message.message, RTCMessage::RtpPacket(..)));
        }
        while let Some(event) = self.core.poll_event() {
            if let RTCPeerConnectionEvent::OnConnectionStateChangeEvent(state) = event {
                self.connected = state == RTCPeerConnectionState::Connected;
                self.next = Instant::now();
            }
        }
        while let Some(out) = self.core.poll_write() {
            let _ = self.socket.send_to(&out.message, out.transport.peer_addr);
        }
    }
}

fn core() -> (RTCPeerConnection, RTCRtpSenderId) {
    let codec = RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.to_owned(),
        clock_rate: 48_000,
        channels: 2,
        sdp_fmtp_line: "minptime=10;useinbandfec=1".to_owned(),
        rtcp_feedback: Vec::new(),
    };
    let mut media = MediaEngine::default();
    let parameters = RTCRtpCodecParameters {
        rtp_codec: codec.clone(),
        payload_type: 111,
    };
    media
        .register_codec(parameters, RtpCodecKind::Audio)
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
    (core, sender)
}

/// Half a second of the caller: loud noise, which the detector takes for a voice, with a stop that is too short for the
/// end of a turn. Of each 4.5 s less than 3 are voiced, so that they do not interrupt.
fn voice() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(5).unwrap();
    let packets = (0..LOOP).map(|at| {
        let samples = noise(at, if at < 13 { -50.0 } else { -20.0 }, FRAME);
        let frame = std::array::from_fn(|i| samples[i]);
        let mut payload = Vec::new();
        assert!(encoder.encode(&frame, &mut payload).unwrap(), "not sent");
        payload
    });
    packets.collect()
}
