//! What was asked of the lock table, and comes to pass when nobody counts on it any more.

use fencepost::authority::{Authority, AuthorityError};

use super::{TTL, ask, authority, try_acquire};
use crate::harness::{PATIENCE, eventually, postgres::fetch, store::TestStore};

/// A row that may still come to exist is removed more than once: what was lost on its way to the database can arrive
/// there after a removal that has found nothing.
#[tokio::test]
async fn a_row_that_comes_to_exist_late_is_removed_too() {
    let store = TestStore::postgres().await;
    let authority = authority(&store).await;
    let holder = try_acquire(authority.as_ref(), "a", TTL).await.unwrap();
    let rows = async || {
        let sql = "SELECT count(*) FROM fencepost.locks WHERE name = 'a'";
        fetch::<i64>(&store.url, sql).await
    };
    let waiter = ask("a", TTL * 20, PATIENCE);
    let gone = waiter.gone.clone();
    let waiting = tokio::spawn({
        let authority = authority.clone();
        async move { authority.acquire(&waiter).await }
    });
    eventually("it waits", || async { rows().await == 2 }).await;
    let take_away = format!(
        "CREATE TABLE late AS SELECT * FROM locks WHERE token > {};
         UPDATE late SET expires_at = expires_at + interval '10 min';
         ALTER TABLE locks RENAME TO out_of_reach",
        holder.token
    );
    store.execute(&take_away).await.unwrap();
    gone.cancel();
    let answer = waiting.await.unwrap();
    assert!(matches!(answer, Err(AuthorityError::Store(_))), "{answer:?}");
    store.execute("ALTER TABLE out_of_reach RENAME TO locks").await.unwrap();
    eventually("it has left", || async { rows().await == 1 }).await;
    store.execute("INSERT INTO locks SELECT * FROM late").await.unwrap();
    eventually("it has left again", || async { rows().await == 1 }).await;
}
