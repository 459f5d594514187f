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
use crate::rtp::peer::Peer;
use crate::rtp::rtcp::{self, Reception, Sent};
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
    audio: Peer,
    reports: Peer,
    crypt: Option<Crypt>,
    /// Of the audio and of the reports.
    readable: [bool; 2],
    budget: u32,
    reception: Option<(u32, Reception)>,
    sent: Sent,
    /// The timestamp of the newest packet sent, and when.
    newest: (u32, Time),
    next_report: Time,
    rtt_ms: Option<u32>,
    remote_loss: Option<u8>,
    /// Lost and expected at the quality before.
    before: (u32, u32),
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
            audio: Peer::new(agreed.remote),
            reports: Peer::new(agreed.remote_reports),
            crypt: Crypt::renewed(None, agreed.keys.as_ref()),
            readable: [true; 2],
            budget: READ_BUDGET,
            reception: None,
            sent: Sent::default(),
            newest: (0, Time::from_micros(0)),
            next_report: Time::NEVER,
            rtt_ms: None,
            remote_loss: None,
            before: (0, 0),
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
                self.report_came(now, from, datagram).map(Taken::Report)
            } else if socket == 0 {
                self.packet_came(now, from, datagram).map(Taken::Packet)
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

    /// The length of the packet, decrypted in place; `None`: it is not the caller's.
    fn packet_came(
        &mut self,
        now: Time,
        from: std::net::SocketAddr,
        datagram: &mut [u8],
    ) -> Option<usize> {
        if !self.audio.may_send(now, from) {
            return None;
        }
        let length = match &mut self.crypt {
            Some(crypt) => crypt.opener.1.open(datagram).ok()?,
            None => datagram.len(),
        };
        let packet = Packet::parse(&datagram[..length])?;
        let format = self.agreed.format(packet.payload_type)?;
        self.audio.sent(now, from);
        if self
            .reception
            .as_ref()
            .is_none_or(|(ssrc, _)| *ssrc != packet.ssrc)
        {
            let clock = self.agreed.codec.clock();
            let reception = Reception::new(packet.ssrc, packet.sequence, clock);
            self.reception = Some((packet.ssrc, reception));
            self.before = (0, 0);
        }
        if let Some((_, reception)) = &mut self.reception {
            let timestamp = match format {
                Format::Audio(codec) => {
                    reception.count_in(codec.clock());
                    Some(packet.timestamp)
                }
                Format::Event | Format::Noise => None,
            };
            reception.packet(now, packet.sequence, timestamp);
        }
        Some(length)
    }

    fn report_came(
        &mut self,
        now: Time,
        from: std::net::SocketAddr,
        datagram: &mut [u8],
    ) -> Option<Report> {
        let peer = if self.agreed.mux {
            &mut self.audio
        } else {
            &mut self.reports
        };
        if !peer.may_send(now, from) {
            return None;
        }
        let length = match &mut self.crypt {
            Some(crypt) => crypt.opener.1.open_report(datagram).ok()?,
            None => datagram.len(),
        };
        let told = rtcp::parse(&datagram[..length], self.ssrc)?;
        if !self.agreed.mux {
            peer.sent(now, from);
        }
        if let (Some((_, reception)), Some(middle)) = (&mut self.reception, told.sender_time) {
            reception.report_came(now, middle);
        }
        let block = told.block?;
        self.rtt_ms = rtcp::round_trip_ms(now, &block).or(self.rtt_ms);
        self.remote_loss = Some(block.fraction_lost);
        Some(Report {
            round_trip_ms: self.rtt_ms,
            lost: block.fraction_lost,
        })
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
        self.send_report(now, false, bytes);
        let (_, reception) = self.reception.as_ref()?;
        let (lost, expected) = reception.lost();
        let (lost_now, expected_now) = (
            lost.saturating_sub(self.before.0),
            expected.saturating_sub(self.before.1),
        );
        self.before = (lost, expected);
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
        let block = self.reception.as_mut().map(|(_, r)| r.block(now));
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
    use super::*;
    use crate::rtp::srtp::Suite;

    fn keys(byte: u8) -> Keys {
        Keys::new(Suite::Aes128Tag80, &[byte; 30]).expect("keys")
    }

    fn packet(sequence: u16) -> Vec<u8> {
        let mut packet = Vec::new();
        let header = Header {
            payload_type: 0,
            marker: false,
            sequence,
            timestamp: 1,
            ssrc: 7,
        };
        header.write(&mut packet);
        packet.extend([0x55; 160]);
        packet
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
