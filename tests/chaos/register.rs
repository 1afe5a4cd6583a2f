//! The rule, once more, in its own words: what a fenced register does, one request at a time.
//!
//! It shares no code with the product, so that a mistake there is not repeated here.

use std::sync::Arc;

use crate::history::Write;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    pub token: i64,
    pub seq: i64,
    pub version: i64,
    pub value: Option<Arc<str>>,
    /// What the write that set the seq was about: its value, or that it was a delete.
    pub by: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Replayed,
    Refused(&'static str),
}

impl Register {
    /// `guard` is the highest of the scope's mark and the floor.
    pub fn write(&self, write: &Write, guard: i64) -> (Verdict, Self) {
        let unchanged = |verdict| (verdict, self.clone());
        if write.token < self.token.max(guard) {
            return unchanged(Verdict::Refused("stale-token"));
        }
        let value: Option<Arc<str>> = write.value.as_deref().map(Into::into);
        if write.token == self.token {
            if write.seq < self.seq {
                return unchanged(Verdict::Refused("out-of-order"));
            }
            if write.seq == self.seq && write.seq > 0 {
                let same = self.by.as_deref() == Some(about(write));
                return unchanged(if same {
                    Verdict::Replayed
                } else {
                    Verdict::Refused("seq-reused")
                });
            }
        }
        let fits = match write.expects {
            None => true,
            Some(0) => self.value.is_none(),
            Some(version) => self.value.is_some() && self.version == version,
        };
        if !fits {
            return (Verdict::Refused("version-mismatch"), self.seen(write.token));
        }
        let changes = value.is_some() || self.value.is_some();
        let after = Self {
            token: write.token,
            seq: write.seq,
            version: self.version + i64::from(changes),
            by: (write.seq > 0).then(|| about(write).into()),
            value,
        };
        (Verdict::Accepted, after)
    }

    pub fn claim(&self, token: i64, guard: i64) -> (Verdict, Self) {
        if token < self.token.max(guard) {
            return (Verdict::Refused("stale-token"), self.clone());
        }
        (Verdict::Accepted, self.seen(token))
    }

    /// A holder has been seen, and nothing else.
    pub fn seen(&self, token: i64) -> Self {
        if token == self.token {
            return self.clone();
        }
        Self { token, seq: 0, by: None, ..self.clone() }
    }
}

fn about(write: &Write) -> &str {
    write.value.as_deref().unwrap_or("deleted")
}
