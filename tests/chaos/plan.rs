//! What a round is about: all of it follows from its seed.

use std::fmt;

use fastrand::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// Three members of etcd.
    Cluster,
    /// One, which can be restored from a snapshot.
    Etcd,
    /// The lock table.
    Table,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Alone, or with a standby that follows.
    Postgres(Standby),
    /// A file, which one fencepost has for itself.
    Sqlite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standby {
    None,
    Synchronous,
    Asynchronous,
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub authority: Authority,
    pub store: Store,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks = match self.authority {
            Authority::Cluster => "three etcd members",
            Authority::Etcd => "one etcd",
            Authority::Table => "the lock table",
        };
        let store = match self.store {
            Store::Postgres(Standby::None) => "Postgres alone",
            Store::Postgres(Standby::Synchronous) => "Postgres with a synchronous standby",
            Store::Postgres(Standby::Asynchronous) => "Postgres with an asynchronous standby",
            Store::Sqlite => "SQLite",
        };
        write!(f, "seed {}: {locks}, {store}", self.seed)
    }
}

impl Plan {
    /// The first dozen seeds go through all there is.
    pub fn of(seed: u64) -> Self {
        let authority = match seed % 3 {
            0 => Authority::Cluster,
            1 => Authority::Etcd,
            _ => Authority::Table,
        };
        let store = match seed / 3 % 4 {
            0 => Store::Postgres(Standby::None),
            1 => Store::Postgres(Standby::Synchronous),
            2 => Store::Postgres(Standby::Asynchronous),
            _ if authority == Authority::Table => Store::Sqlite,
            _ => Store::Postgres(Standby::None),
        };
        Self { seed, authority, store }
    }

    pub fn standby(&self) -> Standby {
        match self.store {
            Store::Postgres(standby) => standby,
            Store::Sqlite => Standby::None,
        }
    }

    /// Where every choice of the round comes from.
    pub fn dice(&self) -> Rng {
        Rng::with_seed(self.seed)
    }
}
