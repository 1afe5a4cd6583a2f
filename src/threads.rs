//! The threads that serve. Each has a runtime of its own, and takes no work from another.
//!
//! A connection stays on the thread that it was given to, and so do the reads that it asks for. Threads
//! that shared their work would have to wake each other for every answer, and that costs more than it
//! brings, until one of them is too busy. What they do share is the lane that writes, since one batch is
//! better than two: it hands its answers over together (`engine/delivery.rs`).

use std::{cell::Cell, future::pending, io, sync::Arc, thread};

use tokio::runtime::{Builder, Handle, Runtime};

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

/// Where a connection is served, for as long as it lasts.
pub struct Seat {
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
        let connections = |thread: &&Thread| Arc::strong_count(&thread.connections);
        let thread = self.0.iter().min_by_key(connections).expect("there is always the first");
        Seat { runtime: thread.runtime.clone(), connection: thread.connections.clone() }
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
            first.block_on(found).unwrap()
        };
        let [one, other, third] = [threads.seat(), threads.seat(), threads.seat()];
        assert_eq!([&one, &other, &third].map(place_of), [0, 1, 0]);
        drop((one, third));
        assert_eq!([place_of(&threads.seat()), place_of(&threads.seat())], [0, 0]);
        drop(other);
    }
}
