//! New keys, in one statement with those that are there: below HTTP, so that it is known what comes
//! together.

use fencepost::{
    fence::{Refusal, Verdict},
    store::{Session, Settled, StoreError, Unit},
    write::{Precondition, Write},
};
use sqlx::AssertSqlSafe;

use crate::harness::{
    blocker::Blocker,
    eventually, postgres,
    store::TestStore,
    writes::{claim, put},
};

/// After new keys others are expected, and inserted together with what is there.
async fn expect_more(session: &mut dyn Session, keys: &[&str]) {
    let units: Vec<Unit> = keys.iter().map(|key| Unit::single(put(key, 1))).collect();
    for settled in session.settle(&units).await {
        settled.expect("a new key");
    }
}

fn verdicts(answers: Vec<Result<Settled, StoreError>>) -> Vec<Verdict> {
    let verdict = |answer: Result<Settled, StoreError>| match answer.expect("an answer") {
        Settled::Applied { judgements, .. } => judgements[0].verdict,
        Settled::Refused { judgement, .. } => judgement.verdict,
    };
    answers.into_iter().map(verdict).collect()
}

/// It can be waited for, but not seen. New keys may have to wait with it; what is there does not.
#[tokio::test]
async fn a_key_that_somebody_else_inserts_delays_no_row_that_is_there() {
    let store = TestStore::postgres().await;
    let mut session = store.open().await.connect_impatiently().await.expect("it can be reached");
    expect_more(session.as_mut(), &["there", "there/too"]).await;
    let insert = "INSERT INTO fencepost.resources (key, token) VALUES ('coming', 1)";
    let blocker = Blocker::holding(&store.url, insert).await;
    let units = ["coming", "there", "there/too"].map(|key| Unit::single(put(key, 1)));
    let answers = session.settle(&units).await;
    assert!(matches!(answers[0], Err(StoreError::Locked)), "{:?}", answers[0]);
    assert!(answers[1..].iter().all(Result::is_ok), "{answers:?}");
    blocker.release().await;
    assert!(session.settle(&units).await.iter().all(Result::is_ok));
}

/// Whoever waits for a row judges it as it is then, whatever the statement has seen when it began.
#[tokio::test]
async fn what_was_waited_for_is_judged_as_it_has_become() {
    const BECOMES: &str =
        "UPDATE fencepost.resources SET token = 9, version = 2 WHERE key = 'waits'";
    let refused = |refusal| Verdict::Refused(refusal);
    let conditional = |key, token| {
        let version = Precondition::Version(fencepost::token::Version::from_stored(1));
        Write { precondition: Some(version), ..put(key, token) }
    };
    let writes = [
        (Unit::single(put("waits", 5)), refused(Refusal::Stale)),
        (Unit::single(claim("waits", 5)), refused(Refusal::Stale)),
        (Unit::fenced_read(claim("waits", 5)), refused(Refusal::Stale)),
        (Unit::single(conditional("waits", 9)), refused(Refusal::VersionMismatch)),
        (Unit::single(put("waits", 9)), Verdict::Accepted),
    ];
    for (number, (unit, expected)) in writes.into_iter().enumerate() {
        let store = TestStore::postgres().await;
        let mut session = store.open().await.connect().await.expect("it can be reached");
        expect_more(session.as_mut(), &["there", "waits"]).await;
        let mut other = postgres::connect(&store.url).await;
        let begin = format!("BEGIN; {BECOMES}");
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut other).await.unwrap();
        let units = [Unit::single(put("new", 1)), Unit::single(put("there", 1)), unit];
        let commits = async {
            eventually("it waits", || postgres::somebody_waits(&store.url)).await;
            sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
        };
        let (answers, ()) = tokio::join!(session.settle(&units), commits);
        let expected = [Verdict::Accepted, Verdict::Accepted, expected];
        assert_eq!(verdicts(answers), expected, "{number}");
        let mark = "SELECT token FROM fencepost.resources WHERE key = 'waits'";
        assert_eq!(postgres::fetch::<i64>(&store.url, mark).await, 9, "{number}");
    }
}

/// However long ago the last new key was.
#[tokio::test]
async fn a_new_key_is_written_whether_it_was_expected_or_not() {
    let store = TestStore::postgres().await;
    let mut session = store.open().await.connect().await.expect("it can be reached");
    expect_more(session.as_mut(), &["there", "there/too"]).await;
    for round in 0..12 {
        let old = [Unit::single(put("there", 1)), Unit::single(put("there/too", 1))];
        for _ in 0..round {
            assert_eq!(verdicts(session.settle(&old).await), [Verdict::Accepted; 2]);
        }
        let name = |what: &str| format!("{what}/{round}");
        let new = [
            Unit::single(put(&name("put"), 1)),
            Unit::single(claim(&name("claim"), 1)),
            Unit::single(put("there", 1)),
        ];
        assert_eq!(verdicts(session.settle(&new).await), [Verdict::Accepted; 3], "{round}");
    }
    let rows = "SELECT count(*) FROM fencepost.resources WHERE token = 1";
    assert_eq!(postgres::fetch::<i64>(&store.url, rows).await, 26);
}
