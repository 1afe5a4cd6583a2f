//! Locks in the store's own database, for those without etcd.
//!
//! The queue is in the database (`store/lock_table.rs`); here is who waits, and who is told. Nothing
//! in this process decides who holds a lock: a wake-up is only a reason to look.

mod acquiring;
mod examination;
mod looks;
mod newest;
mod news;
mod tables;
mod turns;
mod watchers;
mod watching;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{future::BoxFuture, stream::BoxStream};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::examination::examine;
use self::{
    newest::Newest,
    tables::Tables,
    turns::Turns,
    watchers::{Watchers, Word},
};
use super::{Ask, Authority, AuthorityError, Holder, LockEvent, LockState, Status, Turn};
use crate::{
    store::{LockTable, Page, Store, StoreError, lock_table::Changed},
    token::{Key, Token},
};

pub struct StoreAuthority {
    shared: Arc<Shared>,
    /// Ends, when the authority is dropped, what runs beside the requests.
    helpers: OnceLock<DropGuard>,
}

struct Shared {
    store: Arc<dyn Store>,
    tables: Arc<Tables>,
    turns: Arc<Turns>,
    watchers: Arc<Watchers>,
    newest: Arc<Newest>,
}

impl StoreAuthority {
    pub fn new(store: &Arc<dyn Store>) -> Self {
        let newest: Arc<Newest> = Arc::default();
        let shared = Shared {
            store: store.clone(),
            tables: Arc::new(Tables::new(store.clone(), newest.clone())),
            turns: Arc::default(),
            watchers: Arc::default(),
            newest,
        };
        Self { shared: Arc::new(shared), helpers: OnceLock::new() }
    }

    /// Not before the first request: until then there is nobody to help, nor a runtime.
    fn start_helpers(&self) {
        self.helpers.get_or_init(|| {
            let ended = CancellationToken::new();
            let until_ended = |helper: BoxFuture<'static, ()>| {
                tokio::spawn(ended.clone().run_until_cancelled_owned(helper));
            };
            until_ended(Box::pin(news::bring(self.shared.clone())));
            until_ended(Box::pin(news::sweep(self.shared.clone())));
            ended.drop_guard()
        });
    }
}

impl Shared {
    /// Makes a change, and tells those in this process whom it concerns.
    async fn change<T, W>(&self, name: &Key, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&'t mut dyn LockTable) -> BoxFuture<'t, Result<Changed<T>, StoreError>>
            + Send
            + 'static,
    {
        let (turns, watchers, name) = (self.turns.clone(), self.watchers.clone(), name.clone());
        let changing = self.tables.run(move |table| {
            Box::pin(async move {
                let changed = work(table).await?;
                if let Some(lease) = &changed.next {
                    turns.wake(lease);
                }
                // Told while we have the connection: where there is only one, in order.
                for event in changed.events {
                    watchers.tell(&name, Word::Happened(event));
                }
                Ok(changed.outcome)
            })
        });
        changing.await
    }

    async fn inspect(&self, name: Key) -> Result<LockState, StoreError> {
        self.tables.run(|table| Box::pin(async move { table.inspect(&name).await })).await
    }

    async fn leave(&self, name: Key, lease: String) -> Result<Option<Holder>, StoreError> {
        let queue = name.clone();
        self.change(&queue, |table| Box::pin(async move { table.leave(&name, &lease).await })).await
    }
}

#[async_trait]
impl Authority for StoreAuthority {
    async fn acquire(&self, ask: &Ask) -> Result<Turn, AuthorityError> {
        self.start_helpers();
        Ok(acquiring::acquire(&self.shared, ask).await?)
    }

    async fn renew(&self, name: &Key, token: Token) -> Result<Option<Duration>, AuthorityError> {
        let queue = name.clone();
        let renewed = self
            .shared
            .change(name, move |table| Box::pin(async move { table.renew(&queue, token).await }))
            .await;
        Ok(renewed?)
    }

    async fn release(&self, name: &Key, token: Token) -> Result<bool, AuthorityError> {
        let queue = name.clone();
        let released = self
            .shared
            .change(name, move |table| Box::pin(async move { table.release(&queue, token).await }))
            .await;
        Ok(released?)
    }

    async fn inspect(&self, name: &Key) -> Result<LockState, AuthorityError> {
        Ok(self.shared.inspect(name.clone()).await?)
    }

    async fn list(&self, page: Page) -> Result<Vec<Holder>, AuthorityError> {
        let held = self.shared.tables.run(|table| Box::pin(async move { table.list(&page).await }));
        Ok(held.await?)
    }

    async fn watch(&self, name: &Key) -> Result<BoxStream<'static, LockEvent>, AuthorityError> {
        self.start_helpers();
        Ok(watching::watch(&self.shared, name).await?)
    }

    async fn newest(&self) -> Result<i64, AuthorityError> {
        let tables = &self.shared.tables;
        let question = async || {
            let newest = tables.run(|table| Box::pin(table.newest())).await;
            newest.inspect(|_| tables.belongs_here())
        };
        Ok(self.shared.newest.ask(question).await?)
    }

    fn newest_known(&self) -> i64 {
        self.shared.newest.known()
    }

    fn status(&self) -> Status {
        Status { up: self.shared.tables.up(), epoch: 0 }
    }

    fn forgets_with_the_store(&self) -> bool {
        true
    }
}
