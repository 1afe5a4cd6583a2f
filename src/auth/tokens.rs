//! The tokens file: who may come with which bearer token. It holds digests, never tokens.
//!
//! A token is 256 bits from the system's random source, so there is nothing to guess, and one
//! round of SHA-256 protects it as well as a slow hash would. (A slow one is for passwords that
//! people choose; here it would only let strangers keep us busy.)

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use super::Identity;

pub type Digest = [u8; 32];

/// How a token begins: so that people, and tools that search for leaked secrets, know it.
const MARKER: &str = "fp_";

#[derive(Debug, Default)]
pub struct Tokens {
    /// By the first bytes of the digest, to find the few that a presented one is compared with.
    by_start: HashMap<[u8; 8], Vec<(Digest, Identity)>>,
}

impl Tokens {
    /// One `identity:digest` a line, the digest in 64 hex digits. Several lines may have the same
    /// identity: that is how a token is changed without a moment in which none is good.
    ///
    /// No line at all is more likely half of a file than what somebody means, and would lock everybody
    /// out. Who does mean it writes `nobody`.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
        let mut tokens = Self::default();
        let mut nobody = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // No part of the line is repeated: somebody may have put a token itself there.
            let wrong = |what: &str| format!("line {}: {what}", number + 1);
            if line == NOBODY {
                nobody = true;
                continue;
            }
            let (identity, digest) = line.rsplit_once(':').ok_or_else(|| wrong(FORM))?;
            let identity = Identity::checked(identity).ok_or_else(|| wrong(FORM))?;
            let digest = digest_in_hex(digest).ok_or_else(|| wrong(FORM))?;
            if tokens.identity_of(&digest).is_some() {
                return Err(wrong("this token is there twice"));
            }
            tokens.by_start.entry(start_of(&digest)).or_default().push((digest, identity));
        }
        match (nobody, tokens.is_empty()) {
            (false, true) => Err(EMPTY.into()),
            (true, false) => Err(format!("there are tokens beside `{NOBODY}`")),
            _ => Ok(tokens),
        }
    }

    pub fn len(&self) -> usize {
        self.by_start.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Whose token has this digest. How long that takes tells at most how a digest begins, from which
    /// nobody finds a token; the rest is compared in constant time.
    pub fn identity_of(&self, digest: &Digest) -> Option<&Identity> {
        let similar = self.by_start.get(&start_of(digest))?;
        let mut found = None;
        for (own, identity) in similar {
            if bool::from(own.ct_eq(digest)) {
                found = Some(identity);
            }
        }
        found
    }
}

/// A line by which a file says that it has no tokens on purpose.
const NOBODY: &str = "nobody";

const EMPTY: &str = "there is no token in it; if nobody is to have one, write the line `nobody`";

const FORM: &str = "write it as identity:digest, as `fencepost token` prints it";

pub fn digest_of(token: &[u8]) -> Digest {
    Sha256::digest(token).into()
}

/// A new token, and the line for the file.
pub fn mint(identity: &Identity) -> Result<(String, String), String> {
    let mut bytes = [0; 32];
    let random = ring::rand::SystemRandom::new();
    ring::rand::SecureRandom::fill(&random, &mut bytes)
        .map_err(|_| "the system has no random numbers to give")?;
    let token = format!("{MARKER}{}", hex(&bytes));
    let line = format!("{identity}:{}", hex(&digest_of(token.as_bytes())));
    Ok((token, line))
}

fn start_of(digest: &Digest) -> [u8; 8] {
    let mut start = [0; 8];
    start.copy_from_slice(&digest[..8]);
    start
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn digest_in_hex(text: &str) -> Option<Digest> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_digest() {
        let identity = Identity::new("system:serviceaccount:shop:orders");
        let (token, line) = mint(&identity).unwrap();
        let (second, another_line) = mint(&identity).unwrap();
        assert_ne!(token, second);
        let file = format!("# the shop\n\n  {line}\n{another_line}\r\n");
        let tokens = Tokens::parse(file.as_bytes()).unwrap();
        assert_eq!(tokens.len(), 2);
        for good in [&token, &second] {
            assert_eq!(tokens.identity_of(&digest_of(good.as_bytes())), Some(&identity));
        }
        for wrong in [&token[..token.len() - 1], "", &line, &format!("{token} ")] {
            assert_eq!(tokens.identity_of(&digest_of(wrong.as_bytes())), None, "{wrong}");
        }
        assert!(!file.contains(&token));
    }

    #[test]
    fn an_empty_file_is_refused_and_nobody_has_to_be_said() {
        for empty in ["", "\n \n", "# a comment\n"] {
            assert_eq!(Tokens::parse(empty.as_bytes()).unwrap_err(), EMPTY, "{empty:?}");
        }
        assert!(Tokens::parse(b"# closed\nnobody\n").unwrap().is_empty());
        let (_, line) = mint(&Identity::new("orders")).unwrap();
        assert!(Tokens::parse(format!("nobody\n{line}\n").as_bytes()).is_err());
    }

    #[test]
    fn a_line_that_is_no_digest_is_refused_without_being_shown() {
        let digest = "0".repeat(64);
        for line in [
            "orders",
            "orders:",
            &format!(":{digest}"),
            &format!("orders:{}", &digest[1..]),
            &format!("orders:{digest}0"),
            "orders:fp_s3cret",
            &format!("orders\t:{digest}"),
            &format!("a:{digest}\nb:{digest}"),
        ] {
            let error = Tokens::parse(line.as_bytes()).unwrap_err();
            assert!(error.starts_with("line "), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
