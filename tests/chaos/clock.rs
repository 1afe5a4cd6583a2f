//! A clock that somebody else sets, for one process and those that it starts.
//!
//! By way of libfaketime, which stands between a program and its C library. It reaches Postgres, fencepost
//! and the clients, and not etcd, which asks the kernel itself. The monotonic clock stays as it is: it
//! jumps for nobody.

use std::{fs, path::PathBuf};

use fastrand::Rng;

use crate::it::harness::Surroundings;

pub struct Clock {
    path: PathBuf,
}

impl Clock {
    /// Its hands are in this file. Whoever goes by it must be able to read that.
    pub fn new(path: PathBuf) -> Self {
        let clock = Self { path };
        clock.set(0);
        clock
    }

    /// Whoever is started with it goes by this clock.
    pub fn surroundings(&self) -> Surroundings {
        let environment = vec![
            format!("LD_PRELOAD={}", library().display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.path.display()),
            "FAKETIME_NO_CACHE=1".into(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
            "NO_FAKE_STAT=1".into(),
        ];
        Surroundings { environment, ..Surroundings::default() }
    }

    /// An hour or a few seconds, forth or back.
    pub fn jump(&self, random: &mut Rng) {
        let seconds = if random.bool() { 3_600 } else { random.i64(1..10) };
        self.set(if random.bool() { seconds } else { -seconds });
    }

    /// The same time as everybody else's, or so many seconds from it.
    pub fn set(&self, seconds: i64) {
        let new = self.path.with_extension("new");
        fs::write(&new, format!("{seconds:+}\n")).expect("the clock is set");
        // In one step: nobody may find it empty.
        fs::rename(&new, &self.path).expect("the clock is set");
    }
}

fn library() -> PathBuf {
    let found = fs::read_dir("/usr/lib").ok().into_iter().flatten().flatten();
    let libraries = found.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    libraries.into_iter().find(|path| path.exists()).expect("faketime is there: run `make setup`")
}
