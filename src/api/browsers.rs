//! Where nobody has to prove anything, a page from anywhere could have its reader's browser ask for
//! locks here. This is not for browsers, and nobody but they say where a request comes from.
//!
//! A site can also make its own name lead to 127.0.0.1 (DNS rebinding): to the browser it is then the
//! site itself that is asked, and there is no other site to speak of. But the request carries the
//! site's name. A program may call us by any name, such as one that a pod gives to 127.0.0.1; so
//! a name is held only against what comes from a browser.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, header},
};

use super::{
    host,
    named::{Name, Named},
    problem::{Kind, Problem},
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// `on_loopback`: only this machine can ask, so the only names are its own.
pub fn refuse_pages(request: &Request, named: Named, on_loopback: bool) -> Result<(), Problem> {
    if !named.has(Name::Browser) {
        return Ok(());
    }
    let headers = request.headers();
    let host = host::of(request);
    if is_of_another_site(headers, host) {
        let detail = "a page of another site has sent this, and this is not for browsers";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    if on_loopback && !host.is_some_and(cannot_be_a_strangers) {
        let detail = "this came from a browser, under a name that somebody else may own; ask for \
                      localhost or 127.0.0.1 instead";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    Ok(())
}

fn is_of_another_site(headers: &HeaderMap, host: Option<&str>) -> bool {
    let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    let other_origin = headers.get_all(header::ORIGIN).iter().any(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let its_host = origin.split_once("://").map(|(_, host)| host);
        its_host.is_none() || its_host != host
    });
    other_origin || matches!(site, Some(b"cross-site" | b"same-site"))
}

/// A name without a dot is one of this network: nobody registers it.
fn cannot_be_a_strangers(host: &str) -> bool {
    let name = host::name_in(host);
    let of_this_machine =
        name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"));
    host::is_an_address(host) || of_this_machine || (!name.is_empty() && !name.contains('.'))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn refused(host: &str, headers: &[(&str, &str)], on_loopback: bool) -> bool {
        let mut request = Request::get("/v1/locks/l").header("Host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        refuse_pages(&request, Named::among(request.headers()), on_loopback).is_err()
    }

    const CHROME: &[(&str, &str)] = &[("User-Agent", "Mozilla/5.0 (X11)")];
    const NODE: &[(&str, &str)] =
        &[("User-Agent", "node"), ("Accept-Language", "*"), ("Sec-Fetch-Mode", "cors")];
    const CURL: &[(&str, &str)] = &[("User-Agent", "curl/8.5.0"), ("Accept", "*/*")];

    #[test]
    fn a_program_may_use_any_name() {
        for host in ["127.0.0.1:7420", "localhost:7420", "fence", "fence.shop.svc:7420", "a.b"] {
            assert!(!refused(host, CURL, true), "{host}");
        }
        for host in ["127.0.0.1:7420", "[::1]:7420", "localhost", "a.localhost", "fence:7420"] {
            assert!(!refused(host, NODE, true) && !refused(host, CHROME, true), "{host}");
        }
    }

    #[test]
    fn a_browser_may_not_use_one_that_a_stranger_can_own() {
        for host in ["evil.example:7420", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            for headers in [CHROME, NODE, &[("Referer", "http://evil.example/")]] {
                assert!(refused(host, headers, true), "{host} {headers:?}");
                assert!(!refused(host, headers, false), "{host}: whoever may reach it, may");
            }
        }
    }

    #[test]
    fn nor_may_a_page_of_another_site() {
        let host = "localhost:7420";
        for origin in ["http://evil.example", "null", "http://localhost:3000", "", "localhost:7420"]
        {
            for on_loopback in [true, false] {
                assert!(refused(host, &[("Origin", origin)], on_loopback), "{origin}");
            }
        }
        assert!(!refused(host, &[("Origin", "http://localhost:7420")], true));
        assert!(refused(host, &[("Sec-Fetch-Site", "same-site")], true));
        assert!(!refused(host, &[("Sec-Fetch-Site", "none")], true));
    }
}
