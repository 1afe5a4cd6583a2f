//! Writes under scopes, in one statement with others: below HTTP, so that it is known what comes together.
//!
//! The statement locks the row of a scope if its mark has the write's token. What it does about a row that
//! somebody else is changing at that moment is tried here with sessions as lanes have them, which wait for
//! 100 ms and no longer. So whoever is in their way lets go as soon as it sees them wait, by itself.

use std::time::{Duration, Instant};

use fencepost::{
    fence::{Refusal, Verdict},
    store::{Session, Settled, StoreError, Unit},
    token::Key,
    write::Write,
};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::harness::{
    blocker::Blocker,
    postgres,
    store::TestStore,
    writes::{claim, put},
};

const STALE: Verdict = Verdict::Refused(Refusal::Stale);

/// How long these sessions wait for a row.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// On a busy machine that may pass before the test has looked. Then it tries again.
const ATTEMPTS: usize = 200;

fn under(scope: &str, write: Write) -> Unit {
    Unit::single(Write { scope: Some(Key::new(scope).unwrap()), ..write })
}

async fn session_of_a_lane(store: &TestStore) -> Box<dyn Session> {
    store.open().await.connect_impatiently().await.expect("it can be reached")
}

/// A session, and what it finds: all of these keys, under this token.
async fn finding(store: &TestStore, keys: &[&str], token: i64) -> Box<dyn Session> {
    let mut session = session_of_a_lane(store).await;
    let units: Vec<Unit> = keys.iter().map(|key| Unit::single(put(key, token))).collect();
    for settled in session.settle(&units).await {
        settled.expect("it is written");
    }
    session
}

/// `None` if it had to wait for longer than a lane does.
fn verdicts(answers: Vec<Result<Settled, StoreError>>) -> Option<Vec<Verdict>> {
    let verdict = |answer| match answer {
        Ok(Settled::Applied { judgements, .. }) => Some(judgements[0].verdict),
        Ok(Settled::Refused { judgement, .. }) => Some(judgement.verdict),
        Err(StoreError::Locked) => None,
        Err(error) => panic!("{error}"),
    };
    answers.into_iter().map(verdict).collect()
}

async fn mark_of(store: &TestStore, key: &str) -> i64 {
    let mark = format!("SELECT token FROM fencepost.resources WHERE key = '{key}'");
    postgres::fetch(&store.url, &mark).await
}

/// Waits in Postgres itself, which is quicker, until somebody waits for `whom`; `false` if nobody does any more.
async fn somebody_waits_for(whom: &str, asker: &mut PgConnection) -> bool {
    let wait = format!(
        "SET statement_timeout = '3s';
         DO $$ BEGIN
             WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted
                               AND pg_blocking_pids(pid) && ARRAY({whom})) LOOP
                 PERFORM pg_sleep(0.001);
             END LOOP;
         END $$"
    );
    sqlx::raw_sql(AssertSqlSafe(wait)).execute(asker).await.is_ok()
}

/// The newest mark counts, not the one that the statement has seen when it began.
#[tokio::test]
async fn a_scope_that_was_waited_for_is_judged_as_it_has_become() {
    for attempt in 1.. {
        let store = TestStore::postgres().await;
        let mut session = finding(&store, &["key", "other", "scope"], 5).await;
        let mut newer = postgres::connect(&store.url).await;
        let raise = "BEGIN; UPDATE fencepost.resources SET token = 6 WHERE key = 'scope'";
        sqlx::raw_sql(raise).execute(&mut newer).await.unwrap();
        let units = [under("scope", put("key", 5)), Unit::single(put("other", 5))];
        let commits = async {
            let seen = somebody_waits_for("SELECT pg_backend_pid()", &mut newer).await;
            sqlx::raw_sql("COMMIT").execute(&mut newer).await.unwrap();
            seen
        };
        let (answers, seen) = tokio::join!(session.settle(&units), commits);
        if let Some(verdicts) = verdicts(answers) {
            assert!(seen, "it did not wait");
            assert_eq!(verdicts, [STALE, Verdict::Accepted]);
            return;
        }
        assert!(attempt < ATTEMPTS, "it was never quick enough");
    }
}

/// Whoever raises the mark of the scope is told so when the last write under the old one has come to its end.
#[tokio::test]
async fn a_scope_stays_as_it_is_until_the_write_has_committed() {
    for attempt in 1.. {
        let store = TestStore::postgres().await;
        let mut older = finding(&store, &["key", "other", "scope"], 5).await;
        let mut newer = store.open().await.connect().await.expect("it can be reached");
        let mut slow = postgres::connect(&store.url).await;
        let slow_pid = "SELECT pg_backend_pid()";
        let slow_pid: i32 = sqlx::query_scalar(slow_pid).fetch_one(&mut slow).await.unwrap();
        let row = "BEGIN; SELECT FROM fencepost.resources WHERE key = 'key' FOR UPDATE";
        sqlx::raw_sql(row).execute(&mut slow).await.unwrap();
        let mut asker = postgres::connect(&store.url).await;

        let writes = [under("scope", put("key", 5)), Unit::single(put("other", 5))];
        let writing = async {
            let begun = Instant::now();
            (older.settle(&writes).await, begun.elapsed())
        };
        let claim = [Unit::single(claim("scope", 6))];
        let claiming = async {
            somebody_waits_for(&format!("SELECT {slow_pid}"), &mut asker).await;
            newer.settle(&claim).await
        };
        let letting_go = async {
            // Those for whom they wait wait for us.
            let who_waits =
                format!("SELECT pid FROM pg_locks WHERE {slow_pid} = ANY (pg_blocking_pids(pid))");
            let seen = somebody_waits_for(&who_waits, &mut slow).await;
            sqlx::raw_sql("ROLLBACK").execute(&mut slow).await.unwrap();
            seen
        };
        let ((written, took), claimed, seen) = tokio::join!(writing, claiming, letting_go);
        assert_eq!(verdicts(claimed), Some(vec![Verdict::Accepted]));
        assert_eq!(mark_of(&store, "scope").await, 6);
        // A writer that has waited for as long as it may lets go of the scope, and tries again.
        if let Some(verdicts) = verdicts(written).filter(|_| took < LOCK_TIMEOUT) {
            assert!(seen, "the claim did not wait");
            assert_eq!(verdicts, [Verdict::Accepted; 2]);
            return;
        }
        assert!(attempt < ATTEMPTS, "it was never quick enough");
    }
}

/// Everybody who may wait for long locks rows in byte order, and holds nothing that comes after what it waits
/// for. Or two could wait for each other.
#[tokio::test]
async fn whoever_waits_patiently_holds_no_scope() {
    let store = TestStore::postgres().await;
    finding(&store, &["key", "scope"], 5).await;
    let mut patient = store.open().await.connect().await.expect("it can be reached");
    let mut other = postgres::connect(&store.url).await;
    let row = "BEGIN; SELECT FROM fencepost.resources WHERE key = 'key' FOR UPDATE";
    sqlx::raw_sql(row).execute(&mut other).await.unwrap();
    let units = [under("scope", put("key", 5))];
    let next_in_order = async {
        assert!(somebody_waits_for("SELECT pg_backend_pid()", &mut other).await);
        let scope = "SELECT FROM fencepost.resources WHERE key = 'scope' FOR UPDATE NOWAIT; COMMIT";
        sqlx::raw_sql(scope).execute(&mut other).await.expect("nobody has it");
    };
    let (answers, ()) = tokio::join!(patient.settle(&units), next_in_order);
    assert_eq!(verdicts(answers), Some(vec![Verdict::Accepted]));
}

/// Nor does it take a lock of its own there, which the live holder needs.
#[tokio::test]
async fn a_zombie_waits_for_no_scope_that_somebody_has_locked() {
    let store = TestStore::postgres().await;
    let mut session = finding(&store, &["key", "other", "scope"], 5).await;
    assert!(session.settle(&[Unit::single(claim("scope", 9))]).await[0].is_ok());
    let blocker = Blocker::on_row(&store.url, "scope").await;
    let zombies = [under("scope", put("key", 5)), under("scope", put("other", 5))];
    assert_eq!(verdicts(session.settle(&zombies).await), Some(vec![STALE; 2]));
    assert_eq!(verdicts(session.settle(&zombies[..1]).await), Some(vec![STALE]));
    blocker.release().await;
}

#[tokio::test]
async fn a_scope_that_somebody_has_locked_delays_nobody_else() {
    let store = TestStore::postgres().await;
    let mut session = finding(&store, &["a", "b", "scope", "scope/2"], 5).await;
    let blocker = Blocker::on_row(&store.url, "scope").await;
    let units =
        [under("scope", put("a", 5)), under("scope/2", put("b", 5)), Unit::single(put("new", 5))];
    let answers = session.settle(&units).await;
    assert!(matches!(answers[0], Err(StoreError::Locked)), "{:?}", answers[0]);
    assert!(answers[1..].iter().all(Result::is_ok), "{answers:?}");
    blocker.release().await;
    assert!(session.settle(&units).await.iter().all(Result::is_ok));
}

/// A mark that has to rise is raised with the write, and a scope that nobody has seen begins with it.
#[tokio::test]
async fn scopes_rise_with_the_writes_under_them() {
    let store = TestStore::postgres().await;
    let mut session = finding(&store, &["a", "b", "c", "scope"], 5).await;
    for token in [5, 6, 6] {
        let units = [
            under("scope", put("a", token)),
            under("scope", claim("b", token)),
            under("unseen", put("c", token)),
            under("unseen", put(&format!("new/{token}"), token)),
            Unit::single(put("plain", token)),
        ];
        assert_eq!(verdicts(session.settle(&units).await), Some(vec![Verdict::Accepted; 5]));
        for key in ["a", "b", "c", "scope", "unseen", "plain"] {
            assert_eq!(mark_of(&store, key).await, token, "{key}");
        }
    }
}

/// New keys among them, too, once some were met.
#[tokio::test]
async fn writes_under_a_scope_take_as_few_commits_as_any() {
    let commits = async |scoped: bool| {
        let store = TestStore::postgres().await;
        let mut session = finding(&store, &["a", "b", "scope"], 5).await;
        for round in 0..20 {
            let new = format!("new/{round}");
            let writes = [put("a", 5), put("b", 5), put(&new, 5)];
            let units = writes
                .map(|write| if scoped { under("scope", write) } else { Unit::single(write) });
            let answers = session.settle(&units).await;
            assert_eq!(verdicts(answers), Some(vec![Verdict::Accepted; 3]));
            let alone = session.settle(&units[..1]).await;
            assert_eq!(verdicts(alone), Some(vec![Verdict::Accepted]));
        }
        drop(session);
        postgres::counted_in_the_end(&store.url, "xact_commit").await
    };
    let [scoped, plain] = [commits(true).await, commits(false).await];
    assert!(plain >= 40, "{plain}: every batch is a commit");
    // What else is committed beside them differs a little.
    assert!(scoped <= plain + 10, "{scoped} under a scope, {plain} without");
}
