//! Atomics of the product, under every order of two or three threads.
//!
//! The product's own files are compiled here with Loom's atomics in place of the standard ones. Loom
//! knows no order stronger than acquire and release; where the product relies on one (its queue has
//! it), a lock stands in for the queue.

#[path = "../../src/server/in_flight.rs"]
mod in_flight;
#[path = "../../src/rejections/rest.rs"]
mod rest;

mod atomics {
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
}

use in_flight::InFlight;
use loom::{
    sync::{Arc, Condvar, Mutex},
    thread,
};
use rest::Rest;

/// Rung once or often before somebody waits, it wakes them once: as tokio's `notify_one`.
#[derive(Default)]
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn notify(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

struct Recorder {
    rest: Rest,
    arrived: Mutex<u32>,
    bell: Bell,
}

impl Recorder {
    fn new() -> Arc<Self> {
        Arc::new(Self { rest: Rest::new(), arrived: Mutex::new(0), bell: Bell::default() })
    }

    fn record(&self) {
        *self.arrived.lock().unwrap() += 1;
        if self.rest.interrupt() {
            self.bell.notify();
        }
    }

    /// As `keep` in `src/rejections.rs`, until so many have come.
    fn keep(&self, all: u32) {
        let mut taken = 0;
        while taken < all {
            self.rest.begin();
            if *self.arrived.lock().unwrap() == 0 {
                self.bell.wait();
            }
            self.rest.end();
            taken += std::mem::take(&mut *self.arrived.lock().unwrap());
        }
    }
}

/// If a bell could be missed, the recorder would wait for ever, which Loom reports as a deadlock.
#[test]
fn nothing_is_left_lying_while_the_recorder_rests() {
    let mut every_order = loom::model::Builder::new();
    // More changes of thread than that, where nobody blocks, would take hours.
    every_order.preemption_bound = Some(3);
    every_order.check(|| {
        let recorder = Recorder::new();
        let writers = [recorder.clone(), recorder.clone()];
        let threads = writers.map(|writer| thread::spawn(move || writer.record()));
        recorder.keep(2);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// The same, with the look before the rest: Loom finds what is missed.
#[test]
#[should_panic(expected = "deadlock")]
fn a_look_before_the_rest_would_miss_some() {
    loom::model(|| {
        let recorder = Recorder::new();
        let writer = recorder.clone();
        let thread = thread::spawn(move || writer.record());
        let nothing = *recorder.arrived.lock().unwrap() == 0;
        recorder.rest.begin();
        if nothing {
            recorder.bell.wait();
        }
        thread.join().unwrap();
    });
}

/// Two requests end, one later than the other, on processors of their own. A drain that sees both
/// gone must see the later end, or it would take the listener for quiet while somebody still uses it.
#[test]
fn whoever_sees_nothing_in_flight_sees_when_the_last_one_ended() {
    loom::model(|| {
        let requests = Arc::new(InFlight::new());
        requests.begin();
        requests.begin();
        let ends = [5, 7].map(|moment| {
            let requests = requests.clone();
            thread::spawn(move || requests.end(moment))
        });
        assert!(matches!(requests.quiet_since(), None | Some(7)));
        for end in ends {
            end.join().unwrap();
        }
        assert_eq!(requests.quiet_since(), Some(7));
    });
}

/// A request that begins when another has just ended hides that end for as long as it lasts.
#[test]
fn a_later_request_brings_its_own_end() {
    loom::model(|| {
        let requests = Arc::new(InFlight::new());
        requests.begin();
        let next = requests.clone();
        let thread = thread::spawn(move || {
            next.begin();
            next.end(9);
        });
        requests.end(4);
        assert!(matches!(requests.quiet_since(), None | Some(4 | 9)));
        thread.join().unwrap();
        assert_eq!(requests.quiet_since(), Some(9));
    });
}
