//! A headless Chromium, driven over its DevTools socket: open a page, press keys, ask its scripts, look.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64_simd::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::SemaphorePermit;

use super::page::Page;
use super::protocol::{Commands, Program, TURNS, appears};

/// A browser with one page, and a WAV file for a microphone.
pub(crate) struct Browser {
    _program: Program,
    commands: Commands,
    session: String,
    /// Exceptions, console errors and refused loads of the page so far.
    pub troubles: Vec<String>,
    _profile: TempDir,
    _turn: SemaphorePermit<'static>,
}

impl Browser {
    pub(crate) async fn open(microphone: &Path) -> Self {
        let turn = TURNS.acquire().await.unwrap();
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(program());
        command
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args([
                "--disable-dev-shm-usage",
                // Candidates for WebRTC on this machine alone.
                "--allow-loopback-in-peer-connection",
                "--hide-scrollbars",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args([
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
            ])
            .arg(format!(
                "--use-file-for-fake-audio-capture={}%noloop",
                microphone.display()
            ))
            .arg("about:blank");
        let program = Program::start("Chromium", &mut command);
        let address = address(profile.path()).await;
        let mut browser = Self {
            _program: program,
            commands: Commands::connect("Chromium", &address).await,
            session: String::new(),
            troubles: Vec::new(),
            _profile: profile,
            _turn: turn,
        };
        let page = browser
            .call("Target.createTarget", json!({"url": "about:blank"}))
            .await;
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        browser
    }

    /// One command of the protocol; its error is the test's failure.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let mut command = json!({"method": method, "params": params});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        let troubles = &mut self.troubles;
        let event = |event: &Value| troubles.extend(trouble(event));
        let mut answer = self.commands.ask(command, event).await;
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].take()
    }

    pub(crate) async fn goto(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url})).await;
        self.until("document.readyState === 'complete'", 20).await;
    }

    /// The value of an expression in the page, as if a person's action had run it.
    pub(crate) async fn eval(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true,
        });
        let mut answer = self.call("Runtime.evaluate", params).await;
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].take()
    }

    /// Waits until the expression holds. On the way out of patience, tells what the page shows.
    pub(crate) async fn until(&mut self, expression: &str, seconds: u64) {
        Page::until(self, expression, seconds).await;
    }

    /// Types into what has the focus.
    pub(crate) async fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// Lets scripts of the test into pages that are opened from now on, which their policy forbids.
    pub(crate) async fn without_policy(&mut self) {
        self.call("Page.setBypassCSP", json!({"enabled": true}))
            .await;
    }

    /// Presses a key as a keyboard does.
    pub(crate) async fn press(&mut self, key: &str, code: u32, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut params =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                params["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", params).await;
        }
    }

    /// The window's size in CSS pixels, and the system's colours.
    pub(crate) async fn screen(&mut self, width: u32, height: u32, dark: bool) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", metrics)
            .await;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media).await;
    }

    /// Saves what the page looks like, where cargo keeps the files of tests.
    pub(crate) async fn screenshot(&mut self, name: &str) {
        let picture = self
            .call("Page.captureScreenshot", json!({"format": "png"}))
            .await;
        let bytes = STANDARD
            .decode_to_vec(picture["data"].as_str().unwrap())
            .unwrap();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png"));
        std::fs::write(&path, bytes).unwrap();
        println!("{}", path.display());
    }
}

/// What an event tells of an exception, a console error or a refused load.
fn trouble(event: &Value) -> Option<String> {
    let params = &event["params"];
    match event["method"].as_str() {
        Some("Runtime.exceptionThrown") => {
            let details = &params["exceptionDetails"];
            Some(format!(
                "{} {}",
                details["text"], details["exception"]["description"]
            ))
        }
        Some("Runtime.consoleAPICalled") if params["type"] == "error" => {
            Some(params["args"].to_string())
        }
        Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
            Some(params["entry"]["text"].to_string())
        }
        _ => None,
    }
}

fn program() -> PathBuf {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("Chromium is missing: install the package chromium"))
}

/// The browser writes port and path of its socket into its profile once it listens.
async fn address(profile: &Path) -> String {
    let told = profile.join("DevToolsActivePort");
    let look = || {
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        let (port, path) = text.trim().split_once('\n')?;
        Some(format!("ws://127.0.0.1:{port}{path}"))
    };
    appears("socket of Chromium's", Duration::from_secs(30), look).await
}
