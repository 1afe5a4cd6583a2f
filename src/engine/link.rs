//! A task's own session with the store: opened when it is needed, and again after it was lost.

use std::{sync::Arc, time::Duration, time::Instant};

use super::succession::Succession;
use crate::store::{Outage, Session, Store, StoreError};

/// A session that has rested for longer is tried before it is used: if the database was restarted
/// meanwhile, that costs a reconnect instead of an unknown outcome.
const RESTED: Duration = Duration::from_secs(1);

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Many keys share it, so it waits for no row.
    Shared,
    /// It may wait.
    Patient,
}

pub struct Link {
    store: Arc<dyn Store>,
    purpose: Purpose,
    session: Option<Box<dyn Session>>,
    last_used: Instant,
    outage: Option<Outage>,
    succession: Arc<Succession>,
}

impl Link {
    pub fn new(store: Arc<dyn Store>, purpose: Purpose, succession: Arc<Succession>) -> Self {
        let last_used = Instant::now();
        Self { store, purpose, session: None, last_used, outage: None, succession }
    }

    /// The session, connecting if there is none. During an outage most callers are answered at
    /// once, and one in a while finds out whether it is over.
    pub async fn session(&mut self) -> Result<&mut dyn Session, StoreError> {
        let now = Instant::now();
        if now.duration_since(self.last_used) > RESTED
            && let Some(session) = &mut self.session
            && let Err(error) = session.ping().await
        {
            tracing::info!(%error, "a session did not survive its rest; opening another");
            self.session = None;
        }
        self.last_used = now;
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
            tracing::warn!(%error, "the store failed a request");
        }
        if error.ends_the_session() {
            self.session = None;
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
