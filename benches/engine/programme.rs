//! The scenes on the common field: writes, reads and refusals.

use super::{
    cpu::Cast,
    field::{Field, Peers},
    flood::Flood,
    guarded::Guarded,
    names::{
        ALONE, AT_64, BESIDE_404S, BESIDE_NOTHING, BESIDE_REFUSALS, ETCD, FENCED, FENCEPOST,
        FIXED_RATE, FLOODED, GATEWAY, GUARDED, NOOP, ONE_KEY, PGBENCH, PLAIN, READS, REDIS,
        REFUSALS, SCOPED, WRITES,
    },
    pgbench::Script,
    plan::{CONCURRENCY, KEYS, Plan},
    scene::{Contender, Rate, Scene, Way},
    target::Target,
};

/// Enough to be busy, and little enough that pgbench does not drown.
const SHARE: f64 = 0.7;

/// Accepted writes a second beside a flood: what a busy holder does, and far from what the machine can.
const BESIDE_A_FLOOD: f64 = 500.0;

impl Field {
    fn contender(&self, name: &str, way: Way, proxies: &[u32], clients: usize) -> Contender {
        let cast = self.postgres.behind(proxies);
        Contender { name: name.into(), way, cast, clients, keys: KEYS }
    }

    pub fn fencepost(&self, target: fn(&str) -> Target, clients: usize) -> Contender {
        self.fencepost_as(FENCEPOST, target, clients)
    }

    fn fencepost_as(&self, name: &str, target: fn(&str) -> Target, clients: usize) -> Contender {
        let way = Way::Closed(target(&self.fencepost.address));
        self.contender(name, way, &[self.fencepost.pid()], clients)
    }

    fn plain(&self, target: fn(&str) -> Target, clients: usize) -> Contender {
        let way = Way::Closed(target(&self.plain.address));
        self.contender(PLAIN, way, &[self.plain.pid()], clients)
    }

    fn pgbench(&self, script: Script, clients: usize) -> Contender {
        let way = Way::Pgbench(self.postgres.pgbench(&self.database, script));
        self.contender(PGBENCH, way, &[], clients)
    }

    fn noop(&self, clients: usize) -> Contender {
        let way = Way::Closed(Target::puts(&self.noop.address));
        self.contender(NOOP, way, &[self.noop.pid()], clients)
    }

    /// What they reach at each concurrency, everybody at 64 clients.
    pub fn writes(&self, peers: Option<&Peers>, plan: &Plan) -> Vec<Scene> {
        let mut scenes = Vec::new();
        for (name, clients) in WRITES.into_iter().zip(CONCURRENCY) {
            let mut contenders =
                vec![self.fencepost(Target::puts, clients), self.pgbench(Script::Upsert, clients)];
            if clients == 64 || !plan.quick {
                contenders.push(self.plain(Target::puts, clients));
            }
            if name == ALONE {
                contenders.push(self.noop(clients));
            }
            if name == AT_64 {
                contenders.push(self.fencepost_as(SCOPED, Target::scoped_puts, clients));
            }
            if let Some(peers) = peers.filter(|_| clients == 64) {
                contenders.extend(peers.contenders(clients));
            }
            scenes.push(Scene { name, rounds: plan.rounds, contenders });
        }
        scenes
    }

    pub fn one_key(&self, plan: &Plan) -> Scene {
        let mut contenders =
            vec![self.fencepost(Target::puts, 64), self.pgbench(Script::Upsert, 64)];
        for contender in &mut contenders {
            contender.keys = 1;
        }
        Scene { name: ONE_KEY, rounds: plan.rounds, contenders }
    }

    /// After the writes at 64 clients, which set the rate.
    pub fn fixed_rate(&self, plan: &Plan) -> Scene {
        let rate = Rate { share: SHARE, of: PGBENCH, scene: WRITES[2] };
        let address = self.fencepost.address.clone();
        let pgbench = self.postgres.pgbench(&self.database, Script::Upsert);
        let contenders = vec![
            self.contender(FENCEPOST, Way::Open { address, rate }, &[self.fencepost.pid()], 64),
            self.contender(PGBENCH, Way::PgbenchOpen(pgbench, rate), &[], 64),
        ];
        Scene { name: FIXED_RATE, rounds: plan.rounds, contenders }
    }

    pub fn reads(&self, plan: &Plan) -> Scene {
        let contenders = vec![
            self.fencepost(Target::gets, 64),
            self.fencepost_as(FENCED, Target::fenced_gets, 64),
            self.plain(Target::gets, 64),
            self.pgbench(Script::Select, 64),
        ];
        Scene { name: READS, rounds: plan.rounds, contenders }
    }

    /// What a holder notices of a zombie: accepted writes, beside a flood of refusals, and beside as
    /// many requests that are refused for nothing.
    pub fn flooded(&self, plan: &Plan) -> Scene {
        let contender = |name: &str, flood| {
            let address = self.fencepost.address.clone();
            let way = Way::Beside { address, rate: BESIDE_A_FLOOD, flood };
            self.contender(name, way, &[self.fencepost.pid()], 16)
        };
        let contenders = vec![
            contender(BESIDE_REFUSALS, Flood::Stale),
            contender(BESIDE_404S, Flood::Astray),
            contender(BESIDE_NOTHING, Flood::Nothing),
        ];
        Scene { name: FLOODED, rounds: plan.rounds, contenders }
    }

    pub fn refusals(&self, guarded: &Guarded, plan: &Plan) -> Scene {
        let way = Way::Closed(Target::stale_puts_by(&guarded.server.address, &guarded.bearer));
        let contenders = vec![
            self.fencepost(Target::stale_puts, 64),
            self.noop(64),
            self.contender(GUARDED, way, &[guarded.server.pid()], 64),
        ];
        Scene { name: REFUSALS, rounds: plan.rounds, contenders }
    }
}

impl Peers {
    fn contenders(&self, clients: usize) -> [Contender; 3] {
        let contender = |name: &str, target, pid| Contender {
            name: name.into(),
            way: Way::Closed(target),
            cast: Cast { proxies: Vec::new(), database: Some(pid) },
            clients,
            keys: KEYS,
        };
        let etcd = self.etcd.address();
        [
            contender(
                REDIS,
                Target::redis(&self.redis.address, &self.redis.script),
                self.redis.pid(),
            ),
            contender(ETCD, Target::Etcd { address: etcd.clone() }, self.etcd.pid()),
            contender(GATEWAY, Target::etcd_gateway(&etcd), self.etcd.pid()),
        ]
    }
}
