//! `fencepost run`, observed from outside.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{sys::signal::Signal, unistd::Pid};

use super::{
    PATIENCE, eventually,
    fencepost::{BINARY, Fencepost},
    signals,
};

pub struct Supervised {
    process: Child,
    lines: Mutex<mpsc::Receiver<String>>,
    errors: Mutex<mpsc::Receiver<String>>,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub errors: String,
}

/// Whoever started the tests may ignore signals, as a shell does for what it runs in the background,
/// and its children inherit that.
pub fn with_all_signals() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal");
    command
}

impl Supervised {
    /// `fencepost run FLAGS -- sh -c SCRIPT`
    pub fn script(server: &Fencepost, flags: &[&str], script: &str) -> Self {
        Self::start(&server.address, &[flags, &["--", "sh", "-c", script]].concat())
    }

    pub fn start(address: &str, arguments: &[&str]) -> Self {
        let mut command = with_all_signals();
        command.args([BINARY, "run"]).args(arguments);
        Self::spawn(command, address)
    }

    pub fn spawn(mut command: Command, address: &str) -> Self {
        let mut process = command
            .env("FENCEPOST_URL", format!("http://{address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("fencepost runs");
        let lines = Mutex::new(lines_of(process.stdout.take().expect("a pipe")));
        let errors = Mutex::new(lines_of(process.stderr.take().expect("a pipe")));
        Self { process, lines, errors }
    }

    /// The next line that the command prints.
    #[track_caller]
    pub fn line(&self) -> String {
        self.line_within(PATIENCE).expect("it says something")
    }

    pub fn line_within(&self, time: Duration) -> Option<String> {
        self.lines.lock().expect("the lines").recv_timeout(time).ok()
    }

    /// The next line of its standard error.
    #[track_caller]
    pub fn error_line(&self) -> String {
        let errors = self.errors.lock().expect("the errors");
        errors.recv_timeout(PATIENCE).expect("it complains")
    }

    /// The process id that the command prints.
    #[track_caller]
    pub fn pid_line(&self) -> Pid {
        Pid::from_raw(self.line().parse().expect("a process id"))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("a process id"))
    }

    pub fn signal(&self, signal: Signal) {
        signals::send(self.pid(), signal);
    }

    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("it can be asked").is_none()
    }

    /// Waits for it to end by itself.
    pub async fn end(&mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() {
            assert!(Instant::now() < deadline, "it does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let code = self.process.wait().expect("it has ended").code();
        let errors = self.errors.lock().expect("the errors");
        // Nobody has this pipe any more, unless the command was left behind.
        let errors = std::iter::from_fn(|| errors.recv_timeout(Duration::from_secs(1)).ok());
        Ended { code, errors: errors.map(|line| line + "\n").collect() }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Read in a thread, so that a pipe which nobody closes holds nobody up.
fn lines_of(pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// Whether a process runs or could run again: it is there, and no zombie.
pub fn is_alive(pid: Pid) -> bool {
    state_of(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// As in `ps`: R running, S sleeping, T stopped, Z zombie.
pub fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.ok()?.rsplit_once(") ")?.1.chars().next()
}

pub async fn until_dead(pid: Pid) {
    eventually("the process is dead", || async { !is_alive(pid) }).await;
}
