//! The work by which a build that counts learns what is done most: `make profile`.
//!
//! Everybody here who is written in Rust takes part, the no-op and the plain proxy too, so that nobody they are
//! compared with is compiled with less care.

use std::{io, time::Duration};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    cpu::Cast,
    field::{Field, acquaint, serving},
    growth::Growing,
    it::harness::fencepost::Fencepost,
    plan::{KEYS, Plan},
    scene::{Contender, Scene, Stage, Way},
    target::Target,
};

/// Not one of those that are measured.
pub const PART: &str = "train";

pub async fn train() -> io::Result<()> {
    let mut stage = Stage::new(plan());
    let plan = stage.plan.clone();
    let field = Field::start().await;
    let mut scenes = field.writes(None, &plan);
    scenes.extend([field.one_key(&plan), field.reads(&plan), field.flooded(&plan)]);
    stage.play(scenes.into_iter().map(without_pgbench).collect()).await?;
    let growing = Growing::start(&field.postgres).await;
    stage.play(vec![without_pgbench(growing.scene(&field.postgres, &plan))]).await?;
    end(growing.fencepost);
    let guarded = field.guarded().await;
    stage.play(vec![field.refusals(&guarded, &plan)]).await?;
    end(guarded.server);
    let embedded = Embedded::start().await?;
    stage.play(vec![embedded.scene(&plan)]).await?;
    end(embedded.fencepost);
    end(field.fencepost);
    Ok(())
}

/// One on SQLite, as it comes out of the box.
struct Embedded {
    fencepost: Fencepost,
    /// Its file is in there.
    _directory: TempDir,
}

impl Embedded {
    async fn start() -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("trained.db");
        let fencepost = serving(&format!("sqlite:{}", file.display())).await;
        acquaint(&fencepost.client()).await;
        Ok(Self { fencepost, _directory: directory })
    }

    fn scene(&self, plan: &Plan) -> Scene {
        let contender = |name: &str, target: fn(&str) -> Target| Contender {
            name: name.into(),
            way: Way::Closed(target(&self.fencepost.address)),
            cast: Cast { proxies: vec![self.fencepost.pid()], database: None },
            clients: 64,
            keys: KEYS,
        };
        let contenders = vec![contender("writes", Target::puts), contender("reads", Target::gets)];
        Scene { name: "on SQLite, 64 clients", rounds: plan.rounds, contenders }
    }
}

fn plan() -> Plan {
    Plan { rounds: 2, run: Duration::from_secs(2), ..Plan::quick() }
}

/// It is written in C, and has learnt nothing from this.
fn without_pgbench(mut scene: Scene) -> Scene {
    let is_pgbench = |way: &Way| matches!(way, Way::Pgbench(_) | Way::PgbenchOpen(..));
    scene.contenders.retain(|contender| !is_pgbench(&contender.way));
    scene
}

/// In order: that is when it writes down what it has counted.
fn end(mut fencepost: Fencepost) {
    fencepost.signal(Signal::SIGTERM);
    fencepost.wait();
}
