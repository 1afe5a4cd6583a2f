//! What only Postgres can do to locks: speak up, go away, stand behind a pooler, refuse a role.

use std::{sync::Arc, time::Duration};

use fencepost::{
    authority::{Authority, AuthorityError, LockEvent, Turn, store::StoreAuthority},
    store::{Page, Store, postgres::PostgresStore},
};
use tokio::{task::JoinHandle, time::Instant};

use super::{TTL, acquire, ask, authority, granted, key, queue_up, try_acquire, watching::Watched};
use crate::harness::{
    PATIENCE, eventually,
    pgbouncer::Pgbouncer,
    postgres::{self, Postgres, execute, fetch},
    store::TestStore,
};

/// How long a waiter with [`TTL`] sleeps between two looks of its own. One that is granted the lock sooner was woken.
const SLEEP: Duration = Duration::from_secs(5);

fn authority_at(url: &str) -> Arc<StoreAuthority> {
    let store: Arc<dyn Store> = Arc::new(PostgresStore::new(url, 1).unwrap());
    Arc::new(StoreAuthority::new(&store))
}

async fn migrated(url: &str) {
    PostgresStore::new(url, 1).unwrap().migrate().await.unwrap();
}

/// How many connections of this database listen.
async fn listeners(url: &str) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    fetch(url, sql).await
}

/// Whether some connection of this database is told what happens to a lock.
async fn somebody_watches(url: &str) -> bool {
    let sql = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted
               AND mode = 'ShareLock' AND classid = 1718511987 AND objid > 0 AND database =
                   (SELECT oid FROM pg_database WHERE datname = current_database()))";
    fetch(url, sql).await
}

#[tokio::test]
async fn the_next_one_is_woken_across_fenceposts_without_polling() {
    let store = TestStore::postgres().await;
    let fenceposts = [authority(&store).await, authority(&store).await];
    let mut holder = try_acquire(fenceposts[0].as_ref(), "a", TTL).await.unwrap();
    let mut quickest = Duration::MAX;
    for round in 0..10 {
        let asked = Instant::now();
        // The holder is always at the other fencepost.
        let next = queue_up(&fenceposts[(round + 1) % 2], ask("a", TTL, PATIENCE)).await;
        eventually("both listen", || async { listeners(&store.url).await == 2 }).await;
        assert!(fenceposts[round % 2].release(&key("a"), holder.token).await.unwrap());
        holder = granted(next.await.unwrap()).unwrap();
        // A fencepost that has just begun to listen wakes all its waiters, so the first rounds prove nothing.
        if round >= 2 {
            quickest = quickest.min(asked.elapsed());
        }
    }
    // One quick round is enough: on a busy machine others may take longer than a sleep.
    assert!(quickest < SLEEP, "{quickest:?}");
}

/// Starts to ask for lock `a`, and is made to wait by somebody's open transaction.
async fn ask_and_be_kept_waiting(url: &str) -> JoinHandle<Turn> {
    let authority = authority_at(url);
    authority.newest().await.unwrap();
    let asking =
        tokio::spawn(
            async move { authority.acquire(&ask("a", TTL, Duration::ZERO)).await.unwrap() },
        );
    eventually("it waits for the transaction", || async {
        assert!(!asking.is_finished(), "it did not wait");
        postgres::somebody_waits(url).await
    })
    .await;
    asking
}

/// A token that is drawn and not yet committed cannot be seen. Whoever comes next must not take its
/// own for the first.
#[tokio::test]
async fn nobody_overtakes_a_token_that_is_not_committed_yet() {
    let store = TestStore::postgres().await;
    // The store belongs to the lock table already. Else the open transaction would be the one to claim it.
    authority(&store).await.newest().await.unwrap();
    let mut slow = postgres::connect(&store.url).await;
    sqlx::raw_sql("BEGIN").execute(&mut slow).await.unwrap();
    let enter = "SELECT issued FROM fencepost.enter_queue('a', 'l', 'slow', 30000, 15000, true)";
    let first: i64 = sqlx::query_scalar(enter).fetch_one(&mut slow).await.unwrap();
    let asking = ask_and_be_kept_waiting(&store.url).await;
    sqlx::raw_sql("COMMIT").execute(&mut slow).await.unwrap();
    let turn = asking.await.unwrap();
    let Turn::Held(Some(holder)) = turn else { panic!("{turn:?}") };
    assert_eq!((holder.token.get(), holder.owner.as_str()), (first, "slow"));
}

/// Renewed in time, but not yet committed when the old lease ends: it is renewed, or it is lost, but
/// two do not hold the lock.
#[tokio::test]
async fn nobody_takes_a_lock_whose_renewal_is_not_committed_yet() {
    let store = TestStore::postgres().await;
    let one = authority(&store).await;
    let grant = try_acquire(one.as_ref(), "a", Duration::from_secs(8)).await.unwrap();
    let mut slow = postgres::connect(&store.url).await;
    sqlx::raw_sql("BEGIN").execute(&mut slow).await.unwrap();
    let renew = format!("SELECT own_ttl_ms FROM fencepost.renew_lock('a', {})", grant.token);
    let renewed: Option<i64> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(renew)).fetch_one(&mut slow).await.unwrap();
    assert_eq!(renewed, Some(8000));
    eventually("the lease ends", || async {
        one.inspect(&key("a")).await.unwrap().holder.is_none()
    })
    .await;
    let asking = ask_and_be_kept_waiting(&store.url).await;
    // So that the renewed lease has not ended as well.
    let longer =
        "UPDATE fencepost.locks SET ttl_ms = 600000, expires_at = now() + interval '10 min'";
    sqlx::raw_sql(longer).execute(&mut slow).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut slow).await.unwrap();
    let turn = asking.await.unwrap();
    let Turn::Held(Some(holder)) = turn else { panic!("{turn:?}") };
    assert_eq!(holder.token, grant.token);
}

/// Whoever is woken looks, and whoever looks renews its row. Those whose turn it is not leave theirs
/// alone until it is due.
#[tokio::test]
async fn only_one_is_woken() {
    let store = TestStore::postgres().await;
    let one = authority(&store).await;
    let holder = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..20 {
        waiters.push(queue_up(&one, ask("a", TTL, PATIENCE)).await);
        // All look when they are listened for at last; here that is only the first.
        eventually("it listens", || async { listeners(&store.url).await == 1 }).await;
    }
    execute(&store.url, "CREATE TABLE before AS SELECT token, expires_at FROM fencepost.locks")
        .await;
    let first = waiters.remove(0);
    assert!(one.release(&key("a"), holder.token).await.unwrap());
    let grant = granted(first.await.unwrap()).unwrap();
    assert!(one.release(&key("a"), grant.token).await.unwrap());
    granted(waiters.remove(0).await.unwrap()).unwrap();
    // Time for a herd to come, if there is one.
    tokio::time::sleep(Duration::from_millis(300)).await;
    // A renewal that was due moves the end of a lease by as long as one sleeps between two.
    let not_due = format!(
        "SELECT count(*) FROM fencepost.locks AS now JOIN before USING (token)
         WHERE now.expires_at <> before.expires_at
           AND now.expires_at < before.expires_at + interval '{} ms'",
        SLEEP.as_millis() / 2
    );
    assert_eq!(fetch::<i64>(&store.url, &not_due).await, 0, "rows of those whose turn it was not");
    for waiter in waiters {
        assert!(!waiter.is_finished());
        waiter.abort();
    }
}

#[tokio::test]
async fn a_lost_listener_is_replaced() {
    let store = TestStore::postgres().await;
    let (one, other) = (authority(&store).await, authority(&store).await);
    let mut watched = Watched::of(&other, "a").await;
    assert_eq!(watched.next().await, LockEvent::Released(None));
    let holder = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
    assert_eq!(watched.granted().await, holder.token.get());
    let waiter = queue_up(&other, ask("a", TTL, PATIENCE)).await;
    eventually("it listens", || async { somebody_watches(&store.url).await }).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    execute(&store.url, kill).await;
    eventually("it listens again", || async { somebody_watches(&store.url).await }).await;
    eventually("it is released", || async {
        one.release(&key("a"), holder.token).await.is_ok_and(|released| released)
    })
    .await;
    let grant = granted(waiter.await.unwrap()).unwrap();
    assert_eq!(watched.next().await, LockEvent::Released(Some(holder.token)));
    assert_eq!(watched.granted().await, grant.token.get());
}

#[tokio::test]
async fn who_waits_goes_on_waiting_when_postgres_restarts() {
    let mut postgres = Postgres::start(&["fsync=off"]).await;
    let url = postgres.database("").await;
    migrated(&url).await;
    let (one, other) = (authority_at(&url), authority_at(&url));
    let holder = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
    let mut watched = Watched::of(&one, "a").await;
    assert_eq!(watched.granted().await, holder.token.get());
    let waiter = queue_up(&other, ask("a", TTL, PATIENCE)).await;
    postgres.stop("immediate").await;
    let asked = other.acquire(&ask("b", TTL, Duration::ZERO)).await;
    assert!(matches!(asked, Err(AuthorityError::Store(_))), "{asked:?}");
    assert!(!other.status().up);
    postgres.run().await;
    eventually("it is there again", || async {
        one.renew(&key("a"), holder.token).await.is_ok_and(|renewed| renewed.is_some())
    })
    .await;
    assert!(!waiter.is_finished());
    assert!(one.release(&key("a"), holder.token).await.unwrap());
    let grant = granted(waiter.await.unwrap()).unwrap();
    assert_eq!(grant.token.get(), holder.token.get() + 1, "it has kept its place");
    assert_eq!(watched.next().await, LockEvent::Released(Some(holder.token)));
    assert_eq!(watched.granted().await, grant.token.get());
    assert!(other.status().up);
}

/// Whatever a lost answer had done: afterwards the lock is free, well before its lease would end.
#[tokio::test]
async fn connections_killed_at_random_leave_no_lock_behind() {
    let store = TestStore::postgres().await;
    let fenceposts = [authority(&store).await, authority(&store).await];
    let begun = Instant::now();
    let url = store.url.clone();
    let killer = tokio::spawn(async move {
        for _ in 0..20 {
            let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                        WHERE datname = current_database() AND query LIKE '%fencepost.%'
                          AND pid <> pg_backend_pid()";
            execute(&url, kill).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut clients = Vec::new();
    for number in 0..20 {
        let authority: Arc<StoreAuthority> = fenceposts[number % 2].clone();
        clients.push(tokio::spawn(async move {
            while begun.elapsed() < Duration::from_millis(1500) {
                let wait = Duration::from_millis(500);
                let Ok(turn) = authority.acquire(&ask("a", TTL * 100, wait)).await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let Some(grant) = granted(turn) else { continue };
                // Who was told that it has the lock releases it, however often that takes.
                while authority.release(&grant.name, grant.token).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    killer.await.unwrap();
    let calm = &fenceposts[0];
    eventually("the last kill is forgotten", || async { calm.newest().await.is_ok() }).await;
    let mut last = 0;
    for _ in 0..5 {
        let grant = acquire(calm.as_ref(), "a", TTL).await;
        assert!(grant.token.get() > last);
        last = grant.token.get();
        assert!(calm.release(&key("a"), grant.token).await.unwrap());
    }
}

#[tokio::test]
async fn locks_work_behind_a_transaction_pooler() {
    let server = postgres::shared().await;
    let direct = postgres::database().await;
    migrated(&direct).await;
    let pgbouncer = Pgbouncer::before(server, 4, "").await;
    let url = pgbouncer.url(&direct);
    let (one, other) = (authority_at(&url), authority_at(&url));
    let mut watched = Watched::of(&other, "a").await;
    assert_eq!(watched.next().await, LockEvent::Released(None));
    let mut holder = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
    assert_eq!(watched.granted().await, holder.token.get());
    let mut quickest = Duration::MAX;
    for round in 0..6 {
        let authorities = [&one, &other];
        let asked = Instant::now();
        let next = queue_up(authorities[(round + 1) % 2], ask("a", TTL, PATIENCE)).await;
        assert!(authorities[round % 2].renew(&key("a"), holder.token).await.unwrap().is_some());
        assert!(authorities[round % 2].release(&key("a"), holder.token).await.unwrap());
        let former = holder.token;
        holder = granted(next.await.unwrap()).unwrap();
        quickest = quickest.min(asked.elapsed());
        assert!(holder.token > former);
        assert_eq!(watched.next().await, LockEvent::Released(Some(former)));
        assert_eq!(watched.granted().await, holder.token.get());
    }
    // Nothing tells a fencepost here. It asks four times a second for all that wait at it, and wakes the next one.
    assert!(quickest < SLEEP, "{quickest:?}");
    assert_eq!(listeners(&direct).await, 0);
}

/// As after a failover to a standby that lagged: whoever was there before still knows better.
#[tokio::test]
async fn tokens_rise_although_postgres_has_forgotten_the_last_ones() {
    let store = TestStore::postgres().await;
    let one = authority(&store).await;
    let mut last = 0;
    for name in ["a", "b", "c"] {
        last = try_acquire(one.as_ref(), name, TTL).await.unwrap().token.get();
    }
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let forget = "TRUNCATE fencepost.locks; SELECT setval('fencepost.tokens', 1)";
    execute(&store.url, &format!("{forget}; {kill}")).await;
    eventually("it is reached again", || async { one.newest().await.is_ok() }).await;
    assert_eq!(one.newest().await.unwrap(), last);
    let grant = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
    assert_eq!(grant.token.get(), last + 1);
}

#[tokio::test]
async fn the_role_that_serves_may_do_enough() {
    let url = postgres::to_serve(&postgres::database().await).await;
    let (one, other) = (authority_at(&url), authority_at(&url));
    let mut watched = Watched::of(&other, "a").await;
    assert_eq!(watched.next().await, LockEvent::Released(None));
    let grant = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
    assert_eq!(watched.granted().await, grant.token.get());
    let waiter = queue_up(&other, ask("a", TTL, PATIENCE)).await;
    assert_eq!(one.renew(&key("a"), grant.token).await.unwrap(), Some(TTL));
    assert_eq!(one.list(Page::first(100, "")).await.unwrap().len(), 1);
    assert_eq!(one.newest().await.unwrap(), grant.token.get() + 1);
    assert!(one.release(&key("a"), grant.token).await.unwrap());
    granted(waiter.await.unwrap()).unwrap();
}

/// Nobody hears a word of a lock that nobody watches, so none is said: it would cost every commit.
#[tokio::test]
async fn nothing_is_said_where_nobody_listens() {
    let store = TestStore::postgres().await;
    let one = authority(&store).await;
    let mut listener = sqlx::postgres::PgListener::connect(&store.url).await.unwrap();
    listener.listen_all(["fencepost_turns", "fencepost_events", "the_end"]).await.unwrap();
    for name in ["a", "b"] {
        let grant = try_acquire(one.as_ref(), name, TTL).await.unwrap();
        assert!(one.release(&key(name), grant.token).await.unwrap());
    }
    execute(&store.url, "NOTIFY the_end").await;
    assert_eq!(listener.recv().await.unwrap().channel(), "the_end");
}

/// Nor is anything said any more once the last who watched has gone.
#[tokio::test]
async fn who_watches_no_more_is_told_no_more() {
    let store = TestStore::postgres().await;
    let one = authority(&store).await;
    let watch = Watched::of(&one, "a").await;
    eventually("it watches", || async { somebody_watches(&store.url).await }).await;
    drop(watch);
    // It notices with the next word that nobody needs.
    let grant = try_acquire(one.as_ref(), "a", TTL).await.unwrap();
    eventually("nobody watches", || async { !somebody_watches(&store.url).await }).await;
    assert!(one.release(&key("a"), grant.token).await.unwrap());
}
