//! Whatever the files hold that access depends on: they are understood, or the error names a line or a
//! rule, and shows nothing that might be a secret.

use proptest::prelude::*;

use super::{jwt::KeySet, policy::Policy, tokens::Tokens};

const SECRET: &str = "s3cret";

fn check_tokens(text: &[u8]) {
    match Tokens::parse(text) {
        Ok(tokens) => {
            let lines = String::from_utf8_lossy(text).lines().count();
            assert!(tokens.len() <= lines, "{text:?}");
        }
        Err(error) => {
            let says_where = error.starts_with("line ") || error == "it is not UTF-8";
            assert!(says_where && !error.contains(SECRET), "{text:?}: {error}");
        }
    }
}

fn check_policy(text: &[u8]) {
    if let Err(error) = Policy::parse(text) {
        let says_where = ["line ", "rule "].iter().any(|start| error.starts_with(start));
        assert!(says_where || error == "it is not UTF-8", "{text:?}: {error}");
    }
}

fn check_jwks(text: &[u8]) {
    match KeySet::parse(text) {
        Ok(keys) => assert!(!keys.is_empty(), "{text:?}"),
        Err(error) => {
            let says_where = error.starts_with("line ") || error.starts_with("there is no key");
            assert!(says_where && !error.contains(SECRET), "{text:?}: {error}");
        }
    }
}

fn each(corpus: &str, check: fn(&[u8])) {
    corpus.split("\n---\n").for_each(|text| check(text.as_bytes()));
}

#[test]
fn the_corpora() {
    each(include_str!("../../tests/corpus/tokens-files.txt"), check_tokens);
    each(include_str!("../../tests/corpus/policies.txt"), check_policy);
    each(include_str!("../../tests/corpus/jwks.txt"), check_jwks);
}

/// Pieces of what belongs into such a file, in any order, with some that do not.
fn made_of(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

const OF_TOKENS: &[&str] = &[
    "orders",
    ":",
    "\n",
    "# ",
    " ",
    "fp_s3cret",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
];

const OF_POLICIES: &[&str] = &[
    "[[rule]]\n",
    "identity = \"orders\"\n",
    "prefixes = [\"orders/\"]\n",
    "keys = [\"nightly\"]\n",
    "rights = [\"read\", \"write\"]\n",
    "rights = [\"root\"]\n",
    "identity = \"\"\n",
    "prefixes = [\"*\"]\n",
    "[rule]\n",
    "rule = 1\n",
];

const OF_JWKS: &[&str] = &[
    "{\"keys\":[",
    "]}",
    "{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\",\"kid\":\"a\"}",
    "{\"kty\":\"oct\",\"k\":\"s3cret\"}",
    "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}",
    "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AA\"}",
    "{\"kty\":\"s3cret\"}",
    "\"s3cret\"",
    ",",
    "\n",
];

proptest! {
    #[test]
    fn any_tokens(text in made_of(OF_TOKENS)) {
        check_tokens(&text);
    }

    #[test]
    fn any_policy(text in made_of(OF_POLICIES)) {
        check_policy(&text);
    }

    #[test]
    fn any_jwks(text in made_of(OF_JWKS)) {
        check_jwks(&text);
    }
}
