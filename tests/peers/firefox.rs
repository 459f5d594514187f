//! A headless Firefox, driven over WebDriver BiDi, which it speaks by itself: open a page, ask its scripts, look.
//! Unlike Marionette's, scripts run in the page's own realm, so that they may import modules, and what the page's
//! console says is told.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::SemaphorePermit;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::devtools::TURNS;

/// Settings of a profile: a microphone that needs no permission (a tone), sound without a press, candidates for WebRTC
/// on this machine, and no requests of the browser's own.
const PREFERENCES: &str = r#"
user_pref("media.navigator.streams.fake", true);
user_pref("media.navigator.permission.disabled", true);
user_pref("media.autoplay.default", 0);
user_pref("media.autoplay.blocking_policy", 0);
user_pref("media.peerconnection.ice.loopback", true);
user_pref("media.peerconnection.ice.obfuscate_host_addresses", false);
user_pref("media.gmp-manager.updateEnabled", false);
user_pref("network.proxy.type", 0);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("datareporting.healthreport.uploadEnabled", false);
user_pref("toolkit.telemetry.enabled", false);
user_pref("toolkit.telemetry.server", "");
user_pref("app.update.enabled", false);
user_pref("app.normandy.enabled", false);
user_pref("extensions.update.enabled", false);
user_pref("services.settings.server", "");
user_pref("browser.safebrowsing.update.enabled", false);
user_pref("browser.safebrowsing.malware.enabled", false);
user_pref("browser.safebrowsing.phishing.enabled", false);
user_pref("browser.region.network.url", "");
user_pref("browser.search.update", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.page", 0);
user_pref("browser.newtabpage.enabled", false);
"#;

/// A browser with one page.
pub(crate) struct Firefox {
    child: Child,
    _sound: Sound,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    page: String,
    next: u64,
    /// Exceptions, console errors and refused loads of the page so far.
    pub troubles: Vec<String>,
    _folder: TempDir,
    _turn: SemaphorePermit<'static>,
}

impl Firefox {
    pub(crate) async fn open() -> Self {
        let turn = TURNS.acquire().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let sound = Sound::start(folder.path()).await;
        let profile = folder.path().join("profile");
        std::fs::create_dir(&profile).unwrap();
        std::fs::write(profile.join("user.js"), PREFERENCES).unwrap();
        let child = Command::new("firefox-esr")
            .args(["--headless", "--no-remote", "--remote-debugging-port=0"])
            .arg("--profile")
            .arg(&profile)
            .arg("about:blank")
            .env("HOME", folder.path())
            .env("PULSE_SERVER", Sound::server(folder.path()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("Firefox does not start: {error}"));
        let address = address(&profile).await;
        let (socket, _) = tokio_tungstenite::connect_async(&address).await.unwrap();
        let mut browser = Self {
            child,
            _sound: sound,
            socket,
            page: String::new(),
            next: 0,
            troubles: Vec::new(),
            _folder: folder,
            _turn: turn,
        };
        browser
            .call("session.new", json!({"capabilities": {}}))
            .await;
        let tree = browser.call("browsingContext.getTree", json!({})).await;
        let page = tree["contexts"][0]["context"].as_str();
        browser.page = page.unwrap().to_owned();
        let events = json!({"events": ["log.entryAdded"]});
        browser.call("session.subscribe", events).await;
        browser
    }

    /// One command of the protocol; its error is the test's failure.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let message = json!({"id": id, "method": method, "params": params});
        self.socket
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
        loop {
            let next = timeout(Duration::from_secs(30), self.socket.next()).await;
            let text = next
                .unwrap_or_else(|_| panic!("Firefox does not answer {method}"))
                .unwrap()
                .unwrap();
            let Ok(mut answer) = serde_json::from_str::<Value>(text.to_text().unwrap_or_default())
            else {
                continue;
            };
            if answer["id"] == id {
                assert_eq!(answer["type"], "success", "{method}: {answer}");
                return answer["result"].take();
            }
            let entry = &answer["params"];
            if answer["method"] == "log.entryAdded" && entry["level"] == "error" {
                self.troubles.push(entry["text"].to_string());
            }
        }
    }

    pub(crate) async fn goto(&mut self, url: &str) {
        let params = json!({"context": self.page, "url": url, "wait": "complete"});
        self.call("browsingContext.navigate", params).await;
    }

    /// The value of an expression in the page, as if a person's action had run it. It comes as JSON: the protocol's own
    /// values name the type of each part.
    pub(crate) async fn eval(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": format!("(async () => JSON.stringify(await ({expression})) ?? 'null')()"),
            "target": {"context": self.page},
            "awaitPromise": true,
            "userActivation": true,
        });
        let answer = self.call("script.evaluate", params).await;
        assert_eq!(
            answer["type"], "success",
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        let text = answer["result"]["value"].as_str();
        serde_json::from_str(text.unwrap_or_default()).unwrap()
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A sound server whose loudspeaker is nobody's: without any Firefox runs no AudioContext.
struct Sound(Child);

impl Sound {
    async fn start(folder: &Path) -> Self {
        let socket = folder.join("sound");
        let protocol = format!(
            "module-native-protocol-unix socket={} auth-anonymous=1",
            socket.display()
        );
        let child = Command::new("pulseaudio")
            .args(["-n", "--daemonize=no", "--use-pid-file=no"])
            .args(["--exit-idle-time=-1", "--disable-shm=yes"])
            .args(["--realtime=no", "--high-priority=no"])
            .args(["-L", "module-null-sink", "-L", &protocol])
            .env("HOME", folder)
            .env("XDG_RUNTIME_DIR", folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("PulseAudio does not start: {error}"));
        let sound = Self(child);
        for _ in 0..300 {
            if socket.exists() {
                return sound;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("PulseAudio did not open its socket within 15 s");
    }

    /// Where clients reach it.
    fn server(folder: &Path) -> String {
        format!("unix:{}", folder.join("sound").display())
    }
}

impl Drop for Sound {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The browser writes the port of its socket into its profile once it listens.
async fn address(profile: &Path) -> String {
    for _ in 0..600 {
        let text = std::fs::read(profile.join("WebDriverBiDiServer.json")).unwrap_or_default();
        let told: Value = serde_json::from_slice(&text).unwrap_or_default();
        if let Some(port) = told["ws_port"].as_u64() {
            return format!("ws://127.0.0.1:{port}/session");
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("Firefox did not open its BiDi socket within 60 s");
}
