//! Redis over TLS: served where the certificate is good, and one that nobody vouches for is not talked to.

use std::path::Path;
use std::time::Duration;

use control::redis_link::Link;
use control::secret::Secret;
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
async fn leases_go_over_tls_to_whom_an_authority_vouches_for() {
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

    // Without that authority nobody vouches for the certificate.
    let link = Link::new(&Secret::new(good)).unwrap();
    assert!(!link.connect().await);
    assert_eq!(redis.leases().await, 1);
}
