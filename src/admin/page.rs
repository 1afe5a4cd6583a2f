//! `/`: the page for a person in a hurry. One self-contained document, with nothing from elsewhere.
//!
//! Its parts are put together at the start, and their digests go into the policy by which a browser
//! runs these very scripts and styles and no others. Even if some text came to be taken for
//! markup, it could run nothing and load nothing.

use std::sync::LazyLock;

use axum::{
    http::{HeaderName, HeaderValue, header},
    response::{Html, IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("page/page.css");

/// In the order in which they build on each other.
const SCRIPTS: [&str; 7] = [
    include_str!("page/words.js"),
    include_str!("page/explain.js"),
    include_str!("page/chart.js"),
    include_str!("page/rejections.js"),
    include_str!("page/side.js"),
    include_str!("page/verdict.js"),
    include_str!("page/main.js"),
];

struct Page {
    html: String,
    policy: HeaderValue,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let script = SCRIPTS.join("\n");
    let html = include_str!("page/page.html").replacen("/*STYLE*/", STYLE, 1).replacen(
        "/*SCRIPT*/",
        &script,
        1,
    );
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        digest(&script),
        digest(STYLE),
    );
    // Letters, digits and punctuation only.
    let policy = HeaderValue::try_from(policy)
        .unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"));
    Page { html, policy }
});

fn digest(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)))
}

pub async fn get() -> Response {
    let mut response = Html(PAGE.html.as_str()).into_response();
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, PAGE.policy.clone());
    response
}

/// For everything in the operators' area.
pub async fn guard(mut response: Response) -> Response {
    let guards = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in guards {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    response.headers_mut().entry(header::CONTENT_SECURITY_POLICY).or_insert(policy);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_whole_and_brings_everything_with_it() {
        assert!(PAGE.html.contains("BETWEEN_LOOKS") && PAGE.html.contains("--ground"));
        for foreign in ["http://", "https://", "//cdn", "@import", "url("] {
            // A namespace is a name, not an address.
            let own = PAGE.html.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains(foreign), "{foreign}");
        }
        for risky in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
            assert!(!PAGE.html.contains(risky), "{risky}");
        }
        assert!(!SCRIPTS.concat().contains("</script"), "it would end there");
    }

    #[test]
    fn nothing_is_allowed_by_default() {
        let policy = PAGE.policy.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    }
}
