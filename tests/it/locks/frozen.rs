//! The story that fencing is for: holders that freeze past their leases, wake up, and go on as if
//! nothing had happened. A counter that everybody reads, adds to and writes back under the lock
//! loses no acknowledged update, as long as reads and writes carry the token.

use std::{sync::Arc, time::Duration};

use tokio::sync::Barrier;

use crate::harness::{
    authority::on_each_authority,
    fencepost::Fencepost,
    http::{Client, answer},
};

/// The shortest that every authority grants.
const LEASE: Duration = Duration::from_secs(2);

const WORKERS: usize = 6;
const ROUNDS: usize = 4;

/// A token that everybody has is no fence at all.
const NO_FENCE: i64 = 1 << 40;

#[derive(Clone, Copy, Default)]
struct Tally {
    acknowledged: u64,
    fenced_off: u64,
}

async fn work(client: Client, number: usize, fenced: bool, start: Arc<Barrier>) -> Tally {
    start.wait().await;
    let mut tally = Tally::default();
    for round in 0..ROUNDS {
        let lock = client.lock("lock", LEASE).await;
        let token = if fenced { lock } else { NO_FENCE };
        let scope = if fenced { "lock" } else { "counter" };
        let read = client.read("counter").header("X-Fencing-Token", token);
        let read = answer(read.header("X-Fencing-Scope", scope)).await;
        let count = match read.status {
            200 => read.text().parse::<u64>().unwrap(),
            404 => 0,
            409 => {
                tally.fenced_off += 1;
                continue;
            }
            _ => panic!("{}", read.text()),
        };
        // Every third time it freezes, and does not know.
        if (number + round).is_multiple_of(3) {
            tokio::time::sleep(LEASE + Duration::from_millis(1700)).await;
        }
        let write = client.put("counter", token, "").header("X-Fencing-Scope", scope);
        let written = answer(write.body((count + 1).to_string())).await;
        match written.status {
            200 | 201 => tally.acknowledged += 1,
            409 => tally.fenced_off += 1,
            _ => panic!("{}", written.text()),
        }
        answer(client.release("lock", lock)).await;
    }
    tally
}

/// What the workers were told, and what is in the counter in the end.
async fn run(clients: &[Client], fenced: bool) -> (Tally, u64) {
    let start = Arc::new(Barrier::new(WORKERS));
    let workers = (0..WORKERS)
        .zip(clients.iter().cycle())
        .map(|(number, client)| tokio::spawn(work(client.clone(), number, fenced, start.clone())));
    let mut sum = Tally::default();
    for worker in workers.collect::<Vec<_>>() {
        let tally = worker.await.unwrap();
        sum.acknowledged += tally.acknowledged;
        sum.fenced_off += tally.fenced_off;
    }
    (sum, answer(clients[0].read("counter")).await.text().parse().unwrap())
}

on_each_authority! {
    async fn no_acknowledged_update_is_lost(authority: TestAuthority) {
        let servers = [authority.fencepost().await, authority.fencepost().await];
        let (tally, counter) = run(&servers.each_ref().map(Fencepost::client), true).await;
        assert_eq!(counter, tally.acknowledged);
        assert!(tally.fenced_off > 0, "nobody was ever frozen: the test shows nothing");
        assert!(tally.acknowledged > 0);
    }
}

on_each_authority! {
    /// The same without a fence. If this lost nothing, the test above would show nothing.
    async fn without_a_fence_updates_are_lost(authority: TestAuthority) {
        let server = authority.fencepost_with(&["--trust", "open"]).await;
        let (tally, counter) = run(&[server.client()], false).await;
        assert!(counter < tally.acknowledged, "{counter} of {}", tally.acknowledged);
    }
}
