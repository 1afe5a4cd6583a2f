//! `fencepost run` and signals: what is done to it is done to its command, once.

use std::{
    io::{Read, Write},
    process::Stdio,
    time::Duration,
};

use nix::sys::signal::Signal;

use crate::{
    harness::{
        PATIENCE, eventually,
        fencepost::BINARY,
        store::TestStore,
        supervised::{Supervised, is_alive, state_of, until_dead, with_all_signals},
    },
    run::{lock_server, lock_state},
};

#[tokio::test]
async fn signals_reach_the_command() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let script = "for s in HUP INT QUIT TERM USR1 USR2 WINCH; do trap \"echo $s\" $s; done
                  trap 'exit 9' CONT; i=0; echo up; while [ $((i += 1)) -lt 600 ]; do sleep 0.05; done";
    let mut job = Supervised::script(&server, &["--lock", "l"], script);
    assert_eq!(job.line(), "up");
    for signal in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH"] {
        job.signal(format!("SIG{signal}").parse().unwrap());
        assert_eq!(job.line(), signal);
    }
    job.signal(Signal::SIGCONT);
    assert_eq!(job.end().await.code, Some(9), "its own status is kept");
    assert_eq!(lock_state(&server, "l").await["held"], false);
}

#[tokio::test]
async fn a_signal_that_ends_the_command_is_its_status() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGUSR1, 138)] {
        let mut job = Supervised::script(&server, &["--lock", "l"], "echo up; exec sleep 60");
        job.line();
        job.signal(signal);
        let ended = job.end().await;
        assert_eq!((ended.code, ended.errors.as_str()), (Some(code), ""));
        assert_eq!(lock_state(&server, "l").await["held"], false, "it was given back");
    }
}

/// Else it would go on beside the next holder.
#[tokio::test]
async fn what_the_command_has_started_is_ended_with_it() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let script = "sh -c 'echo $$; exec sleep 60' & wait";
    let mut job = Supervised::script(&server, &["--lock", "l"], script);
    let grandchild = job.pid_line();
    job.signal(Signal::SIGTERM);
    assert_eq!(job.end().await.code, Some(143));
    until_dead(grandchild).await;
}

#[tokio::test]
async fn whoever_is_signalled_while_waiting_gives_up_and_leaves_no_trace() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let mut holder = Supervised::script(&server, &["--lock", "l"], "echo up; exec sleep 60");
    holder.line();
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let flags = ["--lock", "l", "--wait", "10m"];
        let mut waiter = Supervised::script(&server, &flags, "echo never");
        eventually("it waits", || async { lock_state(&server, "l").await["waiters"] == 1 }).await;
        // These are no reason to give up.
        waiter.signal(Signal::SIGWINCH);
        waiter.signal(Signal::SIGCONT);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(waiter.is_running());
        waiter.signal(signal);
        assert_eq!(waiter.end().await.code, Some(code));
        assert_eq!(waiter.line_within(Duration::from_millis(10)), None);
        eventually("it has left", || async { lock_state(&server, "l").await["waiters"] == 0 })
            .await;
    }
    holder.signal(Signal::SIGTERM);
    holder.end().await;
    assert_eq!(lock_state(&server, "l").await["held"], false);
}

#[tokio::test]
async fn a_signal_that_was_ignored_from_the_start_stays_so() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let mut command = with_all_signals();
    let script =
        format!("trap '' HUP; exec {BINARY} run --lock l -- sh -c 'echo $$; exec sleep 60'");
    command.args(["sh", "-c", &script]);
    let mut job = Supervised::spawn(command, &server.address);
    let child = job.pid_line();
    job.signal(Signal::SIGHUP);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(job.is_running() && is_alive(child));
    job.signal(Signal::SIGTERM);
    assert_eq!(job.end().await.code, Some(143));
}

#[tokio::test]
async fn both_stop_and_both_go_on() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let mut job = Supervised::script(&server, &["--lock", "l"], "echo $$; exec sleep 60");
    let (keeper, child) = (job.pid(), job.pid_line());
    job.signal(Signal::SIGTSTP);
    let both_are = |state| {
        move || async move { state_of(keeper) == Some(state) && state_of(child) == Some(state) }
    };
    eventually("both are stopped", both_are('T')).await;
    job.signal(Signal::SIGCONT);
    eventually("both go on", both_are('S')).await;
    job.signal(Signal::SIGTERM);
    assert_eq!(job.end().await.code, Some(143));
}

/// The terminal sends it to the whole foreground group; it must not be passed on once more.
#[tokio::test]
async fn a_key_on_the_terminal_is_heard_once() {
    let store = TestStore::sqlite();
    let server = lock_server(&store).await;
    let script = "n=0; trap \"n=\\$((n+1))\" INT; echo up; \
                  while [ $n = 0 ]; do sleep 0.05; done; sleep 0.3; echo heard $n; \
                  read answer; echo answer $answer";
    let url = format!("http://{}", server.address);
    // In the shell's place: a shell that waited for it would hear the key too, and end by it.
    let command = format!("exec {BINARY} run --url {url} --lock l -- sh -c '{script}'");
    // Without its answer it would wait for ever, and this test with it.
    let patience = PATIENCE.as_secs().to_string();
    let mut terminal = with_all_signals()
        .args(["timeout", "--foreground", "--signal", "KILL", &patience])
        .args(["script", "--quiet", "--return", "--command", &command, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
    let shown = tokio::task::spawn_blocking(move || {
        let mut shown = String::new();
        let mut wait_for = |text: &str| {
            let mut bytes = [0; 256];
            while !shown.contains(text) {
                let count = screen.read(&mut bytes).unwrap();
                assert!(count > 0, "{shown}");
                shown += &String::from_utf8_lossy(&bytes[..count]);
            }
        };
        wait_for("up");
        keys.write_all(b"\x03").unwrap();
        // With the end of its line: the terminal's echo of the next keys must not come in between.
        wait_for("heard 1\r\n");
        // It can also read from there.
        keys.write_all(b"yes\n").unwrap();
        // To the end: whoever writes to a screen that is gone is killed by SIGPIPE.
        screen.read_to_string(&mut shown).unwrap();
        shown
    });
    let shown = shown.await.unwrap();
    assert!(shown.contains("answer yes\r\n"), "{shown}");
    let ended = terminal.wait().unwrap();
    assert!(ended.success(), "{ended}: {shown}");
}
