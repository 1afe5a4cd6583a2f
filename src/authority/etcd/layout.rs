//! Where locks are in etcd's key space, as its own client recipe lays them out:
//! `<prefix>/<name>/<lease id in hex>`. No I/O.
//!
//! A name may hold slashes, so the keys under `a/` are those of the lock `a`, of the lock `a/b`, and
//! other data. An entry of `a` is a key directly below it whose last part is hexadecimal, as the
//! recipe names its keys. Only the key's name and its `create_revision` decide: a key that is named
//! like an entry counts as a holder, even if its lease cannot be seen. etcd 3.7 leaves the `lease`
//! field out of answers without values. The recipe takes every older key under `a/` for a competitor.
//! Exclusion holds between the two all the same: of two entries of `a`, the younger always sees the
//! older one. The recipe only waits for more than it has to.

use etcd_client::KeyValue;

use crate::{auth::Identity, token::Key};

/// Turns names of locks into keys and back.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Empty, or ends with a slash.
    base: String,
}

/// One who holds a lock, or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    /// The lease that the key is named after. `None`: no lease can have that number.
    pub lease: Option<i64>,
    /// The revision that the key was created at: its place in the queue, and the token's low bits.
    pub created: i64,
    /// Known where its value was read, too.
    pub value: Option<Value>,
}

impl Layout {
    /// A prefix as an operator writes it, with or without a slash at its end.
    pub fn new(prefix: &str) -> Self {
        if prefix.is_empty() {
            return Self { base: String::new() };
        }
        Self { base: format!("{}/", prefix.strip_suffix('/').unwrap_or(prefix)) }
    }

    /// What all keys start with.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The key that is read to see how far etcd has come. It holds the number that tells this etcd from others (`instance.rs`).
    pub fn landmark(&self) -> Vec<u8> {
        format!("{}fencepost-instance", self.base).into_bytes()
    }

    /// Under this are all entries of a lock, and perhaps other things.
    pub fn directory(&self, name: &Key) -> Vec<u8> {
        format!("{}{}/", self.base, name.as_str()).into_bytes()
    }

    /// The same as a range, with its end.
    pub fn directory_range(&self, name: &Key) -> (Vec<u8>, Vec<u8>) {
        let start = self.directory(name);
        let end = end_of(&start);
        (start, end)
    }

    pub fn key(&self, name: &Key, lease: i64) -> Vec<u8> {
        format!("{}{}/{lease:x}", self.base, name.as_str()).into_bytes()
    }

    /// The range of keys in which all locks are whose names start with `prefix`.
    pub fn listing(&self, prefix: &str) -> (Vec<u8>, Vec<u8>) {
        let start = format!("{}{prefix}", self.base).into_bytes();
        let end = end_of(&start);
        // etcd does not know an empty key; this is the first one there can be.
        (if start.is_empty() { vec![0] } else { start }, end)
    }

    /// The lock that a key is an entry of, if it is one.
    pub fn name_of(&self, pair: &KeyValue) -> Option<Key> {
        let key = std::str::from_utf8(pair.key()).ok()?;
        let (name, last) = key.strip_prefix(&self.base)?.rsplit_once('/')?;
        if is_hexadecimal(last.as_bytes()) { Key::new(name).ok() } else { None }
    }

    /// The pair as an entry of the lock `name`, if it is one.
    pub fn entry_of(&self, name: &Key, pair: &KeyValue) -> Option<Entry> {
        let last = pair.key().strip_prefix(self.directory(name).as_slice())?;
        is_hexadecimal(last).then(|| Entry::of(pair))
    }
}

impl Entry {
    /// Of a pair that was read without its value.
    pub fn of(pair: &KeyValue) -> Self {
        let last = pair.key().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let last = std::str::from_utf8(last).unwrap_or_default();
        Self {
            key: pair.key().to_vec(),
            lease: i64::from_str_radix(last, 16).ok().filter(|lease| *lease > 0),
            created: pair.create_revision(),
            value: None,
        }
    }
}

/// Whether a key's last part is a number as the recipe writes it, or nearly so: with capital letters
/// or leading zeros it may still be the entry of another program.
fn is_hexadecimal(last: &[u8]) -> bool {
    !last.is_empty() && last.iter().all(u8::is_ascii_hexdigit)
}

/// What an entry says of its maker: the owner's name as it is, so that a person finds it with
/// `etcdctl`; and after a NUL, which no name has, the authenticated identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    pub owner: String,
    pub identity: Option<Identity>,
}

impl Value {
    pub fn of(pair: &KeyValue) -> Self {
        // Somebody else's value may be anything.
        let text = String::from_utf8_lossy(pair.value());
        match text.split_once('\0') {
            Some((owner, identity)) => {
                Self { owner: owner.into(), identity: Identity::checked(identity) }
            }
            None => Self { owner: text.into_owned(), identity: None },
        }
    }

    pub fn encode(&self) -> String {
        match &self.identity {
            Some(identity) => format!("{}\0{identity}", self.owner),
            None => self.owner.clone(),
        }
    }
}

/// The key after all those that start with `prefix`, as etcd counts them.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // There is none: to the end of the key space.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_recipe() {
        let name = Key::new("orders/42").unwrap();
        assert_eq!(Layout::new("").key(&name, 0x7c0f), b"orders/42/7c0f");
        assert_eq!(Layout::new("app").key(&name, 255), b"app/orders/42/ff");
        assert_eq!(Layout::new("/app/").directory(&name), b"/app/orders/42/");
    }

    #[test]
    fn ranges_hold_what_they_are_for() {
        let name = Key::new("orders/42").unwrap();
        let layout = Layout::new("app");
        assert_eq!(layout.landmark(), b"app/fencepost-instance");
        assert_eq!(
            layout.directory_range(&name),
            (b"app/orders/42/".to_vec(), b"app/orders/420".to_vec())
        );
        assert_eq!(layout.listing("or"), (b"app/or".to_vec(), b"app/os".to_vec()));
        assert_eq!(Layout::new("").listing(""), (vec![0], vec![0]));
    }

    #[test]
    fn entries_are_known_by_their_names() {
        for entry in ["7c0f", "7fffffffffffffff", "0", "007c0f", "7C0F", "8000000000000000"] {
            assert!(is_hexadecimal(entry.as_bytes()), "{entry}");
        }
        for other in ["", "+7c0f", "-1", "config", "~", "ab/cd", "ab cd"] {
            assert!(!is_hexadecimal(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_value_is_the_owner_and_perhaps_an_identity() {
        let named = |identity: Option<&str>| Value {
            owner: "worker 7".into(),
            identity: identity.and_then(Identity::checked),
        };
        assert_eq!(named(None).encode(), "worker 7");
        assert_eq!(named(Some("alice")).encode(), "worker 7\0alice");
    }

    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff"), [0]);
        assert_eq!(end_of(b""), [0]);
    }
}
