//! Writes below HTTP, for tests that talk to a store.

use fencepost::{
    token::{Key, Token},
    write::{Change, Value, Write},
};

pub fn claim(key: &str, token: i64) -> Write {
    let key = Key::new(key).expect("a valid key");
    Write::claim(key, Token::new(token).expect("a valid token"))
}

/// Of a short text.
pub fn put(key: &str, token: i64) -> Write {
    let value = Value { body: "x".into(), content_type: "text/plain".into() };
    Write { change: Change::Put(value), ..claim(key, token) }
}
