//! Whatever headers come: no panic, nothing ambiguous is taken, and what is taken says what was sent.

use axum::http::HeaderValue;
use proptest::{collection::vec, prelude::*, sample};

use super::*;
use crate::write::Change;

const NAMES: [HeaderName; 8] = [
    FENCING_TOKEN,
    FENCING_SEQ,
    FENCING_SCOPE,
    FENCING_RULE,
    FENCING_CLIENT,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
];

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[0-9]{1,20}".prop_map(String::into_bytes),
        "W?/?\"[0-9]{0,20}\"".prop_map(String::into_bytes),
        "at-least|above|Above|\\*|".prop_map(String::into_bytes),
        "(%[0-9a-f]{0,2}|[a-z/])*".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..300),
    ]
}

fn any_headers() -> impl Strategy<Value = HeaderMap> {
    vec((sample::select(NAMES.to_vec()), any_value()), 0..6).prop_map(|pairs| {
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).ok();
        pairs.iter().filter_map(|(name, bytes)| Some((name.clone(), value(bytes)?))).collect()
    })
}

fn said<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
}

fn once(text: Option<&str>) -> Vec<&[u8]> {
    text.into_iter().map(str::as_bytes).collect()
}

proptest! {
    #[test]
    fn what_is_taken_is_what_was_sent(headers in any_headers()) {
        let key = Key::new("k").unwrap();
        let named = Named::among(&headers);
        let mut write = Write { change: Change::Delete, ..Write::claim(key.clone(), Token::new(1).unwrap()) };
        if let Ok(token) = token(&headers) {
            let text = token.map(|token| token.to_string());
            prop_assert_eq!(said(&headers, &FENCING_TOKEN), once(text.as_deref()));
        }
        if the_rest_of(&mut write, &headers, named).is_ok() {
            let seq = write.seq.map(|seq| seq.to_string());
            prop_assert_eq!(said(&headers, &FENCING_SEQ), once(seq.as_deref()));
            prop_assert!(write.scope.as_ref() != Some(&key), "a scope is another key");
            prop_assert!(said(&headers, &FENCING_RULE).len() <= 1);
            prop_assert!(!headers.contains_key(header::IF_RANGE), "never ignored in silence");
            let conditions = [said(&headers, &header::IF_MATCH), said(&headers, &header::IF_NONE_MATCH)].concat();
            let condition = write.precondition.map(|precondition| match precondition {
                Precondition::Version(version) => format!("\"{version}\""),
                Precondition::Absent => "*".to_owned(),
            });
            prop_assert_eq!(conditions, once(condition.as_deref()));
        }
        if let Ok(Some(claim)) = fenced_read(&key, &headers, named) {
            prop_assert_eq!(claim.change, Change::Claim);
            prop_assert!(claim.seq.is_none() && claim.precondition.is_none());
        }
    }
}
