//! A refused write in plain words: what happened, and what to do.

use crate::{
    fence::{Judgement, Refusal},
    write::{Precondition, Write},
};

pub fn explain(write: &Write, refusal: Refusal, judgement: &Judgement) -> String {
    let token = write.token;
    let guard = judgement.guard.token;
    match refusal {
        Refusal::Stale if guard == token.get() => format!(
            "token {token} has already been seen here, and the rule `above` allows one write per \
             token; acquire the lock again for a new token"
        ),
        Refusal::Stale if guard < token.get() => format!(
            "token {token} is behind that of an earlier write in the same batch, for this key or \
             scope; a batch is made under one lock at a time"
        ),
        Refusal::Stale if judgement.by_floor => format!(
            "token {token} is below the floor {guard}, and every token below it is stale for every \
             key: old marks were collected, another database server took over, or an operator raised \
             it after a restore; stop, and acquire the lock again for a new token"
        ),
        Refusal::Stale => format!(
            "token {token} is behind the mark {guard}: a newer holder has taken over; stop, and \
             acquire the lock again before writing"
        ),
        Refusal::OutOfOrder => {
            let latest = judgement.key.mark.seq;
            match write.seq {
                Some(seq) => format!(
                    "seq {seq} comes after seq {latest} of the same token was accepted; drop this write"
                ),
                None => format!(
                    "this holder has already written with seq {latest}, so its writes here must go \
                     on carrying X-Fencing-Seq"
                ),
            }
        }
        Refusal::SeqReused => {
            "this token and seq were used for a write with another body; give each write a seq of \
             its own"
                .into()
        }
        Refusal::Unissued => format!(
            "token {token} is above the mark {guard}, and nobody can have been given it for this \
             key or scope; a token comes from acquiring the lock"
        ),
        Refusal::VersionMismatch => {
            let found = if judgement.key.present {
                format!("it is at version {}", judgement.key.version)
            } else {
                "it has no value".into()
            };
            match write.precondition {
                Some(Precondition::Version(version)) => {
                    format!(
                        "the write expects version {version}, but {found}; read again, decide again"
                    )
                }
                Some(Precondition::Absent) | None => {
                    format!("the write expects no value, but {found}; read again, decide again")
                }
            }
        }
    }
}
