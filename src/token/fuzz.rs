//! Whatever text comes: no panic, and what is accepted has one spelling.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;

use super::*;

/// Digits with all that people and programs put around them.
fn nearly_a_number() -> impl Strategy<Value = String> {
    prop_oneof![
        "[+-]?0{0,2}[0-9]{0,21}",
        (9_223_372_036_854_775_804_u64..9_223_372_036_854_775_811)
            .prop_map(|number| number.to_string()),
        "[0-9]{1,5}[ ,._e][0-9]{0,5}",
        any::<String>(),
    ]
}

/// The grammar once more, in other words.
fn by_the_grammar(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number > 0 && number.to_string() == text).then_some(number)
}

fn check_number(text: &str) {
    let expected = by_the_grammar(text);
    assert_eq!(Token::parse(text).map(Token::get), expected, "{text:?}");
    assert_eq!(Seq::parse(text).map(Seq::get), expected, "{text:?}");
    assert_eq!(Version::parse(text).map(Version::get), expected, "{text:?}");
    if let Some(token) = Token::parse(text) {
        assert_eq!(token.to_string(), text);
    }
}

fn check_key(encoded: &str) {
    let Ok(key) = Key::from_encoded(encoded) else { return };
    let name = key.as_str();
    assert!((1..=Key::MAX_BYTES).contains(&name.len()) && !name.contains('\0'), "{encoded:?}");
    // What one parser accepts, so does the other; and however it is spelt, it is the same key.
    assert_eq!(Key::new(name).as_ref(), Ok(&key));
    let spelt_out = utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
    assert_eq!(Key::from_encoded(&spelt_out), Ok(key));
}

#[test]
fn the_corpus() {
    for line in include_str!("../../tests/corpus/tokens.txt").lines() {
        check_number(line);
    }
    for line in include_str!("../../tests/corpus/keys.txt").lines() {
        check_key(line);
    }
}

proptest! {
    #[test]
    fn a_number_is_accepted_in_one_spelling(text in nearly_a_number()) {
        check_number(&text);
    }

    #[test]
    fn a_path_is_a_key_or_an_error(text in prop_oneof!["(%[0-9a-fA-F]{0,2}|[a-z/.+%])*", any::<String>()]) {
        check_key(&text);
    }

    #[test]
    fn every_name_survives_its_spelling(name in any::<String>()) {
        let spelt_out = utf8_percent_encode(&name, NON_ALPHANUMERIC).to_string();
        prop_assert_eq!(Key::from_encoded(&spelt_out), Key::new(&name));
    }
}
