//! Kamailio between the telephone and the server: a proxy that stays in the way of every request of a call
//! (Record-Route), as a carrier's session border does.

use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use kit::server::free_port;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    folder: TempDir,
    process: Child,
}

/// Loops and dialogs as Kamailio's own documents have them; every request is told in the log.
const ROUTES: &str = r#"
loadmodule "pv.so"
loadmodule "xlog.so"
loadmodule "sl.so"
loadmodule "tm.so"
loadmodule "rr.so"
loadmodule "maxfwd.so"
loadmodule "siputils.so"
loadmodule "textops.so"

request_route {
    xlog("L_ERR", "SEEN $rm from $si:$sp\n");
    if (!mf_process_maxfwd_header("10")) {
        sl_send_reply("483", "Too Many Hops");
        exit;
    }
    if (has_totag()) {
        if (loose_route() || (is_method("ACK") && t_check_trans())) {
            t_relay();
        } else if (!is_method("ACK")) {
            sl_send_reply("404", "Not Here");
        }
        exit;
    }
    if (is_method("CANCEL")) {
        if (t_check_trans()) { t_relay(); }
        exit;
    }
    t_check_trans();
    record_route();
    $du = "sip:TARGET";
    t_relay();
}
"#;

impl Proxy {
    /// Passes calls on to this server.
    pub(super) async fn to(target: SocketAddr) -> Self {
        let folder = TempDir::new().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let settings = format!(
            "#!KAMAILIO\nchildren=1\ndisable_tcp=yes\nauto_aliases=no\nlisten=udp:{address}\n{}",
            ROUTES.replace("TARGET", &target.to_string())
        );
        let file = folder.path().join("kamailio.cfg");
        std::fs::write(&file, settings).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new("kamailio")
            .args(["-DD", "-E", "-m", "16", "-M", "4"])
            .arg("-f")
            .arg(&file)
            .arg("-w")
            .arg(folder.path())
            .arg("-Y")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("kamailio is missing: run `bash scripts/setup.sh test`");
        let proxy = Self {
            address,
            folder,
            process,
        };
        let until = Instant::now() + Duration::from_secs(20);
        // It has its port once nobody else can take it.
        while UdpSocket::bind(address).is_ok() {
            assert!(
                Instant::now() < until,
                "it does not listen: {}",
                proxy.log()
            );
            sleep(Duration::from_millis(50)).await;
        }
        proxy
    }

    /// How many requests of this method came from there.
    pub(super) fn seen(&self, method: &str, from: SocketAddr) -> usize {
        self.log()
            .matches(&format!("SEEN {method} from {from}\n"))
            .count()
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

impl Drop for Proxy {
    /// Asks it to end: killed, it would leave its children behind.
    fn drop(&mut self) {
        if let Some(pid) = self.process.id() {
            let asked = std::process::Command::new("kill")
                .arg(pid.to_string())
                .status();
            assert!(asked.is_ok_and(|status| status.success()) || std::thread::panicking());
        }
    }
}
