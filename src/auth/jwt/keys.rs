//! The keys that JWTs are signed with: published by the issuer, as a JWKS, in a file or at a URL.
//!
//! A URL is asked every few minutes, so that a key that was withdrawn is forgotten; and when a token
//! names a key that is not known, but not more often than every few seconds, whatever strangers
//! send. If it does not answer, the keys that are known stay.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{Jwk, JwkSet, PublicKeyUse},
};
use tokio::sync::{Mutex, RwLock};

use crate::{
    auth::watched::Watched,
    metrics::{AccessFile, Metrics},
};

const REFRESH_EVERY: Duration = Duration::from_mins(5);

/// Between two questions to the issuer.
const PAUSE: Duration = Duration::from_secs(10);

const PATIENCE: Duration = Duration::from_secs(5);

/// Nobody publishes more.
const MAX_BYTES: usize = 1 << 20;

#[derive(Clone)]
pub enum Keys {
    File(Watched<KeySet>),
    Url(Arc<Published>),
}

#[derive(Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

struct Key {
    id: Option<String>,
    /// Where the issuer says what the key is for.
    algorithm: Option<String>,
    decoding: DecodingKey,
}

/// Keys at a URL.
pub struct Published {
    url: reqwest::Url,
    client: reqwest::Client,
    /// A bearer token for asking, read anew each time: Kubernetes changes its own every hour.
    token_file: Option<PathBuf>,
    known: RwLock<Arc<KeySet>>,
    asked: Mutex<Option<Instant>>,
    metrics: Arc<Metrics>,
}

impl Keys {
    pub async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        match self {
            Self::File(file) => file.now().find(id, algorithm).cloned(),
            Self::Url(published) => published.find(id, algorithm).await,
        }
    }
}

impl KeySet {
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        // The error itself might repeat what is there: a secret, if it is the wrong file.
        let set: JwkSet = serde_json::from_slice(text)
            .map_err(|error| format!("line {}: not a JWKS", error.line().max(1)))?;
        let keys: Vec<Key> = set.keys.iter().filter_map(Key::of).collect();
        if keys.is_empty() {
            return Err("there is no key among them that can check a signature".into());
        }
        Ok(Self { keys })
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// A token that names no key can only mean the one there is.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&DecodingKey> {
        let key = match (id, &self.keys[..]) {
            (Some(_), keys) => keys.iter().find(|key| key.id.as_deref() == id)?,
            (None, [only]) => only,
            (None, _) => return None,
        };
        let name = format!("{algorithm:?}");
        let meant = key.algorithm.as_ref().is_none_or(|its| *its == name);
        (meant && key.decoding.family() == algorithm.family()).then_some(&key.decoding)
    }
}

impl Key {
    fn of(jwk: &Jwk) -> Option<Self> {
        let signs = !matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption));
        let decoding = DecodingKey::from_jwk(jwk).ok().filter(|_| signs)?;
        if decoding.family() == Algorithm::HS256.family() {
            return None;
        }
        let algorithm = jwk.common.key_algorithm.map(|algorithm| format!("{algorithm:?}"));
        Some(Self { id: jwk.common.key_id.clone(), algorithm, decoding })
    }
}

impl Published {
    pub fn new(
        url: reqwest::Url,
        client: reqwest::ClientBuilder,
        token_file: Option<PathBuf>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, String> {
        let client = client
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| format!("cannot ask for the keys of JWTs: {error}"))?;
        let (known, asked) = (RwLock::default(), Mutex::default());
        Ok(Self { url, client, token_file, known, asked, metrics })
    }

    /// Until the process ends.
    pub async fn keep(self: Arc<Self>) {
        loop {
            let known = !self.known.read().await.is_empty();
            if known {
                tokio::time::sleep(REFRESH_EVERY).await;
            }
            self.refresh().await;
            if self.known.read().await.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let known = async || self.known.read().await.find(id, algorithm).cloned();
        if let Some(key) = known().await {
            return Some(key);
        }
        self.refresh().await;
        known().await
    }

    /// Unless somebody has asked just now. Whoever comes meanwhile waits for the answer.
    async fn refresh(&self) {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|asked| asked.elapsed() < PAUSE) {
            return;
        }
        *asked = Some(Instant::now());
        let fetched = self.fetch().await;
        self.metrics.access.file_refused[AccessFile::Jwks].set(fetched.is_err().into());
        match fetched {
            Ok(keys) => {
                *self.known.write().await = Arc::new(keys);
                self.metrics.access.reloads[AccessFile::Jwks].inc();
            }
            Err(error) => tracing::error!(
                %error, url = %self.url,
                "the keys of JWTs could not be had; those that are known stay in force"
            ),
        }
        // Counted from the end, or a slow answer would be asked for again at once.
        *asked = Some(Instant::now());
    }

    async fn fetch(&self) -> Result<KeySet, String> {
        let mut request = self.client.get(self.url.clone());
        if let Some(file) = &self.token_file {
            let told = |error: std::io::Error| format!("{}: {error}", file.display());
            request = request.bearer_auth(std::fs::read_to_string(file).map_err(told)?.trim());
        }
        let mut answer = request
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(|error| error.without_url().to_string())?;
        let mut text = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| error.to_string())? {
            text.extend_from_slice(&part);
            if text.len() > MAX_BYTES {
                return Err("the answer is too long".into());
            }
        }
        KeySet::parse(&text)
    }
}
