//! How a lane takes what waits: at once, but not more than is good for one batch.
//!
//! While one commit is in flight, the next batch gathers by itself. Waiting for more on top of that
//! pays only where clients that were just answered are about to write again. So a lane waits for
//! no more than came together last time, by letting others run and looking again, and stops as soon
//! as that brings nothing. A lone client never waits.

use std::time::Duration;

use tokio::{sync::mpsc, time::Instant};

use super::{queue::Waiting, writing::Writing};

const MOST_BYTES: usize = 4 << 20;

/// Their values come back all at once, and may be large.
const MOST_FENCED_READS: usize = 16;

const LONGEST_PAUSE: Duration = Duration::from_micros(200);

/// Looks in vain after which there is no point in waiting.
const VAIN_LOOKS: u32 = 2;

pub struct Gatherer {
    most: usize,
    /// How many came together last time.
    last: usize,
}

impl Gatherer {
    pub fn new(most: usize) -> Self {
        Self { most, last: 0 }
    }

    /// The next batch; empty once nobody can send any more.
    pub async fn next(
        &mut self,
        jobs: &mut mpsc::Receiver<Waiting<Writing>>,
    ) -> Vec<Waiting<Writing>> {
        let mut taken = Taken::default();
        let Some(first) = jobs.recv().await else { return taken.jobs };
        taken.add(first);
        self.fill(&mut taken, jobs);
        if taken.jobs.len() < self.last {
            self.wait_for_more(&mut taken, jobs).await;
        }
        self.last = taken.jobs.len();
        taken.jobs
    }

    fn fill(&self, taken: &mut Taken, jobs: &mut mpsc::Receiver<Waiting<Writing>>) {
        while !taken.is_full(self.most)
            && let Ok(job) = jobs.try_recv()
        {
            taken.add(job);
        }
    }

    async fn wait_for_more(&self, taken: &mut Taken, jobs: &mut mpsc::Receiver<Waiting<Writing>>) {
        linger(self.last, || {
            self.fill(taken, jobs);
            taken.jobs.len()
        })
        .await;
    }
}

/// Lets others run and looks again, until as many as `expected` have been found or that brings no more.
pub async fn linger(expected: usize, mut look: impl FnMut() -> usize) {
    let since = Instant::now();
    let mut found = look();
    let mut in_vain = 0;
    while found < expected && in_vain < VAIN_LOOKS && since.elapsed() < LONGEST_PAUSE {
        tokio::task::yield_now().await;
        let before = std::mem::replace(&mut found, look());
        in_vain = if found == before { in_vain + 1 } else { 0 };
    }
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
