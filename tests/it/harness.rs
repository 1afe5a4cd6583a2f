//! Real servers for tests: Postgres, and the fencepost binary itself.
//!
//! Everything listens on a free port, lives in a temporary directory, and ends with the test
//! process, however that ends.

pub mod access;
pub mod authority;
pub mod blocker;
pub mod browser;
pub mod chaos_proxy;
pub mod collector;
pub mod disk;
pub mod elsewhere;
pub mod etcd;
pub mod fencepost;
pub mod holder;
pub mod http;
pub mod http2;
pub mod locks;
pub mod memory_limit;
pub mod pair;
pub mod pgbouncer;
pub mod postgres;
pub mod prometheus;
pub mod signals;
pub mod store;
pub mod supervised;
pub mod transaction;
pub mod witness;
pub mod writes;

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// How long anything may take before a test calls it broken. It bounds what would otherwise hang, and is no measure of
/// speed: a machine that is busy with something else must not change a verdict. What has to outlast any wait of a test
/// (a lease, a drain) is longer than this.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// For a server that is about to start, and for nobody else: none that this process has given away before,
/// and none that the kernel gives to clients (from 32768 on), who could have it before the server does.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    // Other processes begin elsewhere.
    let start = std::process::id().wrapping_mul(997);
    loop {
        let number = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % COUNT).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits for a condition; panics if it does not come true.
pub async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl FnMut() -> F) {
    assert!(comes_true(condition).await, "never happened: {what}");
}

/// Waits for a server that has just been started; if it never answers, its log says why.
pub async fn until_it_answers<F: Future<Output = bool>>(
    server: &str,
    log: &Path,
    answers: impl FnMut() -> F,
) {
    if !comes_true(answers).await {
        let log = fs::read(log).unwrap_or_default();
        panic!("{server} never answered; its log:\n{}", String::from_utf8_lossy(&log));
    }
}

async fn comes_true<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

/// A program that gets `signal` when this process dies, even by SIGKILL.
///
/// The kernel ties that to the thread which started it, so the starting is left to a thread that
/// lives as long as the process.
pub fn spawn_bound_to_us(command: Command) -> std::io::Result<Child> {
    static SPAWNER: std::sync::OnceLock<
        mpsc::Sender<(Command, mpsc::Sender<std::io::Result<Child>>)>,
    > = std::sync::OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<(Command, mpsc::Sender<std::io::Result<Child>>)>();
        thread::spawn(move || {
            for (mut command, reply) in requests {
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, child) = mpsc::channel();
    spawner.send((command, reply)).expect("the spawning thread never ends");
    child.recv().expect("the spawning thread answers")
}

/// What a server finds around it, other than this machine as it is.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// A network namespace, as a path.
    pub network: Option<String>,
    /// Set for the program alone, and not for those who start it.
    pub environment: Vec<String>,
}

/// `program`, to be killed with this process, and as `user` if we are root.
pub fn bound_command(program: impl AsRef<std::ffi::OsStr>, user: Option<&str>) -> Command {
    let network = elsewhere::network();
    bound_command_in(&Surroundings { network, ..Surroundings::default() }, program, user)
}

pub fn bound_command_in(
    around: &Surroundings,
    program: impl AsRef<std::ffi::OsStr>,
    user: Option<&str>,
) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]);
    if let Some(user) = user.filter(|_| nix::unistd::geteuid().is_root()) {
        command.args(["--reuid", user, "--regid", user, "--init-groups"]);
    }
    command.arg("--");
    if let Some(network) = &around.network {
        command.arg("nsenter").arg(format!("--net={network}")).arg("--");
    }
    if !around.environment.is_empty() {
        command.arg("env").args(&around.environment);
    }
    command.arg(program);
    command
}
