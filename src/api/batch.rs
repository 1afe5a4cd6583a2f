//! `POST /v1/batch`: several writes that stand or fall together.

use std::{collections::HashSet, fmt};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use base64::{DecodeSliceError, Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    Api, FENCING_RULE, FENCING_SCOPE, FENCING_SEQ, caller, content_type, extract, openapi,
    outcome::refused,
    problem::{Kind, Problem},
    render,
    weighed::Received,
};
use crate::{
    buffer,
    fence::{Judgement, Verdict},
    limits::{BATCHED, BATCHED_WRITE, SharedLoad},
    store::{Settled, Unit},
    token::{Key, Seq, Token, Version},
    write::{Change, Precondition, Rule, Value, Write},
};

const MAX_WRITES: usize = 1000;

/// Writes that stand or fall together. Each key is written at most once.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    // Taken apart one by one, so that a mistake can be told by its place.
    #[serde(borrow)]
    #[schema(min_items = 1, max_items = 1000, value_type = Vec<Entry>)]
    writes: Texts<'a>,
}

/// The texts of a batch's writes, as many as there may be, and how many there are.
#[derive(Default)]
struct Texts<'a> {
    first: Vec<&'a RawValue>,
    count: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Texts<'a> {
    fn deserialize<D: Deserializer<'de>>(texts: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Texts<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Texts<'de>, A::Error> {
                let mut texts = Texts::default();
                while texts.count < MAX_WRITES {
                    let Some(text) = all.next_element()? else { return Ok(texts) };
                    texts.first.push(text);
                    texts.count += 1;
                }
                // A million of them must not take up memory before they are refused.
                while all.next_element::<IgnoredAny>()?.is_some() {
                    texts.count += 1;
                }
                Ok(texts)
            }
        }
        texts.deserialize_seq(All)
    }
}

/// What the values of a batch are taken out of. They count with it.
struct Source {
    body: Bytes,
    load: Option<SharedLoad>,
}

impl Source {
    /// A part of the body as it came, which is not copied.
    fn slice(&self, text: &str) -> Bytes {
        self.body.slice_ref(text.as_bytes())
    }

    fn decoded(&self, text: &str) -> Result<Bytes, DecodeSliceError> {
        let most = base64::decoded_len_estimate(text.len());
        let value = buffer::written(most, |bytes| BASE64_STANDARD.decode_slice(text, bytes))?;
        Ok(match &self.load {
            Some(load) => load.of(value),
            None => value,
        })
    }
}

/// One write, with exactly one of `value`, `value_base64` and `"delete": true`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BatchWrite)]
struct Entry<'a> {
    #[schema(value_type = Key)]
    key: String,
    // Numbers are judged by their text, as in a header: `5.0` and `1e3` are not tokens.
    #[serde(borrow)]
    #[schema(required, value_type = Token)]
    token: Option<&'a RawValue>,
    #[serde(borrow)]
    #[schema(value_type = Option<Seq>)]
    seq: Option<&'a RawValue>,
    /// The key whose mark guards this write as well.
    #[schema(value_type = Option<Key>)]
    scope: Option<String>,
    rule: Option<Rule>,
    #[schema(schema_with = openapi::version_or_etag)]
    if_match: Option<VersionOrEtag>,
    #[schema(value_type = Option<openapi::AnyVersion>)]
    if_none_match: Option<String>,
    #[serde(default)]
    delete: bool,
    /// What a reader gets as `Content-Type`. `application/json` for a `value` that names none,
    /// `application/octet-stream` for a `value_base64`.
    #[schema(min_length = 1, max_length = 256, pattern = "^[ -~]+$", example = "text/plain")]
    content_type: Option<String>,
    /// Any JSON, stored as the text it was sent as: `null` is a value, and no number loses a digit.
    #[serde(borrow, default, deserialize_with = "even_if_null")]
    #[schema(value_type = serde_json::Value, nullable = false)]
    value: Option<&'a RawValue>,
    /// Any bytes.
    #[schema(
        content_encoding = "base64",
        pattern = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
    )]
    value_base64: Option<String>,
}

/// `3`, or the ETag as a header carries it: `"\"3\""`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "if_match is a version such as 3, or its ETag")]
enum VersionOrEtag {
    Version(i64),
    Etag(String),
}

fn even_if_null<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

/// The writes' answers, in their order.
#[derive(Serialize, ToSchema)]
#[schema(as = BatchResults)]
struct Results<'a> {
    #[schema(min_items = 1, max_items = 1000)]
    results: Vec<Outcome<'a>>,
}

/// One write's answer: what it would have been alone.
#[derive(Serialize, ToSchema)]
#[schema(as = BatchResult)]
struct Outcome<'a> {
    key: &'a Key,
    /// 201 created, 200 replaced, 204 deleted.
    #[schema(example = 201)]
    status: u16,
    version: Version,
    /// The key's mark.
    #[schema(minimum = 1, example = 33)]
    token: i64,
    /// True for a replay, else absent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replay: bool,
}

/// Write several resources, all or none
///
/// The writes are judged in order. If one is refused, the problem's `index` says which, and nothing
/// is changed.
#[utoipa::path(
    post,
    path = "/v1/batch",
    tag = "batch",
    operation_id = "batch",
    request_body(content = Batch, example = json!({"writes": [
        {"key": "orders/42", "token": 33, "value": {"state": "paid"}},
        {"key": "orders/43", "token": 33, "scope": "orders/42", "value_base64": "cGFpZA=="},
        {"key": "carts/7", "token": 33, "delete": true},
    ]})),
    responses(
        (status = 200, description = "All of them are done", body = Results),
        openapi::BatchProblems,
        openapi::BodyProblems,
    )
)]
pub async fn post(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body = api.receive(&parts, body).await;
    content_type::require_json(&parts.headers, "a batch is")?;
    refuse_headers_of_a_write(&parts.headers)?;
    if parts.uri.query().is_some() {
        return Err(Problem::new(Kind::InvalidRequest, "a batch takes no query"));
    }
    let writes = {
        let Received { bytes, load } = body?;
        let texts = texts(&bytes)?;
        let mut load = load.unwrap_or_else(|| api.limits.load(parts.extensions.get()));
        let weight = BATCHED * bytes.len() as u64 + BATCHED_WRITE * texts.count as u64;
        api.limits.grow(&mut load, weight)?;
        let load = load.shared();
        parse(api.rule, texts, &Source { body: load.of(bytes.clone()), load: Some(load) })?
    };
    let access = api.access(&parts.extensions);
    let permit = access.batch(&writes).map_err(|(index, denied)| {
        Problem::from(denied).about(writes[index].key.clone()).at(index)
    })?;
    let caller = caller::of(&parts.extensions);
    match api.guarded.engine(permit).settle(Unit::atomic(writes.clone()).from(caller)).await? {
        Settled::Applied { judgements, .. } => {
            let results = writes.iter().zip(&judgements).map(|(w, j)| outcome(w, j)).collect();
            Ok(render::json(StatusCode::OK, &Results { results }))
        }
        Settled::Refused { index, judgement } => Err(refused(&writes[index], &judgement).at(index)),
    }
}

fn outcome<'a>(write: &'a Write, judgement: &Judgement) -> Outcome<'a> {
    let status = match write.change {
        Change::Delete | Change::Claim => StatusCode::NO_CONTENT,
        Change::Put(_) if judgement.key.created => StatusCode::CREATED,
        Change::Put(_) => StatusCode::OK,
    };
    Outcome {
        key: &write.key,
        status: status.as_u16(),
        version: judgement.key.version,
        token: judgement.key.mark.token,
        replay: judgement.verdict == Verdict::Replayed,
    }
}

/// They may be meant for every write, and must not be ignored: each write says it for itself.
fn refuse_headers_of_a_write(headers: &HeaderMap) -> Result<(), Problem> {
    let of_a_write = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_UNMODIFIED_SINCE,
        header::IF_RANGE,
        FENCING_SCOPE,
        FENCING_SEQ,
        FENCING_RULE,
    ];
    match of_a_write.iter().find(|name| headers.contains_key(*name)) {
        None => Ok(()),
        Some(name) => Err(Problem::new(
            Kind::InvalidRequest,
            format!("{name} is not for a batch; its writes have members for that"),
        )),
    }
}

fn texts(body: &Bytes) -> Result<Texts<'_>, Problem> {
    let batch: Batch<'_> = serde_json::from_slice(body)
        .map_err(|error| Problem::new(Kind::InvalidRequest, format!("not a batch: {error}")))?;
    let texts = batch.writes;
    if texts.count == 0 || texts.count > MAX_WRITES {
        let detail = format!("a batch holds 1 to {MAX_WRITES} writes, not {}", texts.count);
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    Ok(texts)
}

fn parse(default: Rule, texts: Texts<'_>, source: &Source) -> Result<Vec<Write>, Problem> {
    let mut keys = HashSet::new();
    let mut writes = Vec::with_capacity(texts.count);
    for (index, text) in texts.first.into_iter().enumerate() {
        let entry = serde_json::from_str(text.get())
            .map_err(|error| Problem::new(Kind::InvalidRequest, format!("not a write: {error}")));
        let write = entry
            .and_then(|entry| write_of(default, entry, source))
            .map_err(|problem| problem.at(index))?;
        if !keys.insert(write.key.clone()) {
            let detail = format!("the key {:?} is written more than once", write.key.as_str());
            return Err(Problem::new(Kind::InvalidRequest, detail).of(&write).at(index));
        }
        writes.push(write);
    }
    Ok(writes)
}

fn write_of(default: Rule, entry: Entry<'_>, source: &Source) -> Result<Write, Problem> {
    let key = Key::new(&entry.key)?;
    write_to(default, key.clone(), entry, source).map_err(|problem| problem.about(key))
}

fn write_to(default: Rule, key: Key, entry: Entry<'_>, source: &Source) -> Result<Write, Problem> {
    let positive = |kind, name| {
        move || {
            Problem::new(kind, format!("{name} is a whole number from 1 to 9223372036854775807"))
        }
    };
    let token = entry.token.ok_or_else(|| {
        Problem::new(Kind::TokenRequired, "each write of a batch must carry its fencing token")
    })?;
    let token = Token::parse(token.get()).ok_or_else(positive(Kind::InvalidToken, "token"))?;
    let seq = entry
        .seq
        .map(|seq| Seq::parse(seq.get()).ok_or_else(positive(Kind::InvalidSeq, "seq")))
        .transpose()?;
    let scope = entry.scope.as_deref().map(Key::new).transpose()?.filter(|scope| *scope != key);
    Ok(Write {
        token,
        seq,
        scope,
        rule: entry.rule.unwrap_or(default),
        precondition: precondition(&entry)?,
        change: change(entry, source)?,
        key,
    })
}

fn precondition(entry: &Entry<'_>) -> Result<Option<Precondition>, Problem> {
    let invalid = |detail| Err(Problem::new(Kind::InvalidRequest, detail));
    match (&entry.if_match, entry.if_none_match.as_deref()) {
        (None, None) => Ok(None),
        (Some(expected), None) => {
            let version = match expected {
                VersionOrEtag::Version(number) => Version::parse(&number.to_string()),
                VersionOrEtag::Etag(etag) => extract::version_of(etag),
            };
            match version {
                Some(version) => Ok(Some(Precondition::Version(version))),
                None => invalid("if_match is a version such as 3, or its ETag"),
            }
        }
        (None, Some("*")) => Ok(Some(Precondition::Absent)),
        (None, Some(_)) => invalid("if_none_match is \"*\" and nothing else"),
        (Some(_), Some(_)) => invalid("if_match and if_none_match contradict each other"),
    }
}

fn change(entry: Entry<'_>, source: &Source) -> Result<Change, Problem> {
    let invalid = |detail: &str| Problem::new(Kind::InvalidRequest, detail);
    if entry.content_type.as_ref().is_some_and(|text| !content_type::is_header_text(text)) {
        return Err(invalid("content_type is up to 256 characters of visible ASCII"));
    }
    let value = match (entry.delete, entry.value, entry.value_base64) {
        (true, None, None) => return Ok(Change::Delete),
        (false, Some(json), None) => Value {
            body: source.slice(json.get()),
            content_type: entry.content_type.unwrap_or_else(|| content_type::JSON.into()),
        },
        (false, None, Some(text)) => Value {
            body: source.decoded(&text).map_err(|_| invalid("value_base64 is not valid base64"))?,
            content_type: entry.content_type.unwrap_or_else(|| content_type::BYTES.into()),
        },
        _ => return Err(invalid("a write has one of value, value_base64 and delete: true")),
    };
    Ok(Change::Put(value))
}

#[cfg(test)]
mod fuzz;
