//! From headers and paths to the words of the fence. Bad input stops here.

use axum::http::{HeaderMap, HeaderName, Uri, header};

use super::{
    Api, FENCING_CLIENT, FENCING_RULE, FENCING_SCOPE, FENCING_SEQ, FENCING_TOKEN,
    named::{Name, Named},
    problem::{Kind, Problem},
};
use crate::{
    rejections::Caller,
    token::{Key, Seq, Token, Version},
    write::{Change, Precondition, Rule, Write},
};

const MAX_CLIENT_BYTES: usize = Caller::MAX_CLIENT_BYTES;

/// The rest of the path, taken literally. A query is refused: whoever sends one has most likely
/// left a `?` of the key unescaped, and would write another key than they mean.
pub fn key(uri: &Uri, prefix: &str) -> Result<Key, Problem> {
    if uri.query().is_some() {
        let detail = "this resource takes no query; a '?' that belongs to the key is written %3F";
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    let encoded = uri.path().strip_prefix(prefix).unwrap_or_default();
    Ok(Key::from_encoded(encoded)?)
}

/// Everything that the headers say of a write, a delete or a claim.
pub fn write(
    api: &Api,
    key: Key,
    headers: &HeaderMap,
    named: Named,
    change: Change,
) -> Result<Write, Problem> {
    let token = token(headers)
        .and_then(|token| token.ok_or_else(token_required))
        .map_err(|problem| problem.about(key.clone()))?;
    let mut write = Write { change, rule: api.rule, ..Write::claim(key, token) };
    match the_rest_of(&mut write, headers, named) {
        Ok(()) => Ok(write),
        // With as much of the write as could be read.
        Err(problem) => Err(problem.of(&write)),
    }
}

fn the_rest_of(write: &mut Write, headers: &HeaderMap, named: Named) -> Result<(), Problem> {
    if named.has(Name::Fencing) {
        write.seq = seq(headers)?;
        write.scope = scope(headers)?.filter(|scope| *scope != write.key);
        client(headers)?;
        write.rule = rule(headers)?.unwrap_or(write.rule);
    }
    if named.has(Name::Condition) {
        write.precondition = precondition(headers)?;
    }
    Ok(())
}

fn token_required() -> Problem {
    let detail = "a write must carry the fencing token of the lock it is made under, in \
                  X-Fencing-Token";
    Problem::new(Kind::TokenRequired, detail)
}

/// The claim that a read with a token makes; `None` for a plain read.
pub fn fenced_read(key: &Key, headers: &HeaderMap, named: Named) -> Result<Option<Write>, Problem> {
    if !named.has(Name::Token) && !named.has(Name::Fencing) {
        return Ok(None);
    }
    client(headers)?;
    let Some(token) = token(headers)? else {
        let needless = [FENCING_SEQ, FENCING_SCOPE, FENCING_RULE];
        if let Some(header) = needless.iter().find(|name| headers.contains_key(*name)) {
            let detail = format!("{header} means nothing on a read without X-Fencing-Token");
            return Err(Problem::new(Kind::InvalidRequest, detail));
        }
        return Ok(None);
    };
    if headers.contains_key(FENCING_SEQ) {
        let detail = "a fenced read is not ordered by a seq; leave X-Fencing-Seq out";
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    rule(headers)?;
    let mut claim = Write::claim(key.clone(), token);
    claim.scope = scope(headers)?.filter(|scope| scope != key);
    Ok(Some(claim))
}

pub fn token(headers: &HeaderMap) -> Result<Option<Token>, Problem> {
    let Some(text) = only(headers, &FENCING_TOKEN, Kind::InvalidToken)? else { return Ok(None) };
    let token = Token::parse(text).ok_or_else(|| {
        let detail = "X-Fencing-Token is a whole number from 1 to 9223372036854775807, in plain \
                      digits without leading zeros";
        Problem::new(Kind::InvalidToken, detail)
    })?;
    Ok(Some(token))
}

fn seq(headers: &HeaderMap) -> Result<Option<Seq>, Problem> {
    let Some(text) = only(headers, &FENCING_SEQ, Kind::InvalidSeq)? else { return Ok(None) };
    let seq = Seq::parse(text).ok_or_else(|| {
        let detail = "X-Fencing-Seq is a whole number from 1 to 9223372036854775807, in plain \
                      digits without leading zeros";
        Problem::new(Kind::InvalidSeq, detail)
    })?;
    Ok(Some(seq))
}

fn scope(headers: &HeaderMap) -> Result<Option<Key>, Problem> {
    let encoded = only(headers, &FENCING_SCOPE, Kind::InvalidKey)?;
    encoded
        .map(|encoded| {
            Key::from_encoded(encoded).map_err(|error| {
                Problem::new(Kind::InvalidKey, format!("X-Fencing-Scope: {error}"))
            })
        })
        .transpose()
}

fn rule(headers: &HeaderMap) -> Result<Option<Rule>, Problem> {
    match only(headers, &FENCING_RULE, Kind::InvalidRequest)? {
        None => Ok(None),
        Some("at-least") => Ok(Some(Rule::AtLeast)),
        Some("above") => Ok(Some(Rule::Above)),
        Some(_) => {
            let detail = "X-Fencing-Rule is `at-least` or `above`";
            Err(Problem::new(Kind::InvalidRequest, detail))
        }
    }
}

/// Who asks, in their own words. What is not UTF-8 cannot be shown, and is left out.
pub fn client(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(FENCING_CLIENT).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if value.len() > MAX_CLIENT_BYTES => {
            let detail = format!("X-Fencing-Client is longer than {MAX_CLIENT_BYTES} bytes");
            Err(Problem::new(Kind::InvalidRequest, detail))
        }
        (Some(_), Some(_)) => {
            Err(Problem::new(Kind::InvalidRequest, "X-Fencing-Client was sent more than once"))
        }
        (value, _) => {
            let text = value.and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
            Ok(text.map(str::to_owned))
        }
    }
}

/// `If-Match: "<version>"` or `If-None-Match: *`. Any other form is refused, never ignored.
fn precondition(headers: &HeaderMap) -> Result<Option<Precondition>, Problem> {
    let if_match = only(headers, &header::IF_MATCH, Kind::InvalidRequest)?;
    let if_none_match = only(headers, &header::IF_NONE_MATCH, Kind::InvalidRequest)?;
    for unsupported in [header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE, header::IF_RANGE] {
        if headers.contains_key(&unsupported) {
            return Err(Problem::new(
                Kind::InvalidRequest,
                format!("{unsupported} is not supported: a resource has a version, and no date"),
            ));
        }
    }
    match (if_match, if_none_match) {
        (None, None) => Ok(None),
        (Some(etag), None) => match version_of(etag) {
            Some(version) => Ok(Some(Precondition::Version(version))),
            None => Err(Problem::new(
                Kind::InvalidRequest,
                "If-Match takes one strong ETag as this server gives it, such as \"3\"",
            )),
        },
        (None, Some("*")) => Ok(Some(Precondition::Absent)),
        (None, Some(_)) => Err(Problem::new(
            Kind::InvalidRequest,
            "a write can have If-None-Match: * and no other",
        )),
        (Some(_), Some(_)) => Err(Problem::new(
            Kind::InvalidRequest,
            "If-Match and If-None-Match contradict each other; send one of them",
        )),
    }
}

/// The version in a strong ETag.
pub fn version_of(etag: &str) -> Option<Version> {
    Version::parse(etag.strip_prefix('"')?.strip_suffix('"')?)
}

/// A header's only value. Two of them are refused, even if equal: a proxy on the way may have
/// looked at the other one.
pub fn only<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    kind: Kind,
) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::new(kind, format!("{name} was sent more than once")));
    }
    let text = value
        .to_str()
        .map_err(|_| Problem::new(kind, format!("{name} holds something other than ASCII")))?;
    Ok(Some(text))
}

#[cfg(test)]
mod fuzz;
