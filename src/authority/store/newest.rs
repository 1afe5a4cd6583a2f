//! The newest token, asked for by one at a time on behalf of all.
//!
//! An answer is good only for those who came before its question was asked. Whoever comes while one
//! is on its way shares the next.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::store::StoreError;

#[derive(Default)]
pub struct Newest {
    known: AtomicI64,
    questions: AtomicU64,
    /// The number of the last question that was answered, and its answer.
    answered: Mutex<(u64, i64)>,
}

impl Newest {
    pub fn known(&self) -> i64 {
        self.known.load(Ordering::Acquire)
    }

    /// Tokens only rise.
    pub fn learn(&self, token: i64) {
        self.known.fetch_max(token, Ordering::AcqRel);
    }

    pub async fn ask(
        &self,
        question: impl AsyncFnOnce() -> Result<i64, StoreError>,
    ) -> Result<i64, StoreError> {
        let asked_before_us = self.questions.load(Ordering::Acquire);
        let mut answered = self.answered.lock().await;
        if answered.0 > asked_before_us {
            return Ok(answered.1);
        }
        let number = self.questions.fetch_add(1, Ordering::AcqRel) + 1;
        let newest = question().await?;
        self.learn(newest);
        *answered = (number, newest);
        Ok(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_known_only_rises() {
        let newest = Newest::default();
        assert_eq!(newest.known(), 0);
        assert_eq!(newest.ask(async || Ok(7)).await.unwrap(), 7);
        newest.learn(5);
        assert_eq!(newest.known(), 7);
    }

    #[tokio::test]
    async fn an_answer_is_only_for_those_who_came_before_its_question() {
        let newest = Newest::default();
        assert_eq!(newest.ask(async || Ok(7)).await.unwrap(), 7);
        // Nobody was waiting, so this one asks for itself.
        assert_eq!(newest.ask(async || Ok(8)).await.unwrap(), 8);

        let slow = async || {
            tokio::task::yield_now().await;
            Ok(9)
        };
        // The second comes while the first one's question is on its way, and the third shares its answer.
        let asked = std::sync::atomic::AtomicU64::new(0);
        let count = async || {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(10)
        };
        let answers = tokio::join!(newest.ask(slow), newest.ask(count), newest.ask(count));
        let answers = [answers.0, answers.1, answers.2].map(Result::unwrap);
        assert_eq!(answers, [9, 10, 10]);
        assert_eq!(asked.into_inner(), 1);
    }
}
