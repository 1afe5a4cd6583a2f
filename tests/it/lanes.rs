//! What is more than one lane takes at once is shared by two. Writes of one key may then meet in the
//! database, as those of two fenceposts do.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};

use crate::harness::{fencepost::Fencepost, http::insist, postgres, store::TestStore};

const KEYS: usize = 5;
const WRITES: usize = 600;

/// More than can wait in one lane.
const AT_ONCE: usize = 24;

const LANES: &str = "
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'fencepost'
  AND query LIKE '%UPDATE fencepost.resources%'";

#[tokio::test]
async fn two_lanes_leave_one_history_of_each_key() {
    let store = TestStore::postgres().await;
    let server = Fencepost::with(&store, &["--queue", "4", "--store-connections", "2"]).await;
    let client = server.client();
    let written: Vec<_> = stream::iter(0..WRITES)
        .map(|number| {
            let key = format!("key/{}", number % KEYS);
            let put = client.put(&key, 1, "").body(number.to_string());
            async move {
                let written = insist(put).await;
                assert_eq!(written.status / 100, 2, "{}", written.text());
                (key, written.json()["version"].as_u64().expect("a version"), number)
            }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    assert_eq!(postgres::fetch::<i64>(&store.url, LANES).await, 2, "both were needed");

    let mut histories: BTreeMap<String, BTreeMap<u64, usize>> = BTreeMap::new();
    for (key, version, number) in written {
        let twice = histories.entry(key).or_default().insert(version, number);
        assert_eq!(twice, None, "each write has a version of its own");
    }
    for (key, history) in &histories {
        let (newest, number) = history.last_key_value().expect("it was written");
        assert_eq!(*newest, (WRITES / KEYS) as u64, "{key}: none is missing");
        assert_eq!(insist(client.read(key)).await.text(), number.to_string(), "{key}");
    }
}
