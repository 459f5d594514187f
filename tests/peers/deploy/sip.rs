//! `deploy/sip/`: its requests are posted as they stand, its settings are the program's, and a call goes through
//! its Kamailio.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use control::config::Config;
use kit::certificates;
use kit::ports::free_port;
use kit::server::{Server, Setup};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::read;

const README: &str = "sip/README.md";

/// The blocks of a README in this language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let after = text.split(&opening).skip(1);
    after
        .map(|rest| rest.split("\n```").next().unwrap().to_owned())
        .collect()
}

async fn first_agent(server: &Server) -> String {
    let agents = server.client().get("/agents").await.expect(200);
    agents.body["items"][0]["id"].as_str().unwrap().to_owned()
}

/// Every command of the README, in its order, by a shell: each is taken, and makes what its body says.
#[tokio::test]
async fn the_requests_of_the_readme_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    certificates::make(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let server = Setup::default()
        .scripted()
        .set("SIP__LISTEN", "udp:127.0.0.1:0,tls:127.0.0.1:0")
        .set("SIP__TLS_CERTIFICATE", &file("leaf.crt"))
        .set("SIP__TLS_KEY", &file("leaf.key"))
        .set(
            "EGRESS__ALLOW",
            "198.51.100.0/24,203.0.113.0/24,192.0.2.0/24",
        )
        .start()
        .await;
    let agent = first_agent(&server).await;
    let commands = blocks(&read(README), "sh");
    assert!(commands.len() >= 10, "{}", commands.len());
    let (mut trunk, mut trunks, mut numbers) = (String::new(), 0, 0);
    let mut modes = Vec::new();
    for command in &commands {
        let ran = Command::new("bash")
            .args(["-euo", "pipefail", "-c", command])
            .env("SIDETONE", &server.url)
            .env("KEY", &server.key)
            .env("AGENT", &agent)
            .env("TRUNK", &trunk)
            .output()
            .expect("bash runs");
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{told}\n{command}");
        let made: Value = serde_json::from_slice(&ran.stdout).unwrap();
        if command.contains("/phone-numbers/sip/register") {
            assert_eq!(made["trunk_id"], trunk, "{made}");
            assert_eq!(made["agent_id"], agent, "{made}");
            numbers += 1;
            continue;
        }
        let one = made.get("trunk").unwrap_or(&made);
        trunk = one["id"].as_str().unwrap().to_owned();
        trunks += 1;
        modes.push((one["type"].clone(), one["auth_mode"].clone()));
        for number in made["phone_numbers"].as_array().into_iter().flatten() {
            assert_eq!(number["agent_id"], agent, "{number}");
            numbers += 1;
        }
    }
    for (kind, mode) in [
        ("outbound", "digest"),
        ("inbound", "ip_acl"),
        ("outbound", "ip_acl"),
        ("inbound", "register"),
        ("inbound", "digest"),
        ("outbound", "digest_plus_ip_acl"),
        ("inbound", "digest_plus_ip_acl"),
    ] {
        assert!(modes.contains(&(json!(kind), json!(mode))), "{kind} {mode}");
    }
    let client = server.client();
    let listed = client.get("/sip-trunks").await.expect(200).body;
    assert_eq!(listed["total"], trunks);
    let listed = client.get("/phone-numbers").await.expect(200).body;
    assert_eq!(listed["total"], numbers);
}

/// The settings are taken, with what is commented out as well, and README tells the same ports.
#[test]
fn the_settings_are_taken_and_readme_tells_their_ports() {
    let text = read("sip/sidetone.toml");
    let loaded = |text: &str| {
        Config::load(Some(text), &BTreeMap::new()).unwrap_or_else(|error| panic!("{error}\n{text}"))
    };
    let config = loaded(&text);
    let ports: Vec<u16> = config.sip.listen.iter().map(|l| l.addr.port()).collect();
    assert_eq!(ports, [5060, 5060, 5061]);
    assert!(config.sip.tls.is_some() && !config.sip.public_addresses.is_empty());
    let (first, last) = config.sip.ports;
    let readme = read(README);
    assert!(readme.contains(&format!("| {first} to {last} UDP |")));
    assert!(readme.contains("| 5060 UDP (and TCP) |") && readme.contains("| 5061 TCP |"));
    loaded(
        &text
            .replace("#[egress]", "[egress]")
            .replace("#allow", "allow"),
    );
}

/// Kamailio with the file of the folder, on loopback: the carrier is 127.0.0.2.
struct Kamailio {
    child: Child,
    folder: tempfile::TempDir,
}

impl Kamailio {
    async fn start(port: u16, sidetone: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut text = read("sip/kamailio.cfg");
        for (from, to) in [
            (
                "udp:0.0.0.0:5060 advertise 192.0.2.10:5060",
                format!("udp:127.0.0.1:{port}"),
            ),
            ("sip:203.0.113.5:5060", format!("sip:127.0.0.1:{sidetone}")),
            ("\"203.0.113.5\"", "\"127.0.0.1\"".to_owned()),
            ("198.51.100.0/24", "127.0.0.2/32".to_owned()),
        ] {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            text = text.replace(from, &to);
        }
        let file = folder.path().join("kamailio.cfg");
        std::fs::write(&file, text).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new("kamailio")
            .args(["-DD", "-E", "-m", "16", "-M", "4", "-f"])
            .arg(&file)
            .arg("-w")
            .arg(folder.path())
            .arg("-Y")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("kamailio is missing: run `bash scripts/setup.sh test`");
        let kamailio = Self { child, folder };
        let patience = Instant::now() + Duration::from_secs(20);
        // It has its port once nobody else can take it.
        while UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            assert!(Instant::now() < patience, "{}", kamailio.log());
            sleep(Duration::from_millis(50)).await;
        }
        kamailio
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

impl Drop for Kamailio {
    /// Asks it to end: killed, it would leave its children behind.
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").arg(pid).status();
        assert!(asked.is_ok_and(|status| status.success()) || std::thread::panicking());
        let _ = self.child.wait();
    }
}

/// A carrier's call that keeps to the Record-Route of the proxy.
const CALLER: &str = r#"<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="carrier">
<send retrans="500"><![CDATA[
INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:+4915112345678@[local_ip]:[local_port]>;tag=[pid]c[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: <sip:carrier@[local_ip]:[local_port]>
Max-Forwards: 70
Content-Type: application/sdp
Content-Length: [len]

v=0
o=- 1 1 IN IP4 [local_ip]
s=-
c=IN IP4 [media_ip]
t=0 0
m=audio [media_port] RTP/AVP 8
a=rtpmap:8 PCMA/8000
]]></send>
<recv response="100" optional="true"/>
<recv response="180" optional="true"/>
<recv response="183" optional="true"/>
<recv response="200" rrs="true"/>
<send><![CDATA[
ACK [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
[routes]
From: <sip:+4915112345678@[local_ip]:[local_port]>;tag=[pid]c[call_number]
[last_To:]
Call-ID: [call_id]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0

]]></send>
<pause milliseconds="1500"/>
<send retrans="500"><![CDATA[
BYE [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
[routes]
From: <sip:+4915112345678@[local_ip]:[local_port]>;tag=[pid]c[call_number]
[last_To:]
Call-ID: [call_id]
CSeq: 2 BYE
Max-Forwards: 70
Content-Length: 0

]]></send>
<recv response="200"/>
</scenario>
"#;

#[tokio::test]
async fn a_carriers_call_goes_through_kamailio_to_the_agent() {
    let (sidetone, proxy) = (free_port(), free_port());
    let server = Setup::default()
        .scripted()
        .set("SIP__LISTEN", &format!("udp:127.0.0.1:{sidetone}"))
        .set("EGRESS__ALLOW", "127.0.0.1")
        .start()
        .await;
    let kamailio = Kamailio::start(proxy, sidetone).await;
    let client = server.client();
    let agent = first_agent(&server).await;
    let trunk = json!({"name": "Through Kamailio", "type": "inbound", "auth_mode": "ip_acl",
        "allowed_addresses": ["127.0.0.1"]});
    let trunk = client.post("/sip-trunks", &trunk).await.expect(201);
    let number =
        json!({"phone_number": "+4930123458", "trunk_id": trunk.text("id"), "agent_id": agent});
    client
        .post("/phone-numbers/sip/register", &number)
        .await
        .expect(201);

    let file = server.data.join("carrier.xml");
    std::fs::write(&file, CALLER).unwrap();
    let ended = tokio::process::Command::new("sipp")
        .args([
            "-sf",
            file.to_str().unwrap(),
            "-i",
            "127.0.0.2",
            "-mi",
            "127.0.0.2",
        ])
        .args([
            "-p",
            &free_port().to_string(),
            "-mp",
            &free_port().to_string(),
        ])
        .args([
            "-s",
            "+4930123458",
            "-m",
            "1",
            "-timeout",
            "30s",
            "-nostdin",
        ])
        .arg(format!("127.0.0.1:{proxy}"))
        .current_dir(&server.data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .expect("sipp is missing: run `bash scripts/setup.sh test`");
    assert!(ended.success(), "{}\n{}", kamailio.log(), server.log());
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let list = client.get("/calls").await.expect(200).body;
        let call = &list["items"][0];
        if call["status"] == "completed" {
            assert_eq!(
                (&call["agent_id"], &call["to_number"], &call["from_number"]),
                (
                    &json!(agent),
                    &json!("+4930123458"),
                    &json!("+4915112345678")
                )
            );
            assert_eq!(call["trunk_id"], trunk.text("id"));
            return;
        }
        assert!(Instant::now() < patience, "{list}");
        sleep(Duration::from_millis(100)).await;
    }
}
