//! What carriers send that is not as it should be, and what of it stands in the records.

use std::net::SocketAddr;

use sip::event::MessageRefused;

use super::*;

/// What the record of a trunk says once it says something.
async fn refused_of(bench: &Bench, trunk: TrunkId) -> Value {
    refused_of_as(bench, &bench.test.key, trunk).await
}

/// The same of the account of this key.
async fn refused_of_as(bench: &Bench, key: &str, trunk: TrunkId) -> Value {
    standings::write(&bench.test.app, &bench.exchange.standings).await;
    let path = format!("/sip-trunks/{trunk}");
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let (_, shown) = bench.test.call_as(key, "GET", &path, None).await;
        if !shown["last_refused_message"].is_null() {
            return shown["last_refused_message"].clone();
        }
        // The task of the stack may have taken it.
        assert!(Instant::now() < until, "{shown}");
    }
}

#[tokio::test]
async fn a_message_that_is_not_used_is_in_the_record_of_each_trunk_of_its_source() {
    let bench = Bench::new().await;
    let key = bench.test.key.clone();
    let trunks = [bench.by_address(&key).await, bench.by_address(&key).await];
    let logged = Logged::start();
    let source: SocketAddr = ([192, 0, 2, 1], 5060).into();
    let event = Event::MessageRefused(Box::new(MessageRefused {
        trunks: trunks.iter().map(|id| sip_trunks::sip_id(*id)).collect(),
        source,
        method: "BYE".to_owned(),
        call_id: "one@example".to_owned(),
        header: Some("Contact"),
        code: Some(400),
        why: "Bad Contact".to_owned(),
    }));
    hand_on(&bench.test.app, &bench.exchange, event);
    let text = logged.text();
    for part in [
        "192.0.2.1:5060",
        "BYE",
        "one@example",
        "Contact",
        "Bad Contact",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for trunk in trunks {
        let told = refused_of(&bench, trunk).await;
        assert!(told["at"].is_string(), "{told}");
        for (field, value) in [
            ("source", json!("192.0.2.1:5060")),
            ("method", json!("BYE")),
            ("call_id", json!("one@example")),
            ("header", json!("Contact")),
            ("code", json!(400)),
            ("reason", json!("Bad Contact")),
        ] {
            assert_eq!(told[field], value, "{told}");
        }
    }
}

/// Any account may allow a carrier's address, and learns nothing of others' calls by it.
#[tokio::test]
async fn a_message_from_an_address_of_several_accounts_tells_none_what_it_says() {
    let bench = Bench::new().await;
    let own = bench.test.key.clone();
    let (_, key) = bench.test.other_account().await;
    let ours = [bench.by_address(&own).await, bench.by_address(&own).await];
    let theirs = bench.by_address(&key).await;
    let event = Event::MessageRefused(Box::new(MessageRefused {
        trunks: [ours[0], theirs, ours[1]].map(sip_trunks::sip_id).to_vec(),
        source: ([192, 0, 2, 1], 5060).into(),
        method: "INVITE".to_owned(),
        call_id: "one@example".to_owned(),
        header: Some("Content-Type"),
        code: Some(415),
        why: "Unsupported Media Type: text/secret".to_owned(),
    }));
    hand_on(&bench.test.app, &bench.exchange, event);
    for (key, trunk) in [(&own, ours[0]), (&own, ours[1]), (&key, theirs)] {
        let told = refused_of_as(&bench, key, trunk).await;
        for (field, value) in [
            ("source", json!("192.0.2.1:5060")),
            ("call_id", json!("")),
            ("header", json!("Content-Type")),
            ("code", json!(415)),
            ("reason", json!("Bad Message")),
        ] {
            assert_eq!(told[field], value, "{told}");
        }
    }
}

/// A line of the log about a call has its id and its account.
#[tokio::test]
async fn what_reached_nobody_is_logged_with_its_call() {
    let bench = Bench::new().await;
    let app = &bench.test.app;
    let call = CallId::new(&app.clock);
    let line = bench.exchange.line().id;
    let now = app.clock.moment();
    let account = bench.test.account;
    bench.exchange.traces.begins(now, line, account, call);
    let logged = Logged::start();
    let event = Event::Unreached {
        call: line,
        why: "BYE: no answer came".to_owned(),
    };
    hand_on(app, &bench.exchange, event);
    let text = logged.text();
    let said = text.lines().find(|said| said.contains("BYE: no answer"));
    let said = said.expect("it is logged");
    for part in [call.to_string(), account.to_string()] {
        assert!(said.contains(&part), "{part}: {said}");
    }
}

#[tokio::test]
async fn what_reached_nobody_is_among_the_errors_of_its_call() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let (account, app) = (bench.test.account, &bench.test.app);
    let record = async || bench.record().await["id"].as_str().unwrap().parse();
    // What is told while a call lasts stands beside what its end tells.
    let lasting = "UPDATE: no answer came";
    let before = async || {
        let standings = &bench.exchange.standings;
        standings.put_unreached(account, record().await.unwrap(), lasting.to_owned());
        standings::write(app, standings).await;
    };
    bench.lose_after(trunk, EndedBy::Remote, before).await;
    let id: CallId = record().await.unwrap();
    let errors = app.db.query("select errors from calls");
    let errors = errors.one(|row| row.text("errors")).await.unwrap();
    assert!(errors.contains(lasting), "{errors}");
    for expected in ["BYE: no answer came", "INFO: it could not be sent"] {
        for _ in 0..2 {
            let standings = &bench.exchange.standings;
            standings.put_unreached(account, id, expected.to_owned());
            standings::write(&bench.test.app, standings).await;
        }
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let errors = bench.test.app.db.query("select errors from calls");
            let errors = errors.one(|row| row.text("errors")).await.unwrap();
            let count = errors.matches(expected).count();
            assert!(count < 2, "{errors}");
            if count == 1 {
                break;
            }
            // The task of the stack may have taken it.
            assert!(Instant::now() < until, "{errors}");
        }
    }
}

/// The caller of a call that comes in with these addresses.
async fn caller(
    bench: &Bench,
    trunk: TrunkId,
    asserted: &[&str],
    withheld: bool,
) -> Option<String> {
    let call = Incoming {
        asserted: asserted
            .iter()
            .map(|uri| Uri::parse(uri).unwrap())
            .collect(),
        withheld,
        ..incoming(&[trunk], "+49-30-123456")
    };
    let called = bench.task().called(&call).await;
    called.unwrap_or_else(|why| panic!("{why:?}")).from
}

#[tokio::test]
async fn who_calls_is_who_is_vouched_for_with_a_number_and_nobody_who_withholds_it() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let from = Some("+33123456789".to_owned());
    for (asserted, expected) in [
        (&[][..], from.clone()),
        (&["sip:anonymous@anonymous.invalid"][..], from.clone()),
        (&["sip:carrier.example"][..], from.clone()),
        (&["sip:alice@carrier.example"][..], from),
        (
            &["sip:alice@carrier.example", "tel:+33-1-44-55-66-77"][..],
            Some("+33144556677".to_owned()),
        ),
        (
            &["sip:+33144556677@carrier.example;user=phone"][..],
            Some("+33144556677".to_owned()),
        ),
    ] {
        assert_eq!(
            caller(&bench, trunk, asserted, false).await,
            expected,
            "{asserted:?}"
        );
        assert_eq!(
            caller(&bench, trunk, asserted, true).await,
            None,
            "{asserted:?}"
        );
    }
}

#[tokio::test]
async fn the_record_of_a_withheld_number_says_that_it_is_and_nothing_else() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let mut line = bench.exchange.line();
    let call = Incoming {
        withheld: true,
        ..incoming(&[trunk], NUMBER)
    };
    let taken = bench.task().take(line.id, &call, &mut line.events).await;
    assert!(matches!(taken, Ok(Conversation::Agent(_))));
    let record = bench.record().await;
    assert_eq!(
        (&record["from_number"], &record["from_withheld"]),
        (&Value::Null, &json!(true))
    );
    assert!(!record.to_string().contains("33123456789"), "{record}");
}

/// A carrier that redirects every call to the next of these; the users that it was asked for.
fn redirecting(carrier: UdpSocket, to: &'static [&'static str]) -> Vec<String> {
    let mut asked: Vec<String> = Vec::new();
    let mut datagram = [0; 4_096];
    while let Ok((length, from)) = carrier.recv_from(&mut datagram) {
        let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
        let Some(rest) = text.strip_prefix("INVITE sip:") else {
            continue;
        };
        let user = rest.split('@').next().unwrap().to_owned();
        if asked.last() != Some(&user) {
            asked.push(user);
        }
        let kept = ["Via:", "From:", "To:", "Call-ID:", "CSeq:"];
        let fields = text
            .lines()
            .filter(|line| kept.iter().any(|own| line.starts_with(own)));
        let fields: Vec<String> = fields
            .map(|line| match line.starts_with("To:") {
                true => format!("{line};tag=there"),
                false => line.to_owned(),
            })
            .collect();
        let contact = match to.get(asked.len() - 1) {
            Some(contact) => format!("Contact: {contact}\r\n"),
            None => String::new(),
        };
        let answer = format!(
            "SIP/2.0 302 Moved Temporarily\r\n{}\r\n{contact}Content-Length: 0\r\n\r\n",
            fields.join("\r\n")
        );
        carrier.send_to(answer.as_bytes(), from).unwrap();
    }
    asked
}

#[tokio::test]
async fn a_redirected_call_goes_where_the_trunk_lets_it_and_twice_at_most() {
    let follows = json!({"follow_redirects": true});
    let within = json!({"follow_redirects": true,
        "destination_allowlist": {"mode": "allowlist", "entries": ["+49"]}});
    for (more, to, asked) in [
        (
            json!({}),
            &["<sip:+4989654322@192.0.2.7>"][..],
            &["+4989654321"][..],
        ),
        (
            follows.clone(),
            &[
                "<sip:+49-89-654322@192.0.2.7>",
                "<tel:+4989654323>",
                "<sip:+4989654324@192.0.2.7>",
            ],
            &["+4989654321", "+4989654322", "+4989654323"],
        ),
        (follows, &["<sip:alice@192.0.2.7>"], &["+4989654321"]),
        (
            within,
            &["<sip:+882161234567@192.0.2.7>, <sip:+4989654322@192.0.2.7>;q=0.1"],
            &["+4989654321", "+4989654322"],
        ),
    ] {
        let bench = Bench::new().await;
        let key = &bench.test.key;
        let carrier = UdpSocket::bind("127.0.0.1:0").unwrap();
        carrier
            .set_read_timeout(Some(Duration::from_secs(3)))
            .unwrap();
        let address = carrier.local_addr().unwrap().to_string();
        let mut out =
            json!({"type": "outbound", "auth_mode": "ip_acl", "outbound_address": address});
        out.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let trunk = bench.trunk(key, out).await;
        let enabled = json!({"outbound_enabled": true});
        bench.number(key, NUMBER, trunk, enabled).await;
        let agent = json!({"name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone",
            "llm_model": "echo"});
        let agent = bench.post(key, "/agents", agent).await;
        let wish =
            json!({"agent_id": agent["id"], "to_number": "+4989654321", "from_number": NUMBER});
        bench.post(key, "/calls", wish).await;
        let heard = tokio::task::spawn_blocking(move || redirecting(carrier, to))
            .await
            .unwrap();
        let heard: Vec<String> = heard.iter().map(|user| user.replace("%2B", "+")).collect();
        assert_eq!(heard, asked, "{to:?}");
        let record = bench.record().await;
        told(&record, ["failed", "carrier_error", "system"]);
        assert_eq!(record["sip_code"], 302);
    }
}
