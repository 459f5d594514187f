//! One telephone call's line: two UDP sockets, who may send on them, encryption, and the reports that
//! both sides exchange.

use std::io;
use std::time::Duration;

use mio::event::Source as _;
use mio::{Interest, Registry, Token};

use super::datagram;
use super::ports::PortPair;
use crate::call::input::Report;
use crate::leg::RtpPacket;
use crate::peer::Quality;
use crate::rtp::packet::{HEADER, Header, Packet, is_rtcp};
use crate::rtp::remote::{Numbered, RemoteMedia};
use crate::rtp::rtcp::{self, Receptions, Sent};
use crate::rtp::sdp::{Agreed, Format, KeyPair};
use crate::rtp::srtp::{Keys, Opener, Sealer};
use crate::time::Time;

/// Datagrams read of one call in one pass: no caller starves the thread's others.
const READ_BUDGET: u32 = 64;

/// A datagram's largest size, bytes: no telephone sends more in a packet, and what is cut off is refused.
pub(super) const LARGEST: usize = 2048;

/// A telephone call's way to the network.
pub struct RtpCarrier {
    /// Bound before they were offered.
    pub ports: PortPair,
    pub agreed: Agreed,
    /// Our stream's name, as in the call's plan.
    pub ssrc: u32,
}

pub(super) struct RtpLine {
    ports: PortPair,
    agreed: Agreed,
    ssrc: u32,
    audio: RemoteMedia,
    reports: RemoteMedia,
    crypt: Option<Crypt>,
    /// Of the audio and of the reports.
    readable: [bool; 2],
    budget: u32,
    receptions: Receptions,
    sent: Sent,
    /// The timestamp of the newest packet sent, and when.
    newest: (u32, Time),
    next_report: Time,
    rtt_ms: Option<u32>,
    remote_loss: Option<u8>,
    over: bool,
    received: u64,
    written: u64,
    told: (u64, u64),
    /// Datagrams that were not taken.
    pub(super) refused: u64,
}

/// Each direction with its key, which may change without the other's.
struct Crypt {
    sealer: (Keys, Sealer),
    opener: (Keys, Opener),
}

/// What was read.
pub(super) enum Taken {
    /// An RTP packet of so many bytes stands at the front of the buffer.
    Packet(usize),
    /// A report, or another sign that somebody is there.
    Report(Report),
    Nothing,
}

impl RtpLine {
    pub(super) fn new(carrier: RtpCarrier) -> Self {
        let RtpCarrier {
            ports,
            agreed,
            ssrc,
        } = carrier;
        Self {
            ports,
            ssrc,
            audio: RemoteMedia::new(agreed.remote),
            reports: RemoteMedia::new(agreed.remote_reports),
            crypt: Crypt::renewed(None, agreed.keys.as_ref()),
            readable: [true; 2],
            budget: READ_BUDGET,
            receptions: Receptions::default(),
            sent: Sent::default(),
            newest: (0, Time::from_micros(0)),
            next_report: Time::NEVER,
            rtt_ms: None,
            remote_loss: None,
            over: false,
            received: 0,
            written: 0,
            told: (0, 0),
            refused: 0,
            agreed,
        }
    }

    /// Both sides agreed anew.
    pub(super) fn renew(&mut self, agreed: Agreed) {
        self.audio.renew(agreed.remote);
        self.reports.renew(agreed.remote_reports);
        self.crypt = Crypt::renewed(self.crypt.take(), agreed.keys.as_ref());
        self.agreed = agreed;
    }

    pub(super) fn start(&mut self, now: Time) {
        self.next_report = now + Duration::from_millis(rtcp::INTERVAL_MS);
    }

    pub(super) fn register(&mut self, registry: &Registry, tokens: [Token; 2]) -> io::Result<()> {
        let Some((audio, reports)) = self.ports.sockets() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        audio.register(registry, tokens[0], Interest::READABLE)?;
        reports.register(registry, tokens[1], Interest::READABLE)
    }

    pub(super) fn deregister(&mut self, registry: &Registry) {
        if let Some((audio, reports)) = self.ports.sockets() {
            // They stay open for a while, and must not wake anybody.
            for socket in [audio, reports] {
                if let Err(error) = socket.deregister(registry) {
                    tracing::debug!(%error, "a call's port could not be let go of");
                }
            }
        }
    }

    /// The poll said so of the audio (0) or the reports (1).
    pub(super) fn ready(&mut self, socket: usize) {
        self.readable[socket & 1] = true;
    }

    pub(super) fn new_pass(&mut self) {
        self.budget = READ_BUDGET;
    }

    pub(super) fn wants_more(&self) -> bool {
        !self.over && self.readable.contains(&true)
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn deadline(&self) -> Time {
        if self.over {
            Time::NEVER
        } else {
            self.next_report
        }
    }

    /// Reads on until there is something for the call. `buffer` has [`LARGEST`] bytes.
    pub(super) fn receive(&mut self, now: Time, buffer: &mut [u8]) -> Taken {
        while !self.over && self.budget > 0 {
            let Some(socket) = self.readable.iter().position(|readable| *readable) else {
                return Taken::Nothing;
            };
            let Some((audio, reports)) = self.ports.sockets() else {
                return Taken::Nothing;
            };
            let from = if socket == 0 { audio } else { reports };
            let (length, from) = match datagram::receive(from, buffer) {
                Ok(read) => read,
                Err(error) => {
                    // What the network says of packets that we sent (ICMP) is no end of the call.
                    if error.kind() == io::ErrorKind::WouldBlock {
                        self.readable[socket] = false;
                    } else {
                        self.budget -= 1;
                    }
                    continue;
                }
            };
            self.budget -= 1;
            self.received += length as u64;
            let datagram = &mut buffer[..length];
            let report = is_rtcp(datagram) && (socket == 1 || self.agreed.mux);
            let taken = if report {
                self.report_came(now, from, socket, datagram)
                    .map(Taken::Report)
            } else if socket == 0 {
                self.packet_came(now, from, datagram)
            } else {
                None
            };
            match taken {
                Some(taken) => return taken,
                None if report => {}
                None => self.refused += 1,
            }
        }
        Taken::Nothing
    }

    /// The packet, decrypted in place, or a sign that somebody is there; `None`: it is not the caller's.
    fn packet_came(
        &mut self,
        now: Time,
        from: std::net::SocketAddr,
        datagram: &mut [u8],
    ) -> Option<Taken> {
        if is_keep_alive(datagram) {
            return self.audio.is_known(from).then(|| self.sign());
        }
        // Whoever has the key is the caller, wherever they are.
        let (length, authentic) = match &mut self.crypt {
            Some(crypt) => (crypt.opener.1.open(datagram).ok()?, true),
            None => (datagram.len(), false),
        };
        let packet = Packet::parse(&datagram[..length])?;
        let numbered = Numbered {
            ssrc: packet.ssrc,
            sequence: packet.sequence,
        };
        let Some(format) = self.agreed.format(packet.payload_type) else {
            // It says nothing but that somebody is there (RFC 6263 section 4.6).
            let known = authentic || self.audio.is_known(from);
            return known.then(|| self.sign());
        };
        if authentic {
            self.audio.sent(now, from, Some(numbered));
        } else if !self.audio.takes(now, from, numbered) {
            return None;
        }
        let sound = match format {
            Format::Audio(codec) => Some((codec.clock(), packet.timestamp)),
            Format::Event | Format::Noise => None,
        };
        self.receptions
            .packet(now, packet.ssrc, packet.sequence, sound);
        Some(Taken::Packet(length))
    }

    fn report_came(
        &mut self,
        now: Time,
        from: std::net::SocketAddr,
        socket: usize,
        datagram: &mut [u8],
    ) -> Option<Report> {
        let audio = self.audio.address();
        let (length, authentic) = match &mut self.crypt {
            Some(crypt) => (crypt.opener.1.open_report(datagram).ok()?, true),
            None => (datagram.len(), false),
        };
        let told = rtcp::parse(&datagram[..length], self.ssrc)?;
        match (authentic, self.agreed.mux) {
            // What comes to the port of the reports alone does not say where the audio goes.
            (true, true) if socket == 0 => self.audio.sent(now, from, None),
            (true, true) => {}
            (true, false) => self.reports.sent(now, from, None),
            (false, true) if !self.audio.is_known(from) => return None,
            (false, true) => {}
            (false, false) if !self.reports.takes_report(now, from, audio) => return None,
            (false, false) => {}
        }
        // Of who comes next only they are believed whose audio is, too.
        if from == self.agreed.remote_reports || from.ip() == audio.ip() {
            if let Some(over) = told.over {
                self.audio.leaves(over);
            }
            if let Some(names) = told.from {
                self.audio.names(names);
            }
        }
        if let Some(middle) = told.sender_time {
            self.receptions.report_came(now, told.from, middle);
        }
        if let Some(block) = told.block {
            self.rtt_ms = rtcp::round_trip_ms(now, &block).or(self.rtt_ms);
            self.remote_loss = Some(block.fraction_lost);
        }
        Some(self.known())
    }

    /// Somebody is there: what they told last of our packets holds.
    fn sign(&self) -> Taken {
        Taken::Report(self.known())
    }

    fn known(&self) -> Report {
        Report {
            round_trip_ms: self.rtt_ms,
            lost: self.remote_loss.unwrap_or(0),
        }
    }

    /// Sends a packet at once: it is due. It is put together in `bytes`.
    pub(super) fn send(&mut self, now: Time, packet: &RtpPacket<'_>, bytes: &mut Vec<u8>) {
        if self.over {
            return;
        }
        let header = Header {
            payload_type: packet.payload_type,
            marker: packet.marker,
            sequence: packet.sequence,
            timestamp: packet.timestamp,
            ssrc: packet.ssrc,
        };
        bytes.clear();
        header.write(bytes);
        bytes.extend_from_slice(packet.payload);
        self.newest = (packet.timestamp, now);
        self.sent.packets = self.sent.packets.wrapping_add(1);
        let octets = (bytes.len() - HEADER) as u32;
        self.sent.octets = self.sent.octets.wrapping_add(octets);
        if let Some(crypt) = &mut self.crypt {
            crypt.sealer.1.seal(bytes);
        }
        let to = self.ports.way_to(self.audio.address());
        if let Some((audio, _)) = self.ports.sockets() {
            // A full buffer of the kernel, or a network that is away, is a lost packet.
            if datagram::send(audio, bytes, to) {
                self.written += bytes.len() as u64;
            }
        }
    }

    /// Sends the report that is due; how the network was since the one before.
    pub(super) fn report(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Quality> {
        if self.over || now < self.next_report {
            return None;
        }
        self.next_report = now + Duration::from_millis(rtcp::INTERVAL_MS);
        self.receptions.choose();
        self.send_report(now, false, bytes);
        let reception = self.receptions.main()?;
        let (lost_now, expected_now) = reception.lost_since();
        Some(Quality {
            rtt_ms: self.rtt_ms.map(f64::from),
            loss_pct: 100.0 * f64::from(lost_now) / f64::from(expected_now.max(1)),
            jitter_ms: f64::from(reception.jitter_ms()),
            remote_loss_pct: self.remote_loss.map(|lost| f64::from(lost) / 2.56),
            mos: None,
        })
    }

    /// The call is over: says so, and lets the ports rest.
    pub(super) fn close(&mut self, now: Time) {
        if !self.over {
            self.send_report(now, true, &mut Vec::new());
            self.over = true;
        }
    }

    fn send_report(&mut self, now: Time, bye: bool, bytes: &mut Vec<u8>) {
        let block = self.receptions.main().map(|main| main.block(now));
        let (timestamp, at) = self.newest;
        let since = now.since(at).as_micros() * u128::from(self.agreed.codec.clock()) / 1_000_000;
        let sent = (self.sent.packets > 0).then_some(Sent {
            timestamp: timestamp.wrapping_add(since as u32),
            ..self.sent
        });
        bytes.clear();
        rtcp::write(bytes, now, self.ssrc, sent, block, bye);
        if let Some(crypt) = &mut self.crypt {
            crypt.sealer.1.seal_report(bytes);
        }
        let mux = self.agreed.mux;
        let to = if mux {
            self.audio.address()
        } else {
            self.reports.address()
        };
        let to = self.ports.way_to(to);
        if let Some((audio, reports)) = self.ports.sockets() {
            let socket = if mux { audio } else { reports };
            // As for audio: it is a lost packet.
            if datagram::send(socket, bytes, to) {
                self.written += bytes.len() as u64;
            }
        }
    }

    /// Bytes read and written since the last asking.
    pub(super) fn take_traffic(&mut self) -> (u64, u64) {
        let traffic = (self.received - self.told.0, self.written - self.told.1);
        self.told = (self.received, self.written);
        traffic
    }
}

/// Whether a datagram only keeps a way open: an empty one, one of STUN, or RTP of a version that is none (RFC 6263
/// sections 4.1, 4.4 and 4.5).
fn is_keep_alive(datagram: &[u8]) -> bool {
    datagram.first().is_none_or(|first| first >> 6 == 0)
}

impl Crypt {
    /// What these keys make of it. A direction whose key stays keeps its count: begun anew, it would use its
    /// keystream twice (RFC 3711 section 9.1), and the other side would understand nothing after a wrap.
    fn renewed(before: Option<Self>, keys: Option<&KeyPair>) -> Option<Self> {
        let KeyPair { ours, theirs } = keys?;
        let (sealer, opener) = before.map(|crypt| (crypt.sealer, crypt.opener)).unzip();
        let sealer = sealer.filter(|(key, _)| key == ours);
        let opener = opener.filter(|(key, _)| key == theirs);
        Some(Self {
            sealer: sealer.unwrap_or_else(|| (ours.clone(), Sealer::new(ours))),
            opener: opener.unwrap_or_else(|| (theirs.clone(), Opener::new(theirs))),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, UdpSocket};

    use super::super::ports::Ports;
    use super::*;
    use crate::rtp::sdp::{Codec, Flow, Formats};
    use crate::rtp::srtp::Suite;

    fn keys(byte: u8) -> Keys {
        Keys::new(Suite::Aes128Tag80, &[byte; 30]).expect("keys")
    }

    fn packet(sequence: u16) -> Vec<u8> {
        packet_of(0, 7, sequence)
    }

    fn packet_of(payload_type: u8, ssrc: u32, sequence: u16) -> Vec<u8> {
        let mut packet = Vec::new();
        let header = Header {
            payload_type,
            marker: false,
            sequence,
            timestamp: 1,
            ssrc,
        };
        header.write(&mut packet);
        packet.extend([0x55; 160]);
        packet
    }

    /// A line of a call in PCMU, and sockets of its caller, who is told to be at the first two, and of a stranger.
    struct Bed {
        line: RtpLine,
        audio: UdpSocket,
        reports: UdpSocket,
        stranger: UdpSocket,
        to: u16,
        now: Time,
    }

    impl Bed {
        fn new(keys: Option<KeyPair>) -> Self {
            let here = IpAddr::from([127, 0, 0, 1]);
            let ports = Ports::new(here, 46_800, 46_899).expect("ports");
            let ports = ports.take().expect("a pair");
            let socket = || UdpSocket::bind((here, 0)).expect("a socket");
            let (audio, reports, stranger) = (socket(), socket(), socket());
            let to = ports.port();
            let agreed = Agreed {
                codec: Codec::Pcmu,
                payload_type: 0,
                events: Some(101),
                events_clock: 8_000,
                comfort_noise: None,
                heard: Formats::of((Codec::Pcmu, 0), Some(101), None),
                packet_ms: 20,
                most_bits: None,
                remote: audio.local_addr().expect("an address"),
                remote_reports: reports.local_addr().expect("an address"),
                mux: false,
                flow: Flow::SendRecv,
                keys,
            };
            let carrier = RtpCarrier {
                ports,
                agreed,
                ssrc: 99,
            };
            Self {
                line: RtpLine::new(carrier),
                audio,
                reports,
                stranger,
                to,
                now: Time::from_millis(100_000),
            }
        }

        /// What the line makes of a datagram: `p`acket, `r`eport or another sign of life, or nothing.
        fn take(&mut self, from: fn(&Self) -> (&UdpSocket, u16), bytes: &[u8]) -> char {
            let (socket, beside) = from(self);
            let to = (IpAddr::from([127, 0, 0, 1]), self.to + beside);
            socket.send_to(bytes, to).expect("sent");
            self.line.new_pass();
            self.line.ready(0);
            self.line.ready(1);
            match self.line.receive(self.now, &mut [0; LARGEST]) {
                Taken::Packet(_) => 'p',
                Taken::Report(_) => 'r',
                Taken::Nothing => '-',
            }
        }

        fn wait(&mut self, ms: u64) {
            self.now = self.now + Duration::from_millis(ms);
        }
    }

    const AUDIO: fn(&Bed) -> (&UdpSocket, u16) = |bed| (&bed.audio, 0);
    const REPORTS: fn(&Bed) -> (&UdpSocket, u16) = |bed| (&bed.reports, 1);
    const STRANGER: fn(&Bed) -> (&UdpSocket, u16) = |bed| (&bed.stranger, 0);

    /// A report of whoever sends this stream, with no block in it, and a goodbye.
    fn report(ssrc: u32, bye: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        rtcp::write(&mut bytes, Time::from_millis(5), ssrc, None, None, bye);
        bytes
    }

    #[test]
    fn whatever_the_caller_sends_is_a_sign_of_life() {
        let mut bed = Bed::new(None);
        assert_eq!(bed.take(AUDIO, &packet(1)), 'p');
        let signs: [&[u8]; 5] = [
            // A payload type that nobody agreed on; nothing; STUN; RTP of version 0 (RFC 6263).
            &packet_of(20, 7, 2),
            &[],
            &[0, 0x11, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4],
            &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7],
            &[0x20],
        ];
        for sign in signs {
            assert_eq!(bed.take(AUDIO, sign), 'r', "{sign:?}");
            assert_eq!(bed.take(STRANGER, sign), '-', "{sign:?}");
        }
        assert_eq!(bed.take(REPORTS, &report(7, false)), 'r');
        // What is no packet at all is none.
        assert_eq!(bed.take(AUDIO, &[0x80, 0]), '-');
        assert!(bed.line.refused > 0);
    }

    #[test]
    fn audio_that_comes_from_elsewhere_is_taken_when_the_known_has_ended() {
        for bye in [false, true] {
            let mut bed = Bed::new(None);
            for sequence in 0..50 {
                bed.wait(20);
                assert_eq!(bed.take(AUDIO, &packet(sequence)), 'p');
                assert_eq!(bed.take(STRANGER, &packet_of(0, 8, sequence)), '-');
            }
            if bye {
                assert_eq!(bed.take(REPORTS, &report(7, true)), 'r');
            }
            let mut silent = 0;
            for sequence in 50..200 {
                bed.wait(20);
                silent += 1;
                if bed.take(STRANGER, &packet_of(0, 8, sequence)) == 'p' {
                    break;
                }
            }
            // Steady is what has sent five packets since the known one sent its last.
            assert_eq!(silent, if bye { 4 } else { 100 });
            let address = bed.stranger.local_addr().expect("an address");
            assert_eq!(bed.line.audio.address(), address);
        }
    }

    #[test]
    fn whoever_has_the_key_is_the_caller() {
        let pair = KeyPair {
            ours: keys(1),
            theirs: keys(2),
        };
        let mut bed = Bed::new(Some(pair));
        let mut sealer = Sealer::new(&keys(2));
        let mut sealed = |sequence| {
            let mut bytes = packet(sequence);
            sealer.seal(&mut bytes);
            bytes
        };
        for sequence in 0..20 {
            assert_eq!(bed.take(AUDIO, &sealed(sequence)), 'p');
        }
        assert_eq!(bed.take(STRANGER, &packet(20)), '-', "in plain");
        let mut forged = packet(20);
        Sealer::new(&keys(3)).seal(&mut forged);
        assert_eq!(bed.take(STRANGER, &forged), '-', "another key");
        let moved = sealed(20);
        assert_eq!(bed.take(STRANGER, &moved), 'p');
        let address = bed.stranger.local_addr().expect("an address");
        assert_eq!(bed.line.audio.address(), address);
        assert_eq!(bed.take(AUDIO, &moved), '-', "once");
        // One that means nothing shows that the caller is there, in its key alone.
        assert_eq!(bed.take(STRANGER, &packet_of(20, 7, 21)), '-');
        let mut nothing = packet_of(20, 7, 21);
        sealer.seal(&mut nothing);
        assert_eq!(bed.take(STRANGER, &nothing), 'r');
    }

    #[test]
    fn audio_does_not_go_where_reports_come_from_that_do_not_share_its_port() {
        let pair = KeyPair {
            ours: keys(1),
            theirs: keys(2),
        };
        let mut bed = Bed::new(Some(pair));
        bed.line.agreed.mux = true;
        let mut sealer = Sealer::new(&keys(2));
        let mut audio = packet(1);
        sealer.seal(&mut audio);
        assert_eq!(bed.take(AUDIO, &audio), 'p');
        let mut sealed = || {
            let mut bytes = report(7, false);
            sealer.seal_report(&mut bytes);
            bytes
        };
        let address = |socket: &UdpSocket| socket.local_addr().expect("an address");
        assert_eq!(bed.take(REPORTS, &sealed()), 'r');
        assert_eq!(bed.line.audio.address(), address(&bed.audio));
        assert_eq!(bed.take(STRANGER, &sealed()), 'r');
        assert_eq!(bed.line.audio.address(), address(&bed.stranger));
    }

    #[test]
    fn a_direction_whose_key_stays_keeps_its_count() {
        let pair = |ours, theirs| KeyPair {
            ours: keys(ours),
            theirs: keys(theirs),
        };
        let sent = |sealer: &mut Sealer, sequence| {
            let mut packet = packet(sequence);
            sealer.seal(&mut packet);
            packet
        };
        let mut far = (Sealer::new(&keys(2)), Opener::new(&keys(1)));
        let mut crypt = Crypt::renewed(None, Some(&pair(1, 2))).expect("keys");
        // Both directions wrap.
        for sequence in [65_534, 65_535, 0] {
            let mut ours = sent(&mut crypt.sealer.1, sequence);
            assert!(far.1.open(&mut ours).is_ok());
            let mut theirs = sent(&mut far.0, sequence);
            assert!(crypt.opener.1.open(&mut theirs).is_ok());
        }
        // They change their key; ours goes on where it was.
        far.0 = Sealer::new(&keys(3));
        crypt = Crypt::renewed(Some(crypt), Some(&pair(1, 3))).expect("keys");
        let mut ours = sent(&mut crypt.sealer.1, 1);
        assert!(far.1.open(&mut ours).is_ok());
        let mut theirs = sent(&mut far.0, 1);
        assert!(crypt.opener.1.open(&mut theirs).is_ok());
        // We change ours; theirs goes on, and what came before is still known.
        far.1 = Opener::new(&keys(4));
        let again = sent(&mut far.0.clone(), 2);
        assert!(crypt.opener.1.open(&mut again.clone()).is_ok());
        crypt = Crypt::renewed(Some(crypt), Some(&pair(4, 3))).expect("keys");
        assert!(crypt.opener.1.open(&mut again.clone()).is_err());
        let mut ours = sent(&mut crypt.sealer.1, 2);
        assert!(far.1.open(&mut ours).is_ok());
        assert!(Crypt::renewed(Some(crypt), None).is_none());
    }
}
