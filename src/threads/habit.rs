//! What a connection is used for: that decides on which thread it is served best.
//!
//! The engine says by which lane a request goes, on the thread that runs the request's task. Whoever runs
//! that task looks at what was said meanwhile.

use std::cell::Cell;

/// So many more requests of one kind than of the other are a habit.
const ENOUGH: i8 = 8;

thread_local! {
    /// Requests that went by the shared lane, less those that did not, since somebody began to look.
    static SHARED: Cell<i8> = const { Cell::new(0) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// That of the writes, which is on the first thread.
    Shared,
    /// That of the thread that asks, or none at all.
    Own,
}

/// The task that runs now has a request that goes by this lane.
pub fn goes_by(lane: Lane) {
    let more = match lane {
        Lane::Shared => 1,
        Lane::Own => -1,
    };
    SHARED.set(SHARED.get().saturating_add(more));
}

#[derive(Debug)]
pub struct Habit {
    lane: Lane,
    /// Of the last requests, how many more went by the shared lane.
    shared: i8,
}

impl Default for Habit {
    fn default() -> Self {
        Self { lane: Lane::Own, shared: 0 }
    }
}

impl Habit {
    /// The lane that most of its requests go by.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Lets a task have its turn, and learns from what it does.
    pub fn watch<T>(&mut self, turn: impl FnOnce() -> T) -> T {
        SHARED.set(0);
        let done = turn();
        self.shared = self.shared.saturating_add(SHARED.get()).clamp(-ENOUGH, ENOUGH);
        match self.shared {
            ENOUGH => self.lane = Lane::Shared,
            shared if shared == -ENOUGH => self.lane = Lane::Own,
            _ => {}
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(habit: &mut Habit, lane: Lane, times: usize) {
        for _ in 0..times {
            habit.watch(|| goes_by(lane));
        }
    }

    #[test]
    fn a_habit_takes_some_time() {
        let mut habit = Habit::default();
        go(&mut habit, Lane::Shared, 7);
        assert_eq!(habit.lane(), Lane::Own);
        go(&mut habit, Lane::Shared, 1);
        assert_eq!(habit.lane(), Lane::Shared);
        // However long it has lasted.
        go(&mut habit, Lane::Shared, 1000);
        go(&mut habit, Lane::Own, 15);
        assert_eq!(habit.lane(), Lane::Shared);
        go(&mut habit, Lane::Own, 1);
        assert_eq!(habit.lane(), Lane::Own);
    }

    #[test]
    fn now_this_and_now_that_is_no_habit() {
        let mut habit = Habit::default();
        for _ in 0..1000 {
            go(&mut habit, Lane::Shared, 3);
            go(&mut habit, Lane::Own, 3);
        }
        assert_eq!(habit.lane(), Lane::Own);
    }

    #[test]
    fn what_others_do_on_the_thread_does_not_count() {
        let mut habit = Habit::default();
        for _ in 0..100 {
            goes_by(Lane::Shared);
            habit.watch(|| ());
        }
        assert_eq!(habit.lane(), Lane::Own);
        // Several requests in one turn do.
        habit.watch(|| (0..300).for_each(|_| goes_by(Lane::Shared)));
        assert_eq!(habit.lane(), Lane::Shared);
    }
}
