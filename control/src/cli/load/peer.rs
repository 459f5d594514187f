//! One call of a load run over WebRTC, as a browser would make it: a peer connection with a socket of its
//! own, which sends the stimulus as Opus, hears the agent and reads its events.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use mio::net::UdpSocket;
use rtc::data_channel::RTCDataChannelId;
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::interceptor_registry::configure_rtcp_reports;
use rtc::peer_connection::configuration::media_engine::{MIME_TYPE_OPUS, MediaEngine};
use rtc::peer_connection::configuration::setting_engine::SettingEngineBuilder;
use rtc::peer_connection::event::{RTCDataChannelEvent, RTCPeerConnectionEvent};
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
use rtc::shared::error::Error;
use rtc::shared::{TaggedBytesMut, TransportContext, TransportProtocol};
use serde_json::{Value, json};

use super::arrival;
use super::ear::{Ear, FRAME_US, Figures};
use super::stimulus::Stimulus;

/// The payload type of what is sent.
const OPUS: u8 = 111;
/// Units of Opus' RTP clock in a frame (RFC 7587 section 4.1: 48 kHz).
const UNITS: u32 = 960;
/// A connection that is not there by then does not come, μs.
const PATIENCE_US: u64 = 20_000_000;

/// One call.
pub(super) struct Peer {
    core: RTCPeerConnection,
    sender: RTCRtpSenderId,
    pub(super) socket: UdpSocket,
    address: SocketAddr,
    ssrc: u32,
    sequence: u16,
    timestamp: u32,
    /// The next frame of the stimulus.
    at: usize,
    state: RTCPeerConnectionState,
    channel: Option<RTCDataChannelId>,
    ear: Ear,
}

impl Peer {
    /// A call that starts its stimulus at that frame, and its offer.
    pub(super) fn new(at: usize, ssrc: u32) -> Result<(Self, String), String> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).map_err(text)?;
        arrival::note(&socket).map_err(text)?;
        let address = socket.local_addr().map_err(text)?;
        let (core, sender) = core(ssrc).map_err(text)?;
        let mut peer = Self {
            core,
            sender,
            socket,
            address,
            ssrc,
            sequence: 0,
            timestamp: 0,
            at,
            state: RTCPeerConnectionState::New,
            channel: None,
            ear: Ear::without_lead(),
        };
        let offer = peer.offer().map_err(text)?;
        Ok((peer, offer))
    }

    /// Takes the server's answer; the way is looked for from here on.
    pub(super) fn accept(&mut self, answer: &str) -> Result<(), String> {
        let answer = RTCSessionDescription::answer(answer.to_owned()).map_err(text)?;
        self.core
            .set_remote_description(Instant::now(), answer)
            .map_err(text)
    }

    /// Does what is due by the clock.
    pub(super) fn keep(&mut self) {
        let now = Instant::now();
        if self.core.poll_timeout().is_some_and(|due| due <= now) {
            // What it could not do shows in its state.
            let _ = self.core.handle_timeout(now);
        }
    }

    /// Sends the next frame of caller audio. An error means that the call is lost.
    pub(super) fn tick(
        &mut self,
        now: u64,
        stimulus: &Stimulus,
        figures: &mut Figures,
    ) -> Result<(), String> {
        match self.state {
            RTCPeerConnectionState::Connected => {}
            RTCPeerConnectionState::New | RTCPeerConnectionState::Connecting
                if now < PATIENCE_US =>
            {
                return Ok(());
            }
            state => return Err(format!("a connection is {state}")),
        }
        let frame = self.at % stimulus.frames.len();
        self.at = frame + 1;
        self.ear.caller(now, stimulus.events[frame], figures);
        self.timestamp = self.timestamp.wrapping_add(UNITS);
        let Some(payload) = stimulus.opus.get(frame).and_then(Option::as_ref) else {
            return Ok(());
        };
        let mut packet = rtc::rtp::Packet::default();
        packet.header.version = 2;
        packet.header.payload_type = OPUS;
        packet.header.ssrc = self.ssrc;
        packet.header.sequence_number = self.sequence;
        packet.header.timestamp = self.timestamp;
        packet.payload = Bytes::copy_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        if let Some(mut sender) = self.core.rtp_sender(self.sender) {
            sender.write_rtp(Instant::now(), packet).map_err(text)?;
        }
        figures.frames_out += 1;
        Ok(())
    }

    /// Reads what the socket has. `buffer` is longer than any datagram of the server's.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        now: &impl Fn() -> u64,
        figures: &mut Figures,
    ) -> Result<(), String> {
        loop {
            let arrival = match arrival::read(&self.socket, buffer) {
                Ok(arrival) => arrival,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // An ICMP error of an earlier datagram says nothing about the next.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(format!("a socket broke: {error}")),
            };
            let came = arrival.before(now());
            let Some(from) = arrival.from else { continue };
            let message = TaggedBytesMut {
                now: Instant::now(),
                transport: TransportContext {
                    local_addr: self.address,
                    peer_addr: from,
                    ecn: None,
                    transport_protocol: TransportProtocol::UDP,
                },
                message: BytesMut::from(&buffer[..arrival.length]),
            };
            // What it cannot use it drops.
            let _ = self.core.handle_read(message);
            while let Some(message) = self.core.poll_read() {
                self.hear(came, message.message, figures);
            }
        }
        Ok(())
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        while let Some(event) = self.core.poll_event() {
            match event {
                RTCPeerConnectionEvent::OnConnectionStateChangeEvent(state) => self.state = state,
                RTCPeerConnectionEvent::OnDataChannel(RTCDataChannelEvent::OnOpen(id)) => {
                    self.channel = Some(id);
                }
                _ => {}
            }
        }
        while let Some(out) = self.core.poll_write() {
            // What the system does not take at once is lost, as on any network.
            let _ = self.socket.send_to(&out.message, out.transport.peer_addr);
        }
    }

    /// Hangs up.
    pub(super) fn stop(&mut self) {
        // The run is over: nobody is to be told of what fails here.
        let _ = self.core.close();
        self.flush();
    }

    fn hear(&mut self, now: u64, message: RTCMessage, figures: &mut Figures) {
        match message {
            RTCMessage::RtpPacket(_, packet) => {
                // A talkspurt begins: the silence before it was meant.
                if packet.header.marker {
                    self.ear.resume();
                }
                self.ear.frame(now, FRAME_US, figures);
            }
            RTCMessage::DataChannelMessage(_, message) => {
                let event: Value = serde_json::from_slice(&message.data).unwrap_or_default();
                match event["type"].as_str() {
                    Some("interruption") => self.ear.clear(now, figures),
                    Some("ping") => self.pong(&event["event_id"]),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn pong(&mut self, event_id: &Value) {
        let pong = json!({"type": "pong", "event_id": event_id}).to_string();
        if let Some(mut channel) = self.channel.and_then(|id| self.core.data_channel(id)) {
            // It fails when the server has just closed the channel.
            let _ = channel.send_text(Instant::now(), pong);
        }
    }

    fn offer(&mut self) -> Result<String, Error> {
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
        let candidate = RTCIceCandidate::from(&host.new_candidate_host()?).to_json()?;
        self.core.add_local_candidate(candidate)?;
        let offer = self.core.create_offer(None)?;
        self.core.set_local_description(Instant::now(), offer)?;
        let described = self.core.local_description();
        Ok(described.map(|described| described.sdp).unwrap_or_default())
    }
}

fn core(ssrc: u32) -> Result<(RTCPeerConnection, RTCRtpSenderId), Error> {
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
        payload_type: OPUS,
    };
    media.register_codec(parameters, RtpCodecKind::Audio)?;
    let settings = SettingEngineBuilder::new()
        .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
        .build();
    let mut core = RTCPeerConnectionBuilder::new()
        .with_media_engine(media)
        .with_setting_engine(settings)
        .with_interceptor_registry(configure_rtcp_reports(rtc::interceptor::Registry::new()))
        .build(Instant::now())?;
    let track = MediaStreamTrack::new(
        "caller".to_owned(),
        "caller".to_owned(),
        "caller".to_owned(),
        RtpCodecKind::Audio,
        vec![RTCRtpEncodingParameters {
            rtp_coding_parameters: RTCRtpCodingParameters {
                ssrc: Some(ssrc),
                ..Default::default()
            },
            codec,
            ..Default::default()
        }],
    );
    let sender = core.add_track(track)?;
    core.create_data_channel("events", None)?;
    Ok((core, sender))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
