//! Tokens that prove something, and all the ways in which they do not.

use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;

use super::*;
use crate::config::Secret;

const NOW: f64 = 1_000_000.0;

fn config() -> TokenConfig {
    TokenConfig {
        secret: Some(Secret::new("a secret of thirty-two characters")),
        ..TokenConfig::default()
    }
}

fn part(json: &str) -> String {
    URL_SAFE_NO_PAD.encode(json)
}

fn signed(head: &str, claims: &str) -> String {
    let signed = format!("{}.{}", part(head), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"a secret of thirty-two characters");
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn hs256(claims: &str) -> String {
    signed(r#"{"alg":"HS256"}"#, claims)
}

#[test]
fn a_good_token_proves_its_claims() {
    let tokens = Tokens::new(&config()).unwrap();
    let token = hs256(r#"{"exp":1000001,"plan":"gold","roles":["a","b"],"level":3}"#);
    for _cached in [false, true] {
        let claims = tokens.verify(&token, NOW).unwrap();
        let fits = |name: &str, value: &str| {
            ClaimCondition::new((&name.to_owned(), &value.to_owned())).fits(&claims)
        };
        assert!(fits("plan", "gold") && fits("roles", "b") && fits("level", "3"));
        assert!(fits("plan", "*") && !fits("other", "*"));
        assert!(!fits("plan", "silver") && !fits("roles", "c"));
    }
}

#[test]
fn whatever_is_wrong_it_proves_nothing() {
    let tokens = Tokens::new(&config()).unwrap();
    let good = r#"{"exp":1000001}"#;
    let other_key = hs256(good).replace(&part(good), &part(r#"{"exp":1000001,"plan":"gold"}"#));
    let unsigned = format!("{}.{}.", part(r#"{"alg":"none"}"#), part(good));
    for (token, fault) in [
        (other_key.as_str(), TokenFault::Forged),
        (&unsigned, TokenFault::Forged),
        (&signed(r#"{"alg":"none"}"#, good), TokenFault::Forged),
        (&signed(r#"{"alg":"EdDSA"}"#, good), TokenFault::Forged),
        (
            &signed(r#"{"alg":"HS256","crit":["b64"]}"#, good),
            TokenFault::Forged,
        ),
        (&hs256(r#"{"exp":1000000}"#), TokenFault::Expired),
        (&hs256(r#"{"exp":"9999999"}"#), TokenFault::Expired),
        (&hs256("{}"), TokenFault::Expired),
        (
            &hs256(r#"{"exp":1000009,"nbf":1000001}"#),
            TokenFault::Expired,
        ),
        (&hs256("[]"), TokenFault::Malformed),
        (&format!("{}=", hs256(good)), TokenFault::Malformed),
        ("", TokenFault::Malformed),
        ("a.b", TokenFault::Malformed),
        ("..", TokenFault::Malformed),
    ] {
        assert_eq!(tokens.verify(token, NOW).unwrap_err(), fault, "{token}");
    }
}

#[test]
fn a_kept_token_still_expires() {
    let tokens = Tokens::new(&config()).unwrap();
    let token = hs256(r#"{"exp":1000001}"#);
    assert!(tokens.verify(&token, NOW).is_ok());
    let later = tokens.verify(&token, NOW + 1.0);
    assert_eq!(later.unwrap_err(), TokenFault::Expired);
}

#[test]
fn tokens_for_others_are_refused() {
    let tokens = Tokens::new(&TokenConfig {
        issuer: Some("login".to_owned()),
        audience: Some("shop".to_owned()),
        ..config()
    })
    .unwrap();
    let verify = |claims: &str| tokens.verify(&hs256(claims), NOW).map(drop);
    assert_eq!(
        verify(r#"{"exp":1e9,"iss":"login","aud":["shop","x"]}"#),
        Ok(())
    );
    assert_eq!(
        verify(r#"{"exp":1e9,"iss":"login","aud":"x"}"#),
        Err(TokenFault::Foreign)
    );
    assert_eq!(
        verify(r#"{"exp":1e9,"aud":"shop"}"#),
        Err(TokenFault::Foreign)
    );
}

/// Signs what it is given.
type Sign = dyn Fn(&[u8]) -> Vec<u8>;

/// A key pair, what verifies its tokens, and what signs them.
struct Issuer {
    tokens: Tokens,
    public_pem: String,
    head: &'static str,
    sign: Box<Sign>,
}

impl Issuer {
    fn ed25519() -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a pair");
        let signer = Ed25519KeyPair::from_pkcs8(&pair.serialize_der()).expect("its own form");
        Self {
            tokens: by_public_key(&pair.public_key_pem()),
            public_pem: pair.public_key_pem(),
            head: r#"{"alg":"EdDSA"}"#,
            sign: Box::new(move |bytes| signer.sign(bytes).as_ref().to_vec()),
        }
    }

    fn p256() -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a pair");
        let random = SystemRandom::new();
        let der = pair.serialize_der();
        let signer = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random);
        let signer = signer.expect("its own form");
        Self {
            tokens: by_public_key(&pair.public_key_pem()),
            public_pem: pair.public_key_pem(),
            head: r#"{"alg":"ES256"}"#,
            sign: Box::new(move |bytes| {
                let signature = signer.sign(&random, bytes).expect("randomness");
                signature.as_ref().to_vec()
            }),
        }
    }

    fn token(&self) -> String {
        sealed(self.head, r#"{"exp":1e9}"#, &self.sign)
    }
}

fn by_public_key(pem: &str) -> Tokens {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("key.pem");
    std::fs::write(&path, pem).expect("a file");
    let config = TokenConfig {
        public_key: Some(path),
        ..TokenConfig::default()
    };
    Tokens::new(&config).expect("a public key")
}

fn sealed(head: &str, claims: &str, sign: &Sign) -> String {
    let body = format!("{}.{}", part(head), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(body.as_bytes()));
    format!("{body}.{signature}")
}

/// Tokens that need no private key: whatever everybody knows serves as the secret of an HMAC, or
/// there is no signature at all.
fn forgeries(public_pem: &str, stolen: &str) -> Vec<String> {
    let hmac_by = |secret: &[u8]| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let sign = move |bytes: &[u8]| hmac::sign(&key, bytes).as_ref().to_vec();
        sealed(r#"{"alg":"HS256"}"#, r#"{"exp":1e9}"#, &sign)
    };
    let der = SubjectPublicKeyInfoDer::from_pem_slice(public_pem.as_bytes()).expect("a key");
    let (_, signature) = stolen.rsplit_once('.').expect("a token");
    let body = |head: &str| format!("{}.{}", part(head), part(r#"{"exp":1e9}"#));
    vec![
        hmac_by(public_pem.as_bytes()),
        hmac_by(&der),
        format!("{}.", body(r#"{"alg":"none"}"#)),
        format!("{}.{signature}", body(r#"{"alg":"none"}"#)),
        format!("{}.{signature}", body(r#"{"alg":"HS256"}"#)),
    ]
}

#[test]
fn the_kind_of_the_public_key_decides_the_algorithm() {
    for issuer in [Issuer::ed25519(), Issuer::p256()] {
        let token = issuer.token();
        assert!(issuer.tokens.verify(&token, NOW).is_ok(), "{}", issuer.head);
        for forged in forgeries(&issuer.public_pem, &token) {
            let fault = issuer.tokens.verify(&forged, NOW).unwrap_err();
            assert_eq!(fault, TokenFault::Forged, "{forged}");
        }
    }
}

#[test]
fn another_key_of_the_same_kind_proves_nothing() {
    for issuer in [Issuer::ed25519, Issuer::p256] {
        let (ours, theirs) = (issuer(), issuer());
        let fault = ours.tokens.verify(&theirs.token(), NOW).unwrap_err();
        assert_eq!(fault, TokenFault::Forged, "{}", ours.head);
    }
}

#[test]
fn a_key_of_another_kind_proves_nothing() {
    let (ours, theirs) = (Issuer::p256(), Issuer::ed25519());
    for head in [ours.head, theirs.head] {
        let token = sealed(head, r#"{"exp":1e9}"#, &theirs.sign);
        let fault = ours.tokens.verify(&token, NOW).unwrap_err();
        assert_eq!(fault, TokenFault::Forged, "{head}");
    }
}

/// Signed with `openssl dgst -sha256 -sign`; the private keys were thrown away.
#[test]
fn rsa_tokens_of_others_are_verified() {
    const TOKEN: &str = include_str!("testdata/rs256.jwt");
    const KEY: &str = include_str!("testdata/rsa.pub.pem");
    const OTHER_KEY: &str = include_str!("testdata/other-rsa.pub.pem");
    let token = TOKEN.trim_ascii();
    let tokens = by_public_key(KEY);
    let claims = tokens.verify(token, NOW).unwrap();
    assert_eq!(claims["plan"], "gold");
    let fault = by_public_key(OTHER_KEY).verify(token, NOW).unwrap_err();
    assert_eq!(fault, TokenFault::Forged);
    let (body, signature) = token.rsplit_once('.').unwrap();
    let (head, _) = body.split_once('.').unwrap();
    let altered = format!("{head}.{}.{signature}", part(r#"{"exp":1e9,"plan":"x"}"#));
    assert_eq!(
        tokens.verify(&altered, NOW).unwrap_err(),
        TokenFault::Forged
    );
    for forged in forgeries(KEY, token) {
        assert_eq!(tokens.verify(&forged, NOW).unwrap_err(), TokenFault::Forged);
    }
}

#[test]
fn two_tokens_are_none_and_refusals_are_counted() {
    let tokens = Tokens::new(&config()).unwrap();
    let mut headers = Fields::new();
    assert!(tokens.claims_of(&headers).is_none());
    headers.insert(AUTHORIZATION, "Basic eDp5".parse().unwrap());
    assert!(tokens.claims_of(&headers).is_none());
    assert_eq!(tokens.refused().map(|(_, count)| count).sum::<u64>(), 0);
    let value = format!("Bearer {}", hs256(r#"{"exp":1e11}"#));
    headers.insert(AUTHORIZATION, value.parse().unwrap());
    assert!(tokens.claims_of(&headers).is_some());
    headers.append(AUTHORIZATION, value.parse().unwrap());
    assert!(tokens.claims_of(&headers).is_none());
    assert_eq!(tokens.refused().next(), Some(("malformed", 1)));
}
