//! The signature of a request: a JWT in `X-Request-Signature`, bound to method, path, query, body, host and time.
//!
//! Promises: the algorithm is the paired key's, never the token's. There is one text per token: canonical base64, no
//! unknown or repeated members, whole numbers. What is signed is compared with what was sent, byte for byte. A good
//! token stays good until it expires, so the caller remembers its nonce. An ECDSA signature has a second form that is
//! good too, which is why the nonce is remembered and not the token. Pure: the time is an argument.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::key::PublicKey;
use crate::time::Timestamp;

/// How long a token may be valid, from `iat` to `exp`.
pub const LIFE_SECS_MAX: u64 = 60;
/// How far the signer's clock may be off.
pub const SKEW_SECS: u64 = 30;
const NONCE_CHARS_MIN: usize = 16;
const NONCE_CHARS_MAX: usize = 128;
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// How much longer than its token a nonce is kept, in case a clock is set back meanwhile. The store keeps it still
/// longer, for instances whose clocks differ.
const NONCE_MARGIN_SECS: u64 = 60;

/// A request as it was received.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    pub key_id: &'a str,
    /// The configured host of this environment, never the one that the request names.
    pub host: &'a str,
    pub method: &'a str,
    /// Path and query as sent.
    pub uri: &'a str,
    pub body: &'a [u8],
    pub now: Timestamp,
}

/// What must not be accepted again: a hash of key and nonce, and until when to remember it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce {
    pub hash: [u8; 32],
    pub expires: Timestamp,
}

/// Why a signature is refused. An error before the signature was verified shows nothing of the request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SignatureError {
    #[error("is not a JWT: expected three parts of base64url without padding")]
    Malformed,
    #[error(
        "has a header that is not accepted: expected alg, and at most typ \"JWT\" and kid with the id of the API key"
    )]
    Header,
    #[error("is signed by another algorithm than that of the paired public key")]
    Algorithm,
    #[error("is not signed by a public key that is paired and valid")]
    Signature,
    #[error(
        "has claims that are not accepted: expected sub, aud, method, uri, bodyHash, nonce and the whole numbers iat and exp, \
         each once, and no others"
    )]
    Claims,
    #[error("is not for this request: {0} differs")]
    Other(&'static str),
    #[error("needs a nonce of {NONCE_CHARS_MIN} to {NONCE_CHARS_MAX} visible ASCII characters")]
    Nonce,
    #[error("lives too long: exp is at most {LIFE_SECS_MAX} s after iat, and after it")]
    Life,
    #[error("is from the future: check the clock of the signer")]
    Future,
    #[error("is expired")]
    Expired,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    typ: Option<String>,
    kid: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Claims {
    sub: String,
    aud: String,
    method: String,
    uri: String,
    body_hash: String,
    nonce: String,
    iat: u64,
    exp: u64,
}

/// Checks that a text has the form of a token, before the whole body of its request has arrived.
///
/// # Errors
/// [`SignatureError::Malformed`].
pub fn check_form(token: &str) -> Result<(), SignatureError> {
    parts(token).map(drop)
}

/// Checks the token of a request against the paired keys that are valid now; returns the nonce to remember.
///
/// # Errors
/// See [`SignatureError`].
pub fn verify(token: &str, keys: &[PublicKey], request: &SignedRequest<'_>) -> Result<Nonce, SignatureError> {
    let (message, [header, claims, signature]) = parts(token)?;
    let header: Header = object(&header).ok_or(SignatureError::Header)?;
    let typ = header.typ.is_none_or(|typ| typ.eq_ignore_ascii_case("jwt"));
    if !typ || header.kid.is_some_and(|kid| kid != request.key_id) {
        return Err(SignatureError::Header);
    }
    let mut keys = keys.iter().filter(|key| key.algorithm().name() == header.alg).peekable();
    keys.peek().ok_or(SignatureError::Algorithm)?;
    if !keys.any(|key| key.verify(message.as_bytes(), &signature)) {
        return Err(SignatureError::Signature);
    }
    object::<Claims>(&claims).ok_or(SignatureError::Claims)?.check(request)
}

impl Claims {
    fn check(&self, request: &SignedRequest<'_>) -> Result<Nonce, SignatureError> {
        let body_hash = hex::encode(Sha256::digest(request.body));
        let bound = [
            ("sub", self.sub == request.key_id),
            ("aud", self.aud == request.host),
            ("method", self.method == request.method),
            ("uri", self.uri == request.uri),
            ("bodyHash", self.body_hash == body_hash),
        ];
        if let Some((claim, _)) = bound.into_iter().find(|(_, same)| !same) {
            return Err(SignatureError::Other(claim));
        }
        let visible = self.nonce.bytes().all(|byte| byte.is_ascii_graphic());
        if !visible || !(NONCE_CHARS_MIN..=NONCE_CHARS_MAX).contains(&self.nonce.len()) {
            return Err(SignatureError::Nonce);
        }
        let now = u64::try_from(request.now.0 / 1_000_000).unwrap_or(0);
        if !self.exp.checked_sub(self.iat).is_some_and(|life| (1..=LIFE_SECS_MAX).contains(&life)) {
            return Err(SignatureError::Life);
        }
        if self.iat > now + SKEW_SECS {
            return Err(SignatureError::Future);
        }
        // No overflow: exp is at most 60 above iat, which is not far in the future.
        if now >= self.exp + SKEW_SECS {
            return Err(SignatureError::Expired);
        }
        let expires = Timestamp::from_secs(self.exp + SKEW_SECS + NONCE_MARGIN_SECS);
        // Neither a key's id nor a nonce contains a blank.
        let hash = Sha256::digest(format!("{} {}", request.key_id, self.nonce)).into();
        Ok(Nonce { hash, expires })
    }
}

/// The signed text, as it is written; and header, claims and signature.
fn parts(token: &str) -> Result<(&str, [Vec<u8>; 3]), SignatureError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(SignatureError::Malformed);
    }
    let (message, signature) = token.rsplit_once('.').ok_or(SignatureError::Malformed)?;
    let (header, claims) = message.split_once('.').ok_or(SignatureError::Malformed)?;
    Ok((message, [decode(header)?, decode(claims)?, decode(signature)?]))
}

/// Decodes canonical base64 only: no padding, no bits after the last byte, nothing empty.
fn decode(part: &str) -> Result<Vec<u8>, SignatureError> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| SignatureError::Malformed)?;
    if bytes.is_empty() { Err(SignatureError::Malformed) } else { Ok(bytes) }
}

/// A JSON object with each member of `T` once. serde refuses a repeated one, but would take an array for an object.
fn object<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    bytes.starts_with(b"{").then(|| serde_json::from_slice(bytes).ok())?
}
