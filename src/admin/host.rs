//! To whom the operators' area answers, and under which names.
//!
//! The listener may have to be on the network, for a kubelet and for Prometheus. The page is not for
//! them: unless the operator has set names for it, only this machine is answered (a port-forward
//! comes from there, too).
//!
//! A site that somebody visits can make its own name lead to 127.0.0.1 (DNS rebinding). The browser
//! then takes this listener for a part of that site, and lets its scripts read what it says. But
//! the request still carries the site's name. So only names that no stranger can own are answered:
//! IP addresses, `localhost`, and those that the operator has set.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::{
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::Response,
};

use super::Admin;
use crate::{
    api::problem::{Kind, Problem},
    server::Peer,
};

pub async fn check(
    State(admin): State<Admin>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| address.ip());
    if !peer.is_some_and(|peer| may_ask(peer, &admin.hosts)) {
        let detail = "this is shown on the machine itself, for instance by a port-forward, or under a \
                      name that --admin-hosts sets";
        return Err(Problem::new(Kind::NotFound, detail));
    }
    let by_header = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has it in the request line.
    let host = request.uri().authority().map(axum::http::uri::Authority::as_str).or_else(by_header);
    if host.is_some_and(|host| is_ours(host, &admin.hosts)) {
        return Ok(next.run(request).await);
    }
    let detail = "this is answered to an IP address or localhost as the Host, and to the names in \
                  --admin-hosts";
    Err(Problem::new(Kind::InvalidRequest, detail))
}

fn may_ask(peer: IpAddr, names: &[String]) -> bool {
    peer.to_canonical().is_loopback() || !names.is_empty()
}

fn is_ours(host: &str, names: &[String]) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let address = rest.split_once(']').map(|(address, _)| address);
        return address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.parse::<Ipv4Addr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::{is_ours, may_ask};

    #[test]
    fn only_this_machine_unless_a_name_is_set() {
        let names = ["fence.example.com".to_owned()];
        for here in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(may_ask(here.parse().unwrap(), &[]), "{here}");
        }
        for elsewhere in ["10.1.2.3", "::ffff:10.1.2.3", "fe80::1", "0.0.0.0"] {
            assert!(!may_ask(elsewhere.parse().unwrap(), &[]), "{elsewhere}");
            assert!(may_ask(elsewhere.parse().unwrap(), &names), "{elsewhere}");
        }
    }

    #[test]
    fn only_names_that_no_stranger_can_own() {
        let names = ["fence.example.com".to_owned()];
        for host in [
            "127.0.0.1:7421",
            "127.0.0.1",
            "[::1]:7421",
            "10.1.2.3:80",
            "localhost:7421",
            "LocalHost",
            "fence.example.com",
            "Fence.example.com:443",
        ] {
            assert!(is_ours(host, &names), "{host}");
        }
        for host in [
            "",
            ":7421",
            "evil.example.com",
            "evil.example.com:7421",
            "localhost.evil.example.com",
            "127.0.0.1.evil.example.com",
            "fence.example.com.evil.example.com",
            "[::1",
            "[evil]:7421",
            "example.com",
        ] {
            assert!(!is_ours(host, &names), "{host}");
        }
    }
}
