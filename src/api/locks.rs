//! `/v1/locks`: take a lock, keep it, give it back, and see who has it.
//!
//! | request | file |
//! |---|---|
//! | `POST /v1/locks/{name}` | `acquire.rs`; as events `hold.rs` |
//! | `PUT`, `DELETE /v1/locks/{name}` | `holder.rs` |
//! | `GET /v1/locks/{name}` | `inspect.rs`; as events `watch.rs` |
//! | `GET /v1/locks` | `list.rs` |
//!
//! A name is a key, and the rest of the path: there are no suffixes, so no name is ambiguous.

pub mod acquire;
mod hold;
pub mod holder;
pub mod inspect;
pub mod list;
mod problem;
mod watch;

use std::time::Duration;

use axum::http::{HeaderMap, Uri, header};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    FENCING_RULE, FENCING_SCOPE, FENCING_SEQ, extract,
    problem::{Kind, Problem},
};
use crate::{
    authority::Holder,
    token::{Key, Token},
};

const PREFIX: &str = "/v1/locks/";

/// The lock that a request names. What such a request cannot mean is refused, and not ignored.
fn name(uri: &Uri, headers: &HeaderMap) -> Result<Key, Problem> {
    let of_a_write = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_UNMODIFIED_SINCE,
        header::IF_RANGE,
        FENCING_SCOPE,
        FENCING_SEQ,
        FENCING_RULE,
    ];
    if let Some(name) = of_a_write.iter().find(|name| headers.contains_key(*name)) {
        let detail = format!("{name} is for the writes under a lock, not for the lock itself");
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    extract::key(uri, PREFIX)
}

/// Who holds a lock.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Holder)]
pub struct HolderNow {
    token: Token,
    /// Who that is, in their own words.
    #[schema(example = "billing-7")]
    owner: String,
    /// What is left of the lease, in milliseconds.
    #[schema(minimum = 0, example = 21_500)]
    ttl_ms: u64,
}

impl From<&Holder> for HolderNow {
    fn from(holder: &Holder) -> Self {
        Self {
            token: holder.token,
            owner: holder.owner.clone(),
            ttl_ms: milliseconds(holder.remaining),
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
