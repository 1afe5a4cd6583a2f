//! Every way a request can fail, as RFC 9457 problem details.
//!
//! What a client may see is here. What only the log may see (an SQL error, a host name) stays with
//! the error it came from.

mod kind;
mod over_limit;
mod refusal;

use std::time::Duration;

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

pub use self::kind::Kind;
use super::{locks::HolderNow, openapi, render};
use crate::{
    authority::AuthorityError,
    engine::EngineError,
    fence::{Judgement, Refusal, Standing},
    rejections::Refused,
    store::{DiskTrouble, StoreError},
    token::{InvalidKey, Key, Seq, Token, Version},
    write::Write,
};

/// What to do about [`Kind::AuthorityMismatch`]. Which authorities they are is for the log.
pub(super) const OTHER_AUTHORITY: &str = "nothing was changed: the store belongs to another authority than the one that this instance was \
     started with; its operator finds both with `fencepost check`, and corrects --authority or moves \
     the store with `fencepost authority move`";

/// A failure as the client sees it.
#[derive(Debug)]
pub struct Problem {
    kind: Kind,
    document: Box<Document>,
    headers: HeaderMap,
}

/// Why a request failed, as in RFC 9457. The status says what to do about it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem, example = json!({
    "type": "urn:fencepost:stale-token",
    "title": "A newer holder has been seen",
    "status": 409,
    "detail": "token 33 is behind the mark 34: a newer holder has taken over; stop, and acquire \
               the lock again before writing",
    "key": "orders/42",
    "token": 33,
    "mark": 34,
    "version": 3,
    "retryable": false,
}))]
pub(super) struct Document {
    /// What went wrong, for a program to tell.
    #[schema(schema_with = openapi::problem_types)]
    r#type: &'static str,
    /// The same for a person, in a few words.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// What happened this time, for a person to read.
    detail: String,
    /// Which write of a batch it was; the first is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    index: Option<usize>,
    /// The key that the request named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    key: Option<Key>,
    /// The scope of the refused write, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    scope: Option<Key>,
    /// The token of the refused write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    token: Option<Token>,
    /// The mark that the token was held against: the key's, the scope's or the floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    mark: Option<i64>,
    /// `true` where that mark is the floor under all keys: no newer holder of this lock has been seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    floor: Option<bool>,
    /// The seq of the refused write, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    seq: Option<Seq>,
    /// The version of the key's value, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    version: Option<Version>,
    /// Who holds the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    holder: Option<HolderNow>,
    /// Of what there is too much: `requests`, `connections`, `locks`, `waiters`, `streams` or
    /// `bodies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "waiters")]
    limit: Option<&'static str>,
    /// Whether the same request may succeed later.
    retryable: bool,
}

impl Problem {
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let document = Document {
            r#type: kind.urn(),
            title: kind.title(),
            status: kind.status().as_u16(),
            detail: detail.into(),
            index: None,
            key: None,
            scope: None,
            token: None,
            mark: None,
            floor: None,
            seq: None,
            version: None,
            holder: None,
            limit: None,
            retryable: kind.retryable(),
        };
        Self { kind, document: Box::new(document), headers: HeaderMap::new() }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    #[cfg(test)]
    pub fn detail(&self) -> &str {
        &self.document.detail
    }

    /// What it says of the write that was refused.
    pub fn of_write(&self) -> Refused {
        let Document { key, scope, token, seq, .. } = &*self.document;
        Refused { key: key.clone(), scope: scope.clone(), token: *token, seq: *seq }
    }

    /// Whether the connection ends with it.
    pub fn closes(&self) -> bool {
        self.headers.contains_key(header::CONNECTION)
    }

    /// A read of a key that has no value.
    pub fn no_value(key: &Key, standing: &Standing) -> Self {
        let mut problem = Self::new(Kind::NotFound, "the key has no value");
        problem.document.key = Some(key.clone());
        render::fencing_headers(&mut problem.headers, standing);
        problem
    }

    /// The claim of a fenced read was made, and then the value could not be read: the mark has risen.
    #[must_use]
    pub fn after_a_claim(mut self) -> Self {
        self.document.detail = "the claim was made; the value could not be read; try again".into();
        self
    }

    /// A write that the store, or the cache in front of it, has refused.
    pub fn refused(write: &Write, refusal: Refusal, judgement: &Judgement) -> Self {
        let mut problem = Self::new(Kind::of(refusal), refusal::explain(write, refusal, judgement));
        problem = problem.of(write);
        let document = &mut problem.document;
        document.mark = Some(judgement.held_against());
        document.floor = judgement.by_floor.then_some(true);
        document.version = judgement.key.present.then_some(judgement.key.version);
        render::fencing_headers(&mut problem.headers, &judgement.key);
        problem
    }

    /// Names the key, or the lock, that the request was about.
    #[must_use]
    pub fn about(mut self, key: Key) -> Self {
        self.document.key = Some(key);
        self
    }

    #[must_use]
    pub fn under(mut self, token: Token) -> Self {
        self.document.token = Some(token);
        self
    }

    /// Names the write that the request asked for.
    #[must_use]
    pub fn of(mut self, write: &Write) -> Self {
        self.document.key = Some(write.key.clone());
        self.document.scope.clone_from(&write.scope);
        self.document.token = Some(write.token);
        self.document.seq = write.seq;
        self
    }

    #[must_use]
    pub fn against(mut self, mark: i64) -> Self {
        self.document.mark = Some(mark);
        self
    }

    #[must_use]
    pub fn held_by(mut self, holder: Option<HolderNow>) -> Self {
        self.document.holder = holder;
        self
    }

    /// Rounded up to whole seconds, of which there is at least one.
    #[must_use]
    pub fn retry_after(mut self, time: Duration) -> Self {
        let seconds = time.as_millis().div_ceil(1000).max(1);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        self.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        self
    }

    /// Ends the connection with this answer: where the next request begins is not certain.
    #[must_use]
    pub fn and_close(mut self) -> Self {
        self.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        self
    }

    /// Says what could be asked instead.
    #[must_use]
    pub fn allowing(mut self, methods: &'static str) -> Self {
        self.headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        self
    }

    /// Says which write of a batch it was.
    #[must_use]
    pub fn at(mut self, index: usize) -> Self {
        self.document.index = Some(index);
        // The headers speak of a single resource, which a batch is not.
        self.headers.clear();
        self
    }
}

impl From<InvalidKey> for Problem {
    fn from(error: InvalidKey) -> Self {
        Self::new(Kind::InvalidKey, error.to_string())
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let (kind, detail) = match error {
            EngineError::Overloaded => {
                (Kind::Overloaded, "nothing was changed; try again after a moment")
            }
            EngineError::NoRoom => (
                Kind::Overloaded,
                "nothing was changed: there is no memory for the value now; try again after a moment",
            ),
            EngineError::ShuttingDown => {
                (Kind::ShuttingDown, "nothing was changed; try again with another instance")
            }
            EngineError::NotTheirs => (
                Kind::Forbidden,
                "nothing was changed: this token was not granted to you; acquire the lock yourself",
            ),
            EngineError::Authority(AuthorityError::Foreign(_))
            | EngineError::Store(StoreError::OtherAuthority(_)) => {
                (Kind::AuthorityMismatch, OTHER_AUTHORITY)
            }
            EngineError::Authority(AuthorityError::Store(_)) => (
                Kind::StoreUnavailable,
                "nothing was changed: this token is newer than any that is known here, and the store \
                 cannot be asked about it; try again",
            ),
            EngineError::Authority(AuthorityError::Unavailable(_) | AuthorityError::Unfit(_)) => (
                Kind::AuthorityUnavailable,
                "nothing was changed: this token is newer than any that is known here, and the lock \
                 service cannot be asked about it; try again",
            ),
            EngineError::Store(StoreError::Busy | StoreError::Locked | StoreError::Conflict) => (
                Kind::StoreUnavailable,
                "nothing was changed: the row stayed locked by another transaction; try again",
            ),
            EngineError::Store(StoreError::Disk(trouble, _)) => on_the_disk(trouble),
            EngineError::Store(StoreError::Unknown(_)) => (
                Kind::OutcomeUnknown,
                "the connection to the store was lost around the commit; repeat the request with \
                 the same token and seq to learn what happened",
            ),
            EngineError::Store(
                StoreError::Unavailable(_)
                | StoreError::Failed(_)
                | StoreError::Unfit(_)
                | StoreError::Denied(_),
            ) => (
                Kind::StoreUnavailable,
                "nothing was changed; try again, and see the server's log if it lasts",
            ),
        };
        Self::new(kind, detail)
    }
}

fn on_the_disk(trouble: DiskTrouble) -> (Kind, &'static str) {
    match trouble {
        DiskTrouble::Full => (
            Kind::StoreFull,
            "nothing was changed: the disk of the store has no room left; free some, then try again",
        ),
        DiskTrouble::ReadOnly => (
            Kind::StoreUnavailable,
            "nothing was changed: the store is read-only; make it writable, then try again",
        ),
        DiskTrouble::Failing => (
            Kind::StoreUnavailable,
            "nothing was changed: the disk of the store fails to read or write; see the server's log",
        ),
        DiskTrouble::Damaged => (
            Kind::StoreUnavailable,
            "nothing was changed: the files of the store are damaged; restore them from a backup",
        ),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut headers = self.headers;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.kind == Kind::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.kind.status() == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        render::json_with(self.kind.status(), headers, &self.document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_fails_after_its_claim_does_not_say_that_nothing_was_changed() {
        for error in [EngineError::Overloaded, StoreError::Unavailable("down".into()).into()] {
            let problem = Problem::from(error).after_a_claim();
            assert!(problem.kind.retryable() && problem.detail().starts_with("the claim was made"));
        }
    }

    #[test]
    fn all_kinds_are_listed_in_order() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{kind:?}");
        }
        assert_eq!(Kind::ALL.len(), Kind::OutcomeUnknown as usize + 1);
    }
}
