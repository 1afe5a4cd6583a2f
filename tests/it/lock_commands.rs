//! `lock`, `renew`, `unlock` and `locks` against a real server: what they print, and how they end.

use std::process::{Command, Output};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    harness::{
        eventually,
        fencepost::{BINARY, Fencepost, run, run_with},
        store::TestStore,
        supervised::Supervised,
    },
    run::{lock_server, lock_state},
};

fn on(server: &Fencepost, arguments: &[&str]) -> Output {
    run_with(arguments, |command| {
        command.env("FENCEPOST_URL", format!("http://{}", server.address));
    })
}

#[track_caller]
fn printed(server: &Fencepost, arguments: &[&str]) -> String {
    let output = on(server, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn document(server: &Fencepost, arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(server, arguments)).expect("JSON")
}

/// How a command fails: its exit code, and the problem.
#[track_caller]
fn problem(server: &Fencepost, arguments: &[&str]) -> (Option<i32>, String) {
    let output = on(server, arguments);
    let problem: Value = serde_json::from_slice(&output.stderr).expect("a problem document");
    (output.status.code(), problem["type"].as_str().unwrap().replace("urn:fencepost:", ""))
}

#[tokio::test]
async fn a_lock_is_taken_kept_and_given_back() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let grant = document(&server, &["lock", "orders", "--ttl", "1m", "--owner", "me"]);
    let token = grant["token"].as_i64().unwrap().to_string();
    assert_eq!(
        (&grant["name"], &grant["owner"], &grant["ttl_ms"]),
        (&json!("orders"), &json!("me"), &json!(60_000))
    );
    assert_eq!(problem(&server, &["lock", "orders"]), (Some(75), "lock-held".into()));

    let renewed = document(&server, &["renew", "orders", "--token", &token]);
    assert_eq!(renewed, json!({"name": "orders", "token": grant["token"], "ttl_ms": 60_000}));
    let released = document(&server, &["unlock", "orders", "--token", &token]);
    assert_eq!(released, json!({"name": "orders", "token": grant["token"]}));

    for command in ["renew", "unlock"] {
        let late = problem(&server, &[command, "orders", "--token", &token]);
        assert_eq!(late, (Some(76), "lock-lost".into()));
    }
}

#[tokio::test]
async fn a_script_gets_the_token_and_no_more() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let script = format!(
        "set -e
        TOKEN=$({BINARY} lock orders -o token)
        {BINARY} put --token $TOKEN orders paid >&2
        {BINARY} unlock orders --token $TOKEN >&2
        echo $TOKEN"
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("FENCEPOST_URL", format!("http://{}", server.address))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let token: i64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(server.client().mark("orders").await.0, token);
    assert_eq!(lock_state(&server, "orders").await["held"], false);
}

#[tokio::test]
async fn the_locks_that_are_held_are_listed() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    assert_eq!(document(&server, &["locks"]), json!({"locks": []}));
    for name in ["jobs/a", "jobs/b", "other"] {
        printed(&server, &["lock", name, "--owner", "me", "--ttl", "10m"]);
    }
    let names = |arguments: &[&str]| -> Vec<Value> {
        let listed = document(&server, arguments);
        listed["locks"].as_array().unwrap().iter().map(|lock| lock["name"].clone()).collect()
    };
    assert_eq!(names(&["locks"]), ["jobs/a", "jobs/b", "other"]);
    assert_eq!(names(&["locks", "--prefix", "jobs/"]), ["jobs/a", "jobs/b"]);
    let table = printed(&server, &["locks", "-o", "table"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "TOKEN", "OWNER", "TTL_MS"]);
    assert_eq!((rows.len(), rows[1][0], rows[1][2]), (4, "jobs/a", "me"));

    let one = document(&server, &["locks", "jobs/a"]);
    assert_eq!(
        (&one["held"], &one["owner"], &one["waiters"]),
        (&json!(true), &json!("me"), &json!(0))
    );
    assert_eq!(document(&server, &["locks", "nobody"])["held"], false);
}

#[tokio::test]
async fn the_owner_is_found_by_default() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let owner = document(&server, &["lock", "l"])["owner"].as_str().unwrap().to_owned();
    let (who, process) = owner.rsplit_once(':').unwrap();
    assert!(who.contains('@') && process.parse::<u32>().is_ok(), "{owner}");
}

#[tokio::test]
async fn whoever_waits_gets_it_next() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let first = printed(&server, &["lock", "l", "-o", "token"]);
    let mut command = Command::new(BINARY);
    command.args(["lock", "l", "--wait", "10m", "-o", "token"]);
    let mut waiter = Supervised::spawn(command, &server.address);
    eventually("it waits", || async { lock_state(&server, "l").await["waiters"] == 1 }).await;
    printed(&server, &["unlock", "l", "--token", first.trim()]);
    let second: i64 = waiter.line().parse().unwrap();
    assert!(second > first.trim().parse().unwrap());
    assert_eq!(waiter.end().await.code, Some(0));
}

#[tokio::test]
async fn a_lock_is_held_for_as_long_as_the_command_runs() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let hold = || {
        let mut command = Command::new(BINARY);
        command.args(["lock", "l", "--ttl", "15s", "--hold", "-o", "token"]);
        Supervised::spawn(command, &server.address)
    };
    let mut holder = hold();
    let token: i64 = holder.line().parse().unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(16)).await;
    assert_eq!(lock_state(&server, "l").await["token"], token, "renewed by the server");
    holder.signal(Signal::SIGKILL);
    assert_eq!(holder.end().await.code, None);
    eventually("it is free", || async { lock_state(&server, "l").await["held"] == false }).await;

    let mut holder = hold();
    let token = holder.line();
    printed(&server, &["unlock", "l", "--token", &token]);
    let ended = holder.end().await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.errors.contains("lost"), "{ended:?}");
}

#[tokio::test]
async fn whoever_watches_is_told() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let mut command = Command::new(BINARY);
    command.args(["locks", "leader", "--watch"]);
    let watcher = Supervised::spawn(command, &server.address);
    let event = || -> Value { serde_json::from_str(&watcher.line()).expect("JSON") };
    assert_eq!(event(), json!({"event": "released", "name": "leader", "token": 0}));
    let token = printed(&server, &["lock", "leader", "--owner", "me", "-o", "token"]);
    let granted = event();
    let number: i64 = token.trim().parse().unwrap();
    assert_eq!(
        (&granted["event"], &granted["owner"], &granted["token"]),
        (&json!("granted"), &json!("me"), &json!(number))
    );
    printed(&server, &["unlock", "leader", "--token", token.trim()]);
    assert_eq!(event(), json!({"event": "released", "name": "leader", "token": number}));
}

#[tokio::test]
async fn what_is_wrong_is_told_apart() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    assert_eq!(problem(&server, &["lock", "l", "--ttl", "2h"]).0, Some(64));
    assert_eq!(problem(&server, &["lock", "l", "--wait", "1h"]).0, Some(64));
    assert_eq!(
        problem(&server, &["unlock", "l", "--token", "x"]),
        (Some(64), "invalid-token".into())
    );
    for arguments in [
        &["lock"][..],
        &["unlock", "l"],
        &["renew", "l"],
        &["locks", "--watch"],
        &["locks", "l", "--prefix", "x"],
    ] {
        assert_eq!(run(arguments).status.code(), Some(64), "{arguments:?}");
    }
    for arguments in [&["lock", "l"][..], &["locks"], &["renew", "l", "--token", "1"]] {
        let away = run(&[arguments, &["--url", "http://127.0.0.1:1"]].concat());
        assert_eq!(away.status.code(), Some(69), "{arguments:?}");
    }
    let without_locks = Fencepost::with(&TestStore::sqlite(), &[]).await;
    let output = on(&without_locks, &["lock", "l"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--authority"));
}
