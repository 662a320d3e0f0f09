//! Webhooks: where they may lead, the keys that sign for one, and how.
//!
//! Pure: names are resolved by `resolver`, connections are made by `delivery`, randomness is an argument. The map:
//! `url` and `address` guard our internal network; `signature` has keys, signs and verifies.

mod address;
mod signature;
mod url;

use std::time::Duration;

pub use address::{AllowedNetworks, Cidr, CidrError, is_public};
pub use signature::{KeyError, ed25519_key, is_signed, sign, signing_key, symmetric_key, verification_key};
pub use url::{Scheme, Target, WebhookUrlError, check_url, target, vet_address};

/// How many webhooks an organization may have.
pub const WEBHOOKS_MAX: u64 = 1_000;
/// For how long the previous key signs too after a rotation: the default, and the most that may be asked for.
pub const PREVIOUS_KEY_TIME_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);
pub const PREVIOUS_KEY_TIME_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How many rotations' keys may sign beside the present ones. A client that gets no answer asks again, and the key that
/// its receiver knows must go on signing. At this number the only further rotation is one that ends them all.
pub const PREVIOUS_ROTATIONS_MAX: usize = 3;

/// The part of an attempt's error that logs and reports may show. The rest may name a client's hosts: a certificate
/// names some, a refused URL has one.
pub fn closed_words(error: &str) -> &str {
    error.split_once(": ").map_or(error, |(words, _)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_closed_words_is_left_out() {
        let cases = [
            (
                "error sending request (certificate not accepted): a: b",
                "error sending request (certificate not accepted)",
            ),
            ("its URL may not be sent to: 10.0.0.1 is inside", "its URL may not be sent to"),
            ("the receiver answered 404 Not Found", "the receiver answered 404 Not Found"),
        ];
        for (error, logged) in cases {
            assert_eq!(closed_words(error), logged);
        }
    }
}
