//! Which locks are believed to be held through this process, for the metrics and for the limit of
//! locks, and for nothing else.
//!
//! A grant counts from its handover, or from a renewal that came here, until it is released, found
//! lost, or its lease has run out unrenewed. Each ends once. Nothing is decided by it: who holds a
//! lock is the authority's to say.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    authority::Grant,
    limits::Place,
    metrics::{LockMetrics, Metrics},
    token::{Key, Token},
};

/// Few enough to look through at any time.
const FEW: usize = 1024;

#[derive(Clone)]
pub struct Held {
    metrics: Arc<Metrics>,
    leases: Arc<Mutex<Leases>>,
}

struct Leases {
    ends: HashMap<(Key, Token), Lease>,
    /// How many there may be before those that have run out are swept away, scraped or not.
    sweep_at: usize,
}

struct Lease {
    end: Instant,
    /// What it takes of the limit of locks, if it was granted here.
    _place: Option<Place>,
}

/// Somebody who waits for a lock, for as long as this lives.
pub struct Waiting<'a> {
    held: &'a Held,
    since: Instant,
}

impl Held {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        let leases = Leases { ends: HashMap::new(), sweep_at: FEW };
        Self { metrics, leases: Arc::new(Mutex::new(leases)) }
    }

    pub fn waiting(&self) -> Waiting<'_> {
        self.metrics().waiters.inc();
        Waiting { held: self, since: Instant::now() }
    }

    /// `answer` as the authority gave it to a renewal that was asked for at `asked`.
    pub fn renewed(&self, name: &Key, token: Token, asked: Instant, answer: Option<Duration>) {
        match answer {
            Some(ttl) => self.goes_on(name, token, asked + ttl, None),
            None => self.ended(name, token, false),
        }
    }

    /// `released`: the grant held the lock until now. If its lease is over by our own clock, its
    /// holder has been told that it is lost, all the same.
    pub fn ended(&self, name: &Key, token: Token, released: bool) {
        self.change(|leases| {
            let lease = leases.ends.remove(&(name.clone(), token));
            usize::from(lease.is_some_and(|lease| !released || lease.end <= Instant::now()))
        });
    }

    /// Takes note of the leases that have run out meanwhile.
    pub fn look(&self) {
        self.change(Leases::sweep);
    }

    fn goes_on(&self, name: &Key, token: Token, end: Instant, place: Option<Place>) {
        self.change(|leases| {
            let new = Lease { end, _place: place };
            leases
                .ends
                .entry((name.clone(), token))
                .and_modify(|lease| lease.end = end)
                .or_insert(new);
            if leases.ends.len() < leases.sweep_at {
                return 0;
            }
            let lost = leases.sweep();
            // Only after as many again, so that each costs little.
            leases.sweep_at = FEW.max(leases.ends.len() * 2);
            lost
        });
    }

    /// `change` says how many locks were lost.
    fn change(&self, change: impl FnOnce(&mut Leases) -> usize) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = change(&mut leases);
        self.metrics().lost.inc_by(lost as u64);
        self.metrics().held.set(i64::try_from(leases.ends.len()).unwrap_or(i64::MAX));
    }

    fn metrics(&self) -> &LockMetrics {
        &self.metrics.locks
    }
}

impl Leases {
    fn sweep(&mut self) -> usize {
        let (before, now) = (self.ends.len(), Instant::now());
        self.ends.retain(|_, lease| lease.end > now);
        before - self.ends.len()
    }
}

impl Waiting<'_> {
    /// The lock is theirs, and claimed.
    pub fn granted(self, grant: &Grant, place: Place) {
        let metrics = self.held.metrics();
        metrics.grants.inc();
        metrics.wait.observe(self.since.elapsed().as_secs_f64());
        let end = grant.renewed + grant.ttl;
        self.held.goes_on(&grant.name, grant.token, end, Some(place));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.held.metrics().waiters.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits::{Bounds, Limits},
        metrics::Limited,
    };

    fn held() -> (Held, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::new(true, Arc::default()));
        (Held::new(metrics.clone()), metrics)
    }

    fn grant(token: i64, ttl: Duration) -> Grant {
        Grant {
            name: Key::new("lock").unwrap(),
            token: Token::new(token).unwrap(),
            owner: String::new(),
            ttl,
            lease: String::new(),
            renewed: Instant::now(),
        }
    }

    fn place() -> Place {
        let metrics = Arc::new(Metrics::new(true, Arc::default()));
        Limits::new(Bounds::default(), None, metrics).place(Limited::Locks, None).unwrap()
    }

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn a_release_is_no_loss_and_a_loss_is_counted_once() {
        let (held, metrics) = held();
        let (first, second) = (grant(1, TTL), grant(2, TTL));
        for grant in [&first, &second] {
            held.waiting().granted(grant, place());
        }
        assert_eq!((metrics.locks.held.get(), metrics.locks.grants.get()), (2, 2));
        held.ended(&first.name, first.token, true);
        assert_eq!((metrics.locks.held.get(), metrics.locks.lost.get()), (1, 0));
        for _ in 0..3 {
            held.renewed(&second.name, second.token, Instant::now(), None);
        }
        assert_eq!((metrics.locks.held.get(), metrics.locks.lost.get()), (0, 1));
    }

    #[test]
    fn a_lease_that_runs_out_is_lost_unless_it_was_renewed() {
        let (held, metrics) = held();
        let (first, second) = (grant(1, Duration::ZERO), grant(2, Duration::ZERO));
        for grant in [&first, &second] {
            held.waiting().granted(grant, place());
        }
        held.renewed(&first.name, first.token, Instant::now(), Some(TTL));
        held.look();
        assert_eq!((metrics.locks.held.get(), metrics.locks.lost.get()), (1, 1));
    }

    #[test]
    fn a_grant_of_another_process_counts_from_its_renewal_here() {
        let (held, metrics) = held();
        let elsewhere = grant(1, TTL);
        held.ended(&elsewhere.name, elsewhere.token, false);
        assert_eq!(metrics.locks.lost.get(), 0, "it was never here");
        held.renewed(&elsewhere.name, elsewhere.token, Instant::now(), Some(TTL));
        assert_eq!(metrics.locks.held.get(), 1);
    }

    #[test]
    fn whoever_waits_is_counted_until_they_give_up() {
        let (held, metrics) = held();
        let waiting = held.waiting();
        assert_eq!(metrics.locks.waiters.get(), 1);
        drop(waiting);
        assert_eq!(metrics.locks.waiters.get(), 0);
    }

    #[test]
    fn what_nobody_scrapes_does_not_pile_up() {
        let (held, metrics) = held();
        for token in 1..=10_000 {
            held.waiting().granted(&grant(token, Duration::ZERO), place());
        }
        assert!(usize::try_from(metrics.locks.held.get()).unwrap() <= FEW);
    }
}
