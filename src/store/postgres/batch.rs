//! Units that came together, and what has become of each so far.

use crate::store::{Settled, StoreError, Unit};

pub struct Batch<'a> {
    pub units: &'a [Unit],
    answers: Vec<Option<Result<Settled, StoreError>>>,
    /// Units that a statement which commits has been sent for, and has not been answered yet.
    in_flight: Vec<usize>,
    /// Units that were answered by what other sessions have committed. Those may still wait for a standby.
    unconfirmed: Vec<usize>,
}

impl<'a> Batch<'a> {
    pub fn new(units: &'a [Unit]) -> Self {
        let answers = units.iter().map(|_| None).collect();
        Self { units, answers, in_flight: Vec::new(), unconfirmed: Vec::new() }
    }

    pub fn answer(&mut self, place: usize, answer: Result<Settled, StoreError>) {
        debug_assert!(self.answers[place].is_none(), "a unit is answered once");
        self.answers[place] = Some(answer);
    }

    /// Answers a unit that has changed nothing, by what was seen.
    pub fn answer_as_seen(&mut self, place: usize, settled: Settled) {
        if let Settled::Applied { .. } = settled {
            self.unconfirmed.push(place);
        }
        self.answer(place, Ok(settled));
    }

    /// Something was committed by this session. That has waited for everything that was committed before.
    pub fn committed(&mut self) {
        self.unconfirmed.clear();
    }

    /// Takes those that were answered by what other sessions have committed, and by nothing since.
    pub fn take_unconfirmed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.unconfirmed)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fence::{Judgement, Refusal, Standing, Verdict, Verdict::Refused},
        store::postgres::session::surely,
        token::{Key, Token},
        write::Write,
    };

    fn units(count: usize) -> Vec<Unit> {
        let claim = |number| Key::new(&format!("key/{number}")).unwrap();
        let token = Token::new(1).unwrap();
        (0..count).map(|number| Unit::single(Write::claim(claim(number), token))).collect()
    }

    fn judged(verdict: Verdict) -> Judgement {
        let key = Standing::default();
        Judgement { verdict, ..Judgement::accepted(key) }
    }

    fn lost() -> Result<(), StoreError> {
        Err(StoreError::Unknown("the connection was lost".into()))
    }

    /// B: busy, which was answered; U: unknown; N: certainly not applied.
    fn answers(batch: Batch<'_>, ended: Result<(), StoreError>) -> String {
        let answers = batch.finish(ended, surely).into_iter().map(|answer| match answer {
            Err(StoreError::Busy) => 'B',
            Err(StoreError::Unknown(_)) => 'U',
            Err(StoreError::Unavailable(_)) => 'N',
            other => panic!("{other:?}"),
        });
        answers.collect()
    }

    #[test]
    fn only_what_is_in_flight_is_in_doubt() {
        let units = units(5);
        let mut batch = Batch::new(&units);
        batch.depart([0, 4]);
        batch.landed();
        batch.answer(0, Err(StoreError::Busy));
        batch.depart([1, 2]);
        assert_eq!(batch.unanswered(&[0, 1, 3]), [1, 3]);
        assert!(batch.is_answered(0));
        assert_eq!(answers(batch, lost()), "BUUNN");
    }

    #[test]
    fn what_departs_takes_the_place_of_what_departed_before() {
        let units = units(2);
        let mut batch = Batch::new(&units);
        batch.depart([0]);
        batch.depart([1]);
        assert_eq!(answers(batch, lost()), "NU");
    }

    #[test]
    fn what_has_landed_unapplied_is_certain() {
        let units = units(2);
        let mut batch = Batch::new(&units);
        batch.depart([0, 1]);
        batch.landed();
        assert_eq!(answers(batch, lost()), "NN");
    }

    #[test]
    fn what_was_seen_is_confirmed_by_a_later_commit() {
        let units = units(2);
        let refused = Settled::Refused { index: 0, judgement: judged(Refused(Refusal::Stale)) };
        let applied =
            || Settled::Applied { judgements: vec![judged(Verdict::Accepted)], value: None };
        let mut batch = Batch::new(&units);
        batch.answer_as_seen(0, applied());
        batch.committed();
        batch.answer_as_seen(1, applied());
        assert_eq!(batch.take_unconfirmed(), [1]);
        let mut batch = Batch::new(&units);
        batch.answer_as_seen(0, refused);
        assert!(batch.take_unconfirmed().is_empty(), "a refusal promises nothing");
    }

    #[test]
    fn an_answer_outlives_the_session() {
        let units = units(1);
        let mut batch = Batch::new(&units);
        batch.depart([0]);
        batch.answer(0, Err(StoreError::Busy));
        assert_eq!(answers(batch, lost()), "B");
    }
}
