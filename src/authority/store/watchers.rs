//! Who watches which lock in this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{Notify, broadcast},
    time::Instant,
};

use crate::{
    authority::{LockEvent, LockState},
    token::Key,
};

/// How far somebody who watches may fall behind. Further, and it looks at the state again.
const BACKLOG: usize = 64;

/// What somebody who watches is told.
#[derive(Clone, Debug)]
pub enum Word {
    /// By the lock table itself, in this process.
    Happened(LockEvent),
    Seen(LockLook),
    /// From here on, everything that happens is told.
    Covered,
    /// From here on, something may happen without a word.
    Uncovered,
}

/// What the lock table answered, and when.
#[derive(Clone, Debug)]
pub struct LockLook {
    pub state: LockState,
    pub asked: Instant,
    pub answered: Instant,
}

#[derive(Default)]
pub struct Watchers {
    watched: Mutex<HashMap<Key, broadcast::Sender<Word>>>,
    somebody_came: Notify,
}

/// Somebody who watches; forgotten when dropped.
pub struct Watcher {
    name: Key,
    words: Option<broadcast::Receiver<Word>>,
    watchers: Arc<Watchers>,
}

impl Watchers {
    pub fn watch(self: &Arc<Self>, name: &Key) -> Watcher {
        let words = self
            .lock()
            .entry(name.clone())
            .or_insert_with(|| broadcast::Sender::new(BACKLOG))
            .subscribe();
        self.somebody_came.notify_one();
        Watcher { name: name.clone(), words: Some(words), watchers: self.clone() }
    }

    pub fn tell(&self, name: &Key, word: Word) {
        if let Some(sender) = self.lock().get(name) {
            // Nobody there to hear it is not an error.
            let _ = sender.send(word);
        }
    }

    pub fn tell_all(&self, word: &Word) {
        for sender in self.lock().values() {
            let _ = sender.send(word.clone());
        }
    }

    pub fn names(&self) -> Vec<Key> {
        self.lock().keys().cloned().collect()
    }

    pub fn has(&self, name: &Key) -> bool {
        self.lock().contains_key(name)
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub async fn somebody_came(&self) {
        self.somebody_came.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, broadcast::Sender<Word>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// `None`: too much has happened to be told one by one.
    pub async fn word(&mut self) -> Option<Word> {
        self.words.as_mut().expect("it is there until it is dropped").recv().await.ok()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut watched = self.watchers.lock();
        self.words = None;
        if watched.get(&self.name).is_some_and(|sender| sender.receiver_count() == 0) {
            watched.remove(&self.name);
        }
    }
}
