//! Keys and signatures as text: base58, as every node writes them.

/// 32 bytes: an account, a mint, a blockhash.
pub(crate) fn key(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    five8::decode_32(text, &mut bytes).ok()?;
    Some(bytes)
}

/// 64 bytes.
pub(crate) fn signature(text: &str) -> Option<[u8; 64]> {
    let mut bytes = [0; 64];
    five8::decode_64(text, &mut bytes).ok()?;
    Some(bytes)
}
