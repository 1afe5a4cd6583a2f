//! No compaction fences off a token that is held, or one that has yet to be issued.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{COMPACT, command, put_and_delete};
use crate::harness::{
    authority::{TestAuthority, on_each_authority},
    etcd::Etcd,
    eventually,
    fencepost::Fencepost,
    http::{Client, answer},
    locks::millis,
    store::{TestStore, on_each_store},
    transaction::Transaction,
};

const LONG: Duration = Duration::from_mins(5);

/// Takes a lock, writes and deletes a key under it, and gives it back: its token.
async fn pass_through(client: &Client, name: &str) -> i64 {
    let token = client.lock(name, LONG).await;
    put_and_delete(client, &format!("{name}/data"), token).await;
    assert_eq!(answer(client.release(name, token)).await.status, 204);
    token
}

async fn compact_with(authority: &TestAuthority, more: &[&str]) -> Value {
    let flag = authority.flag();
    let arguments = [&COMPACT[..], &["--authority", &flag], more].concat();
    command(&authority.store, &arguments).await.expect("it succeeds")
}

on_each_store! {
    /// With a lock service of another kind every token is believed, however high.
    async fn forged_tokens_lock_nobody_out(store: TestStore) {
        let server = Fencepost::on(&store).await;
        let client = server.client();
        put_and_delete(&client, "old", 5).await;
        for (key, token) in [("forged/1", i64::MAX), ("forged/2", i64::MAX - 1)] {
            assert_eq!(answer(client.claim(key, token)).await.status, 200);
        }
        let none = [&COMPACT[..], &["--authority", "none"]].concat();
        let (code, reason) = command(&store, &none).await.expect_err("nobody knows what is held");
        assert_eq!(code, 64);
        assert!(reason.contains("--below"), "{reason}");
        // A forgotten flag: the lock table knows nothing of these tokens.
        let (code, reason) = command(&store, &COMPACT).await.expect_err("another authority");
        assert_eq!(code, 1);
        assert!(reason.contains("belongs to none, not to store"), "{reason}");

        let bounded = [&none[..], &["--below", "9"]].concat();
        let compacted = command(&store, &bounded).await.expect("it succeeds");
        let expected = json!({
            "dropped": 1, "kept": 2, "floor": 6, "bound": 9, "bound_by": "--below 9",
        });
        assert_eq!(compacted, expected);
        assert_eq!(answer(client.put("any", 6, "v")).await.status, 201);
        assert_eq!(client.mark("forged/1").await.0, i64::MAX, "it is kept");

        // No bound lets the floor rise to tokens that nobody issues: every write would be refused for ever.
        for below in ["4611686018427387904", "9223372036854775807"] {
            let unbounded = [&none[..], &["--below", below]].concat();
            let (code, reason) = command(&store, &unbounded).await.expect_err("too high");
            assert_eq!(code, 64);
            assert!(reason.contains("every token that an authority ever issues (2^62)"), "{reason}");
        }
        let highest = [&none[..], &["--below", "4611686018427387903"]].concat();
        let compacted = command(&store, &highest).await;
        assert_eq!(compacted.expect("it succeeds")["floor"], 6);
        assert_eq!(answer(client.put("any", 6, "v")).await.status, 200);
    }
}

on_each_authority! {
    async fn the_floor_stops_at_the_lowest_token_that_is_held(authority: TestAuthority) {
        let server = authority.fencepost().await;
        let client = server.client();
        let early = pass_through(&client, "early").await;
        let held = client.lock("long/job", LONG).await;
        let mut newest = 0;
        for name in ["a", "b", "c"] {
            newest = pass_through(&client, name).await;
        }
        // What nobody has issued holds nothing up, and is kept.
        let open = authority.fencepost_with(&["--trust", "open"]).await;
        assert_eq!(answer(open.client().claim("forged", i64::MAX)).await.status, 200);

        let why = format!("token {held} holds or waits for the lock \"long/job\"");
        let planned = compact_with(&authority, &["--dry-run"]).await;
        assert_eq!((&planned["bound"], &planned["bound_by"]), (&json!(held), &json!(why)));
        assert_eq!((&planned["dry_run"], &planned["floor"]), (&json!(true), &json!(early + 1)));
        assert_eq!(client.mark("never-seen").await.0, 0, "nothing was changed");

        let mut compacted = compact_with(&authority, &[]).await;
        assert!(compacted["dropped"].as_u64() >= Some(1), "{compacted}");
        compacted["dry_run"] = json!(true);
        assert_eq!(compacted, planned, "it does what it said");
        assert!(client.mark("never-seen").await.0 <= held);
        assert_eq!(answer(client.put("job/state", held, "going on")).await.status, 201);
        assert_eq!(answer(client.renew("long/job", held)).await.status, 200);

        assert_eq!(answer(client.release("long/job", held)).await.status, 204);
        let rest = compact_with(&authority, &[]).await;
        let floor = rest["floor"].as_i64().expect("a token");
        // Up to the newest of all, whose own marks stay.
        assert!(floor > held && floor <= newest + 1, "{rest}");
        assert!(rest["bound"].as_i64() >= Some(newest), "{rest}");
        let again = client.lock("long/job", LONG).await;
        assert_eq!(answer(client.put("job/state", again, "as before")).await.status, 200);
    }
}

on_each_store! {
    /// A waiter is granted the lock with the token that it drew when it came.
    async fn the_floor_stops_at_a_waiter(store: TestStore) {
        let authority = TestAuthority::in_store(store);
        let server = authority.fencepost().await;
        let client = server.client();
        let holder = client.lock("queue", LONG).await;
        let sleeper = authority.fencepost().await;
        let terms = json!({"ttl_ms": millis(LONG), "wait_ms": millis(LONG)});
        let waiting = tokio::spawn(answer(sleeper.client().acquire("queue", &terms)));
        client.until_waiting("queue", 1).await;
        for name in ["a", "b"] {
            pass_through(&client, name).await;
        }
        // It stays in the queue, but cannot see that it is first now.
        sleeper.signal(Signal::SIGSTOP);
        assert_eq!(answer(client.release("queue", holder)).await.status, 204);
        let compacted = compact_with(&authority, &[]).await;
        assert_eq!(compacted["bound"], holder + 1, "{compacted}");
        sleeper.signal(Signal::SIGCONT);
        let granted = waiting.await.expect("an answer");
        assert_eq!((granted.status, &granted.json()["token"]), (201, &json!(holder + 1)));
        assert_eq!(answer(client.put("data", holder + 1, "mine")).await.status, 201);
    }
}

/// A token is drawn in a transaction that others do not see yet.
#[tokio::test]
async fn a_grant_that_is_being_made_is_waited_for() {
    const WAITS: &str = "SELECT FROM pg_locks WHERE relation = 'fencepost.locks'::regclass
        AND mode = 'ShareLock' AND NOT granted";
    let authority = TestAuthority::in_store(TestStore::postgres().await);
    let server = authority.fencepost().await;
    let client = server.client();
    let early = pass_through(&client, "early").await;
    let enter = "SELECT fencepost.enter_queue('slow', 'a lease', 'me', 300000, 300000, true)";
    let grant = Transaction::begin(&authority.store, enter).await;
    for name in ["a", "b"] {
        pass_through(&client, name).await;
    }
    let operator = compact_with(&authority, &[]);
    let release = async {
        eventually("the compaction waits", || grant.says(WAITS)).await;
        grant.commit().await;
    };
    let (compacted, ()) = tokio::join!(operator, release);
    assert_eq!(compacted["bound"], early + 1, "{compacted}");
    assert_eq!(answer(client.put("data", early + 1, "mine")).await.status, 201);
}

#[tokio::test]
async fn without_the_authoritys_word_nothing_is_changed() {
    let mut authority = TestAuthority::in_etcd(TestStore::sqlite()).await;
    let server = authority.fencepost().await;
    let client = server.client();
    for name in ["a", "b"] {
        pass_through(&client, name).await;
    }
    // A forgotten flag: nothing is in the lock table, but that says nothing.
    let (code, reason) = command(&authority.store, &COMPACT).await.expect_err("another authority");
    assert_eq!(code, 1);
    assert!(reason.contains("belongs to etcd"), "{reason}");

    let other = Etcd::start(&[]).await;
    let other = other.url();
    let wrong = [&COMPACT[..], &["--authority", &other]].concat();
    let (code, reason) = command(&authority.store, &wrong).await.expect_err("another etcd");
    assert_eq!(code, 1);
    assert!(reason.contains("belongs to etcd cluster"), "{reason}");

    let flag = authority.flag();
    authority.etcd.as_mut().expect("an etcd").kill();
    let away = [&COMPACT[..], &["--authority", &flag]].concat();
    let (code, reason) = command(&authority.store, &away).await.expect_err("it is away");
    assert_eq!(code, 69);
    assert!(reason.contains("nothing was changed"), "{reason}");
    assert_eq!(client.mark("never-seen").await.0, 0);
}

/// An etcd that this store has never met has issued nothing here.
#[tokio::test]
async fn an_etcd_that_was_never_met_is_not_adopted() {
    let authority = TestAuthority::in_etcd(TestStore::sqlite()).await;
    authority.store.open().await;
    let flag = authority.flag();
    let arguments = [&COMPACT[..], &["--authority", &flag]].concat();
    let (code, reason) = command(&authority.store, &arguments).await.expect_err("unmet");
    assert_eq!(code, 1);
    assert!(reason.contains("never met"), "{reason}");
    let tokens = authority.store.open().await.tokens().await.expect("an answer");
    assert_eq!(tokens.etcd, None);
}

/// A key that is named like an entry refuses grants, whatever its lease: so it bounds the floor too.
#[tokio::test]
async fn an_entry_of_another_kind_bounds_the_floor_while_it_is_there() {
    let authority = TestAuthority::in_etcd(TestStore::sqlite()).await;
    let etcd = authority.etcd.as_ref().expect("an etcd");
    let server = authority.fencepost().await;
    let client = server.client();
    pass_through(&client, "early").await;
    let granted = etcd.ctl(&["lease", "grant", "600"]);
    let lease = granted.split_whitespace().nth(1).expect("an id").to_owned();
    let on_other_lease = format!("--lease={lease}");
    for (key, more) in [("odd/deadbeef", &[&*on_other_lease][..]), ("bare/cafe", &[])] {
        etcd.ctl(&[&["put", key, "me"], more].concat());
        let (name, _) = key.split_once('/').expect("a name");
        let [(_, created)] = etcd.entries(name)[..] else { panic!("one entry") };
        for name in ["a", "b"] {
            pass_through(&client, name).await;
        }
        let terms = json!({"ttl_ms": millis(LONG)});
        assert_eq!(answer(client.acquire(name, &terms)).await.status, 423, "{key} holds");
        let compacted = compact_with(&authority, &[]).await;
        let why = format!("token {created} holds or waits for the lock {name:?}");
        assert_eq!((&compacted["bound"], &compacted["bound_by"]), (&json!(created), &json!(why)));
        etcd.ctl(&["del", key]);
    }
    let compacted = compact_with(&authority, &[]).await;
    assert!(
        compacted["bound_by"].as_str().expect("a text").contains("newest token"),
        "{compacted}"
    );
}

/// etcd's revision rises with everything that is written there. A floor above what the store remembers of it
/// would look as if another authority had issued tokens.
#[tokio::test]
async fn compaction_does_not_move_the_epoch() {
    let authority = TestAuthority::in_etcd(TestStore::sqlite()).await;
    let etcd = authority.etcd.as_ref().expect("an etcd");
    let server = authority.fencepost().await;
    pass_through(&server.client(), "early").await;
    drop(server);
    for _ in 0..5 {
        etcd.ctl(&["put", "unrelated", "data"]);
    }
    let revision = etcd.revision();
    let known = authority.store.open().await.tokens().await.expect("an answer").etcd;
    let remembered = known.expect("it has met etcd").revision;
    assert!(remembered < revision - 1, "{remembered} {revision}");
    let forged = format!(
        "INSERT INTO resources (key, token, touched_at) VALUES ('forged', {}, 0)",
        revision - 1
    );
    authority.store.execute(&forged).await.expect("it is written");

    let compacted = compact_with(&authority, &[]).await;
    assert_eq!(compacted["bound"], remembered, "{compacted}");
    assert!(compacted["floor"].as_i64() <= Some(remembered), "{compacted}");
    let server = authority.fencepost().await;
    let token = server.client().lock("next", LONG).await;
    assert!(token < 1 << 48, "the epoch has moved: {token}");
}
