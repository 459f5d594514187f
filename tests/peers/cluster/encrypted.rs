//! Redis over TLS: served where the certificate is good, and nobody else is talked to.

use std::path::Path;
use std::time::Duration;

use kit::redis::Redis;
use kit::server::Setup;
use kit::socket::native;
use tokio::time::{Instant, sleep};

use crate::stage::{Cluster, agent};

fn node(cluster: &Cluster, name: &str, url: &str, authority: &Path) -> Setup {
    cluster
        .node(name)
        .env("REDIS_URL", url)
        .env("SSL_CERT_FILE", &authority.display().to_string())
}

#[tokio::test]
async fn leases_go_over_tls_to_whom_the_certificate_names() {
    let cluster = Cluster::new().await;
    let redis = Redis::start_encrypted().await;
    let good = redis.encrypted_url("localhost");
    let server = node(&cluster, "a", &good, &redis.authority()).start().await;
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
        let server = node(&cluster, name, &url, &authority)
            .unready()
            .start()
            .await;
        let refused = server.client().post("/conversation/connect", &wish).await;
        assert_eq!(refused.status, 503, "{url}: {}", refused.body);
        assert_eq!(refused.text("code"), "redis_unavailable", "{url}");
    }
    assert_eq!(redis.leases().await, 1);
}
