//! Standard Webhooks: the keys of a webhook, and the signatures that prove to a receiver who sent an event.
//!
//! The signing keys of a webhook are one text, separated by spaces. `whsec_` and 32 bytes are for `v1` (HMAC-SHA256).
//! `whsk_` and a seed of 32 bytes are for `v1a` (Ed25519), whose public half is `whpk_`. Each key makes one signature,
//! in the order of the text. A key that cannot be read is an error and never left out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::Sha256;
use subtle::ConstantTimeEq;

const SYMMETRIC: &str = "whsec_";
const PRIVATE: &str = "whsk_";
const PUBLIC: &str = "whpk_";

/// A text that is no key. The error does not name it: it would be in logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed signing key: expected whsec_ and base64 of its bytes, or whsk_ and base64 of 32 bytes")]
pub struct KeyError;

/// A key for `v1` from random bytes.
pub fn signing_key(random: [u8; 32]) -> String {
    format!("{SYMMETRIC}{}", STANDARD.encode(random))
}

/// A key for `v1a` from random bytes.
pub fn ed25519_key(random: [u8; 32]) -> String {
    format!("{PRIVATE}{}", STANDARD.encode(random))
}

/// Of a webhook's keys, the one that its receiver gets.
pub fn symmetric_key(keys: &str) -> &str {
    keys.split(' ').find(|key| !key.starts_with(PRIVATE)).unwrap_or_default()
}

/// The public half of a webhook's `v1a` key, if it has one.
pub fn verification_key(keys: &str) -> Option<String> {
    let pair = keys.split(' ').find_map(|key| key.strip_prefix(PRIVATE)).map(pair)?.ok()?;
    Some(format!("{PUBLIC}{}", STANDARD.encode(pair.public_key())))
}

/// The value of `webhook-signature`: for each key `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, or
/// `v1a,` and that of Ed25519.
///
/// # Errors
/// A text that is no key.
pub fn sign(keys: &str, id: &str, timestamp_secs: i64, body: &str) -> Result<String, KeyError> {
    let signed = signed(id, timestamp_secs, body);
    let signatures = keys.split(' ').map(|key| match key.strip_prefix(PRIVATE) {
        Some(seed) => Ok(format!("v1a,{}", STANDARD.encode(pair(seed)?.sign(signed.as_bytes())))),
        None => Ok(format!("v1,{}", STANDARD.encode(mac(key, &signed)?.finalize().into_bytes()))),
    });
    Ok(signatures.collect::<Result<Vec<_>, KeyError>>()?.join(" "))
}

/// Whether one of the signatures of `header` is by `key`: `whsec_` for `v1`, or `whpk_` for `v1a`.
pub fn is_signed(key: &str, id: &str, timestamp_secs: i64, body: &str, header: &str) -> bool {
    let signed = signed(id, timestamp_secs, body);
    let by_key = |given: &str| match (key.strip_prefix(PUBLIC), given.split_once(',')) {
        (Some(public), Some(("v1a", signature))) => {
            let (Ok(public), Ok(signature)) = (STANDARD.decode(public), STANDARD.decode(signature)) else {
                return false;
            };
            UnparsedPublicKey::new(&ED25519, public).verify(signed.as_bytes(), &signature).is_ok()
        }
        (None, Some(("v1", signature))) => {
            let Ok(mac) = mac(key, &signed) else { return false };
            let expected = STANDARD.encode(mac.finalize().into_bytes());
            expected.as_bytes().ct_eq(signature.as_bytes()).into()
        }
        (Some(_) | None, Some(_) | None) => false,
    };
    header.split(' ').any(by_key)
}

fn signed(id: &str, timestamp_secs: i64, body: &str) -> String {
    format!("{id}.{timestamp_secs}.{body}")
}

fn mac(key: &str, signed: &str) -> Result<Hmac<Sha256>, KeyError> {
    let bytes = STANDARD.decode(key.strip_prefix(SYMMETRIC).unwrap_or(key)).map_err(|_| KeyError)?;
    if bytes.is_empty() {
        return Err(KeyError);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(&bytes).expect("HMAC takes keys of any length");
    mac.update(signed.as_bytes());
    Ok(mac)
}

fn pair(seed: &str) -> Result<Ed25519KeyPair, KeyError> {
    let seed = STANDARD.decode(seed).map_err(|_| KeyError)?;
    Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_is_signed_as_it_says() {
        // The example of the Standard Webhooks reference libraries.
        let (key, id, at, body) = (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            "{\"test\": 2432232314}",
        );
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(sign(key, id, at, body).unwrap(), signature);
        assert!(is_signed(key, id, at, body, &format!("v1,bm90IGl0 {signature}")));
        assert!(!is_signed(key, id, at + 1, body, signature));
        assert!(!is_signed(key, id, at, body, &signature.replace("v1,", "v2,")));
    }

    #[test]
    fn ed25519_signs_as_rfc_8032_says_and_the_public_half_verifies() {
        // RFC 8032, 7.1, test 1: the seed and its public key.
        let seed = hex::decode("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60").unwrap();
        let public = hex::decode("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a").unwrap();
        let private = ed25519_key(seed.try_into().unwrap());
        let public = format!("whpk_{}", STANDARD.encode(public));
        assert_eq!(verification_key(&format!("whsec_AAAA {private}")), Some(public.clone()));
        let header = sign(&private, "id", 7, "body").unwrap();
        assert!(header.starts_with("v1a,"), "{header}");
        assert!(is_signed(&public, "id", 7, "body", &header));
        assert!(!is_signed(&public, "id", 7, "another", &header));
        assert!(!is_signed(&public, "id", 7, "body", "v1a,AAAA"));
    }

    #[test]
    fn each_key_makes_a_signature_and_none_is_left_out() {
        let (new, old, private) = (signing_key([1; 32]), signing_key([2; 32]), ed25519_key([3; 32]));
        let header = sign(&format!("{new} {private} {old}"), "id", 7, "body").unwrap();
        let kinds: Vec<&str> = header.split(' ').map(|signature| signature.split(',').next().unwrap()).collect();
        assert_eq!(kinds, ["v1", "v1a", "v1"]);
        assert!(is_signed(&new, "id", 7, "body", &header) && is_signed(&old, "id", 7, "body", &header));
        assert_eq!(symmetric_key(&format!("{new} {private}")), new);
        for broken in [format!("{new} "), format!("{new} whsk_AAAA"), format!("{new}! {old}"), String::new()] {
            assert_eq!(sign(&broken, "id", 7, "body"), Err(KeyError), "{broken}");
        }
        assert!(!is_signed("", "id", 7, "body", &header));
    }
}
