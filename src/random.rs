//! Randomness, from the one place that asks the system for it. Rooms that need it get it as an argument.

use rand::RngExt;

/// 64 random bits.
pub fn number() -> u64 {
    u64::from_ne_bytes(bytes())
}

/// Random bytes, fit for keys and secrets.
pub fn bytes<const N: usize>() -> [u8; N] {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the system for randomness")]
    let mut source = rand::rng();
    source.random()
}
