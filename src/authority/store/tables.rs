//! The authority's own few connections to the lock table.
//!
//! Work on a connection always runs to its end, in a task of its own, whether somebody still waits
//! for the answer or not: a future that is dropped half way would leave a transaction open.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::newest::Newest;
use crate::{
    sparse_log::SparseLog,
    store::{LockTable, Outage, Store, StoreError},
};

/// A connection that has rested for longer is tried before it is used.
const RESTED: Duration = Duration::from_secs(1);

/// Whoever has waited for longer is turned away unbegun.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

pub struct Tables {
    store: Arc<dyn Store>,
    newest: Arc<Newest>,
    /// One for each connection that may be open.
    permits: Semaphore,
    idle: Mutex<Vec<Idle>>,
    outage: Mutex<Option<Outage>>,
    up: AtomicBool,
    /// The store belongs to another authority: it draws no token, but goes on answering whatever else is asked.
    foreign: AtomicBool,
}

struct Idle {
    table: Box<dyn LockTable>,
    since: Instant,
}

impl Tables {
    pub fn new(store: Arc<dyn Store>, newest: Arc<Newest>) -> Self {
        let permits = Semaphore::new(store.lock_tables());
        Self {
            store,
            newest,
            permits,
            idle: Mutex::default(),
            outage: Mutex::default(),
            up: AtomicBool::new(true),
            foreign: AtomicBool::new(false),
        }
    }

    /// Whether the database answered when it was last needed, and gives tokens.
    pub fn up(&self) -> bool {
        self.up.load(Ordering::Relaxed) && !self.foreign.load(Ordering::Relaxed)
    }

    /// It has drawn a token, adopted some, or said which is the newest: so the store belongs to the lock table.
    pub fn belongs_here(&self) {
        self.foreign.store(false, Ordering::Relaxed);
    }

    pub async fn run<T, W>(self: &Arc<Self>, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&'t mut dyn LockTable) -> BoxFuture<'t, Result<T, StoreError>>
            + Send
            + 'static,
    {
        let tables = self.clone();
        tokio::spawn(async move { tables.run_here(work).await })
            .await
            .unwrap_or_else(|died| Err(StoreError::Unknown(died.to_string())))
    }

    async fn run_here<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        W: for<'t> FnOnce(&'t mut dyn LockTable) -> BoxFuture<'t, Result<T, StoreError>>,
    {
        let waited = tokio::time::timeout(LONGEST_WAIT, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = waited else {
            return Err(StoreError::Unavailable("too much is waiting for the lock table".into()));
        };
        let mut table = match self.rested().await {
            Some(table) => table,
            None => {
                self.connect().await.inspect_err(|_| self.up.store(false, Ordering::Relaxed))?
            }
        };
        let done = work(table.as_mut()).await;
        let lost = done.as_ref().err().filter(|error| error.ends_the_session());
        if matches!(done, Err(StoreError::OtherAuthority(_))) {
            self.foreign.store(true, Ordering::Relaxed);
        }
        self.up.store(lost.is_none(), Ordering::Relaxed);
        match lost {
            Some(error) => {
                static LOG: SparseLog = SparseLog::new();
                LOG.write(
                    |left_out| tracing::warn!(%error, left_out, "the lock table failed a request"),
                );
                // What has ended this one has probably ended the others.
                lock(&self.idle).clear();
            }
            None => lock(&self.idle).push(Idle { table, since: Instant::now() }),
        }
        done
    }

    async fn rested(&self) -> Option<Box<dyn LockTable>> {
        loop {
            // Taken before the match: its guard must not live across the ping.
            let idle = lock(&self.idle).pop();
            let Idle { mut table, since } = idle?;
            if since.elapsed() > RESTED {
                self.store.look_for_takeover().await;
            }
            if table.is_deposed() {
                continue;
            }
            if since.elapsed() <= RESTED {
                return Some(table);
            }
            match table.ping().await {
                Ok(()) => return Some(table),
                Err(error) => {
                    tracing::info!(%error, "a connection did not survive its rest");
                }
            }
        }
    }

    async fn connect(&self) -> Result<Box<dyn LockTable>, StoreError> {
        if let Some(error) = lock(&self.outage).as_ref().and_then(Outage::answer) {
            return Err(error);
        }
        let connected = async {
            let mut table = self.store.connect_lock_table().await?;
            table.ping().await?;
            // Also if it is not the first: it may be another database than before, or a restored one.
            table.adopt(self.newest.known()).await?;
            Ok::<_, StoreError>(table)
        };
        match connected.await {
            Ok(table) => {
                self.belongs_here();
                if lock(&self.outage).take().is_some() {
                    tracing::info!("the lock table can be reached again");
                }
                Ok(table)
            }
            Err(error) => {
                let mut outage = lock(&self.outage);
                if outage.is_none() {
                    tracing::warn!(%error, "the lock table cannot be reached");
                }
                // Nothing was asked of the table yet, so nothing is in doubt.
                let error = match error {
                    StoreError::Unknown(reason) => StoreError::Unavailable(reason),
                    definite => definite,
                };
                *outage = Some(Outage::after(outage.take(), error.clone()));
                Err(error)
            }
        }
    }
}

/// Nothing panics while it holds one of these.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
