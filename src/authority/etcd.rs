//! Locks in etcd, in the layout of its own client recipe, so that an `etcdctl lock` or a Go program
//! and Fencepost exclude each other, first come first served.
//!
//! - `layout.rs`: keys and entries; `epoch.rs`: tokens, and when etcd has gone backwards. No I/O.
//! - `members.rs`: which member to ask, and for how long; `trouble.rs`: what an error means.
//! - `queue.rs`, `vigil.rs`: waiting for one's turn; `holding.rs`: renewing and releasing.
//! - `keeper.rs`, `lookout.rs`: what the store remembers of etcd, and the epoch.
//! - `identity.rs`: which etcd this is, for the record of the authority that the store belongs to.
//! - `leases.rs`, with `spares.rs` for those to come and `retirement.rs` for those to end.
//! - `view.rs`, `watch.rs`: what their names say; `examination.rs`: for `fencepost check`.
//! - `tokens_in_use.rs`: which tokens are held, for the floor.
//! - `version.rs`: which releases are tested; `introduction.rs`: names them in the log.
//!
//! What must stay true: no token is granted or believed before its revision is remembered in the
//! store, and etcd has shown at least as much as was remembered before it was asked.

mod epoch;
mod examination;
mod holding;
mod identity;
mod instance;
mod introduction;
mod keeper;
mod layout;
mod leases;
mod lookout;
mod members;
mod queue;
mod retirement;
mod spares;
mod tokens_in_use;
mod trouble;
mod user;
mod version;
mod view;
mod vigil;
mod watch;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use etcd_client::{KeyValue, TlsOptions, Txn, TxnOpResponse, TxnResponse};
use futures_util::stream::BoxStream;
use quick_cache::sync::Cache;

pub use self::{
    examination::examine,
    identity::{claimed_by, identify, renew_instance},
    tokens_in_use::{newest_in_epoch, newest_remembered, tokens_in_use},
    user::{Password, User},
};
use self::{
    holding::Held,
    keeper::Keeper,
    layout::Layout,
    leases::Leases,
    lookout::Lookout,
    members::{Members, PATIENCE},
};
use super::{Ask, Authority, AuthorityError, Holder, LockEvent, LockState, Status, Turn};
use crate::{
    store::{Page, Store},
    token::{Key, Token},
};

/// Grants and names that are remembered, to save questions. Nothing depends on it.
const CACHED: usize = 16_384;

/// Where etcd is, and how to be let in.
#[derive(Clone)]
pub struct EtcdOptions {
    /// `host:port` of each member.
    pub members: Vec<String>,
    pub tls: Option<TlsOptions>,
    pub user: Option<User>,
    /// All keys start with it.
    pub prefix: String,
}

#[derive(Clone)]
pub struct EtcdAuthority {
    members: Arc<Members>,
    layout: Layout,
    leases: Leases,
    keeper: Keeper,
    lookout: Lookout,
    /// Where the keys of grants are, by token.
    grants: Arc<Cache<Token, Held>>,
    /// Locks that were held when they were last seen.
    believed_held: Arc<Cache<Key, ()>>,
}

impl EtcdAuthority {
    /// Starts the tasks that look after it. It connects when it is first needed.
    pub fn start(options: EtcdOptions, store: &Arc<dyn Store>) -> Self {
        let members = Arc::new(Members::new(&options.members, options.tls, options.user));
        let layout = Layout::new(&options.prefix);
        let leases = Leases::start(&members);
        let keeper = Keeper::start(store, claimed_by(&options.prefix));
        let lookout = Lookout::start(&members, &keeper, &layout);
        tokio::spawn(introduction::log_versions(members.clone()));
        let grants = Arc::new(Cache::new(CACHED));
        let believed_held = Arc::new(Cache::new(CACHED));
        Self { members, layout, leases, keeper, lookout, grants, believed_held }
    }

    /// A transaction that may be repeated.
    async fn transact(&self, txn: Txn) -> Result<TxnResponse, AuthorityError> {
        let answer = self.members.ask(PATIENCE, |mut client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        });
        Ok(answer.await?)
    }
}

#[async_trait]
impl Authority for EtcdAuthority {
    async fn acquire(&self, ask: &Ask) -> Result<Turn, AuthorityError> {
        self.queue_up(ask).await
    }

    async fn renew(&self, name: &Key, token: Token) -> Result<Option<Duration>, AuthorityError> {
        self.renew_held(name, token).await
    }

    async fn release(&self, name: &Key, token: Token) -> Result<bool, AuthorityError> {
        self.release_held(name, token).await
    }

    async fn inspect(&self, name: &Key) -> Result<LockState, AuthorityError> {
        self.state_of(name).await
    }

    async fn list(&self, page: Page) -> Result<Vec<Holder>, AuthorityError> {
        self.list_held(&page).await
    }

    async fn watch(&self, name: &Key) -> Result<BoxStream<'static, LockEvent>, AuthorityError> {
        self.events_of(name).await
    }

    async fn newest(&self) -> Result<i64, AuthorityError> {
        let row = self.lookout.look().await?;
        Ok(epoch::newest(row.epoch, row.seen.revision))
    }

    fn newest_known(&self) -> i64 {
        self.keeper.known().map_or(0, |row| epoch::newest(row.epoch, row.seen.revision))
    }

    fn status(&self) -> Status {
        Status {
            up: self.members.is_up() && !self.lookout.is_foreign(),
            epoch: self.keeper.known().map_or(0, |row| row.epoch),
        }
    }

    async fn confirm(&self) -> Result<(), AuthorityError> {
        self.lookout.look().await?;
        Ok(())
    }
}

/// What each read of a transaction found, in order; nothing where there were fewer. Every decision
/// depends on a key's name and its `create_revision`, so an answer without them is refused.
fn pairs_of<const N: usize>(answer: &TxnResponse) -> Result<[Vec<KeyValue>; N], AuthorityError> {
    let mut reads = answer.op_responses().into_iter().filter_map(|response| match response {
        TxnOpResponse::Get(mut found) => Some(found.take_kvs()),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
    });
    let reads: [Vec<KeyValue>; N] = std::array::from_fn(|_| reads.next().unwrap_or_default());
    let complete = |pair: &KeyValue| !pair.key().is_empty() && pair.create_revision() > 0;
    if reads.iter().flatten().all(complete) {
        return Ok(reads);
    }
    Err(AuthorityError::Unfit(
        "etcd answers without a key or its create_revision; this etcd release is not supported"
            .into(),
    ))
}
