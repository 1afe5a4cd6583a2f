//! A lock that is held by an open connection: kept while it is open, released when it closes, and
//! its loss told.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::{LONG, SHORT, STEADY};
use crate::harness::{
    PATIENCE,
    authority::on_each_authority,
    eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    locks::{Events, millis},
};

async fn token_of(events: &mut Events) -> i64 {
    events.expect("granted").await["token"].as_i64().expect("a token")
}

on_each_authority! {
    async fn a_hold_begins_with_its_grant_and_goes_on_with_pings(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let terms = json!({"ttl_ms": millis(STEADY), "owner": "billing-7"});
        let mut events = client.hold("orders/42", &terms).await;
        let grant = events.expect("granted").await;
        let token = grant["token"].as_i64().expect("a token");
        let expected = json!({"name": "orders/42", "token": token, "owner": "billing-7",
            "ttl_ms": millis(STEADY), "lease": grant["lease"]});
        assert_eq!(grant, expected);
        assert_eq!(client.mark("orders/42").await, (token, 0), "the claim");
        for _ in 0..3 {
            let (name, ping) = events.next_or_ping().await.expect("a ping");
            assert_eq!(name, "ping");
            let left = ping["ttl_ms"].as_u64().expect("milliseconds");
            assert!((1..=millis(STEADY)).contains(&left), "{left}");
        }
    }
}

on_each_authority! {
    async fn a_hold_outlives_its_lease_several_times(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let mut events = client.hold("k", &json!({"ttl_ms": millis(STEADY)})).await;
        let token = token_of(&mut events).await;
        let begun = Instant::now();
        while begun.elapsed() < STEADY * 2 {
            let (name, data) = events.next_or_ping().await.expect("it goes on");
            assert_eq!(name, "ping", "{data}");
            assert_eq!(client.holder("k").await, token);
        }
    }
}

on_each_authority! {
    async fn a_hold_ends_with_its_connection(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        for holder in [server.client(), Client::over_http_2(&server.address)] {
            let mut events = holder.hold("k", &json!({"ttl_ms": millis(LONG)})).await;
            assert_eq!(client.holder("k").await, token_of(&mut events).await);
            drop(events);
            client.until_free("k").await;
            // Over HTTP/2 the connection itself is still there.
            assert_eq!(holder.inspect("k").await["held"], false);
        }
    }
}

on_each_authority! {
    async fn the_next_in_the_queue_gets_what_a_closed_connection_held(authority: TestAuthority) {
        let servers = [authority.fencepost().await, authority.fencepost().await];
        let [client, other] = servers.each_ref().map(Fencepost::client);
        let mut first = client.hold("k", &json!({"ttl_ms": millis(LONG)})).await;
        let token = token_of(&mut first).await;
        let terms = json!({"ttl_ms": millis(LONG), "wait_ms": millis(PATIENCE)});
        let next = tokio::spawn(async move { token_of(&mut other.hold("k", &terms).await).await });
        client.until_waiting("k", 1).await;
        // Its lease would last for longer than anybody waits here.
        drop(first);
        assert!(next.await.unwrap() > token);
    }
}

on_each_authority! {
    async fn before_it_is_granted_a_hold_is_refused_like_any_other(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        client.lock("k", LONG).await;
        let request = |terms| client.acquire("k", &terms).header("Accept", "text/event-stream");
        let held = answer(request(json!({"wait_ms": 100}))).await;
        assert_eq!((held.status, held.problem().as_str()), (423, "lock-held"));
        let refused = answer(request(json!({"ttl_ms": 1}))).await;
        assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid-request"));
    }
}

on_each_authority! {
    async fn a_holder_that_was_removed_is_told(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let mut events = client.hold("k", &json!({"ttl_ms": millis(STEADY)})).await;
        let token = token_of(&mut events).await;
        authority.remove_holder("k").await;
        let lost = events.expect("lost").await;
        assert_eq!(lost, json!({"name": "k", "token": token, "reason": "ended"}));
        assert_eq!(events.next().await, None, "and the stream ends");
        assert!(client.lock("k", LONG).await > token);
    }
}

on_each_authority! {
    /// It cannot be told in time by somebody who is frozen, too. Its successor has the lock
    /// meanwhile, and the fence has the last word.
    async fn a_hold_through_a_frozen_fencepost_is_lost_and_fenced_off(authority: TestAuthority) {
        let frozen = authority.fencepost().await;
        let other = authority.fencepost().await;
        let mut events = frozen.client().hold("k", &json!({"ttl_ms": millis(SHORT)})).await;
        let token = token_of(&mut events).await;
        frozen.signal(Signal::SIGSTOP);
        let next = other.client().lock("k", LONG).await;
        assert!(next > token);
        frozen.signal(Signal::SIGCONT);
        let lost = events.expect("lost").await;
        assert_eq!((&lost["name"], &lost["token"]), (&json!("k"), &json!(token)));
        assert_eq!(events.next().await, None);
        assert_eq!(other.client().holder("k").await, next, "the successor keeps it");
        for client in [frozen.client(), other.client()] {
            let late = answer(client.put("k", token, "late")).await;
            assert_eq!((late.status, late.problem().as_str()), (409, "stale-token"));
        }
        assert_eq!(answer(frozen.client().put("k", next, "fine")).await.status, 201);
    }
}

on_each_authority! {
    async fn a_server_that_stops_keeps_its_holds_for_a_while_then_releases_them(
        authority: TestAuthority
    ) {
        let other = authority.fencepost().await;
        let mut server = authority.fencepost_with(&["--drain", "20s"]).await;
        let mut events = server.client().hold("k", &json!({"ttl_ms": millis(LONG)})).await;
        let token = token_of(&mut events).await;
        let stopping = Instant::now();
        server.signal(Signal::SIGTERM);
        let lost = events.expect("lost").await;
        let kept = stopping.elapsed();
        assert_eq!(lost, json!({"name": "k", "token": token, "reason": "shutting-down"}));
        assert!(kept > Duration::from_secs(10), "it was still needed, and cut after {kept:?}");
        assert_eq!(events.next().await, None);
        assert!(server.wait().success());
        assert_eq!(other.client().holder("k").await, 0, "released before the process ended");
    }
}

on_each_authority! {
    async fn a_server_that_stops_has_no_reason_to_wait_once_holds_are_gone(
        authority: TestAuthority
    ) {
        let mut server = authority.fencepost_with(&["--drain", "1h"]).await;
        let mut held = server.client().hold("k", &json!({"ttl_ms": millis(LONG)})).await;
        token_of(&mut held).await;
        server.signal(Signal::SIGTERM);
        drop(held);
        // Not by a wait that would keep this test from closing the connection.
        eventually("it ends", || {
            let running = server.is_running();
            async move { !running }
        })
        .await;
    }
}

on_each_authority! {
    async fn there_is_a_bound_to_what_connections_hold(authority: TestAuthority) {
        let server = authority.fencepost_with(&["--max-streams", "2"]).await;
        let client = server.client();
        let terms = json!({"ttl_ms": millis(LONG)});
        let first = client.hold("a", &terms).await;
        let _other = client.hold("b", &terms).await;
        let third = || client.acquire("c", &terms).header("Accept", "text/event-stream");
        let refused = answer(third()).await;
        assert_eq!((refused.status, refused.problem().as_str()), (429, "overloaded"));
        assert_eq!(client.holder("c").await, 0, "nothing was granted in vain");
        drop(first);
        client.until_free("a").await;
        client.hold("c", &terms).await.expect("granted").await;
    }
}
