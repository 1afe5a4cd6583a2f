//! `GET /v1/rejections`: what was refused, newest first, or as it happens.

mod follow;
mod query;

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use super::{
    Api,
    accept::{self, Form},
    openapi,
    problem::Problem,
    weighed::ListingRoom,
};
use crate::{
    auth::{Identity, Operator, access::Subject, policy::Right},
    metrics::{Label, Limited},
    rejections::{Entry, Id},
    token::{Key, Seq, Token},
};

/// Refused writes, the newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = Rejections)]
struct Listing<'a> {
    #[schema(max_items = 1000)]
    rejections: Vec<Document<'a>>,
    /// Where they were looked for: in this server's memory, and in the store, where all servers keep
    /// them, unless it could not be asked or `--rejections-keep` is 0.
    #[schema(min_items = 1)]
    from: &'a [Source],
}

#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Source {
    Memory,
    Store,
}

/// One refused write. What is not known is null.
#[derive(Serialize, ToSchema)]
#[schema(as = Rejection)]
pub(super) struct Document<'a> {
    /// Which one it is.
    #[serde(serialize_with = "displayed")]
    #[schema(value_type = String, example = "9f86d081884c7d65-42")]
    id: Id,
    /// When, by this server's clock.
    #[schema(format = DateTime, example = "2026-11-16T10:45:00.123Z")]
    at: String,
    #[schema(required)]
    key: Option<&'a Key>,
    #[schema(required)]
    scope: Option<&'a Key>,
    /// The type of the problem that it was answered with.
    #[schema(schema_with = openapi::reasons)]
    reason: &'static str,
    #[schema(required)]
    token: Option<Token>,
    /// The mark that the token was held against.
    #[schema(required, minimum = 0, example = 34)]
    mark: Option<i64>,
    /// `true` where that mark is the floor under all keys: no grant has overtaken it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    floor: Option<bool>,
    #[schema(required)]
    seq: Option<Seq>,
    /// Who wrote, in their own words: `X-Fencing-Client`, or else `User-Agent`.
    #[schema(required, max_length = 256, example = "billing-7")]
    client: Option<&'a str>,
    /// Who wrote, as they have proved it; null where nobody has to.
    #[schema(required, max_length = 1024, example = "system:serviceaccount:shop:billing")]
    identity: Option<&'a str>,
    /// The other end of the connection.
    #[schema(required, example = "10.1.2.3:51234")]
    peer: Option<String>,
    /// The trace id of the request's `traceparent`.
    #[schema(required, value_type = Option<String>, pattern = "^[0-9a-f]{32}$", example = "0af7651916cd43dd8448eb211c80319c")]
    trace: Option<crate::trace::TraceId>,
    /// Who refused it: a mark in memory, the store, or the parser.
    #[schema(schema_with = openapi::judges)]
    decided_by: &'static str,
    /// The owner of the grant that overtook it.
    #[schema(required, example = "billing-8")]
    overtaken_by: Option<&'a str>,
}

/// See what was refused
///
/// Every refused write, whoever refused it, the newest first. With `Accept: text/event-stream`:
/// each as it happens, as an event `rejection`. A reader that is too slow, or a flood that is too
/// fast, makes an event `dropped` with a `count`. `Last-Event-ID` goes on where a stream has ended.
#[utoipa::path(
    get,
    path = "/v1/rejections",
    tag = "rejections",
    operation_id = "listRejections",
    params(openapi::RejectionsQuery),
    responses(
        (status = 200, description = "The newest first", content(
            (Listing = "application/json"),
            (String = "text/event-stream", example = "id: 9f86d081884c7d65-42\nevent: rejection\ndata: {\"key\":\"orders/42\",\"token\":33,\"mark\":34}\n\n"),
        )),
        openapi::ReadProblems,
        openapi::FormProblems,
    )
)]
pub async fn get(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let asked = query::asked(request.uri().query().unwrap_or_default())?;
    let access = api.access(request.extensions());
    let permit = access.rejections(asked.filter.key.as_ref())?;
    let rejections = api.guarded.engine(permit).rejections();
    let by_operator = request.extensions().get::<Operator>().is_some();
    if accept::form(request.headers())? == Form::Events {
        // Whoever runs the server follows them without an identity, and must be able to in a flood too.
        let who = access.identity();
        let place = who.map(|who| api.limits.place(Limited::Streams, Some(who))).transpose()?;
        let subject = asked.filter.key.clone().map_or(Subject::Everything, Subject::Key);
        let ended = access.lost(Right::Admin, subject);
        let closing = api.closing.clone().cancelled_owned();
        let until = async move {
            let _place = place;
            tokio::select! {
                () = ended => {}
                () = closing => {}
            }
        };
        return follow::response(rejections, asked, request.headers(), by_operator, until);
    }
    let room = if by_operator {
        ListingRoom::for_operator(&api.limits)
    } else {
        ListingRoom::new(&api.limits, access.identity(), asked.limit)?
    };
    let (entries, from) = match rejections.newest_anywhere(&asked.filter, asked.limit).await {
        Some(entries) => (entries, &[Source::Memory, Source::Store][..]),
        None => (rejections.newest(&asked.filter, asked.limit), &[Source::Memory][..]),
    };
    let rejections = entries.iter().map(Document::of).collect();
    Ok(room.json(&Listing { rejections, from })?)
}

impl<'a> Document<'a> {
    fn of(entry: &'a Arc<Entry>) -> Self {
        let rejection = &entry.rejection;
        let refused = &rejection.refused;
        Self {
            id: entry.id,
            at: humantime::format_rfc3339_millis(rejection.at).to_string(),
            key: refused.key.as_ref(),
            scope: refused.scope.as_ref(),
            reason: rejection.reason.name(),
            token: refused.token,
            mark: rejection.mark,
            floor: rejection.by_floor.then_some(true),
            seq: refused.seq,
            client: rejection.caller.client.as_deref(),
            identity: rejection.caller.identity.as_ref().map(Identity::as_str),
            peer: rejection.caller.peer.map(|peer| peer.to_string()),
            trace: rejection.caller.trace,
            decided_by: rejection.decided_by.name(),
            overtaken_by: entry.overtaken_by.as_deref(),
        }
    }
}

fn displayed<S: Serializer>(id: &Id, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}
