//! A waiter's vigil: it watches the one entry just before its own, and keeps its own lease alive.

use std::time::Duration;

use etcd_client::{Error, EventType, WatchFilterType, WatchOptions, WatchResponse};
use tokio::time::{Instant, sleep, sleep_until};

use super::{EtcdAuthority, layout::Entry, members::PATIENCE, queue::Place};
use crate::authority::Ask;

/// How long a watch is believed without a look of our own.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// After a watch has failed. Long enough not to turn in circles.
const PAUSE: Duration = Duration::from_millis(50);

pub enum Watched {
    /// The entry was deleted.
    Gone,
    /// The watch has ended, or it is time to look for oneself.
    Unsure,
    /// Our own lease has ended.
    Displaced,
    /// The time is over, or nobody waits any more.
    Over,
}

impl EtcdAuthority {
    /// Watches an entry that was there at `revision`.
    pub(super) async fn watch_until_gone(
        &self,
        ask: &Ask,
        place: &mut Place,
        entry: &Entry,
        revision: i64,
    ) -> Watched {
        let opening = self.members.ask(PATIENCE, |mut client| {
            let options = WatchOptions::new()
                .with_start_revision(revision + 1)
                .with_filters([WatchFilterType::NoPut]);
            let key = entry.key.clone();
            async move { client.watch(key, Some(options)).await }
        });
        let mut watch = tokio::select! {
            opened = opening => match opened {
                Ok(watch) => watch,
                Err(_) => return unsure().await,
            },
            () = sleep_until(ask.until) => return Watched::Over,
            () = ask.gone.cancelled() => return Watched::Over,
        };
        let look_again = Instant::now() + LOOK_AGAIN;
        loop {
            let keep_at = place.lease.renewed + place.lease.ttl / 3;
            tokio::select! {
                message = watch.message() => match read(message) {
                    Some(true) => return Watched::Gone,
                    Some(false) => {}
                    None => return unsure().await,
                },
                () = sleep_until(keep_at) => match self.keep(place, 3).await {
                    Some(true) => {}
                    Some(false) => return Watched::Displaced,
                    None => return unsure().await,
                },
                () = sleep_until(look_again) => return Watched::Unsure,
                () = self.lookout.until_foreign() => return Watched::Unsure,
                () = sleep_until(ask.until) => return Watched::Over,
                () = ask.gone.cancelled() => return Watched::Over,
            }
        }
    }
}

/// Whether it was deleted. `None`: the watch has ended.
fn read(message: Result<Option<WatchResponse>, Error>) -> Option<bool> {
    let response = message.ok()??;
    if response.canceled() {
        return None;
    }
    Some(response.events().iter().any(|event| event.event_type() == EventType::Delete))
}

async fn unsure() -> Watched {
    sleep(PAUSE).await;
    Watched::Unsure
}
