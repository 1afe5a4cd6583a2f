//! What Postgres says by itself about its locks, on a connection that only listens.
//!
//! Every role of the database can send a notification, with any payload. So a payload names a lock or a lease to look
//! at, and nothing else of it is used. One that cannot be read is ignored.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use sqlx::postgres::{PgListener, PgNotification};
use tokio::time::{Instant, sleep};

use super::{
    server_identity::{OpenedOn, deposed},
    session::{PING_DEADLINE, surely, within},
};
use crate::{
    store::{
        StoreError,
        lock_table::{LockNews, News},
    },
    token::Key,
};

const TURNS: &str = "fencepost_turns";
const EVENTS: &str = "fencepost_events";

/// As in the function `fencepost.tell`, which speaks only if a session has this lock. It is only tried for: another
/// role of the database can hold it for ever.
const WATCH: &str = "SELECT pg_try_advisory_lock_shared(1718511987, 1 + (hashtext($1) & 63))";

/// A transaction that changes a lock which no client watches has the lock to itself until it ends. How long to wait
/// between two attempts.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

pub struct PostgresLockNews {
    listener: PgListener,
    opened_on: OpenedOn,
}

/// What is used of what `fencepost.tell` says.
#[derive(Deserialize)]
struct Told {
    name: String,
}

impl PostgresLockNews {
    pub async fn new(mut listener: PgListener, opened_on: OpenedOn) -> Result<Self, StoreError> {
        // Reconnecting is left to whoever has to make good for what was missed meanwhile.
        listener.eager_reconnect(false);
        let listening =
            async { listener.listen_all([TURNS, EVENTS]).await.map_err(StoreError::unavailable) };
        within(PING_DEADLINE, listening).await.map_err(surely)?;
        Ok(Self { listener, opened_on })
    }

    async fn try_watch(&mut self, name: &Key) -> Result<bool, StoreError> {
        let locked = async {
            sqlx::query_scalar(WATCH)
                .bind(name.as_str())
                .fetch_one(&mut self.listener)
                .await
                .map_err(StoreError::unavailable)
        };
        within(PING_DEADLINE, locked).await
    }
}

#[async_trait]
impl LockNews for PostgresLockNews {
    async fn next(&mut self) -> Result<News, StoreError> {
        loop {
            let received = tokio::select! {
                // First: what the old server still says is not passed on.
                biased;
                () = self.opened_on.deposed() => return Err(deposed()),
                received = self.listener.try_recv() => received.map_err(StoreError::unavailable)?,
            };
            match received {
                Some(notification) => {
                    if let Some(news) = read(&notification) {
                        return Ok(news);
                    }
                }
                None => {
                    return Err(StoreError::unavailable("the connection that listens was lost"));
                }
            }
        }
    }

    async fn watch(&mut self, name: &Key, until: Instant) -> Result<bool, StoreError> {
        self.opened_on.check()?;
        loop {
            if self.try_watch(name).await? {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            sleep(BETWEEN_ATTEMPTS).await;
        }
    }

    async fn watch_nothing(&mut self) -> Result<(), StoreError> {
        self.opened_on.check()?;
        let unlocked = async {
            sqlx::query("SELECT pg_advisory_unlock_all()")
                .execute(&mut self.listener)
                .await
                .map_err(StoreError::unavailable)
        };
        within(PING_DEADLINE, unlocked).await?;
        Ok(())
    }
}

fn read(notification: &PgNotification) -> Option<News> {
    match notification.channel() {
        TURNS => Some(News::Turn { lease: notification.payload().to_owned() }),
        EVENTS => changed(notification.payload()),
        _ => None,
    }
}

fn changed(payload: &str) -> Option<News> {
    let told: Told = serde_json::from_str(payload).ok()?;
    Some(News::Changed { name: Key::new(&told.name).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_is_used_and_nonsense_is_ignored() {
        let name = Key::new("a").unwrap();
        let payloads = [
            r#"{"name":"a","happened":"granted","token":7,"owner":"o","ttl_ms":30000}"#,
            r#"{"name":"a","happened":"forged","token":-1}"#,
            r#"{"name":"a"}"#,
        ];
        for payload in payloads {
            assert_eq!(changed(payload), Some(News::Changed { name: name.clone() }), "{payload}");
        }
        for payload in
            ["", "{", "[]", "null", r#"{"name":1}"#, r#"{"name":""}"#, r#"{"happened":"granted"}"#]
        {
            assert_eq!(changed(payload), None, "{payload}");
        }
    }
}
