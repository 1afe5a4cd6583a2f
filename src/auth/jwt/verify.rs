//! Signatures of JWTs, checked by the same library that does TLS.

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{ErrorKind, Result},
    signature::{Error, Verifier},
};
use ring::signature::{self as ring_signature, UnparsedPublicKey, VerificationAlgorithm};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| -> Result<Box<dyn JwtSigner>> {
        Err(ErrorKind::InvalidAlgorithm.into())
    },
    verifier_factory: |algorithm, key| {
        let scheme = Scheme::of(*algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
        let fits = matches!(
            (&scheme, key.kind()),
            (Scheme::Rsa(_), DecodingKeyKind::RsaModulusExponent { .. })
                | (Scheme::Other(_), DecodingKeyKind::SecretOrDer(_))
        );
        if !fits || key.family() != algorithm.family() {
            return Err(ErrorKind::InvalidKeyFormat.into());
        }
        Ok(Box::new(Checker { algorithm: *algorithm, scheme, key: key.clone() }))
    },
    key_utils: KeyUtils::new_unimplemented(),
};

/// Fails if it is already there, which is as good.
pub fn install() {
    let _ = PROVIDER.install_default();
}

enum Scheme {
    Rsa(&'static ring_signature::RsaParameters),
    Other(&'static dyn VerificationAlgorithm),
}

impl Scheme {
    fn of(algorithm: Algorithm) -> Option<Self> {
        Some(match algorithm {
            Algorithm::RS256 => Self::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Self::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Self::Rsa(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Self::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Self::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Self::Rsa(&ring_signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Self::Other(&ring_signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Self::Other(&ring_signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Self::Other(&ring_signature::ED25519),
            _ => return None,
        })
    }
}

struct Checker {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Checker {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let checked = match (&self.scheme, self.key.kind()) {
            (Scheme::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                ring_signature::RsaPublicKeyComponents { n, e }
                    .verify(parameters, message, signature)
            }
            (Scheme::Other(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(*algorithm, key).verify(message, signature)
            }
            _ => return Err(Error::new()),
        };
        checked.map_err(|_| Error::new())
    }
}

impl JwtVerifier for Checker {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
