//! Keeps what is remembered of etcd in the store: a task that owns the connection for it, and what
//! this process knows of the row.
//!
//! Requests gather while one is in flight, and share the next: however many grants there are, the
//! store sees one statement at a time.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::epoch;
use crate::{
    authority::AuthorityError,
    store::{
        Memory, MoveReason, Outage, OwningAuthority, Recalled, Remembered, Sighting, Store,
        StoreError,
    },
};

/// Requests that may wait. Beyond that they are turned away.
const CAPACITY: usize = 4096;

/// A connection that has rested for longer is tried before it is used.
const RESTED: Duration = Duration::from_secs(1);

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

enum Job {
    Recall(Reply<Option<Remembered>>),
    Note {
        epoch: u16,
        seen: Sighting,
        reply: Reply<Remembered>,
    },
    HighestToken(Reply<i64>),
    Adopt(Remembered, Reply<Remembered>),
    MoveOn {
        from: u16,
        to: Remembered,
        reply: Reply<Remembered>,
    },
    /// The cluster that was seen.
    Claim(String, Reply<()>),
    ClaimInstance {
        former: Option<String>,
        found: String,
        seen: Sighting,
        reply: Reply<Option<String>>,
    },
}

#[derive(Clone)]
pub struct Keeper {
    jobs: mpsc::Sender<Job>,
    known: watch::Receiver<Option<Remembered>>,
    instance: watch::Receiver<Option<String>>,
}

impl Keeper {
    /// `wanted`: the authority that the store must belong to, as far as it is known without asking it.
    pub fn start(store: &Arc<dyn Store>, wanted: OwningAuthority) -> Self {
        let (jobs, queue) = mpsc::channel(CAPACITY);
        let (news, known) = watch::channel(None);
        let (recorded_instance, instance) = watch::channel(None);
        let worker = Worker {
            store: store.clone(),
            memory: None,
            last_used: Instant::now(),
            outage: None,
            wanted,
            news,
            recorded_instance,
        };
        tokio::spawn(worker.run(queue));
        Self { jobs, known, instance }
    }

    /// The row as this process last saw it: it has not fallen since.
    pub fn known(&self) -> Option<Remembered> {
        self.known.borrow().clone()
    }

    /// The number of the store's etcd, as it was when the row was last read. It changes with the epoch only, unless none
    /// was recorded.
    pub fn instance(&self) -> Option<String> {
        self.instance.borrow().clone()
    }

    /// Wakes whenever [`known`](Self::known) changes.
    pub fn changes(&self) -> watch::Receiver<Option<Remembered>> {
        self.known.clone()
    }

    /// The row as it is now; `None` before the first meeting, or where the store has yet to record which
    /// etcd it belongs to. An error if it belongs to another authority.
    pub async fn recall(&self) -> Result<Option<Remembered>, AuthorityError> {
        self.ask(Job::Recall).await
    }

    /// Returns only once the row has come that far, or says how it stands in a later epoch.
    pub async fn note(&self, epoch: u16, seen: Sighting) -> Result<Remembered, AuthorityError> {
        if let Some(known) = self.known()
            && known.epoch == epoch
            && known.seen.revision >= seen.revision
            && known.seen.term >= seen.term
        {
            return Ok(known);
        }
        self.ask(|reply| Job::Note { epoch, seen, reply }).await
    }

    pub async fn highest_token(&self) -> Result<i64, AuthorityError> {
        self.ask(Job::HighestToken).await
    }

    pub async fn adopt(&self, first: Remembered) -> Result<Remembered, AuthorityError> {
        self.ask(|reply| Job::Adopt(first, reply)).await
    }

    /// etcd has gone backwards. The row stays as it is where it has moved a moment ago.
    pub async fn move_on(&self, from: u16, to: Remembered) -> Result<Remembered, AuthorityError> {
        self.ask(|reply| Job::MoveOn { from, to, reply }).await
    }

    /// Records the number that was found in etcd, in place of `former`; where there was one, the epoch moves on. Returns what
    /// stands.
    pub async fn claim_instance(
        &self,
        former: Option<String>,
        found: String,
        seen: Sighting,
    ) -> Result<Option<String>, AuthorityError> {
        self.ask(|reply| Job::ClaimInstance { former, found, seen, reply }).await
    }

    /// Has the store record this cluster as the one that it belongs to, unless it has recorded one. An
    /// error if it belongs to another.
    pub async fn claim(&self, cluster: String) -> Result<(), AuthorityError> {
        self.ask(|reply| Job::Claim(cluster, reply)).await
    }

    async fn ask<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, AuthorityError> {
        let unable = |reason: String| {
            AuthorityError::Unavailable(format!("what is known of etcd cannot be kept: {reason}"))
        };
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send(job(reply)).map_err(|error| unable(error.to_string()))?;
        let answer = answer.await.map_err(|error| unable(error.to_string()))?;
        Ok(answer?)
    }
}

struct Worker {
    store: Arc<dyn Store>,
    memory: Option<Box<dyn Memory>>,
    last_used: Instant,
    outage: Option<Outage>,
    wanted: OwningAuthority,
    news: watch::Sender<Option<Remembered>>,
    recorded_instance: watch::Sender<Option<String>>,
}

impl Worker {
    async fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let mut taken = Vec::new();
        while queue.recv_many(&mut taken, CAPACITY).await > 0 {
            let mut recalls = Vec::new();
            let mut notes: Vec<(u16, Sighting, Vec<Reply<Remembered>>)> = Vec::new();
            for job in taken.drain(..) {
                match job {
                    Job::Recall(reply) => recalls.push(reply),
                    Job::Note { epoch, seen, reply } => gather(&mut notes, epoch, seen, reply),
                    Job::HighestToken(reply) => {
                        let _ = reply.send(self.highest_token().await);
                    }
                    Job::Adopt(first, reply) => {
                        let _ = reply.send(self.adopt(first).await);
                    }
                    Job::MoveOn { from, to, reply } => {
                        let moved = self.move_on(from, to, MoveReason::WentBackwards).await;
                        let _ = reply.send(moved);
                    }
                    Job::ClaimInstance { former, found, seen, reply } => {
                        let _ = reply.send(self.claim_instance(former, &found, &seen).await);
                    }
                    Job::Claim(cluster, reply) => {
                        let _ = reply.send(self.claim(cluster).await);
                    }
                }
            }
            let mut row = None;
            for (epoch, seen, replies) in notes {
                let outcome = self.note(epoch, &seen).await;
                for reply in replies {
                    let _ = reply.send(outcome.clone());
                }
                // In a later epoch the store may belong to another authority: that takes a look.
                row = outcome.ok().filter(|row| row.epoch == epoch);
            }
            // Whoever asked for the row was here before the note was made, so its answer will do,
            // unless it shows less than is known.
            if !recalls.is_empty() {
                let recalled = match row.filter(|row| self.known_beyond(row).is_none()) {
                    Some(row) => Ok(Some(row)),
                    None => self.recall().await,
                };
                for reply in recalls {
                    let _ = reply.send(recalled.clone());
                }
            }
        }
    }

    /// Each further turn of the loop means that the epoch has moved on.
    async fn recall(&mut self) -> Result<Option<Remembered>, StoreError> {
        loop {
            let recalled = self.memory().await?.recall().await;
            let Some(recalled) = self.unless_failed(recalled)? else { return Ok(None) };
            let Some(owner) = &recalled.owner else { return Ok(None) };
            owner.check(&self.wanted)?;
            if !owner.is_complete() {
                return Ok(None);
            }
            self.recorded_instance.send_replace(owner.instance.clone());
            let due = self.due_epoch(&recalled)?;
            let row = recalled.row;
            if due <= row.epoch {
                return self.learn(Ok(row)).map(Some);
            }
            let to = Remembered { epoch: due, seen: row.seen };
            self.move_on(row.epoch, to, MoveReason::Overtaken).await?;
        }
    }

    /// What is known, if the store shows less.
    fn known_beyond(&self, row: &Remembered) -> Option<Remembered> {
        self.news.borrow().clone().filter(|known| is_behind(row, known))
    }

    /// The epoch from which on tokens rise, whatever else was issued meanwhile.
    fn due_epoch(&self, recalled: &Recalled) -> Result<u16, StoreError> {
        let Recalled { row, issued, .. } = recalled;
        let mut due = row.epoch;
        if let Some(known) = self.known_beyond(row) {
            // A standby took over that had not heard of it all. In a new epoch that is no harm.
            tracing::warn!(
                stored_epoch = row.epoch,
                stored_revision = row.seen.revision,
                known_epoch = known.epoch,
                known_revision = known.seen.revision,
                "the stored revision is behind the one that this process has seen"
            );
            due = known.epoch.saturating_add(1);
        }
        if *issued > epoch::newest(row.epoch, row.seen.revision) {
            // The lock table was the authority in between.
            tracing::warn!(
                epoch = row.epoch,
                revision = row.seen.revision,
                issued,
                "tokens were issued past etcd: a new epoch begins"
            );
            let above = epoch::first(&row.seen, *issued)
                .map_err(|error| StoreError::Unfit(error.to_string()))?;
            due = due.max(above.epoch);
        }
        Ok(due)
    }

    async fn note(&mut self, epoch: u16, seen: &Sighting) -> Result<Remembered, StoreError> {
        let noted = self.memory().await?.note(epoch, seen).await;
        self.learn(noted)
    }

    async fn highest_token(&mut self) -> Result<i64, StoreError> {
        let highest = self.memory().await?.highest_token().await;
        self.unless_failed(highest)
    }

    async fn adopt(&mut self, first: Remembered) -> Result<Remembered, StoreError> {
        let adopted = self.memory().await?.adopt(&first).await;
        self.learn(adopted)
    }

    async fn move_on(
        &mut self,
        from: u16,
        to: Remembered,
        reason: MoveReason,
    ) -> Result<Remembered, StoreError> {
        let moved = self.memory().await?.move_on(from, &to, reason).await;
        self.learn(moved)
    }

    async fn claim_instance(
        &mut self,
        former: Option<String>,
        found: &str,
        seen: &Sighting,
    ) -> Result<Option<String>, StoreError> {
        let stands = self.memory().await?.claim_instance(former.as_deref(), found, seen).await;
        let stands = self.unless_failed(stands)?;
        self.recorded_instance.send_replace(stands.clone());
        Ok(stands)
    }

    async fn claim(&mut self, cluster: String) -> Result<(), StoreError> {
        let wanted = OwningAuthority { identity: Some(cluster), ..self.wanted.clone() };
        let recorded = self.memory().await?.claim_authority(&wanted).await;
        self.unless_failed(recorded)?.check(&wanted)
    }

    fn learn(&mut self, row: Result<Remembered, StoreError>) -> Result<Remembered, StoreError> {
        let row = self.unless_failed(row)?;
        self.news.send_if_modified(|known| {
            let newer = known.as_ref().is_none_or(|known| is_behind(known, &row));
            if newer {
                *known = Some(row.clone());
            }
            newer
        });
        Ok(row)
    }

    fn unless_failed<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result
            && error.ends_the_session()
        {
            self.memory = None;
        }
        result
    }

    async fn memory(&mut self) -> Result<&mut dyn Memory, StoreError> {
        if let Some(error) = self.outage.as_ref().and_then(Outage::answer) {
            return Err(error);
        }
        if self.last_used.elapsed() > RESTED
            && let Some(memory) = &mut self.memory
            && memory.recall().await.is_err()
        {
            self.memory = None;
        }
        self.last_used = Instant::now();
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => match self.store.connect_memory().await {
                Ok(memory) => memory,
                Err(error) => {
                    self.outage = Some(Outage::after(self.outage.take(), error.clone()));
                    return Err(error);
                }
            },
        };
        self.outage = None;
        Ok(self.memory.insert(memory).as_mut())
    }
}

/// Notes of one epoch become one: it stands for all of them.
fn gather(
    notes: &mut Vec<(u16, Sighting, Vec<Reply<Remembered>>)>,
    epoch: u16,
    seen: Sighting,
    reply: Reply<Remembered>,
) {
    let same = notes.iter_mut().find(|(e, s, _)| *e == epoch && s.cluster == seen.cluster);
    match same {
        Some((_, gathered, replies)) => {
            gathered.revision = gathered.revision.max(seen.revision);
            gathered.term = gathered.term.max(seen.term);
            replies.push(reply);
        }
        None => notes.push((epoch, seen, vec![reply])),
    }
}

fn is_behind(row: &Remembered, other: &Remembered) -> bool {
    let order = |row: &Remembered| (row.epoch, row.seen.revision, row.seen.term);
    order(row) < order(other)
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, ConnectOptions, sqlite::SqliteConnectOptions};
    use tempfile::TempDir;

    use super::{super::claimed_by, *};
    use crate::store::sqlite::SqliteStore;

    fn at(revision: i64, term: i64) -> Sighting {
        Sighting { revision, cluster: "c".into(), term }
    }

    struct Kept {
        keeper: Keeper,
        directory: TempDir,
    }

    impl Kept {
        /// In epoch 1, at revision 10 in term 3.
        async fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let store = SqliteStore::new(directory.path().join("test.db"));
            store.migrate().await.unwrap();
            let keeper = Keeper::start(&(Arc::new(store) as Arc<dyn Store>), claimed_by(""));
            keeper.claim("c".into()).await.unwrap();
            keeper.adopt(Remembered { epoch: 1, seen: at(10, 3) }).await.unwrap();
            Self { keeper, directory }
        }

        /// Behind the keeper's back.
        async fn execute(&self, sql: &str) {
            let options =
                SqliteConnectOptions::new().filename(self.directory.path().join("test.db"));
            let mut connection = options.connect().await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_known_already_is_noted_without_the_store() {
        let kept = Kept::new().await;
        kept.execute("DROP TABLE authority").await;
        for (epoch, seen, known) in [
            (1, at(10, 3), true),
            (1, at(9, 2), true),
            (1, at(11, 3), false),
            (1, at(10, 4), false),
            (2, at(9, 2), false),
        ] {
            assert_eq!(
                kept.keeper.note(epoch, seen.clone()).await.is_ok(),
                known,
                "{epoch} {seen:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_store_that_shows_less_than_is_known_begins_a_new_epoch() {
        let kept = Kept::new().await;
        assert_eq!(kept.keeper.recall().await.unwrap().unwrap().epoch, 1);
        // As on a standby that took over too early.
        kept.execute("DROP TRIGGER epochs_never_fall; UPDATE authority SET revision = 9").await;
        let row = kept.keeper.recall().await.unwrap().unwrap();
        assert_eq!((row.epoch, row.seen), (2, at(9, 3)));
        assert_eq!(kept.keeper.known().unwrap().epoch, 2);
    }

    #[tokio::test]
    async fn it_ends_with_the_last_who_could_ask() {
        let Kept { keeper, directory: _directory } = Kept::new().await;
        let mut changes = keeper.changes();
        changes.mark_unchanged();
        drop(keeper);
        let ended = tokio::time::timeout(Duration::from_secs(30), changes.changed()).await;
        assert!(ended.expect("it ends").is_err());
    }

    #[test]
    fn notes_of_one_epoch_and_cluster_become_one_that_stands_for_all() {
        let mut notes = Vec::new();
        for (epoch, seen) in [
            (1, at(5, 9)),
            (1, at(7, 8)),
            (2, at(6, 8)),
            (1, Sighting { cluster: "d".into(), ..at(9, 9) }),
        ] {
            gather(&mut notes, epoch, seen, oneshot::channel().0);
        }
        let gathered: Vec<_> =
            notes.into_iter().map(|(epoch, seen, replies)| (epoch, seen, replies.len())).collect();
        let other = Sighting { cluster: "d".into(), ..at(9, 9) };
        assert_eq!(gathered, [(1, at(7, 9), 2), (2, at(6, 8), 1), (1, other, 1)]);
    }

    #[test]
    fn a_row_is_behind_another_by_epoch_then_revision_then_term() {
        let row = |epoch, revision, term| Remembered { epoch, seen: at(revision, term) };
        assert!(is_behind(&row(1, 9, 9), &row(2, 1, 1)));
        assert!(is_behind(&row(1, 8, 9), &row(1, 9, 1)));
        assert!(is_behind(&row(1, 8, 1), &row(1, 8, 2)));
        assert!(!is_behind(&row(1, 8, 1), &row(1, 8, 1)));
        assert!(!is_behind(&row(2, 1, 1), &row(1, 9, 9)));
    }
}
