//! The lock table in the SQLite file. Each change is made to a queue that nobody else can touch
//! (`lock_queue.rs`).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{Connection, Row, SqliteConnection};

use super::{
    Writing,
    disk::Disk,
    lock_queue::{Live, Queue, holder},
    session::{self, not_applied, not_committed},
};
use crate::{
    auth::Identity,
    authority::{Holder, LockEvent, LockState},
    store::{
        Page, StoreError, first_key_after_prefix,
        lock_table::{
            Changed, Entered, Entry, ISSUED_BY_NOBODY, LockTable, Place, from_millis,
            other_authority, to_millis, waiting_lease,
        },
    },
    token::{Key, Token},
};

/// Rows that have been dead for longer are swept. Those behind them have long noticed.
const SWEPT_AFTER: Duration = Duration::from_mins(1);

pub struct SqliteLockTable {
    connection: SqliteConnection,
    writing: Writing,
    disk: Arc<Disk>,
}

impl SqliteLockTable {
    pub fn new(connection: SqliteConnection, writing: Writing, disk: Arc<Disk>) -> Self {
        Self { connection, writing, disk }
    }

    async fn queue(&mut self, name: &Key) -> Result<Queue<'_>, StoreError> {
        Queue::take(&mut self.connection, &self.writing, &self.disk, name).await
    }
}

#[async_trait]
impl LockTable for SqliteLockTable {
    async fn adopt(&mut self, known: i64) -> Result<(), StoreError> {
        let _in_line = self.writing.lock().await;
        let mut transaction =
            self.connection.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
        sqlx::query(
            "UPDATE tokens SET issued = max(
                 issued,
                 ?2,
                 coalesce((SELECT token FROM floor WHERE token < ?1), 0),
                 coalesce(
                     (SELECT (epoch << 48) + revision FROM authority),
                     (SELECT max(token) FROM resources
                      WHERE token < ?1 AND (SELECT issued FROM tokens) = 0),
                     0))",
        )
        .bind(ISSUED_BY_NOBODY)
        .bind(known)
        .execute(&mut *transaction)
        .await
        .map_err(not_applied)?;
        self.disk.note_outcome(transaction.commit().await.map_err(not_committed))
    }

    async fn enter(&mut self, entry: &Entry) -> Result<Changed<Entered>, StoreError> {
        let mut queue = self.queue(&entry.name).await?;
        let first = queue.first().await?;
        if let Some(first) = &first
            && !entry.stays
        {
            let holder = first.holder.clone();
            return queue.done(Entered::TurnedAway { holder }, None).await;
        }
        let token = queue.issue().await?;
        let place = if first.is_none() {
            queue.insert(entry, token, entry.ttl).await?;
            queue.events.push(LockEvent::Granted(Holder {
                name: entry.name.clone(),
                token,
                owner: entry.owner.clone(),
                remaining: entry.ttl,
            }));
            Place::Holds
        } else {
            let lease = waiting_lease(entry.ttl);
            queue.insert(entry, token, lease).await?;
            Place::Waits { lease, ahead: queue.ahead_of(token).await? }
        };
        queue.done(Entered::In { token, place }, Some(&entry.lease)).await
    }

    async fn look(
        &mut self,
        name: &Key,
        token: Token,
    ) -> Result<Changed<Option<Place>>, StoreError> {
        let mut queue = self.queue(name).await?;
        let Some(ttl) = queue.lease_of(token).await? else { return queue.done(None, None).await };
        let first = queue.first().await?;
        match first {
            Some(Live { lease, mut holder }) if holder.token == token => {
                queue.refresh(token, ttl).await?;
                holder.remaining = ttl;
                queue.events.push(LockEvent::Granted(holder));
                queue.done(Some(Place::Holds), Some(&lease)).await
            }
            _ => {
                let lease = waiting_lease(ttl);
                queue.refresh(token, lease).await?;
                let ahead = queue.ahead_of(token).await?;
                queue.done(Some(Place::Waits { lease, ahead }), None).await
            }
        }
    }

    async fn leave(
        &mut self,
        name: &Key,
        lease: &str,
    ) -> Result<Changed<Option<Holder>>, StoreError> {
        let mut queue = self.queue(name).await?;
        let removed: Option<i64> =
            sqlx::query_scalar("DELETE FROM locks WHERE name = ?1 AND lease = ?2 RETURNING token")
                .bind(name.as_str())
                .bind(lease)
                .fetch_optional(&mut *queue.transaction)
                .await
                .map_err(not_applied)?;
        let holder = queue.first().await?.map(|first| first.holder);
        if let Some(token) = removed.and_then(Token::new)
            && holder.as_ref().is_none_or(|holder| holder.token > token)
        {
            queue.collected = true;
            queue.events.push(LockEvent::Released(Some(token)));
        }
        queue.done(holder, None).await
    }

    async fn renew(
        &mut self,
        name: &Key,
        token: Token,
    ) -> Result<Changed<Option<Duration>>, StoreError> {
        let mut queue = self.queue(name).await?;
        let ttl: Option<i64> = sqlx::query_scalar(
            "UPDATE locks SET expires_at = ?3 + ttl_ms WHERE name = ?1 AND token = ?2
                 AND token = (SELECT min(token) FROM locks WHERE name = ?1) RETURNING ttl_ms",
        )
        .bind(name.as_str())
        .bind(token.get())
        .bind(queue.now)
        .fetch_optional(&mut *queue.transaction)
        .await
        .map_err(not_applied)?;
        queue.done(ttl.map(from_millis), None).await
    }

    async fn release(&mut self, name: &Key, token: Token) -> Result<Changed<bool>, StoreError> {
        let mut queue = self.queue(name).await?;
        let released = queue.remove_if_first(token).await?;
        if released {
            queue.collected = true;
            queue.events.push(LockEvent::Released(Some(token)));
        }
        queue.done(released, None).await
    }

    async fn inspect(&mut self, name: &Key) -> Result<LockState, StoreError> {
        let rows = sqlx::query(
            "WITH moment (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER))
             SELECT name, token, owner, identity, min(ttl_ms, expires_at - now) AS remaining,
                    count(*) OVER () AS live
             FROM locks, moment WHERE name = ?1 AND expires_at > now ORDER BY token LIMIT 1",
        )
        .bind(name.as_str())
        .fetch_optional(&mut self.connection)
        .await
        .map_err(not_applied)?;
        let Some(row) = rows else { return Ok(LockState::default()) };
        let live: i64 = row.try_get("live").map_err(not_applied)?;
        let identity: Option<&str> = row.try_get("identity").map_err(not_applied)?;
        Ok(LockState {
            holder: Some(holder(&row)?),
            granted_to: identity.and_then(Identity::checked),
            waiters: live.unsigned_abs() - 1,
        })
    }

    async fn list(&mut self, page: &Page) -> Result<Vec<Holder>, StoreError> {
        let rows = sqlx::query(
            "WITH moment (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER))
             SELECT name, min(token) AS token, owner, min(ttl_ms, expires_at - now) AS remaining
             FROM locks, moment
             WHERE name > ?1 AND name >= ?2 AND (?3 IS NULL OR name < ?3) AND expires_at > now
             GROUP BY name ORDER BY name LIMIT ?4",
        )
        .bind(&page.after)
        .bind(&page.prefix)
        .bind(first_key_after_prefix(&page.prefix))
        .bind(page.limit)
        .fetch_all(&mut self.connection)
        .await
        .map_err(not_applied)?;
        rows.iter().map(holder).collect()
    }

    async fn first_among(&mut self, leases: &[String]) -> Result<Vec<String>, StoreError> {
        let leases = serde_json::to_string(leases).map_err(StoreError::unavailable)?;
        sqlx::query_scalar(
            "WITH moment (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER))
             SELECT own.lease FROM json_each(?1) AS asked
             JOIN locks AS own ON own.lease = asked.value CROSS JOIN moment
             WHERE NOT EXISTS (SELECT 1 FROM locks AS other WHERE other.name = own.name
                               AND other.token < own.token AND other.expires_at > now)",
        )
        .bind(leases)
        .fetch_all(&mut self.connection)
        .await
        .map_err(not_applied)
    }

    async fn sweep(&mut self) -> Result<(), StoreError> {
        let _in_line = self.writing.lock().await;
        let swept = sqlx::query(
            "DELETE FROM locks WHERE expires_at < CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1",
        )
        .bind(to_millis(SWEPT_AFTER))
        .execute(&mut self.connection)
        .await
        .map_err(not_applied);
        match swept {
            // It has written nothing.
            Ok(swept) if swept.rows_affected() == 0 => Ok(()),
            swept => self.disk.note_outcome(swept).map(drop),
        }
    }

    async fn newest(&mut self) -> Result<i64, StoreError> {
        let issued: Option<i64> = sqlx::query_scalar(
            "SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM owning_authority WHERE kind <> 'store')
                    THEN issued END FROM tokens",
        )
        .fetch_one(&mut self.connection)
        .await
        .map_err(not_applied)?;
        issued.ok_or_else(other_authority)
    }

    async fn ping(&mut self) -> Result<(), StoreError> {
        session::ping(&mut self.connection).await
    }
}
