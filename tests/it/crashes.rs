//! Whatever dies, no acknowledged write is lost, none is applied twice, and none that was said not
//! to be applied turns up later. The holders check every single answer.

use nix::sys::signal::Signal;

use crate::harness::{
    chaos_proxy::{ChaosProxy, Weather},
    fencepost::Fencepost,
    holder::Holders,
    http::answer,
    postgres::{self, Postgres, connect},
    store::on_each_store,
};

const HOLDERS: usize = 8;

on_each_store! {
    async fn a_killed_fencepost_loses_nothing(store: TestStore) {
        let mut server = Fencepost::on(&store).await;
        let holders = Holders::start(server.client(), HOLDERS);
        for _ in 0..3 {
            holders.until_applied(100).await;
            server.signal(Signal::SIGKILL);
            server = Fencepost::on(&store).await;
            holders.turn_to(server.client());
        }
        holders.until_applied(100).await;
        let tally = holders.finish().await;
        assert!(tally.unknown > 0, "nobody was writing when it was killed: {tally:?}");
    }
}

#[tokio::test]
async fn killed_connections_lose_nothing() {
    let url = postgres::database().await;
    let server = Fencepost::start(&url, &[]);
    server.wait_until_ready().await;
    let holders = Holders::start(server.client(), HOLDERS);
    let mut killer = connect(&url).await;
    for _ in 0..40 {
        holders.until_applied(10).await;
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = 'fencepost' AND datname = current_database()",
        )
        .execute(&mut killer)
        .await
        .unwrap();
    }
    holders.until_applied(100).await;
    let tally = holders.finish().await;
    assert!(tally.unknown > 0, "no connection was in use when it was killed: {tally:?}");
}

/// Each time some writes are committed whose answers never arrive.
#[tokio::test]
async fn cut_links_lose_nothing() {
    let url = postgres::database().await;
    let port = postgres::shared().await.port();
    let proxy = ChaosProxy::before(port).await;
    let server = Fencepost::start(&proxy.reroute(&url, port), &[]);
    server.wait_until_ready().await;
    let holders = Holders::start(server.client(), HOLDERS);
    for _ in 0..20 {
        holders.until_applied(20).await;
        proxy.set(Weather::AnswersStalled);
        // Long enough for some commits to be under way: nobody can see their answers any more.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        proxy.set(Weather::Cut);
        proxy.set(Weather::Fair);
    }
    holders.until_applied(100).await;
    let tally = holders.finish().await;
    assert!(tally.unknown > 0, "no write was under way when the link was cut: {tally:?}");
}

#[tokio::test]
async fn a_postgres_that_crashes_loses_nothing() {
    let mut postgres = Postgres::start(&[]).await;
    let url = postgres.database("").await;
    let server = Fencepost::start(&url, &[]);
    server.wait_until_ready().await;
    let holders = Holders::start(server.client(), HOLDERS);
    for round in 0..20 {
        holders.until_applied(100).await;
        postgres.stop("immediate").await;
        postgres.run().await;
        // Once more, until it was in the middle of something.
        if round > 0 && holders.have_doubted() {
            break;
        }
    }
    // By itself: the same fencepost, which nobody restarts.
    holders.until_applied(100).await;
    let tally = holders.finish().await;
    assert!(tally.unknown > 0 && tally.not_applied > 0, "{tally:?}");
}

/// Connections that rested over a restart are found out before they carry anything.
#[tokio::test]
async fn a_restart_while_nobody_writes_goes_unnoticed() {
    let mut postgres = Postgres::start(&["fsync=off"]).await;
    let url = postgres.database("").await;
    let server = Fencepost::start(&url, &[]);
    server.wait_until_ready().await;
    let client = server.client();
    // Enough keys and reads to use every connection.
    let keys: Vec<String> = (0..60).map(|number| format!("key/{number}")).collect();
    for key in &keys {
        assert_eq!(answer(client.put(key, 1, "before")).await.status, 201);
        assert_eq!(answer(client.read(key)).await.status, 200);
    }
    postgres.stop("fast").await;
    // A connection counts as rested after a second; nothing can be seen to change by then.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    postgres.run().await;
    for key in &keys {
        let after = answer(client.put(key, 2, "after")).await;
        assert_eq!(after.status, 200, "{key}: {}", after.text());
        assert_eq!(answer(client.read(key)).await.text(), "after");
    }
}
