//! How long and how often is measured.

use std::time::Duration;

pub struct Plan {
    pub quick: bool,
    /// Each contender runs once in each round.
    pub rounds: usize,
    pub growth_rounds: usize,
    /// What is thrown away at the beginning of a run, and what is measured after it.
    pub warm: Duration,
    pub run: Duration,
    /// How many keys there are where growth is looked at.
    pub sizes: &'static [u64],
    pub connections: &'static [usize],
    pub starts: usize,
}

/// How many keys there are everywhere else.
pub const KEYS: u64 = 100_000;

/// Clients of the charts.
pub const CONCURRENCY: [usize; 4] = [1, 16, 64, 256];

impl Plan {
    pub fn of_the_environment() -> Self {
        if std::env::var_os("QUICK").is_some_and(|quick| !quick.is_empty()) {
            Self::quick()
        } else {
            Self {
                quick: false,
                rounds: 5,
                growth_rounds: 3,
                warm: Duration::from_millis(500),
                run: Duration::from_millis(2500),
                sizes: &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
                connections: &[1, 10, 100, 1000],
                starts: 11,
            }
        }
    }

    pub fn quick() -> Self {
        Self {
            quick: true,
            rounds: 3,
            growth_rounds: 1,
            warm: Duration::from_millis(100),
            run: Duration::from_millis(400),
            sizes: &[1_000, 10_000, 100_000],
            connections: &[1, 1000],
            starts: 5,
        }
    }
}
