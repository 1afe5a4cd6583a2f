//! Who asks: the one place where credentials are looked at.
//!
//! Each configured way proves an identity by itself. But what is presented must be good: a wrong
//! bearer token is refused even where the certificate would have done, since whoever sent it means
//! to be somebody else. Where both are good, the bearer token says who asks.
//!
//! What is wrong with a credential is told to nobody but the log, and there only at `debug`.

use std::sync::Arc;

use super::{
    Identity,
    identity::{Proof, Way},
    jwt::Jwt,
    policy::{Policy, Right},
    tokens::{self, Digest, Tokens},
    watched::Watched,
};

/// Longer ones are refused unread. A projected token of Kubernetes has about 1200 bytes.
const MAX_BEARER_BYTES: usize = 16 << 10;

/// What is asked of those who come in, and what they may do inside.
pub struct Gate {
    pub tokens: Option<Watched<Tokens>>,
    pub jwt: Option<Jwt>,
    /// Whether a client's certificate proves who it is.
    pub certificates: bool,
    /// Without one, whoever is known may do everything but what is for operators.
    pub policy: Option<Watched<Policy>>,
}

/// An identity, and by what it was proved.
#[derive(Clone, Debug)]
pub struct Proven {
    pub proof: Proof,
    /// Of the bearer token, if it was one from the file.
    token: Option<Digest>,
}

impl Proven {
    fn new(identity: Identity, way: Way, token: Option<Digest>) -> Self {
        Self { proof: Proof { identity, way }, token }
    }

    pub fn identity(&self) -> &Identity {
        &self.proof.identity
    }
}

/// Who a connection's certificate says is at its other end. Goes with each of its requests.
#[derive(Clone, Debug)]
pub struct Certified(pub Identity);

#[derive(Debug, thiserror::Error)]
#[error("not proved who it is")]
pub struct Unauthenticated;

impl Gate {
    /// `authorization`: every value of that header.
    pub async fn admit<'a>(
        &self,
        mut authorization: impl Iterator<Item = &'a [u8]> + Send,
        certified: Option<&Certified>,
    ) -> Result<Proven, Unauthenticated> {
        match (authorization.next(), authorization.next()) {
            (None, _) => {
                let certified = certified.filter(|_| self.certificates).ok_or(Unauthenticated)?;
                Ok(Proven::new(certified.0.clone(), Way::Certificate, None))
            }
            (Some(value), None) => self.bearer(bearer_in(value).ok_or(Unauthenticated)?).await,
            // Somebody on the way may have looked at the other one.
            (Some(_), Some(_)) => Err(Unauthenticated),
        }
    }

    async fn bearer(&self, bearer: &str) -> Result<Proven, Unauthenticated> {
        if let Some(tokens) = &self.tokens {
            let digest = tokens::digest_of(bearer.as_bytes());
            if let Some(identity) = tokens.now().identity_of(&digest) {
                return Ok(Proven::new(identity.clone(), Way::Token, Some(digest)));
            }
        }
        let jwt = self.jwt.as_ref().ok_or(Unauthenticated)?;
        match jwt.identity_of(bearer).await {
            Ok(identity) => Ok(Proven::new(identity, Way::Jwt, None)),
            Err(reason) => {
                tracing::debug!(reason, "a JWT was refused");
                Err(Unauthenticated)
            }
        }
    }

    /// Whether the proof would still do. A token that was taken out of the file does not.
    pub fn still_knows(&self, proven: &Proven) -> bool {
        match (&proven.token, &self.tokens) {
            (Some(digest), Some(tokens)) => {
                tokens.now().identity_of(digest) == Some(proven.identity())
            }
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// Whether there is any key on which they have this right.
    pub fn allows_some(&self, who: &Proof, right: Right) -> bool {
        self.judge(right, |policy| policy.allows_some(who, right))
    }

    pub fn allows_key(&self, who: &Proof, right: Right, key: &str) -> bool {
        self.judge(right, |policy| policy.allows_key(who, right, key))
    }

    pub fn allows_prefix(&self, who: &Proof, right: Right, prefix: &str) -> bool {
        self.judge(right, |policy| policy.allows_prefix(who, right, prefix))
    }

    fn judge(&self, right: Right, allows: impl FnOnce(&Policy) -> bool) -> bool {
        match &self.policy {
            Some(policy) => allows(&policy.now()),
            None => right != Right::Admin,
        }
    }

    /// Returns when somebody may have lost a right.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut tokens = self.tokens.as_ref().map(Watched::from_now_on);
        let mut policy = self.policy.as_ref().map(Watched::from_now_on);
        async move {
            tokio::select! {
                () = changed(tokens.as_mut()) => {}
                () = changed(policy.as_mut()) => {}
            }
        }
    }
}

async fn changed<T>(watched: Option<&mut Watched<T>>) {
    match watched {
        Some(watched) => watched.changed().await,
        None => std::future::pending().await,
    }
}

/// `Bearer`, in any case, one space, and then nothing but the characters that a token may have.
fn bearer_in(value: &[u8]) -> Option<&str> {
    let value = std::str::from_utf8(value).ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let fits = (1..=MAX_BEARER_BYTES).contains(&token.len());
    let plain =
        token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
    (scheme.eq_ignore_ascii_case("bearer") && fits && plain).then_some(token)
}

/// Shared by all who ask.
pub type SharedGate = Option<Arc<Gate>>;

#[cfg(test)]
mod tests {
    use super::bearer_in;

    #[test]
    fn a_bearer_token_and_nothing_else() {
        assert_eq!(bearer_in(b"Bearer fp_0a"), Some("fp_0a"));
        assert_eq!(bearer_in(b"bEARER a.b-c_d~e+f/g="), Some("a.b-c_d~e+f/g="));
        for wrong in [
            &b""[..],
            b"Bearer",
            b"Bearer ",
            b"Bearer  a",
            b"Bearer a b",
            b"Bearer a,Bearer b",
            b"Basic YTpi",
            b"fp_0a",
            b"Bearer\ta",
            b"Bearer \xff",
            "Bearer ä".as_bytes(),
        ] {
            assert_eq!(bearer_in(wrong), None, "{:?}", String::from_utf8_lossy(wrong));
        }
    }
}
