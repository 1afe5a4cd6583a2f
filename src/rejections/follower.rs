//! Somebody who follows the record as it grows.
//!
//! The ring is the buffer: a follower only remembers how far it has come. So one that is slow, or
//! does not read at all, costs nobody anything; it finds out how many it has missed.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::Instant,
};

use super::{Filter, News, Rejections};

/// Between two looks, so that a flood costs a follower no more than a few looks a second.
const PAUSE: Duration = Duration::from_millis(50);

/// Rejections that are handed over in one go; of more, the newest.
const AT_ONCE: usize = 500;

/// The same, in memory: the record may have forgotten them before a slow follower has read them.
const BYTES_AT_ONCE: usize = 128 << 10;

pub struct Follower {
    pub(super) rejections: Arc<Rejections>,
    pub(super) filter: Filter,
    pub(super) next: u64,
    pub(super) newest: watch::Receiver<u64>,
    pub(super) not_before: Instant,
    pub(super) _place: OwnedSemaphorePermit,
}

impl Follower {
    /// What has come since the last time. Waits until there is something to say.
    pub async fn news(&mut self) -> News {
        loop {
            tokio::time::sleep_until(self.not_before).await;
            let next = self.next;
            // The sender lives as long as the record, which is held here.
            let _ = self.newest.wait_for(|newest| *newest > next).await;
            self.not_before = Instant::now() + PAUSE;
            let news = self.rejections.news(self.next, &self.filter, AT_ONCE, BYTES_AT_ONCE);
            self.next = news.next;
            if !news.entries.is_empty() || news.dropped > 0 {
                return news;
            }
        }
    }
}
