//! Where marks and values are kept, and the only place that may accept a write.
//!
//! What every store promises, whatever is underneath:
//! - a verdict is reached on the newest committed row, and carried out in the same statement or
//!   under the same lock;
//! - nothing is reported as settled before it is durable;
//! - an error says whether the write can still take effect ([`StoreError::Unknown`]) or not.
//!
//! Nothing here knows HTTP, and nothing outside `store/` knows SQL.

mod audit;
mod clock;
mod ledger;
mod lineage;
pub mod lock_table;
mod memory;
mod migrations;
mod outage;
mod owning_authority;
pub mod postgres;
pub mod sqlite;

use std::{
    any::Any,
    fmt::Display,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use sqlx::postgres::PgDatabaseError;

use self::clock::{clock_finding, seconds_since_1970};
pub use self::{
    audit::Audit,
    lineage::Lineage,
    lock_table::{LockNews, LockTable},
    memory::{BETWEEN_MOVES, Memory, MoveReason, Recalled, Remembered, Sighting},
    migrations::{Migrated, Rights, Schema},
    outage::Outage,
    owning_authority::OwningAuthority,
};
use crate::{
    fence::{Judgement, Standing},
    finding::Finding,
    rejections::Caller,
    token::{Key, Version},
    write::{Change, Value, Write},
};

/// Writes that stand or fall together. Most units hold one.
#[derive(Clone, Debug)]
pub struct Unit {
    writes: Vec<Write>,
    /// Whether the value of the only write's key is wanted back: a fenced read.
    read_back: bool,
    /// Whether it was asked for as a batch, of however many writes.
    batch: bool,
    /// Who asked for it: for the record, should it be refused.
    caller: Arc<Caller>,
}

impl Unit {
    pub fn single(write: Write) -> Self {
        Self::of(vec![write])
    }

    pub fn fenced_read(claim: Write) -> Self {
        debug_assert!(claim.change == Change::Claim, "a fenced read claims and does not write");
        Self { read_back: true, ..Self::of(vec![claim]) }
    }

    /// Each key may be written once at most; the parser has seen to that.
    pub fn atomic(writes: Vec<Write>) -> Self {
        Self { batch: true, ..Self::of(writes) }
    }

    fn of(writes: Vec<Write>) -> Self {
        Self { writes, read_back: false, batch: false, caller: Arc::default() }
    }

    /// Says who asked for it.
    #[must_use]
    pub fn from(mut self, caller: Arc<Caller>) -> Self {
        self.caller = caller;
        self
    }

    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    pub fn is_batch(&self) -> bool {
        self.batch
    }

    /// About as many bytes as the store is sent for it.
    pub fn bytes(&self) -> usize {
        let bytes_of = |write: &Write| match &write.change {
            Change::Put(value) => write.key.as_str().len() + value.body.len(),
            Change::Delete | Change::Claim => write.key.as_str().len(),
        };
        self.writes.iter().map(bytes_of).sum()
    }

    pub fn is_fenced_read(&self) -> bool {
        self.read_back
    }

    /// Whether a mark of another key than those it writes guards it.
    pub fn has_scopes(&self) -> bool {
        self.writes.iter().any(|write| write.scope.is_some())
    }

    /// Every key whose mark this unit reads or raises.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.writes.iter().flat_map(|write| std::iter::once(&write.key).chain(&write.scope))
    }
}

/// A value of more bytes is not read together with others, nor does it come with the claim of a fenced read.
/// The statements that claim have this number in their text.
pub const INLINE_BYTES: u64 = 64 << 10;

/// What became of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Every write was accepted or replayed; one judgement for each, in order. With a fenced read comes its
    /// value, unless that has more than [`INLINE_BYTES`].
    Applied { judgements: Vec<Judgement>, value: Option<Value> },
    /// The write at `index` was refused, and no value of the unit was changed.
    Refused { index: usize, judgement: Judgement },
}

/// A key as a reader sees it: the mark is never below the floor. What only the fence asks for, whether
/// the last put created the value and its digest, may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub standing: Standing,
    /// The token of the key's own mark: one that a holder has really been seen with.
    pub own: i64,
    /// Missing where there is none, and where it is larger than was asked for.
    pub value: Option<Value>,
    /// Bytes of the value, also if it is missing here; 0 where there is none.
    pub size: u64,
    /// Whether commits wait for a standby: it may lack what was read.
    pub has_standbys: bool,
}

impl Snapshot {
    /// Whether there is a value, but not here: it is larger than was asked for.
    pub fn lacks_its_value(&self) -> bool {
        self.standing.present && self.value.is_none()
    }
}

/// Which keys or locks to list: those that start with `prefix` and come after `after`, in byte order.
#[derive(Clone, Debug)]
pub struct Page {
    pub prefix: String,
    pub after: String,
    pub limit: u32,
}

impl Page {
    /// The first `limit` of those that start with `prefix`.
    pub fn first(limit: u32, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), after: String::new(), limit }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    pub version: Version,
    /// The mark's, and never below the floor.
    pub token: i64,
    pub content_type: String,
    pub size: i64,
}

/// The text is for the log. What a client may see of it is the API's to say.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed, and nothing will be: the database was not reached.
    #[error("the store could not be used: {0}")]
    Unavailable(String),
    /// Nothing was changed: somebody else kept the row locked for too long.
    #[error("another transaction kept its lock for too long")]
    Busy,
    /// Nothing was changed: somebody else has a row locked, and this session does not wait for it.
    /// One that is patient does.
    #[error("another transaction has a lock")]
    Locked,
    /// Nothing was changed: the transaction gave way to another. It may be tried again.
    #[error("the transaction gave way to another one")]
    Conflict,
    /// Nothing was changed: the database refused this one write. The connection is as good as new.
    #[error("the database refused the write: {0}")]
    Failed(String),
    /// Nothing was changed: the database cannot write, or not read what it wrote. Reads may go on.
    #[error("{0}: {1}")]
    Disk(DiskTrouble, String),
    /// The connection was lost around the commit. The write has taken effect, will, or never will.
    #[error("the outcome of the write is unknown: {0}")]
    Unknown(String),
    /// The database answers, but must not be used as it is.
    #[error("{0}")]
    Unfit(String),
    /// Nothing was changed: the role that was used lacks a right.
    #[error("{0}")]
    Denied(String),
    /// Nothing was changed: the store belongs to another authority than the one that was used.
    #[error(
        "{0}; start fencepost with the authority that the store belongs to, or move the store with \
         `fencepost authority move`"
    )]
    OtherAuthority(String),
}

/// What is wrong with the disk that a database is on, or with its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskTrouble {
    #[error("the disk is full")]
    Full,
    #[error("the database is read-only")]
    ReadOnly,
    #[error("the disk does not read or write as it should")]
    Failing,
    #[error("the database is damaged")]
    Damaged,
}

impl StoreError {
    fn unavailable(source: impl Display + 'static) -> Self {
        Self::Unavailable(text_of(&source))
    }

    /// Whether the session that reported this is of no further use.
    pub fn ends_the_session(&self) -> bool {
        match self {
            // Where the disk has failed a statement, SQLite may have rolled back by itself, and sqlx not know.
            Self::Unavailable(_)
            | Self::Unknown(_)
            | Self::Unfit(_)
            | Self::Denied(_)
            | Self::Disk(..) => true,
            Self::Busy
            | Self::Locked
            | Self::Conflict
            | Self::Failed(_)
            | Self::OtherAuthority(_) => false,
        }
    }

    fn unknown(source: impl Display + 'static) -> Self {
        Self::Unknown(text_of(&source))
    }
}

/// The text of an error. For what Postgres answers, sqlx would add a line number of Postgres's own source, which misleads.
fn text_of<E: Display + 'static>(error: &E) -> String {
    let error_of_sqlx = (error as &dyn Any).downcast_ref::<sqlx::Error>();
    let answer = error_of_sqlx
        .and_then(sqlx::Error::as_database_error)
        .and_then(|answer| answer.try_downcast_ref::<PgDatabaseError>());
    match answer {
        Some(answer) => format!("error returned from database: {}", answer.message()),
        None => error.to_string(),
    }
}

/// What a server means to do with a database.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bring its schema up to date first.
    pub migrates: bool,
    /// The connections that it opens, at most.
    pub connections: usize,
    /// Keep rejections in it.
    pub keeps_rejections: bool,
}

/// How far tokens have come, as an operator is told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// The newest of the lock table; 0 if it has issued none.
    pub issued: i64,
    /// Locks that are held in the lock table.
    pub held: i64,
    /// On a database that has met an etcd.
    pub etcd: Option<KnownEtcd>,
}

/// What is remembered of an etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEtcd {
    pub epoch: i64,
    pub revision: i64,
    pub cluster: String,
    pub term: i64,
    /// When the epoch last moved, by the database's clock.
    pub moved_at: Option<SystemTime>,
}

/// What a compaction has done, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Compacted {
    pub floor: i64,
    /// Old marks of absent keys that were dropped.
    pub dropped: u64,
    /// Old marks of absent keys that stay, since the floor may not rise above them.
    pub kept: u64,
}

/// The floor, beside what the lock table knows of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloorState {
    pub floor: i64,
    /// The newest token of the lock table; 0 if it has issued none.
    pub issued: i64,
    /// The lowest token of the lock table that the floor has not passed.
    pub lowest_held: Option<HeldToken>,
}

/// A token that holds a lock or waits for it. A waiter is granted the lock with the token it has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldToken {
    pub token: i64,
    pub lock: String,
}

/// How exactly to read [`FloorState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// For a person to see: grants that are being made may be missing.
    Quick,
    /// Every token up to `issued` is either in the lock table or will never be granted. It stays true:
    /// later tokens are higher, and rows only go.
    Exact,
}

/// A database that fenceposts share.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// One connection, with its settings pinned. Its owner runs one request at a time on it, and
    /// drops it after an error.
    async fn connect(&self) -> Result<Box<dyn Session>, StoreError>;

    /// The same, for a session that reads keys and lists none.
    async fn connect_to_read_keys(&self) -> Result<Box<dyn Session>, StoreError> {
        self.connect().await
    }

    /// The same, for a session that serves many keys: where somebody else has a row locked, it soon
    /// says [`StoreError::Locked`] of the units that need it, and goes on with the others.
    async fn connect_impatiently(&self) -> Result<Box<dyn Session>, StoreError>;

    /// The same, for the locks that are kept in this database.
    async fn connect_lock_table(&self) -> Result<Box<dyn LockTable>, StoreError>;

    /// What happens to those locks, as it happens; `None` where the database does not say.
    async fn listen_to_locks(&self) -> Result<Option<Box<dyn LockNews>>, StoreError>;

    /// A connection for what is remembered of an etcd, on the schema that was checked.
    async fn connect_memory(&self) -> Result<Box<dyn Memory>, StoreError>;

    /// A connection for the audit table, on the schema that was checked.
    async fn connect_audit(&self) -> Result<Box<dyn Audit>, StoreError>;

    /// Whether this database may be used: version, schema, durability. [`StoreError::Unfit`] says
    /// why not.
    async fn check(&self) -> Result<(), StoreError>;

    /// Whether the role that was used has every right that serving takes. [`StoreError::Unfit`] names what it lacks.
    async fn check_rights(&self, keeps_rejections: bool) -> Result<(), StoreError> {
        // A file has no roles.
        let _ = keeps_rejections;
        Ok(())
    }

    /// Everything that an operator should know about this database, found without changing it.
    async fn examine(&self, plan: Plan) -> Vec<Finding>;

    /// What is wrong with the server that a new connection reaches, for a process that has used this store
    /// before: another server may have taken over from it.
    async fn examine_takeover(&self) -> Option<Finding> {
        None
    }

    /// What has been issued, and what is remembered of an etcd. Changes nothing.
    async fn tokens(&self) -> Result<Tokens, StoreError>;

    /// The authority that the store is recorded to belong to; `None` if none has served on it yet.
    async fn owning_authority(&self) -> Result<Option<OwningAuthority>, StoreError>;

    /// Records this authority if none is recorded, and adds what is not known of it yet. Returns what is
    /// recorded then: of two that claim at once, one wins.
    async fn claim_authority(
        &self,
        wanted: &OwningAuthority,
    ) -> Result<OwningAuthority, StoreError>;

    /// Waits until the synchronous standbys have everything that was committed so far. A file has none.
    async fn wait_for_standbys(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Moves the store to another authority: raises the floor above every token that was issued so far, and
    /// lets the new authority's tokens begin there. `seen`: what that one shows now, if it is not in this
    /// store. Returns the floor.
    async fn move_authority(
        &self,
        to: &OwningAuthority,
        seen: Option<&Sighting>,
    ) -> Result<i64, StoreError>;

    async fn schema(&self) -> Result<Schema, StoreError>;

    /// Brings the schema to this version's, and says what was done.
    async fn migrate(&self) -> Result<Migrated, StoreError>;

    /// Why a migration now would leave a schema that the role that serves cannot use, where that is another
    /// role than this one. The text says what to run instead.
    async fn migration_obstacle(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// The floor, and what it must not rise above as far as this database knows.
    async fn floor(&self, reading: Reading) -> Result<FloorState, StoreError>;

    /// Raises the floor to `to`, unless it is higher already, and ends the leases of the lock table
    /// whose tokens are stale now. `issues`: the lock table is the authority, so its next token has to
    /// be above the floor. When this returns, no write below the floor can be under way. Returns the
    /// floor.
    async fn raise_floor(&self, to: i64, issues: bool) -> Result<i64, StoreError>;

    /// What [`compact`](Self::compact) would do now. Changes nothing.
    async fn plan_compaction(&self, age: Duration, bound: i64) -> Result<Compacted, StoreError>;

    /// Drops the marks of keys that have been absent for longer than `age`, after raising the
    /// floor so that what they refused stays refused. The floor does not rise above `bound`, and marks
    /// that are not below it stay: the caller vouches that no token below `bound` is held or will be
    /// granted.
    async fn compact(
        &self,
        age: Duration,
        bound: i64,
        progress: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
    ) -> Result<Compacted, StoreError>;

    /// Names who has to be asked before a server that has taken over is used, by lock tables too.
    fn settle_with(&self, takeover: Arc<dyn Takeover>) {
        drop(takeover);
    }

    /// Finds out whether another server has taken over while the one before is still there, unless that
    /// was lately asked. Does not fail: where nothing is found out, sessions are used as before.
    async fn look_for_takeover(&self) {}

    /// Does so every so often for as long as sessions are used, and does not return.
    async fn watch_for_takeover(&self) {
        std::future::pending::<()>().await;
    }

    /// How many sessions are worth having for writes.
    fn writers(&self) -> usize;

    /// How many connections are worth having for locks.
    fn lock_tables(&self) -> usize;

    /// How many waiting units are worth settling together. They are answered together, too.
    fn gathers(&self) -> usize;
}

/// What has to happen before a server that has taken over from another is used.
#[async_trait]
pub trait Takeover: Send + Sync {
    /// Returns once this session may be used.
    async fn settle(&self, session: &mut dyn Session) -> Result<(), StoreError>;
}

/// One connection's worth of work at a time.
#[async_trait]
pub trait Session: Send {
    /// Settles each unit, one answer for each, as if they had come one by one in this order. A unit's
    /// error leaves the others' answers true.
    async fn settle(&mut self, units: &[Unit]) -> Vec<Result<Settled, StoreError>>;

    /// The newest committed state of a key, with its value if that has `most` bytes at most.
    async fn read(&mut self, key: &Key, most: u64) -> Result<Snapshot, StoreError>;

    /// The same of each of these keys, in their order.
    async fn read_together(&mut self, keys: &[Key], most: u64)
    -> Result<Vec<Snapshot>, StoreError>;

    async fn list(&mut self, page: &Page) -> Result<Vec<Listed>, StoreError>;

    /// Proves that the database answers and that its schema is still the right one.
    async fn ping(&mut self) -> Result<(), StoreError>;

    /// Whether the database takes writes, as far as that is known. Where one has failed for want of room, it
    /// finds out whether there is some again.
    async fn can_write(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Which server this is, and which one was written to last. A file has no standby.
    async fn lineage(&mut self) -> Result<Lineage, StoreError> {
        Ok(Lineage { recorded: Some(String::new()), entered: true, ..Lineage::default() })
    }

    /// Whether another server has taken over from the one that this session was opened on. Then it
    /// fails whatever it is asked.
    fn is_deposed(&self) -> bool {
        false
    }

    /// Enters this server as the one that is written to, after raising the floor to `floor`. Where
    /// tokens are issued here too, they and the floor leap by `leap` with a new server. Returns the floor.
    async fn take_over(&mut self, floor: i64, leap: i64) -> Result<i64, StoreError> {
        let _ = (floor, leap);
        Err(StoreError::Unfit("there is nothing to take over from".into()))
    }
}

/// The smallest string above all those that start with `prefix`; `None` where there is none.
/// Code points sort as their UTF-8 bytes do, so it is enough to step the last one.
fn first_key_after_prefix(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        // `succ` by way of the range steps over the surrogates, which are not characters.
        if let Some(next) = (last..=char::MAX).nth(1) {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::first_key_after_prefix;

    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(first_key_after_prefix(""), None);
        assert_eq!(first_key_after_prefix("a").as_deref(), Some("b"));
        assert_eq!(first_key_after_prefix("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
        assert_eq!(first_key_after_prefix("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(first_key_after_prefix("\u{10ffff}"), None);
    }
}
