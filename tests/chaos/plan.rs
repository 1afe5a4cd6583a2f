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
pub enum Standby {
    None,
    Synchronous,
    Asynchronous,
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub authority: Authority,
    pub standby: Standby,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks = match self.authority {
            Authority::Cluster => "three etcd members",
            Authority::Etcd => "one etcd",
            Authority::Table => "the lock table",
        };
        let standby = match self.standby {
            Standby::None => "no standby",
            Standby::Synchronous => "a synchronous standby",
            Standby::Asynchronous => "an asynchronous standby",
        };
        write!(f, "seed {}: {locks}, {standby}", self.seed)
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
        let standby = match seed / 3 % 4 {
            0 | 3 => Standby::None,
            1 => Standby::Synchronous,
            _ => Standby::Asynchronous,
        };
        Self { seed, authority, standby }
    }

    /// Where every choice of the round comes from.
    pub fn dice(&self) -> Rng {
        Rng::with_seed(self.seed)
    }
}
