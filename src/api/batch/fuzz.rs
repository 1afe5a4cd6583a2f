//! Whatever body comes: no panic; what is accepted is sound; and every sound batch is accepted.

use proptest::{collection::vec, option, prelude::*};
use serde_json::json;

use super::*;

fn parse_whole(body: &Bytes) -> Result<Vec<Write>, Problem> {
    parse(Rule::AtLeast, texts(body)?, &Source { body: body.clone(), load: None })
}

/// What the store is promised of a batch.
fn check(body: &[u8]) {
    let Ok(writes) = parse_whole(&Bytes::copy_from_slice(body)) else { return };
    assert!((1..=MAX_WRITES).contains(&writes.len()));
    let keys: HashSet<&Key> = writes.iter().map(|write| &write.key).collect();
    assert_eq!(keys.len(), writes.len(), "each key at most once");
    for write in &writes {
        assert_ne!(write.scope.as_ref(), Some(&write.key), "a scope is another key");
        assert_ne!(write.change, Change::Claim);
    }
    assert_eq!(parse_whole(&said(&writes)).ok(), Some(writes), "it can be said again");
}

/// The batch in the words of the API.
fn said(writes: &[Write]) -> Bytes {
    let entry = |write: &Write| {
        let mut entry = json!({
            "key": write.key, "token": write.token,
            "rule": match write.rule { Rule::AtLeast => "at-least", Rule::Above => "above" },
        });
        if let Some(seq) = write.seq {
            entry["seq"] = json!(seq);
        }
        if let Some(scope) = &write.scope {
            entry["scope"] = json!(scope);
        }
        match write.precondition {
            None => {}
            Some(Precondition::Version(version)) => entry["if_match"] = json!(version),
            Some(Precondition::Absent) => entry["if_none_match"] = json!("*"),
        }
        match &write.change {
            Change::Put(value) => {
                entry["value_base64"] = json!(BASE64_STANDARD.encode(&value.body));
                entry["content_type"] = json!(value.content_type);
            }
            Change::Delete | Change::Claim => entry["delete"] = json!(true),
        }
        entry
    };
    let entries: Vec<_> = writes.iter().map(entry).collect();
    json!({ "writes": entries }).to_string().into()
}

fn any_key() -> impl Strategy<Value = Key> {
    any::<String>().prop_filter_map("a key", |name| Key::new(&name).ok())
}

fn any_write() -> impl Strategy<Value = Write> {
    let put = (vec(any::<u8>(), 0..20), "[!-~]{1,20}")
        .prop_map(|(body, content_type)| Change::Put(Value { body: body.into(), content_type }));
    let change = prop_oneof![put, Just(Change::Delete)];
    let precondition = prop_oneof![
        Just(Precondition::Absent),
        (1..i64::MAX).prop_map(|version| Precondition::Version(Version::from_stored(version))),
    ];
    let rule = prop_oneof![Just(Rule::AtLeast), Just(Rule::Above)];
    let number = 1..=i64::MAX;
    (
        any_key(),
        number.clone(),
        option::of(number),
        option::of(any_key()),
        rule,
        change,
        option::of(precondition),
    )
        .prop_map(|(key, token, seq, scope, rule, change, precondition)| Write {
            token: Token::new(token).unwrap(),
            seq: seq.and_then(Seq::new),
            scope: scope.filter(|scope| *scope != key),
            rule,
            precondition,
            change,
            key,
        })
}

#[test]
fn the_corpus() {
    for line in include_str!("../../../tests/corpus/batches.txt").lines() {
        check(line.as_bytes());
    }
}

proptest! {
    #[test]
    fn any_body(body in prop_oneof![
        vec(any::<u8>(), 0..200),
        "\\{\"writes\":\\[(\\{\"key\":\"[ab]\",\"token\":[0-9]{1,20}(,\"[a-z_]{3,13}\":[0-9\"a-z*]{1,6}){0,4}\\},?){0,3}\\]\\}".prop_map(String::into_bytes),
    ]) {
        check(&body);
    }

    #[test]
    fn every_sound_batch_is_accepted(mut writes in vec(any_write(), 1..6)) {
        let mut keys = HashSet::new();
        writes.retain(|write| keys.insert(write.key.clone()));
        prop_assert_eq!(parse_whole(&said(&writes)).ok(), Some(writes));
    }
}
