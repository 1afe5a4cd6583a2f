//! The words a fence is made of: [`Token`], [`Seq`], [`Mark`] and [`Key`].
//!
//! Each is a newtype that can only hold a valid value, so nothing behind the parser needs to check
//! again, and a token can never be passed where a sequence number or a version is meant.

use std::{borrow::Cow, fmt, sync::Arc};

use percent_encoding::percent_decode_str;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// A fencing token: a positive 63-bit integer, issued once per grant, always rising.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(minimum = 1, maximum = 9_223_372_036_854_775_807_isize, example = 33)]
pub struct Token(i64);

/// A holder's own counter, which orders its writes under one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(minimum = 1, maximum = 9_223_372_036_854_775_807_isize, example = 1)]
pub struct Seq(i64);

/// The version of a key's value: 1 for the first, one more with every change.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema,
)]
#[serde(transparent)]
#[schema(minimum = 0, example = 3)]
pub struct Version(i64);

impl Token {
    pub fn parse(text: &str) -> Option<Self> {
        parse_positive(text).map(Self)
    }

    pub fn new(number: i64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    pub fn get(self) -> i64 {
        self.0
    }
}

impl Seq {
    pub fn parse(text: &str) -> Option<Self> {
        parse_positive(text).map(Self)
    }

    pub fn new(number: i64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    pub fn get(self) -> i64 {
        self.0
    }
}

impl Version {
    /// What a key has before its first change.
    pub const NONE: Self = Self(0);

    pub fn parse(text: &str) -> Option<Self> {
        parse_positive(text).map(Self)
    }

    /// A version as it was stored. Only the store should call this.
    pub fn from_stored(number: i64) -> Self {
        Self(number)
    }

    pub fn get(self) -> i64 {
        self.0
    }

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `[1-9][0-9]{0,18}`, at most 2^63-1. `str::parse` would also take `+5` and `005`.
fn parse_positive(text: &str) -> Option<i64> {
    let digits = text.as_bytes();
    if !matches!(digits.first(), Some(b'1'..=b'9')) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    text.parse().ok()
}

/// The high-water mark of a key: the highest (token, seq) it has seen. It never falls.
///
/// Both numbers are 0 where nothing was ever seen; `seq` is 0 where the holder has not used one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub token: i64,
    pub seq: i64,
}

impl Mark {
    /// The mark of a key that nobody has touched.
    pub const UNSEEN: Self = Self { token: 0, seq: 0 };

    pub fn at(token: Token, seq: Option<Seq>) -> Self {
        Self { token: token.get(), seq: seq.map_or(0, Seq::get) }
    }

    /// A holder with `token` has been seen: a lower mark rises to it, and its seq starts anew.
    #[must_use]
    pub fn raised_to(self, token: Token) -> Self {
        self.max(Self::at(token, None))
    }

    /// Whether a write with `token` comes from a holder that has been overtaken.
    pub fn outranks(self, token: Token) -> bool {
        self.token > token.get()
    }
}

/// A resource's name: UTF-8, 1 to 1024 bytes, no NUL. Bytes decide: two spellings of one letter
/// are two keys, and `.`, `..` and `/` mean nothing special.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 1024, pattern = "^[^\\x00]*$")]
#[schema(example = "orders/42")]
pub struct Key(Arc<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("the key is empty")]
    Empty,
    #[error("the key is longer than {} bytes", Key::MAX_BYTES)]
    TooLong,
    #[error("the key contains a NUL byte")]
    Nul,
    #[error("the key is not valid UTF-8")]
    NotUtf8,
    #[error("the key contains a '%' that is not followed by two hexadecimal digits")]
    BadEscape,
}

impl Key {
    pub const MAX_BYTES: usize = 1024;

    pub fn new(name: &str) -> Result<Self, InvalidKey> {
        if name.is_empty() {
            return Err(InvalidKey::Empty);
        }
        if name.len() > Self::MAX_BYTES {
            return Err(InvalidKey::TooLong);
        }
        if name.contains('\0') {
            return Err(InvalidKey::Nul);
        }
        Ok(Self(name.into()))
    }

    /// Decodes the rest of a path, once and as a whole. `%2F` and `/` come out the same.
    pub fn from_encoded(encoded: &str) -> Result<Self, InvalidKey> {
        Self::new(&decode(encoded)?)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Decodes percent escapes, whole ones only, and only to UTF-8.
pub fn decode(encoded: &str) -> Result<Cow<'_, str>, InvalidKey> {
    if !encoded.contains('%') {
        return Ok(encoded.into());
    }
    if !escapes_are_whole(encoded) {
        return Err(InvalidKey::BadEscape);
    }
    percent_decode_str(encoded).decode_utf8().map_err(|_| InvalidKey::NotUtf8)
}

/// The decoder passes a broken escape through as it stands, which would make `%zz` a silent alias
/// of `%25zz`.
fn escapes_are_whole(encoded: &str) -> bool {
    encoded.split('%').skip(1).all(|after| {
        after.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    })
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Quoted and escaped, so that a key with control characters cannot forge a line of a log.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_has_one_spelling() {
        assert_eq!(Token::parse("1").map(Token::get), Some(1));
        assert_eq!(Token::parse("9223372036854775807").map(Token::get), Some(i64::MAX));
        for refused in [
            "",
            "0",
            "00",
            "005",
            "+5",
            "-5",
            " 5",
            "5 ",
            "5, 9",
            "1e3",
            "0x10",
            "5.0",
            "5_0",
            "٥",
            "9223372036854775808",
            "99999999999999999999",
        ] {
            assert_eq!(Token::parse(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn a_key_is_decoded_once_and_taken_literally() {
        let key = |encoded| Key::from_encoded(encoded).map(|key| key.to_string());
        assert_eq!(key("orders/42").as_deref(), Ok("orders/42"));
        assert_eq!(key("orders%2F42").as_deref(), Ok("orders/42"));
        assert_eq!(key("%252F").as_deref(), Ok("%2F"));
        assert_eq!(key("a+b/.././/c").as_deref(), Ok("a+b/.././/c"));
        assert_eq!(key(""), Err(InvalidKey::Empty));
        assert_eq!(key("%00"), Err(InvalidKey::Nul));
        assert_eq!(key("%ff"), Err(InvalidKey::NotUtf8));
        assert_eq!(key("%zz"), Err(InvalidKey::BadEscape));
        assert_eq!(key("a%"), Err(InvalidKey::BadEscape));
        assert_eq!(key("a%2"), Err(InvalidKey::BadEscape));
        assert_eq!(key("%C3%A9").as_deref(), Ok("é"));
        assert!(Key::new(&"k".repeat(1024)).is_ok());
        assert_eq!(Key::new(&"k".repeat(1025)), Err(InvalidKey::TooLong));
    }

    proptest! {
        #[test]
        fn every_token_survives_its_spelling(number in 1..=i64::MAX) {
            prop_assert_eq!(Token::parse(&number.to_string()), Token::new(number));
        }

        #[test]
        fn no_spelling_panics(text in ".{0,40}") {
            let _ = (Token::parse(&text), Key::from_encoded(&text));
        }

        #[test]
        fn a_mark_never_falls(token in 0..5_i64, seq in 0..5_i64, seen in 1..5_i64) {
            let mark = Mark { token, seq };
            prop_assert!(mark.raised_to(Token(seen)) >= mark);
        }
    }
}
