//! What becomes of locks, in numbers.

#![allow(clippy::float_cmp, reason = "counts are whole numbers, which floats hold exactly")]

use serde_json::json;

use super::{LONG, SHORT, STEADY};
use crate::harness::{
    authority::on_each_authority, eventually, fencepost::Fencepost, http::answer, locks::millis,
    prometheus::Scrape,
};

/// Held, waiting, granted so far, lost so far, and how many waits were measured.
async fn counts(server: &Fencepost) -> [f64; 5] {
    let scrape = Scrape::of(server).await;
    [
        "locks_held",
        "lock_waiters",
        "lock_grants_total",
        "locks_lost_total",
        "lock_wait_seconds_count",
    ]
    .map(|name| scrape.get(&format!("fencepost_{name}")))
}

on_each_authority! {
    async fn a_lock_is_held_until_it_is_released_and_its_waiter_counts(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        assert_eq!(counts(&server).await, [0.0; 5]);
        let token = client.lock("k", LONG).await;
        assert_eq!(counts(&server).await, [1.0, 0.0, 1.0, 0.0, 1.0]);

        let (second, terms) = (client.clone(), json!({"ttl_ms": millis(LONG), "wait_ms": 30_000}));
        let waiting = tokio::spawn(answer(second.acquire("k", &terms)));
        client.until_waiting("k", 1).await;
        assert_eq!(counts(&server).await, [1.0, 1.0, 1.0, 0.0, 1.0]);
        // Whoever does not wait is not granted anything, and leaves nothing behind.
        assert_eq!(answer(client.acquire("k", &json!({}))).await.status, 423);
        assert_eq!(counts(&server).await, [1.0, 1.0, 1.0, 0.0, 1.0]);

        assert_eq!(answer(client.release("k", token)).await.status, 204);
        let token = waiting.await.unwrap().json()["token"].as_i64().unwrap();
        assert_eq!(counts(&server).await, [1.0, 0.0, 2.0, 0.0, 2.0]);
        assert_eq!(answer(client.release("k", token)).await.status, 204);
        assert_eq!(counts(&server).await, [0.0, 0.0, 2.0, 0.0, 2.0]);
        let scrape = Scrape::of(&server).await;
        assert_eq!(scrape.get("fencepost_authority_up"), 1.0);
        assert_eq!(scrape.writes("claim", "accepted"), 2.0, "each grant claims its key");
    }
}

on_each_authority! {
    async fn a_lock_that_is_lost_is_counted_once(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        // Nobody renews this one.
        let token = client.lock("forgotten", SHORT).await;
        eventually("its lease is over", || async { counts(&server).await[0] == 0.0 }).await;
        assert_eq!(counts(&server).await, [0.0, 0.0, 1.0, 1.0, 1.0]);
        client.until_free("forgotten").await;
        assert_eq!(answer(client.renew("forgotten", token)).await.status, 409);
        assert_eq!(answer(client.release("forgotten", token)).await.status, 409);
        assert_eq!(counts(&server).await, [0.0, 0.0, 1.0, 1.0, 1.0]);

        // This one is taken away.
        let token = client.lock("taken", LONG).await;
        authority.remove_holder("taken").await;
        assert_eq!(answer(client.renew("taken", token)).await.status, 409);
        assert_eq!(counts(&server).await, [0.0, 0.0, 2.0, 2.0, 2.0]);
    }
}

on_each_authority! {
    async fn a_hold_counts_for_as_long_as_its_connection(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let mut events = client.hold("k", &json!({"ttl_ms": millis(STEADY)})).await;
        events.expect("granted").await;
        let begun = std::time::Instant::now();
        while begun.elapsed() < STEADY * 4 / 3 {
            events.next_or_ping().await.expect("a ping");
            assert_eq!(counts(&server).await, [1.0, 0.0, 1.0, 0.0, 1.0]);
        }
        drop(events);
        eventually("it is released", || async { counts(&server).await[0] == 0.0 }).await;
        assert_eq!(counts(&server).await[3], 0.0, "which is no loss");
    }
}
