//! What a client asks for: one [`Write`], as the parser understood it.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::token::{Key, Seq, Token, Version};

/// One write, delete or claim, with everything the fence needs to judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Key,
    pub token: Token,
    pub seq: Option<Seq>,
    /// The key whose mark guards this write as well; `None` where that is the written key itself.
    pub scope: Option<Key>,
    pub rule: Rule,
    pub precondition: Option<Precondition>,
    pub change: Change,
}

/// Whether a token that equals the mark, with no seq to order it, may write again.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    clap::ValueEnum,
    serde::Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Yes: the same holder may go on writing.
    #[default]
    AtLeast,
    /// No: one write per token.
    Above,
}

/// What must be true of the value, looked at only after the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// `If-Match: "<version>"`
    Version(Version),
    /// `If-None-Match: *`
    Absent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(Value),
    Delete,
    /// Raises the mark and leaves the value as it is.
    Claim,
}

/// A resource's bytes, and what the client said they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub body: Bytes,
    pub content_type: String,
}

/// The fingerprint of a change. A repeated (token, seq) with the same digest is a replay.
pub type Digest = [u8; 32];

impl Write {
    /// A claim: the mark rises, the value stays.
    pub fn claim(key: Key, token: Token) -> Self {
        Self {
            key,
            token,
            seq: None,
            scope: None,
            rule: Rule::default(),
            precondition: None,
            change: Change::Claim,
        }
    }

    /// The fingerprint to keep for recognising a replay: only ordered writes can be replayed.
    pub fn digest(&self) -> Option<Digest> {
        self.seq.map(|_| self.change.digest())
    }
}

impl Change {
    fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        match self {
            Self::Put(value) => {
                // The length keeps a content type from running into the body.
                hash.update(b"put");
                hash.update((value.content_type.len() as u64).to_be_bytes());
                hash.update(&value.content_type);
                hash.update(&value.body);
            }
            Self::Delete => hash.update(b"delete"),
            Self::Claim => hash.update(b"claim"),
        }
        hash.finalize().into()
    }
}
