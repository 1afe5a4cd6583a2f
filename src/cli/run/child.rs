//! The program that runs under the lock.
//!
//! It gets a process group of its own, so that whatever it starts can be killed with it. Only in
//! the foreground of a terminal it stays in ours: it may want to read from there, and the shell's
//! job control is about the whole group. There the terminal's own signals reach it without our help,
//! and must not reach it twice.
//!
//! A signal goes to the whole group, as it would from a terminal: whatever of the job went on when
//! the lock has passed on would go on beside the next holder.

use std::{ffi::OsString, io, process::ExitStatus};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::{Pid, getpgrp, tcgetpgrp},
};

use super::{
    bound,
    keeper::Lock,
    signals::{Received, stop_ourselves},
};

pub struct Child {
    process: tokio::process::Child,
    pid: Pid,
    in_our_group: bool,
}

impl Child {
    pub fn start(command: &[OsString], lock: &Lock) -> io::Result<Self> {
        let in_our_group = tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp());
        let mut starter = tokio::process::Command::from(bound::command(command));
        starter
            .env("FENCEPOST_TOKEN", lock.token.to_string())
            .env("FENCEPOST_LOCK", &lock.name)
            // A script may set FENCEPOST_TOKEN to another lock's token. This one tells which is the lock's own.
            .env("FENCEPOST_LOCK_TOKEN", lock.token.to_string())
            // Without the slash, so that a path can be put behind it.
            .env("FENCEPOST_URL", lock.address.url.as_str().trim_end_matches('/'))
            .kill_on_drop(true);
        if !in_our_group {
            starter.process_group(0);
        }
        let process = starter.spawn()?;
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the command has no process id"))?;
        Ok(Self { process, pid, in_our_group })
    }

    /// Can be asked again and again.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Does to the child what was done to us.
    pub fn pass_on(&self, Received { signal, from_terminal }: Received) {
        match signal {
            _ if from_terminal && self.in_our_group => {}
            // Words between programs. What they mean to others is unknown.
            Signal::SIGUSR1 | Signal::SIGUSR2 => self.signal(signal),
            _ => self.signal_all(signal),
        }
        if signal == Signal::SIGTSTP {
            stop_ourselves();
        }
    }

    pub fn terminate(&self) {
        self.signal_all(Signal::SIGTERM);
        // One that is stopped could not hear it.
        self.signal_all(Signal::SIGCONT);
    }

    pub fn kill(&self) {
        self.signal_all(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        // Once it has been waited for, its number may be somebody else's.
        if self.process.id().is_some() {
            let _ = kill(self.pid, signal);
        }
    }

    /// To the child and, if it has a group, to all that it has started.
    fn signal_all(&self, signal: Signal) {
        if self.in_our_group {
            self.signal(signal);
        } else {
            let _ = killpg(self.pid, signal);
        }
    }
}
