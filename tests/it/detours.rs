//! The way round a locked row, which keeps a lane free for everybody else's keys.

use crate::harness::{
    blocker::Blocker, eventually, fencepost::Fencepost, http::answer, postgres, prometheus::Scrape,
    store::TestStore,
};

const LATER: u32 = 10;

/// A lane finds out that a row is locked by waiting for it, if only for a moment. It must not find out
/// again for each who comes while others wait already.
#[tokio::test]
async fn whoever_comes_later_for_a_locked_row_follows_at_once() {
    let store = TestStore::postgres().await;
    let server = Fencepost::with(&store, &["--store-connections", "1"]).await;
    let client = server.client();
    for key in ["locked", "free"] {
        assert_eq!(answer(client.put(key, 1, "before")).await.status, 201);
    }
    let blocker = Blocker::on_row(&store.url, "locked").await;
    let put = || tokio::spawn(answer(client.put("locked", 2, "after")));
    let mut waiting = vec![put()];
    eventually("it waits", || postgres::somebody_waits(&store.url)).await;
    for number in 1..=LATER {
        waiting.push(put());
        eventually("it has come", || async {
            let depth = Scrape::of(&server).await.get("fencepost_queue_depth");
            (depth - f64::from(number)).abs() < 0.5
        })
        .await;
        // The lane is through with what came before this.
        assert_eq!(answer(client.put("free", 1, "x")).await.status, 200);
    }
    blocker.release().await;
    for request in waiting {
        assert_eq!(request.await.unwrap().status, 200);
    }
    drop(server);
    eventually("it has left", || async {
        postgres::fetch::<i64>(
            &store.url,
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'fencepost'",
        )
        .await
            == 0
    })
    .await;
    // A statement that waited in vain is rolled back.
    let in_vain: i64 = postgres::fetch(
        &store.url,
        "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()",
    )
    .await;
    assert!(in_vain > 0 && in_vain < i64::from(LATER), "{in_vain}");
}
