//! The mark cache refuses without the database, and never on the word of a request that failed.

use serde_json::json;

use crate::harness::{
    fencepost::Fencepost,
    http::{Client, answer},
    postgres::{self, Postgres},
    store::{TestStore, on_each_store},
    transaction::Transaction,
};

/// Nobody could use the tables even for reading, so an answer cannot have come from them.
const LOCK_EVERYTHING: &str = "LOCK TABLE resources, floor IN ACCESS EXCLUSIVE MODE";

#[tokio::test]
async fn a_zombie_is_refused_without_the_database() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    assert_eq!(answer(client.put("lock", 5, "value")).await.status, 201);
    let put = client.put("guarded", 5, "value").header("X-Fencing-Scope", "lock");
    assert_eq!(answer(put).await.status, 201);
    assert_eq!(answer(client.claim("lock", 7)).await.status, 200);

    let other = Transaction::begin(&store, LOCK_EVERYTHING).await;
    for _ in 0..50 {
        for request in [
            client.put("lock", 6, "zombie"),
            client.delete("lock", 6),
            client.claim("lock", 6),
            client.read("lock").header("X-Fencing-Token", 6),
            client.put("guarded", 6, "zombie").header("X-Fencing-Scope", "lock"),
        ] {
            let refused = answer(request).await;
            assert_eq!(refused.problem(), "stale-token");
            assert_eq!(refused.json()["mark"], 7);
            assert_eq!(refused.header("etag"), Some("\"1\""));
        }
    }
    // It may refuse. It can never accept: who is not surely stale waits for the database.
    other.makes_wait(client.put("lock", 7, "value")).await.abort();
    other.roll_back().await;
}

on_each_store! {
    /// The cache knows less than the database. What it does not know, it must not deny.
    async fn a_refusal_from_memory_says_what_the_database_would_say(store: TestStore) {
        let writer = Fencepost::on(&store).await;
        assert_eq!(answer(writer.client().put("lock", 5, "value")).await.status, 201);
        // This one hears of `lock` only as the scope of other keys.
        let server = Fencepost::on(&store).await;
        let client = server.client();
        for token in [6, 7] {
            let put = client.put("guarded", token, "value").header("X-Fencing-Scope", "lock");
            assert!([200, 201].contains(&answer(put).await.status));
        }
        for _ in 0..2 {
            let refused = answer(client.put("lock", 6, "zombie")).await;
            assert_eq!(refused.problem(), "stale-token");
            assert_eq!(refused.header("x-fencing-mark"), Some("7"));
            assert_eq!(refused.header("etag"), Some("\"1\""));
            assert_eq!(refused.json()["version"], 1);
        }
    }
}

/// From now on the database refuses to store the body `poison`.
async fn poison(store: &TestStore) {
    let sql = if store.is_postgres() {
        "ALTER TABLE resources ADD CHECK (value <> 'poison')"
    } else {
        "CREATE TRIGGER no_poison BEFORE INSERT ON resources
         WHEN CAST(NEW.value AS TEXT) = 'poison' BEGIN SELECT RAISE(ABORT, 'poison'); END"
    };
    store.execute(sql).await.expect("it can be forbidden");
}

on_each_store! {
    async fn a_failed_write_with_a_huge_token_does_not_block_the_key(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(answer(client.put("key", 5, "value")).await.status, 201);
        poison(&store).await;

        let failed = answer(client.put("key", i64::MAX, "poison")).await;
        assert_eq!((failed.status, failed.problem().as_str()), (503, "store-unavailable"));
        let scoped = client.put("other", i64::MAX, "poison").header("X-Fencing-Scope", "key");
        assert_eq!(answer(scoped).await.status, 503);
        // A batch is undone as a whole, with the marks that it had raised on its way.
        let batch = json!({"writes": [
            {"key": "key", "token": i64::MAX, "value": 1},
            {"key": "other", "token": 1, "value": 1, "if_match": "\"9\""},
        ]});
        assert_eq!(answer(client.batch(&batch)).await.status, 412);

        assert_eq!(client.mark("key").await, (5, 0));
        assert_eq!(client.mark("other").await, (0, 0));
        assert_eq!(answer(client.put("key", 6, "value")).await.status, 200);
        assert_eq!(answer(client.put("other", 1, "value")).await.status, 201);
    }
}

on_each_store! {
    async fn a_write_that_the_database_cannot_take_fails_alone(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(answer(client.put("first", 1, "value")).await.status, 201);
        poison(&store).await;
        let writes = (0..120).map(|number| put_to(client.clone(), number));
        for (body, status) in futures_util::future::join_all(writes).await {
            assert_eq!(status, if body == "poison" { 503 } else { 201 });
        }
    }
}

async fn put_to(client: Client, number: usize) -> (&'static str, u16) {
    let body = if number % 10 == 3 { "poison" } else { "value" };
    let put = client.put(&format!("key/{number}"), 1, body);
    (body, answer(put).await.status)
}

/// A refused write that locked its row and took a transaction id would let a zombie throttle the
/// holder.
#[tokio::test]
async fn a_refused_write_takes_no_transaction_id() {
    // Transaction ids are the whole cluster's, so nobody else may be there.
    let postgres = Postgres::start(&["fsync=off", "autovacuum=off"]).await;
    let url = postgres.database("").await;
    // The record of what was refused is written, if it is: in its own time, many at once.
    let server = Fencepost::start(&url, &["--mark-cache", "0B", "--rejections-keep", "0"]);
    server.wait_until_ready().await;
    let client = server.client();
    let put = client.put("key", 5, "value").header("X-Fencing-Seq", 3);
    assert_eq!(answer(put).await.status, 201);

    let batch = json!({"writes": [
        {"key": "new", "token": 5, "value": 1}, {"key": "key", "token": 4, "value": 1},
    ]});

    let before = next_transaction_id(&url).await;
    for _ in 0..20 {
        for (request, problem) in [
            (client.put("new", 4, "zombie").header("X-Fencing-Scope", "key"), "stale-token"),
            (client.batch(&batch), "stale-token"),
            (client.put("key", 4, "zombie"), "stale-token"),
            (client.delete("key", 4), "stale-token"),
            (client.claim("key", 4), "stale-token"),
            (client.read("key").header("X-Fencing-Token", 4), "stale-token"),
            (client.put("key", 5, "late"), "out-of-order"),
            (client.put("key", 5, "other").header("X-Fencing-Seq", 3), "seq-reused"),
        ] {
            assert_eq!(answer(request).await.problem(), problem);
        }
    }
    assert_eq!(next_transaction_id(&url).await, before);
    assert_eq!(answer(client.put("key", 6, "value")).await.status, 200);
    assert_eq!(next_transaction_id(&url).await, before + 1, "this does count what is taken");
}

async fn next_transaction_id(url: &str) -> i64 {
    sqlx::query_scalar("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        .fetch_one(&mut postgres::connect(url).await)
        .await
        .expect("a number")
}
