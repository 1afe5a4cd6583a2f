//! Waiting for a lock: first come, first served; and whoever gives up leaves no trace.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{LONG, SHORT};
use crate::harness::{
    PATIENCE,
    authority::on_each_authority,
    fencepost::Fencepost,
    http::{Answer, Client, answer, insist},
    locks::millis,
};

fn waiting_terms() -> Value {
    json!({"ttl_ms": millis(LONG), "wait_ms": millis(PATIENCE)})
}

/// Starts to wait, and is in the queue as number `place` when this returns.
async fn queue_up(client: &Client, name: &str, place: u64) -> JoinHandle<Answer> {
    let waiter = tokio::spawn(answer(client.acquire(name, &waiting_terms())));
    client.until_waiting(name, place).await;
    waiter
}

fn token_of(granted: &Answer) -> i64 {
    assert_eq!(granted.status, 201, "{}", granted.text());
    granted.json()["token"].as_i64().expect("a token")
}

on_each_authority! {
    async fn a_release_lets_the_next_one_in_at_once(authority: TestAuthority) {
        let servers = [authority.fencepost().await, authority.fencepost().await];
        let [first, second] = servers.each_ref().map(Fencepost::client);
        // Through the same fencepost, and through another.
        for client in [&first, &second] {
            let token = first.lock("k", LONG).await;
            let waiter = queue_up(client, "k", 1).await;
            // The lease would last for longer than anybody waits here.
            assert_eq!(answer(first.release("k", token)).await.status, 204);
            let next = token_of(&waiter.await.unwrap());
            assert!(next > token);
            let lock = client.inspect("k").await;
            assert_eq!((&lock["token"], &lock["waiters"]), (&json!(next), &json!(0)));
            assert_eq!(answer(client.release("k", next)).await.status, 204);
        }
    }
}

on_each_authority! {
    async fn a_wait_ends_when_it_was_to_end(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let token = client.lock("k", LONG).await;
        let begun = Instant::now();
        let held = answer(client.acquire("k", &json!({"wait_ms": 700}))).await;
        let took = begun.elapsed();
        assert_eq!((held.status, held.problem().as_str()), (423, "lock-held"));
        assert_eq!(held.json()["holder"]["token"], token);
        assert!(took >= Duration::from_millis(700), "{took:?}");
        let lock = client.inspect("k").await;
        assert_eq!((&lock["token"], &lock["waiters"]), (&json!(token), &json!(0)), "no trace");
    }
}

on_each_authority! {
    async fn a_lock_whose_holder_died_passes_on_when_its_lease_ends(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let begun = Instant::now();
        let token = client.lock("k", SHORT).await;
        let next = client.lock("k", LONG).await;
        assert!(next > token);
        assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
    }
}

on_each_authority! {
    async fn first_come_first_served_through_two_fenceposts(authority: TestAuthority) {
        let servers = [authority.fencepost().await, authority.fencepost().await];
        let clients = servers.each_ref().map(Fencepost::client);
        let mut token = clients[0].lock("k", LONG).await;
        let mut waiters = Vec::new();
        for (place, client) in (1..=100).zip(clients.iter().cycle()) {
            waiters.push(queue_up(client, "k", place).await);
        }
        for (number, waiter) in waiters.into_iter().enumerate() {
            assert!(!waiter.is_finished(), "number {number} came in before its turn");
            assert_eq!(answer(clients[0].release("k", token)).await.status, 204);
            let next = token_of(&waiter.await.unwrap());
            assert!(next > token);
            token = next;
        }
        assert_eq!(clients[1].inspect("k").await["waiters"], 0);
    }
}

on_each_authority! {
    async fn those_who_hang_up_are_passed_over(authority: TestAuthority) {
        let servers = [authority.fencepost().await, authority.fencepost().await];
        let clients = servers.each_ref().map(Fencepost::client);
        let mut token = clients[0].lock("k", LONG).await;
        let mut waiters = Vec::new();
        for (place, client) in (1..=24).zip(clients.iter().cycle()) {
            waiters.push(queue_up(client, "k", place).await);
        }
        // In no order, as it happens: among them the first and the last.
        let mut staying = Vec::new();
        for (number, waiter) in waiters.into_iter().enumerate() {
            if [0, 1, 4, 7, 8, 9, 13, 17, 20, 22, 23].contains(&number) {
                waiter.abort();
            } else {
                staying.push(waiter);
            }
        }
        clients[1].until_waiting("k", staying.len() as u64).await;
        for waiter in staying {
            assert!(!waiter.is_finished());
            assert_eq!(answer(clients[0].release("k", token)).await.status, 204);
            token = token_of(&waiter.await.unwrap());
        }
        assert_eq!(answer(clients[0].release("k", token)).await.status, 204);
        clients[0].until_free("k").await;
        assert_eq!(clients[0].inspect("k").await["waiters"], 0);
    }
}

on_each_authority! {
    async fn a_waiter_whose_fencepost_was_killed_is_passed_over(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let mut doomed = authority.fencepost().await;
        let client = server.client();
        let token = client.lock("k", LONG).await;
        let terms = json!({"ttl_ms": 2000, "wait_ms": millis(PATIENCE)});
        let lost = tokio::spawn(doomed.client().acquire("k", &terms).send());
        client.until_waiting("k", 1).await;
        let waiter = queue_up(&client, "k", 2).await;
        doomed.signal(Signal::SIGKILL);
        doomed.wait();
        assert!(lost.await.unwrap().is_err());
        assert_eq!(answer(client.release("k", token)).await.status, 204);
        assert!(token_of(&waiter.await.unwrap()) > token);
    }
}

/// hyper must drop what a client no longer waits for, whichever HTTP it speaks.
async fn leaves_by_hanging_up(client: &Client, leaver: &Client) {
    client.lock("k", LONG).await;
    // With HTTP/2 the connection stays, and only the request is taken back.
    assert_eq!(leaver.inspect("k").await["waiters"], 0);
    let waiter = tokio::spawn(leaver.acquire("k", &waiting_terms()).send());
    client.until_waiting("k", 1).await;
    waiter.abort();
    client.until_waiting("k", 0).await;
    assert_eq!(leaver.inspect("k").await["waiters"], 0);
}

on_each_authority! {
    async fn a_request_that_is_dropped_leaves_the_queue(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        leaves_by_hanging_up(&client, &server.client()).await;
        let holder = client.holder("k").await;
        assert_eq!(answer(client.release("k", holder)).await.status, 204);
        leaves_by_hanging_up(&client, &Client::over_http_2(&server.address)).await;
    }
}

on_each_authority! {
    async fn there_is_a_bound_to_those_who_wait(authority: TestAuthority) {
        let server = authority.fencepost_with(&["--max-waiters", "2"]).await;
        let client = server.client();
        let token = client.lock("k", LONG).await;
        let first = queue_up(&client, "k", 1).await;
        let second = queue_up(&client, "k", 2).await;
        let refused = answer(client.acquire("k", &waiting_terms())).await;
        assert_eq!((refused.status, refused.problem().as_str()), (429, "overloaded"));
        assert!(refused.header("retry-after").is_some());
        let at_once = answer(client.acquire("other", &json!({}))).await;
        assert_eq!(at_once.status, 201, "who does not wait takes no place");
        first.abort();
        client.until_waiting("k", 1).await;
        // Who has left the queue gives its place to wait free a moment later.
        let third = tokio::spawn(insist(client.acquire("k", &waiting_terms())));
        client.until_waiting("k", 2).await;
        assert_eq!(answer(client.release("k", token)).await.status, 204);
        let next = token_of(&second.await.unwrap());
        assert_eq!(answer(client.release("k", next)).await.status, 204);
        token_of(&third.await.unwrap());
    }
}

on_each_authority! {
    /// The server's own deadlines for idle connections are not for those who wait.
    async fn a_wait_may_be_longer_than_a_connection_may_be_idle(authority: TestAuthority) {
        let flags = ["--header-timeout", "2s", "--body-timeout", "2s", "--write-timeout", "2s"];
        let server = authority.fencepost_with(&flags).await;
        let client = server.client();
        let token = client.lock("k", LONG).await;
        let one = queue_up(&client, "k", 1).await;
        let two = queue_up(&Client::over_http_2(&server.address), "k", 2).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(answer(client.release("k", token)).await.status, 204);
        let token = token_of(&one.await.unwrap());
        assert_eq!(answer(client.release("k", token)).await.status, 204);
        token_of(&two.await.unwrap());
    }
}

on_each_authority! {
    async fn a_server_that_stops_sends_those_who_wait_elsewhere(authority: TestAuthority) {
        let other = authority.fencepost().await;
        let mut server = authority.fencepost_with(&["--drain", "10s"]).await;
        other.client().lock("k", LONG).await;
        let waiter = queue_up(&server.client(), "k", 1).await;
        server.signal(Signal::SIGTERM);
        let answer = waiter.await.unwrap();
        assert_eq!((answer.status, answer.problem().as_str()), (503, "shutting-down"));
        assert!(server.wait().success());
        assert_eq!(other.client().inspect("k").await["waiters"], 0, "no trace");
    }
}
