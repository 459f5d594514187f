//! An endpoint with an address of each family: each side is told the one that it can reach.

use super::alone::*;
use crate::trunk::Net;

/// Is at 192.0.2.2 and at 2001:db8::2, and knows this carrier.
fn both(carrier: Trunk) -> Alone {
    let own = |host, port| Advertised {
        transport: Transport::Udp,
        host: Host::parse(host).unwrap(),
        port,
    };
    let config = Config::new(vec![own("192.0.2.2", 5060), own("2001:db8::2", 5070)]);
    let mut alone = Alone {
        endpoint: Endpoint::new(config, [7; 32]),
        ..Alone::new()
    };
    alone.command(Command::SetTrunk(Box::new(carrier)));
    alone
}

#[test]
fn who_calls_over_ipv6_is_answered_and_called_back_over_it() {
    let mut alone = both(Trunk {
        host: None,
        allowed: vec![Net::parse("2001:db8::/64").unwrap()],
        ..trunk(1, A, Transport::Udp)
    });
    // A proxy in between, which the caller's address is not.
    let proxy = "[2001:db8::9]:5062";
    let message = |method: &str, to_tag: &str, branch: &str| {
        format!(
            "{method} sip:+15550100@[2001:db8::2]:5070 SIP/2.0\n\
             Via: SIP/2.0/UDP [2001:db8::9:5060];rport;branch=z9hG4bK{branch}\n\
             Record-Route: <sip:{proxy};lr>\nFrom: <sip:caller@[2001:db8::7]>;tag=far\n\
             To: <sip:+15550100@[2001:db8::2]>{to_tag}\nCall-ID: six\nCSeq: 1 {method}\n\
             Max-Forwards: 70\nContact: <sip:caller@[2001:db8::7]:5071>\nContent-Length: 0\n\n"
        )
    };
    alone.bytes(proxy, &message("INVITE", "", "one"));
    let call = CallId(CallId::FIRST_INCOMING);
    alone.command(Command::Answer(call, sdp("offer")));
    let answer = alone.last_response();
    assert_eq!(answer.code, 200);
    let via = answer.via().unwrap();
    // Without brackets, as RFC 3261 has it (20.42).
    assert_eq!(via.params.raw("received"), Some(Some("2001:db8::9")));
    assert_eq!(via.params.raw("rport"), Some(Some("5062")));
    let contact = answer.headers.get(&Name::Contact);
    assert_eq!(contact, Some("<sip:+15550100@[2001:db8::2]:5070>"));
    let went = |alone: &Alone| alone.sent.last().unwrap().0.addr.to_string();
    assert_eq!(went(&alone), proxy);
    let tag = format!(";tag={}", answer.to_tag().unwrap());
    alone.bytes(proxy, &message("ACK", &tag, "two"));
    alone.command(Command::HangUp(call, None));
    let (_, bye) = alone.last();
    assert_eq!(went(&alone), proxy);
    assert_eq!(bye.uri.to_string(), "sip:caller@[2001:db8::7]:5071");
    let route = bye.headers.get(&Name::Route).unwrap();
    assert_eq!(route, format!("<sip:{proxy};lr>"));
    let via = bye.headers.get(&Name::Via).unwrap();
    assert!(via.starts_with("SIP/2.0/UDP [2001:db8::2]:5070;"), "{via}");
}

#[test]
fn a_call_goes_out_under_our_address_of_the_carriers_family() {
    for (host, carrier, own) in [
        ("192.0.2.1", "192.0.2.1:5060", "192.0.2.2:5060"),
        ("[2001:db8::1]", "[2001:db8::1]:5060", "[2001:db8::2]:5070"),
        (
            "carrier.example",
            "[2001:db8::1]:5060",
            "[2001:db8::2]:5070",
        ),
    ] {
        let mut alone = both(Trunk {
            host: Host::parse(host),
            ..trunk(1, A, Transport::Udp)
        });
        // A name leads over IPv6 alone.
        if let Some(lookup) = alone.asked.pop() {
            let answers = Answers {
                srv: Vec::new(),
                addresses: vec!["2001:db8::1".parse().unwrap()],
            };
            alone.step(Input::Resolved {
                lookup,
                answers: Some(answers),
                keep: Duration::from_secs(600),
            });
        }
        alone.command(placing(Duration::from_secs(60)));
        let (peer, invite) = alone.last();
        assert_eq!(peer.addr.to_string(), carrier, "{host}");
        assert_eq!(invite.uri.to_string(), format!("sip:+15550100@{host}:5060"));
        let via = invite.headers.get(&Name::Via).unwrap();
        let contact = invite.headers.get(&Name::Contact).unwrap();
        assert!(via.starts_with(&format!("SIP/2.0/UDP {own};")), "{via}");
        assert_eq!(contact, format!("<sip:+15550123@{own}>"));
    }
}
