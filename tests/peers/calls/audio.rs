//! The sound of a call over HTTP: ranges as RFC 9110 section 14 has them, and who may hear it.

use std::time::Duration;

use kit::client::Client;
use kit::server::Server;
use kit::socket::{Caller, native};
use reqwest::{Method, Response};
use serde_json::json;

use crate::stage;

/// What a range is answered with.
enum Told {
    /// 206 with these bytes: the first and the one past the last.
    Part(usize, usize),
    /// 200 with everything.
    Whole,
    /// 416 with the length.
    None,
}

use Told::{None as Nothing, Part, Whole};

/// `Range` values for a file of `n` bytes.
fn table(n: usize) -> Vec<(String, Told)> {
    let thousand: Vec<String> = (0..1000).map(|i| format!("{i}-{i}")).collect();
    let overlapping = vec!["0-"; 1000].join(",");
    let rows = [
        ("bytes=0-0", Part(0, 1)),
        ("bytes=0-1", Part(0, 2)),
        ("bytes=0-43", Part(0, 44)),
        ("bytes=44-", Part(44, n)),
        ("bytes=1-1", Part(1, 2)),
        ("bytes=00-01", Part(0, 2)),
        ("bytes=0-", Part(0, n)),
        ("bytes=-1", Part(n - 1, n)),
        ("bytes=-44", Part(n - 44, n)),
        ("bytes=0-99999999", Part(0, n)),
        ("bytes=100-99999999", Part(100, n)),
        ("bytes=-99999999", Part(0, n)),
        ("bytes=0-18446744073709551615", Part(0, n)),
        ("bytes= 0-3", Part(0, 4)),
        ("bytes=0-3 ", Part(0, 4)),
        ("BYTES=0-3", Part(0, 4)),
        ("Bytes=4-7", Part(4, 8)),
        ("bytes=0-3,", Part(0, 4)),
        ("bytes=,0-3", Part(0, 4)),
        ("bytes=99999999-", Nothing),
        ("bytes=99999999-999999999", Nothing),
        ("bytes=-0", Nothing),
        ("bytes=18446744073709551615-", Nothing),
        ("bytes=3-0", Whole),
        ("bytes=1-0", Whole),
        ("bytes=99999999-0", Whole),
        ("bytes=", Whole),
        ("bytes", Whole),
        ("bytes=-", Whole),
        ("bytes=--1", Whole),
        ("bytes=-1-", Whole),
        ("bytes=-1-2", Whole),
        ("bytes=0--3", Whole),
        ("bytes=a-b", Whole),
        ("bytes=0-b", Whole),
        ("bytes=0x0-0x3", Whole),
        ("bytes=+0-3", Whole),
        ("bytes=0-+3", Whole),
        ("bytes=0.0-3", Whole),
        ("bytes=0 - 3", Whole),
        ("bytes=0", Whole),
        ("bytes=0-3-5", Whole),
        ("bytes 0-3", Whole),
        ("0-3", Whole),
        ("lines=0-3", Whole),
        ("seconds=0-3", Whole),
        ("none", Whole),
        ("bytes=0-3,8-11", Whole),
        ("bytes=8-11,0-3", Whole),
        ("bytes=0-3,99999999-", Whole),
        ("bytes=0-,0-,0-,0-", Whole),
    ];
    let mut rows: Vec<(String, Told)> = rows.map(|(range, told)| (range.to_owned(), told)).into();
    rows.push((format!("bytes={}-{}", n - 1, n - 1), Part(n - 1, n)));
    rows.push((format!("bytes=0-{}", n - 1), Part(0, n)));
    rows.push((format!("bytes=0-{n}"), Part(0, n)));
    rows.push((format!("bytes=-{n}"), Part(0, n)));
    rows.push((format!("bytes=-{}", n + 1), Part(0, n)));
    rows.push((format!("bytes={n}-"), Nothing));
    rows.push((format!("bytes={n}-{n}"), Nothing));
    rows.push((format!("bytes={}", thousand.join(",")), Whole));
    rows.push((format!("bytes={overlapping}"), Whole));
    rows
}

#[tokio::test]
async fn ranges_are_served_as_the_rfc_has_them() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let id = a_call(&client, &agent).await;
    let link = client
        .get(&format!("/conversations/{id}/audio"))
        .await
        .expect(200);
    let url = link.text("audio_url");
    let answer = fetch(Method::GET, &url, &[]).await;
    assert_eq!(answer.status().as_u16(), 200);
    let etag = answer.headers()["etag"].to_str().unwrap().to_owned();
    let modified = answer.headers()["last-modified"]
        .to_str()
        .unwrap()
        .to_owned();
    let all = answer.bytes().await.unwrap();
    let table = table(all.len());
    assert!(table.len() >= 50);
    for (range, told) in &table {
        check_range(&url, &[("range", range)], &all, told).await;
    }
    // A range only of what the client already has a part of (section 13.1.5).
    for (condition, told) in [
        (etag.as_str(), Part(0, 4)),
        (modified.as_str(), Part(0, 4)),
        ("\"other\"", Whole),
        (&format!("W/{etag}"), Whole),
        ("Sun, 06 Nov 1994 08:49:37 GMT", Whole),
        ("nonsense", Whole),
    ] {
        check_range(
            &url,
            &[("range", "bytes=0-3"), ("if-range", condition)],
            &all,
            &told,
        )
        .await;
    }
    // Ranges are for GET (section 14.2).
    let head = fetch(Method::HEAD, &url, &[("range", "bytes=0-3")]).await;
    assert_eq!(head.status().as_u16(), 200);
    assert_eq!(
        head.headers()["content-length"],
        all.len().to_string().as_str()
    );
    assert!(head.bytes().await.unwrap().is_empty());
    let same = fetch(Method::GET, &url, &[("if-none-match", &etag)]).await;
    assert_eq!(same.status().as_u16(), 304);
}

async fn check_range(url: &str, headers: &[(&str, &str)], all: &[u8], told: &Told) {
    let answer = fetch(Method::GET, url, headers).await;
    let (status, head) = (answer.status().as_u16(), answer.headers().clone());
    let body = answer.bytes().await.unwrap();
    let what = format!("{headers:.80?}");
    assert_eq!(
        head.get("accept-ranges")
            .map_or("bytes", |v| v.to_str().unwrap()),
        "bytes"
    );
    let range = head
        .get("content-range")
        .map(|v| v.to_str().unwrap().to_owned());
    let n = all.len();
    match told {
        Part(from, to) => {
            assert_eq!(
                (status, range),
                (206, Some(format!("bytes {from}-{}/{n}", to - 1))),
                "{what}"
            );
            assert!(body[..] == all[*from..*to], "{what}");
        }
        Whole => {
            assert_eq!((status, range), (200, None), "{what}");
            assert!(body[..] == *all, "{what}");
        }
        Nothing => {
            assert_eq!(
                (status, range),
                (416, Some(format!("bytes */{n}"))),
                "{what}"
            );
            let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(error["code"], "range_not_satisfiable", "{what}");
            assert_eq!(head["x-request-id"], error["request_id"].as_str().unwrap());
        }
    }
}

#[tokio::test]
async fn a_recording_is_heard_by_whom_it_is_for_until_it_is_not() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let (id, other) = (a_call(&client, &agent).await, a_call(&client, &agent).await);
    let wav = format!("/conversations/{id}/audio.wav");
    let link = client
        .get(&format!("/conversations/{id}/audio"))
        .await
        .expect(200);
    let token = link.text("token");
    let other_link = client
        .get(&format!("/conversations/{other}/audio"))
        .await
        .expect(200);
    let strangers = server.anonymous();
    for (query, status) in [
        (String::new(), 401),
        ("?token=".to_owned(), 401),
        ("?token=nonsense".to_owned(), 401),
        (format!("?token={}", other_link.text("token")), 401),
        (format!("?token={token}A"), 401),
        (format!("?token={}", &token[1..]), 401),
        (format!("?token={token}"), 200),
    ] {
        strangers.get(&format!("{wav}{query}")).await.expect(status);
    }
    client.get(&wav).await.expect(200);
    let narrow = key_with(&client, &["recordings:read"]).await;
    client.with_key(&narrow).get(&wav).await.expect(403);
    let narrow = key_with(&client, &["conversations:read"]).await;
    client.with_key(&narrow).get(&wav).await.expect(200);

    // Taken back, it is refused at once; a fresh one is not.
    let revoke = format!("/conversations/{id}/audio/revoke");
    client.post(&revoke, &json!({})).await.expect(422);
    client
        .post(&revoke, &json!({"token": ""}))
        .await
        .expect(422);
    let revoked = client
        .post(&revoke, &json!({"token": token}))
        .await
        .expect(200);
    assert_eq!(revoked.body, json!({"revoked": true}));
    strangers
        .get(&format!("{wav}?token={token}"))
        .await
        .expect(401);
    let fresh = client
        .get(&format!("/conversations/{id}/audio"))
        .await
        .expect(200);
    strangers.get(&fresh.text("audio_url")).await.expect(200);
    strangers
        .get(&other_link.text("audio_url"))
        .await
        .expect(200);

    // Deleted, it is gone for everybody, and the transcript stays.
    let call = client.get(&format!("/calls/{id}")).await.expect(200);
    let recording = format!("/recordings/{}", call.text("recording_id"));
    let url = client
        .get(&format!("{recording}/audio"))
        .await
        .expect(200)
        .text("audio_url");
    strangers.get(&url).await.expect(200);
    client.delete(&recording).await.expect(204);
    client.delete(&recording).await.expect(404);
    client.get(&recording).await.expect(404);
    client.get(&format!("{recording}/audio")).await.expect(404);
    client
        .get(&format!("/conversations/{id}/audio"))
        .await
        .expect(404);
    client.get(&wav).await.expect(404);
    strangers.get(&url).await.expect(404);
    strangers.get(&fresh.text("audio_url")).await.expect(404);
    assert!(
        !names(&server).any(|name| name.contains(&id)),
        "nothing of it is left"
    );
    let talk = client
        .get(&format!("/conversations/{id}"))
        .await
        .expect(200);
    assert_eq!(
        (&talk.body["has_recording"], &talk.body["has_transcript"]),
        (&json!(false), &json!(true))
    );
    strangers
        .get(&other_link.text("audio_url"))
        .await
        .expect(200);
}

#[tokio::test]
async fn without_a_recording_there_is_no_url() {
    let _together = stage::together().await;
    let server = stage::server().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({"recording_enabled": false})).await;
    let unrecorded = a_call(&client, &agent).await;
    let agent = stage::agent(&client, json!({})).await;
    let waiting = stage::session(&client, &agent).await.text("session_id");
    let live = Caller::call(&client, &native(&agent)).await;
    for id in [
        unrecorded,
        waiting,
        live.session_id.clone(),
        uuid::Uuid::new_v4().to_string(),
    ] {
        client
            .get(&format!("/conversations/{id}/audio"))
            .await
            .expect(404);
        client
            .get(&format!("/conversations/{id}/audio.wav"))
            .await
            .expect(404);
    }
    live.hang_up().await;
}

/// A short call. Its id.
async fn a_call(client: &Client, agent: &str) -> String {
    let mut caller = Caller::call(client, &native(agent)).await;
    caller.listen(500).await;
    caller.send(&json!({"type": "end"})).await;
    caller.close_code(Duration::from_secs(3)).await;
    stage::over(client, &caller.session_id, Duration::from_secs(5)).await;
    caller.session_id
}

async fn key_with(client: &Client, scopes: &[&str]) -> String {
    let body = json!({"name": "narrow", "scopes": scopes});
    client
        .post("/api-keys", &body)
        .await
        .expect(201)
        .text("key")
}

async fn fetch(method: Method, url: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = kit::server::reqwest_client().request(method, url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

/// The names of all files that the server keeps as objects.
fn names(server: &Server) -> impl Iterator<Item = String> {
    let mut folders = vec![server.data.join("objects")];
    let mut names = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.into_iter()
}
