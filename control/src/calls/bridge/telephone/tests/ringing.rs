//! Calls that ring until somebody answers, or nobody does.

use super::*;

#[tokio::test]
async fn a_number_that_is_released_while_it_rings_leaves_a_record() {
    let bench = Bench::new().await;
    let (called, number) = bench.called_in_vain().await;
    let path = format!("/phone-numbers/{number}");
    let (status, _) = bench.test.call("DELETE", &path, None).await;
    assert!(status.is_success(), "{status}");
    assert_eq!(bench.ring_in_vain(called).await, Declined::NOBODY);
    let record = bench.record().await;
    told(&record, ["no-answer", "no_answer", "system"]);
    assert_eq!(
        (&record["sip_code"], &record["to_number"]),
        (&json!(404), &json!(NUMBER))
    );
}

#[tokio::test]
async fn a_server_that_ends_leaves_a_call_that_would_ring_to_another() {
    let bench = Bench::new().await;
    let (called, _) = bench.called_in_vain().await;
    bench.test.app.start_draining();
    assert_eq!(bench.ring_in_vain(called).await, Declined::UNAVAILABLE);
    // It rang nowhere, and its rules were not followed.
    let calls = "select count(*) as calls from calls";
    let calls = bench.test.app.db.query(calls).one(|row| row.i64("calls"));
    assert_eq!(calls.await.unwrap(), 0);
}

#[tokio::test]
async fn a_call_rings_on_while_the_database_cannot_say_who_answers() {
    let bench = Bench::new().await;
    let (mut called, _) = bench.called_in_vain().await;
    let rules = called.number.as_mut().unwrap().routing_rules.as_mut();
    rules.unwrap().max_ring_seconds = Some(1);
    let db = &bench.test.app.db;
    let gone = db.query("alter table phone_numbers rename to numbers_away");
    gone.execute().await.unwrap();
    assert_eq!(bench.ring_in_vain(called).await, Declined::UNAVAILABLE);
    let record = bench.record().await;
    told(&record, ["no-answer", "no_answer", "system"]);
    assert_eq!(record["sip_code"], 503);
}

#[tokio::test]
async fn a_call_that_rings_is_in_the_records_and_a_server_that_ends_refuses_it() {
    let bench = Bench::new().await;
    let app = &bench.test.app;
    let (called, _) = bench.called_in_vain().await;
    let (_, rings) = bench.ring(called);
    let record = bench.stood("ringing").await;
    assert_eq!(
        (&record["direction"], &record["to_number"]),
        (&json!("inbound"), &json!(NUMBER))
    );
    assert_eq!(record["answered_at"], Value::Null);
    let hosted = "select count(*) as calls from calls where owner_incarnation is not null";
    let hosted = app.db.query(hosted).one(|row| row.i64("calls"));
    assert_eq!(hosted.await.unwrap(), 1, "the next process ends it");
    assert_eq!(app.live.count_dialling(), 1, "the end of this one waits");
    app.start_draining();
    assert_eq!(rings.await.unwrap().err(), Some(Declined::UNAVAILABLE));
    assert_eq!(app.live.count_dialling(), 0);
    let record = bench.record().await;
    told(&record, ["no-answer", "no_answer", "system"]);
    assert_eq!(record["sip_code"], 503);
    never_answered(&record, &bench.ends_told().await);
}

#[tokio::test]
async fn a_call_that_rings_is_ended_over_the_api() {
    let bench = Bench::new().await;
    let (called, _) = bench.called_in_vain().await;
    let (_, rings) = bench.ring(called);
    let record = bench.stood("ringing").await;
    let path = format!("/calls/{}/end", record["id"].as_str().unwrap());
    let ended = bench.post(&bench.test.key, &path, json!({})).await;
    assert_eq!(ended["end_reason"], "ended_by_api");
    assert_eq!(rings.await.unwrap().err(), Some(Declined::AWAY));
    let record = bench.record().await;
    told(&record, ["canceled", "ended_by_api", "api"]);
    assert_eq!(record["sip_code"], 480);
}

#[tokio::test]
async fn a_call_that_rang_and_is_taken_is_one_record() {
    let bench = Bench::new().await;
    let (called, number) = bench.called_in_vain().await;
    let (_, rings) = bench.ring(called);
    let rang = bench.stood("ringing").await;
    bench.test.app.clock.advance(Duration::from_secs(3));
    let agent = json!({"name": "Echo", "system_prompt": "Repeat.", "voice_id": "scripted-tone",
        "llm_model": "echo"});
    let agent = bench.post(&bench.test.key, "/agents", agent).await;
    let path = format!("/phone-numbers/{number}");
    let answered = json!({"agent_id": agent["id"]});
    bench.test.call("PATCH", &path, Some(answered)).await;
    let taken = rings.await.unwrap();
    assert!(matches!(taken, Ok(Answerer::Engine(_))));
    let record = bench.record().await;
    assert_eq!(
        (&record["id"], &record["agent_id"], &record["agent_name"]),
        (&rang["id"], &agent["id"], &json!("Echo"))
    );
    assert_eq!(
        (&record["status"], &record["sip_code"]),
        (&json!("in_progress"), &json!(200))
    );
    assert_eq!(record["started_at"], rang["started_at"]);
    assert_eq!(record["ring_seconds"], 3.0);
}

#[tokio::test]
async fn no_more_calls_ring_over_a_trunk_than_it_may_have() {
    let bench = Bench::new().await;
    let more = json!({"auth_mode": "ip_acl", "allowed_addresses": ["127.0.0.1"],
        "max_concurrent_calls": 1});
    let trunk = bench.trunk(&bench.test.key, more).await;
    let (called, _) = bench.called_over(trunk).await;
    let (line, rings) = bench.ring(called);
    bench.stood("ringing").await;
    let second = bench.called_again(trunk).await;
    assert_eq!(bench.ring_in_vain(second).await, Declined::BUSY);
    // One that did not ring leaves no record, as where a number has no rules.
    bench.leave(line);
    assert_eq!(rings.await.unwrap().err(), Some(Declined::CANCELED));
    told(
        &bench.record().await,
        ["canceled", "caller_hangup", "caller"],
    );
    let third = bench.called_again(trunk).await;
    let (line, rings) = bench.ring(third);
    let until = Instant::now() + Duration::from_secs(10);
    while bench.test.app.live.count_dialling() == 0 {
        assert!(Instant::now() < until, "it does not ring");
        tokio::task::yield_now().await;
    }
    bench.leave(line);
    assert_eq!(rings.await.unwrap().err(), Some(Declined::CANCELED));
}

#[tokio::test]
async fn calls_that_are_not_answered_leave_the_ports_to_others() {
    let bench = Bench::with(|config| config.sip.ports = (43_002, 43_005)).await;
    let app = &bench.test.app;
    let trunk = bench.line().await;
    let take = async || {
        let mut line = bench.exchange.line();
        let incoming = incoming(&[trunk], NUMBER);
        let (task, events) = (bench.task(), &mut line.events);
        let taken = task.take(line.id, &incoming, events).await;
        taken.map(|taken| (line, taken))
    };
    // Not let in, ten times as often as there are ports.
    let idle = app.db.query("update agents set status = 'archived'");
    idle.execute().await.unwrap();
    for _ in 0..20 {
        assert_eq!(take().await.err(), Some(Declined::AWAY));
    }
    // Let in, and refused at the last moment.
    let active = app.db.query("update agents set status = 'active'");
    active.execute().await.unwrap();
    let block = app.db.query("update accounts set blocked_at = 1");
    block.execute().await.unwrap();
    for _ in 0..20 {
        assert_eq!(take().await.err(), Some(Declined::with(403)));
    }
    let unblock = app.db.query("update accounts set blocked_at = null");
    unblock.execute().await.unwrap();
    let both = [take().await, take().await];
    assert!(both.iter().all(Result::is_ok), "both pairs are free");
    // Now there are none, and the record of the third says so.
    assert_eq!(take().await.err(), Some(Declined::UNAVAILABLE));
    let (_, list) = bench.test.call("GET", "/calls?limit=1", None).await;
    let third = &list["items"][0];
    told(third, ["failed", "engine_error", "system"]);
    assert_eq!(
        (&third["sip_code"], &third["answered_at"]),
        (&json!(503), &Value::Null)
    );
}
