//! What is remembered of an etcd: which one it is, and how far it has been seen to have come.
//!
//! One row, shared by all fenceposts on this database. It never falls: an epoch only moves on, and
//! within an epoch the revision and the term only rise.

use async_trait::async_trait;
use sqlx::{ColumnIndex, Decode, Row, Type};

use super::{OwningAuthority, StoreError};

/// An etcd, as one of its answers showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub revision: i64,
    pub cluster: String,
    pub term: i64,
}

/// The row: in this epoch, etcd has been seen that far at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    pub epoch: u16,
    pub seen: Sighting,
}

/// The row, beside what others have issued on this database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recalled {
    pub row: Remembered,
    /// The highest token of the lock table and of the floor: an etcd that takes over from the lock
    /// table must begin above it. Floors of 2^62 and more are left out, since nobody issues those.
    pub issued: i64,
    /// The authority that the store belongs to, as it was recorded when the row was read.
    pub owner: Option<OwningAuthority>,
}

/// Why an epoch moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// The authority showed less than is remembered. Where an address leads to two restored copies in turn,
    /// each looks so beside the other. So this happens once in [`BETWEEN_MOVES`] at most, by the database's
    /// clock: else all epochs could be used up in minutes.
    WentBackwards,
    /// Tokens were issued, or remembered, past what the row says.
    Overtaken,
}

/// Seconds. No verdict depends on it: until they are over, nothing is granted.
pub const BETWEEN_MOVES: i32 = 10;

impl MoveReason {
    pub(super) fn seconds_between(self) -> i32 {
        match self {
            Self::WentBackwards => BETWEEN_MOVES,
            Self::Overtaken => 0,
        }
    }
}

/// One connection for it. Its owner makes one request at a time, and drops it after an error that
/// ends the session.
#[async_trait]
pub trait Memory: Send {
    /// `None` on a database that has never met an etcd.
    async fn recall(&mut self) -> Result<Option<Recalled>, StoreError>;

    /// The highest token that can have come from anywhere: marks, the floor, the lock table. Marks
    /// of 2^62 and more are left out, since nobody issues those. This may look at every row.
    async fn highest_token(&mut self) -> Result<i64, StoreError>;

    /// Enters the first row; if there is one by now, that one stands. Returns what stands.
    async fn adopt(&mut self, first: &Remembered) -> Result<Remembered, StoreError>;

    /// Raises the row to what was seen in `epoch`, if that is still the epoch. Returns what stands.
    async fn note(&mut self, epoch: u16, seen: &Sighting) -> Result<Remembered, StoreError>;

    /// Moves from the epoch `from` to a later one, unless another fencepost has, and if it may move already. Returns
    /// what stands.
    async fn move_on(
        &mut self,
        from: u16,
        to: &Remembered,
        reason: MoveReason,
    ) -> Result<Remembered, StoreError>;

    /// As [`super::Store::claim_authority`].
    async fn claim_authority(
        &mut self,
        wanted: &OwningAuthority,
    ) -> Result<OwningAuthority, StoreError>;

    /// Records the number that was found in the authority, in place of `former`; where there was one, the epoch moves on in
    /// the same transaction. Returns the number that stands.
    async fn claim_instance(
        &mut self,
        former: Option<&str>,
        found: &str,
        seen: &Sighting,
    ) -> Result<Option<String>, StoreError>;
}

/// What both stores answer alike, with numbers of 64 bits.
pub(super) fn recalled<R: Row>(row: &R) -> Result<Recalled, sqlx::Error>
where
    for<'a> &'a str: ColumnIndex<R>,
    for<'a> i64: Decode<'a, R::Database> + Type<R::Database>,
    for<'a> String: Decode<'a, R::Database> + Type<R::Database>,
    for<'a> Option<String>: Decode<'a, R::Database> + Type<R::Database>,
{
    let kind: Option<String> = row.try_get("kind")?;
    let (identity, namespace) = (row.try_get("identity")?, row.try_get("namespace")?);
    let instance = row.try_get("instance")?;
    Ok(Recalled {
        row: remembered(row)?,
        issued: row.try_get("issued")?,
        owner: kind.map(|kind| OwningAuthority { kind, identity, namespace, instance }),
    })
}

pub(super) fn remembered<R: Row>(row: &R) -> Result<Remembered, sqlx::Error>
where
    for<'a> &'a str: ColumnIndex<R>,
    for<'a> i64: Decode<'a, R::Database> + Type<R::Database>,
    for<'a> String: Decode<'a, R::Database> + Type<R::Database>,
{
    let epoch: i64 = row.try_get("epoch")?;
    Ok(Remembered {
        epoch: u16::try_from(epoch).map_err(|error| sqlx::Error::Decode(error.into()))?,
        seen: Sighting {
            revision: row.try_get("revision")?,
            cluster: row.try_get("cluster")?,
            term: row.try_get("term")?,
        },
    })
}

pub(super) fn missing() -> StoreError {
    StoreError::Unfit("the row that remembers the authority has gone".into())
}
