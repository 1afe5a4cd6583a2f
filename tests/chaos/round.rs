//! One round: set the stage, let clients work while things go wrong, heal, settle, read, check.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use crate::{
    check::{self, Findings, Violation, linear},
    faults::Nemesis,
    history::{History, Line, Outcome, Recorder},
    http::Fenceposts,
    it::harness::{eventually, postgres},
    kind::{Kind, fails_over},
    plan::Plan,
    stage::Stage,
    work::{Service, Terms, Worker, settle},
};

const TERMS: Terms = Terms { locks: 5, ttl_ms: 1_500, wait_ms: 500, pause_ms: 12 };

/// How long a lock may take to pass on from a holder that was killed. Leases are no longer than two
/// seconds; the rest is for a machine that is busy.
const PASSING_ON: u64 = 25_000;

#[derive(Default)]
pub struct Played {
    pub operations: BTreeMap<&'static str, usize>,
    pub faults: BTreeMap<Kind, usize>,
    pub searched: linear::Searched,
    pub violations: Vec<Violation>,
}

/// What clients have to put up with.
#[derive(Clone, Copy)]
pub enum Trouble {
    Nothing,
    Faults,
    /// Somebody runs this behind everybody's back, to see whether it is found out.
    Sabotage(&'static str),
}

/// Works for about `time`.
pub async fn play(plan: Plan, time: Duration, trouble: Trouble) -> Played {
    let mut stage = Stage::set(plan).await;
    stage.start_clients(TERMS);
    let mut nemesis = Nemesis::default();
    let end = Instant::now() + time;
    match trouble {
        // For so long the clients work; there is nothing else to wait for.
        Trouble::Nothing => tokio::time::sleep(time).await,
        Trouble::Faults => torment(&mut nemesis, &mut stage, end).await,
        Trouble::Sabotage(sql) => {
            while Instant::now() < end {
                // Clients must get to see each forgery.
                tokio::time::sleep(Duration::from_millis(100)).await;
                postgres::execute(&stage.url().expect("a database"), sql).await;
            }
        }
    }
    nemesis.heal(&mut stage).await;
    stage.start_posts();
    stage.wait_until_ready().await;
    for client in &mut stage.clients {
        assert!(client.is_running(), "a client has given up");
    }
    let lines = finish(&mut stage).await;
    let mut history = History::of(lines.clone());
    history.takeovers.clone_from(&stage.takeovers);
    history.leases_cut_short = nemesis.tally.keys().any(|kind| kind.shortens_leases(&plan));
    let mut played = judge(&history);
    played.faults = nemesis.tally;
    if !played.violations.is_empty() && !matches!(trouble, Trouble::Sabotage(_)) {
        keep(plan, &lines);
    }
    played
}

/// For whoever wants to know how it came about.
fn keep(plan: Plan, lines: &[Line]) {
    let path = std::env::temp_dir().join(format!(
        "fencepost-chaos-seed-{}-{}.jsonl",
        plan.seed,
        std::process::id()
    ));
    let lines = lines.iter().map(|line| serde_json::to_string(line).expect("a line") + "\n");
    fs::write(&path, lines.collect::<String>()).expect("the history is kept");
    println!("the history is in {}", path.display());
}

async fn torment(nemesis: &mut Nemesis, stage: &mut Stage, end: Instant) {
    let mut random = stage.plan.dice();
    let choices = Kind::choices(stage);
    // Early enough for something to happen afterwards.
    let failover = Instant::now() + (end - Instant::now()) / 3;
    let mut due = fails_over(stage.plan.standby());
    let mut opening = Kind::opening(stage);
    while Instant::now() < end {
        // How long it is fair, and then foul, is a part of the plan.
        tokio::time::sleep(Duration::from_millis(random.u64(200..900))).await;
        let mut kinds = vec![choices[random.usize(..choices.len())]];
        if random.bool() {
            let second = choices[random.usize(..choices.len())];
            if kinds[0].goes_with(second) {
                kinds.push(second);
            }
        }
        if !opening.is_empty() {
            kinds = std::mem::take(&mut opening);
        }
        if due && Instant::now() > failover {
            due = false;
            kinds = vec![Kind::FailOver];
        }
        for kind in &kinds {
            nemesis.strike(*kind, stage, &mut random).await;
        }
        tokio::time::sleep(Duration::from_millis(random.u64(300..2_500))).await;
        nemesis.heal(stage).await;
    }
}

/// Kills the clients with all that they hold, and does what must succeed now.
async fn finish(stage: &mut Stage) -> Vec<Line> {
    let lines: Vec<_> = stage.clients.drain(..).flat_map(crate::client::Client::end).collect();
    let recorder = Recorder::in_memory();
    let service = Fenceposts::new(stage.addresses(), 0);
    // Links may need a moment to notice that all is well again.
    for address in stage.addresses() {
        let one = Fenceposts::new(vec![address], 0);
        eventually("the fencepost serves", || async { is_well(&one).await }).await;
    }
    let terms = Terms { wait_ms: PASSING_ON, ttl_ms: 30_000, ..TERMS };
    settle(&mut Worker::new("last", &service, &recorder, terms, 0)).await;
    stage.learn_floor().await;
    [lines, recorder.take()].concat()
}

/// Whether it has found its store and its lock service again.
async fn is_well(service: &Fenceposts) -> bool {
    use crate::history::Request;
    let lock = "is-it-well".to_owned();
    let request = Request::Acquire { lock: lock.clone(), ttl_ms: 1_000, wait_ms: 1_000 };
    let Outcome::Granted { token } = service.send(0, &request).await else { return false };
    matches!(service.send(0, &Request::Release { lock, token }).await, Outcome::Done(_))
}

pub fn judge(history: &History) -> Played {
    let mut result = Played::default();
    for op in &history.ops {
        let outcome = match op.outcome {
            Outcome::Done(_) | Outcome::Granted { .. } => "ok",
            Outcome::Refused { .. } => "refused",
            Outcome::NotApplied { .. } => "not applied",
            Outcome::Unknown { .. } => "unknown",
        };
        *result.operations.entry(outcome).or_default() += 1;
    }
    let mut findings = Findings(check::sweep(history));
    result.searched = linear::check(history, &mut findings);
    result.violations = findings.0;
    result
}
