//! What can be heard of a call afterwards: by whom, which part, and for how long.

use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::calls::a_call;
use crate::in_process::Server;

/// The status, headers and bytes of a GET of a whole URL, without a key.
async fn fetch(
    server: &Server,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, HeaderMap, Vec<u8>) {
    let path = url
        .strip_prefix(&server.test.app.config.server.public_url)
        .unwrap_or(url);
    let request = headers.iter().fold(
        http::Request::builder().method(method).uri(path),
        |request, (name, value)| request.header(*name, *value),
    );
    let response = server
        .test
        .send(request.body(axum::body::Body::empty()).unwrap())
        .await;
    let (parts, body) = response.into_parts();
    (
        parts.status,
        parts.headers,
        body.collect().await.unwrap().to_bytes().to_vec(),
    )
}

#[tokio::test]
async fn audio_is_served_in_ranges_to_whoever_holds_its_token() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = a_call(&server, &agent).await;
    let (_, link) = server
        .test
        .call("GET", &format!("/conversations/{id}/audio"), None)
        .await;
    let url = link["audio_url"].as_str().unwrap();
    let size = link["size_bytes"].as_u64().unwrap();
    assert_eq!(
        (&link["expires_in"], &link["content_type"]),
        (&json!(3600), &json!("audio/wav"))
    );
    assert!(url.ends_with(link["token"].as_str().unwrap()));

    let (status, headers, whole) = fetch(&server, "GET", url, &[]).await;
    assert_eq!((status.as_u16(), whole.len() as u64), (200, size));
    assert_eq!(
        (
            &whole[..4],
            &headers["content-type"],
            &headers["accept-ranges"]
        ),
        (
            &b"RIFF"[..],
            &"audio/wav".parse().unwrap(),
            &"bytes".parse().unwrap()
        )
    );
    let wav = hound::WavReader::new(whole.as_slice()).unwrap();
    assert_eq!(
        (
            wav.spec().channels,
            wav.spec().sample_rate,
            wav.spec().bits_per_sample
        ),
        (2, 16_000, 16)
    );
    let agent_side: Vec<i16> = wav
        .into_samples::<i16>()
        .skip(1)
        .step_by(2)
        .map(Result::unwrap)
        .collect();
    assert!(
        agent_side.iter().any(|sample| sample.unsigned_abs() > 1000),
        "the greeting is audible"
    );

    let etag = headers["etag"].to_str().unwrap();
    for (range, more, expected, first, count) in [
        ("bytes=0-3", None, 206, 0, 4),
        ("bytes=8-11", None, 206, 8, 4),
        ("bytes=-4", None, 206, size - 4, 4),
        ("bytes=10-", None, 206, 10, size - 10),
        ("bytes=0-3", Some(etag), 206, 0, 4),
        ("bytes=0-3", Some("\"another\""), 200, 0, size),
        ("bytes=0-3,8-11", None, 200, 0, size),
        ("lines=0-3", None, 200, 0, size),
    ] {
        let mut headers = vec![("range", range)];
        headers.extend(more.map(|tag| ("if-range", tag)));
        let (status, headers, part) = fetch(&server, "GET", url, &headers).await;
        assert_eq!(status.as_u16(), expected, "{range}");
        assert_eq!(
            part,
            whole[first as usize..(first + count) as usize],
            "{range}"
        );
        if expected == 206 {
            let told = format!("bytes {first}-{}/{size}", first + count - 1);
            assert_eq!(headers["content-range"], told.as_str());
        }
    }
    let (status, headers, body) =
        fetch(&server, "GET", url, &[("range", &format!("bytes={size}-"))]).await;
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status.as_u16(), &error["code"]),
        (416, &json!("range_not_satisfiable"))
    );
    assert_eq!(headers["content-range"], format!("bytes */{size}").as_str());
    let (status, headers, body) = fetch(&server, "HEAD", url, &[("range", "bytes=0-3")]).await;
    assert_eq!(
        (status.as_u16(), &headers["content-length"], body.len()),
        (200, &size.to_string().parse().unwrap(), 0)
    );
    assert_eq!(
        fetch(&server, "GET", url, &[("if-none-match", etag)])
            .await
            .0
            .as_u16(),
        304
    );

    // Without a token a key does; without either nothing does.
    let path = format!("/api/v1/conversations/{id}/audio.wav");
    assert_eq!(fetch(&server, "GET", &path, &[]).await.0.as_u16(), 401);
    assert_eq!(
        fetch(&server, "GET", &format!("{path}?token=x"), &[])
            .await
            .0
            .as_u16(),
        401
    );
    assert_eq!(
        fetch(&server, "GET", &path, &[("x-api-key", &server.test.key)])
            .await
            .0
            .as_u16(),
        200
    );
    let narrow = server
        .test
        .key_for(&[control::http::Scope::CallsRead])
        .await;
    assert_eq!(
        fetch(&server, "GET", &path, &[("x-api-key", &narrow)])
            .await
            .0
            .as_u16(),
        403
    );

    // Revoked is revoked at once.
    let (status, answer) = server
        .test
        .call(
            "POST",
            &format!("/conversations/{id}/audio/revoke"),
            Some(json!({"token": link["token"]})),
        )
        .await;
    assert_eq!((status.as_u16(), answer), (200, json!({"revoked": true})));
    assert_eq!(fetch(&server, "GET", url, &[]).await.0.as_u16(), 401);
    // And expired is expired.
    let (_, link) = server
        .test
        .call("GET", &format!("/conversations/{id}/audio"), None)
        .await;
    server
        .test
        .app
        .clock
        .advance(std::time::Duration::from_secs(3601));
    assert_eq!(
        fetch(&server, "GET", link["audio_url"].as_str().unwrap(), &[])
            .await
            .0
            .as_u16(),
        401
    );
}

#[tokio::test]
async fn a_recording_is_listed_downloaded_and_deleted() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = a_call(&server, &agent).await;
    let (_, list) = server.test.call("GET", "/recordings", None).await;
    assert_eq!(list["total"], 1);
    let recording = &list["items"][0];
    assert_eq!(
        (
            &recording["status"],
            &recording["call_id"],
            &recording["channel_map"]
        ),
        (&json!("ready"), &json!(id), &json!(["caller", "agent"]))
    );
    let path = format!("/recordings/{}", recording["id"].as_str().unwrap());
    let (_, call) = server.test.call("GET", &format!("/calls/{id}"), None).await;
    assert_eq!(call["recording_id"], recording["id"]);

    let (_, link) = server
        .test
        .call("GET", &format!("{path}/audio"), None)
        .await;
    let url = link["audio_url"].as_str().unwrap().to_owned();
    let (status, headers, bytes) = fetch(&server, "GET", &url, &[("range", "bytes=0-3")]).await;
    assert_eq!((status.as_u16(), bytes.as_slice()), (206, &b"RIFF"[..]));
    assert_eq!(
        headers["etag"],
        format!("\"{}\"", recording["sha256"].as_str().unwrap()).as_str()
    );
    server
        .test
        .app
        .clock
        .advance(std::time::Duration::from_secs(3600));
    let (status, _, body) = fetch(&server, "GET", &url, &[]).await;
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status.as_u16(), &error["code"]),
        (410, &json!("url_expired"))
    );

    let (_, link) = server
        .test
        .call("GET", &format!("{path}/audio"), None)
        .await;
    let (status, _) = server.test.call("DELETE", &path, None).await;
    assert_eq!(status.as_u16(), 204);
    assert_eq!(
        server.test.call("DELETE", &path, None).await.0.as_u16(),
        404
    );
    assert_eq!(server.test.call("GET", &path, None).await.0.as_u16(), 404);
    assert_eq!(
        server.test.call("GET", "/recordings", None).await.1["total"],
        0
    );
    assert_eq!(
        fetch(&server, "GET", link["audio_url"].as_str().unwrap(), &[])
            .await
            .0
            .as_u16(),
        404
    );
    let (_, talk) = server
        .test
        .call("GET", &format!("/conversations/{id}"), None)
        .await;
    assert_eq!(
        (&talk["has_recording"], &talk["has_transcript"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        server
            .test
            .call("GET", &format!("/conversations/{id}/audio"), None)
            .await
            .0
            .as_u16(),
        404
    );
    let control::storage::Storage::Local { root } = &server.test.app.storage;
    let left: Vec<_> = walk(root).collect();
    assert!(left.is_empty(), "objects of a deleted recording: {left:?}");
}

#[tokio::test]
async fn recordings_and_conversations_are_newest_first() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.insert(0, a_call(&server, &agent).await);
        server
            .test
            .app
            .clock
            .advance(std::time::Duration::from_secs(1));
    }
    for (path, field) in [("/recordings", "call_id"), ("/conversations", "id")] {
        for (offset, limit) in [(0, 2), (2, 2), (0, 50)] {
            let (_, page) = server
                .test
                .call(
                    "GET",
                    &format!("{path}?offset={offset}&limit={limit}"),
                    None,
                )
                .await;
            let ids: Vec<&str> = page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item[field].as_str().unwrap())
                .collect();
            let expected: Vec<&String> = calls.iter().skip(offset).take(limit).collect();
            assert_eq!(ids, expected, "{path}");
            assert_eq!(page["total"], 3);
            assert_eq!(page["has_more"], offset + ids.len() < 3);
        }
    }
}

#[tokio::test]
async fn what_the_store_lost_is_a_502_and_what_is_no_token_is_named() {
    let server = Server::start().await;
    let agent = server.agent(json!({})).await;
    let id = a_call(&server, &agent).await;
    let revoke = format!("/conversations/{id}/audio/revoke");
    for (body, kind) in [
        (json!({}), "missing"),
        (json!({"token": ""}), "string_too_short"),
        (json!({"token": 5}), "string_type"),
    ] {
        let (status, answer) = server.test.call("POST", &revoke, Some(body)).await;
        assert_eq!(
            (status.as_u16(), &answer["fields"][0]["type"]),
            (422, &json!(kind))
        );
    }
    let nobody = format!("/conversations/{}/audio/revoke", uuid::Uuid::new_v4());
    let (status, _) = server
        .test
        .call("POST", &nobody, Some(json!({"token": "x"})))
        .await;
    assert_eq!(status.as_u16(), 404);

    let (_, link) = server
        .test
        .call("GET", &format!("/conversations/{id}/audio"), None)
        .await;
    let control::storage::Storage::Local { root } = &server.test.app.storage;
    for file in walk(root) {
        std::fs::remove_file(file).unwrap();
    }
    let url = link["audio_url"].as_str().unwrap();
    let (status, _, body) = fetch(&server, "GET", url, &[]).await;
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status.as_u16(), &error["code"]),
        (502, &json!("storage_error"))
    );
}

fn walk(folder: &std::path::Path) -> Box<dyn Iterator<Item = std::path::PathBuf>> {
    Box::new(
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .flat_map(|path| {
                if path.is_dir() {
                    walk(&path)
                } else {
                    Box::new(std::iter::once(path))
                }
            }),
    )
}
