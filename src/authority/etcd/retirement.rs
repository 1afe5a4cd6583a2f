//! Ends the leases of released locks, when it disturbs nobody.
//!
//! To end a lease costs etcd as much as to take a lock, and nobody waits for it: the lock's key has
//! gone already. So while locks are being taken it is done slowly, one lease at a time, and the rest
//! follows in the next quiet moment.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::{sync::mpsc, time::sleep};

use super::{leases::revoke, members::Members};
use crate::authority::AuthorityError;

/// How long the lease of a released lock lives on at least: meanwhile, a lock that was released can
/// be told from one that expired.
const REST: Duration = Duration::from_secs(1);

/// How often to look whether there is a quiet moment: one in which fewer locks than this were wanted.
const GLANCE: Duration = Duration::from_millis(100);
const QUIET_BELOW: u64 = 10;

/// How many are ended in a quiet moment, and how many of them at the same time.
const IN_A_QUIET_MOMENT: usize = 1000;
const AT_ONCE: usize = 32;

/// Beyond that, leases are left to end by themselves.
const MOST: usize = 100_000;

#[derive(Clone)]
pub struct Retirement {
    leases: mpsc::Sender<i64>,
    /// How many times somebody has wanted a lock.
    wanted: Arc<AtomicU64>,
}

impl Retirement {
    pub fn start(members: &Arc<Members>) -> Self {
        let (leases, retired) = mpsc::channel(MOST);
        let wanted = Arc::new(AtomicU64::new(0));
        tokio::spawn(end_them(members.clone(), retired, wanted.clone()));
        Self { leases, wanted }
    }

    /// Somebody is at work.
    pub fn make_way(&self) {
        self.wanted.fetch_add(1, Ordering::Relaxed);
    }

    pub fn enter(&self, lease: i64) {
        // If there is no room, it ends by itself as well.
        let _ = self.leases.try_send(lease);
    }
}

async fn end_them(members: Arc<Members>, mut retired: mpsc::Receiver<i64>, wanted: Arc<AtomicU64>) {
    let mut taken = Vec::new();
    while retired.recv_many(&mut taken, MOST).await > 0 {
        sleep(REST).await;
        while !taken.is_empty() {
            let before = wanted.load(Ordering::Relaxed);
            sleep(GLANCE).await;
            let quiet = wanted.load(Ordering::Relaxed) - before < QUIET_BELOW;
            let count = taken.len().min(if quiet { IN_A_QUIET_MOMENT } else { 1 });
            stream::iter(taken.drain(..count))
                .for_each_concurrent(AT_ONCE, |lease| {
                    let members = &members;
                    async move {
                        if let Err(trouble) = revoke(members, lease).await {
                            let error = AuthorityError::from(trouble);
                            tracing::debug!(%error, "lease not revoked; it ends by itself");
                        }
                    }
                })
                .await;
        }
    }
}
