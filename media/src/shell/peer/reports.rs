//! What the caller's receiver reports say of our packets (RFC 3550 section 6.4): loss, and the round
//! trip. The core makes and reads reports, but does not measure.
//!
//! The core also drops packets of a stream whose SSRC the description does not name, and of a second one where it names
//! none. Descriptions need not name it, and streams may change it (RFC 8843 section 9.2): the connection has one audio that
//! is heard, so every stream is its, whose packets have a payload type of it. Here the core is told of all of them under the
//! one name that it knows; the connection reads the real one from the datagram.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rtc::interceptor::{Interceptor, Packet, StreamInfo, TaggedPacket};
use rtc::rtcp::receiver_report::ReceiverReport;
use rtc::rtcp::reception_report::ReceptionReport;
use rtc::rtcp::sender_report::SenderReport;
use rtc::sansio::Protocol;
use rtc::shared::error::Error;

/// Our reports that an answer may still name: one is sent a second.
const REMEMBERED: usize = 8;

/// What was measured, for the thread that owns the connection: atomic only because the core asks for it.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Reports that came.
    pub(super) count: AtomicU32,
    /// Microseconds; 0: not known.
    pub(super) round_trip: AtomicU32,
    /// In 256ths.
    pub(super) lost: AtomicU32,
    /// The stream of the caller's audio that the core was told of; 0: none.
    pub(super) declared: AtomicU32,
}

/// Looks at the reports on their way.
pub(super) struct Reports {
    ours: u32,
    measured: Arc<Measured>,
    /// The middle of the NTP times of our reports, and when they left.
    sent: VecDeque<(u32, Instant)>,
    /// The stream that the core has found by itself, and the newest that came.
    found: Option<u32>,
    newest: Option<u32>,
    reads: VecDeque<TaggedPacket>,
    writes: VecDeque<TaggedPacket>,
}

impl Reports {
    /// `ours`: the SSRC of our stream.
    pub(super) fn new(ours: u32, measured: Arc<Measured>) -> Self {
        Self {
            ours,
            measured,
            sent: VecDeque::with_capacity(REMEMBERED),
            found: None,
            newest: None,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
        }
    }

    /// The name under which the core knows the caller's stream.
    fn known(&self) -> Option<u32> {
        let declared = self.measured.declared.load(Ordering::Relaxed);
        Some(declared).filter(|ssrc| *ssrc != 0).or(self.found)
    }

    /// A report of ours names the caller's stream as the caller does.
    fn named_as_it_is(&self, part: &dyn rtc::rtcp::Packet) -> Option<ReceiverReport> {
        let (known, newest) = (self.known()?, self.newest?);
        let report = part.as_any().downcast_ref::<ReceiverReport>()?;
        let names = report.reports.iter().any(|report| report.ssrc == known);
        if known == newest || !names {
            return None;
        }
        let mut report = report.clone();
        for block in &mut report.reports {
            if block.ssrc == known {
                block.ssrc = newest;
            }
        }
        Some(report)
    }

    fn read(&self, now: Instant, report: &ReceptionReport) {
        if report.ssrc != self.ours {
            return;
        }
        let named = self
            .sent
            .iter()
            .find(|(middle, _)| *middle == report.last_sender_report);
        if let Some((_, left)) = named {
            let there = u64::from(report.delay) * 1_000_000 / 65_536;
            let away =
                (now.saturating_duration_since(*left).as_micros() as u64).saturating_sub(there);
            let micros = u32::try_from(away).unwrap_or(u32::MAX).max(1);
            self.measured.round_trip.store(micros, Ordering::Relaxed);
        }
        let lost = u32::from(report.fraction_lost);
        self.measured.lost.store(lost, Ordering::Relaxed);
        self.measured.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Protocol<TaggedPacket, TaggedPacket, ()> for Reports {
    type Rout = TaggedPacket;
    type Wout = TaggedPacket;
    type Eout = ();
    type Error = Error;
    type Time = Instant;

    fn handle_read(&mut self, mut packet: TaggedPacket) -> Result<(), Error> {
        if let Packet::Rtp(packet) = &mut packet.message.packet {
            let header = &mut packet.header;
            self.newest = Some(header.ssrc);
            header.ssrc = self.known().unwrap_or(header.ssrc);
        }
        if let Packet::Rtcp(compound) = &packet.message.packet {
            for part in compound {
                let part = part.as_any();
                let reports = part
                    .downcast_ref::<ReceiverReport>()
                    .map(|report| &report.reports)
                    .or_else(|| {
                        part.downcast_ref::<SenderReport>()
                            .map(|report| &report.reports)
                    });
                for report in reports.into_iter().flatten() {
                    self.read(packet.now, report);
                }
            }
        }
        self.reads.push_back(packet);
        Ok(())
    }

    fn poll_read(&mut self) -> Option<TaggedPacket> {
        self.reads.pop_front()
    }

    fn handle_write(&mut self, mut packet: TaggedPacket) -> Result<(), Error> {
        if let Packet::Rtcp(compound) = &mut packet.message.packet {
            for part in compound {
                if let Some(named) = self.named_as_it_is(part.as_ref()) {
                    *part = Box::new(named);
                }
                if let Some(report) = part.as_any().downcast_ref::<SenderReport>() {
                    if self.sent.len() == REMEMBERED {
                        self.sent.pop_front();
                    }
                    self.sent
                        .push_back(((report.ntp_time >> 16) as u32, packet.now));
                }
            }
        }
        self.writes.push_back(packet);
        Ok(())
    }

    fn poll_write(&mut self) -> Option<TaggedPacket> {
        self.writes.pop_front()
    }
}

impl Interceptor for Reports {
    fn bind_local_stream(&mut self, _: &StreamInfo) {}
    fn unbind_local_stream(&mut self, _: &StreamInfo) {}

    fn bind_remote_stream(&mut self, stream: &StreamInfo) {
        self.found = Some(stream.ssrc);
    }

    fn unbind_remote_stream(&mut self, _: &StreamInfo) {}
}
