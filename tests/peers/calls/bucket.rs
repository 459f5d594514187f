//! Recordings in a bucket: a real server of the S3 protocol (moto) on loopback.

use std::time::Duration;

use futures_util::TryStreamExt;
use kit::bucket::Bucket;
use kit::client::Client;
use kit::server::Server;
use kit::socket::{Caller, native};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::stage;

/// A server that keeps its recordings there.
async fn on(bucket: &Bucket) -> Server {
    stage::setup()
        .set("STORAGE__URL", "s3://calls/tenants")
        .set(
            "STORAGE__ENDPOINT",
            &format!("http://127.0.0.1:{}", bucket.port),
        )
        .set("STORAGE__REGION", "eu-west-3")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .start()
        .await
}

/// A call of some seconds, with sound on both sides. Its id.
async fn a_call(client: &Client, agent: &str, voice: &[i16]) -> String {
    let mut caller = Caller::call(client, &native(agent)).await;
    caller.speak(voice).await;
    caller.send(&json!({"type": "end"})).await;
    assert_eq!(caller.close_code(Duration::from_secs(5)).await, Some(1000));
    caller.session_id
}

async fn link(client: &Client, id: &str) -> Value {
    client
        .get(&format!("/conversations/{id}/audio"))
        .await
        .expect(200)
        .body
}

#[tokio::test]
async fn a_recording_goes_to_the_bucket_is_read_in_ranges_and_deleted() {
    let _together = stage::together().await;
    let bucket = Bucket::start().await;
    let server = on(&bucket).await;
    let client = server.client();
    let agent = stage::agent(&client, json!({"interruption_enabled": false})).await;
    let id = a_call(&client, &agent, &stage::voice(2500)).await;
    let call = stage::over(&client, &id, Duration::from_secs(20)).await;
    assert_eq!(call["has_recording"], true, "{call}");
    let names = bucket.names().await;
    let wav = names.iter().find(|name| name.ends_with(".wav")).unwrap();
    assert!(
        wav.starts_with("tenants/recordings/") && wav.contains(&id),
        "{wav}"
    );
    assert!(
        names.iter().any(|name| name.ends_with(".tape")),
        "{names:?}"
    );
    assert!(
        !server.data.join("objects").exists(),
        "nothing lies in the local folder"
    );
    let spooled = std::fs::read_dir(server.data.join("spool"))
        .unwrap()
        .count();
    assert_eq!(spooled, 0, "the spool is empty again");

    // The whole, byte for byte what was recorded, and a range of it.
    let http = kit::server::reqwest_client();
    let link = link(&client, &id).await;
    let url = link["audio_url"].as_str().unwrap();
    assert!(
        url.starts_with(&server.url),
        "read through the server: {url}"
    );
    let whole = http.get(url).send().await.unwrap().bytes().await.unwrap();
    let recording = client.get("/recordings").await.expect(200).body["items"][0].clone();
    assert_eq!(recording["recording_region"], "eu-west-3");
    assert_eq!(recording["size_bytes"], whole.len());
    let sha256: String = control::secret::sha256(&whole)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(recording["sha256"], sha256);
    let part = http
        .get(url)
        .header("range", "bytes=1000-1999")
        .send()
        .await
        .unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.bytes().await.unwrap(), whole[1000..2000]);
    let head = http.head(url).send().await.unwrap();
    assert_eq!(
        head.headers()["content-length"],
        whole.len().to_string().as_str()
    );

    let path = format!("/recordings/{}", recording["id"].as_str().unwrap());
    client.delete(&path).await.expect(204);
    assert_eq!(bucket.names().await, Vec::<String>::new());
    assert_eq!(
        http.get(url).send().await.unwrap().status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_large_file_goes_up_in_parts() {
    let bucket = Bucket::start().await;
    let settings = control::config::Storage {
        url: "s3://calls".to_owned(),
        endpoint: format!("http://127.0.0.1:{}", bucket.port),
        region: "eu-west-3".to_owned(),
    };
    let env = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let storage = control::storage::Storage::remote(&settings, env).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.wav");
    let bytes: Vec<u8> = (0..12_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    let key = control::storage::ObjectKey::recording("a", "c");
    storage.take_file(&key, &file).await.unwrap();
    assert!(!file.exists());
    assert_eq!(storage.length(&key).await.unwrap(), 12_000_000);
    // Over the seam of the first two parts.
    let seam = (5 << 20) - 10..(5 << 20) + 10;
    let (content, length) = storage.read(&key, seam.clone()).await.unwrap();
    let parts: Vec<_> = content.try_collect().await.unwrap();
    let read = parts.concat();
    assert_eq!(length, 12_000_000);
    assert_eq!(read, bytes[seam.start as usize..seam.end as usize]);
    storage.delete(&key).await.unwrap();
    assert_eq!(bucket.names().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_bucket_that_is_away_costs_no_recording() {
    let _together = stage::together().await;
    let mut bucket = Bucket::start().await;
    let server = on(&bucket).await;
    let client = server.client();
    let agent = stage::agent(&client, json!({"interruption_enabled": false})).await;
    let kept = a_call(&client, &agent, &stage::voice(1000)).await;
    stage::over(&client, &kept, Duration::from_secs(20)).await;
    let kept = link(&client, &kept).await;
    bucket.stop();
    let id = a_call(&client, &agent, &stage::voice(1000)).await;
    let http = kit::server::reqwest_client();
    let unreadable = http
        .get(kept["audio_url"].as_str().unwrap())
        .send()
        .await
        .unwrap();
    assert_eq!(unreadable.status(), StatusCode::BAD_GATEWAY);
    let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
    assert_eq!(
        (&call["status"], &call["has_recording"]),
        (&json!("completed"), &json!(false))
    );
    bucket.start_again().await;
    let call = stage::over(&client, &id, Duration::from_secs(90)).await;
    assert_eq!(call["has_recording"], true);
    let sound = stage::recording(&client, &id).await;
    assert!(sound[0].len() > 8_000);
}
