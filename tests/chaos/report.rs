//! `docs/proof.md`: what the latest long run was, and what came of it.

use std::{fmt::Write as _, fs};

use crate::long::Tally;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/proof.md");

/// What does not change from run to run.
const METHOD: &str = include_str!("method.md");

pub fn write(tally: &Tally) {
    fs::write(PATH, page(tally)).expect("the report is written");
    println!("written to {PATH}");
}

fn page(tally: &Tally) -> String {
    let mut page = format!("{METHOD}\n## The latest long run\n\n");
    let minutes = tally.time.as_secs() / 60;
    let last = tally.first_seed + tally.rounds as u64 - 1;
    let seeds = format!("{} to {last}", tally.first_seed);
    let operations: usize = tally.operations.values().sum();
    let faults: usize = tally.faults.values().sum();
    let mut row = |name: &str, value: String| {
        writeln!(page, "| {name} | {value} |").expect("a line");
    };
    row("", String::new());
    row("---", "---".into());
    row("machine", machine());
    row("time", format!("{minutes} minutes, {} rounds", tally.rounds));
    row("seeds", seeds);
    row("operations", operations.to_string());
    for (outcome, count) in &tally.operations {
        row(&format!("… {outcome}"), count.to_string());
    }
    row("faults", faults.to_string());
    for (kind, count) in &tally.faults {
        row(&format!("… {kind}"), count.to_string());
    }
    let searched = format!("{}, of which given up: {}", tally.groups, tally.undecided);
    row("groups of keys searched for an order", searched);
    row("**violations**", format!("**{}**", tally.violations.len()));
    for (seed, violation) in tally.violations.iter().take(20) {
        writeln!(page, "\n- `SEED={seed}`: {violation}").expect("a line");
    }
    if let Some(bounds) = &tally.bounds {
        writeln!(page, "\n## Bounds\n\n{bounds}").expect("a line");
    }
    page
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, {} GiB, Linux {}", kib.unwrap_or(0) >> 20, kernel.trim())
}
