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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_waited_for_too_long_is_late() {
        let waited = |seconds| {
            let since = Instant::now().checked_sub(Duration::from_secs(seconds)).expect("a while");
            Waiting::since(since, ()).is_late()
        };
        assert!(!Waiting::new(()).is_late() && !waited(14) && waited(16));
    }

    #[test]
    fn whoever_finds_no_place_is_told_why() {
        let (queue, mut jobs) = Queue::new(2);
        queue.submit(1).unwrap();
        queue.submit(2).unwrap();
        assert_eq!((queue.depth(), queue.is_closed()), (2, false));
        let (error, back) = queue.pass_on(Waiting::new(3)).expect_err("it is full");
        assert!(matches!(error, EngineError::Overloaded) && back.job == 3);
        jobs.close();
        assert!(queue.is_closed());
        let (error, back) = queue.pass_on(Waiting::new(4)).expect_err("it is closed");
        assert!(matches!(error, EngineError::ShuttingDown) && back.job == 4);
        assert_eq!(jobs.try_recv().ok().map(|waiting| waiting.job), Some(1));
        assert_eq!(queue.depth(), 1);
    }
}
