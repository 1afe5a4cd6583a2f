//! What a client chooses must not be able to forge a line of the log, or to steer a terminal; and values are
//! plain: not quoted twice, and not as Rust would print them.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::harness::{
    authority::on_each_authority,
    bound_command, eventually,
    fencepost::{BINARY, Fencepost, run},
    free_port,
    http::{Client, answer, send},
    spawn_bound_to_us,
    store::TestStore,
};

const LONG: Duration = Duration::from_mins(5);

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
    assert_eq!(keys, [EVIL_KEY]);
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

/// Quoted twice, or as `{:?}` prints a struct or an enum.
fn is_rust(value: &str) -> bool {
    let quoted = value.len() > 1 && value.starts_with('"') && value.ends_with('"');
    let of_struct = value.split_once(" { ").is_some_and(|(name, rest)| {
        name.ends_with(char::is_alphanumeric) && rest.contains(": ") && rest.contains('}')
    });
    let of_enum = ["Some(", "Ok(", "Err(", "Away(", "Token(", "Key("];
    quoted || of_struct || of_enum.iter().any(|name| value.contains(name))
}

/// Every field of every line that this program wrote itself.
fn check_plain(log: &str) {
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).expect("each line is an entry");
        for (name, value) in entry.as_object().expect("an object") {
            assert!(!value.as_str().is_some_and(is_rust), "{name}: {line}");
        }
    }
}

fn says(log: &str, message: &str) -> bool {
    log.lines().any(|line| line.contains(message))
}

on_each_authority! {
    async fn what_happens_to_writes_and_locks_is_logged_in_plain_values(authority: TestAuthority) {
        let server = authority.fencepost_with(&["--log", "info,fencepost=debug"]).await;
        let client = server.client();
        let held = client.lock("invoices/9", LONG).await;
        assert_eq!(answer(client.put("invoices/9", held, "1")).await.status, 201);
        assert_eq!(answer(client.release("invoices/9", held)).await.status, 204);
        let next = client.lock("invoices/9", LONG).await;
        let late = client.put("invoices/9", held, "3").header("X-Fencing-Client", "billing \"7\"");
        assert_eq!(answer(late).await.problem(), "stale-token");
        eventually("the refusal is logged", || async { says(&server.log(), "a write was refused") })
            .await;
        let log = server.log();
        let refused = log.lines().find(|line| line.contains("stale-token")).expect("a refusal");
        let refused: Value = serde_json::from_str(refused).expect("an entry");
        assert_eq!((&refused["key"], &refused["client"]), (&json!("invoices/9"), &json!("billing \"7\"")));
        assert_eq!((&refused["token"], &refused["mark"]), (&json!(held), &json!(next)));

        // A lock that is held by a connection is lost when its token becomes stale.
        let holding = client.hold("streamed", &json!({"ttl_ms": 3000})).await;
        let flag = authority.flag();
        let raise = ["floor", "raise", "--above-all", "--authority", &flag, "--store"];
        let owner = authority.store.url.replace("postgres@", "fencepost_owner@");
        let raised = run(&[&raise[..], &[&owner]].concat());
        assert!(raised.status.success(), "{}", String::from_utf8_lossy(&raised.stderr));
        if authority.etcd.is_some() {
            eventually("the epoch moves on", || async { says(&server.log(), "a new epoch begins") })
                .await;
        }
        eventually("the lock is lost", || async { says(&server.log(), "a lock was lost") }).await;
        drop(holding);
        check_plain(&server.log());
    }
}

/// What no test provokes is not logged like that either.
#[test]
fn no_line_of_the_log_is_written_with_debug_output() {
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let mut calls = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("text");
            for level in ["error", "warn", "info", "debug", "trace"] {
                for call in text.split(&format!("tracing::{level}!(")).skip(1) {
                    let call = call.split(");").next().expect("its end");
                    calls += 1;
                    let debug = ["(?", " ?", ":?}", "field::debug"];
                    let found =
                        call.starts_with('?') || debug.iter().any(|sign| call.contains(sign));
                    assert!(!found, "{}: tracing::{level}!({call});", path.display());
                }
            }
        }
    }
    assert!(calls > 40, "only {calls} calls were found");
}
