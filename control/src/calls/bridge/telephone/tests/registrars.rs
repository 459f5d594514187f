//! The realms in which a trunk's registrar asks: the node that registers hears them, and all are told. A socket is the
//! carrier.

use std::collections::HashSet;
use std::net::SocketAddr;

use axum::extract::FromRef;
use sip::event::{Command, Place};
use sip::message::parse::{Framing, parse};
use sip::message::{Message, Method, Name, Request as Sip, Response};
use sip::trunk::RegistrarRealms;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::super::Calling;
use super::super::trunks::{Edge, Register, told as as_told};
use super::*;
use crate::sip_trunks::store;

/// How long anything may take here.
const LONG: Duration = Duration::from_secs(20);

struct Carrier {
    socket: UdpSocket,
    /// What came already: requests are sent again until they are answered.
    seen: Vec<(String, String)>,
}

impl Carrier {
    async fn open() -> Self {
        Self {
            socket: UdpSocket::bind("127.0.0.1:0").await.unwrap(),
            seen: Vec::new(),
        }
    }

    /// The next request of this method that was not seen before, and whence it came.
    async fn next(&mut self, method: Method) -> (Sip, SocketAddr) {
        let mut datagram = vec![0; 65_536];
        loop {
            let came = timeout(LONG, self.socket.recv_from(&mut datagram));
            let (length, from) = came.await.expect("a request").unwrap();
            let Ok(Some(Message::Request(request))) = parse(&datagram[..length], Framing::Datagram)
            else {
                continue;
            };
            let number = request.headers.get(&Name::CSeq).unwrap().to_owned();
            let key = (request.call_id().to_owned(), number);
            if request.method == method && !self.seen.contains(&key) {
                self.seen.push(key);
                return (request, from);
            }
        }
    }

    async fn answer(&self, to: &(Sip, SocketAddr), code: u16, field: Option<(Name, &str)>) {
        let mut response = Response::to(&to.0.headers, code, "");
        response.set_to_tag("there");
        if let Some((name, realm)) = field {
            let value = format!("Digest realm=\"{realm}\", nonce=\"n\", qop=\"auth\"");
            response.headers.push(name, value);
        }
        let bytes = response.to_bytes();
        self.socket.send_to(&bytes, to.1).await.unwrap();
    }
}

/// A node beside that of the bench: with its database, and the key of its secrets.
async fn beside(bench: &Bench) -> TestApp {
    let first = &bench.test.app.config;
    TestApp::with(|config| {
        config.egress.allow = Allow::parse(&["127.0.0.0/8"]).unwrap();
        config.cluster.node = "beside".to_owned();
        config.database.url = first.database.url.clone();
        let key = |folder: &std::path::Path| folder.join("master.key");
        let keys = [&first.server.data_dir, &config.server.data_dir].map(|folder| key(folder));
        std::fs::copy(&keys[0], &keys[1]).unwrap();
    })
    .await
}

/// What the database says of the realms of the trunk's registrar, once it says any.
async fn kept(bench: &Bench, id: TrunkId) -> Vec<String> {
    let until = Instant::now() + LONG;
    loop {
        let trunk = store::get(&bench.test.app.db, bench.test.account, id).await;
        let registration = trunk.unwrap().unwrap().registration.unwrap();
        if let Some(realms) = registration.realms {
            return realms;
        }
        assert!(Instant::now() < until, "{registration:?}");
    }
}

#[tokio::test]
async fn a_node_that_does_not_register_gives_the_password_in_the_registrars_realm_alone() {
    let bench = Bench::new().await;
    let (node, other) = (&bench.test.app, beside(&bench).await);
    let mut carrier = Carrier::open().await;
    let address = carrier.socket.local_addr().unwrap();
    let more = json!({"auth_mode": "register", "auth_username": "a", "auth_password": "b",
        "outbound_address": address.to_string()});
    let id = bench.trunk(&bench.test.key, more).await;
    let number = sip_trunks::sip_id(id);
    let (mut here, mut there) = (Edge::default(), Edge::default());
    let (node, beside) = (Calling::from_ref(node), Calling::from_ref(&other.app));
    here.sync(&node).await.unwrap();
    there.sync(&beside).await.unwrap();
    let exchange = Arc::clone(beside.telephone.open(&beside).await.unwrap());
    let calls = async |carrier: &mut Carrier, realm: &str| {
        let line = exchange.line();
        let place = Place {
            trunk: number,
            to: "+15550100".to_owned(),
            from: "+15550123".to_owned(),
            display: None,
            headers: Vec::new(),
            offer: Body::sdp(OFFER),
            ring_for: LONG,
            forwarded: None,
        };
        exchange.tell(Command::Place(line.id, Box::new(place)));
        let invite = carrier.next(Method::Invite).await;
        let asked = (Name::ProxyAuthenticate, realm);
        carrier.answer(&invite, 407, Some(asked)).await;
        line
    };
    // While the registrar was not heard, a call waits; one that does not wait is given nothing.
    let mut waits = Box::pin(exchange.trunks.settled(number));
    assert!(timeout(Duration::ZERO, &mut waits).await.is_err());
    let mut line = calls(&mut carrier, "acme").await;
    assert!(end(&mut line).await.ends_with("was not heard yet"));
    let register = carrier.next(Method::Register).await;
    let asked = (Name::WwwAuthenticate, "acme");
    carrier.answer(&register, 401, Some(asked)).await;
    let register = carrier.next(Method::Register).await;
    assert!(register.0.headers.has(&Name::Authorization));
    carrier.answer(&register, 200, None).await;
    assert_eq!(kept(&bench, id).await, ["acme"]);
    there.sync(&beside).await.unwrap();
    assert!(timeout(LONG, &mut waits).await.is_ok());
    // A callee who asks before anything rings, and then the carrier.
    let mut line = calls(&mut carrier, "evil").await;
    let why = end(&mut line).await;
    assert!(why.ends_with("realm \"evil\" is not the trunk's"), "{why}");
    let _line = calls(&mut carrier, "acme").await;
    let (again, _) = carrier.next(Method::Invite).await;
    assert!(again.headers.has(&Name::ProxyAuthorization));
    let cseq = again.headers.get(&Name::CSeq);
    assert_eq!(cseq, Some("2 INVITE"), "the same call");
}

/// Why a call ended.
async fn end(line: &mut SipLeg) -> String {
    loop {
        match timeout(LONG, line.events.recv()).await.unwrap() {
            Some(Event::Ended { reason, .. }) => return reason,
            Some(_) => {}
            None => panic!("no end of the call"),
        }
    }
}

/// Nothing but the trunk's row shows that it is registered.
#[tokio::test]
async fn a_trunk_that_a_node_of_the_version_before_registers_is_not_waited_for_in_vain() {
    let bench = Bench::new().await;
    let (app, trunks) = (&bench.test.app, &bench.exchange.trunks);
    let trunk = bench.registers().await;
    let number = sip_trunks::sip_id(trunk);
    bench.claim("before").await;
    let mut edge = Edge::default();
    let waits = async || {
        let settled = trunks.settled(number);
        timeout(Duration::ZERO, settled).await.is_err()
    };
    for registered in [false, true] {
        if registered {
            let by_it = "update sip_trunks set registration_status = 'registered' where id = $1";
            let by_it = app.db.query(by_it).bind(trunk);
            assert_eq!(by_it.execute().await.unwrap(), 1);
        }
        edge.sync(&Calling::from_ref(app)).await.unwrap();
        assert_eq!(waits().await, !registered);
    }
}

#[tokio::test]
async fn what_a_stack_is_told_of_a_registrar() {
    let bench = Bench::new().await;
    let app = &bench.test.app;
    let trunk = bench.registers().await;
    let path = format!("/sip-trunks/{trunk}");
    bench.claim(&app.config.cluster.node).await;
    let tells = async || {
        let own = store::get(&app.db, bench.test.account, trunk).await;
        let own = own.unwrap().unwrap();
        [true, false].map(|registers| as_told(app, &own, registers).unwrap().registrar_realms)
    };
    let known = |realms: &[&str]| {
        let realms = realms.iter().map(|realm| (*realm).to_owned()).collect();
        RegistrarRealms::Known(realms)
    };
    let heard = |realms: &[&str], outcome| Standing {
        outcome,
        realms: match known(realms) {
            RegistrarRealms::Known(realms) => Some(realms),
            _ => None,
        },
    };
    let until = app.clock.now().plus(CLAIM);
    let awaited = || RegistrarRealms::Awaited;
    assert_eq!(tells().await, [awaited(), awaited()]);
    bench.stands(trunk, Err(busy())).await;
    assert_eq!(tells().await, [awaited(), awaited()]);
    // A node of the version before says that it is registered, and in no realm.
    bench.stands(trunk, Ok(until)).await;
    assert_eq!(tells().await, [awaited(), RegistrarRealms::Unknown]);
    for (realms, outcome) in [
        (vec!["acme"], Ok(until)),
        (vec!["acme", "far"], Err(busy())),
        (vec![], Ok(until)),
    ] {
        bench.stands(trunk, heard(&realms, outcome)).await;
        assert_eq!(tells().await, [known(&realms), known(&realms)]);
        // A word that names none takes none away.
        bench.stands(trunk, Err(busy())).await;
        assert_eq!(tells().await, [known(&realms), known(&realms)]);
    }
    // Who enables it again begins anew, and a trunk that does not register has nobody to hear.
    for status in ["disabled", "active"] {
        let body = json!({"status": status});
        bench.test.call("PATCH", &path, Some(body)).await;
    }
    assert_eq!(tells().await, [awaited(), awaited()]);
    let trunk = bench.by_address(&bench.test.key).await;
    let own = store::get(&app.db, bench.test.account, trunk).await;
    let told = as_told(app, &own.unwrap().unwrap(), false).unwrap();
    assert_eq!(told.registrar_realms, RegistrarRealms::Unknown);
}

#[tokio::test]
async fn a_call_waits_for_a_registrars_first_word_and_not_for_one_that_is_gone() {
    let [silent, heard, unknown] = [7, 8, 9].map(sip::trunk::TrunkId);
    let register = Register::default();
    let waits = async |number| {
        let settled = register.settled(number);
        timeout(Duration::ZERO, settled).await.is_err()
    };
    let both = HashSet::from([silent, heard]);
    let now = tokio::time::Instant::now();
    register.set_awaited(&both, now);
    assert!(waits(silent).await && waits(heard).await && !waits(unknown).await);
    register.heard(heard);
    assert!(waits(silent).await && !waits(heard).await);
    // It is looked at again and again, and is as before.
    register.set_awaited(&both, now);
    assert!(waits(silent).await && !waits(heard).await);
    // Its realms are known, and then it is to be heard anew: long ago by now, or just so.
    let long_ago = now.checked_sub(Duration::from_secs(5)).unwrap();
    for (since, is_waited_for) in [(long_ago, false), (now, true)] {
        register.set_awaited(&HashSet::new(), now);
        assert!(!waits(silent).await);
        register.set_awaited(&both, since);
        assert_eq!(waits(silent).await, is_waited_for);
        assert_eq!(waits(heard).await, is_waited_for);
    }
    // Who waits is told.
    let told = timeout(LONG, async {
        tokio::join!(register.settled(silent), async { register.heard(silent) })
    });
    assert!(told.await.is_ok());
}
