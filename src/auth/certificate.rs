//! Whose a client's certificate is. TLS has checked it before: that a trusted authority has signed
//! it, that it has not expired, and that the client has its key.

use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer, X509Certificate},
};

use super::Identity;

/// The name in the certificate's SAN: the URI, as SPIFFE has it, or else the DNS name. Of either
/// there must be one, or it would not be clear whose it is. The subject is not looked at: it is
/// free text.
pub fn identity_in(certificate: &[u8]) -> Option<Identity> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let (mut uris, mut hosts) = (Vec::new(), Vec::new());
    for name in &names.value.general_names {
        match name {
            GeneralName::URI(uri) => uris.push(*uri),
            GeneralName::DNSName(host) => hosts.push(*host),
            _ => {}
        }
    }
    match (uris[..].as_ref(), hosts[..].as_ref()) {
        ([uri], _) => Identity::checked(uri),
        // A wildcard is a name for many.
        ([], [host]) if !host.contains('*') => Identity::checked(host),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn identity(names: &[SanType]) -> Option<String> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        params.distinguished_name.push(DnType::CommonName, "admin");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        identity_in(certificate.der()).map(|identity| identity.to_string())
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().unwrap())
    }

    fn host(text: &str) -> SanType {
        SanType::DnsName(text.try_into().unwrap())
    }

    #[test]
    fn the_uri_first_and_else_the_only_name() {
        let spiffe = "spiffe://example.org/ns/shop/sa/orders";
        assert_eq!(identity(&[uri(spiffe)]).as_deref(), Some(spiffe));
        assert_eq!(identity(&[host("a.example"), uri(spiffe)]).as_deref(), Some(spiffe));
        assert_eq!(identity(&[host("a.example")]).as_deref(), Some("a.example"));
        for names in [
            &[][..],
            &[uri(spiffe), uri("spiffe://example.org/ns/shop/sa/other")],
            &[host("a.example"), host("b.example")],
            &[host("*.example")],
            &[SanType::IpAddress([10, 0, 0, 1].into())],
        ] {
            assert_eq!(identity(names), None, "{names:?}");
        }
    }
}
