//! Signers of requests for tests: the three algorithms with keys made by OpenSSL, and tokens with whatever in them.
//!
//! The keys of `tests/vectors/keys` guard nothing.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use landfall::key::{Algorithm, PublicKey};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A key pair of each algorithm: PEM of the private and of the public key.
pub(crate) const KEYS: [(Algorithm, &str, &str); 3] = [
    (
        Algorithm::EdDsa,
        include_str!("../../vectors/keys/ed25519.pem"),
        include_str!("../../vectors/keys/ed25519.pub.pem"),
    ),
    (Algorithm::Es256, include_str!("../../vectors/keys/p256.pem"), include_str!("../../vectors/keys/p256.pub.pem")),
    (
        Algorithm::Rs256,
        include_str!("../../vectors/keys/rsa2048.pem"),
        include_str!("../../vectors/keys/rsa2048.pub.pem"),
    ),
];

pub(crate) enum Signer {
    EdDsa(Ed25519KeyPair),
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

impl Signer {
    pub(crate) fn of(algorithm: Algorithm) -> Self {
        let (_, private, _) = KEYS.into_iter().find(|(of, ..)| *of == algorithm).unwrap();
        let der = PrivatePkcs8KeyDer::from_pem_slice(private.as_bytes()).unwrap();
        let der = der.secret_pkcs8_der();
        match algorithm {
            Algorithm::EdDsa => Signer::EdDsa(Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).unwrap()),
            Algorithm::Es256 => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new());
                Signer::Es256(pair.unwrap())
            }
            Algorithm::Rs256 => Signer::Rs256(RsaKeyPair::from_pkcs8(der).unwrap()),
        }
    }

    /// Another key of the same form as Ed25519's.
    pub(crate) fn stranger() -> Self {
        Signer::EdDsa(Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap())
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            Signer::EdDsa(_) => Algorithm::EdDsa,
            Signer::Es256(_) => Algorithm::Es256,
            Signer::Rs256(_) => Algorithm::Rs256,
        }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Signer::EdDsa(pair) => pair.sign(message).as_ref().to_vec(),
            Signer::Es256(pair) => pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            Signer::Rs256(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// A token with this text as header and this text as claims.
    pub(crate) fn token(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }

    /// A token as a client makes it.
    pub(crate) fn usual(&self, claims: &Value) -> String {
        self.token(&json!({ "alg": self.algorithm().name(), "typ": "JWT" }).to_string(), &claims.to_string())
    }
}

/// The public key of an algorithm's pair.
pub(crate) fn public_key(algorithm: Algorithm) -> PublicKey {
    let (.., public) = KEYS.into_iter().find(|(of, ..)| *of == algorithm).unwrap();
    PublicKey::from_pem(public).unwrap()
}

/// The claims for a request at a time.
pub(crate) fn claims(key_id: &str, host: &str, request: (&str, &str, &[u8]), nonce: &str, secs: u64) -> Value {
    let (method, uri, body) = request;
    json!({
        "sub": key_id, "aud": host, "method": method, "uri": uri, "bodyHash": hex::encode(Sha256::digest(body)),
        "nonce": nonce, "iat": secs, "exp": secs + 60,
    })
}

pub(crate) fn encode(text: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(text)
}
