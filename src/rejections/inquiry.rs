//! Who overtook a write whose grant was made elsewhere: the lock service is asked, in the background.
//!
//! One question at a time, a few in a second, and once for each grant. It knows only who holds a lock
//! now: an owner who has released it meanwhile stays unknown.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use quick_cache::sync::Cache;
use tokio::sync::mpsc;

use super::{Owners, Rejection};
use crate::{authority::Authority, token::Key};

/// Questions that may wait. A flood over many locks has its first ones answered.
const QUEUE: usize = 64;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);

/// For one of them.
const PATIENCE: Duration = Duration::from_secs(2);

/// Grants that need not be asked about again.
const ASKED: usize = 10_000;

/// The way to whoever asks.
pub struct Inquiry {
    questions: mpsc::Sender<Question>,
    asked: Arc<Cache<u64, ()>>,
}

pub struct Inquirer {
    authority: Arc<dyn Authority>,
    owners: Arc<Owners>,
    questions: mpsc::Receiver<Question>,
    asked: Arc<Cache<u64, ()>>,
}

struct Question {
    /// The lock whose grant it may have been: the scope's, or the key's own.
    locks: Vec<Key>,
    token: i64,
}

impl Inquiry {
    pub fn new(authority: Arc<dyn Authority>, owners: Arc<Owners>) -> (Self, Inquirer) {
        let (questions, to_ask) = mpsc::channel(QUEUE);
        let asked = Arc::new(Cache::new(ASKED));
        let inquirer = Inquirer { authority, owners, questions: to_ask, asked: asked.clone() };
        (Self { questions, asked }, inquirer)
    }

    /// Never waits. If there is no place, a later rejection asks again.
    pub fn wonder(&self, rejection: &Rejection) {
        let Some(token) = rejection.overtaken_at() else { return };
        let refused = &rejection.refused;
        let locks = || refused.scope.iter().chain(&refused.key);
        let question = fingerprint(locks(), token);
        if self.asked.get(&question).is_none()
            && self
                .questions
                .try_send(Question { locks: locks().cloned().collect(), token })
                .is_ok()
        {
            self.asked.insert(question, ());
        }
    }
}

impl Inquirer {
    pub async fn run(mut self) {
        while let Some(question) = self.questions.recv().await {
            // It may have been granted here meanwhile.
            if self.owners.of(question.token).is_none() && !self.ask(&question).await {
                self.asked.remove(&fingerprint(question.locks.iter(), question.token));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether there was an answer.
    async fn ask(&self, question: &Question) -> bool {
        for lock in &question.locks {
            let state = tokio::time::timeout(PATIENCE, self.authority.inspect(lock)).await;
            let Ok(Ok(state)) = state else { return false };
            if let Some(holder) = state.holder
                && holder.token.get() == question.token
            {
                self.owners.learn(holder.token, &holder.owner);
                return true;
            }
        }
        true
    }
}

/// Two that are alike by chance leave one owner unknown, once in an age.
fn fingerprint<'a>(locks: impl Iterator<Item = &'a Key>, token: i64) -> u64 {
    let mut hasher = DefaultHasher::new();
    token.hash(&mut hasher);
    locks.for_each(|lock| lock.hash(&mut hasher));
    hasher.finish()
}
