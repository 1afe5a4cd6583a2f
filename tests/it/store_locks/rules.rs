//! Who holds a lock, and who may renew or release it.

use std::time::Duration;

use fencepost::{
    authority::{Authority, AuthorityError, LockState, Turn},
    store::{Page, StoreError},
};

use super::{TTL, acquire, ask, authority, key, queue_up, token, try_acquire};
use crate::harness::{PATIENCE, eventually, store::on_each_store};

const SHORT: Duration = Duration::from_secs(1);

on_each_store! {
    async fn a_lock_has_one_holder_at_a_time(store: TestStore) {
        let (one, other) = (authority(&store).await, authority(&store).await);
        let grant = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
        assert_eq!((grant.ttl, grant.name.as_str()), (TTL, "a"));
        for authority in [&one, &other] {
            let turn = authority.acquire(&ask("a", TTL, Duration::ZERO)).await.unwrap();
            let Turn::Held(Some(holder)) = turn else { panic!("{turn:?}") };
            assert_eq!((holder.token, holder.owner), (grant.token, grant.owner.clone()));
            assert!(holder.remaining <= TTL && holder.remaining > TTL / 2, "{:?}", holder.remaining);
        }
        // Whoever was turned away has left nothing behind.
        assert_eq!(one.inspect(&key("a")).await.unwrap().waiters, 0);
        assert!(one.release(&key("a"), grant.token).await.unwrap());
        assert_eq!(one.inspect(&key("a")).await.unwrap(), LockState::default());
        let next = try_acquire(other.as_ref(), "a", TTL).await.unwrap();
        assert!(next.token > grant.token);
        assert_ne!(next.lease, grant.lease);
    }
}

on_each_store! {
    async fn locks_of_other_names_are_free(store: TestStore) {
        let one = authority(&store).await;
        let mut tokens = Vec::new();
        for name in ["a", "a/b", "A", "a%", "é", "b'"] {
            tokens.push(try_acquire(one.as_ref(), name, TTL).await.unwrap().token);
        }
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        let names = |held: Vec<fencepost::authority::Holder>| -> Vec<String> {
            held.into_iter().map(|holder| holder.name.to_string()).collect()
        };
        assert_eq!(names(one.list(Page::first(100, "")).await.unwrap()), ["A", "a", "a%", "a/b", "b'", "é"]);
        assert_eq!(names(one.list(Page::first(100, "a")).await.unwrap()), ["a", "a%", "a/b"]);
        assert!(one.list(Page::first(100, "c")).await.unwrap().is_empty());
    }
}

on_each_store! {
    async fn only_the_holder_renews_and_releases(store: TestStore) {
        let (one, other) = (authority(&store).await, authority(&store).await);
        let grant = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
        let waiter = queue_up(&other, ask("a", TTL, PATIENCE)).await;
        let next = token(grant.token.get() + 1);
        for (name, stranger) in [("a", next), ("a", token(1 << 40)), ("b", grant.token)] {
            assert_eq!(one.renew(&key(name), stranger).await.unwrap(), None, "{name} {stranger}");
            assert!(!one.release(&key(name), stranger).await.unwrap(), "{name} {stranger}");
        }
        assert_eq!(other.renew(&key("a"), grant.token).await.unwrap(), Some(TTL));
        assert!(one.release(&key("a"), grant.token).await.unwrap());
        let Turn::Granted(successor) = waiter.await.unwrap() else { panic!("not granted") };
        assert_eq!(successor.token, next);
        // The former holder can neither resurrect its lock nor free its successor's.
        assert_eq!(one.renew(&key("a"), grant.token).await.unwrap(), None);
        assert!(!one.release(&key("a"), grant.token).await.unwrap());
        assert_eq!(one.inspect(&key("a")).await.unwrap().holder.unwrap().token, next);
    }
}

on_each_store! {
    async fn what_has_expired_is_lost_even_if_nobody_came(store: TestStore) {
        let one = authority(&store).await;
        let lease = Duration::from_secs(30);
        let grant = try_acquire(one.as_ref(), "a", lease).await.unwrap();
        let kept = try_acquire(one.as_ref(), "b", lease).await.unwrap();
        eventually("the lease ends", || async {
            one.renew(&key("b"), kept.token).await.unwrap().expect("it is renewed in time");
            one.inspect(&key("a")).await.unwrap().holder.is_none()
        })
        .await;
        assert!(one.list(Page::first(100, "a")).await.unwrap().is_empty());
        assert_eq!(one.renew(&key("a"), grant.token).await.unwrap(), None);
        assert!(!one.release(&key("a"), grant.token).await.unwrap());
        assert_eq!(one.renew(&key("b"), kept.token).await.unwrap(), Some(lease));
    }
}

on_each_store! {
    async fn a_dead_holders_lock_passes_on_within_its_lease(store: TestStore) {
        let (one, other) = (authority(&store).await, authority(&store).await);
        let begun = std::time::Instant::now();
        let dead = try_acquire(one.as_ref(), "a", SHORT).await.unwrap();
        let heir = acquire(other.as_ref(), "a", TTL).await;
        assert!(heir.token > dead.token);
        let took = begun.elapsed();
        assert!(took > SHORT / 2, "{took:?}");
        assert_eq!(one.renew(&key("a"), dead.token).await.unwrap(), None);
    }
}

on_each_store! {
    /// A clock that jumps back an hour leaves leases that end in an hour.
    async fn the_dead_do_not_live_on_when_the_clock_jumps_back(store: TestStore) {
        let one = authority(&store).await;
        let dead = try_acquire(one.as_ref(), "a", SHORT).await.unwrap();
        let in_an_hour = if store.is_postgres() {
            "UPDATE locks SET expires_at = expires_at + interval '1 hour'"
        } else {
            "UPDATE locks SET expires_at = expires_at + 3600000"
        };
        store.execute(in_an_hour).await.unwrap();
        let remaining = one.inspect(&key("a")).await.unwrap().holder.unwrap().remaining;
        assert!(remaining <= SHORT, "{remaining:?}");
        let heir = acquire(one.as_ref(), "a", TTL).await;
        assert!(heir.token > dead.token);
    }
}

on_each_store! {
    async fn the_newest_token_is_the_last_one_issued(store: TestStore) {
        let (one, other) = (authority(&store).await, authority(&store).await);
        assert_eq!((one.newest_known(), one.newest().await.unwrap()), (0, 0));
        let grant = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
        assert_eq!(one.newest_known(), grant.token.get());
        assert_eq!(other.newest_known(), 0);
        assert_eq!(other.newest().await.unwrap(), grant.token.get());
        assert_eq!(other.newest_known(), grant.token.get());
        let later = try_acquire(one.as_ref(), "b", TTL).await.unwrap();
        let all = futures_util::future::join_all((0..50).map(|_| other.newest())).await;
        assert!(all.into_iter().all(|newest| newest.unwrap() == later.token.get()));
    }
}

on_each_store! {
    async fn a_lock_table_whose_schema_has_changed_is_used_no_more(store: TestStore) {
        let (one, opened) = (authority(&store).await, store.open().await);
        let mut table = opened.connect_lock_table().await.unwrap();
        table.ping().await.unwrap();
        let newer = "UPDATE _sqlx_migrations SET version = version + 1000
                     WHERE version = (SELECT max(version) FROM _sqlx_migrations)";
        store.execute(newer).await.unwrap();
        assert!(matches!(table.ping().await, Err(StoreError::Unfit(_))));
        let refused = one.acquire(&ask("a", TTL, Duration::ZERO)).await;
        assert!(matches!(refused, Err(AuthorityError::Store(StoreError::Unfit(_)))), "{refused:?}");
    }
}

on_each_store! {
    async fn rows_that_nobody_asks_for_are_swept_once_they_are_long_dead(store: TestStore) {
        let one = authority(&store).await;
        for name in ["long dead", "just dead", "alive"] {
            try_acquire(one.as_ref(), name, TTL).await.unwrap();
        }
        for (name, dead_for) in [("long dead", 90), ("just dead", 10)] {
            let seconds = TTL.as_secs() + dead_for;
            let earlier = if store.is_postgres() {
                format!("expires_at - interval '{seconds} s'")
            } else {
                format!("expires_at - {seconds}000")
            };
            let sql = format!("UPDATE locks SET expires_at = {earlier} WHERE name = '{name}'");
            store.execute(&sql).await.unwrap();
        }
        let mut table = store.open().await.connect_lock_table().await.unwrap();
        table.sweep().await.unwrap();
        // Fails unless just these are there.
        let rest = "INSERT INTO floor SELECT * FROM floor WHERE 2 <> (SELECT count(*) FROM locks
                    WHERE name IN ('just dead', 'alive'))
                        OR 2 <> (SELECT count(*) FROM locks)";
        store.execute(rest).await.unwrap();
        assert_eq!(one.list(Page::first(100, "")).await.unwrap().len(), 1);
    }
}
