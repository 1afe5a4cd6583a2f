//! What can go wrong, and how it is made good again.

use std::{collections::BTreeMap, fmt, time::Duration};

use fastrand::Rng;
use nix::sys::signal::Signal;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::{
    it::harness::chaos_proxy::{ChaosProxy, Weather},
    plan::Standby,
    stage::{Locks, Stage},
    work,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SIGSTOP, for longer than a lease.
    FreezeClient,
    FreezeFencepost,
    /// SIGKILL, and another in its place.
    KillFencepost,
    /// An immediate shutdown, and recovery.
    KillPostgres,
    /// `pg_terminate_backend` for all of them, again and again.
    EndSessions,
    /// Somebody else's transaction holds rows, or the whole table.
    LockRows,
    LockTable,
    KillMember,
    FreezeMember,
    /// An older snapshot in place of what was there.
    RestoreEtcd,
    /// The way from the clients, to Postgres, or to etcd: cut, slow, dead, or deaf on one side.
    SpoilFront,
    SpoilStoreLink,
    SpoilEtcdLink,
    /// The standby takes over.
    FailOver,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FreezeClient => "client frozen",
            Self::FreezeFencepost => "fencepost frozen",
            Self::KillFencepost => "fencepost killed",
            Self::KillPostgres => "Postgres killed",
            Self::EndSessions => "sessions ended",
            Self::LockRows => "rows locked",
            Self::LockTable => "table locked",
            Self::KillMember => "etcd member killed",
            Self::FreezeMember => "etcd member frozen",
            Self::RestoreEtcd => "etcd restored from a snapshot",
            Self::SpoilFront => "client link spoiled",
            Self::SpoilStoreLink => "Postgres link spoiled",
            Self::SpoilEtcdLink => "etcd link spoiled",
            Self::FailOver => "failover to the standby",
        })
    }
}

impl Kind {
    /// Whether both can be there at once. A member that is frozen can neither be saved nor be asked.
    pub fn goes_with(self, other: Self) -> bool {
        let of_a_member =
            |kind| matches!(kind, Self::KillMember | Self::FreezeMember | Self::RestoreEtcd);
        self != other && !(of_a_member(self) && of_a_member(other))
    }
}

/// A fault that has struck, with what it takes to heal it.
struct Struck {
    kind: Kind,
    place: usize,
    blocker: Option<PgConnection>,
}

#[derive(Default)]
pub struct Nemesis {
    struck: Vec<Struck>,
    pub tally: BTreeMap<Kind, usize>,
}

impl Nemesis {
    /// What can happen on this stage.
    pub fn choices(stage: &Stage) -> Vec<Kind> {
        let mut kinds = vec![
            Kind::FreezeClient,
            Kind::FreezeFencepost,
            Kind::KillFencepost,
            Kind::KillPostgres,
            Kind::EndSessions,
            Kind::LockRows,
            Kind::LockTable,
            Kind::SpoilFront,
            Kind::SpoilStoreLink,
        ];
        if let Locks::Members(members) = &stage.locks {
            kinds.extend([Kind::KillMember, Kind::FreezeMember, Kind::SpoilEtcdLink]);
            if members.len() == 1 {
                kinds.push(Kind::RestoreEtcd);
            }
        }
        kinds
    }

    pub async fn strike(&mut self, kind: Kind, stage: &mut Stage, random: &mut Rng) {
        *self.tally.entry(kind).or_default() += 1;
        let mut struck = Struck { kind, place: 0, blocker: None };
        match kind {
            Kind::FreezeClient => {
                struck.place = random.usize(..stage.clients.len());
                stage.clients[struck.place].signal(Signal::SIGSTOP);
            }
            Kind::FreezeFencepost => {
                struck.place = random.usize(..stage.posts.len());
                if let Some(server) = &stage.posts[struck.place].server {
                    server.signal(Signal::SIGSTOP);
                }
            }
            Kind::KillFencepost => {
                struck.place = random.usize(..stage.posts.len());
                stage.posts[struck.place].server = None;
            }
            Kind::KillPostgres => stage.postgres.stop("immediate").await,
            Kind::EndSessions => end_sessions(&stage.url()).await,
            Kind::LockRows => {
                let key = work::chain(&work::lock(0));
                let sql = "SELECT FROM fencepost.resources WHERE key >= '{}' LIMIT 8 FOR UPDATE";
                struck.blocker = block(&stage.url(), &sql.replace("{}", &key)).await;
            }
            Kind::LockTable => {
                let sql = "LOCK TABLE fencepost.resources IN ACCESS EXCLUSIVE MODE";
                struck.blocker = block(&stage.url(), sql).await;
            }
            Kind::KillMember | Kind::FreezeMember | Kind::RestoreEtcd => {
                struck.place = harm_member(kind, stage, random);
            }
            Kind::SpoilFront | Kind::SpoilStoreLink | Kind::SpoilEtcdLink => {
                struck.place = random.usize(..stage.posts.len());
                let weather = weather(random);
                for link in links(kind, stage, struck.place) {
                    link.set(weather);
                }
            }
            Kind::FailOver => {
                if let Some(standby) = &stage.standby {
                    // What is acknowledged from now on, the standby never hears of.
                    standby.link.set(Weather::Cut);
                    tokio::time::sleep(Duration::from_millis(random.u64(100..800))).await;
                }
                stage.fail_over().await;
            }
        }
        self.struck.push(struck);
    }

    /// Makes everything good again that has struck, the last first.
    pub async fn heal(&mut self, stage: &mut Stage) {
        while let Some(struck) = self.struck.pop() {
            match struck.kind {
                Kind::FreezeClient => stage.clients[struck.place].signal(Signal::SIGCONT),
                Kind::FreezeFencepost => {
                    if let Some(server) = &stage.posts[struck.place].server {
                        server.signal(Signal::SIGCONT);
                    }
                }
                Kind::KillFencepost => stage.start_posts(),
                Kind::KillPostgres => stage.postgres.run().await,
                Kind::EndSessions | Kind::FailOver => {}
                Kind::LockRows | Kind::LockTable => drop(struck.blocker),
                Kind::KillMember | Kind::FreezeMember | Kind::RestoreEtcd => {
                    heal_member(struck.kind, struck.place, stage).await;
                }
                Kind::SpoilFront | Kind::SpoilStoreLink | Kind::SpoilEtcdLink => {
                    for link in links(struck.kind, stage, struck.place) {
                        link.set(Weather::Fair);
                    }
                }
            }
        }
    }
}

fn weather(random: &mut Rng) -> Weather {
    match random.u8(..5) {
        0 => Weather::Cut,
        1 => Weather::Stalled,
        2 => Weather::AnswersStalled,
        3 => Weather::RequestsStalled,
        _ => Weather::Delayed(Duration::from_millis(random.u64(20..400))),
    }
}

fn links(kind: Kind, stage: &Stage, place: usize) -> Vec<&ChaosProxy> {
    let post = &stage.posts[place];
    match kind {
        Kind::SpoilFront => vec![&post.front],
        Kind::SpoilStoreLink => vec![&post.to_store],
        _ => post.to_members.iter().collect(),
    }
}

/// A database that is down has nothing to be locked.
async fn block(url: &str, sql: &str) -> Option<PgConnection> {
    let mut connection = PgConnection::connect(url).await.ok()?;
    let begin = format!("SET lock_timeout = '2s'; BEGIN; {sql}");
    sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut connection).await.ok()?;
    Some(connection)
}

async fn end_sessions(url: &str) {
    for _ in 0..5 {
        if let Ok(mut connection) = PgConnection::connect(url).await {
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE application_name = 'fencepost'";
            let _ = sqlx::raw_sql(sql).execute(&mut connection).await;
        }
        // Time for them to come back, so that each round meets them at other work.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn harm_member(kind: Kind, stage: &mut Stage, random: &mut Rng) -> usize {
    let Locks::Members(members) = &mut stage.locks else { return 0 };
    let place = random.usize(..members.len());
    let member = &mut members[place];
    match kind {
        Kind::KillMember => member.kill(),
        Kind::FreezeMember if member.is_running() => member.signal(Signal::SIGSTOP),
        Kind::RestoreEtcd if member.is_running() => {
            // The snapshot is of now, the loss is of what comes until it is restored.
            member.save_snapshot();
        }
        _ => {}
    }
    place
}

async fn heal_member(kind: Kind, place: usize, stage: &mut Stage) {
    let Locks::Members(members) = &mut stage.locks else { return };
    let member = &mut members[place];
    match kind {
        Kind::FreezeMember if member.is_running() => member.signal(Signal::SIGCONT),
        Kind::RestoreEtcd if member.snapshot().exists() => {
            member.kill();
            member.restore(&member.snapshot());
            let _ = std::fs::remove_file(member.snapshot());
            member.run().await;
        }
        _ if member.is_running() => {}
        _ => member.run().await,
    }
}

/// When it comes to a failover, if there is a standby.
pub fn fails_over(standby: Standby) -> bool {
    standby != Standby::None
}
