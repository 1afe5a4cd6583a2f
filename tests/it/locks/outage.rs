//! A lock that nobody needs any more is released even if its lock service was away just then: as soon
//! as it is back, and not when the lease ends. And a request that fails names the part that is down.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{
    etcd::Etcd, eventually, fencepost::Fencepost, http::answer, postgres::Postgres,
    store::TestStore,
};

/// Far longer than the test.
const TTL_MS: u64 = 600_000;

async fn release_is_put_off(server: &Fencepost) {
    let put_off = || async { server.log().contains("could not be released yet") };
    eventually("a release is put off", put_off).await;
}

async fn is_free_again(server: &Fencepost) {
    eventually("the lock is free", || async {
        let state = answer(server.client().get("/v1/locks/k")).await;
        state.status == 200 && state.json()["held"] == false
    })
    .await;
}

#[tokio::test]
async fn a_hold_that_closes_while_etcd_is_away_is_released_when_it_is_back() {
    let etcd = Etcd::start(&[]).await;
    let store = TestStore::sqlite();
    let flags = ["--authority", &etcd.url(), "--log", "debug"];
    let server = Fencepost::with(&store, &flags).await;
    let mut hold = server.client().hold("k", &json!({"ttl_ms": TTL_MS})).await;
    hold.expect("granted").await;
    etcd.signal(Signal::SIGSTOP);
    drop(hold);
    release_is_put_off(&server).await;
    etcd.signal(Signal::SIGCONT);
    is_free_again(&server).await;
}

#[tokio::test]
async fn a_hold_that_closes_while_postgres_is_away_is_released_when_it_is_back() {
    let mut cluster = Postgres::start(&["fsync=off"]).await;
    let url = cluster.database("").await;
    let server = Fencepost::start(&url, &["--authority", "store", "--log", "debug"]);
    server.wait_until_ready().await;
    let mut hold = server.client().hold("k", &json!({"ttl_ms": TTL_MS})).await;
    hold.expect("granted").await;
    cluster.stop("fast").await;
    drop(hold);
    release_is_put_off(&server).await;
    cluster.run().await;
    is_free_again(&server).await;
}

/// Acquires, renews, releases and looks, on a server that has granted `k` under `token`.
async fn problems_of(server: &Fencepost, token: i64) -> Vec<(u16, String)> {
    let client = server.client();
    let requests = [
        client.acquire("other", &json!({ "ttl_ms": TTL_MS })),
        client.get("/v1/locks/k"),
        client.renew("k", token),
        client.release("k", token),
    ];
    let mut problems = Vec::new();
    for request in requests {
        let failed = answer(request).await;
        problems.push((failed.status, failed.problem()));
    }
    problems
}

#[tokio::test]
async fn a_lock_request_that_fails_because_of_the_store_says_so() {
    let mut cluster = Postgres::start(&["fsync=off"]).await;
    let url = cluster.database("").await;
    let server = Fencepost::start(&url, &["--authority", "store"]);
    server.wait_until_ready().await;
    let token = server.client().lock("k", Duration::from_mins(10)).await;
    cluster.stop("immediate").await;
    for _ in 0..2 {
        let of_the_store = (503, "store-unavailable".to_owned());
        assert!(problems_of(&server, token).await.iter().all(|problem| *problem == of_the_store));
    }
}

/// etcd answers, but how far it has come cannot be remembered.
#[tokio::test]
async fn with_etcd_a_lock_request_names_the_part_that_is_down() {
    let (mut etcd, mut cluster) = (Etcd::start(&[]).await, Postgres::start(&["fsync=off"]).await);
    let url = cluster.database("").await;
    let server = Fencepost::start(&url, &["--authority", &etcd.url()]);
    server.wait_until_ready().await;
    let token = server.client().lock("k", Duration::from_mins(10)).await;
    cluster.stop("immediate").await;
    for _ in 0..2 {
        let refused = answer(server.client().acquire("other", &json!({ "ttl_ms": TTL_MS }))).await;
        assert_eq!((refused.status, &*refused.problem()), (503, "store-unavailable"));
        // A token that is not known here has to be remembered before it is believed.
        let unseen = answer(server.client().put("k", token + 1000, "v")).await;
        assert_eq!((unseen.status, &*unseen.problem()), (503, "store-unavailable"));
    }
    cluster.run().await;
    eventually("locks are granted again", || async {
        answer(server.client().acquire("other", &json!({ "ttl_ms": TTL_MS }))).await.status == 201
    })
    .await;
    etcd.kill();
    let of_etcd = (503, "authority-unavailable".to_owned());
    let problems = problems_of(&server, token).await;
    assert!(problems.iter().all(|problem| *problem == of_etcd), "{problems:?}");
}
