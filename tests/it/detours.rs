//! The way round a locked row, which keeps a lane free for everybody else's keys.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::harness::{
    blocker::Blocker,
    eventually,
    fencepost::Fencepost,
    http::{Answer, answer, insist},
    postgres,
    prometheus::Scrape,
    store::TestStore,
};

const LATER: u32 = 10;

async fn with_one_lane() -> (TestStore, Fencepost) {
    let store = TestStore::postgres().await;
    let server = Fencepost::with(&store, &["--store-connections", "1"]).await;
    (store, server)
}

/// A lane finds out that a row is locked by waiting for it, if only for a moment. It must not find out
/// again for each who comes while others wait already.
#[tokio::test]
async fn whoever_comes_later_for_a_locked_row_follows_at_once() {
    // A write that waits gives up at Postgres's lock_timeout. A busy machine may need longer than that for all to come: that
    // says nothing about Fencepost, so they are sent again until it is quick enough.
    while !ten_follow_one_that_waits().await {}
}

/// Says whether they came before the first had waited for almost as long as it may.
async fn ten_follow_one_that_waits() -> bool {
    let (store, server) = with_one_lane().await;
    let client = server.client();
    for key in ["locked", "free"] {
        assert_eq!(answer(client.put(key, 1, "before")).await.status, 201);
    }
    let blocker = Blocker::on_row(&store.url, "locked").await;
    let begun = Instant::now();
    let too_late = || begun.elapsed() > Duration::from_secs(4);
    let put = || tokio::spawn(answer(client.put("locked", 2, "after")));
    let mut waiting = vec![put()];
    eventually("it waits", || async { too_late() || postgres::somebody_waits(&store.url).await })
        .await;
    for number in 1..=LATER {
        waiting.push(put());
        eventually("it has come", || async {
            let depth = Scrape::of(&server).await.get("fencepost_queue_depth");
            (depth - f64::from(number)).abs() < 0.5 || too_late()
        })
        .await;
        // The lane is through with what came before this.
        assert_eq!(answer(client.put("free", 1, "x")).await.status, 200);
    }
    blocker.release().await;
    if too_late() {
        return false;
    }
    for request in waiting {
        assert_eq!(request.await.unwrap().status, 200);
    }
    drop(server);
    // A statement that waited in vain is rolled back.
    let in_vain = postgres::counted_in_the_end(&store.url, "xact_rollback").await;
    assert!(in_vain > 0 && in_vain < i64::from(LATER), "{in_vain}");
    true
}

/// What becomes of a write of a locked row if `happens` whenever a lane asks who has to wait.
async fn write_where_asking_fails(happens: &str) -> Answer {
    let store = TestStore::postgres().await;
    let server = Fencepost::on(&store).await;
    assert_eq!(answer(server.client().put("locked", 1, "before")).await.status, 201);
    let policy = format!(
        "CREATE FUNCTION public.is_seen() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
         BEGIN
             IF current_query() LIKE '%SKIP LOCKED%' THEN {happens}; END IF;
             RETURN true;
         END $$;
         ALTER TABLE fencepost.resources ENABLE ROW LEVEL SECURITY;
         CREATE POLICY everybody ON fencepost.resources USING (public.is_seen())"
    );
    postgres::execute(&store.url, &policy).await;
    let blocker = Blocker::on_row(&store.url, "locked").await;
    let put = tokio::spawn(answer(server.client().put("locked", 2, "after")));
    eventually("it waits or is answered", || async {
        put.is_finished() || postgres::somebody_waits(&store.url).await
    })
    .await;
    blocker.release().await;
    put.await.unwrap()
}

/// Then everybody takes the way round.
#[tokio::test]
async fn whoever_might_be_blocked_waits_too_where_nobody_can_tell() {
    let put = write_where_asking_fails("RAISE EXCEPTION 'as the test has it'").await;
    assert_eq!(put.status, 200, "{}", put.text());
}

/// The write itself had been refused before: there is no doubt about it.
#[tokio::test]
async fn a_connection_that_is_lost_by_asking_leaves_nothing_in_doubt() {
    let ends = "PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(30)";
    let put = write_where_asking_fails(ends).await;
    assert_eq!((put.status, &*put.problem()), (503, "store-unavailable"), "{}", put.text());
}

#[tokio::test]
async fn a_locked_row_delays_its_own_writes_and_no_others() {
    let (store, server) = with_one_lane().await;
    let client = server.client();
    for key in ["locked", "free"] {
        assert_eq!(answer(client.put(key, 1, "before")).await.status, 201);
    }
    let blocker = Blocker::on_row(&store.url, "locked").await;
    let put = |body| tokio::spawn(answer(client.put("locked", 2, body)));
    let scoped = client.put("under/locked", 2, "x").header("X-Fencing-Scope", "locked");
    let waiting = [put("one"), put("two"), tokio::spawn(answer(scoped)), put("three")];
    eventually("they wait", || postgres::somebody_waits(&store.url)).await;
    // Far more than would get through if each had to wait for the row, or for its time-out.
    for round in 0..20 {
        let others =
            (0..10).map(|number| answer(client.put(&format!("o/{number}"), round + 1, "x")));
        for put in join_all(others).await {
            assert_eq!(put.status, if round == 0 { 201 } else { 200 }, "{}", put.text());
        }
    }
    assert!(waiting.iter().all(|request| !request.is_finished()), "they waited for the row");
    blocker.release().await;
    let mut versions = Vec::new();
    for request in waiting {
        let done = request.await.unwrap();
        assert_eq!(done.status / 100, 2, "{}", done.text());
        if done.status == 200 {
            versions.push(done.json()["version"].as_i64().expect("a version"));
        }
    }
    versions.sort_unstable();
    assert_eq!(versions, [2, 3, 4]);
    // The way round is left again.
    assert_eq!(answer(client.put("locked", 2, "x")).await.status, 200);
}

/// More than there are ways round. They share, and still nobody else waits.
#[tokio::test]
async fn many_locked_rows_delay_no_others_either() {
    let (store, server) = with_one_lane().await;
    let client = server.client();
    let locked: Vec<String> = (0..10).map(|number| format!("locked/{number}")).collect();
    for key in &locked {
        assert_eq!(answer(client.put(key, 1, "before")).await.status, 201);
    }
    let rows = "SELECT FROM fencepost.resources WHERE starts_with(key, 'locked/') FOR UPDATE";
    let blocker = Blocker::holding(&store.url, rows).await;
    let waiting: Vec<_> =
        locked.iter().map(|key| tokio::spawn(answer(client.put(key, 2, "after")))).collect();
    blocker.until_waiting(4).await;
    for number in 0..50 {
        assert_eq!(answer(client.put(&format!("o/{number}"), 1, "x")).await.status, 201);
    }
    blocker.release().await;
    for request in waiting {
        let done = request.await.unwrap();
        // Those that shared a way may have waited for more than one row.
        assert!([200, 503].contains(&done.status), "{}", done.text());
    }
    for key in &locked {
        assert_eq!(insist(client.put(key, 3, "after")).await.status, 200);
    }
}
