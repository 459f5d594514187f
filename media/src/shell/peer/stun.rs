//! What must be known of a STUN message (RFC 8489) before it may reach anybody: whom it is for, and that
//! it is from somebody who knows the password.

use std::ops::Range;

use rtc::crypto::{HmacAlgorithm, RTCCrypto};

/// Bytes before the attributes (section 5).
const HEADER: usize = 20;

const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// Attribute types (section 18.3; RFC 8445 section 16.1).
const USERNAME: u16 = 0x0006;
const MESSAGE_INTEGRITY: u16 = 0x0008;
const USE_CANDIDATE: u16 = 0x0025;

/// Bytes of an HMAC-SHA1.
const TAG: usize = 20;

/// The number that joins a request and its answer.
pub(super) type Transaction = [u8; 12];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Request,
    Success,
    /// An error, or something that nobody here sends.
    Other,
}

/// One message of the method Binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    bytes: &'a [u8],
    pub(super) class: Class,
    pub(super) transaction: Transaction,
    /// The part of the user name before the colon: whom it is for.
    pub(super) to: Option<&'a str>,
    pub(super) nominates: bool,
    /// Where the tag stands, and with it the end of what it covers.
    tag: Option<Range<usize>>,
}

/// Whether the packet is STUN at all (RFC 7983 section 7, and the cookie).
pub(super) fn is_stun(packet: &[u8]) -> bool {
    packet.len() >= HEADER && packet[0] < 4 && packet[4..8] == COOKIE
}

impl<'a> Message<'a> {
    /// `None`: not a Binding message, or not well-formed.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        if !is_stun(bytes) || bytes.len() != HEADER + usize::from(word(bytes, 2)?) {
            return None;
        }
        let class = match word(bytes, 0)? {
            0x0001 => Class::Request,
            0x0101 => Class::Success,
            0x0111 => Class::Other,
            _ => return None,
        };
        let mut message = Self {
            bytes,
            class,
            transaction: Transaction::try_from(&bytes[8..HEADER]).ok()?,
            to: None,
            nominates: false,
            tag: None,
        };
        let mut at = HEADER;
        while at < bytes.len() {
            let (kind, length) = (word(bytes, at)?, usize::from(word(bytes, at + 2)?));
            let value = bytes.get(at + 4..at + 4 + length)?;
            match kind {
                MESSAGE_INTEGRITY if length == TAG && message.tag.is_none() => {
                    message.tag = Some(at + 4..at + 4 + TAG);
                }
                // What stands behind the tag is not covered by it (section 14.5).
                _ if message.tag.is_some() => {}
                USERNAME => {
                    let name = std::str::from_utf8(value).ok()?;
                    message.to = Some(name.split(':').next().unwrap_or_default());
                }
                USE_CANDIDATE => message.nominates = true,
                _ => {}
            }
            at += 4 + length.next_multiple_of(4);
        }
        Some(message)
    }

    /// Whether its tag was made with this password.
    pub(super) fn is_from_one_who_knows(&self, password: &str, crypto: &dyn RTCCrypto) -> bool {
        let Some(tag) = self.tag.clone() else {
            return false;
        };
        // The length that is covered ends with the tag (section 14.5).
        let length = ((tag.end - HEADER) as u16).to_be_bytes();
        let parts: [&[u8]; 3] = [&self.bytes[..2], &length, &self.bytes[4..tag.start - 4]];
        crypto
            .new_hmac(HmacAlgorithm::Sha1, password.as_bytes())
            .and_then(|mut mac| mac.verify(&parts, &self.bytes[tag]))
            .is_ok()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The sample request of RFC 5769 section 2.1; user name `evtj:h6vY`.
    const SAMPLE: &[u8] = b"\x00\x01\x00\x58\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
        \x80\x22\x00\x10STUN test client\x00\x24\x00\x04\x6e\x00\x01\xff\x80\x29\x00\x08\x93\x2f\xf9\xb1\x51\x26\x3b\x36\
        \x00\x06\x00\x09\x65\x76\x74\x6a\x3a\x68\x36\x76\x59\x20\x20\x20\x00\x08\x00\x14\x9a\xea\xa7\x0c\xbf\xd8\xcb\x56\
        \x78\x1e\xf2\xb5\xb2\xd3\xf2\x49\xc1\xb5\x71\xa2\x80\x28\x00\x04\xe5\x7a\x3b\xcf";

    const PASSWORD: &str = "VOkJxbRl1RmTxUk/WvJxBt";

    #[test]
    fn the_sample_request_is_read_and_believed() {
        let provider = rtc::crypto::default_provider().expect("a provider");
        let message = Message::read(SAMPLE).expect("a message");
        assert_eq!((message.class, message.to), (Class::Request, Some("evtj")));
        assert!(!message.nominates);
        assert!(message.is_from_one_who_knows(PASSWORD, provider.crypto()));
        assert!(!message.is_from_one_who_knows("VOkJxbRl1RmTxUk/WvJxBT", provider.crypto()));
    }

    proptest! {
        /// No bit of what the tag covers can be changed.
        #[test]
        fn a_changed_message_is_not_believed(at in 0_usize..100, bit in 0_u32..8) {
            let provider = rtc::crypto::default_provider().expect("a provider");
            let mut bytes = SAMPLE.to_vec();
            bytes[at] ^= 1 << bit;
            if let Some(message) = Message::read(&bytes) {
                // The length is covered as it was when the tag was made.
                prop_assert!(!message.is_from_one_who_knows(PASSWORD, provider.crypto()));
            }
        }

        #[test]
        fn any_bytes_are_read_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            if bytes.len() >= HEADER {
                bytes[0] = 0;
                bytes[4..8].copy_from_slice(&COOKIE);
                let length = (bytes.len() - HEADER) as u16;
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
            }
            let _ = Message::read(&bytes);
        }
    }
}
