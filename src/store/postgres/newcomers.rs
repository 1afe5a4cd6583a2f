//! Whether keys that come have been here before.
//!
//! The statement that only updates is the cheaper one, and most keys that are written are there. But
//! where one is not, it takes two statements more. So where new keys have lately come, the statement
//! that also inserts is sent at once. Which one is sent changes no verdict.

/// For so many statements after the last new key, another one is expected. Inserting for nothing
/// costs Postgres a sixth of a batch; to be surprised costs more than a whole one.
const MEMORY: u8 = 8;

#[derive(Default)]
pub struct Newcomers(u8);

/// Whether the rows of some keys are there, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    There,
    PerhapsNot,
}

impl Newcomers {
    fn are_expected(&self) -> bool {
        self.0 > 0
    }

    /// What to think of rows that nobody has looked for yet.
    pub fn rows(&self) -> Rows {
        if self.are_expected() { Rows::PerhapsNot } else { Rows::There }
    }

    /// Whoever inserts may have to wait for somebody else who inserts the same key. What is there should not
    /// wait with it, and so goes first.
    pub fn expect_none(&mut self) {
        self.0 = 0;
    }

    /// What a statement that also inserts has met.
    pub fn note(&mut self, any: bool) {
        self.0 = if any { MEMORY } else { self.0.saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_expected_for_a_while_after_the_last() {
        let mut newcomers = Newcomers::default();
        assert!(!newcomers.are_expected());
        newcomers.note(false);
        assert!(!newcomers.are_expected());
        newcomers.note(true);
        for _ in 0..MEMORY {
            assert!(newcomers.are_expected());
            newcomers.note(false);
        }
        assert!(!newcomers.are_expected());
        newcomers.note(true);
        newcomers.expect_none();
        assert!(!newcomers.are_expected());
    }
}
