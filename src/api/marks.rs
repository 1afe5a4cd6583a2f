//! `/v1/marks/{key}`: look at a mark, or raise it without writing a value.

use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    response::Response,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Api, caller, extract,
    named::Named,
    openapi,
    outcome::{settle, with_fencing},
    problem::{Kind, Problem},
    render,
};
use crate::{
    token::{Key, Mark},
    write::{Change, Rule, Write},
};

pub const PREFIX: &str = "/v1/marks/";

/// A key's mark: the highest token it has seen. It never falls.
#[derive(Serialize, ToSchema)]
#[schema(as = Mark)]
struct MarkOf<'a> {
    key: &'a Key,
    /// 0 where nothing was ever seen.
    #[schema(minimum = 0, example = 33)]
    token: i64,
    /// The last seq of that token's holder on this key; 0 where it has used none.
    #[schema(minimum = 0, example = 0)]
    seq: i64,
}

impl<'a> MarkOf<'a> {
    fn new(key: &'a Key, mark: Mark) -> Self {
        Self { key, token: mark.token, seq: mark.seq }
    }
}

/// Look at a mark
#[utoipa::path(
    get,
    path = "/v1/marks/{key}",
    tag = "marks",
    operation_id = "getMark",
    params(openapi::KeyInPath),
    responses(
        (status = 200, description = "The mark; its token is 0 where nothing was ever seen", body = MarkOf),
        openapi::ReadProblems,
    )
)]
pub async fn get(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let key = extract::key(request.uri(), PREFIX)?;
    let permit = api.access(request.extensions()).read(&key)?;
    let snapshot = api.guarded.engine(permit).read(key.clone()).await?;
    let mut response = render::json(StatusCode::OK, &MarkOf::new(&key, snapshot.standing.mark));
    render::fencing_headers(response.headers_mut(), &snapshot.standing);
    Ok(response)
}

/// Claim: raise a mark without writing a value
///
/// A new holder that claims before it reads cannot be overtaken by an older one's write. A claim at
/// the mark itself is accepted and changes nothing.
#[utoipa::path(
    put,
    path = "/v1/marks/{key}",
    tag = "marks",
    operation_id = "claim",
    params(openapi::KeyInPath, openapi::WriteHeaders),
    responses(
        (status = 200, description = "Claimed: the mark after it", body = MarkOf),
        openapi::WriteProblems,
    )
)]
pub async fn put(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let key = extract::key(request.uri(), PREFIX)?;
    let headers = request.headers();
    if let Some(name) =
        [header::IF_MATCH, header::IF_NONE_MATCH].iter().find(|name| headers.contains_key(*name))
    {
        let detail = format!("a claim writes no value, so {name} has nothing to look at");
        return Err(Problem::new(Kind::InvalidRequest, detail).about(key));
    }
    let claim = extract::write(&api, key.clone(), headers, Named::among(headers), Change::Claim)?;
    // It writes no value, so that a second one undoes nothing.
    let claim = Write { rule: Rule::AtLeast, ..claim };
    let permit = api.access(request.extensions()).write(&claim)?;
    let engine = api.guarded.engine(permit);
    let judgement = settle(engine, claim, caller::of(request.extensions())).await?;
    let response = render::json(StatusCode::OK, &MarkOf::new(&key, judgement.key.mark));
    Ok(with_fencing(response, &judgement))
}
