//! Whatever a setting holds: a value or an error, and a value can be written down and read again.

use proptest::prelude::*;

use super::*;
use crate::settings::{AuthorityUrl, StoreUrl};

fn check(text: &str) {
    if let Ok(time) = text.parse::<Time>() {
        assert_eq!(time.to_string().parse(), Ok(time), "{text:?}");
        assert_eq!(some_time(text).is_ok(), !time.0.is_zero(), "{text:?}");
    }
    let _ = text.parse::<Size>();
    if let Ok(hosts) = text.parse::<HostNames>() {
        let again = hosts.to_string().parse::<HostNames>().map(|hosts| hosts.to_string());
        assert_eq!(again, Ok(hosts.to_string()), "{text:?}");
    }
    // What is shown hides the password, so it is the showing that must not change.
    if let Ok(url) = text.parse::<StoreUrl>() {
        let shown = url.to_string();
        assert_eq!(shown.parse::<StoreUrl>().map(|url| url.to_string()), Ok(shown), "{text:?}");
    }
    if let Ok(url) = text.parse::<AuthorityUrl>() {
        let shown = url.to_string();
        assert_eq!(shown.parse::<AuthorityUrl>().map(|url| url.to_string()), Ok(shown), "{text:?}");
    }
}

#[test]
fn the_corpus() {
    include_str!("../../../tests/corpus/settings.txt").lines().for_each(check);
}

proptest! {
    #[test]
    fn any_text(text in prop_oneof![
        "[0-9]{1,20}(ns|us|ms|s|m|h|d|y)?( [0-9]{1,3}s)?",
        "[0-9.]{1,8} ?(B|kB|KiB|MiB|GB|TiB)?",
        "(sqlite:|postgres://|etcds?://)[a-z0-9:/@%?=,.\\[\\]#-]{0,30}",
        "[a-z0-9.*-]{1,12}(,[a-z0-9.*-]{1,12}){0,3}",
        any::<String>(),
    ]) {
        check(&text);
    }

    #[test]
    fn every_duration_survives_its_spelling(millis in 0..3_000_000_000_000_u64) {
        let time = Time(Duration::from_millis(millis));
        prop_assert_eq!(time.to_string().parse(), Ok(time));
    }
}
