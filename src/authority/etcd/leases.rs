//! Leases: one for each grant and each waiter, so that whoever dies leaves nothing for longer than
//! its lease lasts.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use etcd_client::LeaseGrantOptions;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use super::{
    members::{Members, PATIENCE},
    retirement::Retirement,
    spares::Spares,
    trouble::Trouble,
};
use crate::authority::AuthorityError;

/// Entries that were given up while etcd did not answer. As long as they are in a queue, they are
/// in somebody's way, so they are worth more than one attempt.
const MOST_ABANDONED: usize = 10_000;
const TRY_AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub struct Lease {
    pub id: i64,
    /// As etcd granted it: whole seconds, and not less than its own minimum.
    pub ttl: Duration,
    /// The moment before it was last renewed.
    pub renewed: Instant,
}

/// What is left of a lease, and how much it was granted.
#[derive(Clone, Copy, Debug)]
pub struct TimeLeft {
    pub remaining: Duration,
    pub ttl: Duration,
}

#[derive(Clone)]
pub struct Leases {
    members: Arc<Members>,
    spares: Spares,
    retirement: Retirement,
    abandoned: Arc<Semaphore>,
}

impl Leases {
    pub fn start(members: &Arc<Members>) -> Self {
        let abandoned = Arc::new(Semaphore::new(MOST_ABANDONED));
        Self {
            members: members.clone(),
            spares: Spares::default(),
            retirement: Retirement::start(members),
            abandoned,
        }
    }

    /// A lease that nobody has used yet.
    pub async fn grant(&self, ttl: Duration) -> Result<Lease, Trouble> {
        self.retirement.make_way();
        match self.spares.take(ttl) {
            Some(spare) => Ok(spare),
            None => self.grant_new(ttl).await,
        }
    }

    /// To be called once a lease of this length is in use: the next one may be asked for soon.
    pub fn prepare(&self, ttl: Duration) {
        self.spares.prepare(ttl, self);
    }

    pub(super) async fn grant_new(&self, ttl: Duration) -> Result<Lease, Trouble> {
        // The name is ours to choose, so that a grant whose answer was lost can be asked for again.
        let id = fresh_id();
        let seconds = i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        let renewed = Instant::now();
        let repeated = AtomicBool::new(false);
        let granted = self
            .members
            .ask(PATIENCE, |mut client| {
                let again = repeated.swap(true, Ordering::Relaxed);
                async move {
                    let options = LeaseGrantOptions::new().with_id(id);
                    match client.lease_grant(seconds, Some(options)).await.map_err(Trouble::from) {
                        Err(Trouble::LeaseExists) if again => Ok::<_, Trouble>(
                            client.lease_time_to_live(id, None).await?.granted_ttl(),
                        ),
                        granted => Ok(granted?.ttl()),
                    }
                }
            })
            .await?;
        Ok(Lease { id, ttl: seconds_of(granted), renewed })
    }

    /// `false`: there is no such lease any more.
    pub async fn keep_alive(&self, id: i64, patience: Duration) -> Result<bool, Trouble> {
        let kept = self
            .members
            .ask(patience, |mut client| async move { client.lease_keep_alive(id).await.map(drop) })
            .await;
        match kept {
            Ok(()) => Ok(true),
            Err(Trouble::NoSuchLease) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// `None`: there is no such lease any more.
    pub async fn time_left(&self, id: i64) -> Result<Option<TimeLeft>, Trouble> {
        let left = self
            .members
            .ask(PATIENCE, |mut client| async move { client.lease_time_to_live(id, None).await })
            .await;
        match left {
            Ok(left) if left.ttl() < 0 => Ok(None),
            Ok(left) => Ok(Some(TimeLeft {
                remaining: seconds_of(left.ttl()),
                ttl: seconds_of(left.granted_ttl()),
            })),
            Err(Trouble::NoSuchLease) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// Ends a lease, and with it the key that hangs on it.
    pub async fn revoke(&self, id: i64) -> Result<(), Trouble> {
        revoke(&self.members, id).await
    }

    /// Ends the lease of an entry that may still be in a queue: at once, and if etcd does not
    /// answer, as soon as it does. After its time the lease has ended by itself.
    pub fn abandon(&self, lease: Lease) {
        let Ok(permit) = self.abandoned.clone().try_acquire_owned() else {
            self.revoke_later(lease.id);
            return;
        };
        let members = self.members.clone();
        // A renewal may be under way whose answer was lost.
        let over = Instant::now() + lease.ttl + PATIENCE;
        tokio::spawn(async move {
            while let Err(trouble) = revoke(&members, lease.id).await {
                if Instant::now() >= over {
                    let error = AuthorityError::from(trouble);
                    tracing::debug!(%error, "lease not revoked; it ends by itself");
                    break;
                }
                sleep(TRY_AGAIN).await;
            }
            drop(permit);
        });
    }

    /// Ends a lease soon. If this process ends before that, the lease still ends with its time.
    pub fn revoke_later(&self, id: i64) {
        self.retirement.enter(id);
    }
}

pub(super) async fn revoke(members: &Members, id: i64) -> Result<(), Trouble> {
    let revoked =
        members.ask(PATIENCE, |mut client| async move { client.lease_revoke(id).await }).await;
    match revoked {
        Ok(_) | Err(Trouble::NoSuchLease) => Ok(()),
        Err(trouble) => Err(trouble),
    }
}

/// A name for a lease that no other has: 63 bits that nobody can foresee.
fn fresh_id() -> i64 {
    let random = RandomState::new().hash_one(Instant::now());
    i64::try_from(random >> 1).unwrap_or(i64::MAX).max(1)
}

fn seconds_of(seconds: i64) -> Duration {
    Duration::from_secs(seconds.max(0).unsigned_abs())
}
