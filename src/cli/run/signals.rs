//! The signals that are passed on.

use std::{io, thread};

use nix::sys::signal::{Signal, raise};
use signal_hook::{
    iterator::{SignalsInfo, exfiltrator::WithOrigin},
    low_level::siginfo::{Cause, Origin},
};
use tokio::sync::mpsc;

const PASSED_ON: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

#[derive(Clone, Copy)]
pub struct Received {
    pub signal: Signal,
    /// Whether a terminal sent it, and so to its whole foreground group at once.
    pub from_terminal: bool,
}

impl Received {
    fn of(origin: Origin) -> Option<Self> {
        let signal = Signal::try_from(origin.signal).ok()?;
        Some(Self { signal, from_terminal: matches!(origin.cause, Cause::Kernel) })
    }
}

pub struct Signals {
    received: mpsc::UnboundedReceiver<Received>,
}

impl Signals {
    /// From here on they do nothing by themselves. One that was ignored from the start stays so, as
    /// `nohup` wants it.
    pub fn catch() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = PASSED_ON.iter().map(|signal| *signal as i32);
        let wanted = wanted.filter(|number| ignored & (1 << (number - 1)) == 0);
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted)?;
        let (sender, received) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for signal in signals.forever().filter_map(Received::of) {
                if sender.send(signal).is_err() {
                    break;
                }
            }
        });
        Ok(Self { received })
    }

    pub async fn next(&mut self) -> Received {
        match self.received.recv().await {
            Some(received) => received,
            None => std::future::pending().await,
        }
    }

    /// One that ends whoever only waits. The others are heeded meanwhile as if they had not been
    /// caught.
    pub async fn ending(&mut self) -> Signal {
        loop {
            if let Some(signal) = ends(self.next().await) {
                return signal;
            }
        }
    }

    /// The same, if it has come by now.
    pub fn ending_by_now(&mut self) -> Option<Signal> {
        std::iter::from_fn(|| self.received.try_recv().ok()).find_map(ends)
    }
}

fn ends(received: Received) -> Option<Signal> {
    match received.signal {
        Signal::SIGWINCH | Signal::SIGCONT => None,
        Signal::SIGTSTP => {
            stop_ourselves();
            None
        }
        signal => Some(signal),
    }
}

/// As the terminal's Ctrl-Z would have done if it had not been caught. Comes back after SIGCONT.
pub fn stop_ourselves() {
    let _ = raise(Signal::SIGSTOP);
}

/// The signals that this process was told to ignore when it was started, as bits.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
