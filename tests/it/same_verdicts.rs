//! The rule, SQLite and Postgres come to the same verdicts on the same histories.
//!
//! The rule is a function; each store says the same in its own SQL. Random histories go through a
//! model that knows nothing but the function and a map, and through a session on each store. Every
//! answer must be the same: verdict, index, mark, version, value.

mod history;
mod model;

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use fencepost::{
    fence::{Standing, Verdict},
    store::{Page, Session, Settled, Store, Unit},
    write::Change,
};
use proptest::test_runner::{
    Config, FileFailurePersistence, TestCaseError, TestCaseResult, TestError, TestRunner,
};
use tokio::sync::Mutex;

use self::{
    history::{KEYS, LOCK, Names, RealUnit, Step},
    model::Model,
};
use crate::harness::store::TestStore;

/// Enough for every mistake that was put into the SQL on purpose to be found, with room to spare.
const CASES: u32 = 128;

#[test]
fn the_rule_sqlite_and_postgres_agree_on_random_histories() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = Mutex::new(runtime.block_on(World::new()));
    let regressions = "proptest-regressions/same_verdicts.txt";
    let mut runner = TestRunner::new(Config {
        cases: CASES,
        max_shrink_time: 20_000, // ms
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..Config::default()
    });
    let outcome = runner.run(&history::any(), |history| {
        runtime.block_on(async { world.lock().await.follow(&history).await })
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, history)) => panic!("{reason}\n\n{}", one_per_line(&history)),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
    // A comparison of histories in which nothing happens would prove nothing.
    let seen = &runtime.block_on(world.lock()).seen;
    assert_eq!(seen.len(), 6, "every verdict was met: {seen:?}");
}

fn one_per_line(history: &[Step]) -> String {
    let lines = history.iter().enumerate().map(|(number, step)| format!("step {number}: {step:?}"));
    lines.collect::<Vec<_>>().join("\n")
}

struct World {
    stores: [Contestant; 3],
    /// The floor under all keys, which no case can lower again.
    floor: i64,
    seen: BTreeSet<String>,
}

struct Contestant {
    name: &'static str,
    test: TestStore,
    /// Whoever may compact it.
    owner: std::sync::Arc<dyn Store>,
    session: Box<dyn Session>,
}

impl Contestant {
    /// `impatient`: with a session as lanes have it, and else with one as it is on a detour.
    async fn new(name: &'static str, test: TestStore, impatient: bool) -> Self {
        let store = test.open().await;
        let session =
            if impatient { store.connect_impatiently().await } else { store.connect().await };
        let session = session.expect("it can be reached");
        let owner = test.open_as_owner().await;
        Self { name, test, owner, session }
    }

    async fn settle(&mut self, units: &[Unit]) -> Vec<Settled> {
        let answers = self.session.settle(units).await;
        assert_eq!(answers.len(), units.len(), "one answer for each unit");
        answers.into_iter().map(|answer| answer.expect("it is settled")).collect()
    }

    async fn raise_floor(&self, token: i64) {
        let sql = format!("UPDATE floor SET token = {token} WHERE token < {token}");
        self.test.execute(&sql).await.expect("the floor may rise");
    }
}

impl World {
    async fn new() -> Self {
        Self {
            stores: [
                Contestant::new("SQLite", TestStore::sqlite(), true).await,
                Contestant::new("Postgres", TestStore::postgres().await, true).await,
                Contestant::new("patient Postgres", TestStore::postgres().await, false).await,
            ],
            floor: 0,
            seen: BTreeSet::new(),
        }
    }

    /// One case. Marks never fall, so each has keys of its own, and tokens above all earlier ones.
    async fn follow(&mut self, history: &[Step]) -> TestCaseResult {
        static CASE: AtomicI64 = AtomicI64::new(0);
        let names = Names::of_case(CASE.fetch_add(1, Ordering::Relaxed));
        let mut model = Model::new(self.floor);
        let followed = self.follow_with(history, &names, &mut model).await;
        self.floor = model.floor().max(self.floor);
        followed
    }

    async fn follow_with(
        &mut self,
        history: &[Step],
        names: &Names,
        model: &mut Model,
    ) -> TestCaseResult {
        for (number, step) in history.iter().enumerate() {
            match step {
                Step::Settle(units) => {
                    let units: Vec<_> = units.iter().map(|unit| unit.real(names)).collect();
                    let expected: Vec<_> = units.iter().map(|unit| model.settle(unit)).collect();
                    self.note(&expected);
                    let expected = comparable(&units, expected);
                    let real: Vec<_> = units.iter().map(RealUnit::for_store).collect();
                    for store in &mut self.stores {
                        let answers = comparable(&units, store.settle(&real).await);
                        same(&format!("step {number} on {}", store.name), &answers, &expected)?;
                    }
                }
                Step::RaiseFloor(token) => {
                    let floor = names.token(*token).get();
                    model.raise_floor(floor);
                    for store in &self.stores {
                        store.raise_floor(floor).await;
                    }
                }
                Step::Compact(bound) => {
                    self.compact(number, names.token(*bound).get(), model).await?;
                }
            }
        }
        self.compare_all(names, model).await
    }

    /// Older cases have left tombstones too, but none with a token as high as this case's.
    async fn compact(&mut self, number: usize, bound: i64, model: &mut Model) -> TestCaseResult {
        let [first, others @ ..] = &self.stores;
        let now = Duration::ZERO;
        let first = first.owner.compact(now, bound, &|_| {}).await.expect("it compacts");
        for store in others {
            let compacted = store.owner.compact(now, bound, &|_| {}).await.expect("it compacts");
            same(&format!("step {number}: compaction on {}", store.name), &compacted, &first)?;
        }
        same(&format!("step {number}: the floor"), &first.floor, &model.compact(bound, first.floor))
    }

    async fn compare_all(&mut self, names: &Names, model: &Model) -> TestCaseResult {
        for store in &mut self.stores {
            for key in KEYS.into_iter().chain([LOCK]) {
                let key = names.key(key);
                let mut found = store.session.read(&key, u64::MAX).await.expect("a read");
                let mut expected = model.read(&key);
                forget_what_means_nothing(&mut found.standing);
                forget_what_means_nothing(&mut expected.standing);
                let what = format!("{key} on {}, in the end", store.name);
                same(&what, &found, &expected)?;
            }
            let page = Page { prefix: names.prefix(), after: String::new(), limit: 100 };
            let listed = store.session.list(&page).await.expect("a list");
            same(&format!("the list on {}", store.name), &listed, &model.list())?;
        }
        Ok(())
    }

    fn note(&mut self, answers: &[Settled]) {
        for answer in answers {
            let verdicts: Vec<Verdict> = match answer {
                Settled::Applied { judgements, .. } => {
                    judgements.iter().map(|judgement| judgement.verdict).collect()
                }
                Settled::Refused { judgement, .. } => vec![judgement.verdict],
            };
            self.seen.extend(verdicts.iter().map(|verdict| format!("{verdict:?}")));
        }
    }
}

fn comparable(units: &[RealUnit], mut answers: Vec<Settled>) -> Vec<Settled> {
    for (unit, answer) in units.iter().zip(&mut answers) {
        match answer {
            Settled::Applied { judgements, .. } => {
                for (write, judgement) in unit.writes.iter().zip(judgements) {
                    // What it was held against no longer matters, and a statement does not say.
                    judgement.guard = judgement.key.mark;
                    // Of a put that was just accepted it says what is answered.
                    let put = matches!(write.change, Change::Put(_));
                    if !put || judgement.verdict != Verdict::Accepted {
                        forget_what_means_nothing(&mut judgement.key);
                    }
                }
            }
            Settled::Refused { judgement, .. } => forget_what_means_nothing(&mut judgement.key),
        }
    }
    answers
}

/// Whether the last put created the value is kept for its replay, and only a put with a seq, hence
/// with a digest, has one.
fn forget_what_means_nothing(standing: &mut Standing) {
    standing.created &= standing.digest.is_some();
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> TestCaseResult {
    if found == expected {
        return Ok(());
    }
    Err(TestCaseError::fail(format!("{what}:\n   found {found:?}\nexpected {expected:?}")))
}
