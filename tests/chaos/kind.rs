//! What can go wrong.

use std::fmt;

use crate::{
    plan::{Authority, Plan, Standby},
    stage::{Locks, Stage},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SIGSTOP, for longer than a lease.
    FreezeClient,
    FreezeFencepost,
    /// SIGKILL, and another in its place.
    KillFencepost,
    /// SIGTERM, and another in its place.
    EndFencepost,
    /// An immediate shutdown, and recovery.
    KillPostgres,
    /// `pg_terminate_backend` or `pg_cancel_backend` for all of them, again and again.
    EndSessions,
    /// Postgres fails one statement in three.
    FailStatements,
    /// Somebody else's transaction holds rows, or the whole table.
    LockRows,
    LockTable,
    /// Not one block is left where the store is.
    FillDisk,
    KillMember,
    FreezeMember,
    /// Packets between members of etcd are dropped: of one with all or with one, both ways or one way.
    PartitionMembers,
    /// An older snapshot in place of what was there.
    RestoreEtcd,
    /// The way from the clients, to Postgres, or to etcd: cut, slow, dead, or deaf on one side.
    SpoilFront,
    SpoilStoreLink,
    SpoilEtcdLink,
    /// Requests reach Postgres and are carried out; what it says is lost with the connection.
    LoseAnswers,
    /// The same ways, where packets are dropped: both ways, or only there, or only back.
    PartitionFront,
    PartitionStore,
    PartitionEtcd,
    /// An hour or some seconds, forth or back; and back again.
    JumpDatabaseClock,
    JumpFencepostClock,
    JumpClientClock,
    /// The standby takes over.
    FailOver,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FreezeClient => "client frozen",
            Self::FreezeFencepost => "fencepost frozen",
            Self::KillFencepost => "fencepost killed",
            Self::EndFencepost => "fencepost ended by SIGTERM",
            Self::KillPostgres => "Postgres killed",
            Self::EndSessions => "sessions ended or cancelled",
            Self::FailStatements => "statements failed",
            Self::LockRows => "rows locked",
            Self::LockTable => "table locked",
            Self::FillDisk => "disk full",
            Self::KillMember => "etcd member killed",
            Self::FreezeMember => "etcd member frozen",
            Self::PartitionMembers => "etcd members partitioned",
            Self::RestoreEtcd => "etcd restored from a snapshot",
            Self::SpoilFront => "client link spoiled",
            Self::SpoilStoreLink => "Postgres link spoiled",
            Self::SpoilEtcdLink => "etcd link spoiled",
            Self::LoseAnswers => "Postgres's answers lost",
            Self::PartitionFront => "fencepost partitioned from clients",
            Self::PartitionStore => "fencepost partitioned from Postgres",
            Self::PartitionEtcd => "fencepost partitioned from etcd",
            Self::JumpDatabaseClock => "Postgres's clock jumped",
            Self::JumpFencepostClock => "fencepost's clock jumped",
            Self::JumpClientClock => "client's clock jumped",
            Self::FailOver => "failover to the standby",
        })
    }
}

impl Kind {
    /// What can happen on this stage.
    pub fn choices(stage: &Stage) -> Vec<Self> {
        let mut kinds = vec![
            Self::FreezeClient,
            Self::FreezeFencepost,
            Self::KillFencepost,
            Self::EndFencepost,
            Self::FillDisk,
            Self::SpoilFront,
            Self::PartitionFront,
            Self::JumpFencepostClock,
            Self::JumpClientClock,
        ];
        if stage.postgres.is_some() {
            kinds.extend([
                Self::KillPostgres,
                Self::EndSessions,
                Self::FailStatements,
                Self::LockRows,
                Self::LockTable,
                Self::SpoilStoreLink,
                Self::LoseAnswers,
                Self::PartitionStore,
                Self::JumpDatabaseClock,
            ]);
        }
        if let Locks::Members(members, hosts) = &stage.locks {
            let of_etcd = [Self::KillMember, Self::FreezeMember, Self::SpoilEtcdLink];
            kinds.extend(of_etcd.into_iter().chain([Self::PartitionEtcd]));
            if members.len() == 1 {
                kinds.push(Self::RestoreEtcd);
            }
            if !hosts.is_empty() {
                kinds.push(Self::PartitionMembers);
            }
        }
        kinds
    }

    /// What a round on Postgres begins with. Both are over in a moment, and what they bring to light needs
    /// the right request just then: so no round is without them.
    pub fn opening(stage: &Stage) -> Vec<Self> {
        let kinds = stage.postgres.as_ref().map(|_| vec![Self::LoseAnswers, Self::FailStatements]);
        kinds.unwrap_or_default()
    }

    /// Whether both can be there at once.
    pub fn goes_with(self, other: Self) -> bool {
        // A member that is frozen or alone can neither be saved nor be asked.
        let of_a_member = |kind| {
            matches!(
                kind,
                Self::KillMember | Self::FreezeMember | Self::RestoreEtcd | Self::PartitionMembers
            )
        };
        // It could not be started again, or not be asked.
        let of_postgres =
            |kind| matches!(kind, Self::KillPostgres | Self::FillDisk | Self::FailStatements);
        // One that is frozen, or gone, does not listen.
        let of_a_fencepost =
            |kind| matches!(kind, Self::FreezeFencepost | Self::KillFencepost | Self::EndFencepost);
        // One of them would make the other good.
        let of_a_store_link = |kind| matches!(kind, Self::SpoilStoreLink | Self::LoseAnswers);
        let both = |of: &dyn Fn(Self) -> bool| of(self) && of(other);
        let apart: [&dyn Fn(Self) -> bool; 4] =
            [&of_a_member, &of_postgres, &of_a_fencepost, &of_a_store_link];
        self != other && !apart.into_iter().any(both)
    }

    /// Whether a lock can be lost by it before its time is up.
    pub fn shortens_leases(self, plan: &Plan) -> bool {
        match self {
            Self::RestoreEtcd | Self::FailOver => true,
            // Leases go by the clock of whoever keeps them.
            Self::JumpDatabaseClock | Self::JumpFencepostClock => {
                plan.authority == Authority::Table
            }
            _ => false,
        }
    }
}

/// When it comes to a failover, if there is a standby.
pub fn fails_over(standby: Standby) -> bool {
    standby != Standby::None
}
