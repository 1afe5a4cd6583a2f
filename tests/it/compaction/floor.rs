//! `fencepost floor`: what it shows, what it refuses, and that all that is stale afterwards is told so.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};

use super::command;
use crate::harness::{
    authority::{TestAuthority, on_each_authority},
    etcd::Etcd,
    eventually,
    fencepost::Fencepost,
    http::{Answer, answer},
    locks::millis,
    store::{TestStore, on_each_store},
};

const LONG: Duration = Duration::from_mins(5);

async fn floor(authority: &TestAuthority, more: &[&str]) -> Result<Value, (i32, String)> {
    let flag = authority.flag();
    command(&authority.store, &[&["floor"], more, &["--authority", &flag]].concat()).await
}

/// Refused by the floor, and told what to do.
fn check_below_floor(answer: &Answer, token: i64, floor: i64) {
    assert_eq!((answer.status, answer.problem().as_str()), (409, "stale-token"));
    let document = answer.json();
    assert_eq!((&document["mark"], &document["floor"]), (&json!(floor), &json!(true)));
    let detail = document["detail"].as_str().expect("a text");
    assert!(detail.contains(&format!("token {token} is below the floor {floor}")), "{detail}");
    assert!(detail.contains("acquire the lock again"), "{detail}");
}

on_each_authority! {
    async fn a_token_that_is_held_is_fenced_off_only_by_force(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let held = client.lock("job", LONG).await;
        assert_eq!(answer(client.put("state", held, "1")).await.status, 201);
        let other = client.lock("other", LONG).await;

        let shown = floor(&authority, &[]).await.expect("it shows");
        assert_eq!((&shown["floor"], &shown["lowest_held"]), (&json!(0), &json!(held)));
        assert_eq!(shown["held_lock"], "job");
        assert!(shown["newest"].as_i64() >= Some(other), "{shown}");

        let to = other.to_string();
        let (code, reason) = floor(&authority, &["raise", &to]).await.expect_err("it is held");
        assert_eq!(code, 1);
        assert!(reason.contains("holds or waits for the lock \"job\""), "{reason}");
        assert!(reason.contains("--force"), "{reason}");
        assert_eq!(client.mark("never-seen").await.0, 0, "nothing was changed");

        let raised = floor(&authority, &["raise", &to, "--force"]).await.expect("it rises");
        assert_eq!(raised, json!({"floor": other, "before": 0}));
        // From the store, and then from memory.
        for _ in 0..2 {
            check_below_floor(&answer(client.put("never-seen", held, "2")).await, held, other);
        }
        // It is told at once that it has lost the lock, where the lock is in the same database.
        if authority.etcd.is_none() {
            assert_eq!(answer(client.renew("job", held)).await.problem(), "lock-lost");
        }
        assert_eq!(answer(client.put("other", other, "2")).await.status, 201);
        // It never falls.
        let lower = floor(&authority, &["raise", "1"]).await.expect("there is nothing to do");
        assert_eq!(lower, json!({"floor": other, "before": other}));
    }
}

on_each_authority! {
    async fn a_digit_too_many_is_noticed(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let token = client.lock("job", LONG).await;
        assert_eq!(answer(client.release("job", token)).await.status, 204);
        let (code, reason) =
            floor(&authority, &["raise", "4100000"]).await.expect_err("nobody was given it");
        assert_eq!(code, 1);
        assert!(reason.contains("a digit too many"), "{reason}");
        let beyond = (1_i64 << 62).to_string();
        let (code, reason) =
            floor(&authority, &["raise", &beyond, "--force"]).await.expect_err("nobody could write");
        assert_eq!(code, 1);
        assert!(reason.contains("2^62"), "{reason}");
        let (code, _) = floor(&authority, &["raise"]).await.expect_err("how far?");
        assert_eq!(code, 64);
        let (code, _) = floor(&authority, &["show", "7"]).await.expect_err("show or raise?");
        assert_eq!(code, 64);
        assert_eq!(client.mark("never-seen").await.0, 0, "nothing was changed");
    }
}

on_each_authority! {
    /// After a restore: whoever held a lock, and whoever waited, goes on under a new token.
    async fn above_all_makes_every_holder_acquire_again(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let held = client.lock("job", LONG).await;
        let terms = json!({"ttl_ms": millis(LONG), "wait_ms": millis(LONG)});
        let waiting = tokio::spawn(answer(client.acquire("job", &terms)));
        client.until_waiting("job", 1).await;
        assert_eq!(answer(client.put("state", held, "1")).await.status, 201);

        let raised = floor(&authority, &["raise", "--above-all"]).await.expect("it rises");
        let risen = raised["floor"].as_i64().expect("a token");
        assert!(risen > held, "{raised}");
        check_below_floor(&answer(client.put("never-seen", held, "2")).await, held, risen);
        eventually("the former holder has lost its lock", || async {
            answer(client.renew("job", held)).await.text().contains("lock-lost")
        })
        .await;
        // In etcd its entry stays until its lease, which nobody can renew any more, has ended.
        if let Some(etcd) = &authority.etcd {
            let entries = etcd.entries("job");
            let (oldest, _) = entries.iter().min_by_key(|(_, created)| created).expect("an entry");
            etcd.ctl(&["del", oldest]);
        }
        let next = waiting.await.expect("an answer");
        assert_eq!(next.status, 201, "{}", next.text());
        let next = next.json()["token"].as_i64().expect("a token");
        assert!(next >= risen, "{next} {risen}");
        assert_eq!(answer(client.put("state", next, "2")).await.status, 200);
        let shown = floor(&authority, &[]).await.expect("it shows");
        assert_eq!((&shown["floor"], &shown["lowest_held"]), (&json!(risen), &json!(next)));
    }
}

on_each_store! {
    async fn without_an_authority_the_operator_names_the_token(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        let none = async |more: &[&str]| {
            command(&store, &[&["floor"], more, &["--authority", "none"]].concat()).await
        };
        let (code, reason) = none(&["raise", "--above-all"]).await.expect_err("nobody knows");
        assert_eq!(code, 64);
        assert!(reason.contains("floor raise TOKEN"), "{reason}");
        let raised = none(&["raise", "41000"]).await.expect("it rises");
        assert_eq!(raised, json!({"floor": 41_000, "before": 0}));
        check_below_floor(&answer(client.put("new", 40_999, "v")).await, 40_999, 41_000);
        assert_eq!(answer(client.put("new", 41_000, "v")).await.status, 201);
        let (_, reason) = none(&["raise", "9223372036854775807"]).await.expect_err("too far");
        assert!(reason.contains("a digit too many"), "{reason}");

        let overtaken = answer(client.put("new", 40_999, "v")).await.json();
        assert_eq!(overtaken["floor"], Value::Null, "its own mark is as high: {overtaken}");
        // In memory, and for others in the store.
        let later = Fencepost::on(&store).await;
        for client in [client, later.client()] {
            eventually("both are recorded", || async {
                let recorded = answer(client.get("/v1/rejections")).await.json();
                let rejections = recorded["rejections"].as_array().expect("a list");
                let floors: Vec<_> = rejections.iter().map(|found| &found["floor"]).collect();
                floors == [&Value::Null, &json!(true)]
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_busy_file_is_named_as_the_reason() {
    let store = TestStore::sqlite();
    drop(store.open().await);
    let path = store.url.trim_start_matches("sqlite:");
    let mut other: SqliteConnection =
        SqliteConnectOptions::new().filename(path).connect().await.expect("it can be opened");
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.expect("nobody else writes");
    let raise = ["floor", "raise", "41000", "--authority", "none"];
    let (code, reason) = command(&store, &raise).await.expect_err("another program writes");
    assert_eq!((code, reason.contains("kept its lock for too long")), (1, true), "{reason}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("it was begun");
    command(&store, &raise).await.expect("it rises");
}

/// An operator who names the epoch vouches for that alone, not for the etcd.
#[tokio::test]
async fn above_all_in_an_epoch_is_refused_for_another_authority() {
    let authority = TestAuthority::in_etcd(TestStore::sqlite()).await;
    let server = authority.fencepost().await;
    let client = server.client();
    let held = client.lock("job", LONG).await;
    let above_all = async |named: &str, more: &[&str]| {
        let arguments = ["floor", "raise", "--above-all", "--epoch", "3", "--authority", named];
        command(&authority.store, &[&arguments[..], more].concat()).await
    };
    let other = Etcd::start(&[]).await;
    let ours = authority.flag();
    for (named, more) in [(&other.url(), &[][..]), (&ours, &["--etcd-prefix", "another"])] {
        let (code, reason) = above_all(named, more).await.expect_err("another authority");
        assert_eq!((code, reason.contains("belongs to etcd cluster")), (1, true), "{reason}");
    }
    assert_eq!(client.mark("never-seen").await.0, 0, "nothing was changed");
    let raised = above_all(&ours, &[]).await.expect("it rises");
    assert!(raised["floor"].as_i64() > Some((3 << 48) + held), "{raised}");
}
