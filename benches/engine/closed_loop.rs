//! The load for throughput: so many clients, each of which sends its next request when it has the
//! answer to the one before. It runs in threads of this process, which does nothing else meanwhile.

use std::{
    io,
    ops::Range,
    sync::{Barrier, OnceLock},
    thread,
    time::Instant,
};

use tokio::task::LocalSet;

use super::{
    cpu::{self, Cast, Window},
    plan::Plan,
    run::{Latencies, Run},
    target::{Client, Target},
};

/// As many as pgbench gets.
pub const THREADS: usize = 2;

pub fn run(
    plan: &Plan,
    target: &Target,
    cast: &Cast,
    clients: usize,
    keys: u64,
) -> io::Result<Run> {
    let threads = THREADS.min(clients);
    let start = Start { connected: Barrier::new(threads + 1), window: OnceLock::new() };
    let start = &start;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let numbers = thread * clients / threads..(thread + 1) * clients / threads;
                scope.spawn(move || work(plan, target, numbers, keys, start))
            })
            .collect();
        let cpu = cpu::during(start.together(plan), std::process::id(), cast);
        let mut latencies = Latencies::new();
        for worker in workers {
            latencies.add(&worker.join().expect("a worker does not panic")?);
        }
        Ok(Run::new(&latencies, plan.run, cpu))
    })
}

/// Nobody begins before everybody is connected.
struct Start {
    connected: Barrier,
    window: OnceLock<Window>,
}

impl Start {
    fn together(&self, plan: &Plan) -> Window {
        self.connected.wait();
        *self.window.get_or_init(|| Window::after(plan.warm, plan.run))
    }
}

/// One thread's share of the clients, from their connection to the end of the run.
fn work(
    plan: &Plan,
    target: &Target,
    numbers: Range<usize>,
    keys: u64,
    start: &Start,
) -> io::Result<Latencies> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = LocalSet::new();
    let connected = runtime.block_on(target.clients(numbers));
    let window = start.together(plan);
    let clients: Vec<_> = connected?
        .into_iter()
        .map(|client| tasks.spawn_local(go_round(client, keys, window)))
        .collect();
    tasks.block_on(&runtime, async {
        let mut latencies = Latencies::new();
        for client in clients {
            for latency in client.await.expect("a client does not panic")? {
                latencies.record(latency);
            }
        }
        Ok(latencies)
    })
}

async fn go_round(
    mut client: Client,
    keys: u64,
    window: Window,
) -> io::Result<Vec<std::time::Duration>> {
    let mut latencies = Vec::new();
    let mut begun = Instant::now();
    while begun < window.until {
        client.ask(fastrand::u64(..keys)).await?;
        let now = Instant::now();
        if window.contains(now) {
            latencies.push(now - begun);
        }
        begun = now;
    }
    Ok(latencies)
}
