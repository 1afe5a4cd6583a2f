//! I7: updates that were made by reading, adding and writing back are all in the final value.
//!
//! Each value of such a key names the one that it was made from, and counts: it stands for the set of
//! all that came before it, and for their number.

use std::collections::HashSet;

use super::{Findings, Promise, versions::keys};
use crate::history::{History, name_of};

/// Keys whose values are chains end with this.
pub const SUFFIX: &str = "/chain";

/// The first link's predecessor.
const NOTHING: &str = "-";

/// A value: its name, the name of what it was made from, and how many there are.
pub fn link(name: &str, read: Option<&str>) -> String {
    let (previous, count) = read.map_or((NOTHING, 0), |read| (name_of(read), count(read)));
    format!("{name} {previous} {}", count + 1)
}

fn previous(value: &str) -> &str {
    value.split(' ').nth(1).unwrap_or(NOTHING)
}

fn count(value: &str) -> u64 {
    value.split(' ').nth(2).and_then(|count| count.parse().ok()).unwrap_or(0)
}

pub fn check(history: &History, findings: &mut Findings) {
    for (name, key) in keys(history) {
        if !name.ends_with(SUFFIX) {
            continue;
        }
        let Some(newest) = key.sightings.iter().max_by_key(|sighting| sighting.version) else {
            continue;
        };
        let mut kept = HashSet::new();
        let mut link = newest.value;
        while kept.insert(name_of(link)) {
            let Some(write) = key.writes.get(previous(link)) else { break };
            let Some(value) = write.value.as_deref() else { break };
            if count(value) + 1 != count(link) {
                let (value, link) = (name_of(value), name_of(link));
                findings.add(Promise::I7, format!("{link} was made from {value} and miscounts"));
            }
            link = value;
        }
        for sighting in key.sightings.iter().filter(|sighting| sighting.own) {
            let value = name_of(sighting.value);
            if !kept.contains(value) {
                let (newest, op) = (name_of(newest.value), &sighting.op.name);
                let what = format!("{op} added {value} to {name}, and {newest} lacks it");
                findings.add(Promise::I7, what);
            }
        }
    }
}
