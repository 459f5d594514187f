//! A real server of the S3 protocol (moto) on loopback.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A running S3 server with one bucket, `calls`; ended with the test.
pub struct Bucket {
    pub url: String,
    pub port: u16,
    server: Child,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Where `scripts/setup.sh test` installs it, or anywhere on the path.
fn moto() -> PathBuf {
    // Beside the folder of the built program.
    let built = crate::server::program();
    let target = built.parent().and_then(Path::parent).unwrap();
    let own = target.join("peers/moto/bin/moto_server");
    if own.exists() {
        return own;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).find_map(|folder| {
        let program = folder.join("moto_server");
        program.exists().then_some(program)
    });
    found.expect("moto_server is missing: run `bash scripts/setup.sh test`")
}

fn spawn(port: u16) -> Child {
    Command::new(moto())
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the S3 server starts")
}

impl Bucket {
    pub async fn start() -> Self {
        let port = crate::ports::free_port();
        let bucket = Self {
            url: format!("http://127.0.0.1:{port}/calls"),
            port,
            server: spawn(port),
        };
        bucket.make().await;
        bucket
    }

    /// Waits for the server and makes the bucket.
    async fn make(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        let http = crate::server::reqwest_client();
        loop {
            match http.put(&self.url).send().await {
                Ok(answer) if answer.status().is_success() => return,
                _ => assert!(Instant::now() < until, "no S3 server after a minute"),
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// kill -9.
    pub fn stop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    pub async fn start_again(&mut self) {
        self.server = spawn(self.port);
        self.make().await;
    }

    /// The names of its objects.
    pub async fn names(&self) -> Vec<String> {
        let http = crate::server::reqwest_client();
        let list = http.get(format!("{}?list-type=2", self.url)).send().await;
        let xml = list.unwrap().text().await.unwrap();
        xml.split("<Key>")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once("</Key>")?.0.to_owned()))
            .collect()
    }
}
