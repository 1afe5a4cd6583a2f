//! A client is a process: it can be stopped and killed like any other.

use std::{
    path::PathBuf,
    process::{Child, Stdio},
};

use nix::{sys::signal::Signal, unistd::Pid};
use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock,
    history::{Line, Recorder, lines_of},
    http::Fenceposts,
    it::harness::{bound_command_in, signals, spawn_bound_to_us},
    work::{Terms, Worker},
};

/// The first argument of a process that is to be a client.
pub const ROLE: &str = "be-a-client";

/// Holders in one process: they are frozen and killed together.
const WORKERS: u8 = 3;

/// What a client is told to do, as its second argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    pub name: String,
    pub seed: u64,
    pub addresses: Vec<String>,
    pub history: PathBuf,
    pub terms: Terms,
}

/// What the process does until it is killed.
pub async fn work(orders: &str) {
    let orders: Orders = serde_json::from_str(orders).expect("orders");
    let recorder = Recorder::in_file(&orders.history);
    let first = usize::try_from(orders.seed % 7).expect("a small number");
    let service = Fenceposts::new(orders.addresses, first);
    let workers = (0..WORKERS).map(|number| {
        let name = format!("{}{}", orders.name, char::from(b'a' + number));
        let seed = orders.seed.wrapping_add(number.into());
        let mut worker = Worker::new(&name, &service, &recorder, orders.terms, seed);
        async move {
            loop {
                worker.turn().await;
            }
        }
    });
    futures_util::future::join_all(workers).await;
}

pub struct Client {
    process: Child,
    history: PathBuf,
    pub clock: Clock,
}

impl Client {
    pub fn start(orders: &Orders, clock: Clock) -> Self {
        let us = std::env::current_exe().expect("our own path");
        let mut command = bound_command_in(&clock.surroundings(), us, None);
        command
            .args([ROLE, &serde_json::to_string(orders).expect("orders")])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let process = spawn_bound_to_us(command).expect("a client starts");
        Self { process, history: orders.history.clone(), clock }
    }

    pub fn signal(&self, signal: Signal) {
        signals::send(Pid::from_raw(self.process.id().cast_signed()), signal);
    }

    /// Whether it still does what it is told.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("it can be asked").is_none()
    }

    /// Kills it, whatever it holds, and returns what it has seen.
    pub fn end(mut self) -> Vec<Line> {
        let _ = self.process.kill();
        let _ = self.process.wait();
        lines_of(&self.history)
    }
}
