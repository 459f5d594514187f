//! One connection of the core, from its description to its end.

mod hours;
mod negotiation;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::RTCConfigurationBuilder;
use rtc::peer_connection::configuration::interceptor_registry::configure_rtcp_reports;
use rtc::peer_connection::configuration::media_engine::MediaEngine;
use rtc::peer_connection::configuration::setting_engine::SettingEngineBuilder;
use rtc::peer_connection::event::{RTCDataChannelEvent, RTCPeerConnectionEvent};
use rtc::peer_connection::message::{RTCMessage, TaggedRTCMessage};
use rtc::peer_connection::state::RTCPeerConnectionState;
use rtc::peer_connection::transport::RTCDtlsTransportState;
use rtc::peer_connection::{RTCPeerConnection, RTCPeerConnectionBuilder};
use rtc::rtp_transceiver::RTCRtpSenderId;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodingParameters, RTCRtpEncodingParameters, RtpCodecKind,
};
use rtc::sansio::Protocol;
use rtc::shared::{TaggedBytesMut, TransportContext, TransportProtocol};

use self::hours::Hours;
pub use self::negotiation::check_offer;
use super::super::mailbox::CallKey;
use super::PeerEvent;
use super::channel::Channel;
use super::identity::Identity;
use super::net::Net;
use super::offered::{self, Near};
use super::reports::{Measured, Reports};
use super::stun::{Class, Message, Transaction, is_stun};
use crate::call::input::Report;
use crate::peer::{PeerError, PeerState, Reach};
use crate::time::Time;

/// From the first way to the caller to the end of the key exchange. A caller with another certificate
/// than the fingerprint's never gets there.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A caller of whom nothing has come for so long may be elsewhere.
const SILENT: Duration = Duration::from_millis(500);

/// Addresses of one caller that may be valid at a time: a few networks and relays.
const MOST_TUPLES: usize = 16;

/// Checks of ours whose answer may show that a caller has moved.
const MOST_CHECKS: usize = 64;

pub(super) struct Connection {
    key: CallKey,
    core: RTCPeerConnection,
    hours: Hours,
    sender: RTCRtpSenderId,
    ssrc: u32,
    sequence: u16,
    /// The payload type of Opus as the caller wants to get it.
    opus: Option<u8>,
    /// The one under which the core knows it.
    known_opus: Option<u8>,
    /// What the caller's packets hold, by their payload types: the engine's own numbers. At most one for each.
    formats: Vec<(u8, u8)>,
    channel: Channel,
    /// Our name and password for STUN, and the caller's password.
    name: String,
    password: String,
    /// Theirs: another name is another round of ICE.
    remote_name: String,
    remote_password: String,
    /// Candidates of this round that the core was given, or will be.
    candidates: usize,
    /// Those that came before the answer to our offer.
    early: Vec<String>,
    /// Where candidates are checked.
    near: Near,
    /// The caller's fingerprints.
    fingerprints: Vec<String>,
    tuples: Vec<SocketAddr>,
    /// Our checks that are not answered, and where they went.
    checks: VecDeque<(Transaction, SocketAddr)>,
    /// Where packets of media go, as the core thinks.
    selected: Option<SocketAddr>,
    /// When something came from there last.
    heard_at: Time,
    /// Where the caller seems to be now, while it is not proven.
    moving: Option<SocketAddr>,
    /// The caller has moved: what the core calls the first address is the second.
    moved: Option<(SocketAddr, SocketAddr)>,
    state: RTCPeerConnectionState,
    /// The first packet of the key exchange was sent or taken then.
    handshake: Option<Time>,
    /// The key exchange has taken too long.
    overdue: bool,
    was_connected: bool,
    /// The caller begins the key exchange, and stays who began it.
    passive: bool,
    hold: bool,
    /// The caller's description says that they send.
    sends: bool,
    /// The most bits of Opus a second that the caller wants.
    limit: Option<u32>,
    measured: Arc<Measured>,
    reports: u32,
    /// The stream whose packets the core knows, and that of the datagram which it is reading.
    stream: Option<u32>,
    reading: Option<u32>,
    /// When the core wants to be woken.
    due: Time,
}

/// A connection of the core that speaks as we do, and who sends on it.
fn core(
    identity: &Identity,
    at: Instant,
    ssrc: u32,
    measured: Arc<Measured>,
) -> Result<(RTCPeerConnection, RTCRtpSenderId), rtc::shared::error::Error> {
    let mut media = MediaEngine::default();
    media.register_codec(offered::codec(), RtpCodecKind::Audio)?;
    let registry = configure_rtcp_reports(rtc::interceptor::Registry::new())
        // Nearer to the wire than both reporters, so that it sees what they send and get.
        .with(9_500.into(), Reports::new(ssrc, measured));
    let settings = SettingEngineBuilder::new()
        .with_crypto_provider(identity.provider.clone())
        .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
        .build();
    let configuration = RTCConfigurationBuilder::new()
        .with_certificates(vec![identity.certificate.clone()])
        .build();
    let mut core = RTCPeerConnectionBuilder::new()
        .with_configuration(configuration)
        .with_media_engine(media)
        .with_setting_engine(settings)
        .with_interceptor_registry(registry)
        .build(at)?;
    let track = MediaStreamTrack::new(
        "sidetone".to_owned(),
        "agent".to_owned(),
        "agent".to_owned(),
        RtpCodecKind::Audio,
        vec![RTCRtpEncodingParameters {
            rtp_coding_parameters: RTCRtpCodingParameters {
                ssrc: Some(ssrc),
                ..Default::default()
            },
            codec: offered::opus(),
            ..Default::default()
        }],
    );
    let sender = core.add_track(track)?;
    Ok((core, sender))
}

impl Connection {
    pub(super) fn new(
        key: CallKey,
        reach: Reach,
        now: Time,
        identity: &Identity,
        net: &Net,
    ) -> Result<Self, PeerError> {
        let ssrc = u32::from_le_bytes(identity.random()?);
        let sequence = u16::from_le_bytes(identity.random()?);
        let measured = Arc::new(Measured::default());
        let (core, sender) = core(identity, net.instant(now), ssrc, measured.clone())
            .map_err(|error| PeerError::Failed(error.to_string()))?;
        Ok(Self {
            key,
            core,
            hours: Hours::default(),
            sender,
            ssrc,
            sequence,
            opus: None,
            known_opus: None,
            formats: Vec::new(),
            channel: Channel::new(),
            name: String::new(),
            password: String::new(),
            remote_name: String::new(),
            remote_password: String::new(),
            candidates: 0,
            early: Vec::new(),
            near: Near::of(reach, &net.public),
            fingerprints: Vec::new(),
            tuples: Vec::new(),
            checks: VecDeque::new(),
            selected: None,
            heard_at: now,
            moving: None,
            moved: None,
            state: RTCPeerConnectionState::New,
            handshake: None,
            overdue: false,
            was_connected: false,
            passive: false,
            hold: false,
            sends: false,
            limit: None,
            measured,
            reports: 0,
            stream: None,
            reading: None,
            due: now,
        })
    }

    /// A datagram that `net` thinks is for us; what comes of a packet of the caller's voice goes to `heard`.
    /// `true`: it was one, and the core has nothing else to say because of it. Each question to the core goes
    /// through all its parts: asking at every packet would cost more than the packet.
    pub(super) fn datagram(
        &mut self,
        now: Time,
        from: SocketAddr,
        bytes: BytesMut,
        identity: &Identity,
        net: &mut Net,
        heard: &mut VecDeque<PeerEvent>,
    ) -> bool {
        let mut proven = None;
        let stream = stream_of(&bytes);
        if is_stun(&bytes) {
            let Some(message) = Message::read(&bytes) else {
                return true;
            };
            let crypto = identity.provider.crypto();
            match message.class {
                Class::Request => {
                    if !message.is_from_one_who_knows(&self.password, crypto) {
                        return true;
                    }
                    // A browser nominates the way it goes now; others just go on asking from there.
                    let silent = now - self.heard_at >= SILENT;
                    if (message.nominates || silent) && self.selected.is_some() {
                        self.seen_at(from);
                    }
                }
                Class::Success => {
                    if !message.is_from_one_who_knows(&self.remote_password, crypto) {
                        return true;
                    }
                    let transaction = message.transaction;
                    if let Some(at) = self.checks.iter().position(|(t, _)| *t == transaction) {
                        proven = self
                            .checks
                            .remove(at)
                            .map(|(_, to)| to)
                            .filter(|to| *to == from);
                    }
                }
                Class::Other => {}
            }
        }
        self.hours.go_on(now);
        let peer_addr = self.known_as(from);
        if self.selected == Some(peer_addr) {
            self.heard_at = now;
        }
        let message = TaggedBytesMut {
            now: self.instant(now, net),
            transport: TransportContext {
                local_addr: net.local(peer_addr),
                peer_addr,
                ecn: None,
                transport_protocol: TransportProtocol::UDP,
            },
            message: bytes,
        };
        // What it cannot use it drops; errors of strangers' making are no news.
        let _ = self.core.handle_read(message);
        if let Some(tuple) = proven {
            self.validate(tuple, net);
            if self.moving == Some(tuple)
                && let Some(selected) = self.selected
            {
                self.moving = None;
                self.moved = (tuple != selected).then_some((selected, tuple));
            }
        }
        let known = stream.is_some() && stream == self.stream && self.is_connected();
        if stream.is_some() {
            // What comes out now is what went in: all before it was fetched.
            self.reading = stream;
            while let Some(message) = self.core.poll_media_read() {
                self.read(now, message.message, heard);
            }
            self.reading = None;
        }
        known
    }

    pub(super) fn packet(
        &mut self,
        now: Time,
        timestamp: u32,
        marker: bool,
        payload: &[u8],
        net: &mut Net,
    ) {
        let Some(payload_type) = self.opus.filter(|_| self.is_connected() && !self.hold) else {
            return;
        };
        let mut packet = rtc::rtp::Packet::default();
        packet.header.version = 2;
        packet.header.marker = marker;
        packet.header.payload_type = payload_type;
        packet.header.sequence_number = self.sequence;
        packet.header.timestamp = timestamp;
        packet.header.ssrc = self.ssrc;
        packet.payload = net.payload(payload);
        self.sequence = self.sequence.wrapping_add(1);
        let at = self.instant(now, net);
        // Not by the core's sender, which knows one payload type only. What it cannot send is lost as on any network.
        let _ = self.core.handle_write(TaggedRTCMessage {
            now: at,
            message: RTCMessage::RtpPacket(String::new(), packet),
        });
        // One packet went in, and is the first that comes out: all before it was fetched.
        if let Some(out) = self.core.poll_write() {
            self.write(now, &out, net);
        }
    }

    /// The most bits of Opus a second that the caller wants; `None`: it does not say.
    pub(super) const fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// The caller holds the call: they do not hear us.
    pub(super) const fn is_held(&self) -> bool {
        self.hold
    }

    /// The caller's description says that they send.
    pub(super) const fn sends(&self) -> bool {
        self.sends
    }

    pub(super) const fn is_open(&self) -> bool {
        self.channel.is_open()
    }

    pub(super) fn text(&mut self, now: Time, text: &str, net: &Net) {
        let was_clogged = self.channel.is_clogged();
        let at = self.instant(now, net);
        self.channel.send(at, text, &mut self.core);
        if self.channel.is_clogged() && !was_clogged {
            net.stalled();
        }
    }

    pub(super) fn timeout(&mut self, now: Time, net: &Net) {
        let at = self.instant(now, net);
        if self.core.poll_timeout().is_some_and(|due| due <= at) {
            // It tells of what it could not do in its log; nothing of it is for the caller.
            let _ = self.core.handle_timeout(at);
        }
    }

    pub(super) fn deadline(&self) -> Time {
        match self.handshake {
            Some(since) if !self.was_connected && !self.overdue => self.due.min(since + HANDSHAKE),
            _ => self.due,
        }
    }

    /// Hands over what the core has.
    pub(super) fn pump(&mut self, now: Time, net: &mut Net, heard: &mut VecDeque<PeerEvent>) {
        loop {
            let mut moved = false;
            while let Some(message) = self.core.poll_read() {
                moved = true;
                self.read(now, message.message, heard);
            }
            while let Some(event) = self.core.poll_event() {
                moved = true;
                self.event(now, event);
            }
            while let Some(out) = self.core.poll_write() {
                moved = true;
                self.write(now, &out, net);
            }
            if !moved {
                break;
            }
        }
        let count = self.measured.count.load(Ordering::Relaxed);
        if count != self.reports {
            self.reports = count;
            let round_trip = self.measured.round_trip.load(Ordering::Relaxed);
            heard.push_back(PeerEvent::Report(Report {
                round_trip_ms: (round_trip > 0).then_some(round_trip.div_ceil(1000)),
                lost: self.measured.lost.load(Ordering::Relaxed) as u8,
            }));
        }
        self.due = self
            .core
            .poll_timeout()
            .map_or(Time::NEVER, |at| self.hours.when(net.time(at)));
    }

    /// Where the connection stands.
    pub(super) fn state(&mut self, now: Time) -> PeerState {
        use RTCPeerConnectionState as Core;
        if self.state == Core::Connected {
            self.was_connected = true;
        }
        self.overdue |= self.handshake.is_some_and(|since| now - since >= HANDSHAKE);
        if self.was_closed() {
            return PeerState::Closed;
        }
        match self.state {
            // Who reads no events cannot go on with this connection; another one may take its place.
            Core::Connected if self.channel.is_clogged() => PeerState::Failed,
            Core::Connected => PeerState::Connected,
            Core::Failed => PeerState::Failed,
            Core::Closed => PeerState::Closed,
            _ if self.overdue && !self.was_connected => PeerState::Failed,
            Core::Disconnected => PeerState::Disconnected,
            Core::Connecting => PeerState::Connecting,
            _ => PeerState::New,
        }
    }

    /// Round trip, ms, and our packets' loss, per cent.
    pub(super) fn measured(&self) -> (Option<f64>, Option<f64>) {
        if self.measured.count.load(Ordering::Relaxed) == 0 {
            return (None, None);
        }
        let round_trip = self.measured.round_trip.load(Ordering::Relaxed);
        let lost = self.measured.lost.load(Ordering::Relaxed);
        (
            (round_trip > 0).then_some(f64::from(round_trip) / 1000.0),
            Some(f64::from(lost) * 100.0 / 256.0),
        )
    }

    /// Says goodbye.
    pub(super) fn close(&mut self, now: Time, net: &mut Net) {
        // It has nobody to tell of what fails here.
        let _ = self.core.close();
        while let Some(out) = self.core.poll_write() {
            self.write(now, &out, net);
        }
        self.due = Time::NEVER;
    }

    /// Nothing that comes is for us any more.
    pub(super) fn forget(&mut self, net: &mut Net) {
        net.unname(&self.name);
        for tuple in self.tuples.drain(..) {
            net.invalidate(tuple, self.key);
        }
    }

    /// The time as the core is told it.
    fn instant(&self, now: Time, net: &Net) -> Instant {
        net.instant(self.hours.at(now))
    }

    fn is_connected(&self) -> bool {
        self.state == RTCPeerConnectionState::Connected
    }

    /// The caller has closed their side (close_notify, RFC 5246 section 7.2.1), as browsers do when they hang
    /// up or leave the page. To the core the connection stays connected, as W3C has it.
    fn was_closed(&mut self) -> bool {
        let sender = self.core.rtp_sender(self.sender);
        sender.is_some_and(|sender| {
            let transport = sender.transport();
            transport.is_some_and(|transport| transport.state() == RTCDtlsTransportState::Closed)
        })
    }

    /// The caller is there: they answered a check of ours from there.
    fn validate(&mut self, tuple: SocketAddr, net: &mut Net) {
        net.validate(tuple, self.key);
        self.keep(tuple, net);
    }

    /// Remembers what is to be given back; the oldest is, when there are too many.
    fn keep(&mut self, tuple: SocketAddr, net: &mut Net) {
        if !self.tuples.contains(&tuple) {
            if self.tuples.len() == MOST_TUPLES {
                net.invalidate(self.tuples.remove(0), self.key);
            }
            self.tuples.push(tuple);
        }
    }

    /// The caller is at `from` now; the core keeps to the way it has.
    fn seen_at(&mut self, from: SocketAddr) {
        if self.known_as(from) != from {
            return;
        }
        if self.selected == Some(from) {
            // Back where they were.
            self.moving = None;
            self.moved = None;
        } else {
            self.moving = Some(from);
        }
    }

    /// The address by which the core knows the sender.
    fn known_as(&self, from: SocketAddr) -> SocketAddr {
        match self.moved {
            Some((old, new)) if new == from => old,
            _ => from,
        }
    }

    fn read(&mut self, now: Time, message: RTCMessage, heard: &mut VecDeque<PeerEvent>) {
        match message {
            RTCMessage::RtpPacket(_, packet) => {
                let header = packet.header;
                let mut formats = self.formats.iter();
                let Some(&(_, payload_type)) =
                    formats.find(|(number, _)| *number == header.payload_type)
                else {
                    return;
                };
                // The core knows all of the caller's streams under one name.
                let ssrc = self.reading.unwrap_or(header.ssrc);
                self.stream = Some(ssrc);
                heard.push_back(PeerEvent::Packet {
                    payload_type,
                    marker: header.marker,
                    sequence: header.sequence_number,
                    timestamp: header.timestamp,
                    ssrc,
                    payload: packet.payload,
                });
            }
            RTCMessage::DataChannelMessage(id, message)
                if self.channel.takes(now, id, &message) =>
            {
                heard.push_back(match message.is_string {
                    true => PeerEvent::Text(message.data),
                    false => PeerEvent::Binary(message.data),
                });
            }
            // Other channels, and what later versions of the core may have.
            _ => {}
        }
    }

    fn event(&mut self, now: Time, event: RTCPeerConnectionEvent) {
        match event {
            RTCPeerConnectionEvent::OnConnectionStateChangeEvent(state) => {
                if state == RTCPeerConnectionState::Disconnected && self.was_connected {
                    self.hours.stop(now);
                }
                self.state = state;
            }
            RTCPeerConnectionEvent::OnDataChannel(RTCDataChannelEvent::OnOpen(id)) => {
                self.channel.opened(id, &mut self.core);
            }
            RTCPeerConnectionEvent::OnDataChannel(
                RTCDataChannelEvent::OnClose(id) | RTCDataChannelEvent::OnClosing(id),
            ) => self.channel.closed(id),
            _ => {}
        }
    }

    fn write(&mut self, now: Time, out: &TaggedBytesMut, net: &mut Net) {
        let bytes = &out.message[..];
        let mut to = out.transport.peer_addr;
        if is_stun(bytes) {
            if let Some(message) = Message::read(bytes) {
                match message.class {
                    Class::Request => {
                        net.checking(message.transaction, self.key);
                        if self.checks.len() == MOST_CHECKS {
                            self.checks.pop_front();
                        }
                        self.checks.push_back((message.transaction, to));
                    }
                    // Only a request with the right tag came as far as to be answered. Who sent it may have
                    // given another's address for theirs: what another call has proven is not taken away.
                    Class::Success => {
                        if net.claim(to, self.key) {
                            self.keep(to, net);
                        }
                    }
                    Class::Other => {}
                }
            }
        } else {
            self.selected = Some(to);
            self.handshake.get_or_insert(now);
        }
        if let Some((old, new)) = self.moved
            && old == to
        {
            to = new;
        }
        net.send(bytes, to);
    }
}

/// The SSRC, if it is a packet of RTP (RFC 7983 section 7, RFC 5761 section 4).
fn stream_of(datagram: &[u8]) -> Option<u32> {
    let [128..=191, second, .., a, b, c, d] = datagram.first_chunk::<12>()? else {
        return None;
    };
    (!(192..=223).contains(second)).then(|| u32::from_be_bytes([*a, *b, *c, *d]))
}
