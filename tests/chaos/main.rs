//! Breaks everything that can break around real processes, and checks what every client saw.
//!
//! `make test-chaos` for a short run, `make chaos MINUTES=30` for a long one, `make chaos SEED=7` to see
//! a round once more.
//!
//! | | |
//! |---|---|
//! | what clients saw | `history.rs` |
//! | what is promised, and the checks | `check.rs`, `check/`, `register.rs` |
//! | that the checks can fail | `bite.rs`, `bite/` |
//! | what clients do | `work.rs`, `work/`, `http.rs`, `client.rs` |
//! | too much of everything | `bounds.rs`, `full.rs` |
//! | round after round, and the report | `long.rs`, `report.rs`, `method.md` |
//! | what goes wrong, on which stage | `plan.rs`, `stage.rs`, `kind.rs`, `faults.rs`, `round.rs` |
//! | a network, disks and clocks to break | `world.rs`, `network.rs`, `disk.rs`, `clock.rs` |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod bite;
mod bounds;
mod check;
mod client;
mod clock;
mod faults;
mod full;
mod history;
mod http;
mod kind;
mod long;
mod network;
mod plan;
mod register;
mod report;
mod round;
mod stage;
mod work;
mod world;

#[allow(dead_code, unused_imports, unused_macros, clippy::unused_async)] // A tool box of the tests.
#[path = "../it"]
mod it {
    pub mod harness;
}

use std::{process::ExitCode, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::{check::Promise, plan::Plan, round::Trouble};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, orders] = arguments.as_slice()
        && role == client::ROLE
    {
        runtime().block_on(client::work(orders));
        return ExitCode::SUCCESS;
    }
    world::enter();
    if arguments.get(1).is_some_and(|argument| argument == "long") {
        return runtime().block_on(long::run());
    }
    let mut arguments = Arguments::from_args();
    // A round has a dozen processes, and wants the machine for itself.
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

/// Each with another plan: see `plan.rs`. Those that once found something stay.
const SEEDS: [u64; 6] = [0, 1, 5, 8, 11, 102];

fn trials() -> Vec<Trial> {
    let mut trials = vec![trial("bite::a_sound_store_passes", bite::a_sound_store_passes)];
    for (flaw, promises) in bite::CAUGHT {
        let name = format!("bite::{flaw:?}_breaks_{promises:?}");
        trials.push(trial(&name, move || bite::is_caught(flaw, promises)));
        if flaw.changes_an_answer() {
            let name = format!("bite::{flaw:?}_has_no_order");
            trials.push(trial(&name, move || bite::has_no_order(flaw)));
        }
    }
    trials.push(trial("round::calm", || {
        short(Plan::of(0), Duration::from_secs(3), Trouble::Nothing)
    }));
    for seed in SEEDS {
        let name = format!("round::seed_{seed}");
        trials.push(trial(&name, move || {
            short(Plan::of(seed), Duration::from_secs(10), Trouble::Faults)
        }));
    }
    for (name, sql, promise) in SABOTAGE {
        let name = format!("bite::real_{name}_breaks_{promise:?}");
        trials.push(trial(&name, move || is_found_out(sql, promise)));
    }
    trials.push(trial("full::sqlite", full::sqlite));
    trials.push(trial("full::postgres", full::postgres));
    trials.push(trial("bounds::short", within_bounds));
    trials
}

/// What somebody with all rights could do to the real store, past its triggers.
const SABOTAGE: [(&str, &str, Promise); 2] = [
    (
        "lowered_mark",
        "ALTER TABLE fencepost.resources DISABLE TRIGGER USER;
         UPDATE fencepost.resources SET token = greatest(token - 20, 0), seq = 0",
        Promise::I2,
    ),
    (
        "forgotten_write",
        "ALTER TABLE fencepost.resources DISABLE TRIGGER USER;
         UPDATE fencepost.resources SET version = version - 1 WHERE version > 1",
        Promise::I3,
    ),
];

/// The same work, the same checks, on real servers that somebody tampers with.
async fn is_found_out(sql: &'static str, promise: Promise) -> Result<(), String> {
    let played = round::play(Plan::of(2), Duration::from_secs(4), Trouble::Sabotage(sql)).await;
    let found: Vec<String> = played.violations.iter().take(8).map(ToString::to_string).collect();
    if played.violations.iter().any(|violation| violation.promise == promise) {
        return Ok(());
    }
    Err(format!("{promise:?} should be broken; found {found:#?}"))
}

async fn within_bounds() -> Result<(), String> {
    let bounds = bounds::measure(bounds::SHORT).await;
    println!("{bounds}");
    if bounds.complaints.is_empty() { Ok(()) } else { Err(bounds.complaints.join("\n")) }
}

async fn short(plan: Plan, time: Duration, trouble: Trouble) -> Result<(), String> {
    let played = round::play(plan, time, trouble).await;
    println!("{plan}: {:?}, {:?}, {:?}", played.operations, played.faults, played.searched);
    if played.violations.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = played.violations.iter().take(20).map(ToString::to_string).collect();
    Err(format!("{plan}: {} violations\n{}", played.violations.len(), told.join("\n")))
}

fn trial<F>(name: &str, test: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<(), String>>,
{
    Trial::test(name, move || runtime().block_on(test()).map_err(Failed::from))
}
