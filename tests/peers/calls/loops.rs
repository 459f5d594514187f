//! Forwarded calls that come back: over another account's rule, over a carrier that diverts them, through carriers
//! that keep what tells of it and through such as keep nothing. Each ends with 483 for the caller.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use kit::carrier::{Carrier, Manner, Seen};
use kit::client::Client;
use kit::server::Server;
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::trunks::{by_address, server};
use crate::stage;

/// A caller who sends one INVITE; the final response, within so many seconds.
async fn call(listen: SocketAddr, number: &str, max_forwards: &str) -> u16 {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    let (own, id) = (socket.local_addr().unwrap(), uuid::Uuid::new_v4().simple());
    let head = |method: &str, to: &str| {
        format!(
            "{method} sip:{number}@{listen} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{id};rport\r\n\
             From: <sip:+33123456789@{own}>;tag=1\r\n{to}\r\nCall-ID: {id}\r\nCSeq: 1 {method}\r\n"
        )
    };
    let sdp = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n";
    let to = format!("To: <sip:{number}@{listen}>");
    let invite = format!(
        "{}{max_forwards}Contact: <sip:caller@{own}>\r\nContent-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{sdp}",
        head("INVITE", &to),
        sdp.len()
    );
    let until = Instant::now() + Duration::from_secs(60);
    let mut heard = false;
    loop {
        if !heard {
            socket.send_to(invite.as_bytes(), listen).await.unwrap();
        }
        let mut buffer = [0; 4_096];
        let patience = match heard {
            true => until,
            // The stack may still be told of the trunk.
            false => Instant::now() + Duration::from_millis(500),
        };
        let Ok(received) = timeout_at(patience, socket.recv(&mut buffer)).await else {
            assert!(
                !heard && Instant::now() < until,
                "{number}: no final response"
            );
            continue;
        };
        heard = true;
        let text = String::from_utf8_lossy(&buffer[..received.unwrap()]).into_owned();
        let code: u16 = text.split(' ').nth(1).unwrap().parse().unwrap();
        if code >= 200 {
            let to = text.lines().find(|line| line.starts_with("To:")).unwrap();
            let ack = format!("{}Content-Length: 0\r\n\r\n", head("ACK", to));
            socket.send_to(ack.as_bytes(), listen).await.unwrap();
            return code;
        }
    }
}

/// Three accounts, each with a trunk that is known by the address of everybody here.
async fn accounts(server: &Server) -> Vec<(Client, String)> {
    let mut clients = vec![server.client()];
    for name in ["second", "third"] {
        server.command(&["accounts", "create", name]);
        let key = server.command(&[
            "keys",
            "create",
            "all",
            "--account",
            name,
            "--scopes",
            "all",
        ]);
        clients.push(server.client().with_key(key.trim_end()));
    }
    let mut accounts = Vec::new();
    for client in clients {
        let trunk = client.post("/sip-trunks", &by_address()).await.expect(201);
        let trunk = trunk.text("id");
        accounts.push((client, trunk));
    }
    accounts
}

/// Has an account forward its number over a carrier.
async fn forwards(account: &(Client, String), number: &str, to: &str, carrier: &Carrier) {
    let (client, _) = account;
    let rules = json!({"fallback_action": "forward", "fallback_number": to, "max_ring_seconds": 5});
    let way = json!({"name": "way out", "outbound_address": carrier.address().to_string(),
        "auth_mode": "ip_acl", "numbers": [number], "inbound": rules});
    client.post("/sip-trunks/onboard", &way).await.expect(201);
}

/// Why the last call that came in to this number was not forwarded.
async fn why(account: &(Client, String), number: &str) -> (Value, String) {
    let (client, _) = account;
    let all = client.get("/calls?limit=100").await.expect(200).body;
    let items = all["items"].as_array().unwrap();
    let came = items
        .iter()
        .find(|call| call["direction"] == "inbound" && call["to_number"] == number);
    let came = came.unwrap_or_else(|| panic!("{number}: {all}")).clone();
    let path = format!(
        "/conversations/{}/diagnostics",
        came["id"].as_str().unwrap()
    );
    let told = client.get(&path).await.expect(200).body["errors"].to_string();
    (came, told)
}

/// The users of the INVITEs that a carrier had.
fn wanted(carrier: &Carrier) -> Vec<String> {
    carrier.seen().into_iter().map(|seen| seen.to).collect()
}

#[tokio::test]
async fn a_forwarded_call_that_comes_back_ends_with_483_whatever_the_carriers_keep_of_it() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let accounts = accounts(&server).await;
    let [one, two, three] = [0, 1, 2].map(|at| &accounts[at]);
    let number = |loops: u32, at: u32| format!("+493012345{loops}{at}");
    let carrier = |manner| Carrier::start(listen, manner);
    let shows = Some("anonymous".to_owned());

    // A carrier that begins anew with each call and keeps nothing, between two accounts; it shows the caller.
    let plain = carrier(Manner::default());
    // One that shows nobody and keeps who diverted the call; the other way to say so.
    let diverting = carrier(Manner {
        keeps_diversion: true,
        shows: shows.clone(),
        ..Manner::default()
    });
    // Three accounts, and a carrier that keeps nothing and shows nobody.
    let blank = carrier(Manner {
        shows: shows.clone(),
        ..Manner::default()
    });
    // A carrier that diverts the callee's calls back, to the number as its country writes it.
    let back = |manner| {
        let diverts = HashMap::from([("+15550177".to_owned(), "0301234540".to_owned())]);
        carrier(Manner { diverts, ..manner })
    };
    let callee = back(Manner::default());
    let counting = carrier(Manner {
        counts_hops: true,
        ..Manner::default()
    });
    for (account, from, to, over) in [
        (one, number(1, 0), number(1, 1), &plain),
        (two, number(1, 1), number(1, 0), &plain),
        (one, number(2, 0), number(2, 1), &diverting),
        (two, number(2, 1), number(2, 0), &diverting),
        (one, number(3, 0), number(3, 1), &blank),
        (two, number(3, 1), number(3, 2), &blank),
        (three, number(3, 2), number(3, 0), &blank),
        (one, number(4, 0), "+15550177".to_owned(), &callee),
        (one, number(5, 0), number(5, 1), &counting),
        (two, number(5, 1), number(5, 0), &counting),
    ] {
        forwards(account, &from, &to, over).await;
    }
    let plenty = "Max-Forwards: 70\r\n";
    let [n1, n2, n3, n4, n5] = [1, 2, 3, 4, 5].map(|loops| number(loops, 0));
    let codes = tokio::join!(
        call(listen, &n1, plenty),
        call(listen, &n2, plenty),
        call(listen, &n3, plenty),
        call(listen, &n4, plenty),
        // The carrier takes one hop and we take one: the second number has none left.
        call(listen, &n5, "Max-Forwards: 2\r\n"),
    );
    assert_eq!(codes, (483, 483, 483, 483, 483), "{}", server.log());
    assert_eq!(wanted(&plain), [number(1, 1), number(1, 0)]);
    assert_eq!(wanted(&diverting), [number(2, 1), number(2, 0)]);
    assert_eq!(wanted(&blank), [number(3, 1), number(3, 2), number(3, 0)]);
    assert_eq!(wanted(&callee), ["+15550177"]);
    let counted: Vec<_> = counting.seen();
    let hops: Vec<_> = counted.iter().map(|seen| seen.hops.max_forwards).collect();
    assert_eq!(hops, [Some(1)]);
    let diversions: Vec<usize> = diverting
        .seen()
        .iter()
        .map(|seen| seen.hops.diversion.len())
        .collect();
    assert_eq!(diversions, [1, 2]);
    for (account, number, reason) in [
        (one, &n1, "came back"),
        (one, &n2, "came back"),
        (one, &n3, "came back"),
        (one, &n4, "came back"),
        (two, &number(5, 1), "Max-Forwards is 0"),
    ] {
        let (came, errors) = why(account, number).await;
        assert_eq!(came["sip_code"], 483, "{came}");
        assert!(errors.contains(reason), "{number}: {errors}");
    }
}

#[tokio::test]
async fn a_forwarded_call_carries_its_hops_on() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let accounts = accounts(&server).await;
    let nobody = Carrier::start(SocketAddr::from(([127, 0, 0, 1], 9)), Manner::default());
    // They go to a carrier that knows nobody.
    for at in 0..5 {
        let number = format!("+493012345{at}0");
        forwards(&accounts[0], &number, &format!("+4989{at}54321"), &nobody).await;
    }
    let fields = [
        "Max-Forwards: 0\r\n",
        "Max-Forwards: 1\r\n",
        "Max-Forwards: 33\r\n",
        "",
        "Max-Forwards: seventy\r\n",
    ];
    let calls = fields
        .into_iter()
        .enumerate()
        .map(|(at, field)| async move {
            let number = format!("+493012345{at}0");
            call(listen, &number, field).await
        });
    let codes = futures_util::future::join_all(calls).await;
    assert_eq!((codes[0], codes[4]), (483, 400), "{codes:?}");
    assert!(codes[1..4].iter().all(|code| *code != 483), "{codes:?}");
    let left = |seen: &[Seen], to: &str| {
        let call = seen.iter().find(|seen| seen.to == to);
        call.and_then(|call| call.hops.max_forwards)
    };
    let seen = nobody.seen();
    assert_eq!(seen.len(), 3, "{seen:?}");
    for (to, hops) in [("+4989154321", 0), ("+4989254321", 32), ("+4989354321", 69)] {
        assert_eq!(left(&seen, to), Some(hops), "{to}");
    }
    let diversion = &seen[0].hops.diversion;
    assert_eq!(diversion.len(), 1, "{diversion:?}");
    assert!(diversion[0].contains(";reason=no-answer"), "{diversion:?}");
}
