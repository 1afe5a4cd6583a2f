//! A connection's task, which goes on on another thread if it is served better there.
//!
//! Requests that share a connection, over HTTP/2, have tasks of their own, which stay where they are; of such a
//! connection no habit is known, and it does not move.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio_util::task::TaskTracker;

use crate::threads::{Habit, Lane, Seat, Threads};

struct Moving<F> {
    /// Gone once it has moved.
    connection: Option<Connection<F>>,
}

struct Connection<F> {
    serving: Pin<Box<F>>,
    habit: Habit,
    /// The habit for which it was given its seat.
    seated_for: Lane,
    seat: Seat,
    threads: Threads,
    tasks: TaskTracker,
}

/// Has a connection served where there is a place for it, and then wherever it belongs.
pub fn start<F: Future<Output = ()> + Send + 'static>(
    serving: F,
    threads: &Threads,
    tasks: &TaskTracker,
) {
    let habit = Habit::default();
    let connection = Connection {
        serving: Box::pin(serving),
        seated_for: habit.lane(),
        seat: threads.seat(),
        habit,
        threads: threads.clone(),
        tasks: tasks.clone(),
    };
    connection.go_on();
}

impl<F: Future<Output = ()> + Send + 'static> Connection<F> {
    /// On the thread of its seat.
    fn go_on(self) {
        let (tasks, runtime) = (self.tasks.clone(), self.seat.runtime.clone());
        tasks.spawn_on(Moving { connection: Some(self) }, &runtime);
    }

    /// Whether it has been given a seat on another thread.
    fn must_move(&mut self) -> bool {
        let lane = self.habit.lane();
        if lane == self.seated_for {
            return false;
        }
        self.seated_for = lane;
        let Some(better) = self.threads.better_seat(&self.seat, lane) else { return false };
        self.seat = better;
        true
    }
}

impl<F: Future<Output = ()> + Send + 'static> Future for Moving<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Elsewhere it is polled at once, so whatever it was woken for is not missed.
        if let Some(moves) = self.connection.take_if(Connection::must_move) {
            moves.go_on();
        }
        let Some(Connection { serving, habit, .. }) = &mut self.connection else {
            return Poll::Ready(());
        };
        habit.watch(|| serving.as_mut().poll(context))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::{Arc, Mutex},
    };

    use super::*;
    use crate::threads::{goes_by, place};

    /// What a connection does at each of its turns, and where it did so.
    fn places(threads: &Threads, tasks: &TaskTracker, turns: Vec<Lane>) -> Arc<Mutex<Vec<usize>>> {
        let been = Arc::new(Mutex::new(Vec::new()));
        let noted = been.clone();
        let mut turns = turns.into_iter();
        let serving = poll_fn(move |context| {
            let Some(lane) = turns.next() else { return Poll::Ready(()) };
            noted.lock().unwrap().push(place());
            goes_by(lane);
            context.waker().wake_by_ref();
            Poll::Pending
        });
        start(serving, threads, tasks);
        been
    }

    #[test]
    fn whoever_writes_goes_to_the_first_of_two_and_whoever_reads_where_there_is_room() {
        let (first, threads, _others) = Threads::start_on(2, 2).unwrap();
        let tasks = TaskTracker::new();
        let kept_by_another = threads.seat();
        assert_eq!(kept_by_another.place, 0);
        let turns = [(Lane::Own, 5), (Lane::Shared, 40), (Lane::Own, 40)];
        let turns = turns.into_iter().flat_map(|(lane, times)| vec![lane; times]).collect();
        let been = places(&threads, &tasks, turns);
        tasks.close();
        first.block_on(tasks.wait());
        let been = been.lock().unwrap();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for &place in &*been {
            match runs.last_mut() {
                Some((last, times)) if *last == place => *times += 1,
                _ => runs.push((place, 1)),
            }
        }
        // Five reads count against the writes, and eight more writes than reads are a habit; and back again.
        assert_eq!(runs, [(1, 5 + 13), (0, 27 + 16), (1, 24)]);
        drop(kept_by_another);
        let seats = [threads.seat(), threads.seat(), threads.seat()];
        assert_eq!(seats.map(|seat| seat.place), [0, 1, 0], "its seats are free again");
    }

    #[test]
    fn where_there_is_room_it_stays() {
        let (first, threads, _others) = Threads::start_on(3, 4).unwrap();
        let tasks = TaskTracker::new();
        let kept_by_another = threads.seat();
        let been = places(&threads, &tasks, vec![Lane::Shared; 40]);
        tasks.close();
        first.block_on(tasks.wait());
        assert_eq!(*been.lock().unwrap(), [1; 40]);
        drop(kept_by_another);
    }
}
