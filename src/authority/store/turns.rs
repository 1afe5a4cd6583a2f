//! Who waits in this process, and how each is woken: only the one whose turn it is.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

#[derive(Default)]
pub struct Turns {
    waiting: Mutex<HashMap<String, Arc<Notify>>>,
    somebody_came: Notify,
}

/// Somebody who waits, under the name of their lease. Known from before there is a row for it, so no
/// word can come too early; forgotten when dropped.
pub struct Waiting {
    lease: String,
    woken: Arc<Notify>,
    turns: Arc<Turns>,
}

impl Turns {
    pub fn wait_as(self: &Arc<Self>, lease: String) -> Waiting {
        let woken = Arc::new(Notify::new());
        self.lock().insert(lease.clone(), woken.clone());
        self.somebody_came.notify_one();
        Waiting { lease, woken, turns: self.clone() }
    }

    pub fn wake(&self, lease: &str) {
        if let Some(woken) = self.lock().get(lease) {
            woken.notify_one();
        }
    }

    /// For when words may have been missed.
    pub fn wake_all(&self) {
        for woken in self.lock().values() {
            woken.notify_one();
        }
    }

    pub fn leases(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub async fn somebody_came(&self) {
        self.somebody_came.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    pub fn lease(&self) -> &str {
        &self.lease
    }

    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.turns.lock().remove(&self.lease);
    }
}
