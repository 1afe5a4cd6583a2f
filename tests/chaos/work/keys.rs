//! What is written to.

use crate::check::chains;

/// Keys that one lock guards, beside its chain: written with a seq and under its scope.
pub const ITEMS: usize = 3;
/// And those that are written in bursts, without either.
pub const LOOSE: usize = 3;

pub fn lock(number: usize) -> String {
    format!("lock-{number}")
}

pub fn chain(lock: &str) -> String {
    format!("{lock}{}", chains::SUFFIX)
}

pub fn item(lock: &str, number: usize) -> String {
    format!("{lock}/item-{number}")
}

pub fn loose(lock: &str, number: usize) -> String {
    format!("{lock}/loose-{number}")
}

/// Every key that is ever written.
pub fn all_keys(locks: usize) -> Vec<String> {
    let of = |lock: String| {
        let items = (0..ITEMS).map(|number| item(&lock, number)).collect::<Vec<_>>();
        let loose = (0..LOOSE).map(|number| loose(&lock, number)).collect::<Vec<_>>();
        [vec![chain(&lock)], items, loose].concat()
    };
    (0..locks).map(lock).flat_map(of).collect()
}
