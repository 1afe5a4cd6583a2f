//! Whatever a `traceparent` holds: no panic, and what is understood can be said again.

use proptest::prelude::*;

use super::*;

fn check(text: &str) {
    let Some(parent) = TraceParent::parse(text) else { return };
    let said = parent.to_string();
    assert_eq!(TraceParent::parse(&said), Some(parent), "{text:?}");
    assert!(said.starts_with("00-") && said.len() == 55, "{said:?}");
    assert_eq!(said[3..52], text[3..52], "{text:?}");
}

#[test]
fn the_corpus() {
    include_str!("../../tests/corpus/traceparents.txt").lines().for_each(check);
}

proptest! {
    #[test]
    fn any_text(text in prop_oneof![
        "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?",
        "[0-9a-fA-F]{1,3}-[0-9a-f]{31,33}-[0-9a-f]{15,17}-[0-9a-f]{1,3}",
        any::<String>(),
    ]) {
        check(&text);
    }
}
