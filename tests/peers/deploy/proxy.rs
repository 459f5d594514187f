//! Two nodes on PostgreSQL, Redis and an S3 store, behind the proxy of `deploy/nginx.conf`, as the compose
//! file has them: calls through it, a node that drains, a rolling restart.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use kit::bucket::Bucket;
use kit::client::Client;
use kit::ports::free_port;
use kit::redis::Redis;
use kit::server::{Server, Setup, trusting_client};
use kit::socket::{self, Caller, native};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::read;

/// Live calls while a node drains.
const CALLS: usize = 50;
/// How long each goes on after all are live.
const TALK: Duration = Duration::from_secs(8);
/// What a node may take from its last call's end to its own: goodbyes, uploads, the last events.
const FAREWELL: Duration = Duration::from_secs(20);

/// nginx with the repository's own configuration, on other ports.
struct Proxy {
    child: Child,
    url: String,
    https: String,
    _folder: tempfile::TempDir,
}

impl Proxy {
    async fn start(port: u16, nodes: [&Server; 2]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("sidetone-proxy")
            .tempdir()
            .unwrap();
        let at = folder.path().display();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=localhost"])
            .args(["-keyout", &format!("{at}/privkey.pem")])
            .args(["-out", &format!("{at}/fullchain.pem")])
            .output()
            .expect("openssl is missing: run `bash scripts/setup.sh test`");
        assert!(made.status.success(), "{made:?}");
        let (https, http) = (free_port(), free_port());
        let mut text = read("nginx.conf");
        let scratch = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {at}/{what};"))
            .join("\n");
        let [a, b] = nodes.map(|node| node.url.replace("http://", ""));
        for (from, to) in [
            ("node-a:8080", a.as_str()),
            ("node-b:8080", b.as_str()),
            ("/etc/nginx/tls", &at.to_string()),
            ("/tmp/nginx.pid", &format!("{at}/nginx.pid")),
            ("listen 80;", &format!("listen 127.0.0.1:{http};")),
            (
                "listen 443 ssl http2;",
                &format!("listen 127.0.0.1:{https} ssl http2;\nlisten 127.0.0.1:{port};"),
            ),
            ("http {", &format!("http {{\n{scratch}")),
        ] {
            assert!(text.contains(from), "{from:?} is not in nginx.conf");
            text = text.replace(from, to);
        }
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, text).unwrap();
        let program = ["/usr/sbin/nginx", "nginx"]
            .into_iter()
            .find(|name| Command::new(name).arg("-v").output().is_ok())
            .expect("nginx is missing: run `bash scripts/setup.sh test`");
        let child = Command::new(program)
            .arg("-c")
            .arg(&path)
            .args(["-g", "daemon off;"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let proxy = Self {
            child,
            url: format!("http://127.0.0.1:{port}"),
            https: format!("https://127.0.0.1:{https}"),
            _folder: folder,
        };
        let http = kit::server::reqwest_client();
        let until = Instant::now() + Duration::from_secs(10);
        while http
            .get(format!("{}/healthz", proxy.url))
            .send()
            .await
            .is_err()
        {
            assert!(Instant::now() < until, "nginx does not answer");
            sleep(Duration::from_millis(20)).await;
        }
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The master ends its workers.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

/// What the compose file starts.
struct Installation {
    a: Server,
    b: Server,
    proxy: Proxy,
    redis: Redis,
    _bucket: Bucket,
}

async fn installation() -> Installation {
    let (bucket, redis) = tokio::join!(Bucket::start(), Redis::start());
    let database = kit::postgres::shared().database().await;
    let port = free_port();
    let (key, public) = (kit::server::new_key(), format!("http://127.0.0.1:{port}"));
    let master = base64_simd::STANDARD.encode_to_string([9; 32]);
    let node = |name: &str| {
        Setup::default()
            .scripted()
            .set("ENGINE__VAD", "energy")
            .set("ENGINE__MEDIA_THREADS", "1")
            .set("CLUSTER__NODE", name)
            .set("MASTER_KEY", &master)
            .set("SERVER__PUBLIC_URL", &public)
            .set("SERVER__DRAIN_SECONDS", "60")
            .set("SERVER__TRUSTED_PROXIES", "127.0.0.1")
            .set("LIMITS__KEYLESS_CALLS", "1")
            .set("STORAGE__URL", "s3://calls/objects")
            .set(
                "STORAGE__ENDPOINT",
                &format!("http://127.0.0.1:{}", bucket.port),
            )
            .set("STORAGE__REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("REDIS_URL", &redis.url())
            .database(&database)
            .key(&key)
            .start()
    };
    // One after the other, so that one makes the tables.
    let a = node("node-a").await;
    let b = node("node-b").await;
    let proxy = Proxy::start(port, [&a, &b]).await;
    Installation {
        a,
        b,
        proxy,
        redis,
        _bucket: bucket,
    }
}

async fn agent(client: &Client) -> String {
    let fields = json!({
        "public_access": true,
        "voice_id": socket::scripted_voice(client).await,
        "llm_model": "echo",
        "first_message": "This is a long greeting, and it goes on for a good while. ".repeat(16),
        "interruption_enabled": false,
        "idle_check_in_after_secs": 600,
    });
    socket::agent(client, fields).await
}

/// A call through the proxy: live until it is told, then it hangs up. Its id.
async fn a_call(
    client: Client,
    agent: String,
    live: mpsc::Sender<()>,
    enough: Arc<AtomicBool>,
) -> String {
    let mut caller = Caller::call(&client, &native(&agent)).await;
    caller.wait_for("audio", 20_000).await;
    live.send(()).await.unwrap();
    while !enough.load(Ordering::SeqCst) {
        caller.listen(100).await;
        assert_eq!(caller.closed, None, "{:?}", caller.messages.last());
    }
    // Every frame came, in its order.
    let offsets: Vec<f64> = caller
        .of_kind("audio")
        .iter()
        .map(|audio| audio["offset_ms"].as_f64().unwrap())
        .collect();
    assert!(
        offsets.windows(2).all(|pair| pair[1] - pair[0] == 20.0),
        "sound is missing"
    );
    caller.send(&json!({"type": "end"})).await;
    assert_eq!(caller.close_code(Duration::from_secs(10)).await, Some(1000));
    caller.session_id
}

/// Opens a session through the proxy ten times a second until it is told; how many. None is refused.
async fn newcomers(client: Client, agent: String, enough: Arc<AtomicBool>) -> usize {
    let mut opened = 0;
    while !enough.load(Ordering::SeqCst) {
        let session = client
            .post("/conversation/connect", &native(&agent))
            .await
            .expect(200);
        let mut caller = Caller::join(&session, "").await.expect("a node takes it");
        caller.send(&json!({"type": "end"})).await;
        assert_eq!(caller.close_code(Duration::from_secs(10)).await, Some(1000));
        opened += 1;
        sleep(Duration::from_millis(100)).await;
    }
    opened
}

/// How many live calls each node hosts.
async fn hosts(db: &control::db::Db) -> BTreeMap<String, i64> {
    let rows = db.query(
        "select owner_node, count(*) as calls from calls
         where ended_at is null and owner_node is not null group by owner_node",
    );
    let rows = rows
        .all(|row| Ok((row.text("owner_node")?, row.i64("calls")?)))
        .await;
    rows.unwrap().into_iter().collect()
}

#[tokio::test]
async fn visitors_behind_the_proxy_are_counted_apart_whatever_they_write() {
    let installation = installation().await;
    let proxy = &installation.proxy.url;
    let agent = agent(&Client::new(proxy, Some(&installation.a.key))).await;
    let url = format!("{proxy}/api/v1/conversation/connect");
    // Visitors at addresses of the loopback other than the proxy's own, each of whom claims to be somebody else.
    let connect = async |from: [u8; 4], claims: &str| {
        let visitor = reqwest::Client::builder()
            .no_proxy()
            .local_address(std::net::IpAddr::from(from))
            .build()
            .unwrap();
        let request = visitor.post(&url).header("x-forwarded-for", claims);
        let body = json!({"agent_id": agent});
        request.json(&body).send().await.unwrap().status().as_u16()
    };
    let (first, second) = ([127, 0, 0, 2], [127, 0, 0, 3]);
    assert_eq!(connect(first, "192.0.2.1").await, 200);
    assert_eq!(connect(first, "192.0.2.2").await, 429);
    assert_eq!(connect(second, "127.0.0.2").await, 200);
    assert_eq!(connect(second, "127.0.0.1").await, 429);
}

#[tokio::test]
async fn a_node_drains_behind_the_proxy_and_nobody_is_lost_or_turned_away() {
    let Installation {
        mut a,
        mut b,
        proxy,
        redis,
        _bucket,
    } = installation().await;
    let client = Client::new(&proxy.url, Some(&a.key));
    let agent = agent(&client).await;
    let db = a.database().await;

    // The proxy speaks https, and keeps the operator's routes to itself.
    let https = trusting_client();
    let healthy = https.get(format!("{}/healthz", proxy.https)).send().await;
    assert_eq!(healthy.unwrap().status().as_u16(), 200);
    for path in [
        "metrics",
        "readyz",
        "internal/v1/x",
        "api/v1/admin/accounts",
    ] {
        let hidden = https.get(format!("{}/{path}", proxy.https)).send().await;
        assert_eq!(hidden.unwrap().status().as_u16(), 404, "{path}");
    }

    // Calls on both nodes.
    let (live, mut lives) = mpsc::channel(CALLS);
    let enough = Arc::new(AtomicBool::new(false));
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            tokio::spawn(a_call(
                client.clone(),
                agent.clone(),
                live.clone(),
                enough.clone(),
            ))
        })
        .collect();
    for _ in 0..CALLS {
        let began = tokio::time::timeout(Duration::from_secs(60), lives.recv()).await;
        began.expect("all calls begin").unwrap();
    }
    let before = hosts(&db).await;
    println!("live calls: {before:?}");
    assert!(before.len() == 2 && before.values().all(|calls| *calls >= 5));
    let pending = client
        .post("/conversation/connect", &native(&agent))
        .await
        .expect(200);

    a.terminate();
    let told = Instant::now();
    let until = told + Duration::from_secs(5);
    while a.anonymous().get("//readyz").await.status == 200 {
        assert!(Instant::now() < until, "it is still ready");
        sleep(Duration::from_millis(10)).await;
    }
    b.anonymous().get("//readyz").await.expect(200);
    let refused = a
        .client()
        .post("/conversation/connect", &native(&agent))
        .await
        .expect(503);
    assert_eq!(refused.text("code"), "service_unavailable");
    assert!(refused.header("retry-after").is_some());
    b.client()
        .post("/conversation/connect", &native(&agent))
        .await
        .expect(200);
    // A call that was promised is not begun where it would be cut short, but where it is not.
    let here = pending.text("ws_url");
    let there = here.replace(
        &proxy.url.replace("http", "ws"),
        &a.url.replace("http", "ws"),
    );
    let Err(why) = Caller::open(&there).await else {
        panic!("a node that ends took a call")
    };
    assert!(why.contains("503"), "{why}");
    let mut promised = Caller::join(&pending, "").await.unwrap();
    promised.wait_for("audio", 10_000).await;
    promised.hang_up().await;

    let done = Arc::new(AtomicBool::new(false));
    let coming = tokio::spawn(newcomers(client.clone(), agent.clone(), done.clone()));
    sleep(TALK).await;
    // A live session of the node that drains is served through any node.
    let on_a = db
        .query("select id from calls where ended_at is null and owner_node = $1")
        .bind("node-a")
        .all(|row| row.text("id"))
        .await
        .unwrap();
    let status = b
        .client()
        .get(&format!("/conversation/{}/status", on_a[0]))
        .await
        .expect(200);
    assert_eq!(status.text("status"), "live");
    assert_eq!(
        a.ended(Duration::from_millis(100)).await,
        None,
        "it waits for its calls"
    );
    enough.store(true, Ordering::SeqCst);
    let ids: Vec<String> = join_all(calls)
        .await
        .into_iter()
        .map(|call| call.expect("no call is lost"))
        .collect();
    assert_eq!(a.ended(FAREWELL).await, Some(0));
    println!("the node ended {:?} after it was told", told.elapsed());
    done.store(true, Ordering::SeqCst);
    let opened = coming.await.expect("nobody is turned away");
    println!("{opened} calls began meanwhile");
    assert!(opened > 10, "{opened}");

    // A rolling restart goes on with the other node.
    a.start_again().await;
    let done = Arc::new(AtomicBool::new(false));
    let coming = tokio::spawn(newcomers(client.clone(), agent.clone(), done.clone()));
    sleep(Duration::from_secs(1)).await;
    b.terminate();
    assert_eq!(b.ended(FAREWELL).await, Some(0));
    b.start_again().await;
    done.store(true, Ordering::SeqCst);
    assert!(coming.await.expect("nobody is turned away") > 5);

    // Each call is written down once, whole, with its sound in the store.
    let until = Instant::now() + Duration::from_secs(120);
    for id in &ids {
        let call = loop {
            let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
            if call["has_recording"] == true || Instant::now() > until {
                break call;
            }
            sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(
            (&call["status"], &call["end_reason"], &call["has_recording"]),
            (&json!("completed"), &json!("caller_hangup"), &json!(true))
        );
        assert_eq!(b.events(id, "call.ended").await.len(), 1);
    }
    // The two sessions that nobody joined run out; of the calls nothing is left.
    assert_eq!(hosts(&db).await, BTreeMap::new());
    let until = Instant::now() + Duration::from_secs(15);
    while redis.leases().await > 2 {
        assert!(Instant::now() < until, "{} leases", redis.leases().await);
        sleep(Duration::from_millis(100)).await;
    }
    db.close().await;
}
