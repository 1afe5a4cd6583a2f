//! The checker bites: stores that are broken on purpose, one way each, do the same work as the real
//! one, and each is found out by the promise that it breaks. The same store without a flaw passes.

pub mod broken;

use fastrand::Rng;

use self::broken::{Broken, Flaw};
use crate::{
    check::{self, Findings, Promise, Violation, linear},
    history::{History, Recorder},
    work::{Terms, Worker, settle},
};

const WORKERS: u64 = 5;
const TURNS: usize = 60;

/// What each flaw must be caught by.
pub const CAUGHT: [(Flaw, &[Promise]); 27] = [
    (Flaw::NoFence, &[Promise::I1, Promise::I2, Promise::I7]),
    (Flaw::ScopeIgnored, &[Promise::I1]),
    (Flaw::MarkResetOnDelete, &[Promise::I1, Promise::I2]),
    (Flaw::MarkExpires, &[Promise::I2]),
    (Flaw::AnsweredBeforeCommit, &[Promise::I3, Promise::I5]),
    (Flaw::BatchDropped, &[Promise::I3, Promise::I5]),
    (Flaw::BatchHalfDone, &[Promise::I4]),
    (Flaw::RefusedButApplied, &[Promise::I4]),
    (Flaw::AppliedTwice, &[Promise::I4, Promise::I6]),
    (Flaw::StaleRead, &[Promise::I5]),
    (Flaw::VersionRepeated, &[Promise::I3]),
    (Flaw::SeqIgnored, &[Promise::I6]),
    (Flaw::ReadDoesNotClaim, &[Promise::I7]),
    (Flaw::TokenReused, &[Promise::I8]),
    (Flaw::MarkFromHeader, &[Promise::I10]),
    (Flaw::FalseRefusal, &[Promise::L3]),
    (Flaw::LockNeverPassesOn, &[Promise::L2]),
    (Flaw::OldMarkNamed, &[Promise::I2]),
    (Flaw::SeqReuseBelieved, &[Promise::I3]),
    (Flaw::PreconditionIgnored, &[Promise::I7]),
    (Flaw::PreconditionFirst, &[Promise::I1]),
    (Flaw::ForgeryBelieved, &[Promise::I8]),
    (Flaw::LostLockRenewed, &[Promise::I8]),
    (Flaw::LostLockReleased, &[Promise::I8]),
    (Flaw::LockGrantedTwice, &[Promise::L4]),
    (Flaw::FloorStays, &[Promise::I2]),
    (Flaw::SilentLoss, &[Promise::I3, Promise::I5]),
];

/// A whole run against a store with this flaw: always the same for one seed.
pub async fn history(flaw: Option<Flaw>, takeover: Option<bool>, seed: u64) -> History {
    let takeover = match flaw {
        Some(Flaw::FloorStays) => Some(true),
        Some(Flaw::SilentLoss) => Some(false),
        _ => takeover,
    };
    let store = Broken::new(flaw, takeover, seed);
    let recorder = Recorder::in_memory();
    let terms = Terms { locks: 2, ttl_ms: 40, wait_ms: 200, pause_ms: 6 };
    let mut random = Rng::with_seed(seed);
    let workers = (0..WORKERS).map(|number| {
        let name = format!("w{number}");
        let mut worker = Worker::new(&name, &store, &recorder, terms, random.u64(..));
        async move {
            for _ in 0..TURNS {
                worker.turn().await;
            }
        }
    });
    futures_util::future::join_all(workers).await;
    store.heal();
    let mut last = Worker::new("last", &store, &recorder, terms, seed);
    settle(&mut last).await;
    let mut history = History::of(recorder.take());
    history.takeovers = store.takeovers();
    history
}

/// A flaw shows itself sooner or later. With ever new seeds, it must be sooner.
pub async fn is_caught(flaw: Flaw, promises: &[Promise]) -> Result<(), String> {
    let mut found: Vec<Violation> = Vec::new();
    for seed in 0..12 {
        found.extend(check::sweep(&history(Some(flaw), None, seed).await));
        if promises.iter().all(|promise| found.iter().any(|it| it.promise == *promise)) {
            return Ok(());
        }
    }
    found.truncate(8);
    Err(format!("{flaw:?} should break {promises:?}; found {found:#?}"))
}

/// The search for an order finds every flaw that changes an answer, whatever else does.
pub async fn has_no_order(flaw: Flaw) -> Result<(), String> {
    for seed in 0..12 {
        let mut findings = Findings::default();
        linear::check(&history(Some(flaw), None, seed).await, &mut findings);
        if !findings.0.is_empty() {
            return Ok(());
        }
    }
    Err(format!("{flaw:?} can be explained by some order"))
}

pub async fn a_sound_store_passes() -> Result<(), String> {
    for seed in 0..18 {
        // As it is, and with a standby that has everything, or not.
        let takeover = [None, Some(false), Some(true)][usize::try_from(seed % 3).unwrap_or(0)];
        let history = history(None, takeover, seed).await;
        let mut findings = Findings(check::sweep(&history));
        let searched = linear::check(&history, &mut findings);
        if let Some(violation) = findings.0.first() {
            return Err(format!("seed {seed}: {violation}"));
        }
        if searched.undecided > 0 {
            return Err(format!("seed {seed}: {searched:?}"));
        }
    }
    Ok(())
}
