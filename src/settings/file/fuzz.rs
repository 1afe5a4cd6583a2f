//! Whatever a settings file holds: settings that are known, or an error that names the line or the
//! setting, and never shows a value.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

const SECRET: &str = "s3cret";

static KNOWN: LazyLock<Vec<String>> = LazyLock::new(|| known_settings(&crate::cli::command()));

fn check(text: &str) {
    match understood(text, &KNOWN) {
        Ok(values) => {
            for name in values.keys() {
                assert!(KNOWN.contains(&name.replace('_', "-")), "{text:?}: {name}");
            }
        }
        Err(error) => {
            let says_where = error.starts_with("line ")
                || error.starts_with("unknown setting ")
                || error.contains(" must be a string, a number or a boolean");
            assert!(says_where && !error.contains(SECRET), "{text:?}: {error}");
        }
    }
}

#[test]
fn the_corpus() {
    include_str!("../../../tests/corpus/settings-files.txt").split("\n---\n").for_each(check);
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![prop::sample::select(KNOWN.clone()), "[a-z.\"-]{1,8}"]
}

fn value() -> impl Strategy<Value = String> {
    let secret = format!("postgres://user:{SECRET}@host/db");
    prop_oneof![
        Just(format!("\"{secret}\"")),
        Just(format!("'{secret}'")),
        Just(format!("\"{secret}")),
        Just(secret.clone()),
        Just(format!("[\"{secret}\"]")),
        Just(format!("{{ a = \"{secret}\" }}")),
        Just(format!("\"\"\"\n{secret}")),
        Just(format!("\"\\q{secret}\"")),
        "-?[0-9_.e]{1,20}",
        "true|false|inf|nan|1979-05-27|0x[0-9a-g]{1,4}",
        "\\PC{0,12}",
    ]
}

proptest! {
    #[test]
    fn any_settings(lines in prop::collection::vec((name(), " ?=? ?", value()), 0..6)) {
        let lines: Vec<_> = lines.into_iter().map(|(name, is, value)| name + &is + &value).collect();
        check(&lines.join("\n"));
    }

    #[test]
    fn any_text(text in any::<String>()) {
        check(&text);
    }
}
