//! Another role of the same database, which has no rights on Fencepost's schema. It can notify, and hold advisory
//! locks. By neither can it make anybody believe anything, or stop locks.

use std::time::{Duration, Instant};

use fencepost::authority::{Authority, LockEvent};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};

use super::{TTL, acquire, ask, authority, granted, key, queue_up, try_acquire, watching::Watched};
use crate::harness::{
    PATIENCE, eventually,
    fencepost::{Fencepost, run, run_previous},
    http::answer,
    postgres::{
        self, apply_roles, connect, counted_in_the_end, execute, fetch, name_of, somebody_waits,
    },
    store::TestStore,
};

/// A role that may connect, and nothing else.
async fn stranger(url: &str) -> PgConnection {
    let role = format!("stranger_of_{}", name_of(url));
    execute(url, &format!("CREATE ROLE {role} LOGIN")).await;
    connect(&url.replace("postgres@", &format!("{role}@"))).await
}

async fn does(stranger: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(stranger).await.expect("every role may do that");
}

/// Every advisory lock by which any release of Fencepost has taken a queue, drawn tokens, watched or migrated.
async fn hold_advisory_locks(stranger: &mut PgConnection) {
    does(
        stranger,
        "SELECT pg_advisory_lock(1718511987, number) FROM generate_series(0, 99) AS number",
    )
    .await;
    let queues = "SELECT pg_advisory_lock(hashtextextended(name, 7420)) FROM unnest(ARRAY['a', 'b', 'lock']) AS name";
    does(stranger, queues).await;
}

#[tokio::test]
async fn advisory_locks_of_a_stranger_stop_no_lock() {
    let store = TestStore::postgres().await;
    let (one, other) = (authority(&store).await, authority(&store).await);
    let mut stranger = stranger(&store.url).await;
    hold_advisory_locks(&mut stranger).await;
    // Tokens have to be moved on before the first is drawn.
    execute(&store.url, "UPDATE fencepost.floor SET token = 1000").await;
    let mut watched = Watched::of(&other, "a").await;
    assert_eq!(watched.next().await, LockEvent::Released(None));
    let holder = try_acquire(one.as_ref(), "a", TTL).await.expect("it is free");
    assert!(holder.token.get() > 1000);
    assert_eq!(watched.granted().await, holder.token.get());
    assert!(try_acquire(other.as_ref(), "a", TTL).await.is_none());
    let waiter = queue_up(&other, ask("a", TTL, PATIENCE)).await;
    assert_eq!(one.renew(&key("a"), holder.token).await.unwrap(), Some(TTL));
    assert!(one.release(&key("a"), holder.token).await.unwrap());
    let next = granted(waiter.await.unwrap()).expect("its turn comes");
    assert_eq!(watched.next().await, LockEvent::Released(Some(holder.token)));
    assert_eq!(watched.granted().await, next.token.get());
    // Those who watch are told at once again when the stranger has gone.
    drop(stranger);
    eventually("changes are told again", || async {
        let shared = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted
                       AND mode = 'ShareLock' AND classid = 1718511987 AND database =
                           (SELECT oid FROM pg_database WHERE datname = current_database()))";
        fetch(&store.url, shared).await
    })
    .await;
    assert!(other.release(&key("a"), next.token).await.unwrap());
    assert_eq!(watched.next().await, LockEvent::Released(Some(next.token)));
}

/// Nor is a waiter told later that it is its turn, however many locks are watched. A waiter that is not told looks after
/// a third of its lease.
#[tokio::test]
async fn advisory_locks_of_a_stranger_delay_no_hand_over() {
    let store = TestStore::postgres().await;
    let (one, other) = (authority(&store).await, authority(&store).await);
    let mut stranger = stranger(&store.url).await;
    hold_advisory_locks(&mut stranger).await;
    let mut watches = Vec::new();
    for number in 0..60 {
        watches.push(Watched::of(&other, &format!("watched/{number}")).await);
    }
    let mut quickest = PATIENCE;
    for _ in 0..4 {
        let holder = acquire(one.as_ref(), "a", TTL).await;
        let waiter = queue_up(&other, ask("a", TTL, PATIENCE)).await;
        let released = Instant::now();
        assert!(one.release(&key("a"), holder.token).await.unwrap());
        let next = granted(waiter.await.unwrap()).expect("its turn comes");
        quickest = quickest.min(released.elapsed());
        assert!(other.release(&key("a"), next.token).await.unwrap());
    }
    assert!(quickest < TTL.min(Duration::from_secs(15)) / 5, "{quickest:?}");
}

/// Shared, it looks as if somebody watched. That costs a notification, and no more.
#[tokio::test]
async fn a_stranger_who_seems_to_watch_is_no_hindrance() {
    let store = TestStore::postgres().await;
    let one = authority(&store).await;
    let mut stranger = stranger(&store.url).await;
    does(
        &mut stranger,
        "SELECT pg_advisory_lock_shared(1718511987, number) FROM generate_series(0, 99) AS number",
    )
    .await;
    let mut watched = Watched::of(&one, "a").await;
    assert_eq!(watched.next().await, LockEvent::Released(None));
    let grant = acquire(one.as_ref(), "a", TTL).await;
    assert_eq!(watched.granted().await, grant.token.get());
    assert!(one.release(&key("a"), grant.token).await.unwrap());
    assert_eq!(watched.next().await, LockEvent::Released(Some(grant.token)));
}

#[tokio::test]
async fn advisory_locks_of_a_stranger_stop_neither_a_migration_nor_a_takeover() {
    let superuser = postgres::database().await;
    apply_roles(&superuser).await;
    let mut stranger = stranger(&superuser).await;
    hold_advisory_locks(&mut stranger).await;
    let owner = superuser.replace("postgres@", "fencepost_owner@");
    for _ in 0..2 {
        let migrated = run(&["migrate", "--store", &owner]);
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    }
    let serving = superuser.replace("postgres@", "fencepost_serve@");
    let serve = async || {
        let server = Fencepost::start_as_it_is(&serving, &["--authority", "store"]);
        server.wait_until_ready().await;
        server
    };
    let before = serve().await.client().lock("lock", Duration::from_secs(1)).await;
    execute(&superuser, "UPDATE fencepost.lineage SET timeline = '00000009'").await;
    let after = serve().await.client().lock("lock", TTL).await;
    assert!(after > before + (1 << 32), "tokens have leapt: {after} after {before}");
}

fn forged(happened: &str, token: i64) -> String {
    let payload = json!({"name": "a", "happened": happened, "token": token, "owner": "mallory",
                         "ttl_ms": 60_000});
    format!("SELECT pg_notify('fencepost_events', '{payload}')")
}

/// The connections that listen, by their process ids.
async fn listening(url: &str) -> Vec<i32> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()
               AND (query LIKE 'LISTEN%' OR query LIKE '%pg_try_advisory_lock_shared%') AND pid <> pg_backend_pid()
               ORDER BY pid";
    postgres::fetch_all(url, sql).await
}

#[tokio::test]
async fn forged_notifications_tell_those_who_watch_nothing() {
    let store = TestStore::postgres().await;
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let client = server.client();
    let mut stranger = stranger(&store.url).await;
    let mut events = client.watch("a").await;
    assert_eq!(events.expect("released").await["token"], 0);
    eventually("it listens", || async { listening(&store.url).await.len() == 1 }).await;
    let listener = listening(&store.url).await;

    // Nobody holds it, and somebody is said to.
    does(&mut stranger, &forged("granted", 999)).await;
    let first = client.lock("a", TTL).await;
    let event = events.expect("granted").await;
    assert_eq!(event["token"], first);
    assert_ne!(event["owner"], "mallory");

    // Somebody holds it, and is said not to; or somebody else is; or what is said makes no sense.
    for lie in [forged("released", first), forged("expired", first), forged("granted", first + 1)] {
        does(&mut stranger, &lie).await;
    }
    for nonsense in ["", "{", "null", "[1]", r#"{"name":""}"#, r#"{"name":"a"}"#, r#"{"name":5}"#] {
        does(&mut stranger, &format!("SELECT pg_notify('fencepost_events', '{nonsense}')")).await;
        does(&mut stranger, &format!("SELECT pg_notify('fencepost_turns', '{nonsense}')")).await;
    }
    assert_eq!(client.holder("a").await, first);
    assert_eq!(answer(client.release("a", first)).await.status, 204);
    assert_eq!(events.expect("released").await["token"], first);
    let second = client.lock("a", TTL).await;
    assert_eq!(events.expect("granted").await["token"], second);
    assert_eq!(
        listening(&store.url).await,
        listener,
        "nothing has disturbed the connection that listens"
    );
}

/// However often it is said that something has happened, the lock table is not asked more often than it can answer.
#[tokio::test]
async fn a_flood_of_forged_notifications_costs_few_looks() {
    let store = TestStore::postgres().await;
    let server = Fencepost::with(&store, &["--authority", "store"]).await;
    let client = server.client();
    let mut stranger = stranger(&store.url).await;
    let mut events = client.watch("a").await;
    events.expect("released").await;
    let first = client.lock("a", TTL).await;
    events.expect("granted").await;
    let waiter = tokio::spawn({
        let client = client.clone();
        async move { client.lock("a", TTL).await }
    });
    client.until_waiting("a", 1).await;
    let lease: String =
        fetch(&store.url, "SELECT lease FROM fencepost.locks ORDER BY token DESC LIMIT 1").await;
    let flood = "SELECT count(pg_notify('fencepost_events',
                     json_build_object('name', 'a', 'happened', 'released', 'token', number)::text))
                 FROM generate_series(1, 20000) AS number";
    does(&mut stranger, flood).await;
    let wakes = format!(
        "DO $$ BEGIN FOR number IN 1..3000 LOOP
             PERFORM pg_notify('fencepost_turns', '{lease}'); COMMIT; END LOOP; END $$"
    );
    does(&mut stranger, &wakes).await;
    // What is true comes after all of it.
    assert_eq!(answer(client.release("a", first)).await.status, 204);
    let second = waiter.await.unwrap();
    let told: Value = events.expect("released").await;
    assert_eq!(told["token"], first);
    assert_eq!(events.expect("granted").await["token"], second);
    drop(server);
    drop(stranger);
    let updated = counted_in_the_end(&store.url, "tup_updated").await;
    assert!(updated < 1000, "{updated} rows were written for 3000 forged wake-ups");
    let fetched = counted_in_the_end(&store.url, "xact_commit").await - 3000;
    assert!(fetched < 5000, "{fetched} transactions for 20000 forged changes");
}

/// A transaction that began on the functions of the previous release, and goes on with them after the migration.
#[tokio::test]
async fn nobody_enters_a_queue_by_the_functions_of_before() {
    let superuser = postgres::database().await;
    let migrated = run_previous(&["migrate", "--store", &superuser]);
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    let mut holding = connect(&superuser).await;
    let take = "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('a', 7420))";
    sqlx::raw_sql(take).execute(&mut holding).await.unwrap();
    let mut late = connect(&superuser).await;
    let late = tokio::spawn(async move {
        let enter =
            "SELECT issued FROM fencepost.enter_queue('a', 'late', 'late', 30000, 15000, true)";
        sqlx::query_scalar::<_, i64>(enter).fetch_one(&mut late).await
    });
    eventually("it waits", || somebody_waits(&superuser)).await;
    let migrated = run(&["migrate", "--store", &superuser]);
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    sqlx::raw_sql("COMMIT").execute(&mut holding).await.unwrap();
    let entered = late.await.unwrap().expect_err("it must not enter");
    let code = entered.as_database_error().and_then(|error| error.code().map(|it| it.to_string()));
    assert_eq!(code.as_deref(), Some("23502"), "{entered}");
    let again = "SELECT holds FROM fencepost.enter_queue('a', 'l', 'o', 30000, 15000, true)";
    assert!(fetch::<bool>(&superuser, again).await);
}
