//! What others did to the locks, brought to those in this process whom it concerns.
//!
//! Where the database speaks up by itself, that is a reason to look (`looks.rs`). Where it does not, or cannot be
//! heard for now, one question at a time asks for all who wait here. A word that is lost costs time,
//! never more: those who wait look again before their leases end.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Shared, looks::Looks, watchers::Word};
use crate::{
    store::{
        StoreError,
        lock_table::{LockNews, News},
    },
    token::Key,
};

const BETWEEN_QUESTIONS: Duration = Duration::from_millis(250);

/// Between attempts to have every change told.
const BETWEEN_COVERS: Duration = Duration::from_secs(1);

/// How long one attempt may take for all locks together. Notifications wait meanwhile, and with them every waiter whose
/// turn has come.
const COVER_TIMEOUT: Duration = Duration::from_millis(200);

/// Questions after which listening is tried again.
const QUESTIONS: usize = 4;

/// Rows of locks that nobody asks for any more are removed this often.
const BETWEEN_SWEEPS: Duration = Duration::from_mins(1);

pub async fn bring(shared: Arc<Shared>) {
    loop {
        somebody_cares(&shared).await;
        match shared.store.listen_to_locks().await {
            Ok(Some(news)) => {
                if let Err(error) = relay(&shared, news).await {
                    tracing::info!(%error, "no longer hearing what happens to locks; asking instead");
                    // Not at once again: whatever ended it may still be there.
                    ask(&shared).await;
                }
                shared.watchers.tell_all(&Word::Uncovered);
            }
            Ok(None) => ask(&shared).await,
            Err(_) => {
                for _ in 0..QUESTIONS {
                    ask(&shared).await;
                }
            }
        }
    }
}

async fn somebody_cares(shared: &Shared) {
    while shared.turns.is_empty() && shared.watchers.is_empty() {
        tokio::select! {
            () = shared.turns.somebody_came() => {}
            () = shared.watchers.somebody_came() => {}
        }
    }
}

/// Ends when the words do.
async fn relay(shared: &Shared, mut news: Box<dyn LockNews>) -> Result<(), StoreError> {
    let looks = Looks::default();
    tokio::select! {
        ended = pass_on(shared, news.as_mut(), &looks) => ended,
        never = looks.carry_out(shared) => match never {},
    }
}

async fn pass_on(
    shared: &Shared,
    news: &mut dyn LockNews,
    looks: &Looks,
) -> Result<(), StoreError> {
    let mut covered = HashSet::new();
    let mut all_covered = cover(shared, news, &mut covered).await?;
    // What was said before we listened was said to nobody.
    shared.turns.wake_all();
    loop {
        tokio::select! {
            word = news.next() => match word? {
                News::Turn { lease } => shared.turns.wake(&lease),
                News::Changed { name } => {
                    if shared.watchers.has(&name) {
                        looks.ask_for(name);
                    } else if shared.watchers.is_empty() && !covered.is_empty() {
                        news.watch_nothing().await?;
                        covered.clear();
                        all_covered = cover(shared, news, &mut covered).await?;
                    }
                }
            },
            () = shared.watchers.somebody_came() => {
                all_covered = cover(shared, news, &mut covered).await?;
            }
            () = tokio::time::sleep(BETWEEN_COVERS), if !all_covered => {
                all_covered = cover(shared, news, &mut covered).await?;
            }
        }
    }
}

/// Has every change of the locks that are watched here told, where that can be arranged: whether it was for all.
async fn cover(
    shared: &Shared,
    news: &mut dyn LockNews,
    covered: &mut HashSet<Key>,
) -> Result<bool, StoreError> {
    let until = Instant::now() + COVER_TIMEOUT;
    let names: HashSet<Key> = shared.watchers.names().into_iter().collect();
    covered.retain(|name| names.contains(name));
    let mut all = true;
    for name in names {
        if !covered.contains(&name) {
            if !news.watch(&name, until).await? {
                // Another role holds what it takes. Those who watch go on looking often, as they do until they are covered.
                all = false;
                continue;
            }
            covered.insert(name.clone());
        }
        // To all who watch it: some may have come since.
        shared.watchers.tell(&name, Word::Covered);
    }
    Ok(all)
}

async fn ask(shared: &Shared) {
    tokio::time::sleep(BETWEEN_QUESTIONS).await;
    let leases = shared.turns.leases();
    if leases.is_empty() {
        return;
    }
    let first =
        shared.tables.run(|table| Box::pin(async move { table.first_among(&leases).await })).await;
    // A failure is noticed by those who wait, when they renew their leases.
    for lease in first.unwrap_or_default() {
        shared.turns.wake(&lease);
    }
}

pub async fn sweep(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(BETWEEN_SWEEPS).await;
        if let Err(error) = shared.tables.run(|table| Box::pin(table.sweep())).await {
            tracing::debug!(%error, "dead rows of the lock table were not swept");
        }
    }
}
