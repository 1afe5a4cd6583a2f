//! A rejection for a person to read.

use serde_json::{Value, json};

use crate::cli::output::printable;

pub const COLUMNS: [&str; 8] =
    ["at", "key", "reason", "token", "mark", "lag", "client", "overtaken_by"];

/// With what can be told from the rest.
pub fn of_table(rejection: &Value) -> Value {
    let mut row = rejection.clone();
    row["lag"] = lag(rejection).map_or(Value::Null, |lag| json!(lag));
    row["client"] = who(rejection);
    row
}

/// One line, since more are to come.
pub fn line(rejection: &Value) -> String {
    let text = |name: &str| match &rejection[name] {
        Value::String(text) => printable(text).replace('\n', "\\n"),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let known = |name: &str, words: &str| match text(name) {
        value if value.is_empty() => String::new(),
        value => format!("{words} {value}"),
    };
    let behind = lag(rejection).map(|lag| format!(" ({lag} behind)")).unwrap_or_default();
    let who = printable(who(rejection).as_str().unwrap_or_default()).replace('\n', "\\n");
    let by = if who.is_empty() { who } else { format!("  by {who}") };
    [
        format!("{}  {:<16}  {}", text("at"), text("reason"), text("key")),
        known("token", "  token"),
        known("seq", " seq"),
        known("mark", if rejection["floor"] == true { "  floor" } else { "  mark" }),
        behind,
        by,
        known("overtaken_by", "  overtaken by"),
    ]
    .concat()
}

/// What was proved, and what the client says of itself; or else where it is.
fn who(rejection: &Value) -> Value {
    match (rejection["identity"].as_str(), rejection["client"].as_str()) {
        (Some(identity), Some(client)) => json!(format!("{identity} ({client})")),
        (Some(name), None) | (None, Some(name)) => json!(name),
        (None, None) => rejection["peer"].clone(),
    }
}

fn lag(rejection: &Value) -> Option<i64> {
    let lag = rejection["mark"].as_i64()?.saturating_sub(rejection["token"].as_i64()?);
    (lag > 0).then_some(lag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_key_stays_on_its_line() {
        let rejection = json!({
            "at": "2026-01-31T12:00:00.000Z", "key": "a\n\u{1b}[2Jb", "reason": "stale-token",
            "token": 33, "mark": 36, "seq": null, "client": "billing\r-7", "peer": "10.1.2.3:5",
            "overtaken_by": "billing-8",
        });
        assert_eq!(
            line(&rejection),
            "2026-01-31T12:00:00.000Z  stale-token       a\\n\\u{1b}[2Jb  token 33  mark 36 \
             (3 behind)  by billing\\r-7  overtaken by billing-8"
        );
        assert_eq!(of_table(&rejection)["lag"], 3);
    }

    #[test]
    fn who_it_is_comes_before_what_they_say() {
        let of = |identity: Option<&str>, client: Option<&str>| {
            let rejection = json!({"identity": identity, "client": client, "peer": "10.1.2.3:5"});
            who(&rejection).as_str().unwrap().to_owned()
        };
        assert_eq!(of(Some("orders"), Some("billing-7")), "orders (billing-7)");
        assert_eq!(of(Some("orders"), None), "orders");
        assert_eq!(of(None, Some("billing-7")), "billing-7");
        assert_eq!(of(None, None), "10.1.2.3:5");
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let rejection = json!({
            "at": "2026-01-31T12:00:00.000Z", "key": null, "reason": "invalid-key", "token": null,
            "mark": null, "seq": null, "client": null, "peer": "10.1.2.3:5", "overtaken_by": null,
        });
        assert_eq!(line(&rejection), "2026-01-31T12:00:00.000Z  invalid-key         by 10.1.2.3:5");
    }
}
