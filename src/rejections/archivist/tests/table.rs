//! An audit table in memory that stalls and fails as its seed says. It is no database: what is tested
//! with it is when the archivist does what, and with which rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use tokio::time::Instant;

use super::super::{AT_ONCE, DROPPED_AT_ONCE, PAUSE};
use crate::{
    finding::Finding,
    rejections::{Entry, Filter, Id},
    store::{
        Audit, Compacted, FloorState, LockNews, LockTable, Memory, Migrated, OwningAuthority, Plan,
        Reading, Schema, Session, Sighting, Store, StoreError, Tokens,
    },
};

#[derive(Clone)]
pub struct Table(Arc<Mutex<State>>);

pub struct State {
    rng: fastrand::Rng,
    /// How often something goes wrong, from 0 to 1.
    pub trouble: f64,
    /// How long something may take, at most.
    pub longest_stall: Duration,
    /// Whether somebody waits for the end, so that rows are written without a pause.
    pub hurried: bool,
    pub rows: BTreeMap<Id, SystemTime>,
    /// All that were ever there.
    pub ever: BTreeMap<Id, SystemTime>,
    /// The archivist was told that they are written.
    pub acknowledged: BTreeSet<Id>,
    /// The archivist was told that they cannot be.
    pub given_up: BTreeSet<Id>,
    last_append: Option<Instant>,
    /// How many were ever asked how many rows there are.
    pub looks: u64,
}

struct Connection {
    table: Table,
    /// It has failed in a way that ends it, and must not be used again.
    ended: bool,
}

impl Table {
    pub fn new(seed: u64) -> Self {
        let state = State {
            rng: fastrand::Rng::with_seed(seed),
            trouble: 0.0,
            longest_stall: Duration::ZERO,
            hurried: false,
            rows: BTreeMap::new(),
            ever: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            given_up: BTreeSet::new(),
            last_append: None,
            looks: 0,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    async fn stall(&self) {
        let stall = {
            let mut state = self.state();
            state.longest_stall.mul_f64(state.rng.f64())
        };
        tokio::time::sleep(stall).await;
    }
}

impl State {
    fn trouble(&mut self) -> Option<StoreError> {
        let text = || "as the seed says".into();
        (self.rng.f64() < self.trouble).then(|| match self.rng.u8(0..5) {
            0 => StoreError::Unavailable(text()),
            1 => StoreError::Busy,
            2 => StoreError::Conflict,
            3 => StoreError::Failed(text()),
            _ => StoreError::Unknown(text()),
        })
    }

    /// Whether it has taken effect, beside what is said of it.
    fn outcome(&mut self) -> (bool, Result<(), StoreError>) {
        match self.trouble() {
            None => (true, Ok(())),
            Some(error @ StoreError::Unknown(_)) => (self.rng.bool(), Err(error)),
            Some(error) => (false, Err(error)),
        }
    }
}

impl Connection {
    fn told<T>(&mut self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.ended = answer.as_ref().is_err_and(StoreError::ends_the_session);
        answer
    }
}

#[async_trait]
impl Audit for Connection {
    async fn append(&mut self, entries: &[Arc<Entry>]) -> Result<(), StoreError> {
        assert!(!self.ended, "a session that has ended is used");
        assert!((1..=AT_ONCE).contains(&entries.len()), "{} at once", entries.len());
        assert!(entries.is_sorted_by(|one, next| one.id < next.id), "out of order");
        let table = self.table.clone();
        {
            let state = table.state();
            let paused = state.last_append.is_none_or(|last| last.elapsed() >= PAUSE);
            assert!(paused || state.hurried, "no pause");
        }
        table.stall().await;
        let mut state = table.state();
        state.last_append = Some(Instant::now());
        let (effect, answer) = state.outcome();
        for entry in entries {
            let settled =
                state.acknowledged.contains(&entry.id) || state.given_up.contains(&entry.id);
            assert!(!settled, "{} is written once more", entry.id);
            if effect {
                state.rows.insert(entry.id, entry.rejection.at);
                state.ever.insert(entry.id, entry.rejection.at);
            }
            match &answer {
                Ok(()) => drop(state.acknowledged.insert(entry.id)),
                Err(StoreError::Failed(_)) => drop(state.given_up.insert(entry.id)),
                Err(_) => {}
            }
        }
        self.told(answer)
    }

    async fn newest(&mut self, _: &Filter, _: usize) -> Result<Vec<Entry>, StoreError> {
        assert!(!self.ended, "a session that has ended is used");
        self.table.stall().await;
        let answer = self.table.state().outcome().1;
        self.told(answer.map(|()| Vec::new()))
    }

    async fn count(&mut self) -> Result<u64, StoreError> {
        assert!(!self.ended, "a session that has ended is used");
        self.table.stall().await;
        let answer = {
            let mut state = self.table.state();
            state.looks += 1;
            let rows = state.rows.len() as u64;
            state.outcome().1.map(|()| rows)
        };
        self.told(answer)
    }

    async fn drop_oldest(
        &mut self,
        before: Option<SystemTime>,
        most: u64,
    ) -> Result<u64, StoreError> {
        assert!(!self.ended, "a session that has ended is used");
        assert!((1..=DROPPED_AT_ONCE).contains(&most), "{most} at once");
        self.table.stall().await;
        let answer = {
            let mut state = self.table.state();
            let (effect, answer) = state.outcome();
            let mut oldest: Vec<_> = state.rows.iter().map(|(id, at)| (*at, *id)).collect();
            oldest.retain(|(at, _)| before.is_none_or(|before| *at < before));
            oldest.sort_unstable();
            oldest.truncate(usize::try_from(most).expect("a few"));
            if effect {
                state.rows.retain(|id, at| oldest.binary_search(&(*at, *id)).is_err());
            }
            answer.map(|()| oldest.len() as u64)
        };
        self.told(answer)
    }
}

fn no_part_of_it<T>() -> Result<T, StoreError> {
    Err(StoreError::Unfit("it has nothing but an audit table".into()))
}

#[async_trait]
impl Store for Table {
    async fn connect_audit(&self) -> Result<Box<dyn Audit>, StoreError> {
        self.stall().await;
        match self.state().trouble() {
            Some(error) => Err(error),
            None => Ok(Box::new(Connection { table: self.clone(), ended: false })),
        }
    }

    async fn connect(&self) -> Result<Box<dyn Session>, StoreError> {
        no_part_of_it()
    }

    async fn connect_impatiently(&self) -> Result<Box<dyn Session>, StoreError> {
        no_part_of_it()
    }

    async fn connect_lock_table(&self) -> Result<Box<dyn LockTable>, StoreError> {
        no_part_of_it()
    }

    async fn listen_to_locks(&self) -> Result<Option<Box<dyn LockNews>>, StoreError> {
        no_part_of_it()
    }

    async fn connect_memory(&self) -> Result<Box<dyn Memory>, StoreError> {
        no_part_of_it()
    }

    async fn check(&self) -> Result<(), StoreError> {
        no_part_of_it()
    }

    async fn examine(&self, _: Plan) -> Vec<Finding> {
        Vec::new()
    }

    async fn tokens(&self) -> Result<Tokens, StoreError> {
        no_part_of_it()
    }

    async fn owning_authority(&self) -> Result<Option<OwningAuthority>, StoreError> {
        no_part_of_it()
    }

    async fn claim_authority(&self, _: &OwningAuthority) -> Result<OwningAuthority, StoreError> {
        no_part_of_it()
    }

    async fn move_authority(
        &self,
        _: &OwningAuthority,
        _: Option<&Sighting>,
    ) -> Result<i64, StoreError> {
        no_part_of_it()
    }

    async fn schema(&self) -> Result<Schema, StoreError> {
        no_part_of_it()
    }

    async fn migrate(&self) -> Result<Migrated, StoreError> {
        no_part_of_it()
    }

    async fn floor(&self, _: Reading) -> Result<FloorState, StoreError> {
        no_part_of_it()
    }

    async fn raise_floor(&self, _: i64, _: bool) -> Result<i64, StoreError> {
        no_part_of_it()
    }

    async fn plan_compaction(&self, _: Duration, _: i64) -> Result<Compacted, StoreError> {
        no_part_of_it()
    }

    async fn compact(
        &self,
        _: Duration,
        _: i64,
        _: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
    ) -> Result<Compacted, StoreError> {
        no_part_of_it()
    }

    fn writers(&self) -> usize {
        0
    }

    fn lock_tables(&self) -> usize {
        0
    }

    fn gathers(&self) -> usize {
        0
    }
}
