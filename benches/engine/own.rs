//! Servers that are part of this program, each in a process of its own like everybody else: the
//! program starts itself again and is told what to be.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use fencepost::{settings, threads::Threads};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    it::harness::{bound_command, spawn_bound_to_us},
    noop, plain,
};

const NOOP: &str = "--serve-noop";
const PLAIN: &str = "--serve-plain";

pub struct Process {
    pub address: String,
    child: Child,
}

impl Process {
    pub fn noop() -> Self {
        Self::start(&[NOOP])
    }

    pub fn plain(database: &str) -> Self {
        Self::start(&[PLAIN, database])
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn start(arguments: &[&str]) -> Self {
        let mut command = bound_command(std::env::current_exe().expect("this program"), None);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = spawn_bound_to_us(command).expect("it starts");
        let output = child.stdout.take().expect("its output");
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address).expect("its address");
        Self { address: address.trim().to_owned(), child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// Serves, if this process was started for that; else returns.
pub fn serve_if_asked() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        // The same threads as the program itself has.
        [NOOP] => {
            let started = Threads::start(settings::threads_by_default());
            let (runtime, threads, _others) = started.expect("threads");
            runtime.block_on(until_asked_to_end(noop::serve(threads)));
        }
        // As anybody gets who does not ask.
        [PLAIN, database] => {
            let runtime = tokio::runtime::Runtime::new();
            runtime.expect("a runtime").block_on(until_asked_to_end(plain::serve(database)));
        }
        _ => return,
    }
    std::process::exit(0);
}

/// It ends in order, so that a build which counts what it does can write that down (`training.rs`).
async fn until_asked_to_end(serving: impl Future<Output = ()>) {
    let mut asked = signal(SignalKind::terminate()).expect("signals can be heard");
    tokio::select! {
        () = serving => {}
        _ = asked.recv() => {}
    }
}
