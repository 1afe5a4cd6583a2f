//! What a lock costs through Fencepost: acquire and release over HTTP, side by side with the same
//! lease, put and delete spoken straight to etcd.
//!
//! `make bench`, or `make bench QUICK=1` for a first impression. Contenders take turns within each
//! round, so that what else the machine is doing hurts them alike; the table has medians, and the
//! lowest and highest round beside them.

#[allow(dead_code, unused_imports, unused_macros, clippy::unused_async)] // A tool box of the tests.
#[path = "../tests/it"]
mod it {
    pub mod harness;
}
#[path = "locks/contenders.rs"]
mod contenders;
#[allow(dead_code)] // The report reads what is kept here.
#[path = "shared/kept.rs"]
mod kept;
#[path = "locks/report.rs"]
mod report;
#[path = "locks/unclaimed.rs"]
mod unclaimed;
#[allow(dead_code)] // The engine's part uses the rest.
#[path = "shared/wire.rs"]
mod wire;

use std::{
    io::{self, IsTerminal},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use etcd_client::CompactionOptions;

use self::{
    contenders::{Contender, Direct, OverHttp},
    it::harness::{etcd::Etcd, fencepost::Fencepost, postgres::Postgres, store::TestStore},
    report::{Cell, Report},
};

/// As in the program itself.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One client waits for each answer; 32 keep etcd busy.
const CLIENTS: [usize; 2] = [1, 32];

struct Plan {
    quick: bool,
    rounds: usize,
    run: Duration,
}

impl Plan {
    fn of_the_environment() -> Self {
        if std::env::var_os("QUICK").is_some_and(|quick| !quick.is_empty()) {
            Self { quick: true, rounds: 2, run: Duration::from_millis(400) }
        } else {
            Self { quick: false, rounds: 7, run: Duration::from_secs(2) }
        }
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(unclaimed::SERVE) {
        let etcd = arguments.next().expect("where etcd is");
        return runtime.block_on(unclaimed::serve(&etcd));
    }
    runtime.block_on(bench(&Plan::of_the_environment()));
}

async fn bench(plan: &Plan) {
    eprintln!("starting etcd, Postgres and three fenceposts");
    // Unlike in the tests, every commit is synced to disk.
    let etcd = Etcd::start(&["--unsafe-no-fsync=false"]).await;
    let authority = ["--authority", &etcd.url()];
    let sqlite = TestStore::sqlite();
    let on_sqlite = Fencepost::with(&sqlite, &authority).await;
    let cluster = Postgres::start(&[]).await;
    let database = cluster.database("").await;
    let on_postgres = Fencepost::start(&database, &authority);
    on_postgres.wait_until_ready().await;
    let unclaimed = unclaimed::Process::start(&etcd.url());

    let contenders: Vec<(&str, Contender)> = vec![
        ("etcd alone", Contender::Direct(Direct::new(&etcd.url()))),
        ("Fencepost without the claim", Contender::OverHttp(OverHttp::new(&unclaimed.address))),
        ("Fencepost on SQLite", Contender::OverHttp(OverHttp::new(&on_sqlite.address))),
        ("Fencepost on Postgres", Contender::OverHttp(OverHttp::new(&on_postgres.address))),
    ];
    let mut report = Report::default();
    for clients in CLIENTS {
        for round in 0..plan.rounds {
            for (name, contender) in &contenders {
                let round = round + 1;
                progress(&format!("{clients} clients, round {round} of {}: {name}", plan.rounds));
                let cell = measure(contender, clients, plan.run).await;
                report.add(name, clients, cell);
                rest(&etcd.url()).await;
            }
        }
    }
    progress("");
    let table = report.table(&CLIENTS, contenders.iter().map(|(name, _)| *name));
    println!("{table}");
    if !plan.quick {
        kept::keep("locks.md", &table).expect("the table is kept for the report");
    }
}

fn progress(what: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}

/// Waits until etcd has nothing to do any more: Fencepost ends the leases of released locks when it
/// is quiet, and the next contender must not pay for it. Nor for keys that have gone, which etcd
/// walks over until it is compacted: a lock of the recipe leaves one behind each time it is taken.
async fn rest(etcd: &str) {
    const A_MOMENT: Duration = Duration::from_millis(1200);
    let address = etcd.replace("etcd://", "http://");
    let mut etcd = etcd_client::Client::connect([address], None).await.expect("etcd");
    let mut before = 0;
    loop {
        let index = etcd.status().await.expect("its state").raft_index();
        if index - before < 20 {
            break;
        }
        before = index;
        tokio::time::sleep(A_MOMENT).await;
    }
    let now = etcd.get("nothing", None).await.expect("an answer");
    let revision = now.header().expect("a header").revision();
    let all = CompactionOptions::new().with_physical();
    etcd.compact(revision, Some(all)).await.expect("a compaction");
}

/// Each client takes and gives back a lock of its own, over and over.
async fn measure(contender: &Contender, clients: usize, run: Duration) -> Cell {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let workers: Vec<_> = (0..clients)
        .map(|number| {
            let (stop, done, contender) = (stop.clone(), done.clone(), contender.clone());
            tokio::spawn(async move {
                let mut client = contender.client(number).await;
                let mut latencies = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    client.acquire_and_release().await;
                    latencies.push(begun.elapsed());
                    done.fetch_add(1, Ordering::Relaxed);
                }
                latencies
            })
        })
        .collect();
    tokio::time::sleep(run).await;
    let elapsed = started.elapsed();
    let locks = done.load(Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for worker in workers {
        latencies.extend(worker.await.expect("a worker"));
    }
    latencies.sort_unstable();
    let median = latencies.get(latencies.len() / 2).copied().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a count of locks")]
    Cell { rate: locks as f64 / elapsed.as_secs_f64(), median }
}
