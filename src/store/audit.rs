//! The audit table: what was refused, for those who ask afterwards.
//!
//! All fenceposts on a database write into it, and each can read what the others wrote. Nothing is
//! decided by it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;

use super::StoreError;
use crate::{
    auth::Identity,
    metrics::{DecidedBy, Label, Reason},
    rejections::{Caller, Entry, Filter, Id, Refused, Rejection},
    token::{Key, Seq, Token},
    trace::TraceId,
};

/// One connection for it. Its owner makes one request at a time, and drops it after an error that
/// ends the session.
#[async_trait]
pub trait Audit: Send {
    /// What is there already is left as it is, so this may be repeated after an unknown outcome.
    async fn append(&mut self, entries: &[Arc<Entry>]) -> Result<(), StoreError>;

    /// The newest first.
    async fn newest(&mut self, filter: &Filter, limit: usize) -> Result<Vec<Entry>, StoreError>;

    async fn count(&mut self) -> Result<u64, StoreError>;

    /// Drops the oldest: those from before a moment, or whatever their age. At most `most` in one
    /// short transaction; returns how many.
    async fn drop_oldest(
        &mut self,
        before: Option<SystemTime>,
        most: u64,
    ) -> Result<u64, StoreError>;
}

/// A row, as both databases have it.
#[derive(serde::Serialize, sqlx::FromRow)]
pub(super) struct Row {
    pub fencepost: i64,
    pub number: i64,
    /// Microseconds since 1970.
    pub at: i64,
    pub key: Option<String>,
    pub scope: Option<String>,
    pub reason: String,
    pub token: Option<i64>,
    pub mark: Option<i64>,
    pub seq: Option<i64>,
    pub client: Option<String>,
    pub peer: Option<String>,
    pub trace: Option<String>,
    pub decided_by: String,
    pub overtaken_by: Option<String>,
    pub identity: Option<String>,
    /// Null in rows of an older version.
    pub by_floor: Option<bool>,
}

impl Row {
    pub fn of(entry: &Entry) -> Self {
        let Entry { id, rejection, overtaken_by } = entry;
        let Rejection { at, reason, decided_by, refused, mark, by_floor, caller } = rejection;
        let text = |key: &Option<Key>| key.as_ref().map(|key| key.as_str().to_owned());
        Self {
            fencepost: id.fencepost.cast_signed(),
            number: id.number.cast_signed(),
            at: microseconds(*at),
            key: text(&refused.key),
            scope: text(&refused.scope),
            reason: reason.name().into(),
            token: refused.token.map(Token::get),
            mark: *mark,
            seq: refused.seq.map(Seq::get),
            client: caller.client.as_deref().map(str::to_owned),
            peer: caller.peer.map(|peer| peer.to_string()),
            trace: caller.trace.map(|trace| trace.to_string()),
            decided_by: decided_by.name().into(),
            overtaken_by: overtaken_by.as_deref().map(str::to_owned),
            identity: caller.identity.as_ref().map(|identity| identity.as_str().to_owned()),
            by_floor: Some(*by_floor),
        }
    }

    /// `None` for a row that only a newer version understands.
    pub fn entry(self) -> Option<Entry> {
        let key = |text: Option<String>| text.and_then(|text| Key::new(&text).ok());
        let id =
            Id { fencepost: self.fencepost.cast_unsigned(), number: self.number.cast_unsigned() };
        let caller = Caller {
            client: self.client.map(String::into_boxed_str),
            peer: self.peer.and_then(|peer| peer.parse().ok()),
            trace: self.trace.and_then(|trace| TraceId::parse(&trace)),
            identity: self.identity.as_deref().and_then(Identity::checked),
            step: None,
        };
        let rejection = Rejection {
            at: UNIX_EPOCH + Duration::from_micros(u64::try_from(self.at).ok()?),
            reason: Reason::named(&self.reason)?,
            decided_by: *DecidedBy::ALL.iter().find(|judge| judge.name() == self.decided_by)?,
            refused: Refused {
                key: key(self.key),
                scope: key(self.scope),
                token: self.token.and_then(Token::new),
                seq: self.seq.and_then(Seq::new),
            },
            mark: self.mark,
            by_floor: self.by_floor.unwrap_or(false),
            caller: Arc::new(caller),
        };
        Some(Entry { id, rejection, overtaken_by: self.overtaken_by.map(Arc::from) })
    }
}

pub(super) fn microseconds(moment: SystemTime) -> i64 {
    let since_1970 = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}
