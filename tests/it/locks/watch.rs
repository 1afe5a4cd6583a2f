//! Watching a lock: who has it now, and what happens to it, in order.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{LONG, SHORT};
use crate::harness::{
    authority::on_each_authority,
    eventually,
    fencepost::Fencepost,
    http::answer,
    locks::{Events, millis},
};

/// The next event must be this one. It says whom it is about.
async fn expect(events: &mut Events, name: &str, token: i64) {
    let data = events.expect(name).await;
    assert_eq!((&data["name"], &data["token"]), (&json!("k"), &json!(token)), "{name}: {data}");
}

on_each_authority! {
    async fn a_watch_tells_what_happens_in_order(authority: TestAuthority) {
        let servers = [authority.fencepost().await, authority.fencepost().await];
        let [client, other] = servers.each_ref().map(Fencepost::client);
        // Through the fencepost that grants, and through another.
        let mut watches = [client.watch("k").await, other.watch("k").await];
        for events in &mut watches {
            assert_eq!(events.expect("released").await, json!({"name": "k", "token": 0}));
        }
        let terms = json!({"ttl_ms": millis(LONG), "owner": "billing-7"});
        let first = answer(client.acquire("k", &terms)).await.json()["token"].as_i64().unwrap();
        for events in &mut watches {
            let granted = events.expect("granted").await;
            let left = granted["ttl_ms"].as_u64().expect("milliseconds");
            assert!((1..=millis(LONG)).contains(&left), "{left}");
            let expected = json!({"name": "k", "token": first, "owner": "billing-7", "ttl_ms": left});
            assert_eq!(granted, expected);
        }
        assert_eq!(answer(client.release("k", first)).await.status, 204);
        let second = other.lock("k", SHORT).await;
        for events in &mut watches {
            expect(events, "released", first).await;
            expect(events, "granted", second).await;
            expect(events, "expired", second).await;
        }
        let third = client.lock("k", LONG).await;
        for events in &mut watches {
            expect(events, "granted", third).await;
        }
    }
}

on_each_authority! {
    async fn a_watch_begins_with_the_holder_and_sees_it_pass_on(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let first = client.lock("k", LONG).await;
        let waiter = tokio::spawn({
            let client = client.clone();
            async move { client.lock("k", LONG).await }
        });
        client.until_waiting("k", 1).await;
        let mut events = client.watch("k").await;
        expect(&mut events, "granted", first).await;
        // A neighbour's fate is not this lock's.
        let neighbour = client.lock("k/2", LONG).await;
        assert_eq!(answer(client.release("k/2", neighbour)).await.status, 204);
        assert_eq!(answer(client.release("k", first)).await.status, 204);
        let second = waiter.await.unwrap();
        expect(&mut events, "released", first).await;
        expect(&mut events, "granted", second).await;
    }
}

on_each_authority! {
    async fn a_watch_does_not_keep_a_stopping_server(authority: TestAuthority) {
        let mut server = authority.fencepost_with(&["--drain", "1h"]).await;
        let mut events = server.client().watch("k").await;
        events.expect("released").await;
        server.signal(Signal::SIGTERM);
        assert_eq!(events.next().await, None, "it ends, and says nothing false");
        eventually("it ends", || {
            let running = server.is_running();
            async move { !running }
        })
        .await;
    }
}

on_each_authority! {
    async fn watches_are_bounded_and_end_with_their_connections(authority: TestAuthority) {
        let server = authority.fencepost_with(&["--max-streams", "1"]).await;
        let client = server.client();
        let first = client.watch("k").await;
        let watch = || client.get("/v1/locks/k").header("Accept", "text/event-stream");
        let refused = answer(watch()).await;
        assert_eq!((refused.status, refused.problem().as_str()), (429, "overloaded"));
        drop(first);
        crate::harness::eventually("its place is free again", || async {
            watch().send().await.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
    }
}
