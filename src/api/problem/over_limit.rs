//! How a limit shows itself to whoever has reached it.

use super::{Kind, Problem};
use crate::{
    limits::OverLimit,
    metrics::{Label, Limited, Whose},
};

impl Problem {
    /// The claim of a fenced read was made, and there is no room for the value.
    pub fn claimed_but_over(over: OverLimit) -> Self {
        let mut problem = Self::from(over);
        problem.document.detail =
            "the token has been seen, but as many bytes of bodies are on their \
                                  way as may: there is no room for the value; read it again later"
                .into();
        problem
    }
}

impl From<OverLimit> for Problem {
    fn from(OverLimit { limit, whose, retry_after }: OverLimit) -> Self {
        let what = match limit {
            Limited::Requests => "requests arrive in a second",
            Limited::Connections => "connections are open",
            Limited::Locks => "locks are held or asked for",
            Limited::Waiters => "requests wait for a lock",
            Limited::Streams => "connections hold or watch a lock",
            Limited::Bodies => "bytes of bodies are on their way",
        };
        let detail = match whose {
            Whose::Total | Whose::Strangers => {
                format!("nothing was changed: as many {what} as may; try again later")
            }
            Whose::Identity => format!(
                "nothing was changed: as many {what} as one identity may have; try again later"
            ),
        };
        let mut problem = Self::new(Kind::OverLimit, detail).retry_after(retry_after);
        problem.document.limit = Some(limit.name());
        problem
    }
}
