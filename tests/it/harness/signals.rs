//! Signals to processes under test.

use std::{fs, thread, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Sends it. A process that is to stop has done so when this returns: one of its threads has to be
/// woken first, and on a busy machine the others go on until then.
pub fn send(pid: Pid, signal: Signal) {
    kill(pid, signal).expect("the process is there");
    while signal == Signal::SIGSTOP && !has_stopped(pid) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn has_stopped(pid: Pid) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // One that has just ended runs no more either.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't', 'Z', 'X']))
    })
}
