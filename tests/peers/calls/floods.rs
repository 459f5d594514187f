//! Callers who send what no caller sends, or read nothing: each is told and closed by itself, the
//! memory stays where it is, and another call hears its agent without a gap.

use std::time::Duration;

use control::app::testing::answer;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use kit::client::Client;
use kit::server::Server;
use kit::socket::{Caller, native, telco, ulaw};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::stage;

/// A caller who does not read may cost this much more than one who does, KiB. (Both kernels hold more:
/// about a second of audio each way.)
const HELD: u64 = 64;

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
    let agent = quiet_agent(&client).await;
    let floods = async {
        tokio::join!(
            a_frame_of_16_mib(&client, &agent),
            a_storm_of_pings(&client, &agent),
            endless_fragments(&client, &agent),
            no_utf8(&client, &agent),
            frames_of_a_byte(&client, &agent),
            a_thousand_messages_a_second(&client, &agent),
            audio_at_50_times_real_time(&client, native(&agent)),
            audio_at_50_times_real_time(&client, ulaw(&agent)),
            audio_at_50_times_real_time(&client, telco(&agent)),
        );
    };
    beside_another(&server, &client, floods).await;
    client.get("/agents").await.expect(200);
}

/// The same callers come again each second, closed or not; for a minute in a long run.
#[tokio::test]
async fn floods_that_come_again_and_again_cost_no_memory_and_less_than_a_core() {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = quiet_agent(&client).await;
    let seconds = if stage::soak() { 60 } else { 4 };
    let floods = async {
        tokio::join!(
            again(seconds, async || fast_audio(&client, native(&agent)).await),
            again(seconds, async || fast_audio(&client, ulaw(&agent)).await),
            again(seconds, async || fast_audio(&client, telco(&agent)).await),
            again(seconds, async || junk(&client, &agent).await),
        );
    };
    beside_another(&server, &client, floods).await;
    client.get("/agents").await.expect(200);
}

#[tokio::test]
async fn a_body_of_100_mib_is_413_and_others_hear_no_gap() {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    let bodies = again(4, async || {
        tokio::join!(
            too_large(&server, "content-length: 104857600", ("", "")),
            too_large(&server, "transfer-encoding: chunked", ("10000\r\n", "\r\n")),
        );
    });
    beside_another(&server, &client, bodies).await;
    client.get("/agents").await.expect(200);
}

/// A body that is cut off after its first mebibyte, whether its length was told or not; what stands around each
/// 64 KiB of it. The caller reads while sending, so there is an answer.
async fn too_large(server: &Server, length: &str, (before, after): (&str, &str)) {
    const ALL: usize = 100 << 20;
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = stream.split();
    let head = format!(
        "POST /api/v1/agents HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\n\
         content-type: application/json\r\n{length}\r\n\r\n",
        server.key
    );
    let piece = format!("{before}{}{after}", " ".repeat(64 << 10));
    let sending = async {
        write.write_all(head.as_bytes()).await.unwrap();
        let mut sent = 0;
        // The server closes, and no more can be sent.
        while sent < ALL && write.write_all(piece.as_bytes()).await.is_ok() {
            sent += 64 << 10;
        }
        sent
    };
    let mut bytes = Vec::new();
    // A close before all was read is a reset; what came before it has been read by then.
    let reading = async { read.read_to_end(&mut bytes).await.is_ok() };
    let both = async { tokio::join!(sending, reading) };
    let (sent, _) = timeout(Duration::from_secs(10), both)
        .await
        .expect("a close");
    assert!(sent < ALL / 2, "{length}: {sent} bytes were taken");
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
    assert!(head.starts_with("HTTP/1.1 413 "), "{length}: {head}");
    let headers: HeaderMap = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
        .collect();
    let body: Value = serde_json::from_str(body).unwrap();
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    answer::check(length, &Method::POST, status, &headers, &body);
    assert_eq!(body["code"], "payload_too_large", "{length}");
}

/// Once a second, so many times.
async fn again(times: u32, mut flood: impl AsyncFnMut()) {
    let mut seconds = interval(Duration::from_secs(1));
    for _ in 0..times {
        seconds.tick().await;
        flood().await;
    }
}

/// Floods come while another call hears its agent: that call has no gap, the memory stays flat, and all of
/// it together takes less than a core.
async fn beside_another(server: &Server, client: &Client, floods: impl Future<Output = ()>) {
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let talker = stage::agent(client, fields).await;
    let mut victim = Caller::call(client, &native(&talker)).await;
    victim.wait_for("audio", 2000).await;
    let (before, cpu, began) = (server.memory_kib(), server.cpu_ns(), Instant::now());
    let mut most = before;
    tokio::pin!(floods);
    loop {
        tokio::select! {
            () = &mut floods => break,
            () = victim.listen(100) => most = most.max(server.memory_kib()),
        }
    }
    let cores = server.cpu_ns().saturating_sub(cpu) as f64 / began.elapsed().as_nanos() as f64;
    let grown = most - before;
    println!("memory grew by {grown} KiB under floods, which took {cores:.2} cores");
    assert!(grown < 8 * 1024, "memory grew by {grown} KiB");
    assert!(cores < 1.0, "the floods took {cores:.2} cores");
    no_gap(&victim);
}

/// Every piece of the agent's voice came before its time to be played.
fn no_gap(caller: &Caller) {
    assert_eq!(caller.closed, None);
    let audio = caller.of_kind("audio");
    assert!(audio.len() > 50, "only {} pieces", audio.len());
    let mut first = None;
    let mut least = f64::MAX;
    for (at, message) in caller.messages.iter().filter(|(_, m)| m["type"] == "audio") {
        let offset = message["offset_ms"].as_f64().unwrap();
        let first = *first.get_or_insert((*at, offset));
        let lead = offset - first.1 - (*at - first.0).as_secs_f64() * 1000.0;
        // The first ones come as the voice begins.
        if offset - first.1 >= 400.0 {
            least = least.min(lead);
        }
    }
    println!(
        "the other call: {} pieces, the least lead {least:.0} ms",
        audio.len()
    );
    assert!(least > 0.0, "a piece came {least} ms too late");
    let lost = audio.windows(2).find(|pair| {
        pair[0]["turn_id"] == pair[1]["turn_id"]
            && (pair[1]["offset_ms"].as_f64().unwrap()
                - pair[0]["offset_ms"].as_f64().unwrap()
                - pair[0]["duration_ms"].as_f64().unwrap())
            .abs()
                > 0.5
    });
    assert!(lost.is_none(), "{lost:?}");
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

async fn audio_at_50_times_real_time(client: &Client, connect: Value) {
    let mut caller = Caller::call(client, &connect).await;
    let began = Instant::now();
    send_fast(&mut caller, Duration::from_secs(12)).await;
    closed_with(&mut caller, "50 times real time", &[1008]).await;
    // The vendor's format has no errors.
    let told = errors(&caller).contains(&"audio_too_fast");
    assert_eq!(told, connect["protocol"] != "telco", "{connect}");
    // 16 bits a sample are too many bytes before they have been too fast for long.
    let forgiven = match connect["audio_format"] == "ulaw_8000" {
        true => Duration::from_secs(4),
        false => Duration::from_secs(1),
    };
    assert!(began.elapsed() > forgiven, "a burst is forgiven: {connect}");
}

/// A second of audio each 20 ms, until the caller is closed or so long.
async fn send_fast(caller: &mut Caller, most: Duration) {
    let second = vec![0; 16_000];
    let mut ticks = interval(Duration::from_millis(20));
    let began = Instant::now();
    while caller.closed.is_none() && began.elapsed() < most {
        ticks.tick().await;
        caller.send_audio(&second).await;
        caller.receive_until(Instant::now()).await;
    }
}

/// Who hangs up before it has been too fast for long, and is not told.
async fn fast_audio(client: &Client, connect: Value) {
    let mut caller = Caller::call(client, &connect).await;
    send_fast(&mut caller, Duration::from_millis(800)).await;
    caller.hang_up().await;
}

/// As much junk as the socket takes, never five in a row.
async fn junk(client: &Client, agent: &str) {
    let mut caller = Caller::call(client, &native(agent)).await;
    for n in 0..5000 {
        match n % 5 {
            4 => caller.send_audio(&[0; 16]).await,
            _ => caller.send_text("1".to_owned()).await,
        }
        if n % 100 == 99 {
            caller.receive_until(Instant::now()).await;
        }
        if caller.closed.is_some() {
            break;
        }
    }
    closed_with(&mut caller, "5,000 messages at once", &[1008]).await;
}

#[tokio::test]
async fn fifty_who_stop_reading_are_closed_and_hold_little() {
    stop_reading(native).await;
}

#[tokio::test]
async fn fifty_vendors_who_stop_reading_are_closed_and_hold_little() {
    stop_reading(telco).await;
}

async fn stop_reading(connect: fn(&str) -> Value) {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let agent = stage::agent(&client, fields).await;
    // What as many calls take whose callers read; the third time, for the allocator keeps what it
    // was given.
    let mut usual = 0;
    for _ in 0..3 {
        let mut readers = fifty(&client, &connect(&agent)).await;
        for _ in 0..30 {
            let until = Instant::now() + Duration::from_millis(100);
            join_all(readers.iter_mut().map(|r| r.receive_until(until))).await;
            usual = usual.max(server.memory_kib());
        }
        join_all(readers.into_iter().map(Caller::hang_up)).await;
        while server_calls(&client).await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }

    let mut victim = Caller::call(&client, &native(&agent)).await;
    let readers = fifty(&client, &connect(&agent)).await;
    let began = Instant::now();
    let (mut held, mut ending) = (0, 0);
    loop {
        let calls = server_calls(&client).await;
        let memory = server.memory_kib();
        if calls == 1 {
            break;
        }
        // Nobody is closed before 2 s; then fifty ends at once are written, while what waits for those
        // who do not read is still held.
        if began.elapsed() < Duration::from_millis(1900) {
            held = held.max(memory);
        } else {
            ending = ending.max(memory);
        }
        victim.listen(20).await;
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "not closed within 10 s"
        );
    }
    println!(
        "closed after {:.1} s; {usual} KiB with readers, {held} without, {ending} as they end",
        began.elapsed().as_secs_f64(),
    );
    // The other call has its own.
    let usual = usual + 512;
    assert!(held <= usual + 50 * HELD, "{usual} KiB, but {held}");
    assert!(ending <= usual + 100 * HELD, "{usual} KiB, but {ending}");
    victim.listen(500).await;
    no_gap(&victim);
    for reader in &readers {
        let call = stage::over(&client, &reader.session_id, Duration::from_secs(10)).await;
        assert!(call["end_reason"].is_string());
    }
    drop(readers);
    ended_calls(&server, 200).await;
}

/// Fifty calls that have been read for a second.
async fn fifty(client: &Client, connect: &Value) -> Vec<Caller> {
    join_all((0..50).map(|_| async {
        let session = client.connect(connect).await;
        let mut caller = Caller::join_narrow(&session).await.unwrap();
        caller
            .receive_until(Instant::now() + Duration::from_secs(1))
            .await;
        caller
    }))
    .await
}

async fn server_calls(client: &Client) -> usize {
    let calls = client.get("/calls?status=in_progress").await.expect(200);
    calls.body["total"].as_u64().unwrap() as usize
}

/// One event for each call that has ended.
async fn ended_calls(server: &Server, count: usize) {
    let db = server.database().await;
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let calls: Vec<String> = db
            .query("select call_id from events where type = 'call.ended'")
            .all(|row| row.text("call_id"))
            .await
            .unwrap();
        if calls.len() == count || Instant::now() > until {
            let mut once = calls.clone();
            once.sort();
            once.dedup();
            assert_eq!((calls.len(), once.len()), (count, count));
            return db.close().await;
        }
        sleep(Duration::from_millis(50)).await;
    }
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
