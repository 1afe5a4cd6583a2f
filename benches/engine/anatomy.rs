//! Where the time of a write goes: on the wire, in the queue, in the statement, in the sync to disk.

use std::io;

use super::{
    field::Field,
    it::harness::{
        postgres::{execute, fetch},
        prometheus::Scrape,
    },
    names::{ANATOMY, FENCEPOST, SPENT_HTTP, SPENT_QUEUE, SPENT_STATEMENT, SPENT_SYNC, TOGETHER},
    scene::{Scene, Stage},
    target::Target,
};

const CLIENTS: usize = 64;

/// In milliseconds, on average over one run. Whoever waits for a batch waits for all of it.
pub async fn dissect(stage: &mut Stage, field: &Field) -> io::Result<()> {
    time_syncs(field, true).await;
    let before = Sums::read(field).await;
    let contender = field.fencepost(Target::puts, CLIENTS);
    stage.play(vec![Scene { name: ANATOMY, rounds: 1, contenders: vec![contender] }]).await?;
    let after = Sums::read(field).await;
    time_syncs(field, false).await;

    let run = stage.book.of(ANATOMY, FENCEPOST, |run| run.rate);
    #[expect(clippy::cast_precision_loss, reason = "a number of clients")]
    let whole = CLIENTS as f64 / run.map_or(f64::INFINITY, |run| run.median) * 1e3;
    let mean = |sum: fn(&Sums) -> f64, count: fn(&Sums) -> f64| {
        (sum(&after) - sum(&before)) / (count(&after) - count(&before))
    };
    let engine = mean(|it| it.write_seconds, |it| it.writes) * 1e3;
    let store = mean(|it| it.store_seconds, |it| it.batches) * 1e3;
    let sync = mean(|it| it.sync_ms, |it| it.syncs);
    let book = &mut stage.book;
    book.note(SPENT_HTTP, vec![whole - engine]);
    book.note(SPENT_QUEUE, vec![engine - store]);
    if sync.is_finite() {
        book.note(SPENT_STATEMENT, vec![store - sync]);
        book.note(SPENT_SYNC, vec![sync]);
    }
    book.note(TOGETHER, vec![mean(|it| it.writes, |it| it.batches)]);
    Ok(())
}

struct Sums {
    writes: f64,
    write_seconds: f64,
    batches: f64,
    store_seconds: f64,
    syncs: f64,
    sync_ms: f64,
}

impl Sums {
    async fn read(field: &Field) -> Self {
        let scrape = Scrape::of(&field.fencepost).await;
        let accepted = |part| {
            scrape.get(&format!("fencepost_write_duration_seconds_{part}{{outcome=\"accepted\"}}"))
        };
        Self {
            writes: accepted("count"),
            write_seconds: accepted("sum"),
            batches: scrape.get("fencepost_store_duration_seconds_count"),
            store_seconds: scrape.get("fencepost_store_duration_seconds_sum"),
            syncs: wal(field, "wal_sync").await,
            sync_ms: wal(field, "wal_sync_time").await,
        }
    }
}

/// 0 where this Postgres does not count it there: 18 does so elsewhere.
async fn wal(field: &Field, column: &str) -> f64 {
    let sql =
        format!("SELECT coalesce((to_jsonb(w)->>'{column}')::float8, 0) FROM pg_stat_wal AS w");
    fetch(&field.database, &sql).await
}

/// Off by default, since it costs a little; so it is on for this run only.
async fn time_syncs(field: &Field, on: bool) {
    let setting =
        format!("ALTER SYSTEM SET track_wal_io_timing = {}", if on { "on" } else { "off" });
    execute(&field.database, &setting).await;
    execute(&field.database, "SELECT pg_reload_conf()").await;
}
