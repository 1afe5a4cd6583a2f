//! What Postgres says by itself about its locks, on a connection that only listens.

use async_trait::async_trait;
use serde::Deserialize;
use sqlx::postgres::{PgListener, PgNotification};

use super::{
    server_identity::{OpenedOn, deposed},
    session::{PING_DEADLINE, surely, within},
};
use crate::{
    authority::{Holder, LockEvent},
    store::{
        StoreError,
        lock_table::{LockNews, News, from_millis, stored_key, stored_token},
    },
    token::Key,
};

const TURNS: &str = "fencepost_turns";
const EVENTS: &str = "fencepost_events";

/// As in the function `fencepost.tell`, which speaks only if somebody has this lock.
const WATCH: &str = "SELECT pg_advisory_lock_shared(1718511987, 1 + (hashtext($1) & 63))";

pub struct PostgresLockNews {
    listener: PgListener,
    opened_on: OpenedOn,
}

/// What `fencepost.tell` says.
#[derive(Deserialize)]
struct Told {
    name: String,
    happened: Happened,
    token: i64,
    owner: Option<String>,
    ttl_ms: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Happened {
    Granted,
    Released,
    Expired,
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
}

#[async_trait]
impl LockNews for PostgresLockNews {
    async fn next(&mut self) -> Result<News, StoreError> {
        let received = tokio::select! {
            // First: what the old server still says is not passed on.
            biased;
            () = self.opened_on.deposed() => return Err(deposed()),
            received = self.listener.try_recv() => received.map_err(StoreError::unavailable)?,
        };
        match received {
            Some(notification) => read(&notification),
            None => Err(StoreError::unavailable("the connection that listens was lost")),
        }
    }

    async fn watch(&mut self, name: &Key) -> Result<(), StoreError> {
        self.opened_on.check()?;
        let locked = async {
            sqlx::query(WATCH)
                .bind(name.as_str())
                .execute(&mut self.listener)
                .await
                .map_err(StoreError::unavailable)
        };
        within(PING_DEADLINE * 2, locked).await?;
        Ok(())
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

fn read(notification: &PgNotification) -> Result<News, StoreError> {
    if notification.channel() == TURNS {
        return Ok(News::Turn { lease: notification.payload().to_owned() });
    }
    let told: Told =
        serde_json::from_str(notification.payload()).map_err(StoreError::unavailable)?;
    let (name, token) = (stored_key(&told.name)?, stored_token(told.token)?);
    let event = match told.happened {
        Happened::Released => LockEvent::Released(Some(token)),
        Happened::Expired => LockEvent::Expired(token),
        Happened::Granted => LockEvent::Granted(Holder {
            name: name.clone(),
            token,
            owner: told.owner.unwrap_or_default(),
            remaining: from_millis(told.ttl_ms.unwrap_or_default()),
        }),
    };
    Ok(News::Event { name, event })
}
