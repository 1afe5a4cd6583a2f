//! TLS for a listener: certificates from files, read anew when they change.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    auth::{certificate, gate::Certified, watched::Watched},
    metrics::Metrics,
};

/// For the whole of a handshake. Until it is over, a connection is nobody's, and takes a place.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// What is asked of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Who has none may prove itself otherwise, or asks for what is open to all.
    Optional,
    Required,
}

/// In which order the files are watched.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Who signs the certificates of clients.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    pub fn paths(&self) -> Vec<PathBuf> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca).cloned().collect()
    }
}

#[derive(Clone)]
pub struct Tls {
    config: Watched<ServerConfig>,
    metrics: Arc<Metrics>,
}

impl Tls {
    pub fn new(config: Watched<ServerConfig>, metrics: Arc<Metrics>) -> Self {
        Self { config, metrics }
    }

    /// `None`: it failed, or took too long. The other side is told by TLS itself, if at all.
    pub async fn accept<S>(&self, stream: S) -> Option<(TlsStream<S>, Option<Certified>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = TlsAcceptor::from(self.config.now()).accept(stream);
        let failed = match timeout(HANDSHAKE_TIME, handshake).await {
            Ok(Ok(stream)) => {
                let certificate =
                    stream.get_ref().1.peer_certificates().and_then(|all| all.first());
                let identity = certificate.and_then(|own| certificate::identity_in(own));
                return Some((stream, identity.map(Certified)));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".into(),
        };
        self.metrics.access.failed_handshakes.inc();
        tracing::debug!(reason = failed, "a connection did not get through TLS");
        None
    }
}

/// From the contents of [`TlsFiles::paths`], in that order.
pub fn config(contents: &[Vec<u8>], clients: ClientCertificates) -> Result<ServerConfig, String> {
    let [certificate, key, client_ca @ ..] = contents else {
        return Err("a certificate and a key are needed".into());
    };
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(certificate).map_err(|error| format!("the certificate: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "the key: it is no PEM of one")?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match client_ca.first() {
        None => builder.with_no_client_auth(),
        Some(ca) => builder.with_client_cert_verifier(verifier(ca, clients, provider)?),
    };
    // This also finds a key that is not the certificate's.
    let mut config = builder.with_single_cert(chain, key).map_err(|error| error.to_string())?;
    if !client_ca.is_empty() {
        // Whoever resumes a session is not asked for a certificate again, and it may have expired since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn verifier(
    ca: &[u8],
    clients: ClientCertificates,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let told = |error: &dyn std::fmt::Display| format!("the clients' authority: {error}");
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca).map_err(|error| told(&error))? {
        roots.add(certificate).map_err(|error| told(&error))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match clients {
        ClientCertificates::Optional => builder.allow_unauthenticated(),
        ClientCertificates::Required => builder,
    };
    builder.build().map_err(|error| told(&error))
}

pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err("it is no PEM of a certificate".into()),
    }
}
