//! What happens to one lock, as a stream that begins with its state.
//!
//! The state is looked at whenever the database says that it may have changed (`looks.rs`); often where such a word may be
//! missing; and when a lease ends, since nothing is said then. What is told follows from what was seen. Changes that follow
//! each other faster than looks are told as one: the last holder before, and the one now.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::BoxStream};
use tokio::time::{Instant, sleep_until};

use super::{
    Shared,
    watchers::{LockLook, Watcher, Word},
};
use crate::{
    authority::{Holder, LockEvent, LockState},
    store::StoreError,
    token::{Key, Token},
};

/// Between looks where words may be missing.
const OFTEN: Duration = Duration::from_millis(250);

/// Between looks where every change is told: a connection may be dead without saying so.
const SELDOM: Duration = Duration::from_secs(15);

pub async fn watch(
    shared: &Arc<Shared>,
    name: &Key,
) -> Result<BoxStream<'static, LockEvent>, StoreError> {
    let mut watch = Watch {
        name: name.clone(),
        watcher: shared.watchers.watch(name),
        shared: shared.clone(),
        covered: false,
        seen: Seen::default(),
        seen_at: Instant::now(),
        look_at: Instant::now(),
        failing: false,
    };
    watch.look().await?;
    if watch.seen.told.is_empty() {
        watch.seen.told.push_back(LockEvent::Released(None));
    }
    let events = futures_util::stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await;
        Some((event, watch))
    });
    Ok(events.boxed())
}

struct Watch {
    name: Key,
    watcher: Watcher,
    shared: Arc<Shared>,
    covered: bool,
    seen: Seen,
    /// When the last answer that was taken in had arrived.
    seen_at: Instant,
    look_at: Instant,
    failing: bool,
}

impl Watch {
    async fn next(&mut self) -> LockEvent {
        loop {
            if let Some(event) = self.seen.told.pop_front() {
                return event;
            }
            tokio::select! {
                // A word says more than a look does.
                biased;
                word = self.watcher.word() => match word {
                    Some(Word::Happened(event)) => {
                        self.seen.happened(event);
                        self.plan();
                        continue;
                    }
                    Some(Word::Seen(look)) if look.asked >= self.seen_at => {
                        self.take_in(look);
                        continue;
                    }
                    Some(Word::Covered) if self.covered => continue,
                    Some(Word::Covered) => self.covered = true,
                    Some(Word::Uncovered) => self.covered = false,
                    // Too much has happened to be told; or it was asked while another question was on its way, so the
                    // answer may be older.
                    Some(Word::Seen(_)) | None => {}
                },
                () = sleep_until(self.look_at) => {}
            }
            match self.look().await {
                Ok(()) => self.failing = false,
                Err(error) => {
                    if !self.failing {
                        let name = self.name.as_str();
                        tracing::warn!(%error, name, "a watched lock cannot be seen");
                    }
                    self.failing = true;
                    self.look_at = Instant::now() + OFTEN;
                }
            }
        }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let asked = Instant::now();
        let state = self.shared.inspect(self.name.clone()).await?;
        self.take_in(LockLook { state, asked, answered: Instant::now() });
        Ok(())
    }

    fn take_in(&mut self, look: LockLook) {
        self.seen.state(look.state, look.asked);
        self.seen_at = look.answered;
        self.plan();
    }

    fn plan(&mut self) {
        let now = Instant::now();
        let in_turn = now + if self.covered { SELDOM } else { OFTEN };
        let at_the_end = self.seen.holder.map(|held| held.ends.max(now + Duration::from_millis(1)));
        self.look_at = at_the_end.map_or(in_turn, |end| in_turn.min(end));
    }
}

/// What has been seen of a lock, and what is to be told of it.
#[derive(Default)]
struct Seen {
    holder: Option<Held>,
    newest: i64,
    told: VecDeque<LockEvent>,
}

#[derive(Clone, Copy)]
struct Held {
    token: Token,
    ends: Instant,
}

impl Seen {
    fn state(&mut self, state: LockState, asked: Instant) {
        match state.holder {
            Some(holder) => self.holds(holder, asked),
            None => self.ended_unseen(),
        }
    }

    fn happened(&mut self, event: LockEvent) {
        match event {
            LockEvent::Granted(holder) => self.holds(holder, Instant::now()),
            LockEvent::Released(Some(token)) | LockEvent::Expired(token) => {
                if self.holder.is_some_and(|held| held.token == token) {
                    self.holder = None;
                    self.told.push_back(event);
                }
            }
            LockEvent::Released(None) => {}
        }
    }

    fn holds(&mut self, holder: Holder, seen_at: Instant) {
        let held = Held { token: holder.token, ends: seen_at + holder.remaining };
        if self.holder.is_some_and(|known| known.token == held.token) {
            self.holder = Some(held);
        } else if held.token.get() > self.newest {
            self.ended_unseen();
            self.newest = held.token.get();
            self.holder = Some(held);
            self.told.push_back(LockEvent::Granted(holder));
        }
    }

    /// It is over, and nobody said why: if its lease is not, it was released.
    fn ended_unseen(&mut self) {
        if let Some(held) = self.holder.take() {
            let expired = Instant::now() >= held.ends;
            self.told.push_back(if expired {
                LockEvent::Expired(held.token)
            } else {
                LockEvent::Released(Some(held.token))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn token(number: i64) -> Token {
        Token::new(number).unwrap()
    }

    fn holder(number: i64) -> Holder {
        let name = Key::new("lock").unwrap();
        Holder { name, token: token(number), owner: String::new(), remaining: LEASE }
    }

    fn state(holder: Option<Holder>) -> LockState {
        LockState { holder, ..LockState::default() }
    }

    fn told(seen: &mut Seen) -> Vec<LockEvent> {
        seen.told.drain(..).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_ended_unseen_was_released_unless_its_lease_was_over() {
        for (passed, event) in [
            (Duration::ZERO, LockEvent::Released(Some(token(5)))),
            (LEASE.saturating_sub(Duration::from_millis(1)), LockEvent::Released(Some(token(5)))),
            (LEASE, LockEvent::Expired(token(5))),
        ] {
            let mut seen = Seen::default();
            seen.state(state(Some(holder(5))), Instant::now());
            assert_eq!(told(&mut seen), [LockEvent::Granted(holder(5))]);
            tokio::time::advance(passed).await;
            seen.state(state(None), Instant::now());
            assert_eq!(told(&mut seen), [event]);
            seen.state(state(None), Instant::now());
            assert_eq!(told(&mut seen), [], "it is told once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_is_no_event_and_moves_the_end() {
        let mut seen = Seen::default();
        seen.happened(LockEvent::Granted(holder(5)));
        assert_eq!(told(&mut seen).len(), 1);
        tokio::time::advance(LEASE / 2).await;
        seen.state(state(Some(holder(5))), Instant::now());
        assert_eq!(told(&mut seen), []);
        tokio::time::advance(LEASE / 2).await;
        seen.state(state(None), Instant::now());
        assert_eq!(told(&mut seen), [LockEvent::Released(Some(token(5)))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_word_about_somebody_else_changes_nothing() {
        let mut seen = Seen::default();
        seen.happened(LockEvent::Granted(holder(5)));
        told(&mut seen);
        for late in [
            LockEvent::Granted(holder(4)),
            LockEvent::Released(Some(token(4))),
            LockEvent::Expired(token(6)),
            LockEvent::Released(None),
        ] {
            seen.happened(late);
            assert_eq!(told(&mut seen), []);
        }
        seen.happened(LockEvent::Expired(token(5)));
        assert_eq!(told(&mut seen), [LockEvent::Expired(token(5))]);
        // What has ended does not begin again.
        seen.happened(LockEvent::Granted(holder(5)));
        assert_eq!(told(&mut seen), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_holder_ends_the_one_before() {
        let mut seen = Seen::default();
        seen.happened(LockEvent::Granted(holder(5)));
        told(&mut seen);
        seen.happened(LockEvent::Granted(holder(6)));
        let both = [LockEvent::Released(Some(token(5))), LockEvent::Granted(holder(6))];
        assert_eq!(told(&mut seen), both);
    }
}
