//! Fenced reads under a token that their key has seen: they have nothing to claim, and are reads like any other.
//!
//! What they claim where they have, is in `marks` and `concurrency`.

use reqwest::RequestBuilder;
use serde_json::json;

use crate::harness::{
    blocker::Blocker,
    fencepost::Fencepost,
    http::{Client, answer},
    postgres,
    prometheus::Scrape,
    store::{TestStore, on_each_store},
};

const TABLE: &str = "LOCK TABLE fencepost.resources IN EXCLUSIVE MODE";

fn read(client: &Client, key: &str, token: i64) -> RequestBuilder {
    client.read(key).header("X-Fencing-Token", token)
}

/// Those that have something to claim wait for the lane, as every write does.
#[tokio::test]
async fn they_do_not_wait_for_writes() {
    let store = TestStore::postgres().await;
    let flags = ["--store-connections", "1", "--authority", "none"];
    let server = Fencepost::with(&store, &flags).await;
    let client = server.client();
    assert_eq!(
        answer(client.put("key", 5, "v").header("X-Fencing-Scope", "scope")).await.status,
        201
    );
    let blocker = Blocker::holding(&store.url, TABLE).await;
    let waiting = tokio::spawn(answer(client.put("other", 5, "w")));
    blocker.until_waiting(1).await;
    let known = answer(read(&client, "key", 5)).await;
    assert_eq!(
        (known.status, known.text().as_str(), known.fencing()),
        (200, "v", (Some("5"), Some("\"1\"")))
    );
    let scoped = answer(read(&client, "key", 5).header("X-Fencing-Scope", "scope")).await;
    assert_eq!((scoped.status, scoped.text().as_str()), (200, "v"));
    assert!(!waiting.is_finished());
    blocker.release().await;
    assert_eq!(waiting.await.unwrap().status, 201);
}

on_each_store! {
    async fn a_newer_holder_that_came_elsewhere_is_noticed(store: TestStore) {
        let [here, elsewhere] = [Fencepost::on(&store).await, Fencepost::on(&store).await];
        let client = here.client();
        answer(client.put("key", 5, "v").header("X-Fencing-Scope", "scope")).await;
        answer(client.put("other", 5, "v").header("X-Fencing-Scope", "scope")).await;
        answer(elsewhere.client().put("key", 6, "newer")).await;
        let stale = answer(read(&client, "key", 5)).await;
        assert_eq!(stale.problem(), "stale-token");
        assert_eq!((stale.fencing(), &stale.json()["mark"]), ((Some("6"), Some("\"2\"")), &json!(6)));

        answer(elsewhere.client().claim("scope", 7)).await;
        let scoped = read(&client, "other", 5).header("X-Fencing-Scope", "scope");
        let stale = answer(scoped).await;
        assert_eq!(stale.problem(), "stale-token");
        assert_eq!((stale.fencing().0, &stale.json()["mark"]), (Some("5"), &json!(7)));
        // The key itself is still theirs.
        assert_eq!(answer(read(&client, "other", 5)).await.text(), "v");
    }
}

on_each_store! {
    async fn they_say_what_there_is_by_now(store: TestStore) {
        let [here, elsewhere] = [Fencepost::on(&store).await, Fencepost::on(&store).await];
        let client = here.client();
        answer(client.put("key", 5, "one")).await;
        answer(elsewhere.client().put("key", 5, "two")).await;
        let second = answer(read(&client, "key", 5)).await;
        assert_eq!((second.text().as_str(), second.header("etag")), ("two", Some("\"2\"")));
        answer(elsewhere.client().delete("key", 5)).await;
        let gone = answer(read(&client, "key", 5)).await;
        assert_eq!((gone.problem().as_str(), gone.header("x-fencing-mark")), ("not-found", Some("5")));
    }
}

on_each_store! {
    /// As claims, whichever way they go.
    async fn they_are_counted_and_recorded(store: TestStore) {
        let [here, elsewhere] = [Fencepost::on(&store).await, Fencepost::on(&store).await];
        let client = here.client();
        answer(client.put("key", 5, "v")).await;
        let before = Scrape::of(&here).await;
        assert_eq!(answer(read(&client, "key", 5)).await.status, 200);
        answer(elsewhere.client().claim("key", 6)).await;
        assert_eq!(answer(read(&client, "key", 5)).await.status, 409);
        let after = Scrape::of(&here).await;
        let rose = |count: fn(&Scrape) -> f64| count(&after) - count(&before);
        let counts = [
            rose(|it| it.writes("claim", "accepted")),
            rose(|it| it.writes("claim", "rejected")),
            rose(|it| it.rejected("stale-token", "store")),
        ];
        assert!(counts.iter().all(|count| (count - 1.0).abs() < 0.5), "{counts:?}");
        let recorded = answer(client.get("/v1/rejections?key=key")).await.json();
        assert_eq!((&recorded["rejections"][0]["token"], &recorded["rejections"][0]["mark"]), (&json!(5), &json!(6)));
    }
}

/// What is remembered of a mark is true for ever only as long as the database remembers it, too.
#[tokio::test]
async fn a_mark_that_the_database_has_lost_is_claimed_anew() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    answer(client.put("key", 5, "v").header("X-Fencing-Scope", "scope")).await;
    for key in ["key", "scope"] {
        let lose = format!(
            "ALTER TABLE fencepost.resources DISABLE TRIGGER ALL;
             UPDATE fencepost.resources SET token = 3 WHERE key = '{key}';
             ALTER TABLE fencepost.resources ENABLE TRIGGER ALL"
        );
        postgres::execute(&store.url, &lose).await;
        let scoped = read(&client, "key", 5).header("X-Fencing-Scope", "scope");
        assert_eq!(answer(scoped).await.text(), "v");
        let mark = format!("SELECT token FROM fencepost.resources WHERE key = '{key}'");
        assert_eq!(postgres::fetch::<i64>(&store.url, &mark).await, 5, "{key}");
    }
}
