//! Signs of the other side, and when it is given up.

use super::*;

#[test]
fn a_caller_who_sends_nothing_is_given_up() {
    let mut bed = Bed::new(plan());
    bed.until(start() + ms(29_990));
    assert!(!bed.silent);
    bed.until(start() + ms(30_010));
    assert!(bed.silent);

    let mut bed = Bed::new(plan());
    bed.now = start() + ms(25_000);
    bed.packet(&audio_packet(1, 160, &[0xff; 160]));
    bed.until(start() + ms(39_990));
    assert!(!bed.silent);
    bed.until(start() + ms(40_010));
    assert!(bed.silent);
}

#[test]
fn a_caller_who_says_nothing_and_reports_what_it_hears_is_there() {
    // It suppresses silence, without comfort noise.
    let mut bed = Bed::new(plan());
    bed.packet(&audio_packet(1, 160, &[0xff; 160]));
    for report in 1..=12 {
        bed.until(start() + ms(5_000 * report));
        bed.leg.reported(bed.now, 0);
    }
    bed.until(start() + ms(74_990));
    assert!(!bed.silent);
    bed.until(start() + ms(75_010));
    assert!(bed.silent, "its reports have ended, too");

    // Whose audio never came is there while it reports, too.
    let mut bed = Bed::new(plan());
    for report in 1..=12 {
        bed.until(start() + ms(5_000 * report));
        bed.leg.reported(bed.now, 0);
    }
    bed.until(start() + ms(74_990));
    assert!(!bed.silent);
    bed.until(start() + ms(75_010));
    assert!(bed.silent);
}

#[test]
fn a_sign_before_the_first_sound_does_not_shorten_the_wait_for_it() {
    let mut bed = Bed::new(plan());
    bed.until(start() + ms(1_000));
    bed.packet(&RtpPacket {
        payload_type: 20,
        ..audio_packet(1, 160, &[])
    });
    bed.until(start() + ms(29_990));
    assert!(!bed.silent);
    bed.packet(&audio_packet(1, 160, &[0xff; 160]));
    bed.until(start() + ms(44_980));
    assert!(!bed.silent);
    bed.until(start() + ms(45_000));
    assert!(bed.silent, "and after it the usual one holds");

    let mut bed = Bed::new(plan());
    bed.until(start() + ms(1_000));
    bed.leg.reported(bed.now, 0);
    bed.until(start() + ms(29_990));
    assert!(!bed.silent);
    bed.until(start() + ms(30_010));
    assert!(bed.silent);
}

#[test]
fn any_packet_shows_that_somebody_is_there() {
    // One of comfort noise and then silence; packets of no meaning; keys. Each 14 s.
    for (payload_type, payload) in [(13, &[60][..]), (20, &[]), (101, &[1, 0x8a, 0, 160])] {
        let mut bed = Bed::new(plan());
        for packet in 1..=10 {
            bed.until(start() + ms(14_000 * packet));
            bed.packet(&RtpPacket {
                payload_type,
                ..audio_packet(packet as u16, 112_000 * packet as u32, payload)
            });
        }
        bed.until(start() + ms(154_990));
        assert!(!bed.silent, "{payload_type}");
        bed.until(start() + ms(155_010));
        assert!(bed.silent, "{payload_type}");
    }
}

#[test]
fn who_only_shows_to_be_there_is_given_up_after_half_an_hour() {
    let mut bed = Bed::new(plan());
    bed.packet(&audio_packet(1, 160, &[0xff; 160]));
    for step in 1..180 {
        bed.until(start() + ms(10_000 * step));
        bed.leg.reported(bed.now, 0);
        let nothing = RtpPacket {
            payload_type: 20,
            ..audio_packet(2, 320, &[])
        };
        bed.packet(&nothing);
        assert!(!bed.silent, "{step}");
    }
    bed.until(start() + ms(1_800_010));
    assert!(bed.silent);
    // Who holds the call for so long without a sign is not there either.
    let mut bed = Bed::new(plan());
    let held = RtpPlan {
        flow: Flow::RecvOnly,
        ..plan()
    };
    bed.leg.renew(bed.now, held).expect("the same codec");
    bed.until(start() + ms(1_799_990));
    bed.leg.reported(bed.now, 0);
    bed.until(start() + ms(3_599_980));
    assert!(!bed.silent);
    bed.until(start() + ms(3_600_000));
    assert!(bed.silent);
}

#[test]
fn a_side_that_only_listens_is_not_given_up() {
    let mut bed = Bed::new(plan());
    bed.packet(&audio_packet(1, 160, &[0xff; 160]));
    let listens = RtpPlan {
        flow: Flow::SendOnly,
        ..plan()
    };
    bed.leg.renew(bed.now, listens).expect("the same codec");
    assert!(!bed.leg.is_held(), "it hears us");
    bed.until(start() + Duration::from_secs(60));
    assert!(!bed.silent);
    assert!(
        (3_000..=3_001).contains(&bed.sent.len()),
        "{}",
        bed.sent.len()
    );
    // It speaks again, and is given up when it does not.
    bed.leg.renew(bed.now, plan()).expect("the same codec");
    bed.until(start() + Duration::from_secs(76));
    assert!(bed.silent);
}

#[test]
fn a_held_leg_is_quiet_and_awaits_nothing() {
    let mut bed = Bed::new(plan());
    bed.until(start() + ms(100));
    let held = RtpPlan {
        flow: Flow::RecvOnly,
        ..plan()
    };
    bed.leg.renew(bed.now, held).expect("the same codec");
    assert!(bed.leg.is_held());
    let before = bed.sent.len();
    bed.until(start() + Duration::from_secs(600));
    bed.speak(|leg, now, out| leg.audio(now, &[9; FRAME], false, out));
    assert!(!bed.silent);
    assert_eq!(bed.sent.len(), before);
    bed.leg.renew(bed.now, plan()).expect("the same codec");
    let now = bed.now;
    bed.until(now + ms(1_000));
    assert!((50..=51).contains(&(bed.sent.len() - before)));
    let first = &bed.sent[before];
    assert!(first.2, "the talk begins again");
    assert_eq!(first.4.wrapping_sub(plan().timestamp), 600 * 8_000);
    bed.until(now + ms(29_000));
    assert!(!bed.silent, "the other side may take its time");
}
