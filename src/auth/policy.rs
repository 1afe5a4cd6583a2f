//! The policy file: which identity may do what, with which keys.
//!
//! ```toml
//! [[rule]]
//! identity = "system:serviceaccount:shop:*"
//! prefixes = ["orders/"]
//! keys = ["nightly"]
//! rights = ["read", "write", "lock"]
//! ```
//!
//! What no rule allows is forbidden. A prefix is compared with the key as the store has it, decoded,
//! byte by byte; the empty one is that of every key. A rule may say `by` what its identity is proved:
//! otherwise whoever can get that name by any of the ways that are configured, is meant.

use serde::Deserialize;

use super::{
    identity::{Proof, Way},
    pattern::Pattern,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Values, marks, locks: to look at them.
    Read,
    /// To change values, and to raise marks.
    Write,
    /// To take locks, and with them to raise the mark of the key that has the lock's name.
    Lock,
    /// To see what was refused, and everything else that operators see.
    Admin,
}

#[derive(Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rule: Option<Vec<Rule>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(deserialize_with = "pattern")]
    identity: Pattern,
    by: Option<Vec<Way>>,
    #[serde(default)]
    prefixes: Vec<String>,
    #[serde(default)]
    keys: Vec<String>,
    rights: Vec<Right>,
}

impl Policy {
    /// No rule at all is more likely half of a file than what somebody means, and would lock everybody
    /// out. Who does mean it writes `rule = []`.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
        let file: File = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            format!("line {}: {}", before.matches('\n').count() + 1, error.message())
        })?;
        let rules = file.rule.ok_or(EMPTY)?;
        for (index, rule) in rules.iter().enumerate() {
            rule.check().map_err(|reason| format!("rule {}: {reason}", index + 1))?;
        }
        Ok(Self { rules })
    }

    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Whether any identity at all can have this right on everything.
    pub fn grants_everywhere(&self, right: Right) -> bool {
        self.rules.iter().any(|rule| rule.rights.contains(&right) && rule.has_prefix_of(""))
    }

    /// The first rule, from 1 on, that does not say by what its identity is proved.
    pub fn first_by_any_way(&self) -> Option<usize> {
        self.rules.iter().position(|rule| rule.by.is_none()).map(|index| index + 1)
    }

    /// Whether there is any key on which they have this right.
    pub fn allows_some(&self, who: &Proof, right: Right) -> bool {
        self.rules_of(who, right).next().is_some()
    }

    pub fn allows_key(&self, who: &Proof, right: Right, key: &str) -> bool {
        let exact = |rule: &Rule| rule.keys.iter().any(|own| own == key);
        self.rules_of(who, right).any(|rule| rule.has_prefix_of(key) || exact(rule))
    }

    /// Whether all keys that start with `prefix` are allowed, by one rule.
    pub fn allows_prefix(&self, who: &Proof, right: Right, prefix: &str) -> bool {
        self.rules_of(who, right).any(|rule| rule.has_prefix_of(prefix))
    }

    fn rules_of(&self, who: &Proof, right: Right) -> impl Iterator<Item = &Rule> {
        self.rules
            .iter()
            .filter(move |rule| rule.rights.contains(&right))
            .filter(|rule| rule.by.as_ref().is_none_or(|ways| ways.contains(&who.way)))
            .filter(|rule| rule.identity.matches(who.identity.as_str()))
    }
}

impl Rule {
    fn has_prefix_of(&self, text: &str) -> bool {
        self.prefixes.iter().any(|own| text.starts_with(own.as_str()))
    }

    /// What can mean nothing is a mistake, and somebody relies on what they meant.
    fn check(&self) -> Result<(), &'static str> {
        if self.prefixes.is_empty() && self.keys.is_empty() {
            return Err("it names neither prefixes nor keys; every key is prefixes = [\"\"]");
        }
        if self.rights.is_empty() {
            return Err("it gives no rights");
        }
        if self.by.as_ref().is_some_and(Vec::is_empty) {
            return Err("`by` names no way; leave it out, or name token, certificate or jwt");
        }
        if self.prefixes.iter().chain(&self.keys).any(|text| text.contains('*')) {
            return Err("a star stands for something in an identity only; a prefix is plain text");
        }
        Ok(())
    }
}

const EMPTY: &str = "there is no rule in it; if nobody is to have any right, write `rule = []`";

fn pattern<'de, D: serde::Deserializer<'de>>(text: D) -> Result<Pattern, D::Error> {
    let text = String::deserialize(text)?;
    if text.is_empty() {
        return Err(serde::de::Error::custom("an identity is not empty; everybody is \"*\""));
    }
    Ok(Pattern::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Identity;

    fn somebody(name: &str) -> Proof {
        Proof { identity: Identity::new(name), way: Way::Token }
    }

    const POLICY: &str = r#"
        [[rule]]
        identity = "orders"
        prefixes = ["orders/"]
        keys = ["nightly"]
        rights = ["read", "write"]

        [[rule]]
        identity = "*"
        prefixes = ["public/"]
        rights = ["read"]
    "#;

    #[test]
    fn what_no_rule_allows_is_forbidden() {
        let policy = Policy::parse(POLICY.as_bytes()).unwrap();
        let (orders, other) = (somebody("orders"), somebody("other"));
        for key in ["orders/", "orders/42", "orders/../x", "nightly"] {
            assert!(policy.allows_key(&orders, Right::Write, key), "{key}");
            assert!(!policy.allows_key(&other, Right::Write, key), "{key}");
            assert!(!policy.allows_key(&orders, Right::Lock, key), "{key}");
            assert!(!policy.allows_key(&orders, Right::Admin, key), "{key}");
        }
        for key in ["", "orders", "order", "Orders/42", "/orders/42", "nightly2", "public/a"] {
            assert!(!policy.allows_key(&orders, Right::Write, key), "{key}");
        }
        assert!(policy.allows_key(&other, Right::Read, "public/a"));
    }

    #[test]
    fn a_listing_stays_within_its_prefix() {
        let policy = Policy::parse(POLICY.as_bytes()).unwrap();
        let orders = somebody("orders");
        assert!(policy.allows_prefix(&orders, Right::Read, "orders/"));
        assert!(policy.allows_prefix(&orders, Right::Read, "orders/4"));
        for wider in ["", "o", "orders", "nightly"] {
            assert!(!policy.allows_prefix(&orders, Right::Read, wider), "{wider}");
        }
    }

    #[test]
    fn an_empty_file_is_refused_and_nobody_has_to_be_said() {
        for empty in ["", "\n \n", "# a comment\n"] {
            assert_eq!(Policy::parse(empty.as_bytes()).unwrap_err(), EMPTY, "{empty:?}");
        }
        assert_eq!(Policy::parse(b"# closed\nrule = []\n").unwrap().rules(), 0);
    }

    /// Whoever issues JWTs may give any name, also that of somebody who has a token.
    #[test]
    fn a_rule_may_be_for_one_way_of_proving_it() {
        let rule = "[[rule]]\nidentity = \"orders\"\nby = [\"token\"]\nprefixes = [\"\"]\n\
                    rights = [\"read\"]";
        let policy = Policy::parse(rule.as_bytes()).unwrap();
        for way in [Way::Token, Way::Certificate, Way::Jwt] {
            let who = Proof { identity: Identity::new("orders"), way };
            assert_eq!(policy.allows_key(&who, Right::Read, "k"), way == Way::Token);
            assert_eq!(policy.allows_prefix(&who, Right::Read, ""), way == Way::Token);
        }
        assert_eq!(policy.first_by_any_way(), None);
        assert_eq!(Policy::parse(POLICY.as_bytes()).unwrap().first_by_any_way(), Some(1));
    }

    #[test]
    fn a_rule_that_means_nothing_is_refused() {
        for (text, reason) in [
            ("[[rule]]\nidentity = \"a\"\nrights = [\"read\"]", "rule 1: it names neither"),
            ("[[rule]]\nidentity = \"a\"\nprefixes = [\"\"]\nrights = []", "rule 1: it gives no"),
            ("[[rule]]\nidentity = \"a\"\nprefixes = [\"a/*\"]\nrights = [\"read\"]", "a star"),
            ("[[rule]]\nidentity = \"\"\nprefixes = [\"\"]\nrights = [\"read\"]", "line 2"),
            ("[[rule]]\nidentity = \"a\"\nprefixes = [\"\"]\nrights = [\"root\"]", "line 4"),
            (
                "[[rule]]\nidentity = \"a\"\nby = []\nprefixes = [\"\"]\nrights = [\"read\"]",
                "rule 1: `by` names",
            ),
            ("[[rules]]\nidentity = \"a\"", "unknown field"),
            ("[[rule]]\nidentity = \"a\"\nprefix = \"\"\nrights = [\"read\"]", "line"),
        ] {
            let error = Policy::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
