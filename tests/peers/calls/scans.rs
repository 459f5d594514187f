//! Whoever looks for telephone servers to abuse finds nothing here: SIPVicious, the tool that they use,
//! from an address of no trunk.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::process::Command;

use super::trunks::{ask, by_address, line, server_with};
use crate::stage;

/// The scanner for servers, the one for extensions and the one for passwords; each tries twenty things.
const TOOLS: [(&str, &[&str]); 3] = [
    ("svmap", &[]),
    ("svwar", &["-e", "100-119"]),
    ("svcrack", &["-u", "100", "-r", "1000-1019"]),
];

/// What a tool says of this server; it asks from 127.0.0.1.
async fn scan((tool, args): (&str, &[&str]), target: SocketAddr) -> String {
    let port = target.port().to_string();
    let ran = Command::new(tool)
        .args(["-p", &port])
        .args(args)
        .arg(target.ip().to_string())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), ran).await;
    let output = output
        .expect("it ends")
        .expect("sipvicious is installed by scripts/setup.sh test");
    let told = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&told).into_owned()
}

#[tokio::test]
async fn who_scans_from_an_unknown_address_finds_nothing() {
    let _together = stage::together().await;
    let (server, listen) = server_with(&[("EGRESS__ALLOW", "127.0.0.0/8")]).await;
    let client = server.client();
    let mut trunk = by_address();
    trunk["allowed_addresses"] = json!(["127.0.0.9"]);
    let (trunk, ..) = line(&client, trunk, json!({})).await;
    let heard = async |from| {
        let patience = Instant::now() + Duration::from_secs(10);
        while ask(listen, from).is_none() {
            assert!(Instant::now() < patience, "{}", server.log());
        }
    };
    heard("127.0.0.9").await;
    for tool in TOOLS {
        let told = scan(tool, listen).await;
        assert!(told.contains("found nothing"), "{tool:?}: {told}");
    }
    // From a trunk's own address the first of them does find the server, though no more than that.
    let known = json!({"allowed_addresses": ["127.0.0.1"]});
    let path = format!("/sip-trunks/{trunk}");
    client.patch(&path, &known).await.expect(200);
    heard("127.0.0.1").await;
    for tool in TOOLS {
        let told = scan(tool, listen).await;
        assert_eq!(
            told.contains("found nothing"),
            tool.0 != "svmap",
            "{tool:?}: {told}"
        );
    }
    assert_eq!(client.get("/calls").await.expect(200).body["total"], 0);
}
