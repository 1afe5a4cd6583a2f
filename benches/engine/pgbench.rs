//! Postgres' own load generator, with the same statement, over TCP, prepared, one per transaction.
//! Its log has each transaction's end and latency, so the same part of a run counts as elsewhere.

use std::{
    fs, io,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

use super::{
    closed_loop::THREADS,
    cpu::{self, Cast, Window},
    it::harness::{
        bound_command,
        postgres::{USER, bin},
        spawn_bound_to_us,
    },
    plan::Plan,
    run::{Latencies, Run},
    sql,
    template::{TOKEN, value},
};

#[derive(Clone, Copy, Debug)]
pub enum Script {
    Upsert,
    Select,
}

impl Script {
    fn text(self) -> String {
        const KEY: &str = "'bench/' || lpad(:n::text, 9, '0')";
        let statement = match self {
            Self::Upsert => sql::with(
                sql::UPSERT,
                &[("key", KEY), ("token", &TOKEN.to_string()), ("value", ":value")],
            ),
            Self::Select => sql::with(sql::SELECT, &[("key", KEY)]),
        };
        format!("\\set n random(0, :keys - 1)\n{};\n", statement.trim())
    }
}

#[derive(Clone, Debug)]
pub struct Pgbench {
    pub port: u16,
    pub database: String,
    pub script: Script,
    /// Transactions a second, at random; `None` for as many as it can.
    pub rate: Option<f64>,
}

impl Pgbench {
    pub fn run(&self, plan: &Plan, cast: &Cast, clients: usize, keys: u64) -> io::Result<Run> {
        let directory = tempfile::tempdir()?;
        let script = directory.path().join("script.sql");
        fs::write(&script, self.script.text())?;
        let mut command = bound_command(bin("pgbench"), None);
        command
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", USER])
            .args(["-n", "-M", "prepared", "-c", &clients.to_string()])
            .args(["-j", &THREADS.min(clients).to_string()])
            .args(["-T", "600"])
            .args(["-D", &format!("keys={keys}"), "-D", &format!("value={}", value()), "-f"])
            .arg(&script)
            .args(["-l", "--log-prefix"])
            .arg(directory.path().join("log"));
        if let Some(rate) = self.rate {
            command.args(["--rate", &format!("{rate:.0}")]);
        }
        command.arg(&self.database).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let before = cast.database_processes();
        let child = spawn_bound_to_us(command)?;
        let window = window_of(plan, cast, before + clients);
        let cpu = cpu::during(window, child.id(), cast);
        end(child.id());
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
        }
        let latencies = latencies(plan, &directory)?;
        Ok(Run::new(&latencies, plan.run, cpu))
    }
}

/// It begins when all its clients are connected, and Postgres has a process for each. If one of
/// Postgres's own has gone meanwhile, they never come to as many: they are connected all the same.
fn window_of(plan: &Plan, cast: &Cast, expected: usize) -> Window {
    const LONGEST: Duration = Duration::from_secs(4);
    let deadline = Instant::now() + LONGEST;
    while cast.database_processes() < expected && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
    Window::after(plan.warm, plan.run)
}

/// Its own clock starts before it is connected, so it is wound for far too long and made to ring
/// when the run is over. Then it finishes in order.
fn end(pgbench: u32) {
    const GRACE: Duration = Duration::from_millis(50);
    thread::sleep(GRACE);
    let _ = kill(Pid::from_raw(pgbench.cast_signed()), Signal::SIGALRM);
}

fn logs(directory: &TempDir) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = fs::read_dir(directory.path()).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("log"))
        .map(|entry| entry.path())
}

/// A line is `client number latency script seconds microseconds`, and with `--rate` how late it
/// was sent, which the latency includes.
fn latencies(plan: &Plan, directory: &TempDir) -> io::Result<Latencies> {
    let mut transactions = Vec::new();
    for log in logs(directory) {
        for line in fs::read_to_string(log)?.lines() {
            let fields: Vec<u64> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
            let [_, _, latency, _, seconds, micros, ..] = fields[..] else {
                return Err(io::Error::other(format!("an odd line of pgbench's log: {line}")));
            };
            let ended = Duration::from_secs(seconds) + Duration::from_micros(micros);
            transactions.push((ended, Duration::from_micros(latency)));
        }
    }
    let began = transactions.iter().map(|(ended, latency)| ended.saturating_sub(*latency)).min();
    let from = began.unwrap_or_default() + plan.warm;
    let mut latencies = Latencies::new();
    for (ended, latency) in transactions {
        if (from..from + plan.run).contains(&ended) {
            latencies.record(latency);
        }
    }
    Ok(latencies)
}
