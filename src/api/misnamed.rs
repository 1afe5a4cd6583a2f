//! Refuses headers that a client may take for a protection, and that this server would ignore.
//!
//! A misspelt `X-Fencing-Scope` would otherwise remove the fence: the write goes through, guarded by nothing
//! but its own key. The same holds for a valid header on a route that has no use for it.

use axum::http::{HeaderMap, HeaderName, Method};

use super::{
    named::{Name, Named},
    problem::{Kind, Problem},
    route::Route,
};

/// What a request can carry. Lower case, as the `http` crate keeps names.
const FENCING: [&str; 5] =
    ["x-fencing-token", "x-fencing-scope", "x-fencing-seq", "x-fencing-rule", "x-fencing-client"];
const CONDITIONS: [&str; 5] =
    ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"];
/// What only answers carry.
const OF_ANSWERS: [&str; 2] = ["x-fencing-mark", "x-fencing-replay"];

/// So many typing mistakes make one of these names of another.
const MISTAKES: usize = 2;

/// Whether a header could be meant for one of this server's, though it has another name.
/// Called for every header that has no meaning here, so the common ones must be sorted out quickly.
pub fn is_misnamed(name: &str) -> bool {
    let bytes = name.as_bytes();
    match bytes {
        // The namespace is reserved as a whole, with and without `X-`, and as CGI and WSGI name a header.
        [b'f', b'e', b'n', b'c', ..]
        | [b'x', b'-' | b'_', b'f', b'e', b'n', b'c', ..]
        | [b'h', b't', b't', b'p', b'-' | b'_', b'x', b'-' | b'_', b'f', b'e', b'n', b'c', ..] => {
            true
        }
        [b'i', b'f', b'-' | b'_', ..] => !CONDITIONS.contains(&name),
        // Two mistakes leave at least a part of `x-fencing-` as it was.
        _ if (11..=18).contains(&bytes.len()) => {
            let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
            (has(b"x-fe") || has(b"nci") || has(b"ng-") || has(b"ng_"))
                && distance_to(name, &FENCING) <= MISTAKES
        }
        _ => false,
    }
}

/// A header of this server came after the body, where it is not looked for.
#[derive(Debug, thiserror::Error)]
#[error(
    "a header of this server, such as X-Fencing-Scope, was sent after the body, as a trailer; send it before the body"
)]
pub struct InTrailers;

pub fn is_in_trailers(trailers: &HeaderMap) -> bool {
    trailers
        .keys()
        .map(HeaderName::as_str)
        .any(|name| FENCING.contains(&name) || CONDITIONS.contains(&name) || is_misnamed(name))
}

/// The first header that must not be ignored, as a problem.
pub fn refuse(headers: &HeaderMap, named: Named, method: &Method, route: Route) -> Option<Problem> {
    if named.has(Name::Misnamed) {
        let name = headers.keys().map(HeaderName::as_str).find(|name| {
            !FENCING.contains(name) && !CONDITIONS.contains(name) && is_misnamed(name)
        })?;
        return Some(Problem::new(Kind::InvalidRequest, unknown(name)));
    }
    let name = useless(headers, named, method, route)?;
    let detail = format!("{} has no meaning here: {}", spelt(name), what_is_meant(route));
    Some(Problem::new(Kind::InvalidRequest, detail))
}

fn unknown(name: &str) -> String {
    if OF_ANSWERS.contains(&name) {
        return format!(
            "{} is a header of answers; a request that carries it might expect it to be checked, \
             and it is not",
            spelt(name)
        );
    }
    let known = if name.starts_with("if") { &CONDITIONS } else { &FENCING };
    format!("{name} is not a header of this server; did you mean {}?", spelt(nearest(name, known)))
}

/// A header of a fenced read on a route that reads without a claim.
fn useless(
    headers: &HeaderMap,
    named: Named,
    method: &Method,
    route: Route,
) -> Option<&'static str> {
    if !method.is_safe() {
        return None;
    }
    let ignored: &[&'static str] = match route {
        // Their handlers judge each of the headers.
        Route::Resource | Route::Lock | Route::Batch => return None,
        // A token alone is let through: clients set it once, for all their requests.
        Route::Mark | Route::Resources | Route::Locks | Route::Rejections | Route::OpenApi => {
            &FENCING[1..4]
        }
    };
    if !named.has(Name::Fencing) {
        return None;
    }
    ignored.iter().copied().find(|name| headers.contains_key(*name))
}

fn what_is_meant(route: Route) -> &'static str {
    match route {
        Route::Mark => "looking at a mark claims nothing; PUT claims, and takes it",
        Route::Resources => "a listing claims nothing; read each key with its token",
        _ => "it is for writes, claims and fenced reads",
    }
}

/// As documents write it.
fn spelt(name: &str) -> String {
    let words: Vec<String> = name
        .split('-')
        .map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_ascii_uppercase() + rest
        })
        .collect();
    words.join("-")
}

fn nearest(name: &str, known: &[&'static str]) -> &'static str {
    let name = plain(name);
    let last = |name: &str| name.rsplit('-').next().unwrap_or_default().to_owned();
    // The last word says what it is for. Where the others differ, as in `Fencing-Scope`, it decides.
    let cost =
        |known: &&&'static str| (distance(&last(&name), &last(known)), distance(&name, known));
    known
        .iter()
        .min_by_key(|known| {
            let (of_last, of_all) = cost(known);
            (of_last.min(of_all), of_all)
        })
        .copied()
        .unwrap_or_default()
}

fn distance_to(name: &str, known: &[&str]) -> usize {
    let name = plain(name);
    known.iter().map(|known| distance(&name, known)).min().unwrap_or(usize::MAX)
}

/// `_` stands for `-` where a gateway has rewritten it.
fn plain(name: &str) -> String {
    name.replace('_', "-")
}

/// How many letters must be added, left out, changed or swapped with their neighbours.
fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut before_previous: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let changed = previous[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut fewest = changed.min(previous[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                fewest = fewest.min(before_previous[j - 2] + 1);
            }
            row.push(fewest);
        }
        before_previous = std::mem::replace(&mut previous, row);
    }
    previous[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_ours_is_refused_and_the_nearest_is_named() {
        for (name, meant) in [
            ("x-fencing-scop", "X-Fencing-Scope"),
            ("x-fencing-scopes", "X-Fencing-Scope"),
            ("x-fencing-sqe", "X-Fencing-Seq"),
            ("x-fencing-sequence", "X-Fencing-Seq"),
            ("x-fencing-rules", "X-Fencing-Rule"),
            ("x-fencing-tokn", "X-Fencing-Token"),
            ("x-fencing-clint", "X-Fencing-Client"),
            ("x-fencingscope", "X-Fencing-Scope"),
            ("x_fencing_scope", "X-Fencing-Scope"),
            ("x-fencing_token", "X-Fencing-Token"),
            ("fencing-scope", "X-Fencing-Scope"),
            ("fence-token", "X-Fencing-Token"),
            ("x-fence-scope", "X-Fencing-Scope"),
            ("x-fenced-seq", "X-Fencing-Seq"),
            ("x-fencepost-scope", "X-Fencing-Scope"),
            ("x-fecning-scope", "X-Fencing-Scope"),
            ("x-fening-rule", "X-Fencing-Rule"),
            ("xfencing-scope", "X-Fencing-Scope"),
            ("x-sencing-scope", "X-Fencing-Scope"),
            ("http_x_fencing_scope", "X-Fencing-Scope"),
            ("http-x-fencing-token", "X-Fencing-Token"),
            ("if_match", "If-Match"),
            ("if-matches", "If-Match"),
            ("if-non-match", "If-None-Match"),
            ("if-none-matches", "If-None-Match"),
        ] {
            assert!(is_misnamed(name), "{name}");
            assert!(unknown(name).contains(&format!("mean {meant}?")), "{}", unknown(name));
        }
        for name in OF_ANSWERS {
            assert!(is_misnamed(name));
            assert!(unknown(name).contains("answers"));
        }
    }

    #[test]
    fn other_headers_are_let_through() {
        for name in [
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-request-id",
            "x-auth-token",
            "x-csrf-token",
            "x-real-ip",
            "x-b3-traceid",
            "x-envoy-attempt-count",
            "x-amzn-trace-id",
            "x-api-client",
            "x-ratelimit-scope",
            "accept-encoding",
            "accept-language",
            "sec-fetch-mode",
            "idempotency-key",
            "x-pricing-token",
            "cache-control",
            "upgrade-insecure-requests",
            "if-match",
            "if-none-match",
            "if-modified-since",
        ] {
            assert!(!is_misnamed(name), "{name}");
        }
    }

    #[test]
    fn distance_counts_mistakes() {
        assert_eq!(distance("scope", "scope"), 0);
        assert_eq!(distance("scop", "scope"), 1);
        assert_eq!(distance("socpe", "scope"), 1);
        assert_eq!(distance("", "scope"), 5);
        assert_eq!(distance("seq", "scope"), 4);
    }
}
