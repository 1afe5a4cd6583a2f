//! What it takes to be let in: tokens, certificates, JWTs, and the files that a server knows them by.

use std::{fs, path::PathBuf, process::Command};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{fencepost::BINARY, http::Client};

/// A folder with files about access.
pub struct Access {
    directory: TempDir,
}

impl Access {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// As a careful operator does: written beside it, then moved into its place.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let draft = self.path(&format!("{name}.draft"));
        fs::write(&draft, text).expect("a file");
        fs::rename(&draft, self.path(name)).expect("a file");
        self.path(name)
    }

    /// A new token for somebody, whose line is added to the file `tokens`.
    pub fn token(&self, identity: &str) -> String {
        let output = Command::new(BINARY).args(["token", identity]).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let line = String::from_utf8(output.stderr).expect("UTF-8");
        let before = fs::read_to_string(self.path("tokens")).unwrap_or_default();
        self.write("tokens", before + &line);
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    /// The token is good no more.
    pub fn revoke(&self, identity: &str) {
        let text = fs::read_to_string(self.path("tokens")).expect("the tokens");
        let start = format!("{identity}:");
        let rest: Vec<&str> = text.lines().filter(|line| !line.starts_with(&start)).collect();
        let rest = if rest.is_empty() { vec!["nobody"] } else { rest };
        self.write("tokens", rest.join("\n") + "\n");
    }
}

/// Signs certificates.
pub struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate and its key, as PEM.
    pub fn issue(&self, names: &[SanType]) -> (String, String) {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// Puts a server's certificate and what signs clients' into the folder: flags for `serve`.
    pub fn serve_flags(&self, access: &Access) -> [String; 4] {
        let (certificate, key) = self.issue(&[SanType::IpAddress([127, 0, 0, 1].into())]);
        access.write("ca.pem", self.pem());
        let certificate = access.write("server.pem", certificate);
        let key = access.write("server.key", key);
        ["--tls-cert".into(), certificate, "--tls-key".into(), key]
    }

    /// A client that trusts this authority, and presents a certificate of that name.
    pub fn client(&self, address: &str, names: &[SanType]) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let trusted = reqwest::Certificate::from_pem(self.pem().as_bytes()).expect("a certificate");
        Client::over_tls(address, |builder| {
            let builder = builder.tls_certs_only([trusted]);
            if names.is_empty() {
                return builder;
            }
            let (certificate, key) = self.issue(names);
            let pem = format!("{key}\n{certificate}");
            builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).expect("a pair"))
        })
    }
}

pub fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().expect("ASCII"))
}

pub fn host(text: &str) -> SanType {
    SanType::DnsName(text.try_into().expect("ASCII"))
}

/// Signs JWTs.
pub struct Issuer {
    pub kid: String,
    key: EcdsaKeyPair,
}

impl Issuer {
    pub const NAME: &str = "https://issuer.example";
    pub const AUDIENCE: &str = "fencepost";

    pub fn new(kid: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a key");
        Self { kid: kid.into(), key }
    }

    pub fn jwk(&self) -> Value {
        let point = self.key.public_key().as_ref();
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.kid,
            "x": BASE64_URL_SAFE_NO_PAD.encode(&point[1..33]),
            "y": BASE64_URL_SAFE_NO_PAD.encode(&point[33..]),
        })
    }

    pub fn jwks(&self) -> String {
        json!({ "keys": [self.jwk()] }).to_string()
    }

    /// What a good one says.
    pub fn claims(subject: &str) -> Value {
        json!({
            "iss": Self::NAME, "aud": [Self::AUDIENCE], "sub": subject,
            "exp": now() + 600, "nbf": now() - 5,
        })
    }

    pub fn token(&self, claims: &Value) -> String {
        self.signed(&json!({"alg": "ES256", "typ": "JWT", "kid": self.kid}), claims)
    }

    pub fn signed(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).expect("signed");
        format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

pub fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

pub fn flags(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// Where a file of that name would be.
pub fn beside(path: &str, name: &str) -> PathBuf {
    PathBuf::from(path).with_file_name(name)
}
