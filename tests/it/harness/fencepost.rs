//! The real binary, started as a user would start it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex, OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{sys::signal::Signal, unistd::Pid};
use serde_json::Value;

use super::{
    PATIENCE, Surroundings, bound_command_in, elsewhere, eventually, http::Client, signals,
    spawn_bound_to_us, store::TestStore,
};

pub const BINARY: &str = env!("CARGO_BIN_EXE_fencepost");

pub struct Fencepost {
    pub address: String,
    pub admin: String,
    process: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Fencepost {
    /// Serves `store`, and is ready.
    pub async fn on(store: &TestStore) -> Self {
        Self::with(store, &[]).await
    }

    /// The same with more flags.
    pub async fn with(store: &TestStore, flags: &[&str]) -> Self {
        let server = Self::start_as_it_is(&store.to_serve().await, flags);
        server.wait_until_ready().await;
        server
    }

    /// Starts it, and returns as soon as it listens: it may not be ready, or never become so.
    pub fn start(store: &str, flags: &[&str]) -> Self {
        Self::start_as_it_is(store, &[&["--migrate"], flags].concat())
    }

    /// The same, on a database that must have its schema already.
    pub fn start_as_it_is(store: &str, flags: &[&str]) -> Self {
        let network = elsewhere::network();
        Self::start_in(&Surroundings { network, ..Surroundings::default() }, store, flags)
    }

    pub fn start_in(around: &Surroundings, store: &str, flags: &[&str]) -> Self {
        Self::start_program(around, BINARY, store, flags)
    }

    /// The same, of the previous release.
    pub fn start_previous(store: &str, flags: &[&str]) -> Self {
        let around = Surroundings { network: elsewhere::network(), ..Surroundings::default() };
        Self::start_program(&around, previous_release(), store, flags)
    }

    fn start_program(around: &Surroundings, program: &str, store: &str, flags: &[&str]) -> Self {
        let mut command = bound_command_in(around, program, None);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(["--log-format", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        clear_settings(&mut command);
        // A client on a busy machine may be slow. Tests of these limits give flags, which win.
        for limit in ["HEADER", "BODY", "WRITE"] {
            command.env(format!("FENCEPOST_{limit}_TIMEOUT"), "10m");
        }
        // The store's own tests bring their own tokens; whatever the flags say wins over this.
        command.env("FENCEPOST_STORE", store).env("FENCEPOST_AUTHORITY", "none");
        give(&mut command, flags);
        let mut process = spawn_bound_to_us(command).expect("fencepost starts");
        let stderr = process.stderr.take().expect("its log");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (started, starting) = mpsc::channel();
        let lines = log.clone();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let entry: Value = serde_json::from_str(&line).unwrap_or_default();
                if entry["message"] == "fencepost is starting" {
                    let _ = started.send(entry);
                }
                lines.lock().expect("the log").push(line);
            }
        });
        let Ok(entry) = starting.recv_timeout(PATIENCE) else {
            panic!("fencepost did not start: {:?}", log.lock().expect("the log"));
        };
        let field = |name: &str| entry[name].as_str().expect("an address").to_owned();
        Self { address: field("listen"), admin: field("admin"), process, log }
    }

    pub async fn wait_until_ready(&self) {
        let admin = Client::new(&self.admin);
        let deadline = Instant::now() + PATIENCE;
        while !admin.get("/readyz").send().await.is_ok_and(|answer| answer.status() == 200) {
            assert!(Instant::now() < deadline, "it never became ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn client(&self) -> Client {
        Client::new(&self.address)
    }

    pub fn admin_client(&self) -> Client {
        Client::new(&self.admin)
    }

    pub fn log(&self) -> String {
        self.log.lock().expect("the log").join("\n")
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).expect("a process id");
        signals::send(Pid::from_raw(pid), signal);
    }

    /// Waits for it to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait().expect("fencepost ends")
    }

    /// Waits for it to refuse to serve: exit code 1, and what it says about that.
    pub async fn refusal(mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() {
            assert!(Instant::now() < deadline, "it should have given up:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let code = self.wait().code();
        assert_eq!(code, Some(1), "{}", self.log());
        // The last line may still be on its way from the pipe.
        eventually("it says why", || async { self.last_error().is_some() }).await;
        self.last_error().expect("why")
    }

    fn last_error(&self) -> Option<String> {
        let log = self.log();
        let entry: Value = serde_json::from_str(log.lines().next_back()?).ok()?;
        (entry["level"] == "ERROR").then(|| entry["message"].as_str().map(str::to_owned))?
    }

    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("fencepost can be asked").is_none()
    }
}

impl Drop for Fencepost {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The binary of the previous release. It is built where it is missing.
pub fn previous_release() -> &'static str {
    static BINARY: OnceLock<String> = OnceLock::new();
    BINARY.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/previous-release");
        let built = Command::new(script).output().expect("the script runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        String::from_utf8(built.stdout).expect("a path").trim().to_owned()
    })
}

/// Runs a command of the previous release to its end.
pub fn run_previous(arguments: &[&str]) -> Output {
    let mut command = Command::new(previous_release());
    command.args(arguments).stdin(Stdio::null());
    clear_settings(&mut command);
    command.output().expect("fencepost runs")
}

/// What may hold a password is refused as an argument, so it goes by the environment.
fn give(command: &mut Command, arguments: &[&str]) {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let variable = match *argument {
            "--store" => "FENCEPOST_STORE",
            "--authority" => "FENCEPOST_AUTHORITY",
            "--etcd-password" => "FENCEPOST_ETCD_PASSWORD",
            _ => {
                command.arg(argument);
                continue;
            }
        };
        command.env(variable, arguments.next().expect("a value"));
    }
}

/// [`run`], with what may be secret in the environment.
pub fn run_discreetly(arguments: &[&str]) -> Output {
    run_with(&[], |command| give(command, arguments))
}

/// Runs a command to its end.
pub fn run(arguments: &[&str]) -> Output {
    run_with(arguments, |_| {})
}

/// The same, with an environment or a standard input of its own.
pub fn run_with(arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).stdin(Stdio::null());
    clear_settings(&mut command);
    prepare(&mut command);
    command.output().expect("fencepost runs")
}

/// A developer's own settings must not change what a test sees.
fn clear_settings(command: &mut Command) {
    let ours = |name: &str| name.starts_with("FENCEPOST_") || name.starts_with("OTEL_");
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
}
