//! Collecting the marks of long-absent keys lets no stale write through: not before, not
//! meanwhile, not afterwards.

mod floor;
mod held;
mod in_flight;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use serde_json::{Value, json};

use crate::harness::{
    fencepost::{Fencepost, run},
    http::{Client, answer},
    store::{TestStore, on_each_store},
};

/// `fencepost compact --older-than 0s`, as an operator runs it who has a lock service of another kind and
/// knows that no token below `below` is held: what it prints of the floor and the marks.
async fn compact(store: &TestStore, below: i64) -> Value {
    let below = below.to_string();
    let arguments = [&COMPACT[..], &["--authority", "none", "--below", &below]].concat();
    let printed = command(store, &arguments).await.expect("it succeeds");
    json!({"floor": printed["floor"], "dropped": printed["dropped"]})
}

const COMPACT: [&str; 3] = ["compact", "--older-than", "0s"];

/// Runs a command on a store as the role that owns the schema: what it prints, or its exit code and what it
/// says.
async fn command(store: &TestStore, arguments: &[&str]) -> Result<Value, (i32, String)> {
    let url = store.url.replace("postgres@", "fencepost_owner@");
    let arguments = [arguments, &["--store", &url]].concat();
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    let work = move || run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let output = tokio::task::spawn_blocking(work).await.expect("it ends");
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout).expect("JSON"));
    }
    let code = output.status.code().expect("an exit code");
    Err((code, String::from_utf8_lossy(&output.stderr).into_owned()))
}

async fn put_and_delete(client: &Client, key: &str, token: i64) {
    assert!([200, 201].contains(&answer(client.put(key, token, "once")).await.status));
    assert_eq!(answer(client.delete(key, token)).await.status, 204);
}

on_each_store! {
    async fn a_database_of_another_version_is_left_alone(store: TestStore) {
        let refusal = async || {
            let output = run(&["compact", "--older-than", "0s", "--store", &store.url]);
            assert_eq!(output.status.code(), Some(1));
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let reason = refusal().await;
        assert!(reason.contains("`fencepost migrate`"), "{reason}");
        store.open().await;
        let newer = "UPDATE _sqlx_migrations SET version = 9999 WHERE version = 2";
        store.execute(newer).await.unwrap();
        let reason = refusal().await;
        assert!(reason.contains("a newer fencepost"), "{reason}");
    }
}

on_each_store! {
    async fn what_a_dropped_mark_refused_stays_refused(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(answer(client.put("present", 3, "still here")).await.status, 201);
        put_and_delete(&client, "low", 5).await;
        put_and_delete(&client, "high", 7).await;
        assert_eq!(answer(client.claim("claimed", 6)).await.status, 200);

        assert_eq!(compact(&store, 7).await, json!({"floor": 7, "dropped": 2}));
        // A server that has never heard of these keys, and one that has.
        let newcomer = Fencepost::on(&store).await;
        for client in [server.client(), newcomer.client()] {
            for key in ["low", "high", "claimed", "present", "never seen"] {
                let path = key.replace(' ', "%20");
                assert_eq!(client.mark(&path).await, (7, 0), "{key}");
                let stale = answer(client.put(&path, 6, "zombie")).await;
                assert_eq!(stale.problem(), "stale-token", "{key}");
            }
            let present = answer(client.read("present")).await;
            assert_eq!((present.text().as_str(), present.header("etag")), ("still here", Some("\"1\"")));
        }
        // A dropped key begins again. One that was kept, at the floor or with a value, goes on.
        for (key, version) in [("low", 1), ("claimed", 1), ("high", 3), ("present", 2)] {
            let put = answer(client.put(key, 7, "new")).await;
            assert_eq!(put.json()["version"], version, "{key}");
        }
    }
}

on_each_store! {
    async fn the_floor_never_falls(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        assert_eq!(compact(&store, 99).await, json!({"floor": 0, "dropped": 0}));
        // For nothing the floor need not rise.
        put_and_delete(&client, "a", 5).await;
        assert_eq!(compact(&store, 5).await, json!({"floor": 0, "dropped": 0}));
        put_and_delete(&client, "b", 9).await;
        assert_eq!(compact(&store, 9).await, json!({"floor": 6, "dropped": 1}));
        assert_eq!(answer(client.put("b", 9, "back")).await.status, 201);
        // Nothing is left that could be collected.
        assert_eq!(compact(&store, 9).await, json!({"floor": 6, "dropped": 0}));
        assert_eq!(client.mark("a").await, (6, 0));
    }
}

on_each_store! {
    async fn only_what_has_been_absent_for_long_is_collected(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        put_and_delete(&client, "key", 5).await;
        let older = ["compact", "--older-than", "1h", "--authority", "none", "--below", "99"];
        let printed = command(&store, &older).await.expect("it succeeds");
        assert_eq!((&printed["floor"], &printed["dropped"]), (&json!(0), &json!(0)));
        assert_eq!(client.mark("unseen").await, (0, 0));
    }
}

on_each_store! {
    /// The token at the floor may still be held, and only the row knows what its holder did last.
    async fn the_holder_at_the_floor_goes_on_where_it_was(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let with_seq = |request: reqwest::RequestBuilder, seq: i64| request.header("X-Fencing-Seq", seq);
        put_and_delete(&client, "older", 6).await;
        assert_eq!(answer(with_seq(client.delete("key", 7), 3)).await.status, 204);
        assert_eq!(compact(&store, 7).await, json!({"floor": 7, "dropped": 1}));

        let late = answer(with_seq(client.put("key", 7, "late"), 2)).await;
        assert_eq!(late.problem(), "out-of-order");
        let again = answer(with_seq(client.delete("key", 7), 3)).await;
        assert_eq!((again.status, again.header("x-fencing-replay")), (204, Some("true")));
        assert_eq!(answer(with_seq(client.put("key", 7, "next"), 4)).await.status, 201);
    }
}

/// A key, and the highest token whose write of it has been answered.
struct Watched {
    key: String,
    acknowledged: AtomicI64,
}

on_each_store! {
    async fn no_stale_write_gets_through_while_marks_are_collected(store: TestStore) {
        const ROUNDS: i64 = 6;
        // The second one has nothing to refuse from but the database.
        let servers =
            [Fencepost::on(&store).await, Fencepost::with(&store, &["--mark-cache", "0B"]).await];
        let clients = servers.each_ref().map(Fencepost::client);
        let keys: Vec<_> = (0..12)
            .map(|number| Watched { key: format!("key/{number}"), acknowledged: 0.into() })
            .collect();
        hold_all(&clients[0], &keys, 10).await;

        let over = AtomicBool::new(false);
        let zombies = clients.each_ref().map(|client| haunt(client, &keys, &over));
        let operator = async {
            for round in 1..=ROUNDS {
                // One key fewer each time, so that there is always something to collect.
                let still_used = &keys[usize::try_from(round).expect("a small number")..];
                hold_all(&clients[0], still_used, 10 + round).await;
                let compacted = compact(&store, 10 + round).await;
                assert_eq!(compacted, json!({"floor": 10 + round, "dropped": 1}));
            }
            over.store(true, Ordering::Relaxed);
        };
        let [first, second] = zombies;
        let (first, second, ()) = tokio::join!(first, second, operator);
        assert!(first.min(second) > keys.len(), "too few attempts to prove anything");
    }
}

/// A new holder writes and deletes every key.
async fn hold_all(client: &Client, keys: &[Watched], token: i64) {
    for watched in keys {
        put_and_delete(client, &watched.key, token).await;
        watched.acknowledged.store(token, Ordering::Relaxed);
    }
}

/// Writes under tokens that are surely overtaken, and looks at marks: how many writes were tried.
async fn haunt(client: &Client, keys: &[Watched], over: &AtomicBool) -> usize {
    let mut attempts = 0;
    let mut marks = vec![0; keys.len()];
    while !over.load(Ordering::Relaxed) {
        for (watched, mark) in keys.iter().zip(&mut marks) {
            let overtaken = watched.acknowledged.load(Ordering::Relaxed) - 1;
            let refused = answer(client.put(&watched.key, overtaken, "zombie")).await;
            assert_eq!(refused.problem(), "stale-token", "{overtaken}: {}", refused.text());
            attempts += 1;

            let (now, _) = client.mark(&watched.key).await;
            assert!(now >= *mark && now > overtaken, "the mark fell from {mark} to {now}");
            *mark = now;
        }
    }
    attempts
}
