//! Who runs against whom, and the rounds in which they take turns.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
};

use super::{
    book::Book, closed_loop, cpu::Cast, flood::Flood, open_loop, pgbench::Pgbench, plan::Plan,
    run::Run, target::Target,
};

/// Contenders whose numbers are compared.
pub struct Scene {
    pub name: &'static str,
    pub rounds: usize,
    pub contenders: Vec<Contender>,
}

#[derive(Clone)]
pub struct Contender {
    pub name: String,
    pub way: Way,
    pub cast: Cast,
    pub clients: usize,
    pub keys: u64,
}

#[derive(Clone)]
pub enum Way {
    Closed(Target),
    /// Puts, at a fixed rate.
    Open {
        address: String,
        rate: Rate,
    },
    /// The same, beside others that are not measured.
    Beside {
        address: String,
        rate: f64,
        flood: Flood,
    },
    Pgbench(Pgbench),
    PgbenchOpen(Pgbench, Rate),
}

/// A share of what somebody has reached in an earlier scene.
#[derive(Clone, Copy)]
pub struct Rate {
    pub share: f64,
    pub of: &'static str,
    pub scene: &'static str,
}

impl Rate {
    fn resolve(self, book: &Book) -> f64 {
        let reached = book.of(self.scene, self.of, |run| run.rate);
        self.share * reached.map_or(1000.0, |reached| reached.median)
    }
}

/// Plays scenes, and says how far it is.
pub struct Stage {
    pub plan: Arc<Plan>,
    pub book: Book,
    done: usize,
    total: usize,
}

impl Stage {
    pub fn new(plan: Plan) -> Self {
        Self { plan: Arc::new(plan), book: Book::default(), done: 0, total: 0 }
    }

    /// In each round another contender begins, so that none is always the one after a checkpoint.
    pub async fn play(&mut self, scenes: Vec<Scene>) -> io::Result<()> {
        self.done = 0;
        self.total = scenes.iter().map(|scene| scene.rounds * scene.contenders.len()).sum();
        for scene in scenes {
            for round in 0..scene.rounds {
                let count = scene.contenders.len();
                for turn in 0..count {
                    let contender = &scene.contenders[(round + turn) % count];
                    let what = format!(
                        "{}: {}, round {} of {}",
                        scene.name,
                        contender.name,
                        round + 1,
                        scene.rounds
                    );
                    self.progress(&what);
                    let run = self.run(contender).await.map_err(|error| {
                        io::Error::other(format!("{}: {}: {error}", scene.name, contender.name))
                    })?;
                    self.book.add(scene.name, &contender.name, run);
                    self.done += 1;
                }
            }
            self.summary(&scene);
        }
        Ok(())
    }

    async fn run(&self, contender: &Contender) -> io::Result<Run> {
        let plan = self.plan.clone();
        let mut contender = contender.clone();
        let due = match &mut contender.way {
            Way::Open { rate, .. } => Some(rate.resolve(&self.book)),
            Way::PgbenchOpen(pgbench, rate) => {
                let rate = rate.resolve(&self.book);
                contender.way = Way::Pgbench(Pgbench { rate: Some(rate), ..pgbench.clone() });
                Some(rate)
            }
            Way::Beside { rate, .. } => Some(*rate),
            Way::Closed(_) | Way::Pgbench(_) => None,
        };
        let run = move || {
            let Contender { way, cast, clients, keys, .. } = &contender;
            match way {
                Way::Closed(target) => closed_loop::run(&plan, target, cast, *clients, *keys),
                Way::Open { address, .. } => {
                    open_loop::run(&plan, address, cast, *clients, due.unwrap_or_default(), *keys)
                }
                Way::Beside { address, flood, .. } => {
                    let flowing = flood.begin(address);
                    let run = open_loop::run(
                        &plan,
                        address,
                        cast,
                        *clients,
                        due.unwrap_or_default(),
                        *keys,
                    )?;
                    Ok(Run { beside: flowing.end()?, ..run })
                }
                Way::Pgbench(pgbench) | Way::PgbenchOpen(pgbench, _) => {
                    pgbench.run(&plan, cast, *clients, *keys)
                }
            }
        };
        let run = tokio::task::spawn_blocking(run).await.map_err(io::Error::other)??;
        Ok(Run { due, ..run })
    }

    pub fn progress(&self, what: &str) {
        if io::stderr().is_terminal() {
            let percent = 100 * self.done / self.total.max(1);
            eprint!("\r\x1b[K{percent:3} %  {what}");
        }
    }

    /// One line for each contender, as soon as its scene is over.
    fn summary(&self, scene: &Scene) {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        eprintln!("{}", scene.name);
        for contender in &scene.contenders {
            let of = |what| self.book.of(scene.name, &contender.name, what);
            let rate = of(|run| run.rate).map_or(0.0, |spread| spread.median);
            let p99 = of(|run| run.p99_us).map_or(0.0, |spread| spread.median) / 1e3;
            eprintln!("  {:<24} {rate:>8.0}/s   p99 {p99:>7.2} ms", contender.name);
        }
    }
}
