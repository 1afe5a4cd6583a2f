//! The name that a request is sent to.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::{
    extract::Request,
    http::{header, uri::Authority},
};

/// With its port, if it has one.
pub fn of(request: &Request) -> Option<&str> {
    let by_header = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has it in the request line.
    request.uri().authority().map(Authority::as_str).or_else(by_header)
}

/// Without its port. Of an IPv6 address it is not meant.
pub fn name_in(host: &str) -> &str {
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Nobody can have a name service lead elsewhere with it.
pub fn is_an_address(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let address = rest.split_once(']').map(|(address, _)| address);
        return address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    name_in(host).parse::<Ipv4Addr>().is_ok()
}
