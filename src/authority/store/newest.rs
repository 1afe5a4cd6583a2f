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
