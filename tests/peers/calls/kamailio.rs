//! Kamailio beside the server: a process with the routes that a test gives it.

use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use kit::ports::free_port;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

pub(crate) struct Kamailio {
    pub(crate) address: SocketAddr,
    folder: TempDir,
    process: Child,
}

/// Loops, dialogs and CANCEL as Kamailio's own documents have them; every request is told in the log. What is new
/// goes on to the routes that follow.
const BEGINNING: &str = r#"
loadmodule "pv.so"
loadmodule "xlog.so"
loadmodule "sl.so"
loadmodule "tm.so"
loadmodule "rr.so"
loadmodule "maxfwd.so"
loadmodule "siputils.so"
loadmodule "textops.so"
MODULES

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
"#;

impl Kamailio {
    /// With more modules, and with these routes for what begins a dialog or a registration.
    pub(crate) async fn start(modules: &str, routes: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let beginning = BEGINNING.replace("MODULES", modules);
        let settings = format!(
            "#!KAMAILIO\nchildren=1\ndisable_tcp=yes\nauto_aliases=no\nlisten=udp:{address}\n{beginning}{routes}\n}}\n"
        );
        std::fs::write(folder.path().join("kamailio.cfg"), settings).unwrap();
        let process = run(&folder);
        let kamailio = Self {
            address,
            folder,
            process,
        };
        kamailio.listens().await;
        kamailio
    }

    /// Ends it and starts it again: it has forgotten everything, its log included.
    pub(crate) async fn restart(&mut self) {
        assert!(self.ask_to_end());
        self.process.wait().await.unwrap();
        self.process = run(&self.folder);
        self.listens().await;
    }

    /// It has its port once nobody else can take it.
    async fn listens(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        while UdpSocket::bind(self.address).is_ok() {
            assert!(Instant::now() < until, "it does not listen: {}", self.log());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// How often the log says this.
    pub(crate) fn told(&self, what: &str) -> usize {
        self.log().matches(what).count()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Killed, it would leave its children behind.
    fn ask_to_end(&self) -> bool {
        let Some(pid) = self.process.id() else {
            return true;
        };
        let asked = std::process::Command::new("kill")
            .arg(pid.to_string())
            .status();
        asked.is_ok_and(|status| status.success())
    }
}

fn run(folder: &TempDir) -> Child {
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    Command::new("kamailio")
        .args(["-DD", "-E", "-m", "16", "-M", "4"])
        .arg("-f")
        .arg(folder.path().join("kamailio.cfg"))
        .arg("-w")
        .arg(folder.path())
        .arg("-Y")
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("kamailio is missing: run `bash scripts/setup.sh test`")
}

impl Drop for Kamailio {
    fn drop(&mut self) {
        let asked = self.ask_to_end();
        assert!(asked || std::thread::panicking());
    }
}
