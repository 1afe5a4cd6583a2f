//! After a move has been committed, no fencepost of the former authority hands out a grant, and every token of the
//! new one is above all of the former.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use super::{TTL_MS, is_mismatch, lock, move_to, recorded, serve, try_lock};
use crate::harness::{
    etcd::{Etcd, unique},
    eventually,
    fencepost::run,
    http::answer,
    store::{TestStore, on_each_store},
    transaction::Transaction,
};

/// Moves a store from one authority to another, past a running server with the former.
async fn check_move(store: &TestStore, from: (&str, &[&str]), to: (&str, &[&str])) {
    // An etcd keeps the entries of those who held locks in it, until their leases end.
    let [held_name, kept, another, fresh_name] = ["held", "kept", "another", "fresh"].map(unique);
    let (name, old) = (held_name.as_str(), serve(store, from.0, from.1).await);
    let client = old.client();
    let held = lock(&client, name).await;
    assert_eq!(answer(client.put(name, held, "before")).await.status, 201);
    let mut stream = client.hold(&kept, &json!({ "ttl_ms": 5000 })).await;
    stream.expect("granted").await;
    let waiting = tokio::spawn({
        let request = client.acquire(name, &json!({ "ttl_ms": TTL_MS, "wait_ms": 600_000 }));
        async move { answer(request).await }
    });
    client.until_waiting(name, 1).await;

    let floor = move_to(store, to.0, to.1).await;
    assert!(floor > held, "{floor} {held}");
    // Nothing was restarted, and nothing has rested.
    is_mismatch(&try_lock(&client, &another).await);
    let stale = answer(client.put(name, held, "after")).await;
    assert_eq!((stale.status, &*stale.problem()), (409, "stale-token"));
    stream.expect("lost").await;
    eventually("the lock is not renewed", || async {
        let renewed = answer(client.renew(name, held)).await;
        matches!(
            (renewed.status, &*renewed.problem()),
            (409, "lock-lost") | (503, "authority-mismatch")
        )
    })
    .await;
    assert_eq!(answer(old.admin_client().get("/readyz")).await.status, 200);

    let new = serve(store, to.0, to.1).await;
    let next = lock(&new.client(), name).await;
    assert!(next >= floor, "{next} {floor}");
    assert_eq!(answer(new.client().put(name, next, "now")).await.status, 200);
    is_mismatch(&try_lock(&client, name).await);
    // What the new authority has issued is not called unissued, even where that cannot be asked.
    let fresh = lock(&new.client(), &fresh_name).await;
    let written = answer(client.put(&unique("unseen"), fresh, "v")).await;
    assert!(matches!(written.status, 201 | 503), "{}", written.text());
    // Nor does anybody who waited get the lock.
    let waited = waiting.await.expect("no panic");
    is_mismatch(&waited);
    eventually("it says so", || async {
        let metrics = answer(old.admin_client().get("/metrics")).await.text();
        metrics.lines().any(|line| line == "fencepost_authority_up 0")
    })
    .await;
}

on_each_store! {
    async fn a_store_moves_from_the_lock_table_to_etcd_and_back(store: TestStore) {
        let etcd = Etcd::start(&[]).await;
        check_move(&store, ("store", &[]), (&etcd.url(), &[])).await;
        check_move(&store, (&etcd.url(), &[]), ("store", &[])).await;
        // By then etcd is far behind, and its epoch has moved on for that.
        check_move(&store, ("store", &[]), (&etcd.url(), &[])).await;
    }
}

on_each_store! {
    async fn a_store_moves_to_another_etcd(store: TestStore) {
        let [first, second] = [Etcd::start(&[]).await, Etcd::start(&[]).await];
        check_move(&store, (&first.url(), &[]), (&second.url(), &[])).await;
    }
}

on_each_store! {
    async fn a_store_moves_to_another_prefix_of_the_same_etcd(store: TestStore) {
        let etcd = Etcd::start(&[]).await;
        let [first, second] = [["--etcd-prefix", "a"], ["--etcd-prefix", "b"]];
        check_move(&store, (&etcd.url(), &first), (&etcd.url(), &second)).await;
    }
}

/// Some are granted before the move. Their tokens are below the floor, all others are refused.
async fn check_under_load(from: &str, to: &str) {
    let store = TestStore::postgres().await;
    let old = serve(&store, from, &[]).await;
    let moved = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let (client, moved) = (old.client(), moved.clone());
            tokio::spawn(async move {
                let (mut tokens, mut refused) = (Vec::new(), 0);
                for turn in 0.. {
                    let begun_after = moved.load(Ordering::SeqCst);
                    let asked = try_lock(&client, &format!("{number}-{turn}")).await;
                    match asked.status {
                        201 => {
                            assert!(!begun_after, "granted after the move: {}", asked.text());
                            tokens.push(asked.json()["token"].as_i64().expect("a token"));
                        }
                        // Entered before the move, and claimed after it.
                        409 => assert_eq!(asked.problem(), "stale-token"),
                        _ => {
                            is_mismatch(&asked);
                            refused += 1;
                        }
                    }
                    if refused == 10 && begun_after {
                        break;
                    }
                }
                tokens
            })
        })
        .collect();
    eventually("many are granted", || async { old.client().holder("3-20").await > 0 }).await;
    let floor = move_to(&store, to, &[]).await;
    moved.store(true, Ordering::SeqCst);
    for client in clients {
        let tokens = client.await.expect("no panic");
        assert!(tokens.iter().all(|token| *token < floor), "{tokens:?} {floor}");
    }
}

#[tokio::test]
async fn under_load_nothing_is_granted_from_the_lock_table_after_a_move() {
    let etcd = Etcd::start(&[]).await;
    check_under_load("store", &etcd.url()).await;
}

#[tokio::test]
async fn under_load_nothing_is_granted_from_etcd_after_a_move() {
    let etcd = Etcd::start(&[]).await;
    check_under_load(&etcd.url(), "store").await;
}

on_each_store! {
    /// A new cluster at the old address: nobody knows what it has granted.
    async fn an_etcd_that_was_replaced_grants_nothing_until_the_store_is_moved(store: TestStore) {
        let mut etcd = Etcd::start(&[]).await;
        let server = serve(&store, &etcd.url(), &[]).await;
        let client = server.client();
        let held = lock(&client, "k").await;
        let before = recorded(&store).await;
        etcd.replace().await;
        eventually("it is noticed", || async {
            try_lock(&client, "other").await.problem() == "authority-mismatch"
        })
        .await;
        for _ in 0..20 {
            is_mismatch(&try_lock(&client, "k").await);
        }
        // Fencing needs only the store.
        assert_eq!(answer(client.put("k", held, "v")).await.status, 201);
        assert_eq!(answer(server.admin_client().get("/readyz")).await.status, 200);
        let metrics = answer(server.admin_client().get("/metrics")).await.text();
        assert!(metrics.lines().any(|line| line == "fencepost_authority_epoch 0"), "{metrics}");
        assert_eq!(recorded(&store).await, before);
        let logged = || server.log().matches("locks are refused").count();
        eventually("it is logged", || async { logged() > 0 }).await;

        let floor = move_to(&store, &etcd.url(), &[]).await;
        assert_ne!(recorded(&store).await, before);
        let next = lock(&client, "k").await;
        assert!(next >= floor && floor > held, "{next} {floor} {held}");
        assert_eq!(logged(), 1, "said once, not with every look");
        assert_eq!(answer(client.put("k", held, "late")).await.status, 409);
        assert_eq!(answer(client.put("k", next, "v")).await.status, 200);
    }
}

/// It believes any token, so it must not go on where an authority issues them now.
#[tokio::test]
async fn a_server_without_an_authority_serves_no_more_after_a_move() {
    for store in [TestStore::sqlite(), TestStore::postgres().await] {
        let server = serve(&store, "none", &[]).await;
        assert_eq!(answer(server.client().put("k", 41, "v")).await.status, 201);
        let floor = move_to(&store, "store", &[]).await;
        assert_eq!(floor, 42);
        eventually("it is unready", || async {
            let ready = answer(server.admin_client().get("/readyz?verbose")).await;
            ready.status == 503 && ready.text().contains("another authority")
        })
        .await;
        is_mismatch(&answer(server.client().put("k", 99, "v")).await);
        let table = serve(&store, "store", &[]).await;
        assert_eq!(lock(&table.client(), "k").await, 43);
        // And back: it goes on by itself.
        drop(table);
        move_to(&store, "none", &[]).await;
        server.wait_until_ready().await;
        assert_eq!(answer(server.client().put("k", 99, "v")).await.status, 200);
    }
}

/// Whatever an operator does, a token is never issued twice and never falls.
#[tokio::test]
async fn tokens_rise_over_every_move() {
    let [first, second] = [Etcd::start(&[]).await, Etcd::start(&[]).await];
    for store in [TestStore::sqlite(), TestStore::postgres().await] {
        let mut last = 0;
        for authority in
            ["store", &first.url(), &second.url(), "store", &second.url(), "none", "store"]
        {
            if last > 0 {
                let floor = move_to(&store, authority, &[]).await;
                assert!(floor > last, "{authority}: {floor} after {last}");
            }
            if authority == "none" {
                continue;
            }
            let server = serve(&store, authority, &[]).await;
            for _ in 0..3 {
                let token = lock(&server.client(), "k").await;
                assert!(token > last, "{authority}: {token} after {last}");
                assert_eq!(answer(server.client().release("k", token)).await.status, 204);
                last = token;
            }
        }
    }
}

on_each_store! {
    /// An authority believes no such token, but with `--trust open` the mark is there, and would fence off the
    /// holders to come.
    async fn a_mark_above_all_tokens_is_below_the_new_floor(store: TestStore) {
        let open = serve(&store, "store", &["--trust", "open"]).await;
        assert!(lock(&open.client(), "k").await < 41_000);
        assert_eq!(answer(open.client().put("high", 41_000, "v")).await.status, 201);
        drop(open);
        let etcd = Etcd::start(&[]).await;
        assert_eq!(move_to(&store, &etcd.url(), &[]).await, 41_001);
        let client = serve(&store, &etcd.url(), &[]).await;
        let token = lock(&client.client(), "high").await;
        assert_eq!(answer(client.client().put("high", token, "v")).await.status, 200);
    }
}

on_each_store! {
    /// No authority could issue a token that is not stale.
    async fn a_store_whose_floor_nobody_reaches_moves_to_no_authority(store: TestStore) {
        let server = serve(&store, "none", &[]).await;
        store.execute(&format!("UPDATE floor SET token = {}", i64::MAX)).await.unwrap();
        let (before, serving) = (recorded(&store).await, store.to_serve().await);
        let etcd = Etcd::start(&[]).await;
        for to in ["store", &etcd.url()] {
            let given = ["authority", "move", "--store", &serving, "--to", to, "--yes"];
            let refused = run(&given);
            let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(1), "{reason}");
            assert!(reason.contains("below 2^62"), "{reason}");
            assert_eq!(recorded(&store).await, before);
        }
        // What it says is the floor as it is.
        drop(server);
        store.execute("UPDATE owning_authority SET kind = 'store'").await.unwrap();
        assert_eq!(move_to(&store, "none", &[]).await, i64::MAX);
    }
}

/// Writers queue behind a lock that waits, so a move must not wait for long at a time.
#[tokio::test]
async fn writes_go_on_while_a_move_waits_for_one_of_them() {
    const WAITS: &str = "SELECT FROM pg_locks WHERE relation = 'fencepost.resources'::regclass
        AND mode = 'ShareRowExclusiveLock' AND NOT granted";
    let store = Arc::new(TestStore::postgres().await);
    let server = serve(&store, "none", &[]).await;
    let client = server.client();
    let slow = "INSERT INTO resources (key, token, touched_at) VALUES ('slow', 1, now())";
    let slow = Transaction::begin(&store, slow).await;
    let serving = store.to_serve().await;
    let operator = tokio::task::spawn_blocking(move || {
        run(&["authority", "move", "--store", &serving, "--to", "store", "--yes"])
    });
    for _ in 0..5 {
        eventually("the move waits", || slow.says(WAITS)).await;
        assert_eq!(answer(client.put(&unique("k"), 5, "v")).await.status, 201);
    }
    assert_eq!(recorded(&store).await.kind, "none");
    slow.commit().await;
    let moved = operator.await.expect("it ends");
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    assert_eq!(recorded(&store).await.kind, "store");
}
