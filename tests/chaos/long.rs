//! `make chaos`: round after round for as long as was asked for, then the bounds, then the report.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use crate::{
    bounds::{self, Bounds},
    kind::Kind,
    plan::Plan,
    report,
    round::{self, Played, Trouble},
};

const MINUTES: u64 = 10;
const ROUND: Duration = Duration::from_secs(45);

/// What all rounds together have come to.
#[derive(Default)]
pub struct Tally {
    pub rounds: usize,
    pub first_seed: u64,
    pub operations: BTreeMap<&'static str, usize>,
    pub faults: BTreeMap<Kind, usize>,
    pub groups: usize,
    pub undecided: usize,
    pub bounds: Option<Bounds>,
    /// With the seed of the round.
    pub violations: Vec<(u64, String)>,
    pub time: Duration,
}

pub async fn run() -> ExitCode {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (minutes, seed) = (number("MINUTES"), number("SEED"));
    let start = Instant::now();
    let first_seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let mut tally = Tally { first_seed, ..Tally::default() };
    // A seed alone means that round, once more.
    let once = seed.is_some() && minutes.is_none();
    let end = start + Duration::from_secs(60 * minutes.unwrap_or(MINUTES));
    while tally.rounds == 0 || (!once && Instant::now() < end) {
        let plan = Plan::of(first_seed + tally.rounds as u64);
        say(&format!("{:>5} s  {plan}: ", start.elapsed().as_secs()));
        let played = round::play(plan, ROUND, Trouble::Faults).await;
        tally.add(plan, played);
    }
    if !once {
        println!(
            "bounds: idle and slow connections, a full queue, a locked table, ten million keys"
        );
        let bounds = bounds::measure(bounds::LONG).await;
        tally.violations.extend(bounds.complaints.iter().map(|what| (0, what.clone())));
        tally.bounds = Some(bounds);
        tally.time = start.elapsed();
        report::write(&tally);
    }
    for (seed, violation) in tally.violations.iter().take(40) {
        println!("SEED={seed}: {violation}");
    }
    println!("{} rounds, {} violations", tally.rounds, tally.violations.len());
    if tally.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Tally {
    fn add(&mut self, plan: Plan, played: Played) {
        let operations: usize = played.operations.values().sum();
        let faults: usize = played.faults.values().sum();
        let found = played.violations.len();
        println!("{operations} operations, {faults} faults, {found} violations");
        self.rounds += 1;
        for (outcome, count) in played.operations {
            *self.operations.entry(outcome).or_default() += count;
        }
        for (kind, count) in played.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.groups += played.searched.groups;
        self.undecided += played.searched.undecided;
        let told = played.violations.iter().map(|violation| (plan.seed, violation.to_string()));
        self.violations.extend(told);
    }
}

fn say(text: &str) {
    print!("{text}");
    let _ = std::io::stdout().flush();
}
