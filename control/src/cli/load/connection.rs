//! A browser's side of a call over WebRTC, without socket and clock: what it sends is fetched, what came is
//! handed in.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
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

/// The payload type of what is sent.
const OPUS: u8 = 111;

/// One connection.
pub struct Connection {
    core: RTCPeerConnection,
    sender: RTCRtpSenderId,
    address: SocketAddr,
    ssrc: u32,
    sequence: u16,
    state: RTCPeerConnectionState,
    channel: Option<RTCDataChannelId>,
}

/// What came of the server's.
pub enum Received {
    /// A packet of the agent's voice.
    Voice {
        /// A talkspurt begins (RFC 3551 section 4.1).
        marker: bool,
    },
    /// A message of the channel `events`.
    Event(Bytes),
}

impl Connection {
    /// A connection of the socket at this address, and its offer.
    ///
    /// # Errors
    ///
    /// What the core says that it cannot do.
    pub fn new(address: SocketAddr, ssrc: u32) -> Result<(Self, String), String> {
        let (core, sender) = core(ssrc).map_err(text)?;
        let mut connection = Self {
            core,
            sender,
            address,
            ssrc,
            sequence: 0,
            state: RTCPeerConnectionState::New,
            channel: None,
        };
        let offer = connection.offer().map_err(text)?;
        Ok((connection, offer))
    }

    /// Takes the server's answer; the way is looked for from here on.
    ///
    /// # Errors
    ///
    /// It is no answer to the offer.
    pub fn accept(&mut self, answer: &str) -> Result<(), String> {
        let answer = RTCSessionDescription::answer(answer.to_owned()).map_err(text)?;
        self.core
            .set_remote_description(Instant::now(), answer)
            .map_err(text)
    }

    /// Where it stands, as of the last [`Connection::flush`].
    pub(super) const fn state(&self) -> RTCPeerConnectionState {
        self.state
    }

    /// Whether both sides have found a way and the keys.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == RTCPeerConnectionState::Connected
    }

    /// Whether there is no way any more.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(
            self.state,
            RTCPeerConnectionState::Failed | RTCPeerConnectionState::Closed
        )
    }

    /// When [`Connection::keep`] has something to do.
    pub fn due(&mut self) -> Option<Instant> {
        self.core.poll_timeout()
    }

    /// Does what is due by the clock.
    pub fn keep(&mut self) {
        let now = Instant::now();
        if self.due().is_some_and(|due| due <= now) {
            // What it could not do shows in its state.
            let _ = self.core.handle_timeout(now);
        }
    }

    /// Sends a packet of Opus whose first sample is at this place of the stream, 48 kHz.
    ///
    /// # Errors
    ///
    /// The core does not take it.
    pub fn send(&mut self, timestamp: u32, payload: &[u8]) -> Result<(), String> {
        let mut packet = rtc::rtp::Packet::default();
        packet.header.version = 2;
        packet.header.payload_type = OPUS;
        packet.header.ssrc = self.ssrc;
        packet.header.sequence_number = self.sequence;
        packet.header.timestamp = timestamp;
        packet.payload = Bytes::copy_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        let Some(mut sender) = self.core.rtp_sender(self.sender) else {
            return Ok(());
        };
        sender.write_rtp(Instant::now(), packet).map_err(text)
    }

    /// Sends a message over the channel `events`, if it is open.
    pub fn tell(&mut self, message: &str) {
        if let Some(mut channel) = self.channel.and_then(|id| self.core.data_channel(id)) {
            // It fails when the server has just closed the channel.
            let _ = channel.send_text(Instant::now(), message.to_owned());
        }
    }

    /// Takes a datagram that came from there.
    pub fn receive(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        mut received: impl FnMut(Received),
    ) {
        let message = TaggedBytesMut {
            now: Instant::now(),
            transport: TransportContext {
                local_addr: self.address,
                peer_addr: from,
                ecn: None,
                transport_protocol: TransportProtocol::UDP,
            },
            message: BytesMut::from(datagram),
        };
        // What it cannot use it drops.
        let _ = self.core.handle_read(message);
        while let Some(message) = self.core.poll_read() {
            match message.message {
                RTCMessage::RtpPacket(_, packet) => received(Received::Voice {
                    marker: packet.header.marker,
                }),
                RTCMessage::DataChannelMessage(_, message) => {
                    received(Received::Event(message.data.freeze()));
                }
                _ => {}
            }
        }
    }

    /// Hands over what is to be sent, and where.
    pub fn flush(&mut self, mut send: impl FnMut(&[u8], SocketAddr)) {
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
            send(&out.message, out.transport.peer_addr);
        }
    }

    /// Says goodbye; [`Connection::flush`] has it.
    pub fn close(&mut self) {
        // The call is over: nobody is to be told of what fails here.
        let _ = self.core.close();
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
