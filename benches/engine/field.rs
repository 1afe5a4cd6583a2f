//! Everybody who takes part, started: on free ports, in temporary directories, and gone with this
//! process however it ends. Whoever keeps something syncs it to disk before answering.

use std::{fs, io};

use etcd_client::{Txn, TxnOp};
use serde_json::json;

use super::{
    cpu::{self, Cast},
    guarded::Guarded,
    it::harness::{
        etcd::Etcd,
        fencepost::Fencepost,
        http::{Client, answer},
        postgres::{self, Postgres},
    },
    machine,
    own::Process,
    pgbench::{Pgbench, Script},
    plan::KEYS,
    redis::Redis,
    sql,
    template::{self, TOKEN},
};

/// One Postgres with one table, which all who write to Postgres share: so whatever becomes of it,
/// its bloat and its checkpoints, becomes of it for all of them.
pub struct Field {
    pub postgres: Durable,
    pub database: String,
    pub fencepost: Fencepost,
    /// Of the fencepost, before anybody asked it for anything.
    pub idle_mib: f64,
    pub plain: Process,
    pub noop: Process,
}

/// Those that do the same job on something other than Postgres.
pub struct Peers {
    pub redis: Redis,
    pub etcd: Etcd,
}

/// A Postgres with its defaults, but for the number of connections.
pub struct Durable(Postgres);

impl Durable {
    pub async fn start() -> Self {
        Self(Postgres::start(&["max_connections=400"]).await)
    }

    /// For more rows than fit into what Postgres takes by default, which is 128 MiB whatever the machine has. Its
    /// manual advises a quarter of the memory, and the log must have room for as many pages.
    pub async fn start_large() -> Self {
        let buffers = format!("shared_buffers={}MB", machine::memory_mib() / 4);
        Self(Postgres::start(&["max_connections=400", &buffers, "max_wal_size=8GB"]).await)
    }

    /// A new database with so many resources in it: its URL.
    pub async fn seeded(&self, keys: u64) -> String {
        let database = self.0.database("").await;
        // Its schema comes by the front door.
        drop(serving(&database).await);
        let seed = sql::with(sql::SEED, &[("keys", &keys.to_string())]);
        postgres::execute(&database, &seed).await;
        postgres::execute(&database, "VACUUM (ANALYZE) fencepost.resources").await;
        postgres::execute(&database, "CHECKPOINT").await;
        database
    }

    pub fn pid(&self) -> u32 {
        let file = fs::read_to_string(self.0.data().join("postmaster.pid")).unwrap_or_default();
        file.lines().next().and_then(|pid| pid.parse().ok()).expect("Postgres runs")
    }

    /// Postgres, and those in front of it.
    pub fn behind(&self, proxies: &[u32]) -> Cast {
        Cast { proxies: proxies.to_vec(), database: Some(self.pid()) }
    }

    pub fn pgbench(&self, database: &str, script: Script) -> Pgbench {
        let database = postgres::name_of(database).to_owned();
        Pgbench { port: self.0.port(), database, script, rate: None }
    }
}

/// A fencepost with its default settings, and tokens from wherever.
pub async fn serving(database: &str) -> Fencepost {
    let server = Fencepost::start(database, &["--authority", "none"]);
    server.wait_until_ready().await;
    server
}

impl Field {
    pub async fn start() -> Self {
        let postgres = Durable::start().await;
        let database = postgres.seeded(KEYS).await;
        let fencepost = serving(&database).await;
        let idle_mib = cpu::resident_mib(fencepost.pid());
        let plain = Process::plain(&database);
        Self { postgres, database, fencepost, idle_mib, plain, noop: Process::noop() }
    }

    /// Lets the fencepost see every key's mark, so that its cache knows them all.
    pub async fn acquaint(&self) {
        acquaint(&self.fencepost.client()).await;
    }

    /// One more, for whom its clients must prove who they are. It knows every mark, too.
    pub async fn guarded(&self) -> Guarded {
        let guarded = Guarded::start(&self.database).await;
        acquaint(&guarded.client()).await;
        guarded
    }
}

pub async fn acquaint(client: &Client) {
    const AT_ONCE: u64 = 1000;
    for first in (0..KEYS).step_by(1000) {
        let write = |number| {
            // With its quotes as long as everybody's values.
            json!({"key": template::key(number), "token": TOKEN, "value": "v".repeat(198)})
        };
        let writes: Vec<_> = (first..first + AT_ONCE).map(write).collect();
        let answer = answer(client.batch(&json!({ "writes": writes }))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

impl Peers {
    pub async fn start() -> io::Result<Self> {
        let redis = Redis::start(KEYS).await;
        let etcd = Etcd::start(&["--unsafe-no-fsync=false"]).await;
        seed_etcd(&etcd.address()).await.map_err(io::Error::other)?;
        Ok(Self { redis, etcd })
    }
}

async fn seed_etcd(address: &str) -> Result<(), etcd_client::Error> {
    /// The most that etcd takes in one transaction.
    const AT_ONCE: u64 = 128;
    let mut client = etcd_client::Client::connect([address], None).await?;
    for first in (0..KEYS).step_by(128) {
        let numbers = first..(first + AT_ONCE).min(KEYS);
        let put = |number| TxnOp::put(template::key(number), template::etcd_value(), None);
        client.txn(Txn::new().and_then(numbers.map(put).collect::<Vec<_>>())).await?;
    }
    Ok(())
}
