//! The way back from a lane to those who asked.
//!
//! They may be on other threads. To wake each of them from here would take a system call for each. So
//! what a batch has come to is handed over to a task on their thread, which tells them there.

use tokio::sync::mpsc;

use super::{EngineError, queue::Reply};
use crate::{
    store::Settled,
    threads::{self, Threads},
};

/// Somebody who waits, and what they have waited for.
pub struct Told {
    /// The place of their thread.
    pub place: usize,
    pub reply: Reply<Settled>,
    pub answer: Result<Settled, EngineError>,
}

/// One queue for each thread, in order of their places.
#[derive(Clone)]
pub struct Delivery(Vec<mpsc::UnboundedSender<Vec<Told>>>);

impl Delivery {
    pub fn start(threads: &Threads) -> Self {
        let queues = threads.runtimes().map(|runtime| {
            let (queue, mut batches) = mpsc::unbounded_channel::<Vec<Told>>();
            runtime.spawn(async move {
                while let Some(batch) = batches.recv().await {
                    batch.into_iter().for_each(Told::tell);
                }
            });
            queue
        });
        Self(queues.collect())
    }

    /// Others first: they can begin while those who are here are told.
    pub fn hand_over(&self, mut batch: Vec<Told>) {
        let here = threads::place();
        let elsewhere = self.0.iter().enumerate().filter(|(place, _)| *place != here);
        for (place, queue) in elsewhere {
            let theirs: Vec<Told> = batch.extract_if(.., |told| told.place == place).collect();
            if !theirs.is_empty() {
                // Where nobody is left to tell them, nobody is left to be told.
                let _ = queue.send(theirs);
            }
        }
        batch.into_iter().for_each(Told::tell);
    }
}

impl Told {
    /// Whoever asked may have hung up. What was done stands all the same.
    fn tell(self) {
        let _ = self.reply.send(self.answer);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::StoreError;

    #[test]
    fn everybody_is_told_wherever_they_are() {
        let (first, threads, _others) = Threads::start(3).unwrap();
        let delivery = Delivery::start(&threads);
        let (batch, answers): (Vec<_>, Vec<_>) = (0..30)
            .map(|number| {
                let (reply, answer) = oneshot::channel();
                // One in four is on a thread that is not there.
                let told = Told { place: number % 4, reply, answer: Err(StoreError::Busy.into()) };
                (told, answer)
            })
            .unzip();
        delivery.hand_over(batch);
        first.block_on(async {
            for answer in answers {
                let told = answer.await.expect("an answer");
                assert!(matches!(told, Err(EngineError::Store(StoreError::Busy))));
            }
        });
    }
}
