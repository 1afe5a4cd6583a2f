//! How busy a listener or a connection is: what tells whether anybody still needs it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

#[derive(Debug, Default)]
pub struct Activity {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    last_ended: Option<Instant>,
}

/// One request that is being answered.
pub struct Answering(Arc<Activity>);

impl Activity {
    pub fn request(self: &Arc<Self>) -> Answering {
        self.with(|state| state.in_flight += 1);
        Answering(self.clone())
    }

    /// Whether no request has been in flight for at least `period`.
    pub fn quiet_for(&self, period: Duration) -> bool {
        self.with(|state| {
            state.in_flight == 0 && state.last_ended.is_none_or(|ended| ended.elapsed() >= period)
        })
    }

    /// Returns when no request has been in flight for `period`, counted from now at the earliest.
    pub async fn quiet(&self, period: Duration) {
        let mut wait = period;
        loop {
            tokio::time::sleep(wait).await;
            wait = self.with(|state| match state.last_ended {
                _ if state.in_flight > 0 => period,
                None => Duration::ZERO,
                Some(ended) => period.saturating_sub(ended.elapsed()),
            });
            if wait.is_zero() {
                return;
            }
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Also when the client hung up and the answer was dropped half way.
impl Drop for Answering {
    fn drop(&mut self) {
        self.0.with(|state| {
            state.in_flight -= 1;
            state.last_ended = Some(Instant::now());
        });
    }
}
