//! After warm-up, nothing on the way of an audio frame takes memory from the heap.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by failing")]

use std::hint::black_box;

use benches_kit::session::{LIFE, Scene, Session};
use benches_kit::{allocations, largest};
use media::audio::resample::Resampler;
use media::audio::tones::noise;
use media::config::VadKind;
use media::rtp::packet::{Header, Packet};
use media::rtp::rtcp;
use media::rtp::sdp::{self, Codec, Encryption, Flow, Local};
use media::rtp::srtp::{Keys, Opener, Sealer, Suite};
use media::vad::Vad;

#[test]
fn resampling_allocates_nothing() {
    for (from, to) in [
        (8_000, 16_000),
        (16_000, 8_000),
        (16_000, 16_000),
        (24_000, 16_000),
        (22_050, 16_000),
        (44_100, 16_000),
        (48_000, 16_000),
        (16_000, 48_000),
    ] {
        let mut resampler = Resampler::new(from, to).unwrap();
        let frame = noise(1, -20.0, from as usize / 50);
        let mut out = Vec::with_capacity(to as usize);
        resampler.process(&frame, &mut out);
        let count = allocations(|| {
            for _ in 0..100 {
                out.clear();
                resampler.process(&frame, &mut out);
                // Lengths that are not whole blocks, as a stream of text chunks brings them.
                resampler.process(&frame[..frame.len() / 3], &mut out);
            }
            resampler.finish(&mut out);
        });
        assert_eq!(count, 0, "{from} to {to} Hz");
    }
}

#[test]
fn a_verdict_allocates_nothing() {
    let mut sound = noise(1, -50.0, 32_000);
    sound.extend(noise(2, -15.0, 32_000));
    for mut vad in [
        Vad::new(VadKind::Energy),
        Vad::new(VadKind::Neural),
        Vad::scripted(vec![(1_000, 2_000), (9_000, 20_000)]),
    ] {
        let count = allocations(|| {
            for _ in 0..3 {
                for frame in sound.as_chunks::<320>().0 {
                    vad.frame(frame);
                }
                vad.reset();
            }
        });
        assert_eq!(count, 0);
    }
}

/// A call's ticks and the messages sent in them. Nine tenths have to be steady, and not one of those may
/// take memory.
fn steady_ticks(what: &str, mut session: Session) -> (usize, u64) {
    let sent = session.sent.messages;
    let counts: Vec<Option<u64>> = (0..LIFE - 500).map(|_| session.counted_tick()).collect();
    let steady = counts.iter().flatten().count();
    assert!(
        steady * 10 >= counts.len() * 9,
        "{what}: {steady} steady ticks"
    );
    let first = counts
        .iter()
        .position(|count| count.is_some_and(|count| count > 0));
    let total: u64 = counts.iter().flatten().sum();
    assert_eq!(total, 0, "{what}: first at tick {first:?}");
    (counts.len(), session.sent.messages - sent)
}

/// The same over WebRTC, behind its encryption: packets to samples through the jitter buffer and the
/// decoder, and the agent's sound through the encoder.
#[test]
fn a_frame_through_a_call_over_webrtc_allocates_nothing() {
    for scene in [Scene::Quiet, Scene::Agent, Scene::Caller] {
        let session = Session::over_webrtc(scene, VadKind::Energy);
        let (_, packets) = steady_ticks(&format!("{scene:?}"), session);
        assert_eq!(
            packets > 1_000,
            scene == Scene::Agent,
            "{scene:?}: {packets} packets"
        );
    }
}

/// The same over a telephone line, behind its encryption.
#[test]
fn a_frame_through_a_telephone_call_allocates_nothing() {
    for scene in [Scene::Quiet, Scene::Agent, Scene::Caller] {
        let session = Session::over_rtp(scene, VadKind::Energy);
        let (ticks, packets) = steady_ticks(&format!("{scene:?}"), session);
        assert!(
            packets.abs_diff(ticks as u64) <= 2,
            "{scene:?}: {packets} packets, silence among them"
        );
    }
}

/// And in the codecs that cost more; Opus sends next to nothing while the agent is silent.
#[test]
fn a_frame_of_wideband_through_a_telephone_call_allocates_nothing() {
    for codec in [Codec::G722, Codec::Opus] {
        for scene in [Scene::Quiet, Scene::Agent, Scene::Caller] {
            let mut session = Session::over_rtp_in(codec, scene, VadKind::Energy);
            let (sent, heard) = (session.sent.messages, session.sent.heard);
            let counts: Vec<Option<u64>> =
                (0..LIFE - 500).map(|_| session.counted_tick()).collect();
            let total: u64 = counts.iter().flatten().sum();
            assert_eq!(total, 0, "{codec:?} {scene:?}");
            let packets = session.sent.messages - sent;
            let every = codec == Codec::G722 || scene == Scene::Agent;
            assert_eq!(
                packets > 1_400,
                every,
                "{codec:?} {scene:?}: {packets} packets"
            );
            let heard = session.sent.heard > heard;
            assert_eq!(heard, scene == Scene::Caller, "{codec:?} {scene:?}");
        }
    }
}

/// Encryption and decryption of a packet.
#[test]
fn a_sealed_packet_allocates_nothing() {
    let keys = Keys::new(Suite::Aes128Tag80, &[7; 30]).unwrap();
    let (mut sealer, mut opener) = (Sealer::new(&keys), Opener::new(&keys));
    let mut packet = Vec::with_capacity(256);
    let count = allocations(|| {
        for sequence in 0..1_000_u16 {
            packet.clear();
            let header = Header {
                payload_type: 0,
                marker: false,
                sequence,
                timestamp: 160 * u32::from(sequence),
                ssrc: 9,
            };
            header.write(&mut packet);
            packet.extend_from_slice(&[0x55; 160]);
            sealer.seal(&mut packet);
            assert_eq!(opener.open(&mut packet), Ok(172));
        }
    });
    assert_eq!(count, 0);
}

/// A whole frame in and out through the call: message to samples, voice detection, turn, recording,
/// and the agent's sound to messages.
#[test]
fn a_frame_through_a_call_allocates_nothing() {
    for scene in [Scene::Quiet, Scene::Agent, Scene::Caller] {
        for vad in [VadKind::Energy, VadKind::Neural] {
            steady_ticks(&format!("{scene:?} {vad:?}"), Session::new(scene, vad));
        }
    }
}

/// The longest UDP datagram, bytes.
const DATAGRAM: usize = 65_507;

/// What strangers send, at its longest: no more is taken at once than a datagram has.
#[test]
fn no_session_description_takes_more_at_once_than_a_datagram() {
    let local = Local {
        address: [192, 0, 2, 1].into(),
        port: 20_000,
        session: 1,
        version: 1,
        codecs: Codec::ALL.to_vec(),
        encryption: Encryption::Allow,
        random: [0x5a; 46],
    };
    let offered = sdp::offer(&local, Flow::SendRecv);
    let head = "v=0\r\no=- 1 1 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=0 0\r\n\
        m=audio 4000 RTP/AVP 0";
    for again in [
        " 0",
        "\r\na=x",
        "\r\nm=audio 4000 RTP/AVP 0",
        "\r\nm=a",
        "\r\na=rtpmap:96 opus/48000/2",
        "\r\na=fmtp:96 maxaveragebitrate=20000",
        "\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR",
    ] {
        // The longest that is read, and the longest that comes.
        for length in [16 << 10, DATAGRAM - 2] {
            let count = (length - head.len() - 2) / again.len();
            let text = format!("{head}{}\r\n", again.repeat(count));
            let most = largest(|| {
                _ = black_box(sdp::answer(text.as_bytes(), &local, Flow::SendRecv));
                _ = black_box(offered.accept(text.as_bytes()));
            });
            assert!(
                most <= 1 << 16,
                "{again:?}: {most} bytes at once of {length}"
            );
        }
    }
}

#[test]
fn reading_packets_and_reports_allocates_nothing() {
    // Receiver reports one after the other, each with a block of another stream.
    let report = [&[0x81, 201, 0, 7][..], &[1; 28]].concat();
    let reports = report.repeat(DATAGRAM / report.len());
    // An extension that is as long as the packet.
    let mut packet = vec![0x90; DATAGRAM];
    packet[14..16].copy_from_slice(&16_000_u16.to_be_bytes());
    for bytes in [reports, packet, vec![0; DATAGRAM], vec![0xff; DATAGRAM]] {
        let count = allocations(|| {
            _ = black_box(rtcp::parse(&bytes, 7));
            _ = black_box(Packet::parse(&bytes));
        });
        assert_eq!(count, 0);
    }
}
