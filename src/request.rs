//! Requests that a client may repeat. The same id with the same content makes nothing new; with other content it is
//! refused.
//!
//! Pure functions of the request: the digest of its content, and the id of what it makes. So if a request is repeated
//! after the store was restored from an older copy, it makes the same object again, with the same id. What is on record
//! is the store's.

use landfall_chain::hash_of;

const ID_CHARS_MAX: usize = 128;

/// A request, as it is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The client's `request_id`.
    pub id: String,
    /// Of its whole content. Two requests with one id and different digests contradict each other.
    pub digest: [u8; 32],
}

/// Whether a request made something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    Now,
    /// It was made when the request came first.
    Before,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("must be 1 to 128 visible ASCII characters without spaces")]
pub struct RequestIdError;

impl Request {
    /// The id of what this request makes, for example `acc_` and 32 hexadecimal digits. Each organization has ids of
    /// its own.
    pub fn object_id(&self, prefix: &str, organization: &str) -> String {
        let hash = hash_of([b"object/v1".as_slice(), prefix.as_bytes(), organization.as_bytes(), self.id.as_bytes()]);
        format!("{prefix}_{}", hex::encode(&hash[..16]))
    }
}

/// The request with this id for an object of a kind (`account/v1`), with the object's fields in a fixed order.
///
/// # Errors
/// An id that is empty, long or not plain.
pub fn of<'a>(id: &str, kind: &'a str, fields: impl IntoIterator<Item = &'a [u8]>) -> Result<Request, RequestIdError> {
    if id.is_empty() || id.len() > ID_CHARS_MAX || !id.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(RequestIdError);
    }
    Ok(Request { id: id.to_owned(), digest: hash_of(std::iter::once(kind.as_bytes()).chain(fields)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(kind: &str, fields: &[&[u8]]) -> [u8; 32] {
        of("r", kind, fields.iter().copied()).unwrap().digest
    }

    #[test]
    fn what_differs_has_another_digest_and_ids_never_change() {
        let digests = [
            digest("account/v1", &[b"a", b"b"]),
            digest("account/v1", &[b"ab"]),
            digest("account/v1", &[b"ab", b""]),
            digest("identity/v1", &[b"a", b"b"]),
        ];
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest), "{index}");
        }
        let request = of("r", "account/v1", []).unwrap();
        let id = request.object_id("acc", "default");
        assert_eq!(id, "acc_3e5bdac914183d930a0e406a58d72251");
        assert_ne!(request.object_id("acc", "other"), id);
    }

    #[test]
    fn an_id_that_is_not_plain_is_refused() {
        for id in ["", " ", "a b", "é", "a\n", &"a".repeat(129)] {
            assert_eq!(of(id, "account/v1", []), Err(RequestIdError), "{id:?}");
        }
        assert!(of(&"a".repeat(128), "account/v1", []).is_ok());
    }
}
