//! Locks in the store's own database: one holder at a time, first come first served, over any number
//! of fenceposts. Each authority here is what one fencepost has; two of them share a database.

mod adoption;
mod postgres;
mod queue;
mod rules;
mod stragglers;
mod strangers;
mod table;
mod watching;

use std::{sync::Arc, time::Duration};

use fencepost::{
    authority::{Ask, Authority, Grant, Turn, store::StoreAuthority},
    token::{Key, Token},
};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::harness::{PATIENCE, eventually, store::TestStore};

pub const TTL: Duration = Duration::from_mins(10);

/// What one fencepost has.
pub async fn authority(store: &TestStore) -> Arc<StoreAuthority> {
    Arc::new(StoreAuthority::new(&store.open().await))
}

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub fn token(number: i64) -> Token {
    Token::new(number).unwrap()
}

pub fn ask(name: &str, ttl: Duration, wait: Duration) -> Ask {
    Ask {
        name: key(name),
        owner: format!("somebody who wants {name}"),
        identity: None,
        ttl,
        until: Instant::now() + wait,
        gone: CancellationToken::new(),
    }
}

pub async fn try_acquire(authority: &dyn Authority, name: &str, ttl: Duration) -> Option<Grant> {
    granted(authority.acquire(&ask(name, ttl, Duration::ZERO)).await.unwrap())
}

/// For a lock that comes sooner or later.
pub async fn acquire(authority: &dyn Authority, name: &str, ttl: Duration) -> Grant {
    let turn = authority.acquire(&ask(name, ttl, PATIENCE)).await.unwrap();
    granted(turn).expect("its turn comes")
}

pub fn granted(turn: Turn) -> Option<Grant> {
    match turn {
        Turn::Granted(grant) => Some(grant),
        Turn::Held(_) => None,
    }
}

/// Starts to wait, and is in the queue when this returns.
pub async fn queue_up(authority: &Arc<StoreAuthority>, ask: Ask) -> JoinHandle<Turn> {
    let name = ask.name.clone();
    let before = authority.inspect(&name).await.unwrap().waiters;
    let waiter = tokio::spawn({
        let authority = authority.clone();
        async move { authority.acquire(&ask).await.unwrap() }
    });
    eventually("it is in the queue", || async {
        authority.inspect(&name).await.unwrap().waiters > before
    })
    .await;
    waiter
}
