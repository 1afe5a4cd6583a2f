//! What a lane takes at a time, on a runtime with one thread: every run has the same schedule.

use bytes::Bytes;
use tokio::sync::oneshot;

use super::*;
use crate::{
    engine::queue::Queue,
    metrics::Begun,
    store::Unit,
    token::{Key, Token},
    write::{Change, Value, Write},
};

fn put(number: usize, bytes: usize) -> Unit {
    let key = Key::new(&format!("key/{number}")).unwrap();
    let body = Bytes::from(vec![0; bytes]);
    let change = Change::Put(Value { body, content_type: String::new() });
    Unit::single(Write { change, ..Write::claim(key, Token::new(1).unwrap()) })
}

fn fenced_read(number: usize) -> Unit {
    let key = Key::new(&format!("key/{number}")).unwrap();
    Unit::fenced_read(Write::claim(key, Token::new(1).unwrap()))
}

fn submit(queue: &Queue<Writing>, unit: Unit) {
    let begun = Begun::now(&unit);
    queue.submit(Writing { unit, begun, reply: oneshot::channel().0 }).unwrap();
}

fn keys(taken: &[Waiting<Writing>]) -> Vec<usize> {
    let number = |waiting: &Waiting<Writing>| {
        let key = waiting.job.unit.writes()[0].key.as_str();
        key.strip_prefix("key/").unwrap().parse().unwrap()
    };
    taken.iter().map(number).collect()
}

#[tokio::test]
async fn all_that_waits_is_taken_in_order_up_to_the_most() {
    let (queue, mut jobs) = Queue::new(100);
    for number in 0..10 {
        submit(&queue, put(number, 1));
    }
    let mut gatherer = Gatherer::new(4);
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [0, 1, 2, 3]);
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [4, 5, 6, 7]);
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [8, 9]);
    drop(queue);
    assert!(gatherer.next(&mut jobs).await.is_empty(), "nobody can send any more");
}

#[tokio::test]
async fn a_batch_ends_with_the_unit_that_fills_it() {
    let (queue, mut jobs) = Queue::new(100);
    for number in 0..4 {
        submit(&queue, put(number, MOST_BYTES / 2));
    }
    let mut gatherer = Gatherer::new(256);
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [0, 1]);
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [2, 3]);
    for number in 0..=MOST_FENCED_READS {
        submit(&queue, fenced_read(number));
    }
    assert_eq!(gatherer.next(&mut jobs).await.len(), MOST_FENCED_READS);
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [MOST_FENCED_READS]);
}

#[tokio::test]
async fn nobody_is_waited_for_in_vain_and_a_lone_client_never() {
    let (queue, mut jobs) = Queue::new(100);
    let mut gatherer = Gatherer::new(256);
    submit(&queue, put(0, 1));
    submit(&queue, put(1, 1));
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [0, 1]);
    // Two came together, so another one is looked for; but nobody comes.
    submit(&queue, put(2, 1));
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [2]);
    // From then on nobody is looked for: this one would have come as soon as it got to run.
    submit(&queue, put(3, 1));
    let late = queue.clone();
    tokio::spawn(async move { submit(&late, put(4, 1)) });
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [3]);
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [4]);
}

#[tokio::test]
async fn a_full_queue_says_so_and_drops_nothing_that_it_took() {
    let (queue, mut jobs) = Queue::new(3);
    for number in 0..3 {
        submit(&queue, put(number, 1));
    }
    let unit = put(3, 1);
    let begun = Begun::now(&unit);
    let refused = queue.submit(Writing { unit, begun, reply: oneshot::channel().0 });
    assert!(matches!(refused, Err(crate::engine::EngineError::Overloaded)));
    assert_eq!(queue.depth(), 3);
    assert_eq!(keys(&Gatherer::new(256).next(&mut jobs).await), [0, 1, 2]);
    assert_eq!(queue.depth(), 0);
}

#[tokio::test(start_paused = true)]
async fn as_many_as_came_together_are_waited_for_while_some_come() {
    let (queue, mut jobs) = Queue::new(100);
    let mut gatherer = Gatherer::new(256);
    (0..4).for_each(|number| submit(&queue, put(number, 1)));
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [0, 1, 2, 3]);
    submit(&queue, put(4, 1));
    for number in 5..8 {
        let answered_just_now = queue.clone();
        tokio::spawn(async move { submit(&answered_just_now, put(number, 1)) });
    }
    assert_eq!(keys(&gatherer.next(&mut jobs).await), [4, 5, 6, 7]);
}

/// How often it looks if each look finds as many as `found` says; time stands still meanwhile.
async fn looks(expected: usize, found: impl Fn(usize) -> usize) -> usize {
    let mut looks = 0;
    linger(expected, || {
        looks += 1;
        found(looks)
    })
    .await;
    looks
}

#[tokio::test(start_paused = true)]
async fn lingering_ends_with_what_was_expected_or_when_it_brings_no_more() {
    assert_eq!(looks(3, |_| 3).await, 1);
    assert_eq!(looks(5, |look| look).await, 5);
    assert_eq!(looks(5, |_| 1).await, 1 + VAIN_LOOKS as usize);
    // One that brings something makes up for one that brought nothing.
    assert_eq!(looks(5, |look| look.div_ceil(2)).await, 9);
}

#[tokio::test(start_paused = true)]
async fn lingering_ends_in_time() {
    let clock = tokio::spawn(async {
        loop {
            tokio::time::advance(LONGEST_PAUSE / 4).await;
        }
    });
    let looks = looks(1000, |look| look).await;
    clock.abort();
    assert!((2..=10).contains(&looks), "{looks}");
}
