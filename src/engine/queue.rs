//! The bounded queue in front of a lane, and how a lane takes from it.

use std::time::{Duration, Instant};

use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use super::EngineError;

/// A job that has waited for longer is turned away unbegun: each one before it may have waited for
/// a lock, and its client is not served by waiting for all of them.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

pub type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

pub struct Waiting<J> {
    pub since: Instant,
    pub job: J,
}

impl<J> Waiting<J> {
    pub fn new(job: J) -> Self {
        Self { since: Instant::now(), job }
    }

    /// One that has waited before.
    pub fn since(since: Instant, job: J) -> Self {
        Self { since, job }
    }

    pub fn take_apart(self) -> (Instant, J) {
        (self.since, self.job)
    }

    pub fn is_late(&self) -> bool {
        self.since.elapsed() > LONGEST_WAIT
    }
}

pub struct Queue<J> {
    sender: mpsc::Sender<Waiting<J>>,
}

impl<J> Clone for Queue<J> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone() }
    }
}

impl<J> Queue<J> {
    pub fn new(capacity: usize) -> (Self, mpsc::Receiver<Waiting<J>>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self { sender }, receiver)
    }

    /// Never waits: a full queue is the caller's answer.
    pub fn submit(&self, job: J) -> Result<(), EngineError> {
        self.pass_on(Waiting::new(job)).map_err(|(error, _)| error)
    }

    /// The same, for a job that has waited elsewhere. It comes back if there is no place.
    pub fn pass_on(&self, waiting: Waiting<J>) -> Result<(), (EngineError, Waiting<J>)> {
        self.sender.try_send(waiting).map_err(|error| match error {
            TrySendError::Full(waiting) => (EngineError::Overloaded, waiting),
            TrySendError::Closed(waiting) => (EngineError::ShuttingDown, waiting),
        })
    }

    /// Whether nobody takes from it any more.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// How many jobs wait.
    pub fn depth(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }
}
