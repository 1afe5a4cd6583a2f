//! The threads that serve. Each has a runtime of its own, and takes no work from another.
//!
//! A connection is dealt out to one of them, and the reads that it asks for stay there. Threads that shared their
//! work would have to wake each other for every answer, and that costs more than it brings, until one of
//! them is too busy. What they do share is the lane that writes, since one batch is better than two: it hands
//! its answers over together (`engine/delivery.rs`).
//!
//! On two processors, connections that write move to the first of two threads, where that lane is
//! (`server/moving.rs`). While Postgres has one processor, all the rest of a batch fits on the other; a second
//! thread would only get in Postgres's way. Reads, and refusals from memory, keep both busy.

mod habit;

use std::{cell::Cell, io, sync::Arc, thread};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

pub use self::habit::{Habit, Lane, goes_by};

thread_local! {
    static PLACE: Cell<usize> = const { Cell::new(0) };
}

#[derive(Clone)]
pub struct Threads {
    all: Arc<[Thread]>,
    processors: usize,
}

/// All but the first, which run by themselves.
pub struct Others {
    leave: CancellationToken,
    threads: Vec<thread::JoinHandle<()>>,
}

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
    /// So many of them. The first is the caller's, who runs it.
    pub fn start(count: usize) -> io::Result<(Runtime, Self, Others)> {
        Self::start_on(count, processors())
    }

    /// As on a machine with so many processors.
    pub fn start_on(count: usize, processors: usize) -> io::Result<(Runtime, Self, Others)> {
        let first = runtime()?;
        let mut all = vec![Thread::of(first.handle())];
        let mut others = Others { leave: CancellationToken::new(), threads: Vec::new() };
        for place in 1..count {
            let runtime = runtime()?;
            all.push(Thread::of(runtime.handle()));
            let leave = others.leave.clone();
            let serves = move || {
                PLACE.set(place);
                runtime.block_on(leave.cancelled());
                // Dropped, it would wait for what may block.
                runtime.shutdown_background();
            };
            let name = format!("serve-{place}");
            others.threads.push(thread::Builder::new().name(name).spawn(serves)?);
        }
        Ok((first, Self { all: all.into(), processors }, others))
    }

    /// The runtime that this is called on, and no other.
    pub fn only_this() -> Self {
        Self { all: [Thread::of(&Handle::current())].into(), processors: processors() }
    }

    /// Their runtimes, in order of their places.
    pub fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        self.all.iter().map(|thread| &thread.runtime)
    }

    /// Where there are the fewest connections.
    pub fn seat(&self) -> Seat {
        let fewest = (0..self.all.len()).min_by_key(|place| self.connections(*place));
        self.seat_at(fewest.expect("there is always the first"))
    }

    /// Whether a processor would be left for a second session that writes, beside us and the first. Else
    /// the two only take turns, where the database is on this machine; and where it is not, one session can do
    /// more than we can.
    pub fn have_room_for_two_lanes(&self) -> bool {
        self.processors > 2
    }

    /// Whether those who write are served on the first.
    fn gather_writers(&self) -> bool {
        self.all.len() == 2 && !self.have_room_for_two_lanes()
    }

    /// For a connection whose requests have come to go by this lane: the first thread is for all that use the
    /// one that is there; and who does not, need not be there.
    pub fn better_seat(&self, now: &Seat, lane: Lane) -> Option<Seat> {
        if !self.gather_writers() {
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
        Arc::strong_count(&self.all[place].connections) - 1
    }

    fn seat_at(&self, place: usize) -> Seat {
        let Thread { runtime, connections } = &self.all[place];
        Seat { place, runtime: runtime.clone(), connection: connections.clone() }
    }
}

impl Others {
    /// Returns when they have left, and whatever they were doing is dropped. A connection may have come from the
    /// first thread, and have timers there: so the first is to end last.
    pub fn end(self) {
        self.leave.cancel();
        for thread in self.threads {
            // One that has panicked has left as well.
            let _ = thread.join();
        }
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

fn processors() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_place_of_its_own() {
        let (first, threads, _others) = Threads::start(3).unwrap();
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
        let (first, threads, _others) = Threads::start(2).unwrap();
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
        let (_first, threads, _others) = Threads::start_on(2, 2).unwrap();
        let [one, other, third] = [(); 3].map(|()| threads.seat());
        let better = |seat: &Seat, lane| threads.better_seat(seat, lane).map(|seat| seat.place);
        let all = [&one, &other, &third];
        assert_eq!(all.map(|seat| better(seat, Lane::Shared)), [None, Some(0), None]);
        assert_eq!(all.map(|seat| better(seat, Lane::Own)), [None; 3], "they are dealt out");
        drop(other);
        assert_eq!([&one, &third].map(|seat| better(seat, Lane::Own)), [Some(1); 2]);
    }

    #[test]
    fn where_there_is_room_each_is_as_good() {
        for (count, processors) in [(1, 1), (3, 2), (2, 4)] {
            let (_first, threads, _others) = Threads::start_on(count, processors).unwrap();
            let seats = [(); 4].map(|()| threads.seat());
            for lane in [Lane::Shared, Lane::Own] {
                assert!(seats.iter().all(|seat| threads.better_seat(seat, lane).is_none()));
            }
        }
    }

    #[test]
    fn the_others_leave_and_drop_what_they_were_doing() {
        let (_first, threads, others) = Threads::start(3).unwrap();
        let doing = Arc::new(());
        for runtime in threads.runtimes().skip(1) {
            let doing = doing.clone();
            runtime.spawn(async move {
                std::future::pending::<()>().await;
                drop(doing);
            });
        }
        others.end();
        assert_eq!(Arc::strong_count(&doing), 1);
    }
}
