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
    queue.submit(Writing { unit, begun, place: 0, reply: oneshot::channel().0 }).unwrap();
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
    assert_eq!(keys(&next(&mut jobs, 4).await), [0, 1, 2, 3]);
    assert_eq!(keys(&next(&mut jobs, 4).await), [4, 5, 6, 7]);
    assert_eq!(keys(&next(&mut jobs, 4).await), [8, 9]);
    drop(queue);
    assert!(next(&mut jobs, 4).await.is_empty(), "nobody can send any more");
}

#[tokio::test]
async fn a_batch_ends_with_the_unit_that_fills_it() {
    let (queue, mut jobs) = Queue::new(100);
    for number in 0..4 {
        submit(&queue, put(number, MOST_BYTES / 2));
    }
    assert_eq!(keys(&next(&mut jobs, 256).await), [0, 1]);
    assert_eq!(keys(&next(&mut jobs, 256).await), [2, 3]);
    for number in 0..=MOST_FENCED_READS {
        submit(&queue, fenced_read(number));
    }
    assert_eq!(next(&mut jobs, 256).await.len(), MOST_FENCED_READS);
    assert_eq!(keys(&next(&mut jobs, 256).await), [MOST_FENCED_READS]);
}

#[tokio::test]
async fn nobody_is_waited_for() {
    let (queue, mut jobs) = Queue::new(100);
    submit(&queue, put(0, 1));
    submit(&queue, put(1, 1));
    assert_eq!(keys(&next(&mut jobs, 256).await), [0, 1]);
    // This one would come as soon as it got to run.
    submit(&queue, put(2, 1));
    let late = queue.clone();
    tokio::spawn(async move { submit(&late, put(3, 1)) });
    assert_eq!(keys(&next(&mut jobs, 256).await), [2]);
    assert_eq!(keys(&next(&mut jobs, 256).await), [3]);
}

#[tokio::test]
async fn a_full_queue_says_so_and_drops_nothing_that_it_took() {
    let (queue, mut jobs) = Queue::new(3);
    for number in 0..3 {
        submit(&queue, put(number, 1));
    }
    let unit = put(3, 1);
    let begun = Begun::now(&unit);
    let refused = queue.submit(Writing { unit, begun, place: 0, reply: oneshot::channel().0 });
    assert!(matches!(refused, Err(crate::engine::EngineError::Overloaded)));
    assert_eq!(queue.depth(), 3);
    assert_eq!(keys(&next(&mut jobs, 256).await), [0, 1, 2]);
    assert_eq!(queue.depth(), 0);
}
