//! Connections that others make: how many, how long they may be silent, how much is said over them at once; and what
//! becomes of calls whose connection is lost.

use super::alone::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// An endpoint with a carrier at 192.0.2.1, and a trunk that strangers may call with a password.
fn open() -> Alone {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Tcp))));
    let digest = Trunk {
        inbound: InboundAuth::Digest,
        allowed: Vec::new(),
        host: None,
        credentials: Some(credentials()),
        ..trunk(2, A, Transport::Tcp)
    };
    alone.command(Command::SetTrunk(Box::new(digest)));
    alone
}

fn connect(alone: &mut Alone, ip: IpAddr, port: u16) -> (Peer, bool) {
    let peer = Peer::new(Transport::Tcp, SocketAddr::new(ip, port));
    let accepted = alone.endpoint.accepts(alone.now, &peer);
    alone.step(Input::Timeout);
    (peer, accepted)
}

fn say(alone: &mut Alone, peer: &Peer, text: &str) {
    let text = text.replace('\n', "\r\n");
    alone.step(Input::Stream {
        peer: peer.clone(),
        bytes: text.as_bytes(),
    });
}

fn options() -> String {
    invite("", 1).replace("INVITE", "OPTIONS")
}

#[test]
fn who_connects_and_says_nothing_whole_is_closed_after_ten_seconds() {
    let mut alone = open();
    let (carrier, stranger) = (address(A).ip(), IpAddr::from([203, 0, 113, 9]));
    let (silent, _) = connect(&mut alone, carrier, 1);
    let (pings, _) = connect(&mut alone, carrier, 2);
    let (half, _) = connect(&mut alone, stranger, 3);
    let (whole, _) = connect(&mut alone, stranger, 4);
    let (strange_ping, _) = connect(&mut alone, stranger, 5);
    say(&mut alone, &pings, "\n\n");
    say(&mut alone, &half, &options()[..40]);
    say(&mut alone, &whole, &options());
    say(&mut alone, &strange_ping, "\n\n");
    alone.run_for(Duration::from_millis(9_900));
    assert!(alone.closed.is_empty());
    alone.run_for(Duration::from_millis(200));
    assert_eq!(alone.closed, [silent, half, strange_ping]);
    alone.run_for(secs(600));
    assert_eq!(alone.closed.len(), 3);
    assert_eq!(alone.wait, Time::NEVER);
}

/// Registered over TCP by one trunk, and over UDP by another.
fn registered() -> Alone {
    let mut alone = Alone::new();
    for (id, transport) in [(1, Transport::Tcp), (2, Transport::Udp)] {
        let registers = Trunk {
            register: Some(Register {
                expires: 7_200,
                user: "alice".to_owned(),
            }),
            ..trunk(id, A, transport)
        };
        alone.command(Command::SetTrunk(Box::new(registers)));
        alone.answer(200, &[]);
    }
    alone
}

/// Whoever closes silent connections leaves these alone.
#[test]
fn the_connections_of_calls_and_registrations_are_told() {
    let mut world = World::new(7, 0, Transport::Tcp);
    let call = world.up();
    for node in [A, B] {
        let flow = Peer::new(Transport::Tcp, address(1 - node));
        let flows = world.nodes[node].endpoint.flows();
        assert_eq!(flows.into_iter().collect::<Vec<_>>(), [&flow]);
    }
    world.do_now(B, Command::HangUp(call, None));
    world.run_out();
    assert!(
        world
            .nodes
            .iter()
            .all(|node| node.endpoint.flows().is_empty())
    );

    let mut alone = registered();
    let registrar = Peer::new(Transport::Tcp, address(A));
    alone.run_for(secs(3_000));
    let flows = alone.endpoint.flows();
    assert_eq!(flows.into_iter().collect::<Vec<_>>(), [&registrar]);
    alone.command(Command::RemoveTrunk(TrunkId(1)));
    alone.answer(200, &[]);
    assert!(alone.endpoint.flows().is_empty());
}

/// A registrar's calls come over the connection that it was registered over, where a NAT stands between.
#[test]
fn what_was_registered_over_a_connection_that_is_lost_is_registered_again() {
    let mut alone = registered();
    let [over_tcp, over_udp] =
        [Transport::Tcp, Transport::Udp].map(|transport| Peer::new(transport, address(A)));
    let sent = alone.sent.len();
    // One that a registrar closes after each answer is not worth another one each time.
    alone.run_for(secs(30));
    alone.step(Input::Failed(over_tcp.clone()));
    alone.run_for(secs(600));
    // A datagram that cannot be delivered is the end of no connection.
    alone.step(Input::Failed(over_udp));
    alone.run_for(secs(10));
    assert_eq!(alone.sent.len(), sent);
    alone.step(Input::Failed(over_tcp.clone()));
    alone.run_for(secs(5));
    assert_eq!(alone.sent.len(), sent + 1);
    let (peer, register) = alone.last();
    assert_eq!((peer, register.method), (over_tcp, Method::Register));
    alone.answer(200, &[]);
    assert_eq!(alone.told, ["registered 7200"; 3]);
}

#[test]
fn a_connection_that_is_gone_has_no_deadline_and_its_port_may_come_again() {
    let mut alone = open();
    let (first, _) = connect(&mut alone, address(A).ip(), 1);
    alone.run_for(secs(5));
    alone.step(Input::Failed(first.clone()));
    assert_eq!(alone.wait, Time::NEVER);
    let (again, accepted) = connect(&mut alone, address(A).ip(), 1);
    assert!(accepted && again == first);
    alone.run_for(secs(9));
    assert!(alone.closed.is_empty());
    alone.run_for(secs(2));
    assert_eq!(alone.closed, [again]);
}

#[test]
fn strangers_take_a_few_connections_each_and_some_in_all_and_none_from_the_carriers() {
    let mut alone = open();
    let stranger = IpAddr::from([203, 0, 113, 9]);
    let taken = (1..=8).filter(|port| connect(&mut alone, stranger, *port).1);
    assert_eq!(taken.count(), 4);
    alone.run_for(secs(20));
    assert_eq!(alone.closed.len(), 4);
    let mut peers = Vec::new();
    for number in 0..300_u32 {
        alone.run_for(Duration::from_millis(200));
        let ip = IpAddr::V4((0xc633_6400 + number).into());
        let (peer, accepted) = connect(&mut alone, ip, 1);
        if accepted {
            say(&mut alone, &peer, &options());
            peers.push(peer);
        }
    }
    assert_eq!(peers.len(), 256);
    assert!(connect(&mut alone, address(A).ip(), 1).1);
    // One that ends makes room for another.
    alone.step(Input::Failed(peers.remove(0)));
    assert!(connect(&mut alone, stranger, 1).1);
}

/// What is sent at once has no more turns than what comes message by message.
#[test]
fn a_stranger_that_pipelines_is_asked_no_more_often_than_any_other() {
    let mut alone = open();
    let stranger = IpAddr::from([203, 0, 113, 9]);
    let (peer, _) = connect(&mut alone, stranger, 1);
    let many = |text: fn(u32) -> String| (1..=130).map(text).collect::<String>();
    say(&mut alone, &peer, &many(|number| invite("", number)));
    // Ten turns, of which the connection had one.
    assert_eq!(alone.sent.len(), 9);
    assert_eq!(alone.last_response().code, 401);
    assert_eq!(alone.closed, [peer]);
    let (carrier, _) = connect(&mut alone, address(A).ip(), 1);
    say(
        &mut alone,
        &carrier,
        &many(|number| invite("", number).replace("INVITE", "OPTIONS")),
    );
    assert_eq!(alone.sent.len(), 9 + 130);
    assert_eq!(alone.closed.len(), 1);
}

/// A call of ours over TCP, whose connection is lost while it rings.
fn rings_without_a_connection() -> (Alone, Peer, Request) {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Tcp))));
    alone.command(placing(secs(60)));
    let (peer, invite) = alone.last();
    over(&mut alone, &peer, &invite, 180);
    alone.step(Input::Failed(peer.clone()));
    assert_eq!(alone.told, ["180"]);
    (alone, peer, invite)
}

/// Answers a request over a connection.
fn over(alone: &mut Alone, peer: &Peer, request: &Request, code: u16) {
    let mut response = Response::to(&request.headers, code, "");
    response.set_to_tag("there");
    let contact = "<sip:there@192.0.2.1:5060;transport=tcp>";
    response.headers.push(Name::Contact, contact);
    let bytes = response.to_bytes();
    alone.step(Input::Stream {
        peer: peer.clone(),
        bytes: &bytes,
    });
}

/// RFC 3261 18.2.2: who rings answers over a connection of its own when ours is gone. A telephone that rings on
/// for nobody would be worse than one that nobody hears.
#[test]
fn a_call_that_rings_outlives_its_connection() {
    let (mut alone, _, invite) = rings_without_a_connection();
    let anew = Peer::new(Transport::Tcp, SocketAddr::new(address(A).ip(), 40_000));
    over(&mut alone, &anew, &invite, 200);
    assert_eq!(alone.told, ["180", "answered"]);
    assert_eq!(alone.last().1.method, Method::Ack);

    let (mut alone, peer, _) = rings_without_a_connection();
    alone.command(Command::HangUp(CALL, None));
    let (to, cancel) = alone.last();
    assert_eq!((to, cancel.method), (peer, Method::Cancel));

    // It rings no longer than any other.
    let (mut alone, _, _) = rings_without_a_connection();
    alone.run_for(secs(61));
    assert_eq!(alone.told, ["180", "ended by Local 408"]);
    assert_eq!(alone.last().1.method, Method::Cancel);
    alone.run_for(secs(90));
    assert_eq!(alone.endpoint.counts(), Counts::default());
}

#[test]
fn a_changed_session_is_awaited_for_32_seconds_once_its_connection_is_lost() {
    let (mut alone, peer, invite) = rings_without_a_connection();
    over(&mut alone, &peer, &invite, 200);
    alone.command(Command::Offer(CALL, sdp("hold")));
    let (_, again) = alone.last();
    over(&mut alone, &peer, &again, 100);
    alone.step(Input::Failed(peer.clone()));
    alone.run_for(secs(31));
    assert_eq!(alone.told, ["180", "answered"]);
    alone.run_for(secs(2));
    let told = [
        "180",
        "answered",
        "unreached INVITE: no answer came",
        "ended by Network 408",
    ];
    assert_eq!(alone.told, told);
}

/// RFC 5626 3.5.1: a ping is answered, but as many as fit into one read are no reason to write as often.
#[test]
fn pings_are_answered_once_a_read_and_no_stranger_s_are() {
    let mut alone = open();
    let (carrier, _) = connect(&mut alone, address(A).ip(), 1);
    say(&mut alone, &carrier, &"\n".repeat(32_768));
    assert_eq!(alone.pongs, 1);
    say(&mut alone, &carrier, &format!("\n\n{}\n\n", options()));
    assert_eq!((alone.pongs, alone.sent.len()), (2, 1));
    let (stranger, _) = connect(&mut alone, IpAddr::from([203, 0, 113, 9]), 1);
    say(&mut alone, &stranger, "\n\n");
    assert_eq!(alone.pongs, 2);
}

/// RFC 3261 18.2.2: to where the caller listens, for the port of its connection is of nobody any more.
#[test]
fn an_answer_whose_connection_is_lost_goes_to_where_the_caller_listens() {
    for (sent_by, port) in [
        ("192.0.2.1:5080", 5_080),
        ("gateway.carrier.example", 5_060),
    ] {
        let mut alone = open();
        let (carrier, _) = connect(&mut alone, address(A).ip(), 40_000);
        let via = format!("TCP {sent_by};rport");
        say(
            &mut alone,
            &carrier,
            &invite("", 1).replace("UDP 192.0.2.1;rport", &via),
        );
        let call = CallId(CallId::FIRST_INCOMING);
        alone.command(Command::Ring(call, None));
        assert_eq!(alone.sent.last().unwrap().0, carrier);
        alone.step(Input::Failed(carrier));
        alone.command(Command::Answer(call, sdp("answer")));
        assert_eq!(alone.last_response().code, 200);
        let listens = Peer::new(Transport::Tcp, SocketAddr::new(address(A).ip(), port));
        assert_eq!(alone.sent.last().unwrap().0, listens);
    }
}
