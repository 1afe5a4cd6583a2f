//! What only the primary has is not acknowledged, where commits wait for a standby.
//!
//! If such a wait is cancelled, Postgres reports success all the same, with a warning; from then on every session sees
//! the commit, and the standby still lacks it.

use std::{
    path::Path,
    pin::pin,
    process::{Command, Output},
};

use reqwest::RequestBuilder;
use serde_json::json;

use crate::harness::{
    Surroundings,
    chaos_proxy::Weather,
    elsewhere,
    fencepost::{Fencepost, run},
    http::{Answer, Client, answer},
    pair::Pair,
    pgbouncer::Pgbouncer,
    postgres::{self, execute, fetch},
};

const NO_AUTHORITY: [&str; 2] = ["--authority", "none"];

async fn serve(url: &str, flags: &[&str]) -> Fencepost {
    let server = Fencepost::start_as_it_is(url, flags);
    server.wait_until_ready().await;
    server
}

/// Sends it, and cancels the wait of its commit for the standby. It must wait for that.
async fn cancelled(pair: &Pair, request: RequestBuilder) -> Answer {
    let mut asked = tokio::spawn(answer(request));
    let mut cancelling = pin!(pair.cancel_a_wait());
    tokio::select! {
        answered = &mut asked => {
            let answered = answered.expect("an answer");
            let (status, text) = (answered.status, answered.text());
            assert_eq!(status / 100, 5, "answered {status} without a wait: {text}");
            // It was faster than Postgres's answer to the cancellation, which comes.
            cancelling.await;
            answered
        }
        () = &mut cancelling => asked.await.expect("an answer"),
    }
}

async fn is_unknown(pair: &Pair, request: RequestBuilder) {
    let answer = cancelled(pair, request).await;
    assert_eq!((answer.status, answer.problem().as_str()), (504, "outcome-unknown"));
}

/// A write whose wait is cancelled, and its repetition.
async fn a_cancelled_wait_is_noticed(pair: &Pair, server: &Fencepost) {
    let client = server.client();
    assert_eq!(answer(client.put("key", 1, "before")).await.status, 201);
    pair.replication.set(Weather::Cut);
    let write = || client.put("key", 1, "alone").header("X-Fencing-Seq", 1);
    // Whoever repeats it is told no more: the commit is still on the primary alone.
    for _ in 0..2 {
        is_unknown(pair, write()).await;
    }
    pair.replication.set(Weather::Fair);
    let replay = answer(write()).await;
    assert_eq!((replay.status, replay.header("x-fencing-replay")), (200, Some("true")));
}

async fn migrated(pair: &Pair) -> &str {
    let url = pair.url.clone();
    // The proxies that it goes through live on this very thread.
    let migrating = tokio::task::spawn_blocking(move || run(&["migrate", "--store", &url]));
    let migrated = migrating.await.expect("a thread");
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    &pair.url
}

#[tokio::test]
async fn a_cancelled_wait_is_an_unknown_outcome_whatever_is_logged() {
    let pair = Pair::start().await.synchronously().await;
    for filter in ["info,sqlx=off", "info,sqlx::postgres::notice=off"] {
        let server =
            serve(migrated(&pair).await, &[&NO_AUTHORITY[..], &["--log", filter]].concat()).await;
        a_cancelled_wait_is_noticed(&pair, &server).await;
        execute(&pair.primary.url(&pair.database), "DROP SCHEMA fencepost CASCADE").await;
    }
}

#[tokio::test]
async fn a_role_that_hides_warnings_hides_no_cancelled_wait() {
    let pair = Pair::start().await.synchronously().await;
    let url = migrated(&pair).await;
    let database = &pair.database;
    for hide in [
        "ALTER ROLE postgres SET client_min_messages = error".to_owned(),
        format!("ALTER ROLE postgres IN DATABASE {database} SET client_min_messages = error"),
        format!("ALTER DATABASE {database} SET client_min_messages = error"),
    ] {
        execute(&pair.primary.url("postgres"), &hide).await;
    }
    let seen = "SELECT current_setting('client_min_messages')";
    assert_eq!(fetch::<String>(url, seen).await, "error");
    a_cancelled_wait_is_noticed(&pair, &serve(url, &NO_AUTHORITY).await).await;
}

#[tokio::test]
async fn a_cancelled_wait_is_noticed_behind_a_pooler() {
    let pair = Pair::start().await.synchronously().await;
    let direct = migrated(&pair).await;
    let hide = "ALTER ROLE postgres SET client_min_messages = error";
    execute(&pair.primary.url("postgres"), hide).await;
    let pgbouncer = Pgbouncer::before_port(pair.way.port(), 4, "").await;
    let server = serve(&pgbouncer.url(direct), &NO_AUTHORITY).await;
    a_cancelled_wait_is_noticed(&pair, &server).await;
}

/// German, as Postgres knows it on this machine: the directory to look for it in.
fn german() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let made = Command::new("localedef")
        .args(["-i", "de_DE", "-f", "UTF-8"])
        .arg(directory.path().join("de_DE.UTF-8"))
        .output()
        .expect("localedef is there: run `make setup`");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for path in [directory.path(), &directory.path().join("de_DE.UTF-8")] {
        readable_by_all(path);
    }
    directory
}

fn readable_by_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

#[tokio::test]
async fn a_cancelled_wait_is_noticed_in_another_language() {
    let german = german();
    let locales = format!("LOCPATH={}", german.path().display());
    let around = Surroundings { network: elsewhere::network(), environment: vec![locales] };
    let pair = Pair::start_in(&around, &["fsync=off", "lc_messages=de_DE.UTF-8"]).await;
    let said = postgres::try_execute(&pair.primary.url("postgres"), "SELECT 1/0").await;
    let said = said.expect_err("it cannot be divided").to_string();
    assert!(said.contains("durch Null"), "the server speaks German: {said}");
    let pair = pair.synchronously().await;
    let server = serve(migrated(&pair).await, &NO_AUTHORITY).await;
    a_cancelled_wait_is_noticed(&pair, &server).await;
}

/// Where no commit waits for a standby, a warning is somebody else's: of a trigger, or of an extension.
#[tokio::test]
async fn a_warning_changes_nothing_where_no_commit_waits() {
    let url = postgres::database().await;
    assert!(run(&["migrate", "--store", &url]).status.success());
    let warn = "CREATE FUNCTION public.warn() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN RAISE WARNING 'mind the gap'; RETURN NULL; END $$;
                CREATE TRIGGER warn AFTER INSERT OR UPDATE ON fencepost.resources
                    FOR EACH ROW EXECUTE FUNCTION public.warn()";
    let server = serve(&url, &NO_AUTHORITY).await;
    execute(&url, warn).await;
    assert_eq!(answer(server.client().put("key", 1, "value")).await.status, 201);
}

/// Neither is a lock granted, renewed or released by a commit that only the primary has.
#[tokio::test]
async fn a_lock_change_that_only_the_primary_has_is_not_acknowledged() {
    let pair = Pair::start().await.synchronously().await;
    let server = serve(migrated(&pair).await, &["--authority", "store"]).await;
    let client = server.client();
    let terms = json!({ "ttl_ms": 60_000 });
    let held = answer(client.acquire("held", &terms)).await;
    assert_eq!(held.status, 201, "{}", held.text());
    let token = held.json()["token"].as_i64().expect("a token");
    pair.replication.set(Weather::Cut);
    for request in [
        client.acquire("wanted", &terms),
        client.renew("held", token),
        client.release("held", token),
    ] {
        let answer = cancelled(&pair, request).await;
        assert!([503, 504].contains(&answer.status), "{} {}", answer.status, answer.text());
    }
    pair.replication.set(Weather::Fair);
    crate::harness::eventually("the lock can be had", || async {
        answer(client.acquire("wanted", &terms)).await.status == 201
    })
    .await;
}

/// A claim of `key`, cut short in its wait. Every session sees its mark, and the standby lacks it.
async fn claimed_on_the_primary_alone(pair: &Pair, client: &Client) {
    assert_eq!(answer(client.put("key", 1, "value")).await.status, 201);
    assert_eq!(answer(client.put("scope", 1, "value")).await.status, 201);
    assert_eq!(answer(client.put("other", 5, "value")).await.status, 201);
    pair.replication.set(Weather::Cut);
    is_unknown(pair, client.claim("key", 5)).await;
    is_unknown(pair, client.claim("scope", 5)).await;
}

#[tokio::test]
async fn a_repeated_claim_waits_for_the_standby() {
    let pair = Pair::start().await.synchronously().await;
    let url = migrated(&pair).await;
    let (one, other) = (serve(url, &NO_AUTHORITY).await, serve(url, &NO_AUTHORITY).await);
    claimed_on_the_primary_alone(&pair, &one.client()).await;
    let both = || {
        json!({"writes": [{"key": "both/1", "token": 5, "seq": 1, "value": 1},
                          {"key": "both/2", "token": 5, "seq": 1, "value": 2}]})
    };
    for client in [one.client(), other.client()] {
        is_unknown(&pair, client.claim("key", 5)).await;
        is_unknown(&pair, client.claim("key", 5).header("X-Fencing-Scope", "scope")).await;
        is_unknown(&pair, client.batch(&both())).await;
    }
    pair.replication.set(Weather::Fair);
    for client in [one.client(), other.client()] {
        assert_eq!(answer(client.claim("key", 5)).await.status, 200);
        assert_eq!(answer(client.batch(&both())).await.status, 200);
    }
}

#[tokio::test]
async fn a_fenced_read_at_a_mark_that_is_there_waits_for_the_standby() {
    let pair = Pair::start().await.synchronously().await;
    let url = migrated(&pair).await;
    let (one, other) = (serve(url, &NO_AUTHORITY).await, serve(url, &NO_AUTHORITY).await);
    claimed_on_the_primary_alone(&pair, &one.client()).await;
    for client in [one.client(), other.client()] {
        let fenced = || client.read("key").header("X-Fencing-Token", 5);
        // Before it has read the mark, and afterwards: by a plain read, and by a write that is refused.
        is_unknown(&pair, fenced()).await;
        assert_eq!(answer(client.read("key")).await.status, 200);
        is_unknown(&pair, fenced()).await;
        let refused = answer(client.put("key", 5, "v").header("If-Match", "\"77\"")).await;
        assert_eq!(refused.status, 412, "{}", refused.text());
        is_unknown(&pair, fenced()).await;
        assert_eq!(answer(client.read("scope")).await.status, 200);
        is_unknown(
            &pair,
            client.read("other").header("X-Fencing-Token", 5).header("X-Fencing-Scope", "scope"),
        )
        .await;
    }
    pair.replication.set(Weather::Fair);
    for client in [one.client(), other.client()] {
        let read = answer(client.read("key").header("X-Fencing-Token", 5)).await;
        assert_eq!((read.status, read.text().as_str()), (200, "value"));
    }
    // Once it is known to be there, it is answered as fast as any read.
    pair.replication.set(Weather::Cut);
    for client in [one.client(), other.client()] {
        let read = answer(client.read("key").header("X-Fencing-Token", 5)).await;
        assert_eq!(read.status, 200, "{}", read.text());
    }
}

/// A write of the holder, cut short in its wait. Every session sees its value, and the standby lacks it.
async fn a_fenced_read_shows_only_what_the_standby_has(
    pair: &Pair,
    server: &Fencepost,
    token: i64,
) {
    let client = server.client();
    // Small enough to come with a claim, and too large for that.
    for (key, bytes) in [("small", 10), ("large", 200_000)] {
        let write = |letter: &str| client.put(key, token, "").body(letter.repeat(bytes));
        let fenced = || client.read(key).header("X-Fencing-Token", token);
        let shows = |read: &Answer, letter: &str| {
            assert_eq!((read.status, read.text() == letter.repeat(bytes)), (200, true), "{key}");
        };
        assert_eq!(answer(write("a")).await.status, 201);
        shows(&answer(fenced()).await, "a");
        pair.replication.set(Weather::Cut);
        // That is known to be there.
        shows(&answer(fenced()).await, "a");
        is_unknown(pair, write("b")).await;
        is_unknown(pair, fenced()).await;
        shows(&answer(client.read(key)).await, "b");
        is_unknown(pair, fenced()).await;
        pair.replication.set(Weather::Fair);
        shows(&answer(fenced()).await, "b");
        pair.replication.set(Weather::Cut);
        shows(&answer(fenced()).await, "b");
        pair.replication.set(Weather::Fair);
    }
}

#[tokio::test]
async fn a_fenced_read_shows_no_value_that_the_standby_lacks() {
    let pair = Pair::start().await.synchronously().await;
    let server = serve(migrated(&pair).await, &["--authority", "store"]).await;
    let granted = answer(server.client().acquire("lock", &json!({ "ttl_ms": 60_000 }))).await;
    let token = granted.json()["token"].as_i64().expect("a token");
    a_fenced_read_shows_only_what_the_standby_has(&pair, &server, token).await;
}

#[tokio::test]
async fn a_fenced_read_shows_no_value_that_the_standby_lacks_without_authority() {
    let pair = Pair::start().await.synchronously().await;
    let server = serve(migrated(&pair).await, &NO_AUTHORITY).await;
    a_fenced_read_shows_only_what_the_standby_has(&pair, &server, 7).await;
}

#[tokio::test]
async fn a_fenced_read_shows_no_value_that_the_standby_lacks_behind_a_pooler() {
    let pair = Pair::start().await.synchronously().await;
    let direct = migrated(&pair).await;
    let pgbouncer = Pgbouncer::before_port(pair.way.port(), 4, "").await;
    let server = serve(&pgbouncer.url(direct), &NO_AUTHORITY).await;
    a_fenced_read_shows_only_what_the_standby_has(&pair, &server, 7).await;
}

/// Many that read together: one statement looks at all of their keys.
#[tokio::test]
async fn fenced_reads_that_come_together_show_no_value_that_the_standby_lacks() {
    let pair = Pair::start().await.synchronously().await;
    let server = serve(migrated(&pair).await, &NO_AUTHORITY).await;
    let client = server.client();
    for key in ["a", "b"] {
        assert_eq!(answer(client.put(key, 7, "old")).await.status, 201);
    }
    pair.replication.set(Weather::Cut);
    for key in ["a", "b"] {
        is_unknown(&pair, client.put(key, 7, "new")).await;
    }
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..20 {
        for key in ["a", "b"] {
            asked.spawn(answer(client.read(key).header("X-Fencing-Token", 7)));
        }
    }
    pair.cancel_a_wait().await;
    let shown = asked.try_join_next();
    assert!(shown.is_none_or(|read| read.expect("an answer").status == 504));
    pair.replication.set(Weather::Fair);
    while let Some(read) = asked.join_next().await {
        let read = read.expect("an answer");
        assert!(read.status == 504 || read.text() == "new", "{} {}", read.status, read.text());
    }
}

/// Many that come together are confirmed together.
#[tokio::test]
async fn repeated_claims_that_come_together_wait_for_the_standby() {
    let pair = Pair::start().await.synchronously().await;
    let server = serve(migrated(&pair).await, &NO_AUTHORITY).await;
    let client = server.client();
    claimed_on_the_primary_alone(&pair, &client).await;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..20 {
        asked.spawn(answer(client.claim("key", 5)));
        asked.spawn(answer(client.read("scope").header("X-Fencing-Token", 5)));
    }
    let healed = async {
        pair.cancel_a_wait().await;
        pair.replication.set(Weather::Fair);
    };
    healed.await;
    let mut statuses = Vec::new();
    while let Some(answered) = asked.join_next().await {
        statuses.push(answered.expect("an answer").status);
    }
    assert!(statuses.iter().all(|status| [200, 504].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&504), "at least one commit was cut short: {statuses:?}");
    assert_eq!(answer(client.claim("key", 5)).await.status, 200);
}

/// A service may deny the message by which an answer is confirmed.
#[tokio::test]
async fn answers_are_confirmed_where_logical_messages_are_denied() {
    let pair = Pair::start().await.synchronously().await;
    let direct = pair.primary.url(&pair.database);
    let serving = postgres::to_serve(&direct).await;
    let deny =
        "REVOKE EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text) FROM PUBLIC";
    execute(&direct, deny).await;
    let server = serve(&serving, &NO_AUTHORITY).await;
    claimed_on_the_primary_alone(&pair, &server.client()).await;
    is_unknown(&pair, server.client().claim("key", 5)).await;
    pair.replication.set(Weather::Fair);
    assert_eq!(answer(server.client().claim("key", 5)).await.status, 200);
}

async fn run_beside(arguments: Vec<String>) -> Output {
    // The proxies that it goes through live on this very thread.
    let running = tokio::task::spawn_blocking(move || {
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    });
    running.await.expect("a thread")
}

fn command(line: &str, url: &str) -> Vec<String> {
    line.split(' ').chain(["--store", url]).map(str::to_owned).collect()
}

/// A command whose every commit is cut short in its wait for the standby.
async fn run_cut_short(pair: &Pair, line: &str) -> Output {
    let mut running = tokio::spawn(run_beside(command(line, &pair.url)));
    loop {
        tokio::select! {
            ended = &mut running => return ended.expect("a thread"),
            () = pair.cancel_a_wait() => {}
        }
    }
}

#[track_caller]
fn says_that_the_outcome_is_unknown(ended: &Output) {
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("the outcome is unknown"), "{said}");
    assert_eq!(ended.status.code(), Some(69), "{said}");
}

/// A store that has served without an authority, and has a mark that may be collected.
async fn with_an_old_mark(pair: &Pair) {
    let server = serve(migrated(pair).await, &NO_AUTHORITY).await;
    assert_eq!(answer(server.client().put("old", 1, "value")).await.status, 201);
    assert_eq!(answer(server.client().delete("old", 1)).await.status, 204);
}

#[tokio::test]
async fn a_command_that_changes_only_the_primary_fails() {
    let pair = Pair::start().await.synchronously().await;
    with_an_old_mark(&pair).await;
    pair.replication.set(Weather::Cut);
    let commands = [
        "compact --older-than 0s --below 10 --authority none",
        "floor raise 100 --authority none",
        "authority move --to store --yes",
    ];
    for line in commands {
        says_that_the_outcome_is_unknown(&run_cut_short(&pair, line).await);
    }
    // Whoever repeats them is told no more.
    for line in &commands[1..] {
        let line = line.replace("none", "store");
        says_that_the_outcome_is_unknown(&run_cut_short(&pair, &line).await);
    }
    pair.replication.set(Weather::Fair);
    for line in &commands[1..] {
        let ended = run_beside(command(&line.replace("none", "store"), &pair.url)).await;
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
}

#[tokio::test]
async fn a_command_does_not_wait_for_the_standby_for_ever() {
    let pair = Pair::start().await.synchronously().await;
    with_an_old_mark(&pair).await;
    pair.replication.set(Weather::Cut);
    let raise = || run_beside(command("floor raise 100 --authority none", &pair.url));
    let ended = raise().await;
    says_that_the_outcome_is_unknown(&ended);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("standby") && said.contains("fencepost floor"), "{said}");
    pair.replication.set(Weather::Fair);
    let ended = raise().await;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    pair.wait_until_replicated().await;
    assert_eq!(pair.floor().await, 100);
}
