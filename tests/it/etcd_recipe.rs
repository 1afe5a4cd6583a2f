//! A real `etcdctl lock` and Fencepost exclude each other, in both directions and in order.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use fencepost::{
    authority::{Authority, Turn},
    token::Key,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    etcd_locks::{acquire, ask},
    harness::{
        PATIENCE,
        etcd::{self, Etcd, unique_key},
        eventually, spawn_bound_to_us,
        store::TestStore,
    },
};

/// `etcdctl lock NAME`: prints its key when it has the lock, and holds it until it is told to stop.
struct EtcdctlLock {
    process: Child,
    keys: mpsc::Receiver<String>,
}

impl EtcdctlLock {
    fn start(etcd: &Etcd, name: &Key) -> Self {
        let mut command = etcd.ctl_command();
        command.args(["lock", "--ttl", "60", name.as_str()]).stdout(Stdio::piped());
        let mut process = spawn_bound_to_us(command).expect("etcdctl starts");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let (sender, keys) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { process, keys }
    }

    async fn key(&self) -> String {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            if let Ok(key) = self.keys.try_recv() {
                return key;
            }
            assert!(std::time::Instant::now() < deadline, "etcdctl never got the lock");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn has_the_lock(&self) -> bool {
        self.keys.try_recv().is_ok()
    }

    fn stop(mut self) {
        kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGINT).expect("it runs");
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn etcdctl_and_fencepost_take_turns_in_the_order_they_came() {
    let (etcd, held) = (etcd::shared().await, TestStore::sqlite());
    let authority = Arc::new(etcd::authority(etcd, &held.open().await));
    let name = unique_key("turns");
    let entries = || etcd.entries(name.as_str());

    let first = EtcdctlLock::start(etcd, &name);
    let key = first.key().await;
    let state = authority.inspect(&name).await.expect("a state");
    let holder = state.holder.expect("a holder");
    assert_eq!((key, holder.token.get()), entries()[0].clone());
    assert_eq!(holder.owner, "");
    let refused = authority.acquire(&ask(&name, "us", Duration::ZERO)).await.expect("an answer");
    let Turn::Held(Some(told)) = refused else { panic!("{refused:?}") };
    assert_eq!((told.token, told.owner), (holder.token, holder.owner));

    // In the queue, one after the other: us, etcdctl, us.
    let wait = || {
        let (authority, name) = (authority.clone(), name.clone());
        tokio::spawn(async move { acquire(&authority, &name, PATIENCE).await })
    };
    let second = wait();
    eventually("the second waits", || async { entries().len() == 2 }).await;
    let third = EtcdctlLock::start(etcd, &name);
    eventually("the third waits", || async { entries().len() == 3 }).await;
    let fourth = wait();
    eventually("the fourth waits", || async { entries().len() == 4 }).await;
    let places: Vec<i64> = entries().iter().map(|(_, created)| *created).collect();
    assert!(!second.is_finished() && !third.has_the_lock());

    first.stop();
    let second = second.await.expect("no panic");
    assert_eq!(second.token.get(), places[1]);
    assert!(!third.has_the_lock() && !fourth.is_finished());

    assert!(authority.release(&name, second.token).await.expect("an answer"));
    assert_eq!(third.key().await, entries()[0].0);
    assert_eq!(entries()[0].1, places[2]);
    assert!(!fourth.is_finished());

    third.stop();
    assert_eq!(fourth.await.expect("no panic").token.get(), places[3]);
}
