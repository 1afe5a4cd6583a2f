//! To whom the operators' area answers, and under which names.
//!
//! The listener may have to be on the network, for a kubelet and for Prometheus. The page is not for
//! them: only this machine is answered (a port-forward comes from there, too), and whoever proves
//! over TLS to have the right `admin` on everything. `--insecure` opens it under names that are set.
//!
//! A site that somebody visits can make its own name lead to 127.0.0.1 (DNS rebinding). The browser
//! then takes this listener for a part of that site, and lets its scripts read what it says. But
//! the request still carries the site's name. So only names that no stranger can own are answered:
//! IP addresses, `localhost`, and those that the operator has set.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, header},
    middleware::Next,
    response::Response,
};

use super::Admin;
use crate::{
    api::{
        host,
        problem::{Kind, Problem},
    },
    auth::{Access, Operator, gate::Certified},
    server::Peer,
};

pub async fn check(
    State(admin): State<Admin>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| address.ip());
    let everybody = admin.insecure && !admin.hosts.is_empty();
    if !everybody && !peer.is_some_and(|peer| peer.to_canonical().is_loopback()) {
        let certified = request.extensions().get::<Certified>().cloned();
        must_be_an_operator(&admin, request.headers(), certified).await?;
    }
    request.extensions_mut().insert(Operator);
    if host::of(&request).is_some_and(|host| is_ours(host, &admin.hosts)) {
        return Ok(next.run(request).await);
    }
    let detail = "this is answered to an IP address or localhost as the Host, and to the names in \
                  --admin-hosts";
    Err(Problem::new(Kind::InvalidRequest, detail))
}

async fn must_be_an_operator(
    admin: &Admin,
    headers: &HeaderMap,
    certified: Option<Certified>,
) -> Result<(), Problem> {
    let Some(gate) = &admin.gate else {
        let detail = "this is shown on the machine itself, for instance by a port-forward, and to \
                      those who prove over --admin-tls that they may see it";
        return Err(Problem::new(Kind::NotFound, detail));
    };
    let authorization = headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    let proven = gate.admit(authorization, certified.as_ref()).await?;
    Access::As(gate.clone(), proven).rejections(None)?;
    Ok(())
}

fn is_ours(host: &str, names: &[String]) -> bool {
    let name = host::name_in(host);
    host::is_an_address(host)
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::is_ours;

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
