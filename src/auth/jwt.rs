//! JWTs, as `OpenID` providers issue them and Kubernetes projects them into pods: signed by a key that
//! is published, for an audience, by an issuer. The identity is `sub`.

pub mod keys;
mod verify;

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;

pub use self::keys::{KeySet, Keys};
use super::Identity;

/// Signed with a key that only the issuer has. Those with a shared secret are not among them: what
/// can check such a token can also make one.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// How far clocks may be apart.
const LEEWAY_SECONDS: u64 = 30;

pub struct Jwt {
    pub issuer: String,
    pub audience: String,
    pub keys: Keys,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
}

impl Jwt {
    pub fn new(issuer: String, audience: String, keys: Keys) -> Self {
        verify::install();
        Self { issuer, audience, keys }
    }

    /// The error is for the log.
    pub async fn identity_of(&self, token: &str) -> Result<Identity, &'static str> {
        let header = decode_header(token).map_err(|_| "not a JWT")?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err("its algorithm is not one of those that are allowed");
        }
        if header.crit.is_some() {
            return Err("it has extensions that must be understood, and none is");
        }
        let key = self.keys.find(header.kid.as_deref(), header.alg).await;
        let key = key.ok_or("no published key is the one that it names")?;
        self.check(token, header.alg, &key)
    }

    fn check(
        &self,
        token: &str,
        algorithm: Algorithm,
        key: &DecodingKey,
    ) -> Result<Identity, &'static str> {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        let claims = decode::<Claims>(token, key, &validation)
            .map_err(|_| "its signature, times, issuer or audience are not good")?;
        Identity::checked(&claims.claims.sub).ok_or("its subject cannot be a name")
    }
}
