//! `fencepost run` when the lock is lost: its command is stopped, and dead before the lease has
//! ended.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::{
    harness::{
        PATIENCE,
        fencepost::Fencepost,
        http::answer,
        store::TestStore,
        supervised::{Supervised, is_alive, state_of, until_dead},
    },
    run::{lock_server, lock_state},
};

const POLITE: &str = "trap 'echo told; exit 3' TERM; i=0; echo $$; while [ $((i += 1)) -lt 2999 ]; do sleep 0.02; done";
const STUBBORN: &str =
    "trap '' TERM; i=0; echo $$; while [ $((i += 1)) -lt 29999 ]; do sleep 0.02; done";

/// Needs half of its grace of 20 seconds to say that it was told.
const SLOW: &str = "trap 'sleep 10; echo told' TERM; i=0; echo $$; while [ $((i += 1)) -lt 29999 ]; do sleep 0.02; done";

/// Takes the lock away, as an operator would who knows its token.
async fn take_away(server: &Fencepost, name: &str) {
    let token = lock_state(server, name).await["token"].as_i64().unwrap();
    let request = server.client().request(reqwest::Method::DELETE, &format!("/v1/locks/{name}"));
    assert_eq!(answer(request.header("X-Fencing-Token", token)).await.status, 204);
}

#[tokio::test]
async fn a_polite_command_has_time_to_end() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let mut job = Supervised::script(&server, &["--lock", "l", "--ttl", "12s"], POLITE);
    let child = job.pid_line();
    take_away(&server, "l").await;
    assert_eq!(job.line(), "told");
    let ended = job.end().await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.errors.contains("is lost") && ended.errors.contains("\"l\""), "{ended:?}");
    assert!(!is_alive(child));
}

#[tokio::test]
async fn a_stubborn_command_is_killed_after_its_grace() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let flags = ["--lock", "l", "--ttl", "12s", "--grace", "1s"];
    let mut job = Supervised::script(&server, &flags, STUBBORN);
    let child = job.pid_line();
    let taken = Instant::now();
    take_away(&server, "l").await;
    assert_eq!(job.end().await.code, Some(76));
    assert!(!is_alive(child));
    // It is noticed by the next renewal, after a third of the lease, and then the grace begins.
    assert!(taken.elapsed() >= Duration::from_secs(1), "{:?}", taken.elapsed());
}

#[tokio::test]
async fn what_the_command_has_started_is_stopped_with_it() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let flags = ["--lock", "l", "--ttl", "6s", "--grace", "100ms"];
    // The command itself goes at once; its own child does not want to.
    let script = format!("sh -c '{}' & wait", STUBBORN.replace('\'', "\""));
    let mut job = Supervised::script(&server, &flags, &script);
    let grandchild = job.pid_line();
    take_away(&server, "l").await;
    assert_eq!(job.end().await.code, Some(76));
    until_dead(grandchild).await;
}

/// Stops the server, and expects the command to be dead by the time `run` ends. That this is before the lease can have
/// ended is for `lease.rs`: seen from here, a busy machine would look the same as a late kill.
async fn without_a_server(signal: Signal) {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let mut job = Supervised::script(&server, &["--lock", "l", "--ttl", "12s"], STUBBORN);
    let child = job.pid_line();
    // Some time before the first renewal, so that the lease has begun earlier than what we measure.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(is_alive(child));
    server.signal(signal);
    let ended = job.end().await;
    assert!(!is_alive(child));
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.errors.contains("could not be renewed in time: "), "{ended:?}");
}

#[tokio::test]
async fn a_server_that_is_gone_cannot_renew() {
    without_a_server(Signal::SIGKILL).await;
}

#[tokio::test]
async fn a_server_that_is_frozen_cannot_renew() {
    without_a_server(Signal::SIGSTOP).await;
}

#[tokio::test]
async fn a_server_that_comes_back_in_time_is_enough() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let flags = ["--lock", "l", "--ttl", "30s", "--grace", "200ms"];
    let mut job = Supervised::script(&server, &flags, "echo up; sleep 31");
    job.line();
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.signal(Signal::SIGSTOP);
    // For longer than the first attempt to renew, after ten seconds, can take; and for much less than the lease.
    tokio::time::sleep(Duration::from_secs(14)).await;
    server.signal(Signal::SIGCONT);
    let ended = job.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// Frozen, it can do nothing, and the lock must pass on. Awake again, it must first of all look at
/// the clock.
#[tokio::test]
async fn a_keeper_that_was_frozen_past_its_lease_stops_its_command_at_once() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let flags = ["--lock", "l", "--ttl", "40s", "--grace", "20s"];
    let mut first = Supervised::script(&server, &flags, SLOW);
    let child = first.pid_line();
    first.signal(Signal::SIGSTOP);
    let flags = ["--lock", "l", "--ttl", "10m", "--wait", "10m"];
    let mut second = Supervised::script(&server, &flags, "echo up; exec sleep 600");
    assert_eq!(second.line(), "up");
    assert_eq!(state_of(first.pid()), Some('T'));
    assert!(is_alive(child), "which is what fencing is for");

    first.signal(Signal::SIGCONT);
    let ended = first.end().await;
    assert_eq!(first.line_within(PATIENCE), None, "it was killed without its grace");
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(!is_alive(child));

    second.signal(Signal::SIGTERM);
    assert_eq!(second.end().await.code, Some(143), "its own lock was left alone");
}

/// Together with its command, as by Ctrl-Z or a suspended machine.
#[tokio::test]
async fn both_frozen_past_the_lease_the_command_does_not_go_on() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let script = "i=0; echo $$; while [ $((i += 1)) -lt 999 ]; do sleep 0.02; echo on; done";
    let mut job = Supervised::script(&server, &["--lock", "l", "--ttl", "6s"], script);
    let child = job.pid_line();
    job.signal(Signal::SIGTSTP);
    let flags = ["--lock", "l", "--ttl", "10m", "--wait", "10m"];
    let successor = Supervised::script(&server, &flags, "echo up; exec sleep 60");
    successor.line();
    // D: stopped while it was starting a program of its own.
    assert!(matches!(state_of(child), Some('T' | 'D')));
    job.signal(Signal::SIGCONT);
    assert_eq!(job.end().await.code, Some(76));
    assert!(!is_alive(child));
}

#[tokio::test]
async fn a_command_that_ends_after_its_lock_was_lost_is_told_so() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let place = tempfile::tempdir().unwrap();
    let end = place.path().join("end");
    let script = format!("echo up; until [ -e {} ]; do sleep 0.02; done", end.display());
    let mut job = Supervised::script(&server, &["--lock", "l", "--ttl", "1m"], &script);
    job.line();
    take_away(&server, "l").await;
    std::fs::write(&end, "").unwrap();
    let ended = job.end().await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.errors.contains("was lost before the command ended"), "{ended:?}");
}

#[tokio::test]
async fn a_lock_that_cannot_be_given_back_does_not_change_the_status() {
    let store = TestStore::sqlite();
    let mut server = lock_server(&store).await;
    let script = "echo up; sleep 1; exit 4";
    let mut job = Supervised::script(&server, &["--lock", "l", "--ttl", "30s"], script);
    job.line();
    server.signal(Signal::SIGKILL);
    server.wait();
    let ended = job.end().await;
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.errors.contains("could not be given back"), "{ended:?}");
}
