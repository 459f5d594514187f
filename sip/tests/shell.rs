//! The running stack with itself: calls over TLS, names that are looked up, addresses that fail.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test of the shell: processes, sockets and clocks are its subject"
)]

mod kit;

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::{A, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use kit::{loopback, trunk_to};
use sip::endpoint::{Advertised, Config};
use sip::event::{CallId, Command, EndedBy, Event, Place};
use sip::message::{Body, Host, Transport};
use sip::shell::{Listen, Settings, Sip, Tls};
use sip::trunk::{Trunk, TrunkId};

const CARRIER: &str = "carrier.test";

/// A name server that knows one carrier: its SRV records name the ports, all of them on loopback.
fn name_server(ports: Vec<u16>) -> SocketAddr {
    let socket = UdpSocket::bind((loopback(), 0)).unwrap();
    let addr = socket.local_addr().unwrap();
    // Ends with the test's process.
    std::thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if let Some(message) = answer(&buffer[..length], &ports) {
                socket.send_to(&message.to_vec().unwrap(), from).unwrap();
            }
        }
    });
    addr
}

/// Such a one whose answers are too long for datagrams: these say so, and nothing else.
fn name_server_over_tcp(ports: Vec<u16>) -> SocketAddr {
    use std::io::{Read as _, Write as _};
    let (socket, listener) = std::iter::from_fn(|| {
        let socket = UdpSocket::bind((loopback(), 0)).unwrap();
        let listener = TcpListener::bind(socket.local_addr().unwrap());
        Some(listener.map(|listener| (socket, listener)))
    })
    .find_map(Result::ok)
    .unwrap();
    let addr = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let mut message = answer(&buffer[..length], &[]).unwrap();
            message.answers.clear();
            message.metadata.truncation = true;
            socket.send_to(&message.to_vec().unwrap(), from).unwrap();
        }
    });
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut question).unwrap();
            let message = answer(&question, &ports).unwrap().to_vec().unwrap();
            let length = u16::try_from(message.len()).unwrap().to_be_bytes();
            stream.write_all(&length).unwrap();
            stream.write_all(&message).unwrap();
        }
    });
    addr
}

/// `None`: nobody answers for such a name.
fn answer(question: &[u8], ports: &[u16]) -> Option<Message> {
    let mut message = Message::from_vec(question).unwrap();
    message.metadata.message_type = MessageType::Response;
    let query = message.queries[0].clone();
    let asked = query.name().to_ascii();
    if asked.ends_with("black.test.") {
        return None;
    }
    let target = Name::from_str("host.carrier.test.").unwrap();
    let record = |data| Record::from_rdata(query.name().clone(), 60, data);
    match query.query_type() {
        RecordType::SRV if asked.ends_with("carrier.test.") => {
            for (priority, port) in (10_u16..).zip(ports) {
                let srv = SRV::new(priority, 1, *port, target.clone());
                message.add_answer(record(RData::SRV(srv)));
            }
        }
        RecordType::A if asked == "host.carrier.test." => {
            message.add_answer(record(RData::A(A::new(127, 0, 0, 1))));
        }
        _ => {}
    }
    Some(message)
}

/// A certificate for `name`, and settings of both sides that trust it alone.
fn tls(name: &str) -> Tls {
    tls_until(name, 2_100)
}

/// One that is valid until a year.
fn tls_until(name: &str, year: i32) -> Tls {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Tls {
        server: Some(Arc::new(server)),
        client: Arc::new(client),
    }
}

fn start(transport: Transport, tls: Option<Tls>, dns: Option<SocketAddr>) -> (Sip, u16) {
    let sip = Sip::start(Settings {
        endpoint: Config::new(Vec::new()),
        seed: [3; 32],
        listen: vec![Listen {
            transport,
            addr: SocketAddr::new(loopback(), 0),
        }],
        tls,
        dns: dns.into_iter().collect(),
    })
    .unwrap();
    let port = sip.addresses()[0].addr.port();
    (sip, port)
}

fn named(transport: Transport) -> Trunk {
    Trunk {
        host: Host::parse(CARRIER),
        port: None,
        ..trunk_to(0, transport)
    }
}

fn place(sip: &Sip) {
    place_as(sip, CallId(1), Body::sdp("offer"));
}

fn place_as(sip: &Sip, call: CallId, offer: Body) {
    let place = Place {
        trunk: TrunkId(1),
        to: "callee".to_owned(),
        from: "caller".to_owned(),
        display: None,
        headers: Vec::new(),
        offer,
        ring_for: Duration::from_secs(50),
        forwarded: None,
    };
    sip.command(Command::Place(call, Box::new(place))).unwrap();
}

/// The next event that fits, within a minute.
fn until<T>(sip: &Sip, mut fits: impl FnMut(Event) -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let event = sip
            .events()
            .recv_deadline(end)
            .expect("an event within a minute");
        if let Some(found) = fits(event) {
            return found;
        }
    }
}

/// A call from one to the other and its end.
fn call(caller: &Sip, callee: &Sip) {
    place(caller);
    let (incoming, source) = until(callee, |event| match event {
        Event::Incoming(call, incoming) => Some((call, incoming.source)),
        _ => None,
    });
    assert_eq!(source.ip(), loopback());
    callee
        .command(Command::Answer(incoming, Body::sdp("answer")))
        .unwrap();
    let body = until(caller, |event| match event {
        Event::Answered { body, .. } => body,
        Event::Ended { code, reason, .. } => panic!("ended: {code:?} {reason}"),
        _ => None,
    });
    assert_eq!(body.bytes, b"answer");
    callee.command(Command::HangUp(incoming, None)).unwrap();
    let by = until(caller, |event| match event {
        Event::Ended { by, .. } => Some(by),
        _ => None,
    });
    assert_eq!(by, EndedBy::Remote);
}

#[test]
fn a_call_over_tls_to_a_name_that_its_certificate_bears() {
    let tls = tls(CARRIER);
    let (callee, port) = start(Transport::Tls, Some(tls.clone()), None);
    let server = name_server(vec![port]);
    let (caller, caller_port) = start(Transport::Tls, Some(tls), Some(server));
    kit::trust_loopback(&callee, caller_port, Transport::Tls);
    caller
        .command(Command::SetTrunk(Box::new(named(Transport::Tls))))
        .unwrap();
    call(&caller, &callee);
}

#[test]
fn a_certificate_of_another_name_is_not_spoken_with() {
    let tls = tls("somebody-else.test");
    not_spoken_with(tls.clone(), tls);
}

#[test]
fn a_certificate_that_has_expired_is_not_spoken_with() {
    let tls = tls_until(CARRIER, 2_020);
    not_spoken_with(tls.clone(), tls);
}

#[test]
fn a_certificate_of_an_unknown_authority_is_not_spoken_with() {
    not_spoken_with(tls(CARRIER), tls(CARRIER));
}

fn not_spoken_with(theirs: Tls, ours: Tls) {
    let (callee, port) = start(Transport::Tls, Some(theirs), None);
    let server = name_server(vec![port]);
    let (caller, caller_port) = start(Transport::Tls, Some(ours), Some(server));
    kit::trust_loopback(&callee, caller_port, Transport::Tls);
    caller
        .command(Command::SetTrunk(Box::new(named(Transport::Tls))))
        .unwrap();
    place(&caller);
    let (by, code) = until(&caller, |event| match event {
        Event::Ended { by, code, .. } => Some((by, code)),
        _ => None,
    });
    assert_eq!((by, code), (EndedBy::Network, Some(503)));
    assert!(callee.events().try_recv().is_err());
}

#[test]
fn the_second_address_takes_the_call_when_the_first_is_dead() {
    let (callee, port) = start(Transport::Tcp, None, None);
    // A port that was free a moment ago: a connection to it is refused.
    let dead = kit::free_port();
    let server = name_server(vec![dead, port]);
    let (caller, caller_port) = start(Transport::Tcp, None, Some(server));
    kit::trust_loopback(&callee, caller_port, Transport::Tcp);
    caller
        .command(Command::SetTrunk(Box::new(named(Transport::Tcp))))
        .unwrap();
    call(&caller, &callee);
}

/// RFC 7766 section 5: a carrier of many addresses, say.
#[test]
fn an_answer_that_no_datagram_holds_is_asked_for_over_tcp() {
    let (callee, port) = start(Transport::Udp, None, None);
    let server = name_server_over_tcp(vec![port]);
    let (caller, caller_port) = start(Transport::Udp, None, Some(server));
    kit::trust_loopback(&callee, caller_port, Transport::Udp);
    caller
        .command(Command::SetTrunk(Box::new(named(Transport::Udp))))
        .unwrap();
    call(&caller, &callee);
}

#[test]
fn a_name_that_nobody_knows_fails_the_call() {
    let server = name_server(Vec::new());
    let (caller, _) = start(Transport::Udp, None, Some(server));
    let unknown = Trunk {
        host: Host::parse("nobody.test"),
        ..named(Transport::Udp)
    };
    caller
        .command(Command::SetTrunk(Box::new(unknown)))
        .unwrap();
    place(&caller);
    let code = until(&caller, |event| match event {
        Event::Ended { code, .. } => code,
        _ => None,
    });
    assert_eq!(code, 503);
}

/// A socket on all addresses of IPv6: who is at one of IPv4 is known by it, called and heard.
#[test]
fn who_listens_on_all_addresses_of_ipv6_speaks_over_ipv4_too() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let port = kit::free_port();
        let public = Advertised {
            transport,
            host: Host::Ip(loopback()),
            port,
        };
        let all = Sip::start(Settings {
            endpoint: Config::new(vec![public]),
            seed: [4; 32],
            listen: vec![Listen {
                transport,
                addr: SocketAddr::from(([0_u16; 8], port)),
            }],
            tls: None,
            dns: Vec::new(),
        })
        .unwrap();
        let (other, other_port) = start(transport, None, None);
        kit::trust_loopback(&all, other_port, transport);
        kit::trust_loopback(&other, port, transport);
        call(&all, &other);
        until(&other, |event| {
            matches!(event, Event::Ended { .. }).then_some(())
        });
        call(&other, &all);
    }
}

/// Many trunks whose names nobody answers for, and a call to a carrier beside them: it is reached at once,
/// and a call to one of the others fails within seconds.
#[test]
fn names_that_nobody_answers_for_hold_up_no_other() {
    let (callee, port) = start(Transport::Udp, None, None);
    let server = name_server(vec![port]);
    let (caller, caller_port) = start(Transport::Udp, None, Some(server));
    kit::trust_loopback(&callee, caller_port, Transport::Udp);
    let trunk = |id: u64, host: &str| Trunk {
        id: TrunkId(id),
        host: Host::parse(host),
        ..named(Transport::Udp)
    };
    let set = |trunk| caller.command(Command::SetTrunk(Box::new(trunk))).unwrap();
    // Fewer than there are threads: a black hole for each of a carrier's competitors.
    for id in 2..9 {
        set(trunk(id, &format!("hole{id}.black.test")));
    }
    set(trunk(1, CARRIER));
    let began = Instant::now();
    call(&caller, &callee);
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    for id in 9..17 {
        set(trunk(id, &format!("hole{id}.black.test")));
    }
    let lost = Place {
        trunk: TrunkId(16),
        to: "callee".to_owned(),
        from: "caller".to_owned(),
        display: None,
        headers: Vec::new(),
        offer: Body::sdp("offer"),
        ring_for: Duration::from_secs(50),
        forwarded: None,
    };
    let began = Instant::now();
    caller
        .command(Command::Place(CallId(2), Box::new(lost)))
        .unwrap();
    let code = until(&caller, |event| match event {
        Event::Ended {
            call: CallId(2),
            code,
            ..
        } => code,
        _ => None,
    });
    assert_eq!(code, 503);
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
}

/// Neither an answer that no datagram holds nor a request of ours that none does is the end of calls with the
/// same carrier (RFC 3261 18.4).
#[test]
fn what_is_too_large_to_be_sent_fails_no_other_call() {
    let carrier = UdpSocket::bind((loopback(), 0)).unwrap();
    carrier
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let own = carrier.local_addr().unwrap();
    let (sip, port) = start(Transport::Udp, None, None);
    kit::trust_loopback(&sip, own.port(), Transport::Udp);
    let to = SocketAddr::new(loopback(), port);
    // The next INVITE that is of another call, among what is sent again.
    let invited = |before: &str| loop {
        let mut buffer = [0; 2_048];
        let length = carrier.recv(&mut buffer).unwrap();
        let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
        let call = text.lines().find(|line| line.starts_with("Call-ID:"));
        let call = call.map(str::to_owned).unwrap_or_default();
        if text.starts_with("INVITE") && call != before {
            return (text, call);
        }
    };
    let (mut ended, mut before) = (Vec::new(), String::new());
    for (call, large) in [(CallId(1), true), (CallId(2), false)] {
        place_as(&sip, call, Body::sdp("offer"));
        let (invite, id) = invited(&before);
        before = id;
        match large {
            true => {
                // The way that an answer must repeat is all of it.
                let via = format!(
                    "Via: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bK{}\r\n",
                    "b".repeat(8_000)
                );
                let text = kit::request("OPTIONS", own);
                let (first, rest) = text.split_once("From:").unwrap();
                let text = format!("{first}{}From:{rest}", via.repeat(8));
                let fill = "b".repeat(65_507 - text.len());
                let text = text.replacen(
                    "branch=z9hG4bKOPTIONS",
                    &format!("branch=z9hG4bK{fill}OPTIONS"),
                    1,
                );
                assert_eq!(text.len(), 65_507);
                carrier.send_to(text.as_bytes(), to).unwrap();
            }
            false => {
                place_as(&sip, CallId(3), Body::sdp("x".repeat(70_000)));
                let code = until(&sip, |event| match event {
                    Event::Ended {
                        call: CallId(3),
                        code,
                        ..
                    } => Some(code),
                    Event::Ended { .. } => panic!("another call ended"),
                    _ => None,
                });
                assert_eq!(code, Some(503));
            }
        }
        // After that it is busy.
        let fields = ["Via:", "From:", "To:", "Call-ID:", "CSeq:"];
        let echoed = invite
            .lines()
            .filter(|line| fields.iter().any(|name| line.starts_with(name)));
        let busy: String = echoed
            .map(|line| match line.starts_with("To:") {
                true => format!("{line};tag=busy\r\n"),
                false => format!("{line}\r\n"),
            })
            .collect();
        let busy = format!("SIP/2.0 486 Busy Here\r\n{busy}Content-Length: 0\r\n\r\n");
        carrier.send_to(busy.as_bytes(), to).unwrap();
        ended.push(until(&sip, |event| match event {
            Event::Ended { by, code, .. } => Some((by, code)),
            _ => None,
        }));
    }
    assert_eq!(ended, [(EndedBy::Remote, Some(486)); 2]);
}

/// A connection that says nothing sensible is closed, and one after it is served.
#[test]
fn a_stream_of_noise_is_closed() {
    use std::io::{Read as _, Write as _};
    let (sip, port) = start(Transport::Tcp, None, None);
    kit::trust_loopback(&sip, 5060, Transport::Tcp);
    let addr = SocketAddr::new(loopback(), port);
    let mut noise = std::net::TcpStream::connect(addr).unwrap();
    noise
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    // The other side may close while this is under way.
    _ = noise.write_all(&vec![b'x'; 100_000]);
    let mut buffer = [0; 1_024];
    assert!(matches!(noise.read(&mut buffer), Ok(0) | Err(_)));
    let mut next = std::net::TcpStream::connect(addr).unwrap();
    let from = next.local_addr().unwrap();
    let text = kit::request("OPTIONS", from).replace("UDP", "TCP");
    // In two pieces, the second after the first was read.
    let (one, two) = text.as_bytes().split_at(40);
    next.write_all(one).unwrap();
    next.flush().unwrap();
    next.write_all(two).unwrap();
    let length = next.read(&mut buffer).unwrap();
    assert!(buffer[..length].starts_with(b"SIP/2.0 200 "));
}

/// A stranger's connection is closed before a byte is read.
#[test]
fn a_strangers_connection_is_closed() {
    use std::io::Read as _;
    let (_sip, port) = start(Transport::Tcp, None, None);
    let addr = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port);
    let mut stranger = std::net::TcpStream::connect(addr).unwrap();
    stranger
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut buffer = [0; 16];
    let read = stranger.read(&mut buffer);
    let closed = match &read {
        Ok(count) => *count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(closed, "{read:?}");
}

/// 30,000 INVITEs from a stranger at about 10,000 a second, with calls beside them: the stranger gets no
/// byte, the calls come up and end.
#[test]
fn a_flood_of_strangers_gets_no_byte_and_hurts_no_call() {
    let (callee, port) = start(Transport::Udp, None, None);
    let (caller, caller_port) = start(Transport::Udp, None, None);
    kit::trust_loopback(&callee, caller_port, Transport::Udp);
    kit::trust_loopback(&caller, port, Transport::Udp);
    // Loopback has more addresses than the one that is trusted.
    let stranger = UdpSocket::bind((IpAddr::from([127, 0, 0, 2]), 0)).unwrap();
    let text = kit::request("INVITE", stranger.local_addr().unwrap());
    let to = SocketAddr::new(loopback(), port);
    let flood = std::thread::spawn(move || {
        for _ in 0..300 {
            for _ in 0..100 {
                stranger.send_to(text.as_bytes(), to).unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        stranger.set_nonblocking(true).unwrap();
        stranger.recv(&mut [0; 64]).is_err()
    });
    while !flood.is_finished() {
        call(&caller, &callee);
        // Its callee's end is told before the next begins.
        until(&callee, |event| {
            matches!(event, Event::Ended { .. }).then_some(())
        });
    }
    assert!(flood.join().unwrap(), "the stranger was answered");
}
