//! Public keys that sign requests: Ed25519, P-256, and RSA from 2048 bits on, as PEM of a SubjectPublicKeyInfo.
//!
//! Promises: the algorithm is the key's own, whatever a token names. A bad key is refused when it is paired, not when
//! it is first needed: one that is no point of its curve, too short, of small order, not canonical, or followed by
//! other bytes. Signatures are checked by `ring`, which TLS needs anyway. Nothing here makes one.

use curve25519_dalek::edwards::CompressedEdwardsY;
use landfall_chain::U256;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest, Sha256};

/// The bytes before the 32 bytes of an Ed25519 key (RFC 8410, 4).
const ED25519_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The bytes before the uncompressed point of a P-256 key (RFC 5480, 2).
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The AlgorithmIdentifier `rsaEncryption` with its NULL (RFC 3279, 2.3.1).
const RSA_ALGORITHM: [u8; 15] =
    [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const RSA_BITS_MIN: usize = 2048;
const RSA_BITS_MAX: usize = 8192;
/// The tags of DER.
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;
/// The prime of P-256 and its constant b (FIPS 186-4, D.1.2.3), lowest limb first.
const P256_PRIME: U256 = U256::from_limbs([u64::MAX, 0x0000_0000_ffff_ffff, 0, 0xffff_ffff_0000_0001]);
const P256_B: U256 =
    U256::from_limbs([0x3bce_3c3e_27d2_604b, 0x651d_06b0_cc53_b0f6, 0xb3eb_bd55_7698_86bc, 0x5ac6_35d8_aa3a_93e7]);

/// How a public key signs, as JWT names it (RFC 7518, 3.1; RFC 8037, 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    EdDsa,
    Es256,
    Rs256,
}

/// A key that was checked to be well-formed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey {
    algorithm: Algorithm,
    spki: Vec<u8>,
}

/// Why a text is no public key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PublicKeyError {
    #[error("this is a private key; keep it to yourself, and pair its public key")]
    Private,
    #[error("expected one PEM section BEGIN PUBLIC KEY")]
    Pem,
    #[error("expected an Ed25519, a P-256 (uncompressed) or an RSA public key")]
    Unknown,
    #[error("an RSA key needs {RSA_BITS_MIN} to {RSA_BITS_MAX} bits; this one has {0}")]
    RsaBits(usize),
    #[error("the key is not a point of its curve")]
    NotOnCurve,
    #[error("the key is of small order: anybody could sign with it")]
    SmallOrder,
    #[error("the key is not in its canonical form")]
    NotCanonical,
}

impl Algorithm {
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::EdDsa => "EdDSA",
            Algorithm::Es256 => "ES256",
            Algorithm::Rs256 => "RS256",
        }
    }
}

impl PublicKey {
    /// Reads the one public key of a PEM text.
    ///
    /// # Errors
    /// See [`PublicKeyError`].
    pub fn from_pem(text: &str) -> Result<Self, PublicKeyError> {
        if text.contains("PRIVATE KEY-----") {
            return Err(PublicKeyError::Private);
        }
        if text.matches("-----BEGIN ").count() != 1 {
            return Err(PublicKeyError::Pem);
        }
        let spki = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()).map_err(|_| PublicKeyError::Pem)?;
        PublicKey::from_spki(spki.to_vec())
    }

    /// The key of a SubjectPublicKeyInfo in DER.
    ///
    /// # Errors
    /// See [`PublicKeyError`].
    pub fn from_spki(spki: Vec<u8>) -> Result<Self, PublicKeyError> {
        let algorithm = if let Some(key) = spki.strip_prefix(&ED25519_PREFIX) {
            check_ed25519(key)?;
            Algorithm::EdDsa
        } else if let Some(point) = spki.strip_prefix(&P256_PREFIX) {
            check_p256(point)?;
            Algorithm::Es256
        } else {
            check_rsa(rsa_key(&spki).ok_or(PublicKeyError::Unknown)?)?;
            Algorithm::Rs256
        };
        Ok(PublicKey { algorithm, spki })
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// As it is stored.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// SHA-256 of the SubjectPublicKeyInfo, as `openssl pkey -pubin -outform DER | sha256sum` prints it.
    pub fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(&self.spki))
    }

    /// Whether `signature` is this key's over `message`.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let (algorithm, key): (&dyn VerificationAlgorithm, &[u8]) = match self.algorithm {
            Algorithm::EdDsa => (&ED25519, &self.spki[ED25519_PREFIX.len()..]),
            Algorithm::Es256 => (&ECDSA_P256_SHA256_FIXED, &self.spki[P256_PREFIX.len()..]),
            Algorithm::Rs256 => (&RSA_PKCS1_2048_8192_SHA256, rsa_key(&self.spki).unwrap_or_default()),
        };
        UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
    }
}

/// Checks that the point is in its only canonical form (RFC 8032, 5.1.3) and not of small order; `ring` accepts any.
fn check_ed25519(key: &[u8]) -> Result<(), PublicKeyError> {
    let key = CompressedEdwardsY(key.try_into().map_err(|_| PublicKeyError::Unknown)?);
    let point = key.decompress().ok_or(PublicKeyError::NotOnCurve)?;
    if point.is_small_order() {
        return Err(PublicKeyError::SmallOrder);
    }
    if point.compress() == key { Ok(()) } else { Err(PublicKeyError::NotCanonical) }
}

/// An uncompressed point (SEC 1, 2.3.3) with y^2 = x^3 - 3x + b.
fn check_p256(point: &[u8]) -> Result<(), PublicKeyError> {
    let coordinates = point.strip_prefix(&[0x04]).filter(|rest| rest.len() == 64).ok_or(PublicKeyError::Unknown)?;
    let (x, y) = coordinates.split_at(32);
    let (x, y) = (U256::from_be_slice(x), U256::from_be_slice(y));
    if x >= P256_PRIME || y >= P256_PRIME {
        return Err(PublicKeyError::NotOnCurve);
    }
    let prime = P256_PRIME;
    let x_squared_less_3 = x.mul_mod(x, prime).add_mod(prime - U256::from(3), prime);
    let right = x_squared_less_3.mul_mod(x, prime).add_mod(P256_B, prime);
    if y.mul_mod(y, prime) == right { Ok(()) } else { Err(PublicKeyError::NotOnCurve) }
}

/// The RSAPublicKey (RFC 8017, A.1.1) in a SubjectPublicKeyInfo.
fn rsa_key(spki: &[u8]) -> Option<&[u8]> {
    let bits = only(BIT_STRING, only(SEQUENCE, spki)?.strip_prefix(&RSA_ALGORITHM)?)?;
    bits.strip_prefix(&[0])
}

/// `ring` checks more at each use. Here a key is refused that could never verify.
fn check_rsa(key: &[u8]) -> Result<(), PublicKeyError> {
    let numbers = only(SEQUENCE, key).and_then(|key| element(INTEGER, key));
    let (modulus, rest) = numbers.ok_or(PublicKeyError::Unknown)?;
    let exponent = only(INTEGER, rest).ok_or(PublicKeyError::Unknown)?;
    let is_odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
    if !is_odd(modulus) || !is_odd(exponent) || exponent == [1] || exponent.len() > 5 {
        return Err(PublicKeyError::Unknown);
    }
    match bits(modulus).ok_or(PublicKeyError::Unknown)? {
        RSA_BITS_MIN..=RSA_BITS_MAX => Ok(()),
        bits => Err(PublicKeyError::RsaBits(bits)),
    }
}

/// How long a positive INTEGER is; `None` for another one and for one that is not in its shortest form.
fn bits(integer: &[u8]) -> Option<usize> {
    let digits = match integer {
        [0, second, ..] if second & 0x80 != 0 => &integer[1..],
        [first, ..] if *first != 0 && first & 0x80 == 0 => integer,
        _ => return None,
    };
    let zeros = usize::try_from(digits.first()?.leading_zeros()).ok()?;
    Some(digits.len() * 8 - zeros)
}

/// The content, if these bytes are exactly one element.
fn only(tag: u8, bytes: &[u8]) -> Option<&[u8]> {
    element(tag, bytes).filter(|(_, rest)| rest.is_empty()).map(|(content, _)| content)
}

/// The content of the first element of DER, and what follows it. Lengths up to 65535, in their shortest form only.
fn element(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => {
            let (&length, rest) = rest.split_first()?;
            (usize::from(length).ge(&0x80).then_some(length.into())?, rest)
        }
        0x82 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            let length = usize::from(u16::from_be_bytes(*length));
            (length.ge(&0x100).then_some(length)?, rest)
        }
        _ => return None,
    };
    if found == tag { rest.split_at_checked(length) } else { None }
}
