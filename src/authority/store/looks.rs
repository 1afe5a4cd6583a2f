//! Looks at locks of which the database has said that they have changed.
//!
//! Any role of the database can say so, as often as it likes. So the lock table is asked for the truth, and those who
//! watch are told what it answers. Locks are looked at one after the other, each at most once in [`PAUSE`], however many
//! notifications there were and however many clients watch it.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{
    Shared,
    watchers::{LockLook, Word},
};
use crate::token::Key;

/// Between two rounds of looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Before another attempt at a look that has failed.
const AFTER_A_FAILURE: Duration = Duration::from_millis(250);

#[derive(Default)]
pub struct Looks {
    due: Mutex<HashSet<Key>>,
    came: Notify,
}

impl Looks {
    pub fn ask_for(&self, name: Key) {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        self.came.notify_one();
    }

    /// Looks for as long as it is polled.
    pub async fn carry_out(&self, shared: &Shared) -> Infallible {
        loop {
            self.came.notified().await;
            let due = std::mem::take(&mut *self.due.lock().unwrap_or_else(PoisonError::into_inner));
            let mut pause = PAUSE;
            for name in due {
                // Its watchers may have left.
                if shared.watchers.has(&name) && !look(shared, &name).await {
                    pause = AFTER_A_FAILURE;
                    self.ask_for(name);
                }
            }
            sleep(pause).await;
        }
    }
}

/// Whether the lock table has answered.
async fn look(shared: &Shared, name: &Key) -> bool {
    let asked = Instant::now();
    let Ok(state) = shared.inspect(name.clone()).await else { return false };
    shared.watchers.tell(name, Word::Seen(LockLook { state, asked, answered: Instant::now() }));
    true
}
