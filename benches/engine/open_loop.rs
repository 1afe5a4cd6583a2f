//! The load for latencies: requests come at a fixed average rate, at random, whether those before
//! them have been answered or not. Each latency counts from when its request was due. So a server
//! that stalls is charged for all who would have come meanwhile (a closed loop would just send less:
//! "coordinated omission"). `pgbench --rate` does the same.

use std::{
    io,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{
    cpu::{self, Cast, Window},
    plan::Plan,
    run::{Latencies, Run},
    template::Template,
    wire::{BlockingConnection, Protocol},
};

pub fn run(
    plan: &Plan,
    address: &str,
    cast: &Cast,
    connections: usize,
    rate: f64,
    keys: u64,
) -> io::Result<Run> {
    let open = |_| BlockingConnection::open(address, Protocol::Http(200));
    let connections = (0..connections).map(open).collect::<io::Result<Vec<_>>>()?;
    let window = Window::after(plan.warm, plan.run);
    let schedule = &Schedule { rate, next: Mutex::new(Instant::now()), window };
    thread::scope(|scope| {
        let workers: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(move || serve(connection, address, schedule, keys)))
            .collect();
        let cpu = cpu::during(window, std::process::id(), cast);
        let mut latencies = Latencies::new();
        for worker in workers {
            latencies.add(&worker.join().expect("a worker does not panic")?);
        }
        Ok(Run::new(&latencies, plan.run, cpu))
    })
}

/// When the next request is due; whoever is free takes it.
struct Schedule {
    rate: f64,
    next: Mutex<Instant>,
    window: Window,
}

impl Schedule {
    fn take(&self) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let due = *next;
        // Arrivals that know nothing of each other: the gaps between them are exponential.
        let gap = -(1.0 - fastrand::f64()).ln() / self.rate;
        *next += Duration::from_secs_f64(gap);
        due
    }
}

fn serve(
    mut connection: BlockingConnection,
    address: &str,
    schedule: &Schedule,
    keys: u64,
) -> io::Result<Latencies> {
    let mut template = Template::put(address);
    let mut latencies = Latencies::new();
    loop {
        let due = schedule.take();
        if due >= schedule.window.until {
            return Ok(latencies);
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        connection.exchange(template.fill(fastrand::u64(..keys)))?;
        if schedule.window.contains(due) {
            latencies.record(due.elapsed());
        }
    }
}
