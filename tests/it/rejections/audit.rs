//! What is kept in the store: by all fenceposts, over restarts, and not for ever.

use serde_json::{Value, json};

use super::{TRACEPARENT, one_stale_write, rejections};
use crate::harness::{
    chaos_proxy::{ChaosProxy, Weather},
    eventually,
    fencepost::Fencepost,
    http::answer,
    postgres::{self, Postgres},
    store::{TestStore, on_each_store},
};

on_each_store! {
    async fn a_restart_forgets_nothing(store: TestStore) {
        let mut server = Fencepost::on(&store).await;
        let stale = |client: crate::harness::http::Client| async move {
            assert!(answer(client.put("k", 9, "new")).await.status < 300);
            let stale = client.put("k", 7, "old").header("X-Fencing-Client", "billing-7");
            let traced = stale.header("traceparent", TRACEPARENT);
            assert_eq!(answer(traced).await.status, 409);
        };
        stale(server.client()).await;
        let before = rejections(&server.client(), "").await;
        assert_eq!(before.len(), 1);
        // What was refused in the last moment is written on the way out.
        server.signal(nix::sys::signal::Signal::SIGTERM);
        assert!(server.wait().success());

        let server = Fencepost::on(&store).await;
        let listing = answer(server.client().get("/v1/rejections")).await.json();
        assert_eq!(listing["from"], json!(["memory", "store"]));
        assert_eq!(listing["rejections"], Value::Array(before.clone()));
        for query in ["?key=k", "?reason=stale-token", "?since=1h", "?key=k&reason=stale-token"] {
            assert_eq!(rejections(&server.client(), query).await, before, "{query}");
        }
        for query in ["?key=j", "?reason=seq-reused", "?since=2999-01-01T00:00:00Z"] {
            assert!(rejections(&server.client(), query).await.is_empty(), "{query}");
        }
        stale(server.client()).await;
        let both = rejections(&server.client(), "").await;
        assert_eq!((both.len(), &both[1]), (2, &before[0]), "newest first, each once");
    }
}

on_each_store! {
    async fn each_fencepost_knows_what_the_others_refused(store: TestStore) {
        let [here, there] = [Fencepost::on(&store).await, Fencepost::on(&store).await];
        one_stale_write(&here.client(), "k").await;
        let told = rejections(&here.client(), "").await;
        eventually("the other one knows", || async {
            rejections(&there.client(), "").await == told
        })
        .await;
    }
}

on_each_store! {
    async fn only_so_many_are_kept(store: TestStore) {
        let flags = ["--rejections-keep", "20", "--rejections-memory", "0B"];
        let server = Fencepost::with(&store, &flags).await;
        let client = server.client();
        assert_eq!(answer(client.put("k", 9, "new")).await.status, 201);
        for _ in 0..60 {
            assert_eq!(answer(client.put("k", 7, "old")).await.status, 409);
        }
        eventually("the oldest are dropped", || async {
            rejections(&client, "?limit=1000").await.len() == 20
        })
        .await;
        let last = answer(client.put("k", 6, "old")).await;
        assert_eq!(last.status, 409);
        eventually("the newest is there", || async {
            rejections(&client, "?limit=1").await[0]["token"] == 6
        })
        .await;
    }
}

on_each_store! {
    async fn none_is_kept_for_longer_than_it_should_be(store: TestStore) {
        let flags = ["--rejections-keep-for", "1s", "--rejections-memory", "0B"];
        let server = Fencepost::with(&store, &flags).await;
        let client = server.client();
        one_stale_write(&client, "k").await;
        eventually("it was written", || async {
            store.execute("INSERT INTO rejections SELECT * FROM rejections").await.is_err()
        })
        .await;
        eventually("it has gone", || async { rejections(&client, "").await.is_empty() }).await;
    }
}

#[tokio::test]
async fn a_setting_switches_it_off() {
    let store = TestStore::sqlite();
    let server = Fencepost::with(&store, &["--rejections-keep", "0"]).await;
    one_stale_write(&server.client(), "k").await;
    let listing = answer(server.client().get("/v1/rejections")).await.json();
    assert_eq!(listing["from"], json!(["memory"]));
    assert_eq!(listing["rejections"].as_array().map(Vec::len), Some(1));
}

/// A table that cannot be written to costs the record in the store, and nothing else.
#[tokio::test]
async fn a_locked_audit_table_delays_no_write() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    one_stale_write(&client, "k").await;
    let lock = "LOCK TABLE fencepost.rejections IN ACCESS EXCLUSIVE MODE";
    let blocker = crate::harness::blocker::Blocker::holding(&store.url, lock).await;
    for token in 10..60 {
        assert_eq!(answer(client.put("k", token, "new")).await.status, 200);
        assert_eq!(answer(client.put("k", 7, "old")).await.status, 409);
    }
    let listing = answer(client.get("/v1/rejections?limit=1000")).await.json();
    assert_eq!(listing["from"], json!(["memory"]));
    assert_eq!(listing["rejections"].as_array().map(Vec::len), Some(51));
    drop(blocker);
    eventually("all are written", || async {
        let rows: i64 =
            postgres::fetch(&store.url, "SELECT count(*) FROM fencepost.rejections").await;
        rows == 51
    })
    .await;
}

#[tokio::test]
async fn what_was_refused_while_the_store_was_away_is_written_when_it_is_back() {
    let postgres = Postgres::start(&[]).await;
    let url = postgres.database("").await;
    let proxy = ChaosProxy::before(postgres.port()).await;
    let server = Fencepost::start(&proxy.reroute(&url, postgres.port()), &[]);
    server.wait_until_ready().await;
    let client = server.client();
    one_stale_write(&client, "k").await;
    proxy.set(Weather::Cut);
    for _ in 0..20 {
        // The cache needs no store.
        assert_eq!(answer(client.put("k", 7, "old")).await.status, 409);
    }
    assert_eq!(rejections(&client, "").await.len(), 21);
    proxy.set(Weather::Fair);
    eventually("writes go on", || async { answer(client.put("k", 10, "new")).await.status == 200 })
        .await;
    eventually("all are written", || async {
        let rows: i64 = postgres::fetch(&url, "SELECT count(*) FROM fencepost.rejections").await;
        rows == 21
    })
    .await;
}
