//! What Fencepost costs and gives back, side by side with its peers: Postgres alone (pgbench), a plain
//! proxy, Redis and etcd, all durable, all on this machine.
//!
//! `make bench`, or `make bench QUICK=1` for a first impression. Contenders take turns within each
//! round, so that what else the machine is doing hurts them alike; ratios are taken round by
//! round, and shown as their median between the lowest and the highest.
//!
//! | | |
//! |---|---|
//! | who takes part | `field.rs`, `guarded.rs`, `redis.rs`, `pgbench.rs`, `plain.rs`, `noop.rs` |
//! | what they are asked | `programme.rs`, `growth.rs`, `startup.rs` |
//! | how they are asked | `closed_loop.rs`, `open_loop.rs`, `flood.rs`; `target.rs`, `template.rs`, `../shared/wire.rs` |
//! | what came of it | `run.rs`, `cpu.rs`, `anatomy.rs`, `book.rs`, `goals.rs` |
//! | how it is shown | `terminal.rs`; `page.rs`, `chart.rs`, `machine.rs`, `method.md` |
//! | what `make profile` asks | `training.rs` |

#[allow(dead_code, unused_imports, unused_macros, clippy::unused_async)] // A tool box of the tests.
#[path = "../tests/it"]
mod it {
    pub mod harness;
}
#[path = "engine"]
mod parts {
    pub mod anatomy;
    pub mod book;
    pub mod chart;
    pub mod closed_loop;
    pub mod cpu;
    pub mod field;
    pub mod flood;
    pub mod goals;
    pub mod growth;
    pub mod guarded;
    pub mod machine;
    pub mod names;
    pub mod noop;
    pub mod open_loop;
    pub mod own;
    pub mod page;
    pub mod pgbench;
    pub mod plain;
    pub mod plan;
    pub mod programme;
    pub mod redis;
    pub mod run;
    pub mod scene;
    pub mod sql;
    pub mod startup;
    pub mod target;
    pub mod template;
    pub mod terminal;
    pub mod training;

    pub(crate) use super::{it, kept, wire};
}
#[path = "shared/kept.rs"]
mod kept;
#[allow(dead_code)] // The locks' part uses the rest.
#[path = "shared/wire.rs"]
mod wire;

use std::{io, process::ExitCode};

use self::{
    it::harness::prometheus::Scrape,
    parts::{
        anatomy,
        book::Book,
        cpu,
        field::{self, Field, Peers},
        growth::{self, Growing, Sizes},
        names, own, page,
        plan::Plan,
        scene::Stage,
        startup, terminal, training,
    },
};

/// As in the program itself: the no-op PUT differs from it in nothing but what it does not do.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Parts that can be run alone: `cargo bench --bench engine -- writes reads`. What they measure is
/// kept until `report`, or a run of all of them, writes the page.
const PARTS: [&str; 7] = ["writes", "reads", "refusals", "flood", "growth", "start", "report"];

/// Where that is kept.
const KEPT: &str = "engine.json";

fn main() -> ExitCode {
    own::serve_if_asked();
    let asked: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let known = |part: &str| PARTS.contains(&part) || part == training::PART;
    if let Some(unknown) = asked.iter().find(|part| !known(part)) {
        eprintln!("there is no part {unknown:?}; there are {}", PARTS.join(", "));
        return ExitCode::from(64);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = bench(&asked) => outcome,
            // What was started is dropped here, and so ended.
            _ = tokio::signal::ctrl_c() => Err(io::Error::other("interrupted")),
        }
    });
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\n{error}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(asked: &[String]) -> io::Result<()> {
    if asked == [training::PART] {
        return training::train().await;
    }
    let wanted = |part: &str| asked.is_empty() || asked.iter().any(|it| it == part);
    let mut stage = Stage::new(Plan::of_the_environment());
    let plan = stage.plan.clone();
    if wanted("start") {
        let (new, old) = startup::measure(plan.starts);
        stage.book.note(names::START, new);
        stage.book.note(names::RESTART, old);
    }
    if ["writes", "reads", "refusals", "flood", "growth"].into_iter().any(wanted) {
        eprintln!("starting Postgres, Fencepost and a plain proxy, with 100,000 keys");
        let field = Field::start().await;
        stage.book.note(names::IDLE, vec![field.idle_mib]);
        let mut scenes = Vec::new();
        let mut peers = None;
        if wanted("writes") {
            eprintln!("starting Redis and etcd, with as many");
            peers = Some(Peers::start().await?);
            scenes.extend(field.writes(peers.as_ref(), &plan));
            scenes.push(field.one_key(&plan));
            scenes.push(field.fixed_rate(&plan));
        }
        if wanted("reads") {
            // Those who read under a token have been here before.
            field.acquaint().await;
            scenes.push(field.reads(&plan));
        }
        stage.play(scenes).await?;
        drop(peers);
        if wanted("writes") {
            let growing = Growing::start(&field.postgres).await;
            stage.play(vec![growing.scene(&field.postgres, &plan)]).await?;
        }
        if wanted("writes") && !plan.quick {
            anatomy::dissect(&mut stage, &field).await?;
        }
        if wanted("refusals") {
            refusals(&mut stage, &field).await?;
        }
        if wanted("flood") {
            field.acquaint().await;
            stage.play(vec![field.flooded(&plan)]).await?;
            let beside = stage.book.of(names::FLOODED, names::BESIDE_REFUSALS, |run| run.beside);
            stage.book.note(names::FLOOD, beside.map(|it| it.median).into_iter().collect());
        }
        // Only these let it see every key.
        if wanted("refusals") || wanted("flood") {
            stage.book.note(names::AFTER, vec![cpu::resident_mib(field.fencepost.pid())]);
        }
        if wanted("growth") {
            grow(&mut stage, &field).await?;
        }
    }
    terminal::print(&stage.book);
    if plan.quick {
        return Ok(());
    }
    if let Some(earlier) = kept::kept(KEPT) {
        stage.book.merge(serde_json::from_str::<Book>(&earlier).unwrap_or_default());
    }
    kept::keep(KEPT, &serde_json::to_string(&stage.book)?)?;
    if wanted("report") {
        page::write(&stage.book, &plan)?;
        eprintln!("docs/benchmarks.md has it all");
    }
    Ok(())
}

/// From the cache, as is verified.
async fn refusals(stage: &mut Stage, field: &Field) -> io::Result<()> {
    field.acquaint().await;
    let decided = async |judge| Scrape::of(&field.fencepost).await.rejected("stale-token", judge);
    let before = [decided("cache").await, decided("store").await];
    let plan = stage.plan.clone();
    let guarded = field.guarded().await;
    stage.play(vec![field.refusals(&guarded, &plan)]).await?;
    let [cache, store] = [decided("cache").await - before[0], decided("store").await - before[1]];
    stage.book.note(names::BY_CACHE, vec![cache / (cache + store)]);
    Ok(())
}

async fn grow(stage: &mut Stage, field: &Field) -> io::Result<()> {
    let plan = stage.plan.clone();
    let second = field::serving(&field.database).await;
    let scenes = vec![growth::connections(field, &plan), growth::two(field, &second, &plan)];
    stage.play(scenes).await?;
    drop(second);
    let sizes = Sizes::start(&plan).await;
    stage.play(vec![sizes.scene(&plan)]).await
}
