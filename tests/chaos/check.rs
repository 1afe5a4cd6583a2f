//! Whether a history keeps what is promised.
//!
//! | | promise | shown by |
//! |---|---|---|
//! | I1 | no write is accepted after one with a higher token, for its key or scope | `marks`, `versions` |
//! | I2 | a mark never falls | `marks` |
//! | I3 | every accepted write is in the final state, or superseded | `versions` |
//! | I4 | one outcome for each request, and nothing "not applied" is ever seen | `outcomes` |
//! | I5 | what was answered is durable, and seen by everybody who asks later | `versions` |
//! | I6 | a holder's earlier write never overwrites its later one | `versions` |
//! | I7 | read-modify-write under a lock loses no acknowledged update | `chains` |
//! | I8 | grants of a lock have rising tokens, no token is granted twice, and none is believed that was not granted | `grants` |
//! | I9 | no verdict depends on a clock | `linear`: a register without one gives the same verdicts |
//! | I10 | a mark named in a refusal was once committed | `refusals` |
//! | L1 | once healed, the newest holder's write succeeds | `healed` |
//! | L2 | a dead holder's lock passes on | `healed` |
//! | L3 | no false refusal | `refusals` |
//! | L4 | a lock that is held is granted to nobody else while its lease lasts | `grants` |
//!
//! All but `linear` are sweeps over sorted events, for histories of any length. `linear` looks for an
//! order in which one register after the other would have given these very answers.

pub mod chains;
pub mod grants;
pub mod healed;
pub mod linear;
pub mod marks;
pub mod outcomes;
pub mod refusals;
pub mod sweep;
pub mod versions;

use std::fmt;

use crate::history::History;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    L1,
    L2,
    L3,
    L4,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub promise: Promise,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

/// What a check adds to.
#[derive(Debug, Default)]
pub struct Findings(pub Vec<Violation>);

impl Findings {
    pub fn add(&mut self, promise: Promise, what: impl Into<String>) {
        self.0.push(Violation { promise, what: what.into() });
    }
}

/// The sweeps. What a lossy takeover may have lost is nobody's promise; that marks and tokens rise
/// all the same is.
pub fn sweep(history: &History) -> Vec<Violation> {
    let mut findings = Findings::default();
    marks::check(history, &mut findings);
    grants::check(history, &mut findings);
    refusals::check(history, &mut findings);
    healed::check(history, &mut findings);
    let kept = history.since_the_last_loss();
    versions::check(&kept, &mut findings);
    outcomes::check(&kept, &mut findings);
    chains::check(&kept, &mut findings);
    findings.0
}
