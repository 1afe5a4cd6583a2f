//! What a write costs as keys, connections and fenceposts become more. Cost should not grow.
//! And what it costs while the keys become more.

use super::{
    field::{Durable, Field, serving},
    it::harness::fencepost::Fencepost,
    names::{BY_CONNECTIONS, BY_KEYS, FENCEPOST, NEW_KEYS, PGBENCH, TWO},
    pgbench::Script,
    plan::{KEYS, Plan},
    scene::{Contender, Scene, Way},
    target::Target,
};

/// So many that hardly any is chosen twice.
const KEYS_WITHOUT_NUMBER: u64 = 1_000_000_000;

/// A database of its own that grows, with a fencepost before it. Others would feel its size.
pub struct Growing {
    database: String,
    pub fencepost: Fencepost,
}

impl Growing {
    pub async fn start(postgres: &Durable) -> Self {
        let database = postgres.seeded(KEYS).await;
        let fencepost = serving(&database).await;
        Self { database, fencepost }
    }

    pub fn scene(&self, postgres: &Durable, plan: &Plan) -> Scene {
        let contender = |name: &str, way, proxies: &[u32]| Contender {
            name: name.into(),
            way,
            cast: postgres.behind(proxies),
            clients: 64,
            keys: KEYS_WITHOUT_NUMBER,
        };
        let ours = Way::Closed(Target::puts_of_any_key(&self.fencepost.address));
        let theirs = Way::Pgbench(postgres.pgbench(&self.database, Script::Upsert));
        let contenders = vec![
            contender(FENCEPOST, ours, &[self.fencepost.pid()]),
            contender(PGBENCH, theirs, &[]),
        ];
        Scene { name: NEW_KEYS, rounds: plan.rounds, contenders }
    }
}

/// A database for each number of keys, with a fencepost before it.
pub struct Sizes {
    postgres: Durable,
    fields: Vec<(u64, String, Fencepost)>,
}

impl Sizes {
    pub async fn start(plan: &Plan) -> Self {
        let postgres = Durable::start_large().await;
        let mut fields = Vec::new();
        for &keys in plan.sizes {
            eprintln!("filling a table with {keys} keys");
            let database = postgres.seeded(keys).await;
            let fencepost = serving(&database).await;
            fields.push((keys, database, fencepost));
        }
        Self { postgres, fields }
    }

    pub fn scene(&self, plan: &Plan) -> Scene {
        let postgres = &self.postgres;
        let mut contenders = Vec::new();
        for (keys, database, fencepost) in &self.fields {
            let keys = *keys;
            let contender = |name: &str, way, proxies: &[u32]| Contender {
                name: by_keys(name, keys),
                way,
                cast: postgres.behind(proxies),
                clients: 64,
                keys,
            };
            let way = Way::Closed(Target::puts(&fencepost.address));
            contenders.push(contender(FENCEPOST, way, &[fencepost.pid()]));
            if !plan.quick {
                let pgbench = postgres.pgbench(database, Script::Upsert);
                contenders.push(contender(PGBENCH, Way::Pgbench(pgbench), &[]));
            }
        }
        Scene { name: BY_KEYS, rounds: plan.growth_rounds, contenders }
    }
}

pub fn by_keys(name: &str, keys: u64) -> String {
    format!("{name}, {keys} keys")
}

pub fn by_connections(connections: usize) -> String {
    format!("{FENCEPOST}, {connections} connections")
}

pub fn connections(field: &Field, plan: &Plan) -> Scene {
    let contender = |connections: &usize| Contender {
        name: by_connections(*connections),
        way: Way::Closed(Target::puts(&field.fencepost.address)),
        cast: field.postgres.behind(&[field.fencepost.pid()]),
        clients: *connections,
        keys: KEYS,
    };
    let contenders = plan.connections.iter().map(contender).collect();
    Scene { name: BY_CONNECTIONS, rounds: plan.growth_rounds, contenders }
}

/// One fencepost with all clients, and two with half of them each.
pub fn two(field: &Field, second: &Fencepost, plan: &Plan) -> Scene {
    let addresses = [&*field.fencepost.address, &*second.address];
    let proxies = [field.fencepost.pid(), second.pid()];
    let contender = |name: &str, count: usize| Contender {
        name: name.into(),
        way: Way::Closed(Target::puts_to(&addresses[..count])),
        cast: field.postgres.behind(&proxies[..count]),
        clients: 64,
        keys: KEYS,
    };
    let contenders = vec![contender("one", 1), contender("two", 2)];
    Scene { name: TWO, rounds: plan.growth_rounds, contenders }
}
