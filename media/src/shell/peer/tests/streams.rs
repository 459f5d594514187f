//! The caller's stream under any name (RFC 8843 section 9.2).

use super::*;

/// What stands in the offer of the caller's stream.
type Told = fn(&str) -> String;

/// So much of the caller's tone is in the recording, tenths of a second.
fn heard(placed: &Placed, client: &mut Client) -> usize {
    assert!(placed.handle.end(EndRequest::Api));
    client.run(|client| client.has("call_ended"));
    let (caller, _) = wav(&placed.recorded());
    let loud = caller
        .chunks_exact(1600)
        .filter(|part| db(goertzel(part, 16_000, CALLER_HZ)) > -30.0);
    loud.count()
}

fn without_names(offer: &str) -> String {
    let lines = offer.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("a=ssrc")).collect()
}

/// The offer with a video beside the audio, as one of a browser that would show it.
fn with_video(offer: &str) -> String {
    let group = offer.lines().find(|line| line.starts_with("a=group:"));
    let group = group.unwrap();
    let video = "m=video 9 UDP/TLS/RTP/SAVPF 120\r\nc=IN IP4 0.0.0.0\r\na=rtpmap:120 VP8/90000\r\na=mid:video\r\n\
        a=rtcp-mux\r\na=recvonly\r\n";
    offer.replace(group, &format!("{group} video")) + video
}

#[test]
fn a_stream_is_heard_whatever_the_offer_calls_it() {
    let bed = Bed::new();
    let other: Told = |offer| offer.replace(&SSRC.to_string(), "99");
    let several: Told = |offer| {
        let first = format!("a=ssrc:{SSRC}");
        offer.replacen(&first, &format!("a=ssrc:77 cname:old\r\n{first}"), 1)
    };
    let ways: [(&str, Told); 5] = [
        ("as it is", str::to_owned),
        ("another", other),
        ("none", without_names),
        ("several", several),
        ("none beside a video", |offer| {
            with_video(&without_names(offer))
        }),
    ];
    for (name, told) in ways {
        let placed = bed.place(&format!("webrtc-stream-{}", name.replace(' ', "-")));
        let mut client = Client::new();
        let offer = client.offer();
        assert!(offer.contains(&format!("a=ssrc:{SSRC}")), "{offer}");
        let answer = placed.offer(&told(&offer), false).unwrap();
        // The video is not the client's own: its core is told of what it offered.
        let sections = sdp::sections(&answer);
        let own = sections
            .iter()
            .filter(|section| !section.starts_with("m=video "));
        let own: String = own.copied().collect();
        client.accept(&own.replace(" video\r\n", "\r\n"));
        client.run(|client| client.hears(0, 0.5));
        client.run_for(Duration::from_millis(700), |_| false);
        let tenths = heard(&placed, &mut client);
        assert!(tenths > 4, "{name}: {tenths}");
    }
}

#[test]
fn a_stream_that_changes_its_name_is_heard_on() {
    let bed = Bed::new();
    for named in [true, false] {
        let placed = bed.place(&format!("webrtc-changes-{named}"));
        let mut client = Client::new();
        let offer = client.offer();
        let offer = if named { offer } else { without_names(&offer) };
        let answer = placed.offer(&offer, false).unwrap();
        client.accept(&answer);
        client.run(|client| client.hears(0, 0.3));
        for ssrc in [1, 2, SSRC, 3] {
            client.ssrc = ssrc;
            client.run_for(Duration::from_millis(600), |_| false);
        }
        let tenths = heard(&placed, &mut client);
        assert!(tenths > 20, "{named}: {tenths}");
    }
}
