//! Servers that are part of this program, each in a process of its own like everybody else: the
//! program starts itself again and is told what to be.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use fencepost::{settings, threads::Threads};

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
        let _ = self.child.kill();
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
            runtime.block_on(noop::serve(threads));
        }
        // As anybody gets who does not ask.
        [PLAIN, database] => {
            let runtime = tokio::runtime::Runtime::new();
            runtime.expect("a runtime").block_on(plain::serve(database));
        }
        _ => return,
    }
    std::process::exit(0);
}
