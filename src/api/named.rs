//! Which of the headers that mean something here a request has.
//!
//! Few requests have many of them. To go through their names once is quicker than to look for each that there
//! could be: that takes a hash of its name, whether it is there or not.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::misnamed::is_misnamed;

/// Headers that are looked for together, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    Token,
    /// `X-Fencing-…`, but for the token.
    Fencing,
    Client,
    Agent,
    /// `If-…`
    Condition,
    Trace,
    TransferEncoding,
    /// What describes a body and is not kept with it.
    NotKept,
    /// What every browser sends, and a page cannot leave out; some of them not to every address. Their
    /// `User-Agent` is another sign.
    Browser,
    /// What could be meant for one of the others, though it is spelt otherwise.
    Misnamed,
}

/// Those of one request.
#[derive(Clone, Copy, Default)]
pub struct Named {
    names: u16,
    /// How many `Host` headers there are.
    pub hosts: usize,
}

impl Named {
    pub fn among(headers: &HeaderMap) -> Self {
        let mut named = Self::default();
        for (name, value) in headers {
            named.note(name, value);
        }
        named
    }

    pub fn has(self, name: Name) -> bool {
        self.names & bit(name) != 0
    }

    fn note(&mut self, name: &HeaderName, value: &HeaderValue) {
        let bits = match name.as_str() {
            "host" => {
                self.hosts += 1;
                0
            }
            "x-fencing-token" => bit(Name::Token),
            "x-fencing-client" => bit(Name::Fencing) | bit(Name::Client),
            "user-agent" if value.as_bytes().starts_with(b"Mozilla/") => {
                bit(Name::Agent) | bit(Name::Browser)
            }
            "user-agent" => bit(Name::Agent),
            "traceparent" => bit(Name::Trace),
            "transfer-encoding" => bit(Name::TransferEncoding),
            "content-encoding" | "content-range" => bit(Name::NotKept),
            "accept-language" | "origin" | "referer" | "sec-fetch-mode" | "sec-fetch-site" => {
                bit(Name::Browser)
            }
            "x-fencing-seq" | "x-fencing-scope" | "x-fencing-rule" => bit(Name::Fencing),
            "if-match"
            | "if-none-match"
            | "if-modified-since"
            | "if-unmodified-since"
            | "if-range" => bit(Name::Condition),
            name if is_misnamed(name) => bit(Name::Misnamed),
            _ => 0,
        };
        self.names |= bits;
    }
}

fn bit(name: Name) -> u16 {
    1 << name as u16
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;
    use crate::api::{
        FENCING_CLIENT, FENCING_RULE, FENCING_SCOPE, FENCING_SEQ, FENCING_TOKEN,
        caller::TRACEPARENT,
    };

    const ALL: [Name; 10] = [
        Name::Token,
        Name::Fencing,
        Name::Client,
        Name::Agent,
        Name::Condition,
        Name::Trace,
        Name::TransferEncoding,
        Name::NotKept,
        Name::Browser,
        Name::Misnamed,
    ];

    fn found(name: HeaderName, value: &'static str) -> Vec<Name> {
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        let named = Named::among(&headers);
        ALL.into_iter().filter(|name| named.has(*name)).collect()
    }

    #[test]
    fn each_is_found_by_the_name_that_it_is_looked_for_by() {
        assert_eq!(found(FENCING_TOKEN, "1"), [Name::Token]);
        assert_eq!(found(FENCING_CLIENT, "1"), [Name::Fencing, Name::Client]);
        for name in [FENCING_SEQ, FENCING_SCOPE, FENCING_RULE] {
            assert_eq!(found(name, "1"), [Name::Fencing]);
        }
        for name in [
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            header::IF_MODIFIED_SINCE,
            header::IF_UNMODIFIED_SINCE,
            header::IF_RANGE,
        ] {
            assert_eq!(found(name, "*"), [Name::Condition]);
        }
        assert_eq!(found(TRACEPARENT, "00"), [Name::Trace]);
        assert_eq!(found(header::TRANSFER_ENCODING, "chunked"), [Name::TransferEncoding]);
        for name in [header::CONTENT_ENCODING, header::CONTENT_RANGE] {
            assert_eq!(found(name, "x"), [Name::NotKept]);
        }
        assert_eq!(found(header::USER_AGENT, "curl/8"), [Name::Agent]);
        assert_eq!(found(header::USER_AGENT, "Mozilla/5.0"), [Name::Agent, Name::Browser]);
        for name in ["accept-language", "origin", "referer", "sec-fetch-mode", "sec-fetch-site"] {
            assert_eq!(found(HeaderName::from_static(name), "x"), [Name::Browser]);
        }
        for name in ["x-fencing-scop", "x-fencing-mark", "x_fencing_token", "if_match"] {
            assert_eq!(found(HeaderName::from_static(name), "x"), [Name::Misnamed]);
        }
        for name in [header::HOST, header::CONTENT_TYPE, header::CONTENT_LENGTH, header::ACCEPT] {
            assert_eq!(found(name, "1"), []);
        }
    }

    #[test]
    fn every_host_counts() {
        let mut headers = HeaderMap::new();
        assert_eq!(Named::among(&headers).hosts, 0);
        for count in 1..4 {
            headers.append(header::HOST, HeaderValue::from_static("here"));
            assert_eq!(Named::among(&headers).hosts, count);
        }
    }
}
