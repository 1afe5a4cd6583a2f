//! What one identity, or all together, have in use.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter, clock::Clock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Bounds, load::Room};
use crate::metrics::Limited;

/// Nobody knows when a place gets free.
pub const SOON: Duration = Duration::from_secs(1);

pub struct Account {
    /// Evenly, but for a burst of as many as there may be in a second.
    requests: Option<DefaultDirectRateLimiter>,
    connections: Places,
    locks: Places,
    waiters: Places,
    streams: Places,
    pub bodies: Room,
}

/// `None` where there is no limit.
struct Places(Option<(Arc<Semaphore>, usize)>);

impl Account {
    pub fn new(bounds: Bounds) -> Self {
        let per_second = NonZeroU32::new(bounds.requests_per_second);
        Self {
            requests: per_second.map(|most| RateLimiter::direct(Quota::per_second(most))),
            connections: Places::up_to(bounds.connections),
            locks: Places::up_to(bounds.locks),
            waiters: Places::up_to(bounds.waiters),
            streams: Places::up_to(bounds.streams),
            bodies: Room::new(bounds.bodies),
        }
    }

    pub fn counts_requests(&self) -> bool {
        self.requests.is_some()
    }

    /// Or else, how long to wait.
    pub fn request(&self) -> Result<(), Duration> {
        let Some(limiter) = &self.requests else { return Ok(()) };
        limiter.check().map_err(|until| until.wait_time_from(limiter.clock().now()))
    }

    /// The same. `None` where there is no limit.
    pub fn place(&self, limit: Limited) -> Result<Option<OwnedSemaphorePermit>, Duration> {
        match limit {
            Limited::Requests | Limited::Bodies => Ok(None),
            Limited::Connections => self.connections.take(),
            Limited::Locks => self.locks.take(),
            Limited::Waiters => self.waiters.take(),
            Limited::Streams => self.streams.take(),
        }
    }

    /// Whether anything is taken. What it has asked for lately is forgotten in a second.
    pub fn is_in_use(&self) -> bool {
        let places = [&self.connections, &self.locks, &self.waiters, &self.streams];
        places.iter().any(|places| places.are_in_use()) || self.bodies.is_in_use()
    }
}

impl Places {
    fn up_to(most: u32) -> Self {
        let most = most as usize;
        Self((most > 0).then(|| (Arc::new(Semaphore::new(most)), most)))
    }

    fn take(&self) -> Result<Option<OwnedSemaphorePermit>, Duration> {
        let Some((places, _)) = &self.0 else { return Ok(None) };
        places.clone().try_acquire_owned().map(Some).map_err(|_| SOON)
    }

    fn are_in_use(&self) -> bool {
        self.0.as_ref().is_some_and(|(places, most)| places.available_permits() < *most)
    }
}
