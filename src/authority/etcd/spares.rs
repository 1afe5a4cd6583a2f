//! Leases that were granted before they were needed.
//!
//! A lease costs etcd as much as the entry that hangs on it, and both are waited for. Where locks are
//! taken one after the other, the next one's lease is granted while the last one is in use. Each is
//! used once, as every lease is, and only while it is almost new; else it is retired.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::leases::{Lease, Leases};

/// Where so many leases in a row were each asked for this soon after the last, more are expected.
const SOON: Duration = Duration::from_millis(100);
const MANY: u32 = 8;

/// How many kinds of leases, by their length, may have a spare.
const MOST_KINDS: usize = 16;

/// A spare that has lost more than this share of its time is no longer as good as a new one, and one
/// that nobody took for so long is not needed.
const SHARE: u32 = 20;
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Clone, Default)]
pub struct Spares {
    /// By how long they last.
    kinds: Arc<Mutex<HashMap<Duration, Kind>>>,
}

struct Kind {
    asked: Instant,
    in_a_row: u32,
    spare: Spare,
}

enum Spare {
    None,
    /// It is being granted.
    Ordered,
    Ready(Lease),
}

impl Spares {
    /// A spare lease that lasts for as long as this one is to.
    pub fn take(&self, ttl: Duration) -> Option<Lease> {
        let mut kinds = self.lock();
        let kind = kinds.get_mut(&ttl)?;
        match std::mem::replace(&mut kind.spare, Spare::None) {
            Spare::Ready(lease) if is_fresh(&lease) => Some(lease),
            // Whoever keeps it in mind retires it.
            other => {
                kind.spare = other;
                None
            }
        }
    }

    /// Sees to it that the next one who asks finds a spare, if somebody is likely to ask.
    pub fn prepare(&self, ttl: Duration, leases: &Leases) {
        if !self.is_wanted(ttl) {
            return;
        }
        let (spares, leases) = (self.clone(), leases.clone());
        tokio::spawn(async move {
            let Ok(lease) = leases.grant_new(ttl).await else {
                spares.put(ttl, Spare::None);
                return;
            };
            spares.put(ttl, Spare::Ready(lease));
            sleep(shelf_life(ttl)).await;
            if spares.withdraw(ttl, lease.id) {
                leases.revoke_later(lease.id);
            }
        });
    }

    fn is_wanted(&self, ttl: Duration) -> bool {
        let now = Instant::now();
        let mut kinds = self.lock();
        if kinds.len() >= MOST_KINDS && !kinds.contains_key(&ttl) {
            kinds.retain(|_, kind| now - kind.asked < SOON || !matches!(kind.spare, Spare::None));
            if kinds.len() >= MOST_KINDS {
                return false;
            }
        }
        match kinds.get_mut(&ttl) {
            None => {
                kinds.insert(ttl, Kind { asked: now, in_a_row: 0, spare: Spare::None });
                false
            }
            Some(kind) => {
                let soon = now - std::mem::replace(&mut kind.asked, now) < SOON;
                kind.in_a_row = if soon { kind.in_a_row.saturating_add(1) } else { 0 };
                let wanted = kind.in_a_row >= MANY && matches!(kind.spare, Spare::None);
                if wanted {
                    kind.spare = Spare::Ordered;
                }
                wanted
            }
        }
    }

    fn put(&self, ttl: Duration, spare: Spare) {
        if let Some(kind) = self.lock().get_mut(&ttl) {
            kind.spare = spare;
        }
    }

    /// Whether the spare was still there.
    fn withdraw(&self, ttl: Duration, lease: i64) -> bool {
        let mut kinds = self.lock();
        let Some(kind) = kinds.get_mut(&ttl) else { return false };
        let there = matches!(&kind.spare, Spare::Ready(spare) if spare.id == lease);
        if there {
            kind.spare = Spare::None;
        }
        there
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Duration, Kind>> {
        self.kinds.lock().expect("no panic while it is held")
    }
}

fn is_fresh(lease: &Lease) -> bool {
    lease.renewed.elapsed() < shelf_life(lease.ttl)
}

fn shelf_life(ttl: Duration) -> Duration {
    (ttl / SHARE).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);
    const A_MOMENT: Duration = Duration::from_millis(1);

    fn lease(id: i64) -> Lease {
        Lease { id, ttl: TTL, renewed: Instant::now() }
    }

    /// Asks as often as it takes until the next one finds that more are expected.
    async fn ask_many(spares: &Spares) {
        for _ in 0..MANY {
            assert!(!spares.is_wanted(TTL));
            advance(SOON.saturating_sub(A_MOMENT)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_spare_is_wanted_once_after_many_in_a_row() {
        let spares = Spares::default();
        ask_many(&spares).await;
        assert!(spares.is_wanted(TTL));
        assert!(!spares.is_wanted(TTL), "one is being granted");
        spares.put(TTL, Spare::Ready(lease(7)));
        assert!(!spares.is_wanted(TTL), "one is there");
        spares.put(TTL, Spare::None);
        assert!(spares.is_wanted(TTL));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_begins_the_row_anew() {
        let spares = Spares::default();
        ask_many(&spares).await;
        advance(A_MOMENT).await;
        ask_many(&spares).await;
        assert!(spares.is_wanted(TTL));
    }

    #[tokio::test(start_paused = true)]
    async fn a_spare_is_taken_once_and_only_while_it_is_fresh() {
        let spares = Spares::default();
        assert!(spares.take(TTL).is_none());
        spares.is_wanted(TTL);
        assert!(spares.take(TTL).is_none());

        spares.put(TTL, Spare::Ready(lease(7)));
        assert!(spares.take(TTL * 2).is_none(), "of another length");
        advance(shelf_life(TTL).saturating_sub(A_MOMENT)).await;
        assert_eq!(spares.take(TTL).map(|lease| lease.id), Some(7));
        assert!(spares.take(TTL).is_none());

        spares.put(TTL, Spare::Ready(lease(8)));
        advance(shelf_life(TTL)).await;
        assert!(spares.take(TTL).is_none());
        assert!(spares.withdraw(TTL, 8), "it is left to whoever retires it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_spare_is_withdrawn_by_its_own_name() {
        let spares = Spares::default();
        assert!(!spares.withdraw(TTL, 7));
        spares.is_wanted(TTL);
        assert!(!spares.withdraw(TTL, 7));
        spares.put(TTL, Spare::Ready(lease(7)));
        assert!(!spares.withdraw(TTL, 6));
        assert!(spares.withdraw(TTL, 7));
        assert!(spares.take(TTL).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_kinds_are_kept_in_mind() {
        let spares = Spares::default();
        let kinds = || spares.lock().len();
        for seconds in 1..=MOST_KINDS as u64 {
            spares.is_wanted(Duration::from_secs(seconds));
        }
        // Those that are known go on as if there were fewer.
        for asked in 1..=MANY {
            assert_eq!(spares.is_wanted(Duration::from_secs(1)), asked == MANY);
        }
        advance(SOON.saturating_sub(A_MOMENT)).await;
        assert!(!spares.is_wanted(TTL));
        assert_eq!(kinds(), MOST_KINDS);
        assert!(!spares.lock().contains_key(&TTL));

        advance(A_MOMENT).await;
        assert!(!spares.is_wanted(TTL));
        assert!(spares.lock().contains_key(&TTL), "those that nobody asks for any more make room");
        assert!(spares.lock().contains_key(&Duration::from_secs(1)), "but not one with a spare");
        assert_eq!(kinds(), 2);
    }

    #[test]
    fn a_spare_keeps_for_a_small_share_of_its_time() {
        assert_eq!(shelf_life(Duration::from_secs(20)), Duration::from_secs(1));
        assert_eq!(shelf_life(Duration::from_mins(1)), LONGEST);
    }
}
