//! The releases of etcd: which ones are tested, and what is known about the others. No I/O.

/// The oldest and the newest minor release that the tests run on.
const OLDEST: [u32; 2] = [3, 4];
const NEWEST: [u32; 2] = [3, 7];

/// What is known about a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Support {
    /// The tests run on its minor release.
    Tested,
    /// It is newer than every release that the tests run on.
    Untested,
    /// A crash while it compacts can set its revision back (etcd issue 17780).
    Forgetful,
    /// It does not say what it is.
    Unknown,
    /// It is older than what Fencepost needs.
    TooOld,
}

/// `3.4.23`, `3.6.0-rc.4`: as etcd names itself.
pub fn support(version: &str) -> Support {
    let numbers: Vec<u32> =
        version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect();
    let [major, minor, ref rest @ ..] = numbers[..] else { return Support::Unknown };
    let patch = rest.first().copied();
    match [major, minor] {
        older if older < OLDEST => Support::TooOld,
        newer if newer > NEWEST => Support::Untested,
        [3, 4] if patch.is_some_and(|patch| patch < 32) => Support::Forgetful,
        [3, 5] if patch.is_some_and(|patch| patch < 14) => Support::Forgetful,
        _ => Support::Tested,
    }
}

/// `3.4 to 3.7`
pub fn tested() -> String {
    let [oldest, newest] = [OLDEST, NEWEST].map(|[major, minor]| format!("{major}.{minor}"));
    format!("{oldest} to {newest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_told_apart() {
        for (version, expected) in [
            ("2.9.9", Support::TooOld),
            ("3.3.27", Support::TooOld),
            ("3.4", Support::Tested),
            ("3.4.0", Support::Forgetful),
            ("3.4.31", Support::Forgetful),
            ("3.4.32", Support::Tested),
            ("3.5.13", Support::Forgetful),
            ("3.5.14", Support::Tested),
            ("3.6.0-rc.4", Support::Tested),
            ("3.7.3", Support::Tested),
            ("3.8.0-alpha.0", Support::Untested),
            ("4.0.0", Support::Untested),
            ("", Support::Unknown),
            ("main", Support::Unknown),
        ] {
            assert_eq!(support(version), expected, "{version}");
        }
        assert_eq!(tested(), "3.4 to 3.7");
    }
}
