//! From the engine's verdict to an answer, for every handler that writes or claims.

use std::sync::Arc;

use axum::{http::HeaderValue, response::Response};

use super::{
    FENCING_REPLAY,
    problem::{Kind, Problem},
    render,
};
use crate::{
    engine::Engine,
    fence::{Judgement, Standing, Verdict},
    rejections::Caller,
    store::{Settled, Unit},
    write::{Change, Value, Write},
};

/// One write, to its verdict.
pub async fn settle(
    engine: &Engine,
    mut write: Write,
    caller: Arc<Caller>,
) -> Result<Judgement, Problem> {
    // What a refusal says of the write; its value goes on without being copied.
    let change = std::mem::replace(&mut write.change, Change::Claim);
    let asked = write.clone();
    write.change = change;
    match engine.settle(Unit::single(write).from(caller)).await? {
        Settled::Applied { judgements, .. } => Ok(judgements[0]),
        Settled::Refused { judgement, .. } => Err(refused(&asked, &judgement)),
    }
}

/// A claim, and the value as it was at that moment.
pub async fn fenced_read(
    engine: &Engine,
    claim: Write,
    caller: Arc<Caller>,
) -> Result<(Standing, Option<Value>), Problem> {
    match engine.settle(Unit::fenced_read(claim.clone()).from(caller)).await? {
        Settled::Applied { judgements, value } => Ok((judgements[0].key, value)),
        Settled::Refused { judgement, .. } => Err(refused(&claim, &judgement)),
    }
}

pub fn refused(write: &Write, judgement: &Judgement) -> Problem {
    let Some(refusal) = judgement.refusal() else {
        return Problem::new(
            Kind::StoreUnavailable,
            "the store gave an answer that makes no sense",
        );
    };
    Problem::refused(write, refusal, judgement)
}

pub fn with_fencing(mut response: Response, judgement: &Judgement) -> Response {
    let headers = response.headers_mut();
    render::fencing_headers(headers, &judgement.key);
    if judgement.verdict == Verdict::Replayed {
        headers.insert(FENCING_REPLAY, HeaderValue::from_static("true"));
    }
    response
}
