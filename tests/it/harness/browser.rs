//! A real Chromium, driven over `WebDriver`, as somebody who looks at the page.
//!
//! A few commands of the protocol are all that is needed, and half of them are the driver's own
//! (emulation, the log of the network), so they are sent as they are.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{PATIENCE, bound_command, free_port, spawn_bound_to_us};

/// By which `WebDriver` tells an element from another value.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub const ENTER: &str = "\u{e007}";
pub const ESCAPE: &str = "\u{e00c}";
pub const TAB: &str = "\u{e004}";
pub const DOWN: &str = "\u{e015}";

/// A browser is heavy. One at a time is kind to small machines.
static ONE: Semaphore = Semaphore::const_new(1);

pub struct Browser {
    driver: Child,
    http: reqwest::Client,
    session: String,
    _profile: TempDir,
    _place: SemaphorePermit<'static>,
}

impl Browser {
    /// As large as a laptop's window.
    pub async fn start() -> Self {
        let place = ONE.acquire().await.expect("it is never closed");
        let port = free_port();
        let profile = tempfile::tempdir().expect("a directory");
        let mut command = bound_command("chromedriver", None);
        command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        // Whatever the browser keeps, it keeps there; and it ends with the driver, as one group.
        command.env("HOME", profile.path()).process_group(0);
        let driver = spawn_bound_to_us(command).expect("chromedriver: scripts/setup installs it");
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(PATIENCE * 2).build().expect("a client");
        let base = format!("http://127.0.0.1:{port}");
        let deadline = Instant::now() + PATIENCE;
        while !http.get(format!("{base}/status")).send().await.is_ok_and(|it| it.status() == 200) {
            assert!(Instant::now() < deadline, "chromedriver never answered");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let directory = format!("--user-data-dir={}", profile.path().join("profile").display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,900",
            &directory,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let mut browser = Self {
            driver,
            http,
            session: format!("{base}/session"),
            _profile: profile,
            _place: place,
        };
        let begun = browser.post("", &wanted).await;
        let id = begun["sessionId"].as_str().expect("a session");
        browser.session = format!("{base}/session/{id}");
        browser
    }

    pub async fn open(&self, url: &str) {
        self.post("/url", &json!({"url": url})).await;
    }

    /// What `script` returns.
    pub async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []})).await
    }

    /// Waits for what `condition` describes to be so.
    pub async fn until(&self, condition: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({condition})")).await != json!(true) {
            if Instant::now() > deadline {
                let page = self.run("return document.body.innerText").await;
                panic!("never so: {condition}\n{page}\n{:?}", self.complaints().await);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Presses keys, wherever the focus is.
    pub async fn press(&self, keys: &str) {
        let active = self.get("/element/active").await;
        let id = active[ELEMENT].as_str().expect("an element");
        self.post(&format!("/element/{id}/value"), &json!({"text": keys})).await;
    }

    pub async fn click(&self, selector: &str) {
        let found =
            self.post("/element", &json!({"using": "css selector", "value": selector})).await;
        let id = found[ELEMENT].as_str().expect("an element");
        self.post(&format!("/element/{id}/click"), &json!({})).await;
    }

    /// A command of the browser's own debugging protocol.
    pub async fn tell(&self, command: &str, parameters: Value) {
        let body = json!({"cmd": command, "params": parameters});
        self.post("/goog/cdp/execute", &body).await;
    }

    pub async fn size(&self, width: u32, height: u32, scale: f32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": scale,
            "mobile": width < 600});
        self.tell("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub async fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"}]);
        self.tell("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    pub async fn screenshot(&self) -> Vec<u8> {
        let image = self.get("/screenshot").await;
        BASE64_STANDARD.decode(image.as_str().expect("an image")).expect("base64")
    }

    /// What the browser's console has to complain about, violations of the policy included.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({"type": "browser"})).await;
        let entries = log.as_array().expect("a log").iter();
        entries.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Every address that a page has asked for since the last time; the browser's own do not count.
    pub async fn requests(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({"type": "performance"})).await;
        let entries = log.as_array().expect("a log").iter();
        let events = entries.filter_map(|entry| {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let event = &message["message"];
            let asked = &event["params"];
            let by_a_page = asked["documentURL"].as_str()?.starts_with("http");
            (event["method"] == "Network.requestWillBeSent" && by_a_page)
                .then(|| asked["request"]["url"].as_str().map(str::to_owned))?
        });
        events.collect()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.http.post(format!("{}{path}", self.session));
        Self::value(request.body(body.to_string()), path).await
    }

    async fn get(&self, path: &str) -> Value {
        Self::value(self.http.get(format!("{}{path}", self.session)), path).await
    }

    async fn value(request: reqwest::RequestBuilder, path: &str) -> Value {
        let answer = request.send().await.expect("the browser answers");
        let text = answer.text().await.expect("an answer");
        let mut answer: Value = serde_json::from_str(&text).expect("JSON");
        assert!(answer["value"]["error"].is_null(), "{path}: {text}");
        answer["value"].take()
    }

    pub async fn close(self) {
        let _ = self.http.delete(&self.session).send().await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser would outlive its driver, if a test fails before it is closed.
        let group = i32::try_from(self.driver.id()).expect("a process id");
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        let _ = self.driver.wait();
    }
}
