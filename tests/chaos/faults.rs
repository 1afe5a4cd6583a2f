//! How things go wrong, and how they are made good again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use fastrand::Rng;
use nix::sys::signal::Signal;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::{
    it::harness::{
        PATIENCE,
        chaos_proxy::{ChaosProxy, Weather},
    },
    kind::Kind,
    network::{self, Lost},
    stage::{Locks, Stage},
    work,
};

/// A fault that has struck, with what it takes to heal it.
struct Struck {
    kind: Kind,
    place: usize,
    blocker: Option<PgConnection>,
    lost: Lost,
}

#[derive(Default)]
pub struct Nemesis {
    struck: Vec<Struck>,
    pub tally: BTreeMap<Kind, usize>,
}

impl Nemesis {
    pub async fn strike(&mut self, kind: Kind, stage: &mut Stage, random: &mut Rng) {
        *self.tally.entry(kind).or_default() += 1;
        let mut struck = Struck { kind, place: 0, blocker: None, lost: Lost::any(random) };
        struck.place = match kind {
            Kind::FreezeClient | Kind::JumpClientClock => random.usize(..stage.clients.len()),
            _ => random.usize(..stage.posts.len()),
        };
        match kind {
            Kind::FreezeClient => stage.clients[struck.place].signal(Signal::SIGSTOP),
            Kind::FreezeFencepost => signal(stage, struck.place, Signal::SIGSTOP),
            Kind::KillFencepost => stage.posts[struck.place].server = None,
            Kind::EndFencepost => signal(stage, struck.place, Signal::SIGTERM),
            Kind::KillPostgres => {
                if let Some(postgres) = &mut stage.postgres {
                    postgres.stop("immediate").await;
                }
            }
            Kind::EndSessions => {
                let how = if random.bool() { "pg_terminate_backend" } else { "pg_cancel_backend" };
                end_sessions(stage, how).await;
            }
            Kind::FailStatements => fail_statements(stage, random).await,
            Kind::LockRows => {
                let key = work::chain(&work::lock(0));
                let sql = "SELECT FROM fencepost.resources WHERE key >= '{}' LIMIT 8 FOR UPDATE";
                struck.blocker = block(stage, &sql.replace("{}", &key)).await;
            }
            Kind::LockTable => {
                let sql = "LOCK TABLE fencepost.resources IN ACCESS EXCLUSIVE MODE";
                struck.blocker = block(stage, sql).await;
            }
            Kind::FillDisk => fill_disk(stage, random).await,
            Kind::KillMember | Kind::FreezeMember | Kind::RestoreEtcd => {
                struck.place = harm_member(kind, stage, random);
            }
            Kind::PartitionMembers => {
                if let Locks::Members(_, hosts) = &stage.locks {
                    network::isolate(hosts, random.usize(..hosts.len()), random);
                }
            }
            Kind::SpoilFront | Kind::SpoilStoreLink | Kind::SpoilEtcdLink => {
                let weather = weather(random);
                for link in links(kind, stage, struck.place) {
                    link.set(weather);
                }
            }
            Kind::LoseAnswers => lose_answers(stage, struck.place, random).await,
            Kind::PartitionFront | Kind::PartitionStore | Kind::PartitionEtcd => {
                network::drop_packets(&ports(kind, stage, struck.place), struck.lost);
            }
            Kind::JumpDatabaseClock => stage.clock.jump(random),
            Kind::JumpFencepostClock => stage.posts[struck.place].clock.jump(random),
            Kind::JumpClientClock => stage.clients[struck.place].clock.jump(random),
            Kind::FailOver => fail_over(stage, random).await,
        }
        self.struck.push(struck);
    }

    /// Makes everything good again that has struck, the last first.
    pub async fn heal(&mut self, stage: &mut Stage) {
        while let Some(Struck { kind, place, blocker, lost }) = self.struck.pop() {
            match kind {
                Kind::FreezeClient => stage.clients[place].signal(Signal::SIGCONT),
                Kind::FreezeFencepost => signal(stage, place, Signal::SIGCONT),
                Kind::KillFencepost => stage.start_posts(),
                Kind::EndFencepost => replace(stage, place).await,
                Kind::KillPostgres => {
                    if let Some(postgres) = &mut stage.postgres {
                        postgres.run().await;
                    }
                }
                Kind::EndSessions | Kind::FailStatements | Kind::LoseAnswers | Kind::FailOver => {}
                Kind::LockRows | Kind::LockTable => drop(blocker),
                Kind::FillDisk => free_disk(stage).await,
                Kind::KillMember | Kind::FreezeMember | Kind::RestoreEtcd => {
                    heal_member(kind, place, stage).await;
                }
                Kind::PartitionMembers => network::join(),
                Kind::SpoilFront | Kind::SpoilStoreLink | Kind::SpoilEtcdLink => {
                    for link in links(kind, stage, place) {
                        if !matches!(lost, Lost::Answers) {
                            // What was on its way never arrives.
                            link.set(Weather::Cut);
                        }
                        link.set(Weather::Fair);
                    }
                }
                Kind::PartitionFront | Kind::PartitionStore | Kind::PartitionEtcd => {
                    network::pass_packets(&ports(kind, stage, place), lost);
                }
                Kind::JumpDatabaseClock => stage.clock.set(0),
                Kind::JumpFencepostClock => stage.posts[place].clock.set(0),
                Kind::JumpClientClock => stage.clients[place].clock.set(0),
            }
        }
    }
}

fn signal(stage: &Stage, place: usize, signal: Signal) {
    if let Some(server) = &stage.posts[place].server {
        server.signal(signal);
    }
}

/// One that was told to end does so, and another takes its place.
async fn replace(stage: &mut Stage, place: usize) {
    let post = &mut stage.posts[place];
    if let Some(server) = &mut post.server {
        while server.is_running() {
            // It says when it drains, and has a deadline for it.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    post.server = None;
    stage.start_posts();
}

fn weather(random: &mut Rng) -> Weather {
    match random.u8(..6) {
        0 => Weather::Cut,
        1 => Weather::Stalled,
        2 | 3 => Weather::AnswersStalled,
        4 => Weather::RequestsStalled,
        _ => Weather::Delayed(Duration::from_millis(random.u64(20..400))),
    }
}

/// Again and again, of one fencepost after the other: each time there is only what is just on its way.
async fn lose_answers(stage: &Stage, first: usize, random: &mut Rng) {
    let links: Vec<_> = stage.posts.iter().filter_map(|post| post.to_store.as_ref()).collect();
    for link in links.iter().cycle().skip(first).take(10) {
        link.set(Weather::AnswersStalled);
        // Long enough for what was asked to be committed.
        tokio::time::sleep(Duration::from_millis(random.u64(50..250))).await;
        link.set(Weather::Cut);
        link.set(Weather::Fair);
        // Time to come back, and to be asked for more.
        tokio::time::sleep(Duration::from_millis(random.u64(20..100))).await;
    }
}

fn links(kind: Kind, stage: &Stage, place: usize) -> Vec<&ChaosProxy> {
    let post = &stage.posts[place];
    match kind {
        Kind::SpoilFront | Kind::PartitionFront => vec![&post.front],
        Kind::SpoilStoreLink | Kind::PartitionStore => post.to_store.iter().collect(),
        _ => post.to_members.iter().collect(),
    }
}

fn ports(kind: Kind, stage: &Stage, place: usize) -> Vec<u16> {
    links(kind, stage, place).into_iter().map(ChaosProxy::port).collect()
}

/// A database that is down has nothing to be locked.
async fn block(stage: &Stage, sql: &str) -> Option<PgConnection> {
    let mut connection = PgConnection::connect(&stage.url()?).await.ok()?;
    let begin = format!("SET lock_timeout = '2s'; BEGIN; {sql}");
    sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut connection).await.ok()?;
    Some(connection)
}

async fn end_sessions(stage: &Stage, how: &str) {
    let Some(url) = stage.url() else { return };
    for _ in 0..5 {
        if let Ok(mut connection) = PgConnection::connect(&url).await {
            let sql = format!(
                "SELECT {how}(pid) FROM pg_stat_activity WHERE application_name = 'fencepost'"
            );
            let _ = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await;
        }
        // Time for them to come back, so that each round meets them at other work.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// As if there were no room for a row, now and then: whatever it belongs to is surely not applied. What
/// stays behind of it does nothing.
async fn fail_statements(stage: &Stage, random: &mut Rng) {
    let sql =
        "CREATE OR REPLACE FUNCTION public.luck() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                   IF random() < {} THEN RAISE disk_full; END IF;
                   RETURN true;
               END $$";
    // Not a trigger: with one more than its own, a fencepost would refuse to start.
    let strike = "ALTER TABLE fencepost.resources DROP CONSTRAINT IF EXISTS luck,
                  ADD CONSTRAINT luck CHECK (public.luck()) NOT VALID; COMMIT";
    let strike = format!("{}; {strike}", sql.replace("{}", "0.35"));
    let Some(mut connection) = block(stage, &strike).await else { return };
    // Long enough for everybody to meet it.
    tokio::time::sleep(Duration::from_millis(random.u64(500..1_200))).await;
    let heal = AssertSqlSafe(sql.replace("{}", "0"));
    sqlx::raw_sql(heal).execute(&mut connection).await.expect("statements succeed again");
}

/// Tables cannot grow; and if Postgres needs another file for its log, it cannot go on at all.
async fn fill_disk(stage: &Stage, random: &mut Rng) {
    stage.disk.fill();
    if let Some(url) = stage.url().filter(|_| random.bool())
        && let Ok(mut connection) = PgConnection::connect(&url).await
    {
        let _ = sqlx::raw_sql("SELECT pg_switch_wal()").execute(&mut connection).await;
    }
}

async fn free_disk(stage: &mut Stage) {
    stage.disk.free();
    let Some(postgres) = &mut stage.postgres else { return };
    let url = postgres.url("postgres");
    // It comes back by itself, unless even that needed room.
    let deadline = Instant::now() + PATIENCE;
    while PgConnection::connect(&url).await.is_err() {
        assert!(Instant::now() < deadline, "Postgres has room again, and does not come back");
        if !postgres.is_running() {
            return postgres.run().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn fail_over(stage: &mut Stage, random: &mut Rng) {
    if let Some(standby) = &stage.standby {
        // What is acknowledged from now on, the standby never hears of.
        standby.link.set(Weather::Cut);
        tokio::time::sleep(Duration::from_millis(random.u64(100..800))).await;
        // Whoever waits for the standby is told that it need not, or ended.
        match random.u8(..4) {
            0 => {}
            1 => end_sessions(stage, "pg_terminate_backend").await,
            _ => end_sessions(stage, "pg_cancel_backend").await,
        }
    }
    stage.fail_over().await;
}

fn harm_member(kind: Kind, stage: &mut Stage, random: &mut Rng) -> usize {
    let Locks::Members(members, _) = &mut stage.locks else { return 0 };
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
    let Locks::Members(members, _) = &mut stage.locks else { return };
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
