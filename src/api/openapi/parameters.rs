//! What requests carry. `extract.rs` and `listing.rs` do the reading.

#![expect(dead_code, reason = "these are descriptions: nothing is ever made of them")]

use utoipa::IntoParams;

use super::schemas::{AnyVersion, EncodedKey, Etag, reasons, since};
use crate::{
    token::{Key, Seq, Token},
    write::Rule,
};

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct KeyInPath {
    /// The rest of the path, percent-decoded once as a whole: 1 to 1024 bytes of UTF-8 without NUL.
    /// `/` and `%2F` mean the same, and `.` and `..` nothing special.
    key: Key,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct NameInPath {
    /// The lock's name: the rest of the path, as for a key.
    name: Key,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct OwnerHeader {
    /// Who asks, where the body names no `owner`; up to 256 bytes.
    #[param(
        rename = "X-Fencing-Client",
        nullable = false,
        max_length = 256,
        example = "billing-7"
    )]
    client: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct HolderHeaders {
    /// The fencing token of the grant.
    #[param(rename = "X-Fencing-Token")]
    token: Token,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct WriteHeaders {
    /// The fencing token of the lock that this write is made under.
    #[param(rename = "X-Fencing-Token")]
    token: Token,
    /// Orders the writes of one holder to one key. A repeated seq with the same body is a replay:
    /// it is answered as the first time, and not written again.
    #[param(rename = "X-Fencing-Seq", nullable = false)]
    seq: Option<Seq>,
    /// The key whose mark guards this write as well, percent-encoded as in a path. One lock can
    /// guard many keys.
    #[param(rename = "X-Fencing-Scope", nullable = false)]
    scope: Option<EncodedKey>,
    /// Whether a token may write more than once without a seq: over the server's default.
    #[param(rename = "X-Fencing-Rule", nullable = false)]
    rule: Option<Rule>,
    /// Who is writing, for the record of rejections; up to 256 bytes.
    #[param(
        rename = "X-Fencing-Client",
        nullable = false,
        max_length = 256,
        example = "billing-7"
    )]
    client: Option<String>,
}

/// At most one of the two. They are looked at only after the fence.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct Preconditions {
    /// Only write at this version: one strong ETag, as an answer gave it. Not together with
    /// `If-None-Match`.
    #[param(rename = "If-Match", nullable = false)]
    if_match: Option<Etag>,
    /// Only write where there is no value: `*`, and nothing else. Not together with `If-Match`.
    #[param(rename = "If-None-Match", nullable = false)]
    if_none_match: Option<AnyVersion>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct ReadHeaders {
    /// Makes it a fenced read, under this token.
    #[param(rename = "X-Fencing-Token", nullable = false)]
    token: Option<Token>,
    /// For a fenced read only: the key whose mark guards it as well, percent-encoded as in a path.
    #[param(rename = "X-Fencing-Scope", nullable = false)]
    scope: Option<EncodedKey>,
    /// Who is reading, for the record of rejections; up to 256 bytes.
    #[param(
        rename = "X-Fencing-Client",
        nullable = false,
        max_length = 256,
        example = "billing-7"
    )]
    client: Option<String>,
    /// The ETags of versions that the reader has, or `*`: answered with 304 if one of them is
    /// current.
    #[param(rename = "If-None-Match", nullable = false, example = "\"3\"")]
    if_none_match: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Only keys that start with this.
    #[param(nullable = false, max_length = 1024, pattern = "^[^\\x00]*$", example = "orders/")]
    prefix: Option<String>,
    /// Only keys that come after this one: the `next` of the page before.
    #[param(nullable = false, max_length = 1024, pattern = "^[^\\x00]*$", example = "orders/42")]
    after: Option<String>,
    /// How many at most.
    #[param(nullable = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RejectionsQuery {
    /// Only writes of this key.
    #[param(nullable = false)]
    key: Option<Key>,
    /// Only those that were refused for this reason.
    #[param(nullable = false, schema_with = reasons)]
    reason: Option<String>,
    /// Only those from this moment on, in UTC, or that long ago: `5m`.
    #[param(nullable = false, schema_with = since)]
    since: Option<String>,
    /// How many at most.
    #[param(nullable = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}
