//! An inbound trunk that is known by its password alone: SIPp is the carrier. It answers with MD5 only
//! and gives up at the first challenge that it does not know, so a border controller of an older make
//! stands before it and passes on that challenge alone; and it hashes a URI without a user unless it is
//! told which (`-auth_uri`).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::trunks::{
    ANSWERED, NUMBER, ack, caller, calls, goodbye, invite, line, scenario, server, well,
};
use crate::stage;

/// Passes SIP on between one caller and a server, but for the challenges with SHA-256.
struct Border {
    addr: SocketAddr,
    /// INVITEs with credentials, as the caller sent them.
    answered: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Border {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Border {
    async fn open(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let answered = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&answered);
        let task = tokio::spawn(async move {
            let (mut caller, mut datagram) = (None, vec![0; 65_536]);
            loop {
                let (length, from) = socket.recv_from(&mut datagram).await.unwrap();
                let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
                let (to, text) = if from == server {
                    (caller, without_sha_256(&text))
                } else {
                    caller = Some(from);
                    if text.starts_with("INVITE") && text.contains("\r\nAuthorization:") {
                        seen.lock().unwrap().push(text.clone());
                    }
                    (Some(server), text)
                };
                if let Some(to) = to {
                    socket.send_to(text.as_bytes(), to).await.unwrap();
                }
            }
        });
        Self {
            addr,
            answered,
            task,
        }
    }
}

fn without_sha_256(response: &str) -> String {
    let passes = |line: &&str| {
        !(line.starts_with("WWW-Authenticate:") && line.contains("algorithm=SHA-256"))
    };
    let lines: Vec<&str> = response.split("\r\n").filter(passes).collect();
    lines.join("\r\n")
}

/// A call that is asked for its password.
fn digest_call() -> String {
    let steps = scenario(&[
        invite("[service]", ""),
        "<recv response=\"100\" optional=\"true\"/><recv response=\"401\" auth=\"true\"/>"
            .to_owned(),
        ack("[service]", ""),
        invite("[service]", "[authentication]\n      ").replace("CSeq: [cseq]", "CSeq: 2"),
        ANSWERED.to_owned(),
        ack("[service]", "").replace("CSeq: [cseq]", "CSeq: 2"),
        "<pause milliseconds=\"2000\"/>".to_owned(),
        goodbye("[service]").replace("CSeq: [cseq]", "CSeq: 3"),
    ]);
    // Answers come back the way that requests went (RFC 3581), and not past the border.
    steps.replace(";branch=[branch]", ";rport;branch=[branch]")
}

#[tokio::test]
async fn a_trunks_password_opens_and_a_wrong_one_or_a_used_answer_does_not() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    let trunk = json!({"name": "by password", "type": "inbound", "auth_username": "carrier",
        "auth_password": "right"});
    line(&client, trunk, json!({})).await;
    let border = Border::open(listen).await;
    let scenario = server.data.join("digest.xml");
    std::fs::write(&scenario, digest_call()).unwrap();
    let file = scenario.to_str().unwrap();
    let uri = format!("{NUMBER}@{}", border.addr);
    for (password, taken) in [("wrong", false), ("right", true)] {
        let args = [
            "-sf",
            file,
            "-au",
            "carrier",
            "-ap",
            password,
            "-auth_uri",
            &uri,
        ];
        let call = caller(&server, border.addr, NUMBER, &args);
        assert_eq!(well(call).await, taken, "{password}: {}", server.log());
    }
    // The agent was heard: its own tone came back as the caller's voice.
    let call = calls(&client, 1).await.remove(0);
    assert_eq!(call["status"], "completed", "{call}");
    assert_eq!(
        call["matched_by"],
        json!({"trunk": "digest", "number": "exact"})
    );
    let id = call["id"].as_str().unwrap();
    stage::over(&client, id, Duration::from_secs(20)).await;
    let [echoed, said] = stage::recording(&client, id).await;
    let (said, echoed) = (stage::loud(&said), stage::loud(&echoed));
    assert!(said > 0.5 && echoed > 0.5, "{said} {echoed}");
    // Who overheard the right answer calls with it, from the same address and within its lifetime.
    let heard = border.answered.lock().unwrap().last().cloned().unwrap();
    assert!(heard.contains("nc=00000001"), "{heard}");
    let answer = repeat(border.addr, &heard).await;
    assert!(answer.starts_with("SIP/2.0 401 "), "{answer}");
    assert!(answer.contains("stale=true"), "{answer}");
    calls(&client, 1).await;
}

/// Sends an INVITE as another call's first request; its final response.
async fn repeat(to: SocketAddr, invite: &str) -> String {
    let anew = |line: &str| match line.split_once(':') {
        Some(("Via", _)) => "Via: SIP/2.0/UDP 127.0.0.1:9;rport;branch=z9hG4bK-again".to_owned(),
        Some(("Call-ID", _)) => "Call-ID: again".to_owned(),
        Some(("From", value)) => format!("From:{};tag=again", value.split(";tag=").next().unwrap()),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = invite.split("\r\n").map(anew).collect();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut datagram = vec![0; 65_536];
    socket
        .send_to(lines.join("\r\n").as_bytes(), to)
        .await
        .unwrap();
    loop {
        let came = timeout(Duration::from_secs(10), socket.recv(&mut datagram));
        let length = came.await.expect("an answer").unwrap();
        let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
        if !text.starts_with("SIP/2.0 1") {
            return text;
        }
    }
}
