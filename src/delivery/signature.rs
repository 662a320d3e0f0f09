//! Standard Webhooks: the headers that prove to a receiver who sent an event.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::webhook::signing_key_bytes;

/// `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
///
/// # Errors
/// A key that is none.
pub fn sign(key: &str, id: &str, timestamp_secs: i64, body: &str) -> Result<String, base64::DecodeError> {
    let key = signing_key_bytes(key)?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length");
    for part in [id, ".", &timestamp_secs.to_string(), ".", body] {
        mac.update(part.as_bytes());
    }
    Ok(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_is_signed_as_it_says() {
        // The example of the Standard Webhooks reference libraries.
        let signature = sign(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            "{\"test\": 2432232314}",
        );
        assert_eq!(signature.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
