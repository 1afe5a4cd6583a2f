//! From the engine's verdict to an answer, for every handler that writes or claims.

use std::sync::Arc;

use axum::{http::HeaderValue, response::Response};

use super::{
    FENCING_REPLAY,
    problem::{Kind, Problem},
    render,
    weighed::ValueRoom,
};
use crate::{
    engine::{Engine, EngineError},
    fence::{Judgement, Standing, Verdict},
    rejections::Caller,
    store::{Settled, Unit},
    token::Key,
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

/// The newest state of a key. The value is missing if there is none, or if the client has it already.
pub async fn read(
    engine: &Engine,
    key: &Key,
    is_known: impl Fn(&Standing) -> bool,
    room: &mut ValueRoom<'_>,
) -> Result<(Standing, Option<Value>), Problem> {
    let mut found = engine.read(key.clone()).await?;
    if found.lacks_its_value() && !is_known(&found.standing) {
        found = engine.fetch(key, found, room).await.map_err(|error| unless_over(error, room))?;
    }
    Ok((found.standing, found.value))
}

/// A claim, and the value as it was at that moment or later, under the same mark.
pub async fn fenced_read(
    engine: &Engine,
    claim: Write,
    caller: Arc<Caller>,
    is_known: impl Fn(&Standing) -> bool,
    room: &mut ValueRoom<'_>,
) -> Result<(Standing, Option<Value>), Problem> {
    let unit = Unit::fenced_read(claim.clone()).from(caller);
    let mut settled = engine.settle(unit.clone()).await?;
    if let Settled::Applied { judgements, value: None } = &settled
        && judgements[0].key.present
        && !is_known(&judgements[0].key)
    {
        let fetched = engine.fetch_claimed(&unit, room).await;
        settled = fetched.map_err(|error| match (error, room.over()) {
            (EngineError::NoRoom, Some(over)) => Problem::claimed_but_over(over),
            (error, _) => Problem::from(error).after_a_claim(),
        })?;
    }
    match settled {
        Settled::Applied { judgements, value } => Ok((judgements[0].key, value)),
        Settled::Refused { judgement, .. } => Err(refused(&claim, &judgement)),
    }
}

fn unless_over(error: EngineError, room: &ValueRoom<'_>) -> Problem {
    match (error, room.over()) {
        (EngineError::NoRoom, Some(over)) => over.into(),
        (error, _) => error.into(),
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
