//! RTP packets (RFC 3550 section 5.1).

/// The fixed part of a header, bytes.
pub const HEADER: usize = 12;

/// A packet (RFC 3550 section 5.1), borrowed from its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub payload_type: u8,
    /// On audio: the first packet after a silence (RFC 3551 section 4.1).
    pub marker: bool,
    pub sequence: u16,
    /// Samples of the codec's clock.
    pub timestamp: u32,
    pub ssrc: u32,
    pub payload: &'a [u8],
}

/// The header of a packet that is sent: no contributors, no extension, no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub payload_type: u8,
    pub marker: bool,
    pub sequence: u16,
    pub timestamp: u32,
    pub ssrc: u32,
}

impl<'a> Packet<'a> {
    /// `None`: not a packet of version 2, or one that is cut short.
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let from = header_length(datagram)?;
        let fixed: &[u8; HEADER] = datagram.first_chunk()?;
        let padding = if fixed[0] & 0x20 != 0 {
            // The last byte counts itself.
            Some(usize::from(*datagram.last()?)).filter(|padding| *padding > 0)?
        } else {
            0
        };
        let to = datagram.len().checked_sub(padding)?;
        Some(Self {
            payload_type: fixed[1] & 0x7f,
            marker: fixed[1] & 0x80 != 0,
            sequence: u16::from_be_bytes([fixed[2], fixed[3]]),
            timestamp: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            ssrc: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
            payload: datagram.get(from..to)?,
        })
    }
}

impl Header {
    /// Appends the header; the payload follows it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0x80, self.payload_type & 0x7f | u8::from(self.marker) << 7]);
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.ssrc.to_be_bytes());
    }
}

/// Where the payload of a packet begins: after contributors and extension. `None`: no RTP of version
/// 2, or one that is cut short.
pub fn header_length(datagram: &[u8]) -> Option<usize> {
    let first = *datagram.first()?;
    if first >> 6 != 2 {
        return None;
    }
    let mut length = HEADER + 4 * usize::from(first & 0x0f);
    if first & 0x10 != 0 {
        let words = datagram.get(length + 2..length + 4)?;
        length += 4 + 4 * usize::from(u16::from_be_bytes([words[0], words[1]]));
    }
    (length <= datagram.len()).then_some(length)
}

/// Whether a datagram on a port that both share is a report and no audio (RFC 5761 section 4).
pub fn is_rtcp(datagram: &[u8]) -> bool {
    datagram
        .get(1)
        .is_some_and(|kind| (192..=223).contains(kind))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let header = Header {
            payload_type: 101,
            marker: true,
            sequence: 0xfffe,
            timestamp: 0x8000_0001,
            ssrc: 0xcafe_babe,
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        bytes.extend_from_slice(&[1, 2, 3]);
        let packet = Packet::parse(&bytes).expect("a packet");
        assert_eq!(packet.payload, [1, 2, 3]);
        assert_eq!(
            (packet.payload_type, packet.marker, packet.sequence),
            (101, true, 0xfffe)
        );
        assert_eq!((packet.timestamp, packet.ssrc), (0x8000_0001, 0xcafe_babe));
    }

    #[test]
    fn contributors_extensions_and_padding_are_no_payload() {
        let mut bytes = vec![0x80 | 0x20 | 0x10 | 2, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        bytes.extend_from_slice(&[9; 8]);
        bytes.extend_from_slice(&[0xbe, 0xde, 0, 1, 7, 7, 7, 7]);
        bytes.extend_from_slice(&[5, 6, 0, 2]);
        assert_eq!(Packet::parse(&bytes).map(|p| p.payload), Some(&[5, 6][..]));
    }

    #[test]
    fn what_is_cut_short_is_no_packet() {
        let mut bytes = vec![
            0x80 | 0x10,
            0,
            0,
            1,
            0,
            0,
            0,
            2,
            0,
            0,
            0,
            3,
            0xbe,
            0xde,
            0,
            2,
        ];
        assert_eq!(Packet::parse(&bytes), None, "an extension beyond the end");
        bytes[0] = 0x80 | 15;
        assert_eq!(Packet::parse(&bytes), None, "contributors beyond the end");
        bytes[0] = 0x80 | 0x20;
        *bytes.last_mut().expect("a byte") = 200;
        assert_eq!(Packet::parse(&bytes), None, "padding beyond the header");
        bytes[0] = 0x40;
        assert_eq!(Packet::parse(&bytes), None, "version 1");
        assert_eq!(Packet::parse(&[0x80; 11]), None);
        assert_eq!(Packet::parse(&[]), None);
    }

    #[test]
    fn reports_are_told_from_audio_by_their_type() {
        assert!(is_rtcp(&[0x80, 200]));
        assert!(is_rtcp(&[0x81, 201]));
        assert!(!is_rtcp(&[0x80, 0]));
        assert!(!is_rtcp(&[0x80, 0x80 | 8]));
        assert!(!is_rtcp(&[0x80]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(packet) = Packet::parse(&bytes) {
                prop_assert!(packet.payload.len() + HEADER <= bytes.len());
            }
        }
    }
}
