//! Which server this process uses, and which it has left.
//!
//! After a takeover the old primary may live on, and sessions that were opened before still reach it. So every
//! connection remembers the server that it was opened on. As soon as one connection of the process has reached
//! a newer server, no connection to another one is used again: what it is asked is refused before it is sent,
//! and an answer that arrives from it afterwards is not believed. A server that was left is not gone back to,
//! nor is a lower timeline of the same cluster.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex as AsyncMutex, watch},
    time::Instant,
};

use crate::store::{Settled, StoreError};

/// A process that is in use asks this often, by a new connection, which server it is led to.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

const DEPOSED: &str = "another server has taken over from the one that this session was opened on";

/// Cluster, timeline, database and a random part, as `fencepost.identify` writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity(String);

/// The servers that this process has met, and which of them is the current one.
pub struct KnownServers {
    /// Rises when another server takes over. A connection is good for as long as it stays.
    generation: AtomicU64,
    changed: watch::Sender<u64>,
    servers: Mutex<Servers>,
    /// Whether a connection was used since the last look.
    used: AtomicBool,
    looked_at: AsyncMutex<Option<Instant>>,
}

#[derive(Default)]
struct Servers {
    current: Option<ServerIdentity>,
    left: Vec<ServerIdentity>,
}

/// What a connection knows of the server that it was opened on.
#[derive(Clone)]
pub struct OpenedOn {
    servers: Arc<KnownServers>,
    generation: u64,
}

impl ServerIdentity {
    /// `None` for a text that could not be put into a statement as it is.
    pub fn new(name: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '/' || c == '-';
        name.chars().all(is_plain).then(|| Self(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The cluster's identifier and its timeline, where the server tells them.
    fn system_and_timeline(&self) -> Option<(&str, u32)> {
        let mut parts = self.0.split('/');
        let (system, timeline) = (parts.next()?, parts.next()?);
        // Two more follow: where the server tells neither, there is only one word in their place.
        (parts.count() == 2).then_some(())?;
        Some((system, u32::from_str_radix(timeline, 16).ok()?))
    }

    fn is_older_than(&self, other: &Self) -> bool {
        match (self.system_and_timeline(), other.system_and_timeline()) {
            (Some((system, timeline)), Some((other_system, other_timeline))) => {
                system == other_system && timeline < other_timeline
            }
            _ => false,
        }
    }
}

impl Servers {
    fn why_refused(&self, reached: &ServerIdentity) -> Option<StoreError> {
        let current = self.current.as_ref()?;
        if current == reached {
            return None;
        }
        let mut known = std::iter::once(current).chain(&self.left);
        let newer = known.find(|known| reached.is_older_than(known));
        let newer = newer.or_else(|| self.left.contains(reached).then_some(current))?;
        Some(refused(reached, newer))
    }
}

impl Default for KnownServers {
    fn default() -> Self {
        Self {
            generation: AtomicU64::new(0),
            changed: watch::Sender::new(0),
            servers: Mutex::default(),
            used: AtomicBool::new(false),
            looked_at: AsyncMutex::default(),
        }
    }
}

impl KnownServers {
    /// For a connection that has reached this server. If it is a newer one, all others are left for it.
    pub fn admit(self: &Arc<Self>, reached: &ServerIdentity) -> Result<OpenedOn, StoreError> {
        let mut servers = self.lock();
        if let Some(refused) = servers.why_refused(reached) {
            return Err(refused);
        }
        let Servers { current, left } = &mut *servers;
        if current.as_ref() != Some(reached)
            && let Some(deposed) = current.replace(reached.clone())
        {
            tracing::warn!(
                before = deposed.as_str(),
                here = reached.as_str(),
                "another database server has taken over; sessions on the old one are given up"
            );
            left.push(deposed);
            let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
            self.changed.send_replace(generation);
        }
        let generation = self.generation.load(Ordering::Acquire);
        Ok(OpenedOn { servers: self.clone(), generation })
    }

    /// What [`Self::admit`] would say, without leaving any server.
    pub fn why_refused(&self, reached: &ServerIdentity) -> Option<StoreError> {
        self.lock().why_refused(reached)
    }

    /// Whether this process has used a server.
    pub fn are_known(&self) -> bool {
        self.lock().current.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a connection was used since this was last asked.
    pub fn take_use(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Runs `look` unless another caller has lately done so. A caller that finds another looking waits for
    /// the end of that look, and is content with it: callers do not queue up for looks of their own. A look
    /// that is dropped before its end counts for nothing.
    pub async fn unless_just_looked(&self, look: impl Future<Output = ()>) {
        let mut looked_at = self.looked_at.lock().await;
        if looked_at.is_none_or(|at| at.elapsed() >= LOOK_INTERVAL) {
            look.await;
            *looked_at = Some(Instant::now());
        }
    }
}

impl OpenedOn {
    pub fn is_deposed(&self) -> bool {
        self.servers.generation.load(Ordering::Acquire) != self.generation
    }

    /// Returns when another server has taken over.
    pub async fn deposed(&self) {
        let mut changed = self.servers.changed.subscribe();
        // The sender lives as long as `self`.
        let _ = changed.wait_for(|generation| *generation != self.generation).await;
    }

    /// Before anything is sent.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.is_deposed() {
            return Err(deposed());
        }
        if !self.servers.used.load(Ordering::Relaxed) {
            self.servers.used.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

pub fn deposed() -> StoreError {
    StoreError::Unavailable(DEPOSED.into())
}

/// The old server may have carried it out, and may be the only one that ever knows.
pub fn unknown_since_deposed() -> StoreError {
    StoreError::Unknown(DEPOSED.into())
}

/// What became of a unit, as the old server tells it: nothing that can be relied on.
pub fn settled_by_deposed(settled: Result<Settled, StoreError>) -> Result<Settled, StoreError> {
    match settled {
        Ok(Settled::Applied { .. }) => Err(unknown_since_deposed()),
        // It compared with marks and versions that may be old. Asked again, the new server judges.
        Ok(Settled::Refused { .. }) => Err(deposed()),
        failed => failed,
    }
}

fn refused(reached: &ServerIdentity, newer: &ServerIdentity) -> StoreError {
    StoreError::Unfit(format!(
        "this Postgres ({}) is one that another has taken over from ({}); stop the old server and lead \
         --store to the new one. If the old one is to be used again, first raise its floor above every token that \
         the newer servers issued (`fencepost floor raise TOKEN`), then restart fencepost",
        reached.as_str(),
        newer.as_str()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::{Judgement, Refusal, Standing, Verdict};

    fn server(name: &str) -> ServerIdentity {
        ServerIdentity::new(name).expect("a plain name")
    }

    #[test]
    fn sessions_of_a_server_that_was_left_are_deposed() {
        let known = Arc::new(KnownServers::default());
        let old = known.admit(&server("7/00000001/5/a")).unwrap();
        let also_old = known.admit(&server("7/00000001/5/a")).unwrap();
        assert!(old.check().is_ok() && also_old.check().is_ok());
        let new = known.admit(&server("7/00000002/5/b")).unwrap();
        assert!(old.is_deposed() && also_old.is_deposed() && !new.is_deposed());
        assert!(matches!(old.check(), Err(StoreError::Unavailable(_))));
    }

    #[test]
    fn a_lower_timeline_and_a_server_that_was_left_are_refused() {
        let known = Arc::new(KnownServers::default());
        let refused = |name: &str| matches!(known.admit(&server(name)), Err(StoreError::Unfit(_)));
        known.admit(&server("7/00000001/5/a")).unwrap();
        known.admit(&server("7/0000000A/5/b")).unwrap();
        assert!(refused("7/00000009/5/c"), "timelines are hexadecimal");
        assert!(refused("7/00000001/5/a"));
        assert!(known.why_refused(&server("7/00000001/5/a")).is_some());
        assert!(known.why_refused(&server("7/0000000B/5/c")).is_none(), "it would be the next");
        assert!(known.why_refused(&server("7/0000000A/5/b")).is_none(), "and was only asked about");
        // Another standby that was promoted to the same timeline.
        known.admit(&server("7/0000000A/5/d")).unwrap();
        assert!(refused("7/0000000A/5/b"));
        // Another cluster; and the first one again, though by another database.
        let elsewhere = known.admit(&server("8/00000001/5/e")).unwrap();
        assert!(refused("7/00000009/6/f"));
        assert!(!elsewhere.is_deposed(), "a refused server deposes none");
    }

    #[test]
    fn servers_that_tell_nothing_are_told_apart_by_their_random_part() {
        let known = Arc::new(KnownServers::default());
        let first = known.admit(&server("unknown/5/a")).unwrap();
        assert!(!known.admit(&server("unknown/5/a")).unwrap().is_deposed());
        known.admit(&server("unknown/5/b")).unwrap();
        assert!(first.is_deposed());
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_a_look_that_takes_long() {
        let known = KnownServers::default();
        let looks = std::cell::Cell::new(0);
        let look = || async {
            looks.set(looks.get() + 1);
            tokio::time::sleep(LOOK_INTERVAL * 5).await;
        };
        let looking = || known.unless_just_looked(look());
        tokio::join!(looking(), looking(), looking());
        assert_eq!(looks.get(), 1);
        tokio::time::sleep(LOOK_INTERVAL).await;
        // The caller gives up on this one. The next must not rely on it.
        assert!(tokio::time::timeout(LOOK_INTERVAL, looking()).await.is_err());
        looking().await;
        assert_eq!(looks.get(), 3);
    }

    #[test]
    fn only_plain_names_go_into_statements() {
        assert_eq!(ServerIdentity::new("7/00000001/5/a'; DROP"), None);
        let name = "7312/00000001/16384/0b5f0c2e-7d0c-4b5e-9d6c-0a4f5f0e7c11";
        assert_eq!(server(name).as_str(), name);
    }

    #[test]
    fn a_deposed_server_settles_nothing() {
        let key = Standing::default();
        let judged = |verdict| Judgement { verdict, ..Judgement::accepted(key) };
        let applied = Settled::Applied { judgements: vec![judged(Verdict::Accepted)], value: None };
        let refused =
            Settled::Refused { index: 0, judgement: judged(Verdict::Refused(Refusal::Stale)) };
        assert!(matches!(settled_by_deposed(Ok(applied)), Err(StoreError::Unknown(_))));
        assert!(matches!(settled_by_deposed(Ok(refused)), Err(StoreError::Unavailable(_))));
        assert!(matches!(settled_by_deposed(Err(StoreError::Busy)), Err(StoreError::Busy)));
    }
}
