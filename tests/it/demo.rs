//! `fencepost demo`: the story is told, it is true, and nothing is left of it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::harness::{
    fencepost::{BINARY, run, run_with},
    supervised::until_dead,
};

fn pid_of(event: &Value) -> Pid {
    Pid::from_raw(i32::try_from(event["pid"].as_i64().expect("a process id")).unwrap())
}

#[test]
fn both_acts_are_told() {
    let output = run(&["demo"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stdout).unwrap();
    let mut rest = told.as_str();
    for passage in [
        "Act 1: a lock without fencing",
        "A is frozen (SIGSTOP)",
        "writes 70: the file takes it",
        "The stock is 70. B's sale of 50 is lost",
        "Act 2: the same with fencing",
        "A is frozen (SIGSTOP)",
        "writes 70: refused, 409 stale-token",
        "B's sale stands",
        "The stock is 20. Nothing is lost.",
        "fencepost run",
    ] {
        let (_, after) = rest.split_once(passage).unwrap_or_else(|| panic!("{passage}:\n{told}"));
        rest = after;
    }
    assert!(!told.contains('\x1b'), "no colours in a pipe");
}

#[tokio::test]
async fn programs_get_an_object_for_each_event_and_no_process_is_left() {
    // A user's own settings must not change the story.
    let output = run_with(&["demo", "-o", "json"], |command| {
        command.env("FENCEPOST_AUTHORITY", "none").env("FENCEPOST_TOKEN", "99");
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> =
        told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for pair in events.windows(2) {
        assert!(pair[0]["at_ms"].as_u64().unwrap() <= pair[1]["at_ms"].as_u64().unwrap());
    }
    let tokens: Vec<i64> = events
        .iter()
        .filter(|event| event["event"] == "granted")
        .map(|event| event["token"].as_i64().unwrap())
        .collect();
    assert!(tokens.len() == 5 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let refused = events.iter().find(|event| event["event"] == "refused").expect("a refusal");
    assert_eq!((&refused["who"], &refused["status"]), (&"A".into(), &409.into()));
    let pids: Vec<Pid> =
        events.iter().filter(|event| event["pid"].is_number()).map(pid_of).collect();
    assert!(pids.len() >= 3, "the server and A, twice");
    for pid in pids {
        until_dead(pid).await;
    }
}

#[test]
fn a_terminal_gets_colours_unless_they_are_not_wanted() {
    let on_a_terminal = |no_color: &str| {
        let output = Command::new("script")
            .args(["--quiet", "--return", "--command", &format!("{BINARY} demo"), "/dev/null"])
            .env("NO_COLOR", no_color)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(on_a_terminal("").contains("\x1b["));
    assert!(!on_a_terminal("1").contains('\x1b'));
}

/// Runs the demo up to the moment when A is frozen, in a temporary directory of its own.
fn until_frozen(place: &std::path::Path) -> (Child, Vec<Pid>) {
    let mut demo = Command::new(BINARY)
        .args(["demo", "-o", "json"])
        .env("TMPDIR", place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
    let events = lines.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    let mut pids = Vec::new();
    for event in events.filter(|event| event["pid"].is_number()) {
        pids.push(pid_of(&event));
        if event["event"] == "frozen" {
            break;
        }
    }
    (demo, pids)
}

#[tokio::test]
async fn an_interrupted_story_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let (mut demo, pids) = until_frozen(place.path());
    assert_eq!(pids.len(), 2, "the server and A");
    kill(Pid::from_raw(i32::try_from(demo.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    for pid in pids {
        until_dead(pid).await;
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "its directory is gone");
}

#[tokio::test]
async fn not_even_a_killed_story_leaves_a_frozen_process() {
    let place = tempfile::tempdir().unwrap();
    let (mut demo, pids) = until_frozen(place.path());
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert_eq!(pids.len(), 2, "the server and A");
    for pid in pids {
        until_dead(pid).await;
    }
}
