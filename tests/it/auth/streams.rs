//! What goes on for long ends when the right to it is lost.

use serde_json::json;

use crate::harness::{
    access::Access,
    eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    store::TestStore,
};

const ALL: &str = "[[rule]]\nidentity = \"*\"\nprefixes = [\"\"]\nrights = [\"read\", \"write\", \"lock\", \"admin\"]\n";

struct Scene {
    server: Fencepost,
    access: Access,
    _store: TestStore,
}

impl Scene {
    async fn new() -> (Self, Client, Client) {
        let (store, access) = (TestStore::sqlite(), Access::new());
        let (alice, bob) = (access.token("alice"), access.token("bob"));
        let policy = access.write("policy", ALL);
        let tokens = access.path("tokens");
        let flags = ["--tokens-file", &tokens, "--policy", &policy, "--authority", "store"];
        let server = Fencepost::with(&store, &flags).await;
        let (alice, bob) = (server.client().bearing(&alice), server.client().bearing(&bob));
        (Self { server, access, _store: store }, alice, bob)
    }
}

#[tokio::test]
async fn a_new_policy_ends_what_it_no_longer_allows() {
    let (scene, alice, bob) = Scene::new().await;
    let mut hold = alice.hold("held", &json!({})).await;
    hold.expect("granted").await;
    let mut watch = alice.watch("held").await;
    watch.expect("granted").await;
    let follow = alice.get("/v1/rejections").header("Accept", "text/event-stream");
    let mut follow = crate::harness::locks::Events::of(follow).await;
    let mut watch_of_bob = bob.watch("held").await;
    watch_of_bob.expect("granted").await;

    scene.access.write("policy", ALL.replace("\"*\"", "\"bob\""));
    assert_eq!(hold.next().await, None, "the hold ends");
    assert_eq!(follow.next().await, None, "the record ends");
    // It may hear of the release first.
    while watch.next().await.is_some() {}
    watch_of_bob.expect("released").await;
    bob.until_free("held").await;
    assert_eq!(answer(alice.read("k")).await.status, 403);
    drop(scene.server);
}

#[tokio::test]
async fn so_does_a_token_that_is_taken_away() {
    let (scene, alice, bob) = Scene::new().await;
    let mut hold = alice.hold("held", &json!({})).await;
    hold.expect("granted").await;
    scene.access.revoke("alice");
    assert_eq!(hold.next().await, None, "the hold ends");
    bob.until_free("held").await;
    assert_eq!(answer(alice.read("k")).await.status, 401);
}

#[tokio::test]
async fn who_lost_the_right_while_waiting_does_not_get_the_lock() {
    let (scene, alice, bob) = Scene::new().await;
    let token = bob.lock("k", std::time::Duration::from_mins(5)).await;
    let waiting = tokio::spawn(answer(alice.acquire("k", &json!({"wait_ms": 300_000}))));
    bob.until_waiting("k", 1).await;
    scene.access.write("policy", ALL.replace("\"*\"", "\"bob\""));
    eventually("it is in force", || async { answer(alice.read("k")).await.status == 403 }).await;
    assert_eq!(answer(bob.release("k", token)).await.status, 204);
    assert_eq!(waiting.await.unwrap().problem(), "forbidden");
    bob.until_free("k").await;
}

#[tokio::test]
async fn nor_does_whose_token_was_taken_away_meanwhile() {
    let (scene, alice, bob) = Scene::new().await;
    let token = bob.lock("k", std::time::Duration::from_mins(5)).await;
    let waiting = tokio::spawn(answer(alice.acquire("k", &json!({"wait_ms": 300_000}))));
    bob.until_waiting("k", 1).await;
    scene.access.revoke("alice");
    eventually("it is in force", || async { answer(alice.read("k")).await.status == 401 }).await;
    assert_eq!(answer(bob.release("k", token)).await.status, 204);
    assert_eq!(waiting.await.unwrap().problem(), "forbidden");
    bob.until_free("k").await;
}
