//! The way of a rejection, from its arrival to the audit table, in paused time. A seed says when
//! rejections arrive, how the table stalls and fails, and who reads along.

mod table;

use std::{sync::Mutex, time::SystemTime};

use bytesize::ByteSize;
use tokio::time::{sleep, timeout};

use self::table::Table;
use super::*;
use crate::{
    paused_time::for_each_seed,
    rejections::{Follower, Rejection, Rejections, ring::tests::rejection},
};

const SEEDS: u64 = 400;

const HOUR: Duration = Duration::from_hours(1);

/// Long enough for whatever is done now and then, however seldom.
const LONG: Duration = Duration::from_secs(1000);

/// What somebody who follows the record has been told.
#[derive(Default)]
struct Told {
    entries: u64,
    dropped: u64,
    last: u64,
}

async fn follow(mut follower: Follower, told: Arc<Mutex<Told>>, pause: Duration) {
    loop {
        let news = follower.news().await;
        {
            let mut told = told.lock().unwrap();
            told.dropped += news.dropped;
            for entry in news.entries {
                assert!(entry.id.number > told.last, "{} comes late, or twice", entry.id);
                told.last = entry.id.number;
                told.entries += 1;
            }
        }
        sleep(pause).await;
    }
}

fn some_rejection(rng: &mut fastrand::Rng) -> Rejection {
    // Some are too old to be kept: from a clock that was set back meanwhile.
    let age = if rng.u8(0..10) == 0 { 2 * HOUR } else { Duration::ZERO };
    Rejection { at: SystemTime::now() - age, ..rejection("k") }
}

/// How many were recorded, in bursts.
async fn record_some(rejections: &Rejections, rng: &mut fastrand::Rng) -> u64 {
    let mut recorded = 0;
    for _ in 0..rng.usize(1..20) {
        let burst = match rng.u8(0..40) {
            0 => 6000,
            1..10 => rng.u64(0..600),
            _ => rng.u64(0..10),
        };
        (0..burst).for_each(|_| rejections.record(some_rejection(rng)));
        recorded += burst;
        if rng.u8(0..5) == 0 {
            let limit = rng.usize(1..50);
            let newest = rejections.newest_anywhere(&Filter::default(), limit).await;
            assert!(newest.is_none_or(|newest| newest.len() <= limit));
        }
        sleep(Duration::from_millis(rng.u64(0..2000))).await;
    }
    recorded
}

async fn play(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    // What spreads the attempts to connect.
    fastrand::seed(seed);
    let table = Table::new(seed);
    table.state().trouble = *rng.choice(&[0.0, 0.1, 0.5, 0.9]).expect("some");
    table.state().longest_stall = Duration::from_millis(*rng.choice(&[0, 9, 20_000]).expect("one"));
    let memory = ByteSize(rng.u64(0..200_000));
    let keep = Keep { rows: *rng.choice(&[0, 5, 700, 100_000]).expect("some"), age: HOUR };
    let mut rejections = Rejections::new(memory);
    let archivist = rejections.keep_in(Arc::new(table.clone()), keep);
    let rejections = Arc::new(rejections);
    tokio::spawn(rejections.clone().keep());
    let fit_after = Duration::from_millis(rng.u64(0..5000));
    tokio::spawn(async move {
        sleep(fit_after).await;
        archivist.run().await;
    });
    let told = Arc::new(Mutex::new(Told::default()));
    let follower = rejections.follow(Filter::default(), None).expect("there is a place");
    tokio::spawn(follow(follower, told.clone(), Duration::from_millis(rng.u64(0..3000))));

    let recorded = record_some(&rejections, &mut rng).await;
    // Nothing is left lying, though nobody asks.
    sleep(Duration::from_secs(1)).await;
    assert!(rejections.arrived.is_empty(), "seed {seed}");
    let in_memory = rejections.newest(&Filter::default(), usize::MAX);
    let bytes: usize = in_memory.iter().map(|entry| entry.bytes()).sum();
    assert!(bytes as u64 <= memory.as_u64(), "seed {seed}: {bytes} bytes of {memory}");

    table.state().hurried = true;
    let heals = rng.bool();
    if heals {
        table.state().trouble = 0.0;
        assert!(timeout(LONG, rejections.finish()).await.is_ok(), "seed {seed}: no end");
    } else {
        let _ = timeout(Duration::from_secs(1), rejections.finish()).await;
    }
    all_are_accounted_for(&rejections, &table, recorded, seed, heals);

    // And the rest of it, once all is well.
    table.state().trouble = 0.0;
    sleep(LONG).await;
    all_are_accounted_for(&rejections, &table, recorded, seed, true);
    as_many_are_kept_as_may(&table, keep, seed);
    let told = told.lock().unwrap();
    let taken_in = recorded - rejections.dropped().count(Where::Record);
    assert_eq!(told.entries + told.dropped, taken_in, "seed {seed}: the follower");
    assert_eq!(told.dropped, rejections.dropped().count(Where::Stream), "seed {seed}");
    assert!(!rejections.book().log.owes_a_line(), "seed {seed}");
}

/// Each is written, or left out and counted, or still waits. At the `end`, none waits.
fn all_are_accounted_for(all: &Rejections, table: &Table, recorded: u64, seed: u64, end: bool) {
    let table = table.state();
    let left_out = all.dropped().count(Where::Record) + all.dropped().count(Where::Audit);
    let written = table.acknowledged.len() as u64;
    let waiting = recorded - left_out - written;
    let context = format!("seed {seed}: {recorded} came, {written} written, {left_out} left out");
    assert!(table.acknowledged.iter().all(|id| table.ever.contains_key(id)), "{context}");
    assert!(table.given_up.len() as u64 <= all.dropped().count(Where::Audit), "{context}");
    if end {
        assert_eq!(waiting, 0, "{context}");
    } else {
        let entries = &all.archive.as_ref().expect("it has one").entries;
        let queued = (entries.max_capacity() - entries.capacity()) as u64;
        let at_hand = AT_ONCE as u64;
        assert!((queued..=queued + at_hand).contains(&waiting), "{context}, {queued} in the queue");
    }
}

/// What is too old or too much is gone, and nothing else.
fn as_many_are_kept_as_may(table: &Table, keep: Keep, seed: u64) {
    let table = table.state();
    let oldest = SystemTime::now() - keep.age;
    let young = table.ever.values().filter(|at| **at >= oldest).count() as u64;
    assert!(table.rows.values().all(|at| *at >= oldest), "seed {seed}");
    assert_eq!(table.rows.len() as u64, young.min(keep.rows), "seed {seed}");
}

#[test]
fn every_rejection_is_written_once_or_left_out_and_counted() {
    for_each_seed(SEEDS, play);
}

#[tokio::test(start_paused = true)]
async fn a_table_to_which_nothing_is_added_is_seldom_looked_at() {
    let table = Table::new(1);
    let mut rejections = Rejections::new(ByteSize::kib(4));
    let keep = Keep { rows: 1, age: HOUR };
    tokio::spawn(rejections.keep_in(Arc::new(table.clone()), keep).run());
    let rejections = Arc::new(rejections);
    tokio::spawn(rejections.clone().keep());
    // Others may have added something, so it begins with a look.
    sleep(BETWEEN_LOOKS * (IDLE_LOOKS - 1)).await;
    assert_eq!(table.state().looks, 1);
    sleep(BETWEEN_LOOKS * 2).await;
    assert_eq!(table.state().looks, 2);
    rejections.record(rejection("k"));
    sleep(BETWEEN_LOOKS * 2).await;
    assert_eq!(table.state().looks, 3);
}
