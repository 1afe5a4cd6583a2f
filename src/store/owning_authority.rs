//! Which authority a store belongs to. Two authorities on one store would grant one lock twice, so the store
//! records one, and refuses all others until an operator moves it.
//!
//! Grants depend on the record in two places, both inside the database: the lock table draws tokens, and the
//! memory of revisions is written, only while the record names their authority. A move raises the floor above
//! every token that was issued before it, so a grant that was not claimed by then fails its claim.

use std::fmt;

use sqlx::{ColumnIndex, Decode, Row, Type};

use super::StoreError;

pub const STORE: &str = "store";
pub const NONE: &str = "none";

/// An authority as it is recorded, or as settings name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwningAuthority {
    /// `store`, `etcd`, or `none` where tokens come from elsewhere.
    pub kind: String,
    /// The cluster as the authority itself names it. `None`: not known yet.
    pub identity: Option<String>,
    /// The part of it that holds the locks, such as a key prefix. `None`: not known yet.
    pub namespace: Option<String>,
    /// A random number that Fencepost has left in it: two clusters may name themselves alike. `None`: not known yet.
    pub instance: Option<String>,
}

impl OwningAuthority {
    /// The lock table in the store itself.
    pub fn store() -> Self {
        Self::without_cluster(STORE)
    }

    /// Tokens come from elsewhere, and nothing is granted here.
    pub fn none() -> Self {
        Self::without_cluster(NONE)
    }

    fn without_cluster(kind: &str) -> Self {
        let (identity, namespace) = (Some(String::new()), Some(String::new()));
        Self { kind: kind.into(), identity, namespace, instance: None }
    }

    /// Whether both can be the same authority, as far as they are known.
    pub fn may_be(&self, other: &Self) -> bool {
        let agree = |a: &Option<String>, b: &Option<String>| a.is_none() || b.is_none() || a == b;
        self.kind == other.kind
            && agree(&self.identity, &other.identity)
            && agree(&self.namespace, &other.namespace)
            && agree(&self.instance, &other.instance)
    }

    pub fn is_complete(&self) -> bool {
        self.identity.is_some() && self.namespace.is_some()
    }

    /// As a record: an error unless `wanted` may be this one.
    pub fn check(&self, wanted: &Self) -> Result<(), StoreError> {
        if self.may_be(wanted) { Ok(()) } else { Err(self.refuses(wanted)) }
    }

    fn refuses(&self, wanted: &Self) -> StoreError {
        if (Self { instance: None, ..self.clone() }).may_be(wanted) {
            return StoreError::OtherAuthority(format!(
                "the store belongs to another {self}: this one has the same id, and was made apart from it"
            ));
        }
        StoreError::OtherAuthority(format!("the store belongs to {self}, not to {wanted}"))
    }
}

impl fmt::Display for OwningAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        match self.identity.as_deref() {
            Some("") => {}
            Some(identity) => write!(f, " cluster {identity}")?,
            None => f.write_str(" (cluster not known yet)")?,
        }
        match self.namespace.as_deref() {
            Some("") | None => Ok(()),
            Some(namespace) => write!(f, " prefix {namespace:?}"),
        }
    }
}

/// What both stores answer alike.
pub(super) fn owning_authority<R: Row>(row: &R) -> Result<OwningAuthority, sqlx::Error>
where
    for<'a> &'a str: ColumnIndex<R>,
    for<'a> String: Decode<'a, R::Database> + Type<R::Database>,
    for<'a> Option<String>: Decode<'a, R::Database> + Type<R::Database>,
{
    Ok(OwningAuthority {
        kind: row.try_get("kind")?,
        identity: row.try_get("identity")?,
        namespace: row.try_get("namespace")?,
        instance: row.try_get("instance")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd(identity: Option<&str>, namespace: Option<&str>) -> OwningAuthority {
        OwningAuthority {
            kind: "etcd".into(),
            identity: identity.map(Into::into),
            namespace: namespace.map(Into::into),
            instance: None,
        }
    }

    #[test]
    fn two_of_one_name_are_told_apart_by_what_was_left_in_them() {
        let [one, other] = ["1", "2"].map(|number| OwningAuthority {
            instance: Some(number.into()),
            ..etcd(Some("a"), None)
        });
        assert!(one.check(&etcd(Some("a"), None)).is_ok() && one.check(&one).is_ok());
        let refused = one.check(&other).expect_err("another one").to_string();
        assert!(refused.contains("another etcd cluster a: this one has the same id"), "{refused}");
    }

    #[test]
    fn only_what_is_known_of_both_tells_them_apart() {
        let recorded = etcd(Some("a"), Some("p/"));
        for (other, same) in [
            (etcd(Some("a"), Some("p/")), true),
            (etcd(None, Some("p/")), true),
            (etcd(Some("a"), None), true),
            (etcd(Some("b"), Some("p/")), false),
            (etcd(None, Some("")), false),
            (OwningAuthority::store(), false),
            (OwningAuthority::none(), false),
        ] {
            assert_eq!(recorded.may_be(&other), same, "{other}");
            assert_eq!(other.may_be(&recorded), same, "{other}");
            assert_eq!(recorded.check(&other).is_ok(), same, "{other}");
        }
    }

    #[test]
    fn it_is_shown_as_far_as_it_is_known() {
        assert_eq!(OwningAuthority::store().to_string(), "store");
        assert_eq!(etcd(None, None).to_string(), "etcd (cluster not known yet)");
        assert_eq!(etcd(Some("5a"), Some("")).to_string(), "etcd cluster 5a");
        assert_eq!(etcd(Some("5a"), Some("p/")).to_string(), "etcd cluster 5a prefix \"p/\"");
    }
}
