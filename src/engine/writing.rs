//! What a lane does with a write once its fate is known.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Instant,
};

use super::{
    EngineError,
    delivery::{Delivery, Told},
    link::{Link, Losses},
    marks::Marks,
    queue::{Reply, Waiting},
    succession::Succession,
};
use crate::{
    metrics::{Begun, Metrics},
    store::{Settled, StoreError, Unit},
};

/// A unit on its way to the store, and whoever waits for it.
pub struct Writing {
    pub unit: Unit,
    pub begun: Begun,
    /// The place of the thread on which somebody waits, unless they have moved meanwhile.
    pub place: usize,
    pub reply: Reply<Settled>,
}

/// Marks are learned and writes are counted here, before they are answered.
#[derive(Clone)]
pub struct Desk {
    pub marks: Arc<Marks>,
    pub metrics: Arc<Metrics>,
    /// How many wait behind others for a locked row.
    pub detoured: Arc<AtomicUsize>,
    pub succession: Arc<Succession>,
    pub losses: Arc<Losses>,
    pub delivery: Delivery,
}

impl Desk {
    /// Has these settled together, and answers them; except for those that have to wait for
    /// somebody else's lock, which come back.
    pub async fn settle(
        &self,
        link: &mut Link,
        taken: Vec<Waiting<Writing>>,
    ) -> Vec<Waiting<Writing>> {
        let mut batch = self.metrics.spans.as_ref().and_then(|spans| {
            let callers = taken.iter().map(|waiting| (waiting.since, &**waiting.job.unit.caller()));
            spans.batch(callers)
        });
        let mut units = Vec::with_capacity(taken.len());
        let mut askers = Vec::with_capacity(taken.len());
        for waiting in taken {
            // The unit must be seen as one of a slice, and be given back if it has to wait.
            let (since, Writing { unit, begun, place, reply }) = waiting.take_apart();
            units.push(unit);
            askers.push((since, begun, place, reply));
        }
        let answers = match link.session().await {
            Ok(session) => {
                let since = Instant::now();
                let answers = session.settle(&units).await;
                if let Some(batch) = &mut batch {
                    batch.stated(since, &units, answers.iter().any(Result::is_err));
                }
                let writes = units.iter().zip(&answers).filter_map(|(unit, answer)| {
                    // Those will be counted where they are settled.
                    let elsewhere = matches!(answer, Err(StoreError::Locked));
                    (!elsewhere).then(|| unit.writes().len())
                });
                match writes.sum() {
                    0 => {}
                    writes => self.metrics.settled_together(writes, since.elapsed()),
                }
                answers
            }
            Err(error) => {
                if let Some(batch) = &mut batch {
                    batch.failed();
                }
                units.iter().map(|_| Err(error.clone())).collect()
            }
        };
        debug_assert_eq!(answers.len(), units.len(), "every unit has an answer of its own");
        let mut blocked = Vec::new();
        let mut told = Vec::with_capacity(units.len());
        for ((unit, answer), asker) in units.into_iter().zip(answers).zip(askers) {
            let (since, begun, place, reply) = asker;
            match &answer {
                Ok(settled) => {
                    let raised = self.marks.learn(&unit, settled);
                    self.metrics.writes.raised(begun, raised);
                    self.metrics.writes.settled_by_store(begun, &unit, settled);
                }
                Err(StoreError::Locked) => {
                    blocked.push(Waiting::since(since, Writing { unit, begun, place, reply }));
                    continue;
                }
                Err(error) => {
                    self.metrics.writes.failed(begun);
                    link.note(error);
                }
            }
            // Its body counts no longer than it is answered.
            drop(unit);
            told.push(Told { place, reply, answer: answer.map_err(EngineError::from) });
        }
        self.delivery.hand_over(told);
        if let Some(batch) = batch {
            batch.settled();
        }
        blocked
    }

    pub fn turn_away(&self, writing: Writing, error: EngineError) {
        self.metrics.writes.failed(writing.begun);
        // Whoever asked may have hung up, and need not hear of it.
        let _ = writing.reply.send(Err(error));
    }
}
