//! One thing goes wrong with Postgres or the link to it, at the worst moment.

use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::harness::{
    blocker::Blocker,
    chaos_proxy::{ChaosProxy, Weather},
    eventually,
    fencepost::Fencepost,
    http::{Answer, Client, answer, insist},
    postgres,
};

/// A database with the schema and some keys in it, at token 1.
async fn database(keys: &[&str]) -> (String, Fencepost) {
    let url = postgres::database().await;
    let server = Fencepost::start(&url, &[]);
    server.wait_until_ready().await;
    for key in keys {
        assert_eq!(answer(server.client().put(key, 1, "before")).await.status, 201);
    }
    (url, server)
}

/// The same request in the background, so that the test can see to what it waits for.
fn later(request: reqwest::RequestBuilder) -> tokio::task::JoinHandle<Answer> {
    tokio::spawn(answer(request))
}

async fn value(client: &Client, key: &str) -> String {
    answer(client.read(key)).await.text()
}

fn assert_problem(answer: &Answer, status: u16, problem: &str) {
    assert_eq!((answer.status, answer.problem().as_str()), (status, problem), "{}", answer.text());
    let retry_after = (status == 503).then_some("1");
    assert_eq!(answer.header("retry-after"), retry_after, "{}", answer.text());
}

#[tokio::test]
async fn a_client_that_hangs_up_neither_stops_nor_spoils_its_write() {
    let (url, server) = database(&["k"]).await;
    let blocker = Blocker::on_row(&url, "k").await;
    let mut hasty = TcpStream::connect(&server.address).await.unwrap();
    let put = "PUT /v1/resources/k HTTP/1.1\r\nHost: x\r\nX-Fencing-Token: 2\r\n\
               Content-Length: 5\r\n\r\nhasty";
    hasty.write_all(put.as_bytes()).await.unwrap();
    blocker.until_waiting(1).await;
    drop(hasty);
    blocker.release().await;

    let client = server.client();
    eventually("the write is carried out", || async { value(&client, "k").await == "hasty" }).await;
    let next = answer(client.put("k", 2, "next")).await;
    assert_eq!((next.status, next.header("etag")), (200, Some("\"3\"")));
    assert_eq!(value(&client, "k").await, "next");
}

/// Postgres would otherwise carry out a statement whose client is long gone, once it has its lock.
#[tokio::test]
async fn a_write_of_a_killed_fencepost_does_not_commit_later() {
    let (url, server) = database(&["k"]).await;
    let blocker = Blocker::on_row(&url, "k").await;
    let zombie = tokio::spawn(server.client().put("k", 2, "zombie").send());
    blocker.until_waiting(1).await;
    let waits = "SELECT pid FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let zombies_session: i32 = postgres::fetch(&url, waits).await;
    server.signal(Signal::SIGKILL);
    assert!(zombie.await.unwrap().is_err(), "it cannot have been answered");
    // The row is still locked, so it has given up; and not for its lock_timeout.
    blocker.until_waiting(0).await;
    let log = postgres::shared().await.directory().join("log");
    let log = std::fs::read_to_string(log).expect("the log of Postgres");
    let why = format!("[{zombies_session}] FATAL:  connection to client lost");
    assert!(log.contains(&why), "{why}");
    blocker.release().await;

    let heir = Fencepost::start(&url, &[]);
    heir.wait_until_ready().await;
    assert_eq!(value(&heir.client(), "k").await, "before");
    assert_eq!(heir.client().mark("k").await, (1, 0));
}

#[tokio::test]
async fn a_link_cut_after_the_commit_leaves_an_unknown_outcome_that_a_repeat_resolves() {
    let (url, _warm) = database(&["single", "scoped"]).await;
    let port = postgres::shared().await.port();
    let proxy = ChaosProxy::before(port).await;
    let server = Fencepost::start(&proxy.reroute(&url, port), &[]);
    server.wait_until_ready().await;
    let client = server.client();
    let direct = Fencepost::start(&url, &[]);
    direct.wait_until_ready().await;
    let single = || client.put("single", 2, "once").header("X-Fencing-Seq", 1);
    let scoped = || {
        let put = client.put("scoped", 2, "once").header("X-Fencing-Seq", 1);
        put.header("X-Fencing-Scope", "scope")
    };

    let blocker = Blocker::on_commits(&url).await;
    let writes = [later(single()), later(scoped())];
    blocker.until_waiting(2).await;
    proxy.set(Weather::AnswersStalled);
    blocker.release().await;
    for key in ["single", "scoped"] {
        eventually("it is committed", || async { value(&direct.client(), key).await == "once" })
            .await;
    }
    proxy.set(Weather::Cut);
    for write in writes {
        assert_problem(&write.await.unwrap(), 504, "outcome-unknown");
    }
    proxy.set(Weather::Fair);
    server.wait_until_ready().await;
    for repeat in [single(), scoped()] {
        let repeat = insist(repeat).await;
        assert_eq!((repeat.status, repeat.header("etag")), (200, Some("\"2\"")));
        assert_eq!(repeat.header("x-fencing-replay"), Some("true"));
    }
}

#[tokio::test]
async fn a_link_cut_before_the_commit_never_applies_the_write() {
    let (url, direct) = database(&["single", "scoped"]).await;
    let port = postgres::shared().await.port();
    let proxy = ChaosProxy::before(port).await;
    let server = Fencepost::start(&proxy.reroute(&url, port), &[]);
    server.wait_until_ready().await;
    let client = server.client();
    let single = || client.put("single", 2, "once").header("X-Fencing-Seq", 1);
    let scoped = || client.put("scoped", 2, "once").header("X-Fencing-Scope", "scope");

    let rows = "SELECT key FROM fencepost.resources FOR UPDATE";
    let blocker = Blocker::holding(&url, rows).await;
    let (one, two) = (later(single()), later(scoped()));
    blocker.until_waiting(2).await;
    proxy.set(Weather::Cut);
    // One statement commits by itself, so nobody can tell. A transaction without its COMMIT cannot.
    assert_problem(&one.await.unwrap(), 504, "outcome-unknown");
    assert_problem(&two.await.unwrap(), 503, "store-unavailable");
    blocker.until_waiting(0).await;
    blocker.release().await;
    for key in ["single", "scoped"] {
        assert_eq!(value(&direct.client(), key).await, "before");
    }

    proxy.set(Weather::Fair);
    server.wait_until_ready().await;
    let repeat = insist(single()).await;
    assert_eq!((repeat.status, repeat.header("etag")), (200, Some("\"2\"")));
    assert_eq!(repeat.header("x-fencing-replay"), None);
}

/// The longest test: nothing but a deadline of our own ends this wait.
#[tokio::test]
async fn a_link_that_stalls_is_given_up_at_the_deadline() {
    let (url, _direct) = database(&["k"]).await;
    let port = postgres::shared().await.port();
    let proxy = ChaosProxy::before(port).await;
    let server = Fencepost::start(&proxy.reroute(&url, port), &[]);
    server.wait_until_ready().await;
    let client = server.client();
    let blocker = Blocker::on_row(&url, "k").await;
    let write = later(client.put("k", 2, "stalled").header("X-Fencing-Seq", 1));
    blocker.until_waiting(1).await;
    proxy.set(Weather::Stalled);
    blocker.release().await;

    let live = answer(server.admin_client().get("/livez")).await;
    assert_eq!(live.status, 200);
    let ready = answer(server.admin_client().get("/readyz")).await;
    assert_eq!(ready.status, 503);
    assert!(!write.is_finished(), "a probe does not wait for the deadline of a write");
    assert_problem(&write.await.unwrap(), 504, "outcome-unknown");

    proxy.set(Weather::Fair);
    let repeat = insist(client.put("k", 2, "stalled").header("X-Fencing-Seq", 1)).await;
    assert_eq!((repeat.status, repeat.header("etag")), (200, Some("\"2\"")));
}

#[tokio::test]
async fn a_slow_link_is_only_slow() {
    let (url, _direct) = database(&[]).await;
    let port = postgres::shared().await.port();
    let proxy = ChaosProxy::before(port).await;
    proxy.set(Weather::Delayed(Duration::from_millis(20)));
    let server = Fencepost::start(&proxy.reroute(&url, port), &[]);
    server.wait_until_ready().await;
    let client = server.client();
    let keys: Vec<String> = (0..20).map(|number| format!("slow/{number}")).collect();
    for put in join_all(keys.iter().map(|key| answer(client.put(key, 1, "x")))).await {
        assert_eq!(put.status, 201, "{}", put.text());
    }
}

#[tokio::test]
async fn a_row_that_stays_locked_costs_its_own_writers_a_503() {
    let (url, server) = database(&["locked"]).await;
    let client = server.client();
    let blocker = Blocker::on_row(&url, "locked").await;
    let single = later(client.put("locked", 2, "x"));
    let batch = later(client.batch(&json!({"writes": [
        {"key": "another", "token": 2, "value": 1},
        {"key": "locked", "token": 2, "value": 1},
    ]})));
    // The second may follow the first, or wait by itself.
    eventually("they wait for the lock", || postgres::somebody_waits(&url)).await;
    // No other key has to wait for the locked one.
    for number in 0..24 {
        let put = answer(client.put(&format!("other/{number}"), 2, "x")).await;
        assert_eq!(put.status, 201);
    }
    assert!(!single.is_finished() && !batch.is_finished(), "the locked ones went on waiting");
    assert_problem(&single.await.unwrap(), 503, "store-unavailable");
    assert_problem(&batch.await.unwrap(), 503, "store-unavailable");
    blocker.release().await;

    assert_eq!(value(&client, "locked").await, "before");
    assert_eq!(answer(client.read("another")).await.status, 404);
    assert_eq!(answer(client.put("locked", 2, "x")).await.status, 200);
}

/// Each waits for `lock_timeout` in turn, but nobody waits for all those before it.
#[tokio::test]
async fn writers_behind_a_locked_table_do_not_wait_for_each_other_for_ever() {
    let url = postgres::database().await;
    let server = Fencepost::start(&url, &["--store-connections", "1"]);
    server.wait_until_ready().await;
    let client = server.client();
    let table = "LOCK TABLE fencepost.resources IN EXCLUSIVE MODE";
    let blocker = Blocker::holding(&url, table).await;
    let keys: Vec<String> = (0..8).map(|number| format!("key/{number}")).collect();
    // The first few wait for the lock, each for its time; the rest have waited for them.
    for refused in join_all(keys.iter().map(|key| answer(client.put(key, 1, "x")))).await {
        let reason = refused.problem();
        assert!(["store-unavailable", "overloaded"].contains(&reason.as_str()), "{reason}");
        assert_problem(&refused, 503, &reason);
    }
    blocker.release().await;
    for put in join_all(keys.iter().map(|key| answer(client.put(key, 1, "x")))).await {
        assert_eq!(put.status, 201, "{}", put.text());
    }
}

#[tokio::test]
async fn a_full_queue_turns_requests_away_at_once() {
    let url = postgres::database().await;
    let server = Fencepost::start(&url, &["--queue", "4", "--store-connections", "2"]);
    server.wait_until_ready().await;
    let client = server.client();
    let table = "LOCK TABLE fencepost.resources IN EXCLUSIVE MODE";
    let blocker = Blocker::holding(&url, table).await;
    let first: Vec<_> =
        (0..8).map(|number| later(client.put(&format!("a/{number}"), 1, "x"))).collect();
    blocker.until_waiting(2).await;
    let mut rest = Vec::new();
    for number in 0..40 {
        rest.push(later(client.put(&format!("b/{number}"), 1, "x")));
    }
    let turned_away = |tasks: &[tokio::task::JoinHandle<Answer>]| {
        tasks.iter().filter(|task| task.is_finished()).count()
    };
    eventually("most are turned away", || async { turned_away(&rest) >= 30 }).await;
    blocker.release().await;

    let (mut applied, mut overloaded) = (0, 0);
    for task in first.into_iter().chain(rest) {
        let answer = task.await.unwrap();
        if answer.status == 201 {
            applied += 1;
        } else {
            assert_problem(&answer, 503, "overloaded");
            overloaded += 1;
        }
    }
    assert!(applied >= 2 && overloaded >= 30, "{applied} applied, {overloaded} turned away");
    let list = answer(client.get("/v1/resources")).await;
    assert_eq!(list.json()["resources"].as_array().unwrap().len(), applied);
    assert_eq!(answer(client.put("b/0", 2, "x")).await.status / 100, 2);
}

/// It holds two locked rows in its sleep. Postgres takes them away.
#[tokio::test]
async fn a_fencepost_frozen_inside_a_transaction_does_not_block_the_others_for_ever() {
    let (url, frozen) = database(&["a", "b"]).await;
    let other = Fencepost::start(&url, &[]);
    other.wait_until_ready().await;
    let blocker = Blocker::on_row(&url, "b").await;
    let late = later(frozen.client().put("a", 2, "late").header("X-Fencing-Scope", "b"));
    // The lane has given up on the row, and the detour waits for it, for much longer.
    eventually("it waits patiently", || postgres::somebody_waits(&url)).await;
    frozen.signal(Signal::SIGSTOP);
    blocker.release().await;

    let put = insist(other.client().put("a", 3, "other")).await;
    assert_eq!(put.status, 200, "{}", put.text());
    frozen.signal(Signal::SIGCONT);
    // Its transaction was ended. Or, where all this took a busy machine so long that it had given up on the row before
    // it was frozen, it tried again when it woke.
    let late = late.await.unwrap();
    assert!([409, 503].contains(&late.status), "{}", late.text());
    assert_eq!(value(&frozen.client(), "a").await, "other");
    assert_eq!(frozen.client().mark("b").await, (1, 0));
    assert_eq!(answer(frozen.client().put("b", 3, "x")).await.status, 200);
}

/// As after a failover: the address leads to a server that only reads, and later to one that writes.
#[tokio::test]
async fn a_server_that_only_reads_is_left_as_soon_as_there_is_another() {
    let (url, server) = database(&["k"]).await;
    let client = server.client();
    let elsewhere = postgres::shared().await.url("postgres");
    let fail_over = async |read_only: &str| {
        let database = postgres::name_of(&url);
        let setting = format!("SET default_transaction_read_only = {read_only}");
        postgres::execute(&elsewhere, &format!("ALTER DATABASE {database} {setting}")).await;
    };
    fail_over("on").await;
    postgres::execute(
        &url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = 'fencepost' AND datname = current_database()",
    )
    .await;
    eventually("it is not ready", || async {
        answer(server.admin_client().get("/readyz")).await.status == 503
    })
    .await;
    for _ in 0..2 {
        // Repeated without a seq, so it does not matter whether the first is in doubt.
        let refused = answer(client.put("k", 2, "x")).await;
        assert!([503, 504].contains(&refused.status), "{}", refused.text());
    }
    // What it would read may be behind the primary that there is now.
    assert_problem(&answer(client.read("k")).await, 503, "store-unavailable");

    // Nobody ends the connections to the old one: it has to leave them by itself.
    fail_over("off").await;
    assert_eq!(insist(client.put("k", 2, "x")).await.status, 200);
    server.wait_until_ready().await;
}
