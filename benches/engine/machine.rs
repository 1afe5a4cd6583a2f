//! Where it was measured, and with what.

use std::{
    fs::{self, File},
    io::{Seek, Write},
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use super::it::harness::postgres::bin;

/// Names and values, for a table.
pub fn description() -> Vec<(&'static str, String)> {
    vec![
        ("date", date()),
        ("processor", format!("{}, {} of them", cpu_model(), processors())),
        ("memory", memory()),
        ("kernel", first_line("uname", &["-sr"])),
        ("disk", disk()),
        ("Fencepost", format!("{} ({})", env!("CARGO_PKG_VERSION"), commit())),
        ("Postgres", first_line(bin("postgres").to_string_lossy().as_ref(), &["--version"])),
        ("Redis", first_line("redis-server", &["--version"])),
        ("etcd", first_line("etcd", &["--version"])),
        ("Rust", first_line("rustc", &["--version"])),
    ]
}

fn date() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or(&now).to_owned()
}

fn cpu_model() -> String {
    field_of("/proc/cpuinfo", "model name").unwrap_or("unknown".into())
}

pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn memory() -> String {
    format!("{} GiB", (memory_mib() + 512) / 1024)
}

pub fn memory_mib() -> u64 {
    let kib = field_of("/proc/meminfo", "MemTotal").unwrap_or_default();
    let kib: u64 = kib.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or_default();
    kib / 1024
}

/// What lies under the temporary directories, and how long it takes to make a page durable.
fn disk() -> String {
    let directory = std::env::temp_dir();
    let mount =
        first_line("findmnt", &["-no", "SOURCE,FSTYPE", "-T", &directory.to_string_lossy()]);
    let mount = mount.split_whitespace().collect::<Vec<_>>().join(", ");
    let sync = sync_time().map_or(String::new(), |time| format!("; a sync takes {time:.0?}"));
    mount + &sync
}

fn sync_time() -> std::io::Result<Duration> {
    let mut file: File = tempfile::tempfile()?;
    let mut times = Vec::new();
    for _ in 0..101 {
        file.rewind()?;
        file.write_all(&[1; 8192])?;
        let began = Instant::now();
        file.sync_data()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn commit() -> String {
    let commit = first_line("git", &["rev-parse", "--short", "HEAD"]);
    if commit.is_empty() { "no commit".into() } else { format!("commit {commit}") }
}

fn field_of(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}
