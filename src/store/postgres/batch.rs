//! Units that came together, and what has become of each so far.

use crate::store::{Settled, StoreError, Unit};

pub struct Batch<'a> {
    pub units: &'a [Unit],
    answers: Vec<Option<Result<Settled, StoreError>>>,
    /// Units that a statement which commits has been sent for, and has not been answered yet.
    in_flight: Vec<usize>,
}

impl<'a> Batch<'a> {
    pub fn new(units: &'a [Unit]) -> Self {
        Self { units, answers: units.iter().map(|_| None).collect(), in_flight: Vec::new() }
    }

    pub fn answer(&mut self, place: usize, answer: Result<Settled, StoreError>) {
        debug_assert!(self.answers[place].is_none(), "a unit is answered once");
        self.answers[place] = Some(answer);
    }

    pub fn is_answered(&self, place: usize) -> bool {
        self.answers[place].is_some()
    }

    pub fn unanswered(&self, places: &[usize]) -> Vec<usize> {
        places.iter().copied().filter(|place| !self.is_answered(*place)).collect()
    }

    /// From here until [`Self::landed`], nobody can tell whether these take effect.
    pub fn depart(&mut self, places: impl IntoIterator<Item = usize>) {
        self.in_flight.clear();
        self.in_flight.extend(places);
    }

    pub fn landed(&mut self) {
        self.in_flight.clear();
    }

    /// One answer for each. If the session was lost, that is the answer of those in flight; the rest
    /// were never sent, so they are certainly not applied.
    pub fn finish(
        self,
        ended: Result<(), StoreError>,
        never_sent: impl Fn(StoreError) -> StoreError,
    ) -> Vec<Result<Settled, StoreError>> {
        let lost = ended.err().unwrap_or_else(|| {
            debug_assert!(self.answers.iter().all(Option::is_some), "the verdicts add up");
            StoreError::Failed("the batch left a write without a verdict".into())
        });
        let answers = self.answers.into_iter().enumerate().map(|(place, answer)| {
            answer.unwrap_or_else(|| {
                let in_flight = self.in_flight.contains(&place);
                Err(if in_flight { lost.clone() } else { never_sent(lost.clone()) })
            })
        });
        answers.collect()
    }
}
