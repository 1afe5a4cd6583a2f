//! Which rejections a client wants.

use std::time::SystemTime;

use crate::{
    api::{
        problem::Problem,
        query::{self, invalid},
    },
    metrics::Reason,
    rejections::Filter,
    settings::Time,
    token::Key,
};

pub struct Asked {
    pub filter: Filter,
    pub limit: usize,
}

pub fn asked(query: &str) -> Result<Asked, Problem> {
    let mut filter = Filter::default();
    let mut limit = query::DEFAULT_LIMIT;
    for (name, value) in query::members(query)? {
        match &*name {
            "key" => filter.key = Some(Key::new(&value)?),
            "reason" => filter.reason = Some(reason(&value)?),
            "since" => filter.since = Some(since(&value)?),
            "limit" => limit = query::limit(&value)?,
            other => {
                return Err(invalid(format!(
                    "rejections are asked for by key, reason, since and limit, and not {other:?}"
                )));
            }
        }
    }
    Ok(Asked { filter, limit: limit as usize })
}

fn reason(name: &str) -> Result<Reason, Problem> {
    Reason::named(name).ok_or_else(|| {
        let all: Vec<&str> = Reason::all().map(Reason::name).collect();
        invalid(format!("reason is one of {}", all.join(", ")))
    })
}

/// A moment, or how long ago that was.
fn since(text: &str) -> Result<SystemTime, Problem> {
    let utc = text.strip_suffix("+00:00").map(|moment| format!("{moment}Z"));
    if let Ok(moment) = humantime::parse_rfc3339(utc.as_deref().unwrap_or(text)) {
        return Ok(moment);
    }
    // With its unit, also if it is none at all.
    let ago = text.parse::<Time>().ok().filter(|_| !text.ends_with('0')).map(|Time(ago)| ago);
    ago.and_then(|ago| SystemTime::now().checked_sub(ago)).ok_or_else(|| {
        invalid("since is a moment in UTC, such as 2026-01-31T12:00:00Z, or a time, such as 5m")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_moment_or_a_time_ago() {
        let noon = humantime::parse_rfc3339("2026-01-31T12:00:00Z").unwrap();
        for text in
            ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00+00:00"]
        {
            assert_eq!(since(text).unwrap(), noon, "{text}");
        }
        let before = SystemTime::now() - Duration::from_mins(5);
        assert!(since("5m").unwrap() >= before);
        for text in ["", "yesterday", "0", "5", "-5m", "2026-01-31", "2026-13-31T12:00:00Z"] {
            assert!(since(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert!(asked("key=a%20b&reason=stale-token&since=5m&limit=7").is_ok());
        for query in
            ["key=", "key=%00", "reason=stale", "reason=", "limit=0", "limit=1001", "keys=a"]
        {
            assert!(asked(query).is_err(), "{query}");
        }
    }
}
