//! First come, first served, whichever fencepost they came to; and nobody who left is waited for.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use fencepost::{
    authority::{Authority, Turn, store::StoreAuthority},
    token::Key,
};
use futures_util::future::join_all;
use tokio::sync::Mutex;

use super::{TTL, acquire, ask, authority, granted, key, queue_up, try_acquire};
use crate::harness::{PATIENCE, eventually, store::on_each_store};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Holders as they say themselves: who is in, and the last token seen, for each lock.
#[derive(Default)]
struct Ledger {
    inside: HashMap<Key, AtomicI64>,
    granted: Mutex<Vec<(Key, i64)>>,
}

async fn hold_now_and_then(authority: Arc<StoreAuthority>, ledger: Arc<Ledger>, name: &str) {
    let grant = acquire(authority.as_ref(), name, TTL).await;
    let inside = &ledger.inside[&grant.name];
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold {name}");
    ledger.granted.lock().await.push((grant.name.clone(), grant.token.get()));
    tokio::task::yield_now().await;
    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two hold {name}");
    assert!(authority.release(&grant.name, grant.token).await.unwrap(), "it was held");
}

on_each_store! {
    async fn two_never_hold_a_lock_however_many_come(store: TestStore) {
        let fenceposts = [authority(&store).await, authority(&store).await];
        let inside = NAMES.map(|name| (key(name), AtomicI64::new(0))).into();
        let ledger = Arc::new(Ledger { inside, ..Ledger::default() });
        let holders = (0..300_usize).map(|number| {
            let (authority, ledger) = (fenceposts[number % 2].clone(), ledger.clone());
            tokio::spawn(hold_now_and_then(authority, ledger, NAMES[number % 3]))
        });
        for holder in join_all(holders.collect::<Vec<_>>()).await {
            holder.unwrap();
        }
        let granted = ledger.granted.lock().await;
        assert_eq!(granted.len(), 300);
        for name in NAMES.map(key) {
            let of_it: Vec<_> = granted.iter().filter(|(of, _)| *of == name).collect();
            assert_eq!(of_it.len(), 100);
            assert!(of_it.is_sorted_by(|(_, one), (_, next)| one < next), "tokens of {name} rise");
        }
        let mut tokens: Vec<_> = granted.iter().map(|(_, token)| *token).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 300, "each token is granted once");
    }
}

on_each_store! {
    async fn a_hundred_are_served_in_the_order_in_which_they_came(store: TestStore) {
        let fenceposts = [authority(&store).await, authority(&store).await];
        let first = try_acquire(fenceposts[0].as_ref(), "a", TTL).await.unwrap();
        let mut waiters = Vec::new();
        for number in 0..100 {
            waiters.push(queue_up(&fenceposts[number % 2], ask("a", TTL, PATIENCE)).await);
        }
        let state = fenceposts[1].inspect(&key("a")).await.unwrap();
        assert_eq!((state.waiters, state.holder.unwrap().token), (100, first.token));
        let mut before = first.token;
        assert!(fenceposts[1].release(&key("a"), first.token).await.unwrap());
        for (number, waiter) in waiters.into_iter().enumerate() {
            let grant = granted(waiter.await.unwrap()).expect("its turn comes");
            assert!(grant.token > before, "{number}");
            before = grant.token;
            let holder = fenceposts[number % 2].inspect(&key("a")).await.unwrap().holder;
            assert_eq!(holder.unwrap().token, grant.token);
            assert!(fenceposts[number % 2].release(&key("a"), grant.token).await.unwrap());
        }
    }
}

on_each_store! {
    async fn whoever_gives_up_leaves_no_trace(store: TestStore) {
        let (one, other) = (authority(&store).await, authority(&store).await);
        let holder = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
        let cancelled = ask("a", TTL, PATIENCE);
        let gone = cancelled.gone.clone();
        let impatient = queue_up(&one, ask("a", TTL, Duration::from_secs(15))).await;
        let leaving = queue_up(&other, cancelled).await;
        let patient = queue_up(&other, ask("a", TTL, PATIENCE)).await;

        let Turn::Held(Some(seen)) = impatient.await.unwrap() else { panic!("not held") };
        assert_eq!(seen.token, holder.token);
        gone.cancel();
        assert!(matches!(leaving.await.unwrap(), Turn::Held(_)));
        assert_eq!(one.inspect(&key("a")).await.unwrap().waiters, 1);
        assert!(one.release(&key("a"), holder.token).await.unwrap());
        let grant = granted(patient.await.unwrap()).expect("its turn comes");
        assert!(other.release(&key("a"), grant.token).await.unwrap());
        assert!(one.inspect(&key("a")).await.unwrap().holder.is_none());
    }
}

on_each_store! {
    /// As if its fencepost had been killed: nobody renews, and nobody leaves.
    async fn a_waiter_that_died_is_not_waited_for_longer_than_its_lease(store: TestStore) {
        let (one, other) = (authority(&store).await, authority(&store).await);
        let holder = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
        let dying = queue_up(&other, ask("a", Duration::from_secs(2), PATIENCE)).await;
        dying.abort();
        let patient = queue_up(&one, ask("a", TTL, PATIENCE)).await;
        assert!(one.release(&key("a"), holder.token).await.unwrap());
        assert!(granted(patient.await.unwrap()).is_some());
    }
}

on_each_store! {
    /// Their leases are renewed while they wait, and the holder's is not touched by that.
    async fn waiting_for_longer_than_the_lease_keeps_the_place(store: TestStore) {
        let (one, other) = (authority(&store).await, authority(&store).await);
        let short = Duration::from_secs(9);
        let holder = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
        let first = queue_up(&other, ask("a", short, PATIENCE)).await;
        let second = queue_up(&one, ask("a", short, PATIENCE)).await;
        tokio::time::sleep(short * 2).await;
        assert_eq!(one.inspect(&key("a")).await.unwrap().waiters, 2);
        assert!(one.release(&key("a"), holder.token).await.unwrap());
        let grant = granted(first.await.unwrap()).expect("its turn comes");
        assert_eq!(grant.token.get(), holder.token.get() + 1);
        assert!(grant.renewed.elapsed() < short);
        assert!(other.release(&key("a"), grant.token).await.unwrap());
        assert_eq!(granted(second.await.unwrap()).unwrap().token.get(), holder.token.get() + 2);
    }
}

on_each_store! {
    async fn a_place_that_was_lost_is_taken_anew(store: TestStore) {
        let one = authority(&store).await;
        let holder = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
        let waiter = queue_up(&one, ask("a", Duration::from_secs(6), PATIENCE)).await;
        let lost = format!("DELETE FROM locks WHERE token > {}", holder.token);
        store.execute(&lost).await.unwrap();
        eventually("it waits again", || async {
            one.inspect(&key("a")).await.unwrap().waiters == 1
        })
        .await;
        assert!(one.release(&key("a"), holder.token).await.unwrap());
        assert_eq!(granted(waiter.await.unwrap()).unwrap().token.get(), holder.token.get() + 2);
    }
}
