//! How a lane takes what waits: at once, but not more than is good for one batch.
//!
//! While one commit is in flight, the next batch gathers by itself. Waiting for more on top of that
//! was tried, for up to 200 µs and only where others had just come together, and did not pay: what it
//! added to a batch, it took from the time in which Postgres was busy.

use tokio::sync::mpsc;

use super::{queue::Waiting, writing::Writing};

/// A session has them in memory once more while it sends them.
const MOST_BYTES: usize = 512 << 10;

/// Their values come back all at once.
const MOST_FENCED_READS: usize = 16;

/// The next batch, of `most` units at most; empty once nobody can send any more.
pub async fn next(
    jobs: &mut mpsc::Receiver<Waiting<Writing>>,
    most: usize,
) -> Vec<Waiting<Writing>> {
    let mut taken = Taken::default();
    let Some(first) = jobs.recv().await else { return taken.jobs };
    taken.add(first);
    while !taken.is_full(most)
        && let Ok(job) = jobs.try_recv()
    {
        taken.add(job);
    }
    taken.jobs
}

#[derive(Default)]
struct Taken {
    jobs: Vec<Waiting<Writing>>,
    bytes: usize,
    fenced_reads: usize,
}

impl Taken {
    fn add(&mut self, waiting: Waiting<Writing>) {
        self.bytes += waiting.job.unit.bytes();
        self.fenced_reads += usize::from(waiting.job.unit.is_fenced_read());
        self.jobs.push(waiting);
    }

    fn is_full(&self, most: usize) -> bool {
        self.jobs.len() >= most
            || self.bytes >= MOST_BYTES
            || self.fenced_reads >= MOST_FENCED_READS
    }
}

#[cfg(test)]
mod tests;
