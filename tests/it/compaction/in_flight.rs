//! The moment at which the floor rises, taken apart: in Postgres a write may be under way then.

use reqwest::RequestBuilder;
use serde_json::json;

use super::{compact, put_and_delete};
use crate::harness::{
    eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    store::TestStore,
    transaction::Transaction,
};

/// One request of each kind that needs the row of `key`, which sorts before the others.
fn writes(client: &Client, key: &str, token: i64) -> Vec<(&'static str, RequestBuilder)> {
    let batch = json!({"writes": [
        {"key": format!("{key}/more"), "token": token, "value": 1},
        {"key": key, "token": token, "value": 1},
    ]});
    let scoped = client.put(&format!("{key}/more"), token, "mine");
    vec![
        ("put", client.put(key, token, "mine")),
        ("claim", client.claim(key, token)),
        ("fenced read", client.read(key).header("X-Fencing-Token", token)),
        ("put under a scope", scoped.header("X-Fencing-Scope", key)),
        ("batch", client.batch(&batch)),
    ]
}

const COMPACTION_WAITS: &str = "
SELECT FROM pg_locks WHERE relation = 'fencepost.resources'::regclass
       AND mode = 'ShareRowExclusiveLock' AND NOT granted";

#[tokio::test]
async fn the_floor_does_not_rise_past_a_write_that_is_under_way() {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    let client = server.client();
    let mut floor = 0;
    for (number, (kind, _)) in writes(&client, "", 5).into_iter().enumerate() {
        let key = format!("key/{number}");
        let holder = floor + 2;
        put_and_delete(&client, &key, floor + 1).await;
        put_and_delete(&client, "ahead", floor + 4).await;
        put_and_delete(&client, "far ahead", floor + 5).await;
        let (_, write) = writes(&client, &key, holder).swap_remove(number);

        let lock = format!("SELECT FROM resources WHERE key = '{key}' FOR UPDATE");
        let other = Transaction::begin(&store, &lock).await;
        let waiting = other.makes_wait(write).await;
        let operator = compact(&store, floor + 5);
        let release = async {
            eventually("the compaction waits", || other.says(COMPACTION_WAITS)).await;
            assert!(
                !other.says(&format!("SELECT FROM fencepost.floor WHERE token > {floor}")).await
            );
            other.roll_back().await;
        };
        let (compacted, ()) = tokio::join!(operator, release);

        let done = waiting.await.expect("an answer");
        assert!([200, 201, 404].contains(&done.status), "{kind}: {}", done.text());
        floor += 5;
        assert_eq!(compacted["floor"], floor, "{kind}");
        // From here on it is as stale as everybody else.
        let late = answer(client.put(&key, holder, "late")).await;
        assert_eq!(late.problem(), "stale-token", "{kind}");
        assert_eq!(late.json()["mark"], floor, "{kind}");
    }
}

/// A statement asks for the table before it looks at the floor. The other way round, it could
/// look, wait for the compaction, and then write over a mark that has just been dropped.
#[tokio::test]
async fn a_write_that_waited_for_the_compaction_sees_its_floor() {
    let store = TestStore::postgres().await;
    let server = Fencepost::with(&store, &["--store-connections", "1", "--mark-cache", "0B"]).await;
    let client = server.client();
    let mut floor = 0;
    // The second time round, the one connection has every statement prepared and planned.
    for round in 0..2 {
        for (number, (kind, _)) in writes(&client, "", 5).into_iter().enumerate() {
            let key = format!("key/{round}/{number}");
            put_and_delete(&client, &key, floor + 3).await;
            let zombie = floor + 2;
            let newcomer = floor + 4;
            floor += 5;
            // Where several rows are needed, a zombie is refused before it asks for a lock.
            let waiters = match kind {
                "put under a scope" | "batch" => vec![newcomer],
                _ => vec![zombie, newcomer],
            };
            for token in waiters {
                let (_, write) = writes(&client, &key, token).swap_remove(number);
                let compaction = format!(
                    "LOCK TABLE resources IN SHARE ROW EXCLUSIVE MODE;
                     UPDATE floor SET token = {floor};
                     DELETE FROM resources WHERE key = '{key}'"
                );
                let compaction = Transaction::begin(&store, &compaction).await;
                let waiting = compaction.makes_wait(write).await;
                compaction.commit().await;

                let refused = waiting.await.expect("an answer");
                assert_eq!(refused.status, 409, "{kind}: {}", refused.text());
                assert_eq!(refused.problem(), "stale-token", "{kind}");
                assert_eq!(refused.json()["mark"], floor, "{kind}");
                assert_eq!(client.mark(&key).await, (floor, 0), "{kind}");
                floor += 1;
            }
        }
    }
}
