//! What is promised, and whether it is kept.

use super::{
    book::{Book, Spread},
    names::{
        AFTER, ALONE, AT_16, AT_64, AT_256, BESIDE_404S, BESIDE_REFUSALS, ETCD, FENCED, FENCEPOST,
        FIXED_RATE, FLOOD, FLOODED, GATEWAY, GUARDED, IDLE, NEW_KEYS, NOOP, ONE_KEY, PGBENCH,
        PLAIN, READS, REDIS, REFUSALS, SCOPED, START,
    },
    run::Run,
};

pub struct Goal {
    pub what: &'static str,
    pub measured: Option<Spread>,
    pub bound: Bound,
    pub unit: &'static str,
    /// Why the numbers cannot be compared, if they cannot.
    pub caveat: Option<String>,
}

#[derive(Clone, Copy)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    /// `None` where it was not measured, or in vain.
    pub fn is_kept(&self) -> Option<bool> {
        let median = self.measured.filter(|_| self.caveat.is_none())?.median;
        Some(match self.bound {
            Bound::AtLeast(bound) => median >= bound,
            Bound::AtMost(bound) => median <= bound,
        })
    }

    pub fn bound(&self) -> String {
        match self.bound {
            Bound::AtLeast(bound) => format!("≥ {bound} {}", self.unit),
            Bound::AtMost(bound) => format!("≤ {bound} {}", self.unit),
        }
    }

    pub fn median(&self) -> String {
        self.measured.map_or("–".into(), |it| format!("{} {}", short(it.median), self.unit))
    }

    pub fn spread(&self) -> String {
        self.measured.map_or("–".into(), |it| format!("{} – {}", short(it.low), short(it.high)))
    }
}

fn short(number: f64) -> String {
    if number < 10.0 { format!("{number:.2}") } else { format!("{number:.1}") }
}

pub fn all(book: &Book) -> Vec<Goal> {
    use Bound::{AtLeast, AtMost};
    let faster = |scene, than| book.ratio(scene, FENCEPOST, than, |run| run.rate);
    let p99 = |scene| book.ratio(scene, FENCEPOST, PGBENCH, |run| run.p99_us);
    let flooded = book.ratio(FLOODED, BESIDE_REFUSALS, BESIDE_404S, |run| run.p99_us);
    let ratio = |what, measured, bound| Goal { what, measured, bound, unit: "x", caveat: None };
    vec![
        ratio("pgbench, 64 clients: throughput", faster(AT_64, PGBENCH), AtLeast(2.4)),
        ratio("pgbench, 256 clients: throughput", faster(AT_256, PGBENCH), AtLeast(4.0)),
        ratio("pgbench, 16 clients: throughput", faster(AT_16, PGBENCH), AtLeast(1.2)),
        ratio(
            "pgbench, 64 clients on one key: throughput",
            faster(ONE_KEY, PGBENCH),
            AtLeast(20.0),
        ),
        ratio("pgbench, 64 clients, new keys: throughput", faster(NEW_KEYS, PGBENCH), AtLeast(1.5)),
        ratio("pgbench, 64 clients: p99", p99(AT_64), AtMost(0.5)),
        Goal {
            caveat: fell_behind(book),
            ..ratio(
                "pgbench, 64 connections at the same fixed rate: p99",
                p99(FIXED_RATE),
                AtMost(0.5),
            )
        },
        ratio("pgbench + a no-op PUT, 1 client: p50", alone(book), AtMost(1.1)),
        ratio("a plain proxy, 64 clients: throughput", faster(AT_64, PLAIN), AtLeast(4.0)),
        ratio("a no-op PUT, 64 clients: refusals", faster(REFUSALS, NOOP), AtLeast(0.95)),
        ratio(
            "refusals to those with bearer tokens, against anybody: throughput",
            book.ratio(REFUSALS, GUARDED, FENCEPOST, |run| run.rate),
            AtLeast(0.9),
        ),
        ratio(
            "500 writes a second, refusals against as many 404s beside them: p99",
            flooded,
            AtMost(1.1),
        ),
        Goal {
            what: "refusals answered beside them",
            measured: book.fact(FLOOD),
            bound: AtLeast(45_000.0),
            unit: "/s",
            caveat: None,
        },
        ratio(
            "its own writes without scopes, 64 clients: writes under scopes",
            book.ratio(AT_64, SCOPED, FENCEPOST, |run| run.rate),
            AtLeast(0.8),
        ),
        ratio(
            "its own plain reads, 64 clients: fenced reads",
            book.ratio(READS, FENCED, FENCEPOST, |run| run.rate),
            AtLeast(0.8),
        ),
        ratio("a plain proxy, 64 clients: reads", faster(READS, PLAIN), AtLeast(3.0)),
        ratio("pgbench SELECT, 64 clients: reads", faster(READS, PGBENCH), AtLeast(2.0)),
        ratio("Redis, 64 clients: throughput", faster(AT_64, REDIS), AtLeast(1.1)),
        ratio("etcd by gRPC, 64 clients: throughput", faster(AT_64, ETCD), AtLeast(5.0)),
        ratio(
            "etcd by its HTTP gateway, 64 clients: throughput",
            faster(AT_64, GATEWAY),
            AtLeast(10.0),
        ),
        Goal {
            what: "memory after the runs, 100,000 keys cached",
            measured: book.fact(AFTER),
            bound: AtMost(48.0),
            unit: "MiB",
            caveat: None,
        },
        Goal {
            what: "memory when idle",
            measured: book.fact(IDLE),
            bound: AtMost(15.0),
            unit: "MiB",
            caveat: None,
        },
        Goal {
            what: "start to ready, on a new SQLite file",
            measured: book.fact(START),
            bound: AtMost(50.0),
            unit: "ms",
            caveat: None,
        },
    ]
}

/// At a rate that somebody misses, latencies say more about how long the run was than about them.
fn fell_behind(book: &Book) -> Option<String> {
    [FENCEPOST, PGBENCH].into_iter().find_map(|name| {
        let runs = book.runs(FIXED_RATE, name);
        let missed = runs.iter().filter(|run| run.fell_behind()).count();
        (2 * missed > runs.len()).then(|| format!("{name} missed the rate"))
    })
}

/// Whoever writes through a proxy pays for the statement and for HTTP. Nothing more should be due.
fn alone(book: &Book) -> Option<Spread> {
    let [ours, theirs, noop] = [FENCEPOST, PGBENCH, NOOP].map(|name| book.runs(ALONE, name));
    let p50 = |run: &Run| run.p50_us;
    let rounds = ours.iter().zip(theirs).zip(noop);
    Spread::of(rounds.map(|((ours, pg), http)| p50(ours) / (p50(pg) + p50(http))).collect())
}
