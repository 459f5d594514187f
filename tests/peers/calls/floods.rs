//! Callers who send what no caller sends: each is told and closed by itself, the memory stays where it
//! is, and another call hears its agent without a gap.

use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::socket::{Caller, native, telco, ulaw};
use serde_json::{Value, json};
use tokio::time::{Instant, interval, sleep};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::bystander::{Bystander, no_gap};
use crate::stage;

async fn quiet_agent(client: &Client) -> String {
    stage::agent(client, json!({"first_message": null})).await
}

async fn closed_with(caller: &mut Caller, what: &str, codes: &[u16]) {
    let code = caller.close_code(Duration::from_secs(10)).await;
    assert!(
        code.is_some_and(|code| codes.contains(&code)),
        "{what}: {code:?}"
    );
}

fn errors(caller: &Caller) -> Vec<&str> {
    let errors = caller.of_kind("error");
    errors.iter().map(|e| e["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn what_is_no_frame_is_named_and_five_in_a_row_are_1007() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = quiet_agent(&client).await;
    let junk = [
        "hello",
        "",
        "[]",
        "{\"type\": 5}",
        "{}",
        "{\"type\": \"audio\"}",
        "{\"type\": \"audio\", \"audio\": 5}",
        "{\"type\": \"audio\", \"audio\": \"abc\"}",
        "{\"type\": \"audio\", \"audio\": \"ab=c\"}",
        "{\"type\": \"audio\", \"audio\": \"!!!!\"}",
        "{\"type\": \"audio\", \"audio\": \"AAAAAA==AAAA\"}",
        "{\"type\": \"audio\", \"audio\": \"AAAA\"}",
        "{\"type\": \"dtmf\", \"digit\": \"Z\"}",
        "{\"type\": \"contextual_update\", \"text\": \"\"}",
        "{\"type\": \"tool_result\"}",
        "{\"type\": \"user_message\", \"text\": \"cut",
    ];
    let mut caller = Caller::call(&client, &native(&agent)).await;
    let good = vec![0; 320];
    for (n, text) in junk.iter().enumerate() {
        caller.send_text((*text).to_owned()).await;
        // Four in a row are forgiven.
        if n % 4 == 3 {
            caller.send_audio(&good).await;
        }
    }
    caller.send_raw(Message::binary(vec![0; 640])).await;
    caller.listen(200).await;
    assert_eq!(caller.closed, None, "{:?}", caller.messages);
    assert_eq!(errors(&caller), vec!["invalid_frame"; junk.len() + 1]);
    for unknown in ["music", "AUDIO", "session_started"] {
        caller.send(&json!({"type": unknown})).await;
    }
    caller.listen(100).await;
    assert_eq!(errors(&caller)[junk.len() + 1..], ["unknown_type"; 3]);
    caller
        .send(&json!({"type": "user_message", "text": "Still here?"}))
        .await;
    caller.wait_for("audio", 3000).await;
    for text in &junk[..5] {
        caller.send_text((*text).to_owned()).await;
    }
    closed_with(&mut caller, "five in a row", &[1007]).await;
}

#[tokio::test]
async fn too_much_is_closed_by_its_code_and_others_hear_no_gap() {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let talker = stage::agent(&client, fields).await;
    let agent = quiet_agent(&client).await;
    let bystander = Bystander::join(stage::session(&client, &talker).await);
    // As soon as its agent speaks.
    sleep(Duration::from_millis(500)).await;
    let before = server.memory_kib();
    let floods = async {
        tokio::join!(
            a_frame_of_16_mib(&client, &agent),
            a_storm_of_pings(&client, &agent),
            endless_fragments(&client, &agent),
            no_utf8(&client, &agent),
            frames_of_a_byte(&client, &agent),
            a_thousand_messages_a_second(&client, &agent),
            audio_at_50_times_real_time(&client, &agent),
        );
    };
    let mut most = 0;
    tokio::pin!(floods);
    loop {
        tokio::select! {
            () = &mut floods => break,
            () = sleep(Duration::from_millis(100)) => most = most.max(server.memory_kib()),
        }
    }
    let grown = most.saturating_sub(before);
    println!("memory grew by {grown} KiB under floods");
    assert!(grown < 8 * 1024, "memory grew by {grown} KiB");
    no_gap(&bystander.leave());
    client.get("/agents").await.expect(200);
}

/// Whoever floods, and comes again when they are closed: for a minute where there is time for it.
#[tokio::test]
async fn audio_at_50_times_real_time_holds_nothing_however_often_it_comes() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = quiet_agent(&client).await;
    // The allocator keeps what the first ones took.
    audio_at_50_times_real_time(&client, &agent).await;
    let before = server.memory_kib();
    let (mut most, mut rounds) = (0, 0);
    let began = Instant::now();
    let long = Duration::from_secs(if stage::soak() { 60 } else { 1 });
    while began.elapsed() < long {
        audio_at_50_times_real_time(&client, &agent).await;
        most = most.max(server.memory_kib());
        rounds += 1;
    }
    let grown = most.saturating_sub(before);
    println!("memory grew by {grown} KiB in {rounds} rounds");
    assert!(grown < 8 * 1024, "memory grew by {grown} KiB");
}

/// As much junk as a call may send, from many: each message is answered with an `error`.
#[tokio::test]
async fn junk_within_the_limits_costs_less_than_a_core() {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let talker = stage::agent(&client, fields).await;
    let agent = quiet_agent(&client).await;
    let connect = native(&agent);
    let mut callers = join_all((0..50).map(|_| Caller::call(&client, &connect))).await;
    let bystander = Bystander::join(stage::session(&client, &talker).await);
    let long = Duration::from_secs(if stage::soak() { 30 } else { 4 });
    let (began, cpu) = (Instant::now(), server.cpu_ns());
    let sent = join_all(callers.iter_mut().map(|caller| junk(caller, long))).await;
    let cores = (server.cpu_ns() - cpu) as f64 / began.elapsed().as_nanos() as f64;
    let all: usize = sent.iter().sum();
    println!("{all} junk messages from 50 callers: {cores:.2} cores");
    assert!(cores < 1.0, "{cores} cores");
    for (caller, sent) in callers.iter().zip(sent) {
        assert_eq!(caller.closed, None);
        assert_eq!(errors(caller), vec!["invalid_frame"; sent]);
    }
    no_gap(&bystander.leave());
    join_all(callers.into_iter().map(Caller::hang_up)).await;
}

/// Two pieces of junk and one of audio every 20 ms: never five of junk in a row. How many were sent.
async fn junk(caller: &mut Caller, long: Duration) -> usize {
    let mut ticks = interval(Duration::from_millis(20));
    let until = Instant::now() + long;
    let mut sent = 0;
    while Instant::now() < until && caller.closed.is_none() {
        ticks.tick().await;
        for junk in ["?", "{\"type\": 5}"] {
            caller.send_text(junk.to_owned()).await;
            sent += 1;
        }
        caller.send_audio(&[0; 320]).await;
        caller.receive_until(Instant::now()).await;
    }
    // The last answers.
    caller.listen(200).await;
    sent
}

async fn a_frame_of_16_mib(client: &Client, agent: &str) {
    let mut caller = Caller::call(client, &native(agent)).await;
    let large = json!({"type": "audio", "audio": "A".repeat(16 << 20)}).to_string();
    caller.send_text(large).await;
    closed_with(&mut caller, "16 MiB", &[1009]).await;
}

async fn a_storm_of_pings(client: &Client, agent: &str) {
    let mut caller = Caller::call(client, &native(agent)).await;
    for _ in 0..5000 {
        if !caller
            .send_raw(Message::Ping(Bytes::from_static(b"?")))
            .await
        {
            break;
        }
    }
    closed_with(&mut caller, "5,000 pings at once", &[1008]).await;
}

async fn endless_fragments(client: &Client, agent: &str) {
    let mut caller = Caller::call(client, &native(agent)).await;
    let piece = vec![b'A'; 32 << 10];
    let mut code = OpCode::Data(Data::Text);
    for _ in 0..64 {
        let frame = Frame::message(piece.clone(), code, false);
        if !caller.send_raw(Message::Frame(frame)).await {
            break;
        }
        code = OpCode::Data(Data::Continue);
    }
    closed_with(&mut caller, "2 MiB in fragments", &[1008, 1009]).await;
}

async fn no_utf8(client: &Client, agent: &str) {
    let mut caller = Caller::call(client, &native(agent)).await;
    let frame = Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true);
    caller.send_raw(Message::Frame(frame)).await;
    closed_with(&mut caller, "no UTF-8", &[1007]).await;
}

/// A message in fragments of one byte is a message; messages of one byte are junk.
async fn frames_of_a_byte(client: &Client, agent: &str) {
    let mut caller = Caller::call(client, &native(agent)).await;
    let text = json!({"type": "user_message", "text": "Byte by byte."}).to_string();
    let mut code = OpCode::Data(Data::Text);
    for (n, byte) in text.bytes().enumerate() {
        let frame = Frame::message(vec![byte], code, n + 1 == text.len());
        caller.send_raw(Message::Frame(frame)).await;
        code = OpCode::Data(Data::Continue);
    }
    caller.wait_for("audio", 5000).await;
    for _ in 0..5 {
        caller.send_text("1".to_owned()).await;
    }
    closed_with(&mut caller, "messages of a byte", &[1007]).await;
}

async fn a_thousand_messages_a_second(client: &Client, agent: &str) {
    let mut caller = Caller::call(client, &native(agent)).await;
    let mut ticks = interval(Duration::from_millis(10));
    for _ in 0..300 {
        ticks.tick().await;
        for _ in 0..10 {
            caller.send_audio(&[0; 16]).await;
        }
        caller.receive_until(Instant::now()).await;
        if caller.closed.is_some() {
            break;
        }
    }
    closed_with(&mut caller, "1,000 messages a second", &[1008]).await;
}

/// Of every kind; a vendor's format has no word for it.
async fn audio_at_50_times_real_time(client: &Client, agent: &str) {
    let (pcm, own, vendor) = (native(agent), ulaw(agent), telco(agent));
    tokio::join!(
        too_fast(client, &pcm),
        too_fast(client, &own),
        too_fast(client, &vendor),
    );
}

async fn too_fast(client: &Client, connect: &Value) {
    let mut caller = Caller::call(client, connect).await;
    let second = vec![0; 16_000];
    let mut ticks = interval(Duration::from_millis(20));
    let began = Instant::now();
    while caller.closed.is_none() && began.elapsed() < Duration::from_secs(12) {
        ticks.tick().await;
        caller.send_audio(&second).await;
        caller.receive_until(Instant::now()).await;
    }
    closed_with(&mut caller, &format!("50 times {connect}"), &[1008]).await;
    let told = errors(&caller);
    let tells = connect["protocol"] != "telco";
    assert_eq!(told.contains(&"audio_too_fast"), tells, "{told:?}");
    // Bytes of PCM are too many before the audio has been too fast for long.
    let forgiven = Duration::from_secs(if caller.rate() > 8000.0 { 1 } else { 4 });
    assert!(began.elapsed() > forgiven, "a burst is forgiven: {connect}");
}

#[tokio::test]
async fn a_vendor_s_junk_is_closed_by_code_alone() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = quiet_agent(&client).await;
    let mut caller = Caller::call(&client, &telco(&agent)).await;
    for message in [
        json!({"event": "media", "streamSid": "MZ", "media": {"payload": "!"}}),
        json!({"event": "media"}),
        json!({"event": "mark", "mark": {"name": 5}}),
        json!({"nothing": Value::Null}),
        json!([1]),
    ] {
        caller.send(&message).await;
    }
    closed_with(&mut caller, "five in a row", &[1007]).await;
    assert!(
        caller.of_kind("error").is_empty(),
        "the format has no such message"
    );
}
