//! A write that waits behind a lock is judged by what is there when the lock is gone.

use reqwest::RequestBuilder;
use serde_json::json;

use crate::harness::{
    fencepost::Fencepost,
    http::{Client, answer},
    store::TestStore,
    transaction::Transaction,
};

/// One request of each kind that touches `key` under `token`.
fn writes_of(client: &Client, key: &str, token: i64) -> Vec<(&'static str, RequestBuilder)> {
    let batch = json!({"writes": [
        {"key": "a", "token": token, "value": 1},
        {"key": key, "token": token, "value": 1},
    ]});
    let conditional = client.put(key, token, "mine").header("If-None-Match", "*");
    vec![
        ("put", client.put(key, token, "mine")),
        ("conditional put", conditional),
        ("delete", client.delete(key, token)),
        ("claim", client.claim(key, token)),
        ("fenced read", client.read(key).header("X-Fencing-Token", token)),
        ("put under a scope", client.put("another", token, "mine").header("X-Fencing-Scope", key)),
        ("batch", client.batch(&batch)),
    ]
}

#[tokio::test]
async fn whoever_waited_while_a_higher_token_committed_is_stale() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    for (number, (kind, _)) in writes_of(&client, "", 5).into_iter().enumerate() {
        let key = format!("key/{number}");
        assert_eq!(answer(client.put(&key, 1, "before")).await.status, 201);
        let (_, write) = writes_of(&client, &key, 5).swap_remove(number);

        let update = format!("UPDATE resources SET token = 9 WHERE key = '{key}'");
        let newer = Transaction::begin(&store, &update).await;
        let waiting = newer.makes_wait(write).await;
        newer.commit().await;

        let refused = waiting.await.expect("an answer");
        assert_eq!(refused.status, 409, "{kind}: {}", refused.text());
        assert_eq!(refused.problem(), "stale-token", "{kind}");
        assert_eq!(refused.json()["mark"], 9, "{kind}");
        assert_eq!(client.mark(&key).await, (9, 0), "{kind}");
        assert_eq!(answer(client.read(&key)).await.text(), "before", "{kind}");
    }
    // The batch and the scoped write were to change these as well.
    for untouched in ["a", "another"] {
        assert_eq!(client.mark(untouched).await, (0, 0), "{untouched}");
    }
}

#[tokio::test]
async fn whoever_waited_while_a_higher_token_rolled_back_goes_on() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    for (number, (kind, _)) in writes_of(&client, "", 5).into_iter().enumerate() {
        let key = format!("key/{number}");
        assert_eq!(answer(client.delete(&key, 1)).await.status, 204);
        let (_, write) = writes_of(&client, &key, 5).swap_remove(number);

        let update = format!("UPDATE resources SET token = 9 WHERE key = '{key}'");
        let newer = Transaction::begin(&store, &update).await;
        let waiting = newer.makes_wait(write).await;
        newer.roll_back().await;

        let done = waiting.await.expect("an answer");
        // The fenced read has claimed, and then found no value.
        assert!([200, 201, 204, 404].contains(&done.status), "{kind}: {}", done.text());
        assert_eq!(client.mark(&key).await, (5, 0), "{kind}");
    }
}

#[tokio::test]
async fn whoever_waited_for_the_first_row_of_a_key_is_judged_by_it() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    for (number, (kind, _)) in writes_of(&client, "", 5).into_iter().enumerate() {
        for (theirs, status) in [(9, 409), (5, 200)] {
            let key = format!("key/{number}/{theirs}");
            let (_, write) = writes_of(&client, &key, 5).swap_remove(number);
            let insert = format!(
                "INSERT INTO resources (key, token, version, created, value, content_type)
                 VALUES ('{key}', {theirs}, 1, true, 'theirs', 'text/plain')"
            );
            let first = Transaction::begin(&store, &insert).await;
            let waiting = first.makes_wait(write).await;
            first.commit().await;

            let done = waiting.await.expect("an answer");
            let expected: &[u16] = match (kind, status) {
                ("conditional put", 200) => &[412],
                ("put under a scope", 200) => &[200, 201],
                ("delete", 200) => &[204],
                _ => &[status],
            };
            assert!(expected.contains(&done.status), "{kind}: {}", done.text());
            assert_eq!(client.mark(&key).await.0, theirs, "{kind}");
        }
    }
}

/// Otherwise a new holder could read what an old one is about to replace.
#[tokio::test]
async fn a_fenced_read_that_waited_sees_what_was_committed_meanwhile() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    assert_eq!(answer(client.put("key", 5, "100")).await.status, 201);

    let update = "UPDATE resources SET value = '150', version = 2 WHERE key = 'key'";
    let old = Transaction::begin(&store, update).await;
    let read = client.read("key").header("X-Fencing-Token", 6);
    let waiting = old.makes_wait(read).await;
    // A read without a token protects nothing, so it need not wait either.
    assert_eq!(answer(client.read("key")).await.text(), "100");
    old.commit().await;

    let read = waiting.await.expect("an answer");
    assert_eq!((read.status, read.text().as_str()), (200, "150"));
    assert_eq!(read.header("etag"), Some("\"2\""));
    assert_eq!(read.header("x-fencing-mark"), Some("6"));
    assert_eq!(answer(client.put("key", 5, "200")).await.problem(), "stale-token");
}

#[tokio::test]
async fn a_row_that_stays_locked_is_given_up_with_nothing_changed() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    assert_eq!(answer(client.put("key", 5, "before")).await.status, 201);

    let other =
        Transaction::begin(&store, "SELECT FROM resources WHERE key = 'key' FOR UPDATE").await;
    let busy = other.makes_wait(client.put("key", 6, "after")).await.await.expect("an answer");
    assert_eq!(busy.status, 503);
    assert_eq!(busy.problem(), "store-unavailable");
    other.roll_back().await;
    assert_eq!(client.mark("key").await, (5, 0));
    assert_eq!(answer(client.read("key")).await.text(), "before");
    assert_eq!(answer(client.put("key", 6, "after")).await.status, 200);
}
