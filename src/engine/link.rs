//! A task's own session with the store: opened when it is needed, and again after it was lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::succession::Succession;
use crate::{
    sparse_log::SparseLog,
    store::{Outage, Session, Store, StoreError, Takeover},
};

/// A session that has rested for longer is tried before it is used, and so is one after another was
/// lost: if the database was restarted meanwhile, that costs a reconnect instead of an unknown outcome.
const RESTED: Duration = Duration::from_secs(1);

/// How many sessions were lost, by whichever task. What has ended one may have ended them all.
#[derive(Default)]
pub struct Losses(AtomicUsize);

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Many keys share it, so it waits for no row.
    Shared,
    /// It may wait.
    Patient,
    /// It reads keys, and may wait.
    Reading,
}

pub struct Link {
    store: Arc<dyn Store>,
    purpose: Purpose,
    session: Option<Box<dyn Session>>,
    last_used: Instant,
    /// As many as there were when this session was last known to be well.
    losses_known: usize,
    losses: Arc<Losses>,
    outage: Option<Outage>,
    succession: Arc<Succession>,
}

impl Link {
    pub fn new(
        store: Arc<dyn Store>,
        purpose: Purpose,
        succession: Arc<Succession>,
        losses: Arc<Losses>,
    ) -> Self {
        let last_used = Instant::now();
        let (session, outage, losses_known) = (None, None, 0);
        Self { store, purpose, session, last_used, losses_known, losses, outage, succession }
    }

    /// The session, connecting if there is none. During an outage most callers are answered at
    /// once, and one in a while finds out whether it is over.
    pub async fn session(&mut self) -> Result<&mut dyn Session, StoreError> {
        let now = Instant::now();
        let losses = self.losses.0.load(Ordering::Acquire);
        let rested = now.duration_since(self.last_used) > RESTED;
        if rested && self.session.is_some() {
            self.store.look_for_takeover().await;
        }
        if self.session.as_ref().is_some_and(|session| session.is_deposed()) {
            self.session = None;
        }
        let doubtful = rested || losses != self.losses_known;
        if doubtful
            && let Some(session) = &mut self.session
            && let Err(error) = session.ping().await
        {
            tracing::info!(%error, "a session has ended unnoticed; opening another");
            self.session = None;
        }
        self.last_used = now;
        self.losses_known = losses;
        let session = match self.session.take() {
            Some(session) => session,
            None => self.connect().await?,
        };
        Ok(self.session.insert(session).as_mut())
    }

    /// Takes note of a failure: the session may be of no further use.
    pub fn note(&mut self, error: &StoreError) {
        // During an outage everybody gets the same answer, and it has been logged once.
        if self.outage.is_none() {
            static LOG: SparseLog = SparseLog::new();
            LOG.write(|left_out| tracing::warn!(%error, left_out, "the store failed a request"));
        }
        if error.ends_the_session() && self.session.take().is_some() {
            self.losses.0.fetch_add(1, Ordering::Release);
        }
    }

    pub fn forget_session(&mut self) {
        self.session = None;
    }

    async fn connect(&mut self) -> Result<Box<dyn Session>, StoreError> {
        if let Some(error) = self.outage.as_ref().and_then(Outage::answer) {
            return Err(error);
        }
        let connected = async {
            let mut session = match self.purpose {
                Purpose::Shared => self.store.connect_impatiently().await?,
                Purpose::Patient => self.store.connect().await?,
                Purpose::Reading => self.store.connect_to_read_keys().await?,
            };
            // It may not be the database that was checked at the start: restored, or upgraded.
            session.ping().await?;
            // And its marks may have fallen: nobody may write by them, nor be told of them.
            self.succession.settle(session.as_mut()).await?;
            Ok::<_, StoreError>(session)
        };
        match connected.await {
            Ok(session) => {
                if self.outage.take().is_some() {
                    tracing::info!("the store can be reached again");
                }
                Ok(session)
            }
            Err(error) => {
                if self.outage.is_none() {
                    tracing::warn!(%error, "the store cannot be reached");
                }
                self.outage = Some(Outage::after(self.outage.take(), error.clone()));
                Err(error)
            }
        }
    }
}
