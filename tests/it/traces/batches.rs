//! Writes of many traces that are settled together.

use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed, time::Instant};

use futures_util::future::join_all;

use super::traced;
use crate::harness::{
    PATIENCE,
    collector::{Collector, Mood, Seen},
    eventually,
    fencepost::Fencepost,
    store::on_each_store,
};

const TOGETHER: usize = 64;

fn of_name<'a>(spans: &'a [Seen], name: &str) -> Vec<&'a Seen> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// How many of the batches had more than one request.
fn shared(spans: &[Seen]) -> usize {
    of_name(spans, "batch").iter().filter(|batch| !batch.links.is_empty()).count()
}

on_each_store! {
    /// From each request to its batch, and from each batch to all of its requests.
    async fn a_batch_and_its_requests_are_linked_both_ways(store: TestStore) {
        let collector = Collector::start(Mood::Willing).await;
        let server = Fencepost::with(&store, &["--otlp-endpoint", &collector.url]).await;
        let client = server.client();
        let deadline = Instant::now() + PATIENCE;
        let written = std::sync::atomic::AtomicUsize::new(0);
        while shared(&collector.seen()) == 0 {
            assert!(Instant::now() < deadline, "no two writes ever came together");
            let writes = (0..TOGETHER).map(|_| {
                let number = written.fetch_add(1, Relaxed) + 1;
                let trace = format!("{number:032x}");
                let client = &client;
                async move { traced(client, &format!("k{number}"), 9, &trace).await.status }
            });
            let answers = join_all(writes).await;
            assert!(answers.iter().all(|status| *status == 201), "{answers:?}");
            let spans = || of_name(&collector.seen(), "queue").len();
            eventually("all arrive", || async { spans() == written.load(Relaxed) }).await;
        }
        // The batch of the last ones may still be on its way.
        let requests_of_batches = |spans: &[Seen]| -> usize {
            of_name(spans, "batch").iter().map(|batch| 1 + batch.links.len()).sum()
        };
        eventually("the batches arrive", || async {
            requests_of_batches(&collector.seen()) == written.load(Relaxed)
        })
        .await;
        let spans = collector.seen();
        let requests: BTreeSet<_> = of_name(&spans, "PUT /v1/resources/{key}")
            .iter()
            .map(|request| (request.trace.clone(), request.span.clone()))
            .collect();
        for batch in of_name(&spans, "batch") {
            let mut of_it = batch.links.clone();
            of_it.push((batch.trace.clone(), batch.parent.clone()));
            assert_eq!(batch.attribute("fencepost.batch.requests"), of_it.len().to_string());
            let here = (batch.trace.clone(), batch.span.clone());
            for (trace, span) in of_it {
                let waits = |queue: &&&Seen| queue.trace == trace && queue.parent == span;
                let queues = of_name(&spans, "queue");
                let queue = queues.iter().find(waits).expect("it has waited");
                assert_eq!(queue.links, std::slice::from_ref(&here));
                assert!(requests.contains(&(trace, span)));
            }
        }
    }
}
