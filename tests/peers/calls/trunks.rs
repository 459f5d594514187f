//! Trunks that are made over the API, and the calls that come over them: SIPp is the carrier, by its
//! address and as a registrar (by its password: `digest.rs`).

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kit::client::Client;
use kit::ports::free_port;
use kit::server::Server;
use kit::telephone::Telephone;
use media::rtp::sdp::Encryption;
use serde_json::{Value, json};
use sip::message::parse::{Framing, parse};
use sip::message::{Message, Method, Name, Request, Response};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::stage;

pub(crate) const NUMBER: &str = "+4930123456";

/// A server that knows no telephone but what the API tells it, and where it will listen.
pub(crate) async fn server() -> (Server, SocketAddr) {
    server_with(&[]).await
}

/// The same with more settings.
pub(crate) async fn server_with(settings: &[(&str, &str)]) -> (Server, SocketAddr) {
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let setup = stage::setup()
        .set("SIP__LISTEN", &format!("udp:{listen}"))
        .set("EGRESS__ALLOW", "127.0.0.1");
    let server = settings
        .iter()
        .fold(setup, |setup, (name, value)| setup.set(name, value))
        .start()
        .await;
    (server, listen)
}

/// An inbound trunk, an agent, and its number on that trunk; the ids of the three.
pub(crate) async fn line(client: &Client, trunk: Value, number: Value) -> (String, String, String) {
    let agent = stage::agent(client, json!({"interruption_enabled": false})).await;
    let trunk = client.post("/sip-trunks", &trunk).await.expect(201);
    let trunk = trunk.text("id");
    let mut body = json!({"phone_number": NUMBER, "trunk_id": trunk, "agent_id": agent});
    for (name, value) in number.as_object().unwrap() {
        body[name] = value.clone();
    }
    let number = client.post("/phone-numbers/sip/register", &body).await;
    (trunk, agent, number.expect(201).text("id"))
}

pub(crate) fn by_address() -> Value {
    json!({"name": "by address", "type": "inbound", "auth_mode": "ip_acl",
        "allowed_addresses": ["127.0.0.1"]})
}

/// SIPp with these arguments, in the server's folder.
pub(crate) fn sipp(folder: &Path, args: &[&str]) -> Child {
    Command::new("sipp")
        .args(args)
        .arg("-nostdin")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("sipp is installed by scripts/setup.sh test")
}

/// SIPp as a caller of `number`; more arguments before the target.
pub(crate) fn caller(server: &Server, target: SocketAddr, number: &str, more: &[&str]) -> Child {
    let (target, media) = (target.to_string(), free_port().to_string());
    let port = free_port().to_string();
    let mut args = vec![
        "-i",
        "127.0.0.1",
        "-p",
        &port,
        "-mi",
        "127.0.0.1",
        "-mp",
        &media,
    ];
    args.extend(["-rtp_echo", "-m", "1", "-s", number]);
    args.extend(more);
    args.push(&target);
    sipp(&server.data, &args)
}

pub(crate) async fn well(mut child: Child) -> bool {
    let ended = timeout(Duration::from_secs(60), child.wait()).await;
    ended.expect("sipp ends").unwrap().success()
}

/// What the list says, once it has what is looked for.
pub(crate) async fn until(client: &Client, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        let body = client.get(path).await.expect(200).body;
        if fits(&body) {
            return body;
        }
        assert!(Instant::now() < patience, "{path}: {body}");
        sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) async fn calls(client: &Client, count: usize) -> Vec<Value> {
    let over = |list: &Value| {
        let items = list["items"].as_array().unwrap();
        items.len() == count && items.iter().all(|call| !call["ended_at"].is_null())
    };
    let list = until(client, "/calls?limit=100", over).await;
    list["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_call_over_a_trunk_of_the_api_reaches_the_numbers_agent() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    let (trunk, agent, number) = line(&client, by_address(), json!({})).await;
    let talking = caller(&server, listen, NUMBER, &["-sn", "uac", "-d", "3000"]);
    let path = format!("/sip-trunks/{trunk}");
    until(&client, &path, |trunk| trunk["active_calls"] == 1).await;
    assert!(well(talking).await, "{}", server.log());
    until(&client, &path, |trunk| trunk["active_calls"] == 0).await;
    // As a carrier of the country writes it, and without the plus.
    for written in ["030123456", "4930123456"] {
        let short = caller(&server, listen, written, &["-sn", "uac", "-d", "500"]);
        assert!(well(short).await, "{written}: {}", server.log());
    }
    for call in calls(&client, 3).await {
        assert_eq!(call["status"], "completed", "{call}");
        assert_eq!(
            (
                &call["agent_id"],
                &call["trunk_id"],
                &call["phone_number_id"]
            ),
            (&json!(agent), &json!(trunk), &json!(number)),
            "{call}"
        );
        assert_eq!(
            (&call["to_number"], &call["channel"], &call["sip_code"]),
            (&json!(NUMBER), &json!("sip"), &json!(200))
        );
    }
    let list = client.get("/calls?limit=100").await.expect(200).body;
    let mut spellings: Vec<Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["matched_by"].clone())
        .collect();
    spellings.sort_by_key(ToString::to_string);
    let by = |number: &str| json!({"trunk": "address", "number": number});
    // Without the plus it is the same number.
    assert_eq!(spellings, [by("exact"), by("exact"), by("spelling")]);
    // Nobody's number, and a number whose trunk is disabled.
    let nobody = caller(&server, listen, "+4930999999", &["-sn", "uac"]);
    assert!(!well(nobody).await);
    client
        .patch(&path, &json!({"status": "disabled"}))
        .await
        .expect(200);
    let patience = Instant::now() + Duration::from_secs(10);
    while ask(listen, "127.0.0.1").is_some() {
        assert!(
            Instant::now() < patience,
            "a disabled trunk's carrier is still heard"
        );
    }
    assert_eq!(client.get("/calls").await.expect(200).body["total"], 3);
}

#[tokio::test]
async fn a_trunk_takes_the_numbers_that_it_lists_as_its_carrier_writes_them() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    let (trunk, ..) = line(&client, by_address(), json!({})).await;
    let path = format!("/sip-trunks/{trunk}");
    let within = Duration::from_secs(10);
    for listed in ["030123456", NUMBER] {
        let numbers = json!({"numbers": [listed]});
        client.patch(&path, &numbers).await.expect(200);
        for number in ["030123456", NUMBER] {
            let call = Telephone::call_number(listen, number, Encryption::Disable, within);
            match call.await {
                Ok(telephone) => {
                    assert_eq!(number, listed);
                    telephone.hang_up().await;
                }
                Err(code) => {
                    assert_ne!(number, listed, "{}", server.log());
                    assert_eq!(code, 404);
                }
            }
        }
    }
    for call in calls(&client, 2).await {
        assert_eq!(call["to_number"], NUMBER, "{call}");
    }
}

/// Asks from an address with OPTIONS; the answer's first line, if one comes within a second.
pub(crate) fn ask(target: SocketAddr, from: &str) -> Option<String> {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let own = socket.local_addr().unwrap();
    let id = uuid::Uuid::new_v4();
    let request = format!(
        "OPTIONS sip:{target} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{id}\r\n\
         From: <sip:a@{own}>;tag=1\r\nTo: <sip:{target}>\r\nCall-ID: {id}\r\nCSeq: 1 OPTIONS\r\n\
         Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    );
    socket.send_to(request.as_bytes(), target).unwrap();
    let mut buffer = [0; 2_048];
    let length = socket.recv(&mut buffer).ok()?;
    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
    text.lines().next().map(str::to_owned)
}

#[tokio::test]
async fn another_source_hears_nothing() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    line(&server.client(), by_address(), json!({})).await;
    let patience = Instant::now() + Duration::from_secs(10);
    let answer = loop {
        if let Some(answer) = ask(listen, "127.0.0.1") {
            break answer;
        }
        assert!(Instant::now() < patience, "{}", server.log());
    };
    assert_eq!(answer, "SIP/2.0 200 OK");
    assert_eq!(ask(listen, "127.0.0.2"), None);
}

#[tokio::test]
async fn a_trunk_takes_no_more_calls_than_it_may() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    let mut trunk = by_address();
    trunk["max_concurrent_calls"] = json!(1);
    let (trunk, ..) = line(&client, trunk, json!({})).await;
    let talking = caller(&server, listen, NUMBER, &["-sn", "uac", "-d", "4000"]);
    let path = format!("/sip-trunks/{trunk}");
    until(&client, &path, |trunk| trunk["active_calls"] == 1).await;
    let second = caller(&server, listen, NUMBER, &["-sn", "uac", "-d", "100"]);
    assert!(!well(second).await, "busy");
    assert!(well(talking).await, "{}", server.log());
    calls(&client, 1).await;
    let third = caller(&server, listen, NUMBER, &["-sn", "uac", "-d", "100"]);
    assert!(well(third).await, "{}", server.log());
}

#[tokio::test]
async fn a_trunk_registers_and_receives_a_call_where_it_registered() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    let registrar = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let scenario = server.data.join("registrar.xml");
    std::fs::write(&scenario, registrar_of("line7", "secret7")).unwrap();
    let port = registrar.port().to_string();
    let args = [
        "-sf",
        scenario.to_str().unwrap(),
        "-i",
        "127.0.0.1",
        "-p",
        &port,
        "-m",
        "1",
    ];
    let registering = sipp(&server.data, &args);
    let trunk = json!({"name": "registers", "type": "inbound", "auth_mode": "register",
        "auth_username": "line7", "auth_password": "secret7",
        "allow_md5_without_qop": true, "outbound_address": registrar.to_string(),
        "register_expires": 600});
    let (trunk, ..) = line(&client, trunk, json!({})).await;
    assert!(well(registering).await, "{}", server.log());
    let path = format!("/sip-trunks/{trunk}");
    let registered = until(&client, &path, |trunk| {
        trunk["registration"]["status"] == "registered"
    });
    let registered = registered.await;
    assert!(!registered["registration"]["expires_at"].is_null());
    assert_eq!(registered["registration"]["last_error"], json!(null));
    // The registrar calls whom we registered, and says in To whom it means.
    let scenario = server.data.join("registered.xml");
    std::fs::write(&scenario, call_of_a_registrar()).unwrap();
    let call = caller(
        &server,
        listen,
        "line7",
        &["-sf", scenario.to_str().unwrap()],
    );
    assert!(well(call).await, "{}", server.log());
    let call = calls(&client, 1).await.remove(0);
    assert_eq!(
        (&call["status"], &call["to_number"], &call["trunk_id"]),
        (&json!("completed"), &json!(NUMBER), &json!(trunk))
    );
    assert_eq!(
        call["matched_by"],
        json!({"trunk": "registration", "number": "exact"})
    );
}

/// A registrar that takes every registration, until it is asked for a call.
async fn invited(registrar: &tokio::net::UdpSocket) -> Request {
    let mut buffer = vec![0; 65_536];
    loop {
        let heard = timeout(Duration::from_secs(30), registrar.recv_from(&mut buffer)).await;
        let (length, from) = heard.expect("an INVITE").unwrap();
        let Ok(Some(Message::Request(request))) = parse(&buffer[..length], Framing::Datagram)
        else {
            continue;
        };
        match request.method {
            Method::Invite => return request,
            Method::Register => {
                let mut taken = Response::to(&request.headers, 200, "");
                taken.set_to_tag("registrar");
                taken.headers.copy(&Name::Contact, &request.headers);
                let answer = taken.to_bytes();
                registrar.send_to(&answer, from).await.unwrap();
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_trunk_that_registers_calls_by_its_user_name_and_tells_the_number_beside() {
    let _together = stage::together().await;
    let (server, _) = server().await;
    let client = server.client();
    let registrar = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let trunk = json!({"name": "registers", "type": "inbound", "auth_mode": "register",
        "auth_username": "line7", "auth_password": "secret7", "realm": "acme.example",
        "outbound_address": registrar.local_addr().unwrap().to_string(),
        "outbound_from_user": "username", "outbound_dial_format": "national"});
    let (trunk, agent, _) = line(&client, trunk, json!({"outbound_enabled": true})).await;
    let path = format!("/sip-trunks/{trunk}");
    let calling = async {
        until(&client, &path, |trunk| {
            trunk["registration"]["status"] == "registered"
        })
        .await;
        let wish = json!({"agent_id": agent, "to_number": "+33123456789", "from_number": NUMBER});
        client.post("/calls", &wish).await.expect(202);
    };
    let (invite, ()) = tokio::join!(invited(&registrar), calling);
    assert_eq!(invite.uri.user().as_deref(), Some("0123456789"));
    let from = invite.from().unwrap().uri;
    assert_eq!(from.user().as_deref(), Some("line7"));
    let preferred = Name::parse("P-Preferred-Identity");
    assert_eq!(
        invite.headers.get(&preferred),
        Some(format!("<sip:{NUMBER}@acme.example>").as_str())
    );
}

#[tokio::test]
async fn a_registration_that_is_refused_says_why() {
    let _together = stage::together().await;
    let (server, _) = server().await;
    let client = server.client();
    let registrar = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let scenario = server.data.join("registrar.xml");
    std::fs::write(&scenario, registrar_of("line7", "another")).unwrap();
    let port = registrar.port().to_string();
    let args = [
        "-sf",
        scenario.to_str().unwrap(),
        "-i",
        "127.0.0.1",
        "-p",
        &port,
        "-m",
        "1",
    ];
    let _registering = sipp(&server.data, &args);
    let trunk = json!({"name": "registers", "type": "inbound", "auth_mode": "register",
        "auth_username": "line7", "auth_password": "secret7",
        "allow_md5_without_qop": true, "outbound_address": registrar.to_string()});
    let trunk = client
        .post("/sip-trunks", &trunk)
        .await
        .expect(201)
        .text("id");
    let path = format!("/sip-trunks/{trunk}");
    let failed = until(&client, &path, |trunk| {
        trunk["registration"]["status"] == "failed"
    })
    .await;
    let error = failed["registration"]["last_error"].as_str().unwrap();
    assert!(error.starts_with("403"), "{error}");
    assert_eq!(failed["registration"]["last_failure"]["code"], 403);
}

const OFFER: &str = "v=0
      o=user1 53655765 2353687637 IN IP[local_ip_type] [local_ip]
      s=-
      c=IN IP[media_ip_type] [media_ip]
      t=0 0
      m=audio [media_port] RTP/AVP 0
      a=rtpmap:0 PCMU/8000";

/// An INVITE to `service`, with what stands in To and more headers, each with its end of line: an empty
/// line would end the head.
pub(crate) fn invite(to: &str, more: &str) -> String {
    format!(
        "<send retrans=\"500\"><![CDATA[
      INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From: <sip:+15550100@[local_ip]:[local_port]>;tag=[call_number]
      To: <sip:{to}@[remote_ip]:[remote_port]>
      Call-ID: [call_id]
      CSeq: [cseq] INVITE
      Contact: <sip:carrier@[local_ip]:[local_port]>
      {more}Max-Forwards: 70
      Content-Type: application/sdp
      Content-Length: [len]

      {OFFER}
    ]]></send>"
    )
}

pub(crate) fn ack(to: &str, rest: &str) -> String {
    format!(
        "<send><![CDATA[
      ACK sip:[service]@[remote_ip]:[remote_port] SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From: <sip:+15550100@[local_ip]:[local_port]>;tag=[call_number]
      To: <sip:{to}@[remote_ip]:[remote_port]>[peer_tag_param]
      Call-ID: [call_id]
      CSeq: [cseq] ACK
      Max-Forwards: 70
      Content-Length: 0
    ]]></send>{rest}"
    )
}

/// Talks for a moment, and hangs up.
pub(crate) fn goodbye(to: &str) -> String {
    format!(
        "<pause milliseconds=\"800\"/>
  <send retrans=\"500\"><![CDATA[
      BYE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From: <sip:+15550100@[local_ip]:[local_port]>;tag=[call_number]
      To: <sip:{to}@[remote_ip]:[remote_port]>[peer_tag_param]
      Call-ID: [call_id]
      CSeq: [cseq] BYE
      Max-Forwards: 70
      Content-Length: 0
    ]]></send>
  <recv response=\"200\"/>"
    )
}

pub(crate) fn scenario(steps: &[String]) -> String {
    let steps = steps.concat();
    format!(
        "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>\n<scenario name=\"carrier\">\n{steps}\n</scenario>\n"
    )
}

pub(crate) const ANSWERED: &str = "<recv response=\"100\" optional=\"true\"/>
  <recv response=\"180\" optional=\"true\"/>
  <recv response=\"200\"/>";

/// A call to the user that registered, meant for the number.
fn call_of_a_registrar() -> String {
    scenario(&[
        invite(NUMBER, ""),
        ANSWERED.to_owned(),
        ack(NUMBER, ""),
        goodbye(NUMBER),
    ])
}

/// Takes one registration: asks for the password, and looks at it.
fn registrar_of(user: &str, password: &str) -> String {
    let answer = |status: &str, more: &str| {
        format!(
            "<send><![CDATA[
      SIP/2.0 {status}
      [last_Via:]
      [last_From:]
      [last_To:];tag=registrar[call_number]
      [last_Call-ID:]
      [last_CSeq:]
      {more}Content-Length: 0
    ]]></send>"
        )
    };
    let challenge = "WWW-Authenticate: Digest realm=\"acme\", nonce=\"47ebe028cda119c35d4877b383027d28\", algorithm=MD5\n      ";
    scenario(&[
        "<recv request=\"REGISTER\"/>".to_owned(),
        answer("401 Unauthorized", challenge),
        format!(
            "<recv request=\"REGISTER\"><action><verifyauth assign_to=\"ok\" username=\"{user}\" \
             password=\"{password}\"/></action></recv><nop next=\"1\" test=\"ok\"/>"
        ),
        answer("403 Forbidden", ""),
        "<nop next=\"2\"/><label id=\"1\"/>".to_owned(),
        answer("200 OK", "[last_Contact:]\n      Expires: 600\n      "),
        "<label id=\"2\"/>".to_owned(),
    ])
}
