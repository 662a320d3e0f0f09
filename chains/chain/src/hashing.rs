//! Hashes of lists of fields: what the ids of deposits, transfers and events are made of.
//!
//! Promise: two different lists never hash alike, because each field has its length before it.

use sha2::{Digest, Sha256};

/// SHA-256 over the fields, each with its length before it as 4 bytes big-endian.
///
/// # Panics
/// On a field of 4 GiB or more; fields of ids have a few bytes.
pub fn hash_of<'f>(fields: impl IntoIterator<Item = &'f [u8]>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for field in fields {
        let length = u32::try_from(field.len()).expect("fields of an id are a few bytes long");
        hasher.update(length.to_be_bytes());
        hasher.update(field);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::hash_of;

    #[test]
    fn where_a_field_ends_matters() {
        let lists: [&[&[u8]]; 5] = [&[b"a", b"b"], &[b"ab"], &[b"ab", b""], &[b"", b"ab"], &[]];
        let hashes = lists.map(|fields| hash_of(fields.iter().copied()));
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash), "{:?}", lists[index]);
        }
    }
}
