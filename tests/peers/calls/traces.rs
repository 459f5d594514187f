//! The SIP messages of calls, as the API and the terminal tell them: SIPp is the carrier.

use std::net::SocketAddr;
use std::process::Output;
use std::time::Duration;

use kit::ports::free_port;
use kit::server::{Server, program};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::outbound::{
    NO_BODY, answer, bye_taken, carrier, line, over, place, recv, send, standing, well,
};
use crate::stage;
use crate::trunks::{scenario, until};

const ADMIN: &str = "the-operators-token-of-this-test";

async fn server() -> Server {
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    stage::setup()
        .set("SIP__LISTEN", &format!("udp:{listen}"))
        .set("EGRESS__ALLOW", "127.0.0.1")
        .set("ADMIN_TOKEN", ADMIN)
        .start()
        .await
}

/// A key of another account with all scopes.
async fn strange_key(server: &Server) -> String {
    let admin = server.anonymous().with_bearer(ADMIN);
    let made = admin
        .post("/admin/accounts", &json!({"name": "other"}))
        .await;
    let keys = format!("/admin/accounts/{}/api-keys", made.expect(201).text("id"));
    let scopes = json!({"name": "all", "scopes": control::http::Scope::NAMES});
    admin.post(&keys, &scopes).await.expect(201).text("key")
}

/// `sent INVITE`, `received 200 INVITE`.
fn told(message: &Value) -> String {
    let text = message["message"].as_str().unwrap();
    let first = text.lines().next().unwrap();
    let what = match first.strip_prefix("SIP/2.0 ") {
        None => first.split(' ').next().unwrap().to_owned(),
        Some(status) => {
            let cseq = text
                .lines()
                .find(|line| line.starts_with("CSeq: "))
                .unwrap();
            format!("{} {}", &status[..3], cseq.rsplit(' ').next().unwrap())
        }
    };
    format!("{} {what}", message["direction"].as_str().unwrap())
}

/// `sidetone sip trace` with these arguments.
async fn command(server: &Server, args: &[&str]) -> Output {
    Command::new(program())
        .args(["sip", "trace", "--url", &server.url])
        .args(args)
        .env("SIDETONE_API_KEY", &server.key)
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_calls_messages_are_told_in_order_and_without_its_secrets() {
    let _together = stage::together().await;
    let mut server = server().await;
    let client = server.client();
    let challenge = "Proxy-Authenticate: Digest realm=\"acme\", nonce=\"47ebe028cda119c35d4877b383027d28\", algorithm=MD5";
    let steps = scenario(&[
        recv("INVITE"),
        send(
            "407 Proxy Authentication Required",
            &format!("{challenge}\n      {NO_BODY}"),
        ),
        recv("ACK"),
        recv("INVITE"),
        send("100 Trying", NO_BODY),
        send("180 Ringing", NO_BODY),
        "<pause milliseconds=\"300\"/>".to_owned(),
        answer("[media_port]"),
        recv("ACK"),
        recv("BYE"),
        bye_taken(),
    ]);
    let (carrier, address) = carrier(&server, &steps, "u1");
    let trunk = json!({"auth_mode": "digest", "auth_username": "acme", "auth_password": "correct-horse",
        "allow_md5_without_qop": true});
    let wish = line(&client, address, trunk).await;
    let id = place(&client, &wish).await;
    standing(&client, &id, "in_progress").await;
    let path = format!("/calls/{id}/sip-trace");
    // While it lives, too.
    until(&client, &path, |trace| {
        trace["messages"]
            .as_array()
            .unwrap()
            .last()
            .map(told)
            .as_deref()
            == Some("sent ACK")
    })
    .await;
    client
        .post(&format!("/calls/{id}/end"), &json!({}))
        .await
        .expect(200);
    over(&server, &id).await;
    well(carrier, &server).await;
    let trace = until(&client, &path, |trace| {
        trace["messages"]
            .as_array()
            .unwrap()
            .last()
            .map(told)
            .as_deref()
            == Some("received 200 BYE")
    })
    .await;
    let messages = trace["messages"].as_array().unwrap();
    let mut story: Vec<String> = messages.iter().map(told).collect();
    // A request goes out once more when a callee that is just starting does not answer within half a second.
    story.dedup();
    assert_eq!(
        story,
        [
            "sent INVITE",
            "received 407 INVITE",
            "sent ACK",
            "sent INVITE",
            "received 100 INVITE",
            "received 180 INVITE",
            "received 200 INVITE",
            "sent ACK",
            "sent BYE",
            "received 200 BYE",
        ]
    );
    assert_eq!(
        (&trace["call_id"], &trace["left_out"]),
        (&json!(id), &json!(0))
    );
    let times: Vec<&str> = messages.iter().map(|m| m["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    for message in messages {
        assert_eq!(message["peer"], address.to_string());
        assert_eq!(message["transport"], "udp");
    }
    // The last INVITE carries the digest, which is not shown.
    let invite = messages.iter().rfind(|m| told(m) == "sent INVITE");
    let invite = invite.unwrap()["message"].as_str().unwrap();
    assert!(
        invite.contains("username=\"acme\"") && invite.contains("response=\"***\""),
        "{invite}"
    );
    let all = trace.to_string();
    assert!(!all.contains("correct-horse"), "{all}");

    // Nobody else's, and nobody's.
    let key = strange_key(&server).await;
    assert_eq!(client.with_key(&key).get(&path).await.status, 404);
    let unknown = format!("/calls/{}/sip-trace", uuid::Uuid::new_v4());
    assert_eq!(client.get(&unknown).await.status, 404);

    // It is written down.
    server.terminate();
    assert_eq!(server.ended(Duration::from_secs(20)).await, Some(0));
    server.start_again().await;
    let client = server.client();
    assert_eq!(client.get(&path).await.expect(200).body, trace);
    assert_eq!(client.with_key(&key).get(&path).await.status, 404);

    let shown = command(&server, &[&id]).await;
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success(), "{text}");
    let rungs = [
        "INVITE (sdp)",
        "407 Proxy",
        "100 Trying",
        "180 Ringing",
        "200 OK (sdp)",
        "BYE",
        "200 OK (BYE)",
    ];
    let places = rungs.map(|rung| text.find(rung));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{text}"
    );
    assert!(!text.contains("Call-ID"), "{text}");
    let full = String::from_utf8(command(&server, &["--full", &id]).await.stdout).unwrap();
    assert!(
        full.contains("Call-ID: ") && full.contains("response=\"***\""),
        "{full}"
    );
    let unknown = command(&server, &[&uuid::Uuid::new_v4().to_string()]).await;
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("404"));
}

#[tokio::test]
async fn the_keys_of_an_encrypted_call_are_not_told() {
    let _together = stage::together().await;
    let server = server().await;
    let client = server.client();
    // A carrier that knows no SRTP: our offer is all that there is to see.
    let steps = scenario(&[
        recv("INVITE"),
        send("488 Not Acceptable Here", NO_BODY),
        recv("ACK"),
    ]);
    let (carrier, address) = carrier(&server, &steps, "u1");
    let wish = line(&client, address, json!({"media_encryption": "require"})).await;
    let id = place(&client, &wish).await;
    over(&server, &id).await;
    well(carrier, &server).await;
    let trace = until(&client, &format!("/calls/{id}/sip-trace"), |trace| {
        trace["messages"].as_array().unwrap().len() == 3
    })
    .await;
    let offer = trace["messages"][0]["message"].as_str().unwrap();
    let keys: Vec<&str> = offer
        .lines()
        .filter(|line| line.starts_with("a=crypto:"))
        .collect();
    assert!(
        !keys.is_empty() && keys.iter().all(|line| line.ends_with("inline:***")),
        "{offer}"
    );
}

#[tokio::test]
async fn a_call_that_came_over_no_sip_has_no_messages() {
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let id = stage::session(&client, &agent).await.text("session_id");
    let trace = client
        .get(&format!("/calls/{id}/sip-trace"))
        .await
        .expect(200);
    assert_eq!(
        trace.body,
        json!({"call_id": id, "messages": [], "left_out": 0})
    );
    let shown = command(&server, &[&id]).await;
    assert!(String::from_utf8_lossy(&shown.stdout).contains("No SIP messages"));
}
