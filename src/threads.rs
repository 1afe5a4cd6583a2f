//! The threads that serve. Each has a runtime of its own, and takes no work from another.
//!
//! A connection stays on the thread that it was given to, and so do the reads that it asks for. Threads
//! that shared their work would have to wake each other for every answer, and that costs more than it
//! brings, until one of them is too busy. What they do share is the lane that writes, since one batch is
//! better than two: it hands its answers over together (`engine/delivery.rs`).
//!
//! Where there are two, as on two processors, connections that write are all served on the first, where that
//! lane is, and move there (`server/moving.rs`). While Postgres has one processor, all the rest of a batch fits
//! on the other; a second thread would only get in Postgres's way. Reads, and refusals from memory, keep both
//! busy, and are dealt out.

mod habit;

use std::{cell::Cell, future::pending, io, sync::Arc, thread};

use tokio::runtime::{Builder, Handle, Runtime};

pub use self::habit::{Habit, Lane, goes_by};

thread_local! {
    static PLACE: Cell<usize> = const { Cell::new(0) };
}

#[derive(Clone)]
pub struct Threads(Arc<[Thread]>);

struct Thread {
    runtime: Handle,
    /// Each of its connections has one of these.
    connections: Arc<()>,
}

/// Where a connection is served, for as long as it has this.
pub struct Seat {
    pub place: usize,
    pub runtime: Handle,
    #[expect(dead_code, reason = "its count is what matters")]
    connection: Arc<()>,
}

impl Threads {
    /// So many of them. The first is the caller's, who runs it; the others run until the process ends.
    pub fn start(count: usize) -> io::Result<(Runtime, Self)> {
        let first = runtime()?;
        let mut threads = vec![Thread::of(first.handle())];
        for place in 1..count {
            let runtime = runtime()?;
            threads.push(Thread::of(runtime.handle()));
            thread::Builder::new().name(format!("serve-{place}")).spawn(move || {
                PLACE.set(place);
                runtime.block_on(pending::<()>());
            })?;
        }
        Ok((first, Self(threads.into())))
    }

    /// The runtime that this is called on, and no other.
    pub fn only_this() -> Self {
        Self([Thread::of(&Handle::current())].into())
    }

    /// Their runtimes, in order of their places.
    pub fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        self.0.iter().map(|thread| &thread.runtime)
    }

    /// Where there are the fewest connections.
    pub fn seat(&self) -> Seat {
        let fewest = (0..self.0.len()).min_by_key(|place| self.connections(*place));
        self.seat_at(fewest.expect("there is always the first"))
    }

    /// For a connection whose requests have come to go by this lane. Of two threads the first has all that
    /// use its own; and who does not, need not be there.
    pub fn better_seat(&self, now: &Seat, lane: Lane) -> Option<Seat> {
        if self.0.len() != 2 {
            return None;
        }
        match lane {
            Lane::Shared => (now.place != 0).then(|| self.seat_at(0)),
            Lane::Own => {
                let other = self.seat();
                (self.connections(other.place) < self.connections(now.place)).then_some(other)
            }
        }
    }

    fn connections(&self, place: usize) -> usize {
        Arc::strong_count(&self.0[place].connections) - 1
    }

    fn seat_at(&self, place: usize) -> Seat {
        let Thread { runtime, connections } = &self.0[place];
        Seat { place, runtime: runtime.clone(), connection: connections.clone() }
    }
}

impl Thread {
    fn of(runtime: &Handle) -> Self {
        Self { runtime: runtime.clone(), connections: Arc::default() }
    }
}

/// The place of the thread that this is called on, among those that serve.
pub fn place() -> usize {
    PLACE.get()
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_place_of_its_own() {
        let (first, threads) = Threads::start(3).unwrap();
        let places = threads.runtimes().map(|runtime| runtime.spawn(async { place() }));
        let places: Vec<_> = places.collect();
        let places = first.block_on(async {
            let mut found = Vec::new();
            for place in places {
                found.push(place.await.unwrap());
            }
            found
        });
        assert_eq!(places, [0, 1, 2]);
    }

    #[test]
    fn a_connection_goes_where_there_are_the_fewest() {
        let (first, threads) = Threads::start(2).unwrap();
        let place_of = |seat: &Seat| {
            let found = seat.runtime.spawn(async { place() });
            assert_eq!(first.block_on(found).unwrap(), seat.place);
            seat.place
        };
        let [one, other, third] = [threads.seat(), threads.seat(), threads.seat()];
        assert_eq!([&one, &other, &third].map(place_of), [0, 1, 0]);
        drop((one, third));
        assert_eq!([place_of(&threads.seat()), place_of(&threads.seat())], [0, 0]);
        drop(other);
    }

    #[test]
    fn of_two_the_first_has_all_that_use_its_lane() {
        let (_first, threads) = Threads::start(2).unwrap();
        let [one, other, third] = [(); 3].map(|()| threads.seat());
        let better = |seat: &Seat, lane| threads.better_seat(seat, lane).map(|seat| seat.place);
        let all = [&one, &other, &third];
        assert_eq!(all.map(|seat| better(seat, Lane::Shared)), [None, Some(0), None]);
        assert_eq!(all.map(|seat| better(seat, Lane::Own)), [None; 3], "they are dealt out");
        drop(other);
        assert_eq!([&one, &third].map(|seat| better(seat, Lane::Own)), [Some(1); 2]);
    }

    #[test]
    fn of_more_each_is_as_good() {
        for count in [1, 3] {
            let (_first, threads) = Threads::start(count).unwrap();
            let seats = [(); 4].map(|()| threads.seat());
            for lane in [Lane::Shared, Lane::Own] {
                assert!(seats.iter().all(|seat| threads.better_seat(seat, lane).is_none()));
            }
        }
    }
}
