//! Who used the processors, out of `/proc`.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// Linux tells user space about time in hundredths of a second, on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processors kept busy: 1.0 is one of them, all the time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Shares {
    pub generator: f64,
    pub proxy: f64,
    pub database: f64,
}

impl Shares {
    pub fn all(&self) -> f64 {
        self.generator + self.proxy + self.database
    }
}

/// The processes that take part in a run.
#[derive(Clone, Debug, Default)]
pub struct Cast {
    pub proxies: Vec<u32>,
    /// With all that it has started: Postgres has a process for each connection.
    pub database: Option<u32>,
}

impl Cast {
    pub fn database_processes(&self) -> usize {
        self.database.map_or(0, |parent| children(parent).count())
    }
}

/// What they had used when the measuring began.
pub struct Meter<'a> {
    generator: u32,
    cast: &'a Cast,
    since: Instant,
    before: Shares,
}

impl<'a> Meter<'a> {
    pub fn start(generator: u32, cast: &'a Cast) -> Self {
        Self { generator, cast, since: Instant::now(), before: used(generator, cast) }
    }

    pub fn stop(self) -> Shares {
        let seconds = self.since.elapsed().as_secs_f64();
        let after = used(self.generator, self.cast);
        Shares {
            generator: (after.generator - self.before.generator) / seconds,
            proxy: (after.proxy - self.before.proxy) / seconds,
            database: (after.database - self.before.database) / seconds,
        }
    }
}

/// Seconds of a processor that each has used so far.
fn used(generator: u32, cast: &Cast) -> Shares {
    Shares {
        generator: own(generator),
        proxy: cast.proxies.iter().map(|pid| own(*pid)).sum(),
        database: cast.database.map_or(0.0, family),
    }
}

fn own(pid: u32) -> f64 {
    Stat::of(pid).map_or(0.0, |stat| stat.own)
}

/// A process and its children, those included that have ended: their parent has inherited what
/// they had used.
fn family(parent: u32) -> f64 {
    let Some(stat) = Stat::of(parent) else { return 0.0 };
    stat.own + stat.ended_children + children(parent).map(|child| child.own).sum::<f64>()
}

fn children(parent: u32) -> impl Iterator<Item = Stat> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Stat::of).filter(move |child| child.parent == parent)
}

struct Stat {
    parent: u32,
    own: f64,
    ended_children: f64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let text =
            fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
        // A program's name may have blanks in it; what follows its bracket has none.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let seconds = |user: usize| {
            let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
            Some((ticks(user)? + ticks(user + 1)?) / TICKS_PER_SECOND)
        };
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: seconds(11)?,
            ended_children: seconds(13)?,
        })
    }
}

/// Memory that a process has in use, in MiB.
pub fn resident_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() / 1024.0
}

/// Sleeps until `window` begins, and measures until it ends.
pub fn during(window: Window, generator: u32, cast: &Cast) -> Shares {
    std::thread::sleep(window.from.saturating_duration_since(Instant::now()));
    let meter = Meter::start(generator, cast);
    std::thread::sleep(window.until.saturating_duration_since(Instant::now()));
    meter.stop()
}

/// The part of a run that counts.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: Instant,
    pub until: Instant,
}

impl Window {
    pub fn after(warm: Duration, run: Duration) -> Self {
        let from = Instant::now() + warm;
        Self { from, until: from + run }
    }

    pub fn contains(&self, instant: Instant) -> bool {
        (self.from..self.until).contains(&instant)
    }
}
