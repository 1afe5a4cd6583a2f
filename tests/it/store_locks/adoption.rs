//! Tokens rise when the store becomes the authority, whoever issued them before.

use fencepost::{authority::Authority, store::OwningAuthority};
use futures_util::future::join_all;

use super::{TTL, authority, try_acquire};
use crate::harness::store::{TestStore, on_each_store};

async fn put_mark(store: &TestStore, key: &str, token: i64) {
    let now = if store.is_postgres() { "now()" } else { "0" };
    let sql =
        format!("INSERT INTO resources (key, token, touched_at) VALUES ('{key}', {token}, {now})");
    store.execute(&sql).await.unwrap();
}

on_each_store! {
    async fn the_first_token_is_above_every_mark_that_somebody_can_have_issued(store: TestStore) {
        store.open().await;
        put_mark(&store, "k", 41_000).await;
        put_mark(&store, "forged", i64::MAX).await;
        // Several fenceposts start at once.
        let fenceposts = join_all((0..5).map(|_| authority(&store))).await;
        let newest = join_all(fenceposts.iter().map(|fencepost| fencepost.newest())).await;
        assert!(newest.into_iter().all(|newest| newest.unwrap() == 41_000));
        let names = ["a", "b", "c", "d", "e"];
        let asked = fenceposts.iter().zip(names).map(|(fencepost, name)| {
            try_acquire(fencepost.as_ref(), name, TTL)
        });
        let mut tokens: Vec<_> =
            join_all(asked).await.into_iter().map(|grant| grant.unwrap().token.get()).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [41_001, 41_002, 41_003, 41_004, 41_005]);
    }
}

on_each_store! {
    /// Once tokens have been issued here, a mark that is above them came from nobody.
    async fn a_mark_that_came_later_moves_nothing(store: TestStore) {
        let first = try_acquire(authority(&store).await.as_ref(), "a", TTL).await.unwrap();
        put_mark(&store, "k", 41_000).await;
        let restarted = authority(&store).await;
        let next = try_acquire(restarted.as_ref(), "b", TTL).await.unwrap();
        assert_eq!(next.token.get(), first.token.get() + 1);
    }
}

on_each_store! {
    async fn tokens_are_above_the_floor(store: TestStore) {
        store.open().await;
        store.execute("UPDATE floor SET token = 500").await.unwrap();
        let grant = try_acquire(authority(&store).await.as_ref(), "a", TTL).await.unwrap();
        assert_eq!(grant.token.get(), 501);
        // As after a restore, also when tokens were issued before.
        store.execute("UPDATE floor SET token = 900").await.unwrap();
        let grant = try_acquire(authority(&store).await.as_ref(), "b", TTL).await.unwrap();
        assert_eq!(grant.token.get(), 901);
    }
}

on_each_store! {
    async fn tokens_are_above_those_of_an_etcd_that_was_the_authority_before(store: TestStore) {
        store.open().await;
        put_mark(&store, "k", 7).await;
        let values = "(epoch, revision, cluster, term) VALUES (2, 1234, 'c', 1)";
        let sql = if store.is_postgres() {
            format!("INSERT INTO authority {values}")
        } else {
            format!("INSERT INTO authority {}", values.replace("(epoch", "(only_row, epoch").replace("(2,", "(1, 2,"))
        };
        store.execute(&sql).await.unwrap();
        let floor =
            store.open().await.move_authority(&OwningAuthority::store(), None).await.unwrap();
        assert_eq!(floor, (2 << 48) + 1235);
        let authority = authority(&store).await;
        assert_eq!(authority.newest().await.unwrap(), floor);
        let grant = try_acquire(authority.as_ref(), "a", TTL).await.unwrap();
        assert_eq!(grant.token.get(), floor + 1);
    }
}

on_each_store! {
    /// A floor that no authority reaches must not use up the tokens.
    async fn a_floor_that_nobody_reaches_is_not_adopted(store: TestStore) {
        let first = try_acquire(authority(&store).await.as_ref(), "a", TTL).await.unwrap();
        store.execute(&format!("UPDATE floor SET token = {}", i64::MAX)).await.unwrap();
        let next = try_acquire(authority(&store).await.as_ref(), "b", TTL).await.unwrap();
        assert_eq!(next.token.get(), first.token.get() + 1);
    }
}
