//! Who asks for a trunk's password and is not its carrier: whomever the carrier's answer names, and a callee behind its
//! proxy. Sockets play the carrier and the stranger.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use sip::message::parse::{Framing, parse};
use sip::message::{Body, Message, Method, Name, Request, Response};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::outbound::{line, over, place, standing};
use super::trunks::{server, until};
use crate::stage;

const REALM: &str = "Digest realm=\"acme\", nonce=\"one\", qop=\"auth\"";
const EVIL: &str = "Digest realm=\"evil\", nonce=\"two\"";

/// Somebody who speaks SIP by hand.
struct Peer {
    socket: UdpSocket,
    address: SocketAddr,
    /// All that came.
    heard: Vec<Request>,
}

impl Peer {
    async fn open() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        Self {
            socket,
            address,
            heard: Vec::new(),
        }
    }

    /// The next request of this method, and whence it came.
    async fn next(&mut self, method: &Method) -> (Request, SocketAddr) {
        let mut datagram = vec![0; 65_536];
        loop {
            let came = timeout(
                Duration::from_secs(20),
                self.socket.recv_from(&mut datagram),
            );
            let (length, from) = came.await.expect("a request").unwrap();
            let Ok(Some(Message::Request(request))) = parse(&datagram[..length], Framing::Datagram)
            else {
                continue;
            };
            self.heard.push(request.clone());
            if request.method == *method {
                return (request, from);
            }
        }
    }

    async fn answer(&self, to: &(Request, SocketAddr), code: u16, fields: &[(Name, String)]) {
        let mut response = Response::to(&to.0.headers, code, "");
        response.set_to_tag("there");
        for (name, value) in fields {
            response.headers.push(name.clone(), value.as_str());
        }
        if code == 200 && to.0.method == Method::Invite {
            let sdp = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
                m=audio 9 RTP/AVP 0\r\n";
            response.set_body(Some(Body::sdp(sdp)));
        }
        self.socket
            .send_to(&response.to_bytes(), to.1)
            .await
            .unwrap();
    }

    /// What came within a moment.
    async fn listen(&mut self) {
        let mut datagram = vec![0; 65_536];
        let quiet = Duration::from_millis(1_500);
        while let Ok(came) = timeout(quiet, self.socket.recv_from(&mut datagram)).await {
            if let Ok(Some(Message::Request(request))) =
                parse(&datagram[..came.unwrap().0], Framing::Datagram)
            {
                self.heard.push(request);
            }
        }
    }
}

fn proves(request: &Request) -> bool {
    request.headers.has(&Name::Authorization) || request.headers.has(&Name::ProxyAuthorization)
}

#[tokio::test]
async fn who_is_not_the_carrier_gets_no_password_and_the_trunks_record_says_so() {
    let _together = stage::together().await;
    let (server, _) = server().await;
    let client = server.client();
    let (mut carrier, mut stranger) = (Peer::open().await, Peer::open().await);
    let trunk = json!({"auth_mode": "digest", "auth_username": "acme", "auth_password": "right"});
    let wish = line(&client, carrier.address, trunk).await;
    let list = client.get("/sip-trunks").await.expect(200).body;
    let path = format!("/sip-trunks/{}", list["items"][0]["id"].as_str().unwrap());
    for proxied in [false, true] {
        let id = place(&client, &wish).await;
        let first = carrier.next(&Method::Invite).await;
        assert!(!proves(&first.0));
        let asked = [(Name::ProxyAuthenticate, REALM.to_owned())];
        carrier.answer(&first, 407, &asked).await;
        let invite = loop {
            let invite = carrier.next(&Method::Invite).await;
            if invite.0.cseq().unwrap().number == 2 {
                break invite;
            }
        };
        assert!(proves(&invite.0), "the carrier itself");
        let mut fields = vec![(Name::Contact, format!("<sip:evil@{}>", stranger.address))];
        if proxied {
            fields.push((Name::RecordRoute, format!("<sip:{};lr>", carrier.address)));
        }
        carrier.answer(&invite, 200, &fields).await;
        standing(&client, &id, "in_progress").await;
        carrier.heard.clear();
        let ended = client.post(&format!("/calls/{id}/end"), &json!({})).await;
        ended.expect(200);
        let asking = if proxied { &mut carrier } else { &mut stranger };
        let bye = asking.next(&Method::Bye).await;
        let asked = [(Name::WwwAuthenticate, EVIL.to_owned())];
        asking.answer(&bye, 401, &asked).await;
        asking.listen().await;
        // The ACK of a call that goes straight to the stranger included.
        let given: Vec<&Request> = asking
            .heard
            .iter()
            .filter(|request| {
                request.headers.has(&Name::Authorization) || (!proxied && proves(request))
            })
            .collect();
        assert!(given.is_empty(), "{proxied}: {given:?}");
        over(&server, &id).await;
        let why = match proxied {
            true => "BYE: challenge not answered: realm \"evil\" is not the trunk's".to_owned(),
            false => format!(
                "BYE: challenge not answered: {} is of none of the trunk's hosts",
                stranger.address
            ),
        };
        let told = until(&client, &path, |trunk| {
            trunk["last_refused_challenge"]["reason"] == json!(why)
        });
        assert_eq!(told.await["last_refused_challenge"]["code"], 401);
    }
}

/// A callee who asks before it takes the call.
#[tokio::test]
async fn a_callee_who_asks_for_a_password_ends_the_call_with_its_reason() {
    let _together = stage::together().await;
    let (server, _) = server().await;
    let client = server.client();
    let mut carrier = Peer::open().await;
    let trunk = json!({"auth_mode": "digest", "auth_username": "acme", "auth_password": "right"});
    let wish = line(&client, carrier.address, trunk).await;
    let id = place(&client, &wish).await;
    let first = carrier.next(&Method::Invite).await;
    let asked = [(Name::ProxyAuthenticate, REALM.to_owned())];
    carrier.answer(&first, 407, &asked).await;
    let invite = carrier.next(&Method::Invite).await;
    assert!(proves(&invite.0));
    let asked = [(Name::WwwAuthenticate, EVIL.to_owned())];
    carrier.answer(&invite, 401, &asked).await;
    carrier.listen().await;
    assert!(
        carrier
            .heard
            .iter()
            .all(|request| !request.headers.has(&Name::Authorization))
    );
    let call = over(&server, &id).await;
    assert_eq!(call["sip_code"], 401, "{call}");
    let path = format!("/conversations/{id}/diagnostics");
    let errors = client.get(&path).await.expect(200).body["errors"].to_string();
    assert!(errors.contains("challenge not answered"), "{errors}");
}
