//! A headless Firefox, driven over WebDriver BiDi, which it speaks by itself: open a page, ask its scripts, look.
//! Unlike Marionette's, scripts run in the page's own realm, so that they may import modules, and what the page's
//! console says is told.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::SemaphorePermit;

use super::protocol::{Commands, Program, TURNS, appears};

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
    _program: Program,
    _sound: Program,
    commands: Commands,
    page: String,
    /// Exceptions, console errors and refused loads of the page so far.
    pub troubles: Vec<String>,
    _folder: TempDir,
    _turn: SemaphorePermit<'static>,
}

impl Firefox {
    pub(crate) async fn open() -> Self {
        let turn = TURNS.acquire().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let sound = sound(folder.path()).await;
        let profile = folder.path().join("profile");
        std::fs::create_dir(&profile).unwrap();
        std::fs::write(profile.join("user.js"), PREFERENCES).unwrap();
        let mut command = Command::new("firefox-esr");
        command
            .args(["--headless", "--no-remote", "--remote-debugging-port=0"])
            .arg("--profile")
            .arg(&profile)
            .arg("about:blank")
            .env("HOME", folder.path())
            .env(
                "PULSE_SERVER",
                format!("unix:{}", socket(folder.path()).display()),
            );
        let program = Program::start("Firefox", &mut command);
        let address = address(&profile).await;
        let mut browser = Self {
            _program: program,
            _sound: sound,
            commands: Commands::connect("Firefox", &address).await,
            page: String::new(),
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
        let troubles = &mut self.troubles;
        let event = |event: &Value| {
            let entry = &event["params"];
            if event["method"] == "log.entryAdded" && entry["level"] == "error" {
                troubles.push(entry["text"].to_string());
            }
        };
        let command = json!({"method": method, "params": params});
        let mut answer = self.commands.ask(command, event).await;
        assert_eq!(answer["type"], "success", "{method}: {answer}");
        answer["result"].take()
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

/// Starts a sound server whose loudspeaker is nobody's: without any Firefox runs no AudioContext.
async fn sound(folder: &Path) -> Program {
    let socket = socket(folder);
    let protocol = format!(
        "module-native-protocol-unix socket={} auth-anonymous=1",
        socket.display()
    );
    let mut command = Command::new("pulseaudio");
    command
        .args(["-n", "--daemonize=no", "--use-pid-file=no"])
        .args(["--exit-idle-time=-1", "--disable-shm=yes"])
        .args(["--realtime=no", "--high-priority=no"])
        .args(["-L", "module-null-sink", "-L", &protocol])
        .env("HOME", folder)
        .env("XDG_RUNTIME_DIR", folder);
    let program = Program::start("PulseAudio", &mut command);
    let look = || socket.exists().then_some(());
    appears("socket of PulseAudio's", Duration::from_secs(15), look).await;
    program
}

/// Where clients reach the sound server.
fn socket(folder: &Path) -> PathBuf {
    folder.join("sound")
}

/// The browser writes the port of its socket into its profile once it listens.
async fn address(profile: &Path) -> String {
    let told = profile.join("WebDriverBiDiServer.json");
    let look = || {
        let text = std::fs::read(&told).unwrap_or_default();
        let told: Value = serde_json::from_slice(&text).unwrap_or_default();
        let port = told["ws_port"].as_u64()?;
        Some(format!("ws://127.0.0.1:{port}/session"))
    };
    appears("BiDi socket of Firefox's", Duration::from_secs(60), look).await
}
