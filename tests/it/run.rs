//! `fencepost run`: a program under a lock, as long as all is well.

use std::{process::Stdio, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{
    eventually,
    fencepost::{BINARY, Fencepost, run, run_with},
    free_port,
    http::answer,
    store::TestStore,
    supervised::{Supervised, is_alive, until_dead, with_all_signals},
};

pub async fn lock_server(store: &TestStore) -> Fencepost {
    Fencepost::with(store, &["--authority", "store"]).await
}

pub async fn lock_state(server: &Fencepost, name: &str) -> Value {
    answer(server.client().get(&format!("/v1/locks/{name}"))).await.json()
}

fn run_on(server: &Fencepost, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run_with(&[&["run"], arguments].concat(), |command| {
        command.env("FENCEPOST_URL", format!("http://{}", server.address));
    });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn the_command_gets_the_lock_and_keeps_its_own_status() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let script = "echo $FENCEPOST_LOCK $FENCEPOST_URL $FENCEPOST_TOKEN; exit 7";
    let (code, printed, errors) = run_on(&server, &["--lock", "jobs/a b", "sh", "-c", script]);
    assert_eq!((code, errors.as_str()), (Some(7), ""));
    let url = format!("http://{}", server.address);
    let token = printed.trim().strip_prefix(&format!("jobs/a b {url} ")).unwrap().to_owned();
    assert_eq!(server.client().mark("jobs%2Fa%20b").await.0.to_string(), token, "it was claimed");
    assert_eq!(lock_state(&server, "jobs%2Fa%20b").await["held"], false, "it was given back");

    assert_eq!(run_on(&server, &["--lock", "l", "--", "true"]).0, Some(0));
    assert_eq!(run_on(&server, &["--lock", "l", "--", "sh", "-c", "kill -9 $$"]).0, Some(137));
    assert_eq!(run_on(&server, &["--lock", "l", "--", "sh", "-c", "kill -TERM $$"]).0, Some(143));
}

#[tokio::test]
async fn the_command_writes_under_its_token_with_no_more_than_its_environment() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let script = format!("{BINARY} put --scope orders orders/42 paid");
    let (code, printed, errors) = run_on(&server, &["--lock", "orders", "--", "sh", "-c", &script]);
    assert_eq!(code, Some(0), "{printed}{errors}");
    assert_eq!(answer(server.client().read("orders/42")).await.text(), "paid");
}

#[tokio::test]
async fn a_command_that_cannot_be_run_gives_the_lock_back() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    for (command, code) in [("no-such-command", 127), ("/no/such/file", 127), ("/etc/passwd", 126)]
    {
        let (status, _, errors) = run_on(&server, &["--lock", "l", "--", command]);
        assert_eq!(status, Some(code));
        assert!(errors.contains(command), "{errors}");
        assert_eq!(lock_state(&server, "l").await["held"], false);
    }
}

#[tokio::test]
async fn input_and_output_are_the_commands_own_and_nothing_is_inherited_but_that() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let pipeline = format!(
        "printf '1\\n2' | {BINARY} run --lock l -- cat; \
         {BINARY} run --lock l -- grep -E 'SigBlk|SigIgn' /proc/self/status"
    );
    let output = with_all_signals()
        .args(["sh", "-c", &pipeline])
        .env("FENCEPOST_URL", format!("http://{}", server.address))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let (read, masks) = printed.split_once("SigBlk:").unwrap();
    assert_eq!(read, "1\n2");
    let ignored = masks.split_once("SigIgn:").unwrap().1.trim();
    // The highest two belong to the C library.
    let ignored = u64::from_str_radix(ignored, 16).unwrap() & 0x7fff_ffff;
    assert_eq!((masks.lines().next().unwrap().trim(), ignored), ("0000000000000000", 0));
}

#[tokio::test]
async fn the_lock_is_renewed_for_as_long_as_the_command_runs() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let flags = ["--lock", "l", "--ttl", "15s", "--owner", "me"];
    let mut job = Supervised::script(&server, &flags, "echo $FENCEPOST_TOKEN; sleep 16");
    let token: i64 = job.line().parse().unwrap();
    while job.is_running() {
        let state = lock_state(&server, "l").await;
        if state["held"] == false {
            break;
        }
        assert_eq!((&state["token"], &state["owner"]), (&token.into(), &"me".into()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ended = job.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(lock_state(&server, "l").await["held"], false);
}

#[tokio::test]
async fn a_lock_that_is_not_had_in_time_is_75() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let holder = Supervised::script(&server, &["--lock", "l"], "echo up; sleep 60");
    holder.line();
    assert_eq!(run_on(&server, &["--lock", "l", "--", "echo", "x"]).0, Some(75));
    let started = std::time::Instant::now();
    let (code, printed, _) =
        run_on(&server, &["--lock", "l", "--wait", "700ms", "--", "echo", "x"]);
    assert_eq!((code, printed.as_str()), (Some(75), ""));
    assert!(started.elapsed() > Duration::from_millis(700));
}

#[tokio::test]
async fn whoever_waits_gets_the_lock_with_its_whole_time() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let mut first = Supervised::script(&server, &["--lock", "l"], "echo up; sleep 11");
    first.line();
    // It waits for longer than its own lease will last.
    let flags = ["--lock", "l", "--wait", "10m", "--ttl", "10s"];
    let mut second = Supervised::script(&server, &flags, "echo up; sleep 1");
    second.line();
    assert_eq!(first.end().await.code, Some(0));
    let ended = second.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn two_never_run_at_the_same_time() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let place = tempfile::tempdir().unwrap();
    let busy = place.path().join("busy").display().to_string();
    let script = format!("mkdir {busy} || exit 9; sleep 0.05; rmdir {busy}");
    let flags = ["--lock", "l", "--ttl", "1m", "--wait", "10m"];
    let mut jobs: Vec<_> = (0..8).map(|_| Supervised::script(&server, &flags, &script)).collect();
    for job in &mut jobs {
        let ended = job.end().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[tokio::test]
async fn a_server_that_comes_late_is_waited_for_as_well() {
    let store = TestStore::sqlite();
    let address = format!("127.0.0.1:{}", free_port());
    let arguments = ["--lock", "l", "--wait", "10m", "--", "echo", "done"];
    let mut job = Supervised::start(&address, &arguments);
    let waiting = job.error_line();
    assert!(waiting.starts_with("waiting: "), "{waiting}");
    let flags = ["--authority", "store", "--listen", &address];
    let _server = Fencepost::with(&store, &flags).await;
    let ended = job.end().await;
    assert_eq!((ended.code, ended.errors.as_str()), (Some(0), ""), "said once");
    assert_eq!(job.line(), "done");
}

#[tokio::test]
async fn a_command_does_not_outlive_its_keeper_and_the_lock_passes_on() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let flags = ["--lock", "l", "--ttl", "10s"];
    let mut job = Supervised::script(&server, &flags, "trap '' TERM; echo $$; exec sleep 60");
    let child = job.pid_line();
    assert!(is_alive(child));
    job.signal(Signal::SIGKILL);
    until_dead(child).await;
    assert_eq!(job.end().await.code, None);
    eventually("the lock passes on", || async { lock_state(&server, "l").await["held"] == false })
        .await;
}

#[test]
fn a_wrong_use_is_told_before_anything_happens() {
    let away = ["--url", "http://127.0.0.1:1"];
    for (arguments, hint) in [
        (&["--lock", "l"][..], "CMD"),
        (&["--", "true"], "--lock"),
        (&["--lock", "l", "--ttl", "10s", "--grace", "6s", "--", "true"], "half of --ttl"),
        (&["--lock", "l", "--ttl", "0s", "--", "true"], "--ttl"),
    ] {
        let output = run(&[&["run"], &away[..], arguments].concat());
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(hint), "{errors}");
    }
    let output = run(&[&["run", "--lock", "l"], &away[..], &["true"]].concat());
    assert_eq!(output.status.code(), Some(69));
}

#[tokio::test]
async fn what_the_server_does_not_allow_is_a_wrong_use() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    for flags in [["--ttl", "2h"], ["--wait", "11m"], ["--ttl", "10ms"]] {
        let (code, _, errors) =
            run_on(&server, &[&["--lock", "l"], &flags[..], &["--", "true"]].concat());
        assert_eq!(code, Some(64), "{errors}");
    }
}
