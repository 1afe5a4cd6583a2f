//! The rule: may this write pass?
//!
//! A function of the write and of what is stored, and of nothing else: no clock, no I/O, no cache.
//! The stores either call it under a lock on the rows it reads, or say the same in one conditional
//! SQL statement; a property test holds them to the same verdicts.

use crate::{
    token::{Mark, Token, Version},
    write::{Change, Digest, Precondition, Rule, Write},
};

/// What is stored about a key, without its value: all that the fence needs to know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub mark: Mark,
    /// [`Version::NONE`] until the first change; it goes on over a delete.
    pub version: Version,
    /// Whether there is a value. A deleted key, or one that was only claimed, has none.
    pub present: bool,
    /// Whether the last put found no value: what a replay of it must say again.
    pub created: bool,
    /// The fingerprint of the write that set the mark, if that write was ordered by a seq.
    pub digest: Option<Digest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// It was accepted before: answer as then, change nothing.
    Replayed,
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A newer holder has been seen.
    Stale,
    /// The same holder has already written something later.
    OutOfOrder,
    /// The same holder used this seq for something else.
    SeqReused,
    /// The fence let it pass, but the value is not the one it was meant for.
    VersionMismatch,
    /// It would raise a mark to a token that nobody can have been given. Trust decides that, before
    /// the rule is asked (`engine/trust.rs`).
    Unissued,
}

/// A verdict, and what is stored once it has been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// The written key afterwards. Unchanged by a refusal, except that a write which only failed
    /// its precondition raises the mark: its holder has been seen.
    pub key: Standing,
    /// The highest mark that the token was held against: the key's, its scope's or the floor.
    pub guard: Mark,
    /// The token of the key's own mark. `key.mark` is higher where the floor is.
    pub own: i64,
    /// Whether the floor made the token stale: no mark of the key or its scope is as high.
    pub by_floor: bool,
}

impl Judgement {
    /// A write that was accepted, and left its key like this.
    pub fn accepted(key: Standing) -> Self {
        let (guard, own) = (key.mark, key.mark.token);
        Self { verdict: Verdict::Accepted, key, guard, own, by_floor: false }
    }

    pub fn refusal(&self) -> Option<Refusal> {
        match self.verdict {
            Verdict::Refused(refusal) => Some(refusal),
            Verdict::Accepted | Verdict::Replayed => None,
        }
    }

    /// The mark that a refused token was held against: the key's own, unless it was stale, when that
    /// of the scope or the floor may have been higher.
    pub fn held_against(&self) -> i64 {
        match self.verdict {
            Verdict::Refused(Refusal::Stale) => self.guard.token,
            _ => self.key.mark.token,
        }
    }

    /// Whether the holder was let through the fence, so that the marks of key and scope rise.
    pub fn passed_the_fence(&self) -> bool {
        matches!(
            self.verdict,
            Verdict::Accepted | Verdict::Replayed | Verdict::Refused(Refusal::VersionMismatch)
        )
    }
}

/// Judges `write` against what is stored: the standing of its key, the mark of its scope (if that
/// is another key), and the floor under all keys.
pub fn judge(write: &Write, key: &Standing, scope: Option<Mark>, floor: Mark) -> Judgement {
    let held = key.mark.max(scope.unwrap_or(Mark::UNSEEN));
    let guard = held.max(floor);
    let judged = |verdict, key: Standing| Judgement {
        verdict,
        key,
        guard,
        own: key.mark.token,
        by_floor: false,
    };
    let refused = |refusal| judged(Verdict::Refused(refusal), *key);

    if guard.outranks(write.token) {
        // Where the floor is higher, it is what a reader would be told as the key's mark.
        let as_read = Standing { mark: key.mark.max(floor), ..*key };
        let stale = judged(Verdict::Refused(Refusal::Stale), as_read);
        let by_floor = floor.token > held.token;
        return Judgement { own: key.mark.token, by_floor, ..stale };
    }
    if key.mark.token == write.token.get() {
        match same_holder_again(write, key) {
            Again::Passes => {}
            Again::Replays => return judged(Verdict::Replayed, *key),
            Again::Refused(refusal) => return refused(refusal),
        }
    }
    if !precondition_holds(write.precondition, key) {
        return judged(Verdict::Refused(Refusal::VersionMismatch), seen(key, write.token));
    }
    judged(Verdict::Accepted, changed(key, write))
}

enum Again {
    Passes,
    Replays,
    Refused(Refusal),
}

/// The token equals the key's mark, so the fence cannot tell old from new; the seq can.
fn same_holder_again(write: &Write, key: &Standing) -> Again {
    let Some(seq) = write.seq else {
        return match (&write.change, write.rule) {
            // A claim changes nothing that order could spoil. But that of a grant must be the first to
            // bring its token, or two holders might share one.
            (Change::Claim, Rule::AtLeast) => Again::Passes,
            (_, Rule::Above) => Again::Refused(Refusal::Stale),
            (_, Rule::AtLeast) if key.mark.seq > 0 => Again::Refused(Refusal::OutOfOrder),
            (_, Rule::AtLeast) => Again::Passes,
        };
    };
    match seq.get().cmp(&key.mark.seq) {
        std::cmp::Ordering::Greater => Again::Passes,
        std::cmp::Ordering::Less => Again::Refused(Refusal::OutOfOrder),
        std::cmp::Ordering::Equal if key.digest == write.digest() => Again::Replays,
        std::cmp::Ordering::Equal => Again::Refused(Refusal::SeqReused),
    }
}

fn precondition_holds(precondition: Option<Precondition>, key: &Standing) -> bool {
    match precondition {
        None => true,
        Some(Precondition::Version(version)) => key.present && key.version == version,
        Some(Precondition::Absent) => !key.present,
    }
}

/// The holder has been seen, and that is all. Its seq is not used up.
pub fn seen(key: &Standing, token: Token) -> Standing {
    if key.mark.token == token.get() {
        return *key;
    }
    Standing { mark: key.mark.raised_to(token), created: false, digest: None, ..*key }
}

fn changed(key: &Standing, write: &Write) -> Standing {
    let mark = Mark::at(write.token, write.seq);
    let digest = write.digest();
    match &write.change {
        Change::Put(_) => Standing {
            mark,
            version: key.version.next(),
            present: true,
            created: !key.present,
            digest,
        },
        Change::Delete => Standing {
            mark,
            // Deleting what is not there changes nothing but the mark.
            version: if key.present { key.version.next() } else { key.version },
            present: false,
            created: false,
            digest,
        },
        Change::Claim => match write.seq {
            None => seen(key, write.token),
            Some(_) => Standing { mark, created: false, digest, ..*key },
        },
    }
}

#[cfg(test)]
mod same_as_model;
#[cfg(test)]
mod tests;
