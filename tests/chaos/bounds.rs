//! What a fencepost does when there is too much of everything: its memory stays flat, its answers stay
//! right, and when it is over it goes on without a restart.

mod many;

use std::{
    fmt, fs,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use sqlx::{Connection, PgConnection};
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet};

use crate::it::harness::{
    PATIENCE,
    fencepost::Fencepost,
    http::{Client, answer},
    postgres::Postgres,
};

#[derive(Clone, Copy)]
pub struct Load {
    idle: usize,
    slow: usize,
    /// How long the table is locked.
    locked: Duration,
    /// Keys that are there, and how many of them are written through the fencepost: more than its cache
    /// can hold.
    keys: usize,
    touched: usize,
}

pub const SHORT: Load =
    Load { idle: 200, slow: 20, locked: Duration::from_secs(5), keys: 200_000, touched: 20_000 };
pub const LONG: Load = Load {
    idle: 1_000,
    slow: 100,
    locked: Duration::from_secs(30),
    keys: 10_000_000,
    touched: 200_000,
};

/// More than this above what it had at first is not flat.
const ROOM_KIB: u64 = 192 << 10;

const WRITERS: usize = 200;

#[derive(Default)]
pub struct Bounds {
    load: Vec<(String, String)>,
    pub complaints: Vec<String>,
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | |\n|---|---|")?;
        self.load.iter().try_for_each(|(what, came)| writeln!(f, "| {what} | {came} |"))
    }
}

impl Bounds {
    fn note(&mut self, what: impl Into<String>, came: impl Into<String>) {
        self.load.push((what.into(), came.into()));
    }

    fn demand(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.complaints.push(format!("bounds: {}", what.into()));
        }
    }
}

pub async fn measure(load: Load) -> Bounds {
    let mut bounds = Bounds::default();
    let postgres = Postgres::start(&["fsync=off", "max_wal_size=4GB"]).await;
    let url = postgres.database("").await;
    let flags = ["--queue", "64", "--max-connections", "4000", "--mark-cache", "2MiB"];
    let server = Fencepost::start(&url, &flags);
    server.wait_until_ready().await;
    let client = server.client();
    bounds.demand(writes(&client, 100).await, "a plain write failed");
    let at_first = memory_kib(&server);
    bounds.note("memory at first", mib(at_first));

    let _crowd = crowd(&server, load).await;
    bounds.demand(writes(&client, 200).await, "a write failed beside idle and slow clients");
    let crowded = memory_kib(&server);
    bounds.note(format!("{} idle and {} slow connections", load.idle, load.slow), mib(crowded));

    let (peak, answers, recovery) = locked_out(&server, &client, &url, load.locked).await;
    let seconds = load.locked.as_secs();
    bounds.note(format!("table locked for {seconds} s, {WRITERS} writers, queues full"), mib(peak));
    bounds.note("… answered meanwhile", answers.to_string());
    bounds.note("… until a write succeeded again", format!("{} ms", recovery.as_millis()));
    bounds.demand(recovery < PATIENCE, "it did not recover");

    many::fill(&url, load.keys).await;
    let since = Instant::now();
    let wrong = many::use_them(&client, load.keys, load.touched).await;
    let (filled, seconds) = (memory_kib(&server), since.elapsed().as_secs());
    bounds.demand(wrong.is_empty(), format!("among many keys: {}", wrong.join("; ")));
    let many = format!("{} distinct keys, {} of them written and read", load.keys, load.touched);
    bounds.note(many, format!("{}, in {seconds} s", mib(filled)));
    bounds.note("most memory at any time", mib(peak_kib(&server)));
    for (what, kib) in [("crowded", crowded), ("locked out", peak), ("filled", filled)] {
        let flat = kib < at_first + ROOM_KIB;
        bounds.demand(flat, format!("{} while {what}, {} at first", mib(kib), mib(at_first)));
    }
    bounds
}

async fn writes(client: &Client, count: usize) -> bool {
    for number in 0..count {
        let key = format!("plain-{}", number % 10);
        if ![200, 201].contains(&answer(client.put(&key, 1, "value")).await.status) {
            return false;
        }
    }
    true
}

/// Connections that do nothing after one request, and some that send a byte now and then.
async fn crowd(server: &Fencepost, load: Load) -> JoinSet<()> {
    let mut crowd = JoinSet::new();
    for number in 0..load.idle + load.slow {
        let Ok(mut stream) = TcpStream::connect(&server.address).await else { continue };
        let head = "PUT /v1/resources/slow HTTP/1.1\r\nHost: test\r\nX-Fencing-Token: 1\r\n\
                    Content-Length: 100000\r\n\r\n";
        let slow = number >= load.idle;
        crowd.spawn(async move {
            let hello = if slow { head } else { "GET /v1/marks/k HTTP/1.1\r\nHost: test\r\n\r\n" };
            if stream.write_all(hello.as_bytes()).await.is_err() {
                return;
            }
            loop {
                // So slow that a body never comes to its end.
                tokio::time::sleep(Duration::from_millis(200)).await;
                if slow && stream.write_all(b"x").await.is_err() {
                    return;
                }
            }
        });
    }
    crowd
}

/// The most memory, how many answers there were, and how long it took afterwards.
async fn locked_out(
    server: &Fencepost,
    client: &Client,
    url: &str,
    time: Duration,
) -> (u64, usize, Duration) {
    let mut blocker = PgConnection::connect(url).await.expect("Postgres answers");
    let lock = "BEGIN; LOCK TABLE fencepost.resources IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut blocker).await.expect("the table is locked");
    let end = Instant::now() + time;
    let writers = (0..WRITERS).map(|number| async move {
        let mut answers = 0;
        while Instant::now() < end {
            let key = format!("locked-{number}");
            let status = answer(client.put(&key, 1, "value")).await.status;
            assert!([200, 201, 503, 504].contains(&status), "{status} while the table is locked");
            answers += 1;
            // As a client that is told to come again: this is not a test of the processor.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        answers
    });
    let watch = async {
        let mut peak = 0;
        while Instant::now() < end {
            peak = memory_kib(server).max(peak);
            // How often it is looked at: memory has no event to wait for.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        drop(blocker);
        peak
    };
    let (peak, answers) = tokio::join!(watch, join_all(writers));
    let since = Instant::now();
    while ![200, 201].contains(&answer(client.put("after", 1, "value")).await.status)
        && since.elapsed() < PATIENCE
    {
        // Between two attempts: what is waited for is the answer.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (peak, answers.into_iter().sum(), since.elapsed())
}

fn memory_kib(server: &Fencepost) -> u64 {
    status_kib(server, "VmRSS:")
}

fn peak_kib(server: &Fencepost) -> u64 {
    status_kib(server, "VmHWM:")
}

fn status_kib(server: &Fencepost, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn mib(kib: u64) -> String {
    format!("{} MiB", kib >> 10)
}
