//! The queue of one lock in the SQLite file, taken for as long as a change lasts: `BEGIN IMMEDIATE`
//! makes every change the only one.

use std::{sync::Arc, time::Duration};

use sqlx::{Connection, Row, Sqlite, SqliteConnection, Transaction, sqlite::SqliteRow};
use tokio::sync::OwnedMutexGuard;

use super::{
    Writing,
    disk::Disk,
    session::{not_applied, not_committed},
};
use crate::{
    auth::Identity,
    authority::{Holder, LockEvent},
    store::{
        StoreError,
        lock_table::{Changed, Entry, from_millis, stored_key, stored_token, to_millis},
    },
    token::{Key, Token},
};

/// Milliseconds since 1970.
const NOW: &str = "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// A row that is alive.
pub struct Live {
    pub lease: String,
    pub holder: Holder,
}

/// The queue of one lock, with its dead rows collected, for as long as nobody else can change it.
pub struct Queue<'c> {
    pub transaction: Transaction<'c, Sqlite>,
    _in_line: OwnedMutexGuard<()>,
    disk: Arc<Disk>,
    name: Key,
    pub now: i64,
    /// Whether rows have gone, so that somebody may be first who was not.
    pub collected: bool,
    pub events: Vec<LockEvent>,
}

impl<'c> Queue<'c> {
    /// Takes one's place in line, and then the file's one place for a writer.
    pub async fn take(
        connection: &'c mut SqliteConnection,
        writing: &Writing,
        disk: &Arc<Disk>,
        name: &Key,
    ) -> Result<Self, StoreError> {
        let in_line = writing.clone().lock_owned().await;
        let mut transaction =
            connection.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
        let now =
            sqlx::query_scalar(NOW).fetch_one(&mut *transaction).await.map_err(not_applied)?;
        let mut queue = Self {
            transaction,
            _in_line: in_line,
            disk: disk.clone(),
            name: name.clone(),
            now,
            collected: false,
            events: Vec::new(),
        };
        queue.collect().await.map_err(not_applied)?;
        Ok(queue)
    }

    async fn collect(&mut self) -> Result<(), sqlx::Error> {
        // No lease can end later than a whole one from now, unless the clock has jumped back. The dead
        // would live on for as long as it jumped.
        sqlx::query(
            "UPDATE locks SET expires_at = ?2 + ttl_ms WHERE name = ?1 AND expires_at > ?2 + ttl_ms",
        )
        .bind(self.name.as_str())
        .bind(self.now)
        .execute(&mut *self.transaction)
        .await?;
        let held_by_the_dead: Option<i64> = sqlx::query_scalar(
            "SELECT token FROM locks WHERE name = ?1 AND expires_at <= ?2
                 AND token = (SELECT min(token) FROM locks WHERE name = ?1)",
        )
        .bind(self.name.as_str())
        .bind(self.now)
        .fetch_optional(&mut *self.transaction)
        .await?;
        let collected = sqlx::query("DELETE FROM locks WHERE name = ?1 AND expires_at <= ?2")
            .bind(self.name.as_str())
            .bind(self.now)
            .execute(&mut *self.transaction)
            .await?;
        self.events.extend(held_by_the_dead.and_then(Token::new).map(LockEvent::Expired));
        self.collected = collected.rows_affected() > 0;
        Ok(())
    }

    pub async fn first(&mut self) -> Result<Option<Live>, StoreError> {
        sqlx::query(
            "SELECT name, token, lease, owner, min(ttl_ms, expires_at - ?2) AS remaining
             FROM locks WHERE name = ?1 ORDER BY token LIMIT 1",
        )
        .bind(self.name.as_str())
        .bind(self.now)
        .fetch_optional(&mut *self.transaction)
        .await
        .map_err(not_applied)?
        .map(|row| {
            let lease = row.try_get("lease").map_err(not_applied)?;
            Ok(Live { lease, holder: holder(&row)? })
        })
        .transpose()
    }

    pub async fn issue(&mut self) -> Result<Token, StoreError> {
        let token = sqlx::query_scalar("UPDATE tokens SET issued = issued + 1 RETURNING issued")
            .fetch_one(&mut *self.transaction)
            .await
            .map_err(not_applied)?;
        stored_token(token)
    }

    pub async fn insert(
        &mut self,
        entry: &Entry,
        token: Token,
        lease: Duration,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO locks (token, name, lease, owner, ttl_ms, expires_at, identity)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .bind(token.get())
        .bind(entry.name.as_str())
        .bind(&entry.lease)
        .bind(&entry.owner)
        .bind(to_millis(entry.ttl))
        .bind(self.now + to_millis(lease))
        .bind(entry.identity.as_ref().map(Identity::as_str))
        .execute(&mut *self.transaction)
        .await
        .map_err(not_applied)?;
        Ok(())
    }

    /// How long a row's lease lasts, if the row is there.
    pub async fn lease_of(&mut self, token: Token) -> Result<Option<Duration>, StoreError> {
        let ttl: Option<i64> =
            sqlx::query_scalar("SELECT ttl_ms FROM locks WHERE name = ?1 AND token = ?2")
                .bind(self.name.as_str())
                .bind(token.get())
                .fetch_optional(&mut *self.transaction)
                .await
                .map_err(not_applied)?;
        Ok(ttl.map(from_millis))
    }

    /// What is left to the row just before this one.
    pub async fn ahead_of(&mut self, token: Token) -> Result<Duration, StoreError> {
        let ahead: i64 = sqlx::query_scalar(
            "SELECT expires_at - ?3 FROM locks WHERE name = ?1 AND token < ?2
             ORDER BY token DESC LIMIT 1",
        )
        .bind(self.name.as_str())
        .bind(token.get())
        .bind(self.now)
        .fetch_one(&mut *self.transaction)
        .await
        .map_err(not_applied)?;
        Ok(from_millis(ahead))
    }

    pub async fn refresh(&mut self, token: Token, lease: Duration) -> Result<(), StoreError> {
        sqlx::query("UPDATE locks SET expires_at = ?3 WHERE name = ?1 AND token = ?2")
            .bind(self.name.as_str())
            .bind(token.get())
            .bind(self.now + to_millis(lease))
            .execute(&mut *self.transaction)
            .await
            .map_err(not_applied)?;
        Ok(())
    }

    /// Only if the row is the first, in the statement that changes it.
    pub async fn remove_if_first(&mut self, token: Token) -> Result<bool, StoreError> {
        let removed = sqlx::query(
            "DELETE FROM locks WHERE name = ?1 AND token = ?2
                 AND token = (SELECT min(token) FROM locks WHERE name = ?1)",
        )
        .bind(self.name.as_str())
        .bind(token.get())
        .execute(&mut *self.transaction)
        .await
        .map_err(not_applied)?;
        Ok(removed.rows_affected() > 0)
    }

    pub async fn done<T>(
        mut self,
        outcome: T,
        own: Option<&str>,
    ) -> Result<Changed<T>, StoreError> {
        let next = if self.collected { self.first().await?.map(|first| first.lease) } else { None };
        // A failed commit may have reached the disk or not.
        self.disk.note_outcome(self.transaction.commit().await.map_err(not_committed))?;
        let next = next.filter(|next| Some(next.as_str()) != own);
        Ok(Changed { outcome, next, events: self.events })
    }
}

pub fn holder(row: &SqliteRow) -> Result<Holder, StoreError> {
    Ok(Holder {
        name: stored_key(row.try_get("name").map_err(not_applied)?)?,
        token: stored_token(row.try_get("token").map_err(not_applied)?)?,
        owner: row.try_get("owner").map_err(not_applied)?,
        remaining: from_millis(row.try_get("remaining").map_err(not_applied)?),
    })
}
