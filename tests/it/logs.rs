//! What a client chooses must not be able to forge a line of the log, or to steer a terminal.

use std::process::Stdio;

use serde_json::Value;
use tokio::net::TcpStream;

use crate::harness::{
    bound_command, eventually,
    fencepost::{BINARY, Fencepost},
    free_port,
    http::{Client, answer, send},
    spawn_bound_to_us,
    store::TestStore,
};

const EVIL: &str = "/v1/resources/a%0D%0A%1B%5B31mforged";
const EVIL_KEY: &str = "a\r\n\u{1b}[31mforged";

/// Gets a write of the key refused, which is logged.
async fn provoke(address: &str) {
    let written = send(address, "PUT", EVIL, &["X-Fencing-Token: 5"], "data").await;
    assert_eq!(written.json()["key"], EVIL_KEY);
    let refused = send(address, "PUT", EVIL, &["X-Fencing-Token: 4"], "data").await;
    assert_eq!(refused.json()["key"], EVIL_KEY);
    assert_eq!(answer(Client::new(address).get(EVIL)).await.text(), "data");
}

#[tokio::test]
async fn control_characters_in_a_key_are_escaped_in_a_json_log() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--log", "debug"]).await;
    provoke(&server.address).await;
    eventually("the refusal is logged", || async { server.log().contains("a write was refused") })
        .await;
    let mut keys = Vec::new();
    for line in server.log().lines() {
        assert!(!line.contains(char::is_control), "{line:?}");
        let entry: Value = serde_json::from_str(line).expect("each line is an entry");
        keys.extend(entry["key"].as_str().map(str::to_owned));
    }
    assert_eq!(keys, [format!("{EVIL_KEY:?}")]);
}

#[tokio::test]
async fn control_characters_in_a_key_are_escaped_in_a_text_log() {
    let store = TestStore::sqlite();
    let log = tempfile::NamedTempFile::new().expect("a log file");
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = bound_command(BINARY, None);
    command
        .args(["serve", "--store", &store.url, "--authority", "none", "--listen", &address])
        .args(["--admin-listen", "127.0.0.1:0", "--log", "debug", "--log-format", "text"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.reopen().expect("the log file"));
    let mut server = spawn_bound_to_us(command).expect("fencepost starts");
    let text = || std::fs::read_to_string(log.path()).expect("a log in UTF-8");

    eventually("it is ready", || async {
        text().contains("is ready") && TcpStream::connect(&address).await.is_ok()
    })
    .await;
    provoke(&address).await;
    eventually("the refusal is logged", || async { text().contains("forged") }).await;
    server.kill().expect("it runs");
    server.wait().expect("it ends");

    assert!(text().contains(&format!("{EVIL_KEY:?}")), "{}", text());
    assert!(!text().replace('\n', "").contains(char::is_control), "{:?}", text());
    assert!(text().lines().all(|line| !line.starts_with("forged")), "{}", text());
}
