//! A coturn of its own on the loopback, with the shared secret that makes passwords for a time.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running `turnserver`, ended with the test.
pub struct Coturn {
    port: u16,
    child: Child,
    folder: TempDir,
}

impl Coturn {
    /// Starts one that relays on the loopback alone, for whoever has a password made with `secret`.
    pub async fn start(secret: &str) -> Self {
        Self::start_with(secret, &[]).await
    }

    /// The same, with more of its options.
    pub async fn start_with(secret: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = crate::ports::free_port();
        let log = std::fs::File::create(folder.path().join("log")).expect("a log file");
        let errors = log.try_clone().expect("a second handle");
        let child = Command::new("turnserver")
            .args([
                "-n",
                "--no-cli",
                "--no-tls",
                "--no-dtls",
                "--log-file",
                "stdout",
            ])
            .args(["--listening-ip", "127.0.0.1", "--relay-ip", "127.0.0.1"])
            .args(["--listening-port", &port.to_string()])
            .args(["--use-auth-secret", "--static-auth-secret", secret])
            // On this machine everybody is at home.
            .args([
                "--realm",
                "sidetone.test",
                "--allow-loopback-peers",
                "--verbose",
            ])
            .args(options)
            .arg("--pidfile")
            .arg(folder.path().join("pid"))
            .arg("--userdb")
            .arg(folder.path().join("users"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("turnserver does not start ({error}): run `bash scripts/setup.sh test`")
            });
        let mut coturn = Self {
            port,
            child,
            folder,
        };
        coturn.ready().await;
        coturn
    }

    /// As the setting `webrtc.turn_urls` takes it.
    pub fn url(&self) -> String {
        format!("turn:127.0.0.1:{}?transport=udp", self.port)
    }

    /// What it wrote.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// It listens on TCP, too: once that answers, it is there.
    async fn ready(&mut self) {
        let until = Instant::now() + Duration::from_secs(30);
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port))
            .await
            .is_err()
        {
            let ended = self.child.try_wait().expect("it can be waited for");
            assert!(
                ended.is_none() && Instant::now() < until,
                "turnserver is not ready ({ended:?}):\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Coturn {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
