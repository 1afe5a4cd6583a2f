//! A fencepost that stores nothing: what remains of the cost of a lock when its claim, and what is
//! remembered of etcd, are free. It serves in a process of its own, as the others do.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytesize::ByteSize;
use fencepost::{
    api::{self, Api, Guarded, Public},
    authority::etcd::{EtcdAuthority, EtcdOptions, claimed_by},
    engine::{self, Engine, Trust},
    fence::{Judgement, Standing},
    finding::Finding,
    limits::{Bounds, Limits},
    locks::Locks,
    metrics::Metrics,
    server::{self, Drain},
    store::{
        Audit, Compacted, FloorState, Listed, LockNews, LockTable, Memory, Migrated, MoveReason,
        OwningAuthority, Page, Plan, Reading, Recalled, Remembered, Schema, Session, Settled,
        Sighting, Snapshot, Store, StoreError, Tokens, Unit,
    },
    threads::Threads,
    token::{Key, Mark},
    write::Rule,
};
use tokio::net::TcpListener;

pub const SERVE: &str = "--serve-unclaimed";

/// The process, which ends with this one.
pub struct Process {
    pub address: String,
    child: Child,
}

impl Process {
    pub fn start(etcd: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([SERVE, etcd])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut address = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut address).expect("its address");
        Self { address: address.trim().to_owned(), child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub async fn serve(etcd: &str) {
    let store: Arc<dyn Store> = Arc::new(Nothing::default());
    let options = EtcdOptions {
        members: vec![etcd.trim_start_matches("etcd://").to_owned()],
        tls: None,
        user: None,
        prefix: String::new(),
    };
    let authority = Arc::new(EtcdAuthority::start(options, &store));
    let limits = engine::Limits { queue: 1024, mark_cache: ByteSize::mib(16) };
    let metrics = Arc::new(Metrics::new(true, Arc::default()));
    let trust = Trust::Bounded(authority.clone());
    let engine =
        Arc::new(Engine::start(&store, trust, limits, metrics.clone(), &Threads::only_this()));
    engine.open();
    let (_never_begins, drain) = Drain::new(Duration::from_secs(1));
    let limits = Arc::new(Limits::new(Bounds::default(), None, engine.metrics().clone()));
    let locks = Locks::new(authority, engine.clone(), limits.clone(), drain.closing().clone());
    let api = Api::from(api::Shared {
        guarded: Guarded::new(engine, Some(locks)),
        gate: None,
        limits,
        on_loopback: true,
        rule: Rule::default(),
        max_body: ByteSize::mib(1),
        body_timeout: Duration::from_secs(30),
        closing: drain.closing().clone(),
    });
    let public = Public::new(api, metrics);
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::bind(anywhere).await.expect("a free port");
    println!("{}", listener.local_addr().expect("its address"));
    let limits = server::Limits {
        connections: 1024,
        turned_away: prometheus_client::metrics::counter::Counter::default(),
        by_identity: false,
        head: 128 << 10,
        header_timeout: Duration::from_secs(30),
        write_timeout: Duration::from_secs(30),
    };
    server::serve(listener, None, public, limits, drain, Threads::only_this()).await;
}

/// Says yes to every claim, and keeps in memory what is remembered of etcd.
#[derive(Default)]
struct Nothing {
    remembered: InMemory,
}

fn not_here<T>() -> Result<T, StoreError> {
    Err(StoreError::Unfit("nothing is stored here".into()))
}

#[async_trait]
impl Store for Nothing {
    async fn connect(&self) -> Result<Box<dyn Session>, StoreError> {
        Ok(Box::new(Agreeable))
    }
    async fn connect_impatiently(&self) -> Result<Box<dyn Session>, StoreError> {
        self.connect().await
    }
    async fn connect_lock_table(&self) -> Result<Box<dyn LockTable>, StoreError> {
        not_here()
    }
    async fn listen_to_locks(&self) -> Result<Option<Box<dyn LockNews>>, StoreError> {
        Ok(None)
    }
    async fn connect_memory(&self) -> Result<Box<dyn Memory>, StoreError> {
        Ok(Box::new(self.remembered.clone()))
    }
    async fn connect_audit(&self) -> Result<Box<dyn Audit>, StoreError> {
        not_here()
    }
    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
    async fn examine(&self, _: Plan) -> Vec<Finding> {
        Vec::new()
    }
    async fn tokens(&self) -> Result<Tokens, StoreError> {
        not_here()
    }
    async fn owning_authority(&self) -> Result<Option<OwningAuthority>, StoreError> {
        Ok(None)
    }
    async fn claim_authority(
        &self,
        wanted: &OwningAuthority,
    ) -> Result<OwningAuthority, StoreError> {
        Ok(wanted.clone())
    }
    async fn move_authority(
        &self,
        _: &OwningAuthority,
        _: Option<&Sighting>,
    ) -> Result<i64, StoreError> {
        not_here()
    }
    async fn schema(&self) -> Result<Schema, StoreError> {
        Ok(Schema::Current)
    }
    async fn migrate(&self) -> Result<Migrated, StoreError> {
        not_here()
    }
    async fn floor(&self, _: Reading) -> Result<FloorState, StoreError> {
        not_here()
    }
    async fn raise_floor(&self, _: i64, _: bool) -> Result<i64, StoreError> {
        not_here()
    }
    async fn plan_compaction(&self, _: Duration, _: i64) -> Result<Compacted, StoreError> {
        not_here()
    }
    async fn compact(
        &self,
        _: Duration,
        _: i64,
        _: &(dyn for<'a> Fn(&'a Compacted) + Send + Sync),
    ) -> Result<Compacted, StoreError> {
        not_here()
    }
    fn writers(&self) -> usize {
        2
    }
    fn lock_tables(&self) -> usize {
        0
    }
    fn gathers(&self) -> usize {
        256
    }
}

struct Agreeable;

#[async_trait]
impl Session for Agreeable {
    async fn settle(&mut self, units: &[Unit]) -> Vec<Result<Settled, StoreError>> {
        let agree = |unit: &Unit| {
            let mark = Mark::at(unit.writes()[0].token, None);
            let key = Standing { mark, ..Standing::default() };
            let judgement = Judgement::accepted(key);
            Ok(Settled::Applied { judgements: vec![judgement], value: None })
        };
        units.iter().map(agree).collect()
    }
    async fn read(&mut self, _: &Key, _: u64) -> Result<Snapshot, StoreError> {
        not_here()
    }
    async fn read_together(&mut self, _: &[Key], _: u64) -> Result<Vec<Snapshot>, StoreError> {
        not_here()
    }
    async fn list(&mut self, _: &Page) -> Result<Vec<Listed>, StoreError> {
        not_here()
    }
    async fn ping(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What is remembered, and the number of the etcd.
#[derive(Clone, Default)]
struct InMemory(Arc<Mutex<Option<Remembered>>>, Arc<Mutex<Option<String>>>);

impl InMemory {
    fn raise(&self, to: &Remembered) -> Remembered {
        let mut row = self.0.lock().expect("no panic while it is held");
        match &mut *row {
            Some(row) => row.seen.revision = row.seen.revision.max(to.seen.revision),
            None => *row = Some(to.clone()),
        }
        row.clone().expect("it has just been filled")
    }
}

#[async_trait]
impl Memory for InMemory {
    async fn recall(&mut self) -> Result<Option<Recalled>, StoreError> {
        let row = self.0.lock().expect("no panic while it is held").clone();
        Ok(row.map(|row| {
            let identity = Some(row.seen.cluster.clone());
            let instance = self.1.lock().expect("no panic while it is held").clone();
            let owner = OwningAuthority { identity, instance, ..claimed_by("") };
            Recalled { row, issued: 0, owner: Some(owner) }
        }))
    }
    async fn highest_token(&mut self) -> Result<i64, StoreError> {
        Ok(0)
    }
    async fn adopt(&mut self, first: &Remembered) -> Result<Remembered, StoreError> {
        Ok(self.raise(first))
    }
    async fn note(&mut self, epoch: u16, seen: &Sighting) -> Result<Remembered, StoreError> {
        Ok(self.raise(&Remembered { epoch, seen: seen.clone() }))
    }
    async fn move_on(
        &mut self,
        _: u16,
        _: &Remembered,
        _: MoveReason,
    ) -> Result<Remembered, StoreError> {
        not_here()
    }
    async fn claim_authority(
        &mut self,
        wanted: &OwningAuthority,
    ) -> Result<OwningAuthority, StoreError> {
        Ok(wanted.clone())
    }
    async fn claim_instance(
        &mut self,
        _: Option<&str>,
        found: &str,
        _: &Sighting,
    ) -> Result<Option<String>, StoreError> {
        *self.1.lock().expect("no panic while it is held") = Some(found.to_owned());
        Ok(Some(found.to_owned()))
    }
}
