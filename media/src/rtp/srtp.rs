//! Encryption of audio and reports (RFC 3711): AES in counter mode and HMAC-SHA1, the suites that
//! telephones offer (RFC 4568 section 6.2; 256 bits: RFC 6188). In place and without the heap.
//!
//! The sending side keeps the roll-over count of its one stream; the receiving side keeps one, with a
//! window of what was taken, for each stream that proved authentic.

use aes::cipher::{KeyIvInit, StreamCipher};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha1::Sha1;

use super::packet::{HEADER, header_length};

/// Bytes of a master salt, and of a session's.
const SALT: usize = 14;
/// Bytes of the index that ends a report, with the bit that says that it is encrypted.
const INDEX: usize = 4;
/// The longest tag, bytes.
pub const MOST_TAG: usize = 10;
/// Packets behind the newest that may still come, once each.
const WINDOW: u64 = 64;
/// Streams of one sender at a time: a transfer or a re-INVITE begins a new one, packets of the old one trickle in, and
/// keypad events or music may have one of their own. Who was silent for the longest time is forgotten first.
const MOST_STREAMS: usize = 16;

/// What is used, by its name in SDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Suite {
    #[serde(rename = "AES_CM_128_HMAC_SHA1_80")]
    Aes128Tag80,
    #[serde(rename = "AES_CM_128_HMAC_SHA1_32")]
    Aes128Tag32,
    #[serde(rename = "AES_256_CM_HMAC_SHA1_80")]
    Aes256Tag80,
    #[serde(rename = "AES_256_CM_HMAC_SHA1_32")]
    Aes256Tag32,
}

impl Suite {
    /// In the order in which they are offered.
    pub const ALL: [Self; 4] = [
        Self::Aes128Tag80,
        Self::Aes128Tag32,
        Self::Aes256Tag80,
        Self::Aes256Tag32,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Tag80 => "AES_CM_128_HMAC_SHA1_80",
            Self::Aes128Tag32 => "AES_CM_128_HMAC_SHA1_32",
            Self::Aes256Tag80 => "AES_256_CM_HMAC_SHA1_80",
            Self::Aes256Tag32 => "AES_256_CM_HMAC_SHA1_32",
        }
    }

    /// The suite of this name, whatever its case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|suite| suite.name().eq_ignore_ascii_case(name))
    }

    const fn key_length(self) -> usize {
        match self {
            Self::Aes128Tag80 | Self::Aes128Tag32 => 16,
            Self::Aes256Tag80 | Self::Aes256Tag32 => 32,
        }
    }

    /// Bytes of master key and salt together.
    pub const fn material(self) -> usize {
        self.key_length() + SALT
    }

    /// Bytes of the tag of audio. A report's is always the long one (RFC 3711 section 5.2).
    const fn tag(self) -> usize {
        match self {
            Self::Aes128Tag80 | Self::Aes256Tag80 => 10,
            Self::Aes128Tag32 | Self::Aes256Tag32 => 4,
        }
    }
}

/// Master key and salt of one direction, or several of them, told by what stands in each packet. Not shown by `Debug`, not
/// written to tapes.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    pub suite: Suite,
    /// [`Suite::material`] bytes.
    material: Vec<u8>,
    /// The bytes of each packet that say that it has this key (the master key identifier, RFC 3711 section 3.1); none where
    /// there is one key alone that needs no name.
    identifier: Vec<u8>,
    /// Further keys with an identifier as long as the first one's: identifier and material.
    further: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The longest identifier of a key, bytes (RFC 4568 section 6.1).
pub const LONGEST_IDENTIFIER: usize = 128;

impl Keys {
    /// `None`: not as many bytes as the suite wants.
    pub fn new(suite: Suite, material: &[u8]) -> Option<Self> {
        (material.len() == suite.material()).then(|| Self {
            suite,
            material: material.to_vec(),
            identifier: Vec::new(),
            further: Vec::new(),
        })
    }

    /// The keys of one direction that has several, each with the identifier of its packets. `None`: there is none, one has not as
    /// many bytes as the suite wants, or their identifiers are not of one length or not different.
    pub fn identified(suite: Suite, keys: &[(Vec<u8>, Vec<u8>)]) -> Option<Self> {
        let ((identifier, material), further) = keys.split_first()?;
        let length = identifier.len();
        let fits = |(other, material): &(Vec<u8>, Vec<u8>)| {
            let once = keys.iter().filter(|(known, _)| known == other).count() == 1;
            once && other.len() == length && material.len() == suite.material()
        };
        let fit = (1..=LONGEST_IDENTIFIER).contains(&length) && keys.iter().all(fits);
        fit.then(|| Self {
            suite,
            material: material.clone(),
            identifier: identifier.clone(),
            further: further.to_vec(),
        })
    }

    pub fn material(&self) -> &[u8] {
        &self.material
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys")
            .field("suite", &self.suite)
            .finish_non_exhaustive()
    }
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No packet, or too short for one.
    Malformed,
    /// It was taken before, or is too old to tell.
    Replayed,
    /// Its tag is not that of its bytes.
    Forged,
}

/// AES in counter mode, its key 128 or 256 bits long.
#[derive(Clone)]
enum Cipher {
    Aes128([u8; 16]),
    Aes256([u8; 32]),
}

impl Cipher {
    fn apply(&self, iv: u128, bytes: &mut [u8]) {
        let iv = iv.to_be_bytes();
        match self {
            Self::Aes128(key) => {
                ctr::Ctr128BE::<aes::Aes128>::new(key.into(), &iv.into()).apply_keystream(bytes);
            }
            Self::Aes256(key) => {
                ctr::Ctr128BE::<aes::Aes256>::new(key.into(), &iv.into()).apply_keystream(bytes);
            }
        }
    }

    /// `key` has 16 or 32 bytes.
    fn new(key: &[u8]) -> Self {
        match (<[u8; 16]>::try_from(key), <[u8; 32]>::try_from(key)) {
            (Ok(key), _) => Self::Aes128(key),
            (_, Ok(key)) => Self::Aes256(key),
            _ => Self::Aes256([0; 32]),
        }
    }
}

/// The keys of a session, for audio or for reports.
#[derive(Clone)]
struct Session {
    cipher: Cipher,
    /// In the upper 112 bits.
    salt: u128,
    mac: Hmac<Sha1>,
}

impl Session {
    /// `label`: 0 for audio, 3 for reports (RFC 3711 sections 4.3.1 and 4.3.2).
    fn derive(keys: &Keys, label: u8) -> Self {
        Self::of((keys.suite, &keys.material), label)
    }

    fn of((suite, material): (Suite, &[u8]), label: u8) -> Self {
        let (key, salt) = material.split_at(suite.key_length());
        let master = Cipher::new(key);
        let salt = salt
            .iter()
            .fold(0_u128, |word, byte| word << 8 | u128::from(*byte))
            << 16;
        let derive = |label: u8, out: &mut [u8]| {
            out.fill(0);
            master.apply(salt ^ u128::from(label) << 64, out);
        };
        let mut cipher = [0; 32];
        let cipher = &mut cipher[..key.len()];
        derive(label, cipher);
        let mut auth = [0; 20];
        derive(label + 1, &mut auth);
        let mut session_salt = [0; 16];
        derive(label + 2, &mut session_salt[..SALT]);
        Self {
            cipher: Cipher::new(cipher),
            salt: u128::from_be_bytes(session_salt),
            mac: hmac(&auth),
        }
    }

    fn crypt(&self, ssrc: u32, index: u64, bytes: &mut [u8]) {
        let iv = self.salt ^ u128::from(ssrc) << 64 ^ u128::from(index) << 16;
        self.cipher.apply(iv, bytes);
    }

    fn tag(&self, bytes: &[u8], also: Option<u32>) -> [u8; 20] {
        let mut mac = self.mac.clone();
        mac.update(bytes);
        if let Some(also) = also {
            mac.update(&also.to_be_bytes());
        }
        mac.finalize().into_bytes().into()
    }
}

#[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
fn hmac(key: &[u8; 20]) -> Hmac<Sha1> {
    Hmac::new_from_slice(key).expect("HMAC takes any key")
}

/// Equal, in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
}

/// Encrypts what we send.
#[derive(Clone)]
pub struct Sealer {
    suite: Suite,
    audio: Session,
    reports: Session,
    roc: u32,
    last: Option<u16>,
    report: u32,
}

impl Sealer {
    pub fn new(keys: &Keys) -> Self {
        Self {
            suite: keys.suite,
            audio: Session::derive(keys, 0),
            reports: Session::derive(keys, 3),
            roc: 0,
            last: None,
            report: 0,
        }
    }

    /// Encrypts an RTP packet of ours and appends its tag. Packets come in the order of their
    /// numbers.
    pub fn seal(&mut self, packet: &mut Vec<u8>) {
        let Some(from) = header_length(packet) else {
            return packet.clear();
        };
        let (sequence, ssrc) = identity(packet);
        if self.last.is_some_and(|last| sequence < last) {
            self.roc = self.roc.wrapping_add(1);
        }
        self.last = Some(sequence);
        let index = u64::from(self.roc) << 16 | u64::from(sequence);
        self.audio.crypt(ssrc, index, &mut packet[from..]);
        let tag = self.audio.tag(packet, Some(self.roc));
        packet.extend_from_slice(&tag[..self.suite.tag()]);
    }

    /// Encrypts a report of ours and appends its index and tag.
    pub fn seal_report(&mut self, report: &mut Vec<u8>) {
        let Some(ssrc) = report_ssrc(report) else {
            return report.clear();
        };
        self.report = (self.report + 1) & 0x7fff_ffff;
        self.reports
            .crypt(ssrc, self.report.into(), &mut report[8..]);
        report.extend_from_slice(&(self.report | 1 << 31).to_be_bytes());
        let tag = self.reports.tag(report, None);
        report.extend_from_slice(&tag[..MOST_TAG]);
    }
}

/// What was taken of a stream: its newest index and, bit by bit, those before.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    newest: u64,
    /// Bit 0 is the newest. 0: nothing was taken.
    bits: u64,
}

impl Taken {
    fn is_new(&self, index: u64) -> bool {
        if self.bits == 0 || index > self.newest {
            return true;
        }
        let behind = self.newest - index;
        behind < WINDOW && self.bits >> behind & 1 == 0
    }

    fn take(&mut self, index: u64) {
        if self.bits == 0 {
            *self = Self {
                newest: index,
                bits: 1,
            };
        } else if index > self.newest {
            self.bits = self
                .bits
                .checked_shl(u32::try_from(index - self.newest).unwrap_or(u32::MAX))
                .unwrap_or(0)
                | 1;
            self.newest = index;
        } else {
            self.bits |= 1 << (self.newest - index);
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    ssrc: u32,
    audio: Taken,
    reports: Taken,
}

/// Decrypts what is received, and takes each packet once.
#[derive(Clone)]
pub struct Opener {
    suite: Suite,
    keys: Vec<Key>,
    /// The newest first.
    streams: Vec<Stream>,
}

/// One of the keys that packets may have.
#[derive(Clone)]
struct Key {
    identifier: Vec<u8>,
    audio: Session,
    reports: Session,
}

impl Key {
    fn new(suite: Suite, identifier: &[u8], material: &[u8]) -> Self {
        Self {
            identifier: identifier.to_vec(),
            audio: Session::of((suite, material), 0),
            reports: Session::of((suite, material), 3),
        }
    }
}

impl Opener {
    pub fn new(keys: &Keys) -> Self {
        let further = keys
            .further
            .iter()
            .map(|(identifier, material)| Key::new(keys.suite, identifier, material));
        let first = Key::new(keys.suite, &keys.identifier, &keys.material);
        Self {
            suite: keys.suite,
            keys: std::iter::once(first).chain(further).collect(),
            streams: Vec::with_capacity(MOST_STREAMS),
        }
    }

    /// Bytes of the identifier in each packet.
    fn identifier(&self) -> usize {
        self.keys[0].identifier.len()
    }

    /// Whose key is named before the tag that ends the packet.
    fn key(&self, identifier: &[u8]) -> Result<usize, Refused> {
        let mut keys = self.keys.iter();
        let named = keys.position(|key| key.identifier == identifier);
        named.ok_or(Refused::Forged)
    }

    /// Decrypts an RTP packet in place and tells its length. A refused one is as it was, and leaves no
    /// trace.
    pub fn open(&mut self, datagram: &mut [u8]) -> Result<usize, Refused> {
        let tag = self.suite.tag();
        let identifier = self.identifier();
        let end = datagram
            .len()
            .checked_sub(tag + identifier)
            .filter(|end| *end >= HEADER)
            .ok_or(Refused::Malformed)?;
        let from = header_length(&datagram[..end]).ok_or(Refused::Malformed)?;
        let (sequence, ssrc) = identity(datagram);
        let stream = self.stream(ssrc);
        let index = index_of(&stream.audio, sequence);
        if !stream.audio.is_new(index) {
            return Err(Refused::Replayed);
        }
        let (bytes, told) = datagram.split_at_mut(end);
        let (named, told) = told.split_at(identifier);
        let key = &self.keys[self.key(named)?].audio;
        let roc = (index >> 16) as u32;
        if !same(&key.tag(bytes, Some(roc))[..tag], told) {
            return Err(Refused::Forged);
        }
        key.crypt(ssrc, index, &mut bytes[from..]);
        self.keep(ssrc).audio.take(index);
        Ok(end)
    }

    /// The same for a report.
    pub fn open_report(&mut self, datagram: &mut [u8]) -> Result<usize, Refused> {
        let end = datagram
            .len()
            .checked_sub(MOST_TAG + self.identifier() + INDEX)
            .ok_or(Refused::Malformed)?;
        let ssrc = report_ssrc(&datagram[..end]).ok_or(Refused::Malformed)?;
        let (signed, told) = datagram.split_at_mut(end + INDEX);
        let word = signed
            .last_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let index = word & 0x7fff_ffff;
        if !self.stream(ssrc).reports.is_new(index.into()) {
            return Err(Refused::Replayed);
        }
        let (named, told) = told.split_at(self.identifier());
        let key = &self.keys[self.key(named)?].reports;
        if !same(&key.tag(signed, None)[..MOST_TAG], told) {
            return Err(Refused::Forged);
        }
        if word >> 31 == 1 {
            key.crypt(ssrc, index.into(), &mut signed[8..end]);
        }
        self.keep(ssrc).reports.take(index.into());
        Ok(end)
    }

    fn stream(&self, ssrc: u32) -> Stream {
        let known = self.streams.iter().find(|stream| stream.ssrc == ssrc);
        known.copied().unwrap_or(Stream {
            ssrc,
            ..Stream::default()
        })
    }

    /// The stream of an authentic packet, to be changed.
    fn keep(&mut self, ssrc: u32) -> &mut Stream {
        let known = self.streams.iter().position(|stream| stream.ssrc == ssrc);
        match known {
            // Two that take turns need not change places at each packet.
            Some(at @ 0..2) => return &mut self.streams[at],
            Some(at) => self.streams[..=at].rotate_right(1),
            None => {
                self.streams.truncate(MOST_STREAMS - 1);
                self.streams.insert(
                    0,
                    Stream {
                        ssrc,
                        ..Stream::default()
                    },
                );
            }
        }
        &mut self.streams[0]
    }
}

/// The index of a packet, guessed from the newest one (RFC 3711 appendix A).
fn index_of(taken: &Taken, sequence: u16) -> u64 {
    let sequence = u64::from(sequence);
    if taken.bits == 0 {
        return sequence;
    }
    let newest = taken.newest;
    let same = newest & !0xffff | sequence;
    if same + 0x8000 < newest {
        same + 0x1_0000
    } else if same > newest + 0x8000 {
        same.checked_sub(0x1_0000).unwrap_or(same)
    } else {
        same
    }
}

fn identity(packet: &[u8]) -> (u16, u32) {
    packet.first_chunk::<HEADER>().map_or((0, 0), |fixed| {
        (
            u16::from_be_bytes([fixed[2], fixed[3]]),
            u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        )
    })
}

/// The sender of a report. `None`: not a report of version 2.
fn report_ssrc(report: &[u8]) -> Option<u32> {
    let head: &[u8; 8] = report.first_chunk()?;
    (head[0] >> 6 == 2).then(|| u32::from_be_bytes([head[4], head[5], head[6], head[7]]))
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a failed step is a failed test")]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text
            .chars()
            .filter_map(|c| c.to_digit(16))
            .map(|digit| digit as u8)
            .collect();
        digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect()
    }

    /// RFC 3711 appendix B.3.
    fn keys(suite: Suite) -> Keys {
        let material = hex("E1F97A0D3E018BE0D64FA32C06DE4139 0EC675AD498AFEEBB6960B3AABE6");
        Keys::new(suite, &material).expect("as long as it must be")
    }

    #[test]
    fn the_key_stream_is_that_of_the_rfc() {
        // Appendix B.2.
        let cipher = Cipher::new(&hex("2B7E151628AED2A6ABF7158809CF4F3C"));
        let salt = u128::from_be_bytes(
            hex("F0F1F2F3F4F5F6F7F8F9FAFBFCFD0000")
                .try_into()
                .expect("16 bytes"),
        );
        let mut stream = vec![0; 0xff03 * 16];
        cipher.apply(salt, &mut stream);
        for (block, expected) in [
            (0, "E03EAD0935C95E80E166B16DD92B4EB4"),
            (1, "D23513162B02D0F72A43A2FE4A5F97AB"),
            (2, "41E95B3BB0A2E8DD477901E4FCA894C0"),
            (0xfeff, "EC8CDF7398607CB0F2D21675EA9EA1E4"),
            (0xff00, "362B7C3C6773516318A077D7FC5073AE"),
            (0xff01, "6A2CC3787889374FBEB4C81B17BA6C44"),
        ] {
            assert_eq!(stream[block * 16..][..16], hex(expected)[..], "{block:x}");
        }
    }

    #[test]
    fn the_session_keys_are_those_of_the_rfc() {
        // Appendix B.3.
        let session = Session::derive(&keys(Suite::Aes128Tag80), 0);
        let Cipher::Aes128(key) = session.cipher else {
            panic!("128 bits");
        };
        assert_eq!(key[..], hex("C61E7A93744F39EE10734AFE3FF7A087")[..]);
        let salt = session.salt.to_be_bytes();
        assert_eq!(salt[..SALT], hex("30CBBC08863D8C85D49DB34A9AE1")[..]);
        let auth = hex("CEBE321F6FF7716B6FD4AB49AF256A156D38BAA4");
        let expected = hmac(&auth.try_into().expect("20 bytes"))
            .chain_update(b"x")
            .finalize();
        let mac = session.mac.clone().chain_update(b"x").finalize();
        assert_eq!(mac.into_bytes(), expected.into_bytes());
    }

    #[test]
    fn a_packet_and_a_report_are_those_of_the_reference_implementation() {
        // libsrtp, test/srtp_driver.c.
        let plain = hex("800f1234decafbadcafebabe abababababababababababababababab");
        let secret =
            hex("800f1234decafbadcafebabe 4e55dc4ce79978d88ca4d215949d2402 b78d6acc99ea179b8dbb");
        let mut packet = plain.clone();
        Sealer::new(&keys(Suite::Aes128Tag80)).seal(&mut packet);
        assert_eq!(packet, secret);
        let mut opener = Opener::new(&keys(Suite::Aes128Tag80));
        assert_eq!(opener.open(&mut packet), Ok(plain.len()));
        assert_eq!(packet[..plain.len()], plain);

        let plain = hex("81c8000bcafebabe abababababababababababababababab");
        let secret =
            hex("81c8000bcafebabe 7128035be487b9bdbef89041f977a5a8 80000001 993e08cd54d6c1230798");
        let mut report = plain.clone();
        Sealer::new(&keys(Suite::Aes128Tag80)).seal_report(&mut report);
        assert_eq!(report, secret);
        assert_eq!(opener.open_report(&mut report), Ok(plain.len()));
        assert_eq!(report[..plain.len()], plain);
    }

    fn packet(sequence: u16) -> Vec<u8> {
        let mut packet = vec![0x80, 0];
        packet.extend(sequence.to_be_bytes());
        packet.extend([0, 0, 0, 1, 0, 0, 0, 2]);
        packet.extend([0x55; 160]);
        packet
    }

    fn suites() -> impl Iterator<Item = Keys> {
        Suite::ALL.into_iter().map(|suite| {
            let material: Vec<u8> = (0..suite.material() as u8).collect();
            Keys::new(suite, &material).expect("as long as it must be")
        })
    }

    #[test]
    fn every_suite_opens_what_it_sealed_across_a_roll_over() {
        for keys in suites() {
            let (mut sealer, mut opener) = (Sealer::new(&keys), Opener::new(&keys));
            for count in 0..70_000_u32 {
                let plain = packet((count + 65_000) as u16);
                let mut bytes = plain.clone();
                sealer.seal(&mut bytes);
                assert_ne!(bytes[12..172], plain[12..]);
                // Every tenth is lost.
                if count % 10 != 0 {
                    assert_eq!(opener.open(&mut bytes), Ok(172), "{count}");
                    assert_eq!(bytes[..172], plain);
                }
            }
        }
    }

    #[test]
    fn a_packet_is_taken_once_and_never_with_a_bit_changed() {
        for keys in suites() {
            let (mut sealer, mut opener) = (Sealer::new(&keys), Opener::new(&keys));
            let sealed: Vec<Vec<u8>> = (1..200)
                .map(|sequence| {
                    let mut bytes = packet(sequence);
                    sealer.seal(&mut bytes);
                    bytes
                })
                .collect();
            for bit in 0..sealed[0].len() * 8 {
                let mut changed = sealed[0].clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let before = changed.clone();
                assert!(opener.open(&mut changed).is_err(), "bit {bit}");
                assert_eq!(changed, before, "a refused packet is as it was");
            }
            // Overtaken by up to 63 they are taken, and no second time.
            for pair in sealed.chunks(64) {
                for bytes in pair.iter().rev() {
                    assert_eq!(opener.open(&mut bytes.clone()), Ok(172));
                }
                for bytes in pair {
                    assert_eq!(opener.open(&mut bytes.clone()), Err(Refused::Replayed));
                }
            }
            assert_eq!(
                opener.open(&mut sealed[0].clone()),
                Err(Refused::Replayed),
                "too old"
            );
            for length in 0..20 {
                let mut short = sealed[1][..length].to_vec();
                assert!(opener.open(&mut short).is_err());
                assert!(opener.open_report(&mut short).is_err());
            }
        }
    }

    #[test]
    fn strangers_take_no_room_and_few_streams_are_remembered() {
        let keys = keys(Suite::Aes128Tag80);
        let mut opener = Opener::new(&keys);
        for ssrc in 0..1_000_u32 {
            let mut bytes = packet(1);
            bytes[8..12].copy_from_slice(&ssrc.to_be_bytes());
            let mut forged = bytes.clone();
            forged.extend([0; 10]);
            assert_eq!(opener.open(&mut forged), Err(Refused::Forged));
            let mut sealer = Sealer::new(&keys);
            sealer.seal(&mut bytes);
            if ssrc % 10 == 0 {
                assert_eq!(opener.open(&mut bytes), Ok(172));
            }
            assert!(opener.streams.len() <= MOST_STREAMS);
        }
    }

    /// The sound of one stream under the number of a roll-over, while others come and go.
    #[test]
    fn a_stream_that_goes_on_is_remembered_however_many_others_come() {
        let keys = keys(Suite::Aes128Tag80);
        let mut opener = Opener::new(&keys);
        let mut voice = Sealer::new(&keys);
        for count in 0..2_000_u32 {
            let mut bytes = packet((count + 64_900) as u16);
            voice.seal(&mut bytes);
            assert_eq!(opener.open(&mut bytes), Ok(172), "{count}");
            let mut other = packet(1);
            other[8..12].copy_from_slice(&(1_000 + count % 15).to_be_bytes());
            other[2..4].copy_from_slice(&(count as u16 / 15 + 1).to_be_bytes());
            Sealer::new(&keys).seal(&mut other);
            assert_eq!(opener.open(&mut other), Ok(172), "{count}");
            let mut stray = packet(1);
            stray[8..12].copy_from_slice(&(50_000 + count).to_be_bytes());
            Sealer::new(&keys).seal(&mut stray);
            if count % 100 == 0 {
                assert_eq!(opener.open(&mut stray), Ok(172), "{count}");
            }
        }
    }

    #[test]
    fn packets_name_their_key_where_there_are_several() {
        for suite in Suite::ALL {
            let material = |byte: u8| vec![byte; suite.material()];
            let given = [
                (vec![0, 0, 0, 1], material(1)),
                (vec![0, 0, 0, 2], material(2)),
            ];
            let keys = Keys::identified(suite, &given).expect("keys");
            let mut opener = Opener::new(&keys);
            let tag = suite.tag();
            let mut sealers = [1, 2].map(|byte| {
                let one = Keys::new(suite, &material(byte)).expect("keys");
                Sealer::new(&one)
            });
            let named = |sealed: &[u8], tag: usize, identifier: u8| {
                let (bytes, tag) = sealed.split_at(sealed.len() - tag);
                [bytes, &[0, 0, 0, identifier], tag].concat()
            };
            for count in 0..40_u16 {
                // The key changes in the midst of the stream, behind its roll-over.
                let at = usize::from(count / 20);
                let plain = packet(65_520_u16.wrapping_add(count));
                let sealed = sealers.each_mut().map(|sealer| {
                    let mut sealed = plain.clone();
                    sealer.seal(&mut sealed);
                    sealed
                });
                let bytes = &sealed[at];
                let mut wrong = named(bytes, tag, 3);
                assert_eq!(opener.open(&mut wrong), Err(Refused::Forged));
                let mut other = named(bytes, tag, 2 - at as u8);
                assert_eq!(opener.open(&mut other), Err(Refused::Forged));
                let mut bytes = named(bytes, tag, 1 + at as u8);
                assert_eq!(opener.open(&mut bytes), Ok(172), "{suite:?} {count}");
                assert_eq!(bytes[..172], plain);
            }
            let plain = [&[0x81, 201, 0, 7][..], &[7; 28]].concat();
            let mut report = plain.clone();
            sealers[1].seal_report(&mut report);
            let mut report = named(&report, MOST_TAG, 2);
            assert_eq!(opener.open_report(&mut report), Ok(32));
            assert_eq!(report[..32], plain);
            assert_eq!(opener.open_report(&mut report), Err(Refused::Replayed));
            for short in 0..30 {
                assert!(opener.open(&mut vec![0x80; short]).is_err());
                assert!(opener.open_report(&mut vec![0x80; short]).is_err());
            }
            // None, one of no length, two of one name, of two lengths, too short a key.
            let one = |identifier: &[u8], length| (identifier.to_vec(), vec![1; length]);
            let whole = suite.material();
            for wrong in [
                vec![],
                vec![one(&[], whole)],
                vec![one(&[1], whole), one(&[1], whole)],
                vec![one(&[1], whole), one(&[0, 2], whole)],
                vec![one(&[1], whole - 1)],
                vec![one(&[1; LONGEST_IDENTIFIER + 1], whole)],
            ] {
                assert!(Keys::identified(suite, &wrong).is_none(), "{wrong:?}");
            }
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let keys = keys(Suite::Aes128Tag80);
        assert_eq!(format!("{keys:?}"), "Keys { suite: Aes128Tag80, .. }");
        assert!(Keys::new(Suite::Aes256Tag80, keys.material()).is_none());
        assert_eq!(
            Suite::named("aes_cm_128_hmac_sha1_32"),
            Some(Suite::Aes128Tag32)
        );
        assert_eq!(Suite::named("F8_128_HMAC_SHA1_80"), None);
    }
}
