//! A store belongs to one authority: another one is refused at the start, and after an operator has moved the
//! store, whoever is left with the former authority grants nothing.

mod at_the_start;
mod moving;
mod upgrade;

use fencepost::store::OwningAuthority;
use serde_json::{Value, json};

use crate::harness::{
    fencepost::{Fencepost, run},
    http::{Answer, Client, answer},
    store::TestStore,
};

/// Long enough for any test.
const TTL_MS: u64 = 600_000;

async fn try_lock(client: &Client, name: &str) -> Answer {
    answer(client.acquire(name, &json!({ "ttl_ms": TTL_MS }))).await
}

async fn lock(client: &Client, name: &str) -> i64 {
    let granted = try_lock(client, name).await;
    assert_eq!(granted.status, 201, "{}", granted.text());
    granted.json()["token"].as_i64().expect("a token")
}

#[track_caller]
fn is_mismatch(refused: &Answer) {
    assert_eq!((refused.status, &*refused.problem()), (503, "authority-mismatch"));
    let detail = refused.json()["detail"].as_str().expect("a detail").to_owned();
    assert!(detail.contains("fencepost authority move"), "{detail}");
}

/// As an operator does it, with the role that serves: the new floor.
async fn move_to(store: &TestStore, to: &str, flags: &[&str]) -> i64 {
    let serving = store.to_serve().await;
    let given = ["authority", "move", "--store", &serving, "--to", to, "--yes", "-o", "json"];
    let moved = run(&[&given, flags].concat());
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    let document: Value = serde_json::from_slice(&moved.stdout).expect("JSON");
    document["floor"].as_i64().expect("a floor")
}

async fn recorded(store: &TestStore) -> OwningAuthority {
    let recorded = store.open().await.owning_authority().await.expect("an answer");
    recorded.expect("a record")
}

async fn serve(store: &TestStore, authority: &str, flags: &[&str]) -> Fencepost {
    Fencepost::with(store, &[&["--authority", authority], flags].concat()).await
}
