//! Redis over TLS: served where the certificate is good, and nobody else is talked to.

use std::path::Path;
use std::time::Duration;

use kit::redis::Redis;
use kit::server::Server;
use kit::socket::native;
use tokio::time::{Instant, sleep};

use crate::stage::{Cluster, agent};

async fn start(cluster: &Cluster, name: &str, url: &str, authority: &Path) -> Server {
    cluster
        .node(name)
        .env("REDIS_URL", url)
        .env("SSL_CERT_FILE", &authority.display().to_string())
        .start()
        .await
}

#[tokio::test]
async fn leases_go_over_tls_to_whom_the_certificate_names() {
    let cluster = Cluster::new().await;
    let redis = Redis::start_encrypted().await;
    let good = redis.encrypted_url("localhost");
    let server = start(&cluster, "a", &good, &redis.authority()).await;
    let client = server.client();
    let until = Instant::now() + Duration::from_secs(10);
    while client.get("//readyz").await.status != 200 {
        assert!(Instant::now() < until, "not ready");
        sleep(Duration::from_millis(20)).await;
    }
    let agent = agent(&client).await;
    let wish = native(&agent);
    client
        .post("/conversation/connect", &wish)
        .await
        .expect(200);
    assert_eq!(redis.leases().await, 1);
    drop(server);

    // The certificate is for the name, not for the address; and another's authority vouches for nothing.
    let elsewhere = tempfile::tempdir().unwrap();
    kit::certificates::make(elsewhere.path());
    let other = elsewhere.path().join("ca.crt");
    for (name, url, authority) in [
        ("b", redis.encrypted_url("127.0.0.1"), redis.authority()),
        ("c", good, other),
    ] {
        let server = start(&cluster, name, &url, &authority).await;
        let refused = server.client().post("/conversation/connect", &wish).await;
        assert_eq!(refused.status, 503, "{url}: {}", refused.body);
        assert_eq!(refused.text("code"), "redis_unavailable", "{url}");
    }
    assert_eq!(redis.leases().await, 1);
}
