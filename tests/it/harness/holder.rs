//! A holder that writes its own key over and over, whatever happens to the servers, and knows at
//! every moment what must be stored.
//!
//! What it demands of each answer:
//! - applied: the version has risen by exactly one, so nothing was applied twice or came late;
//! - not applied: it goes on with another value, and the version must not have moved;
//! - unknown, or no answer at all: it repeats the same seq until it knows. Only then may it be told
//!   that this is a replay.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    PATIENCE,
    http::{Answer, Client, insist},
};

/// Holders at work on one server, or on its successors.
pub struct Holders {
    shared: Arc<Shared>,
    tasks: Vec<tokio::task::JoinHandle<Holder>>,
}

struct Shared {
    client: Mutex<Client>,
    stop: AtomicBool,
    applied: AtomicU64,
    unknown: AtomicU64,
}

struct Holder {
    shared: Arc<Shared>,
    key: String,
    /// Where there is one, the store needs a transaction; without, a single statement.
    scope: Option<String>,
    seq: i64,
    version: i64,
    value: String,
    tally: Tally,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub applied: u64,
    pub not_applied: u64,
    pub unknown: u64,
}

enum Outcome {
    Applied { version: i64, replay: bool },
    NotApplied,
    Unknown,
}

const TOKEN: i64 = 7;

impl Holders {
    pub fn start(client: Client, count: usize) -> Self {
        let shared = Arc::new(Shared {
            client: Mutex::new(client),
            stop: AtomicBool::new(false),
            applied: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
        });
        let tasks = (0..count)
            .map(|number| {
                let key = format!("holder-{number}");
                let scope = (number % 2 == 1).then(|| format!("{key}/scope"));
                let holder = Holder {
                    shared: shared.clone(),
                    key,
                    scope,
                    seq: 0,
                    version: 0,
                    value: String::new(),
                    tally: Tally::default(),
                };
                tokio::spawn(holder.run())
            })
            .collect();
        Self { shared, tasks }
    }

    /// From now on they talk to another server.
    pub fn turn_to(&self, client: Client) {
        *self.shared.client.lock().expect("the client") = client;
    }

    /// Until so many more writes have been applied.
    pub async fn until_applied(&self, more: u64) {
        let goal = self.applied() + more;
        super::eventually("the holders get on", || async { self.applied() >= goal }).await;
    }

    /// Whether some write's outcome was unknown for a while.
    pub fn have_doubted(&self) -> bool {
        self.shared.unknown.load(Ordering::Relaxed) > 0
    }

    fn applied(&self) -> u64 {
        self.shared.applied.load(Ordering::Relaxed)
    }

    /// Ends their work, and checks that what is stored is what each of them last wrote.
    pub async fn finish(self) -> Tally {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut sum = Tally::default();
        for task in self.tasks {
            let holder = task.await.expect("a holder that is content");
            holder.check().await;
            sum.applied += holder.tally.applied;
            sum.not_applied += holder.tally.not_applied;
            sum.unknown += holder.tally.unknown;
        }
        sum
    }
}

impl Holder {
    async fn run(mut self) -> Self {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.write().await;
        }
        self
    }

    async fn write(&mut self) {
        self.seq += 1;
        let value = format!("{} wrote {}", self.key, self.seq);
        let mut in_doubt = false;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.attempt(&value).await {
                Outcome::Applied { version, replay } => {
                    assert!(!replay || in_doubt, "{value}: said not to be applied, and yet it was");
                    assert_eq!(version, self.version + 1, "{value}: applied other than once");
                    self.version = version;
                    self.value = value;
                    self.tally.applied += 1;
                    self.shared.applied.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Outcome::NotApplied => self.tally.not_applied += 1,
                Outcome::Unknown => {
                    in_doubt = true;
                    self.tally.unknown += 1;
                    self.shared.unknown.fetch_add(1, Ordering::Relaxed);
                }
            }
            assert!(Instant::now() < deadline, "{value}: never answered");
            tokio::time::sleep(Duration::from_millis(10)).await;
            if !in_doubt {
                return;
            }
        }
    }

    async fn attempt(&self, value: &str) -> Outcome {
        let client = self.client();
        let mut request = client.put(&self.key, TOKEN, "").header("X-Fencing-Seq", self.seq);
        if let Some(scope) = &self.scope {
            request = request.header("X-Fencing-Scope", scope);
        }
        let Ok(response) = request.body(value.to_owned()).send().await else {
            return Outcome::Unknown;
        };
        let answer = Answer::of(response).await;
        match answer.status {
            200 | 201 => Outcome::Applied {
                version: answer.json()["version"].as_i64().expect("a version"),
                replay: answer.header("x-fencing-replay").is_some(),
            },
            503 => Outcome::NotApplied,
            504 => Outcome::Unknown,
            _ => panic!("{value}: {}", answer.text()),
        }
    }

    async fn check(&self) {
        let stored = insist(self.client().read(&self.key)).await;
        assert_eq!(stored.text(), self.value, "the last write that was acknowledged");
        assert_eq!(stored.header("etag"), Some(format!("\"{}\"", self.version).as_str()));
    }

    fn client(&self) -> Client {
        self.shared.client.lock().expect("the client").clone()
    }
}
