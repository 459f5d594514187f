//! Whoever looks for telephone servers to abuse finds nothing here: SIPVicious, the tool that they use,
//! from an address of no trunk. Who has the address of a trunk does not learn whom the server knows, neither
//! by what it answers nor by how soon.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use kit::server::Server;
use serde_json::json;
use sip::auth::{Challenge, Credentials};
use tokio::process::Command;

use super::trunks::{NUMBER, ask, by_address, line, server, server_with};
use crate::stage;

/// The scanner for servers, the one for extensions and the one for passwords; each tries twenty things.
const TOOLS: [(&str, &[&str]); 3] = [
    ("svmap", &[]),
    ("svwar", &["-e", "100-119"]),
    ("svcrack", &["-u", "100", "-r", "1000-1019"]),
];

/// What a tool says of this server; it asks from 127.0.0.1.
async fn scan((tool, args): (&str, &[&str]), target: SocketAddr) -> String {
    let port = target.port().to_string();
    let ran = Command::new(tool)
        .args(["-p", &port])
        .args(args)
        .arg(target.ip().to_string())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), ran).await;
    let output = output
        .expect("it ends")
        .expect("sipvicious is installed by scripts/setup.sh test");
    let told = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&told).into_owned()
}

/// Waits until an address is answered.
fn heard(server: &Server, target: SocketAddr, from: &str) {
    let patience = Instant::now() + Duration::from_secs(10);
    while ask(target, from).is_none() {
        assert!(Instant::now() < patience, "{}", server.log());
    }
}

#[tokio::test]
async fn who_scans_from_an_unknown_address_finds_nothing() {
    let _together = stage::together().await;
    let (server, listen) = server_with(&[("EGRESS__ALLOW", "127.0.0.0/8")]).await;
    let client = server.client();
    let mut trunk = by_address();
    trunk["allowed_addresses"] = json!(["127.0.0.9"]);
    let (trunk, ..) = line(&client, trunk, json!({})).await;
    heard(&server, listen, "127.0.0.9");
    for tool in TOOLS {
        let told = scan(tool, listen).await;
        assert!(told.contains("found nothing"), "{tool:?}: {told}");
    }
    // From a trunk's own address the first of them does find the server, though no more than that.
    let known = json!({"allowed_addresses": ["127.0.0.1"]});
    let path = format!("/sip-trunks/{trunk}");
    client.patch(&path, &known).await.expect(200);
    heard(&server, listen, "127.0.0.1");
    for tool in TOOLS {
        let told = scan(tool, listen).await;
        assert_eq!(
            told.contains("found nothing"),
            tool.0 != "svmap",
            "{tool:?}: {told}"
        );
    }
    assert_eq!(client.get("/calls").await.expect(200).body["total"], 0);
}

/// One whom the server knows and one whom it does not, and numbers likewise. They are equally long.
const USERS: [&str; 2] = ["carrier", "nobody7"];
const NUMBERS: [&str; 2] = [NUMBER, "+4930999999"];

/// How an INVITE without the password is answered.
const ASKED: &str = "SIP/2.0 401 Unauthorized";

/// How much longer the answers for one of the two may take, by their medians.
const SPREAD: f64 = 0.05;

/// How often each of the two is asked for in a round.
const TIMES: usize = 1_000;

/// The machine may have other work, but once in so many rounds both are served alike. What the server itself does
/// longer for one of them shows in every round.
const ROUNDS: usize = 3;

/// Asks from a trunk's address, one thing after the other.
struct Scanner {
    socket: UdpSocket,
    target: SocketAddr,
    /// Requests so far.
    count: usize,
}

impl Scanner {
    fn new(target: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let patience = Some(Duration::from_secs(10));
        socket.set_read_timeout(patience).unwrap();
        Self {
            socket,
            target,
            count: 0,
        }
    }

    /// Asks for a user, with more header lines; the final answer, and how long it took, µs.
    fn ask(&mut self, method: &str, user: &str, more: &str) -> (String, f64) {
        self.count += 1;
        let (request, id) = (self.request(method, user, more), self.id());
        let began = Instant::now();
        self.send(&request);
        let mut datagram = [0; 4_096];
        let (answer, took) = loop {
            let length = self.socket.recv(&mut datagram).expect("an answer");
            let took = began.elapsed().as_secs_f64() * 1e6;
            let answer = String::from_utf8_lossy(&datagram[..length]).into_owned();
            // An answer to an earlier request may come again.
            if answer.contains(&id) && !answer.starts_with("SIP/2.0 1") {
                break (answer, took);
            }
        };
        if method == "INVITE" {
            self.send(&self.request("ACK", user, ""));
        }
        (answer, took)
    }

    /// The Call-ID of the latest request.
    fn id(&self) -> String {
        format!("scan{:06}", self.count)
    }

    /// The latest request, or the ACK of its answer.
    fn request(&self, method: &str, user: &str, more: &str) -> String {
        let (id, target) = (self.id(), self.target);
        let own = self.socket.local_addr().unwrap();
        format!(
            "{method} sip:{user}@{target} SIP/2.0\r\nVia: SIP/2.0/UDP {own};rport;branch=z9hG4bK{id}\r\n\
             From: <sip:+15550100@{own}>;tag=scan\r\nTo: <sip:{user}@{target}>\r\nCall-ID: {id}\r\n\
             CSeq: 1 {method}\r\nMax-Forwards: 70\r\nContact: <sip:+15550100@{own}>\r\n{more}\
             Content-Length: 0\r\n\r\n"
        )
    }

    fn send(&self, text: &str) {
        self.socket.send_to(text.as_bytes(), self.target).unwrap();
    }

    /// The header lines with which both users call that number, each with a password that is wrong.
    fn wrong_passwords(&mut self, number: &str) -> [String; 2] {
        let (asked, _) = self.ask("INVITE", number, "");
        let mut lines = asked.lines();
        let challenge = lines.find_map(|line| line.strip_prefix("WWW-Authenticate: "));
        let challenge = Challenge::parse(challenge.expect("a challenge")).unwrap();
        let uri = format!("sip:{number}@{}", self.target);
        USERS.map(|user| {
            let credentials = Credentials::new(user, "wrong");
            let answer = challenge.answer(&credentials, "INVITE", &uri, 1, "scan");
            format!("Authorization: {answer}\r\n")
        })
    }

    /// Asks by turns for two, each with its own header lines: they are answered alike, and as soon.
    fn sees_no_difference(&mut self, method: &str, status: &str, two: [(&str, &str); 2]) {
        let mut spreads = Vec::new();
        while spreads.len() < ROUNDS {
            let mut took = [Vec::new(), Vec::new()];
            let mut length = None;
            for turn in 0..2 * TIMES {
                // Neither always comes after the other: 0 1 1 0 0 1 1 0 and so on.
                let which = (turn + turn / 2) % 2;
                let (user, more) = two[which];
                let (answer, micros) = self.ask(method, user, more);
                assert_eq!(answer.lines().next(), Some(status), "{method} {user}");
                assert_eq!(
                    *length.get_or_insert(answer.len()),
                    answer.len(),
                    "{answer}"
                );
                took[which].push(micros);
            }
            let [known, unknown] = took.map(|mut took| stage::median(&mut took));
            let spread = known.max(unknown) / known.min(unknown) - 1.0;
            println!("{method} for {two:?}: {known:.1} us and {unknown:.1} us");
            spreads.push(spread);
            if spread <= SPREAD {
                break;
            }
        }
        let last = spreads[spreads.len() - 1];
        assert!(last <= SPREAD, "{method} for {two:?}: {spreads:?}");
    }
}

#[tokio::test]
async fn who_scans_from_a_trunks_address_learns_of_no_user_and_no_number() {
    let _alone = stage::alone().await;
    let (server, listen) = server().await;
    let trunk = json!({"name": "by both", "type": "inbound", "auth_mode": "digest_plus_ip_acl",
        "auth_username": USERS[0], "auth_password": "right", "allowed_addresses": ["127.0.0.1"]});
    line(&server.client(), trunk, json!({})).await;
    heard(&server, listen, "127.0.0.1");
    let mut scanner = Scanner::new(listen);
    for names in [USERS, NUMBERS] {
        for (method, status) in [
            ("REGISTER", "SIP/2.0 405 Method Not Allowed"),
            ("OPTIONS", "SIP/2.0 200 OK"),
            ("INVITE", ASKED),
        ] {
            scanner.sees_no_difference(method, status, names.map(|name| (name, "")));
        }
    }
    let wrong = scanner.wrong_passwords(NUMBER);
    let calls = wrong.each_ref().map(|line| (NUMBER, line.as_str()));
    scanner.sees_no_difference("INVITE", ASKED, calls);
}

/// Another trunk of the address wants no password: whether the number is its own is looked up before one is asked
/// for.
#[tokio::test]
async fn who_scans_beside_a_trunk_without_a_password_learns_of_no_user() {
    let _alone = stage::alone().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), json!({})).await;
    let trunk = json!({"name": "by password", "type": "inbound", "auth_username": USERS[0],
        "auth_password": "right"});
    client.post("/sip-trunks", &trunk).await.expect(201);
    heard(&server, listen, "127.0.0.1");
    let mut scanner = Scanner::new(listen);
    let [_, nobodys] = NUMBERS;
    let patience = Instant::now() + Duration::from_secs(10);
    while !scanner.ask("INVITE", nobodys, "").0.starts_with(ASKED) {
        assert!(Instant::now() < patience, "{}", server.log());
    }
    let wrong = scanner.wrong_passwords(nobodys);
    let calls = wrong.each_ref().map(|line| (nobodys, line.as_str()));
    scanner.sees_no_difference("INVITE", ASKED, calls);
    assert_eq!(client.get("/calls").await.expect(200).body["total"], 0);
}
