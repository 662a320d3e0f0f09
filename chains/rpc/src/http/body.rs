//! The body of an HTTP answer, unpacked where the node packed it.
//!
//! It is unpacked at once, after its last byte: piece by piece costs a fifth more, because what was unpacked is copied
//! each time. Promises: neither the packed body nor the unpacked one is held where it is larger than the limit. An
//! encoding that was not asked for is no answer.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;

/// The encoding that is asked for.
pub(crate) const ENCODING: &str = "gzip";
/// How many bytes one byte may unpack to, in the format that gzip packs with (RFC 1951).
const BYTES_OF_ONE_MAX: usize = 1_032;

/// Why there is no body.
#[derive(Debug)]
pub(crate) enum Unread {
    Http(reqwest::Error),
    /// It does not unpack.
    Packed(std::io::Error),
    /// By an encoding that was not asked for.
    Encoded,
}

/// The body, or `None` as soon as it is larger than `most`.
pub(crate) async fn read(mut response: Response, most: usize) -> Result<Option<Vec<u8>>, Unread> {
    let encoding = response.headers().get(CONTENT_ENCODING).map(|encoding| encoding.as_bytes().to_ascii_lowercase());
    let is_packed = match encoding.as_deref() {
        None | Some(b"" | b"identity") => false,
        Some(b"gzip" | b"x-gzip") => true,
        Some(_) => return Err(Unread::Encoded),
    };
    let reported = response.content_length().and_then(|reported| usize::try_from(reported).ok());
    if reported.is_some_and(|reported| reported > most) {
        return Ok(None);
    }
    let mut body = Vec::with_capacity(reported.unwrap_or_default());
    while let Some(chunk) = response.chunk().await.map_err(Unread::Http)? {
        if body.len() + chunk.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    if is_packed { unpack(&body, most).map_err(Unread::Packed) } else { Ok(Some(body)) }
}

fn unpack(packed: &[u8], most: usize) -> std::io::Result<Option<Vec<u8>>> {
    // Its last bytes give the unpacked size, or they are anything.
    let reported = packed.last_chunk().map_or(0, |reported| u32::from_le_bytes(*reported));
    let room =
        usize::try_from(reported).unwrap_or(usize::MAX).min(packed.len().saturating_mul(BYTES_OF_ONE_MAX)).min(most);
    let mut body = Vec::with_capacity(room);
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(packed).take(limit).read_to_end(&mut body)?;
    Ok((body.len() <= most).then_some(body))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn pack(text: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(text).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn what_was_packed_is_unpacked_up_to_the_limit_and_no_further() {
        let zeros = vec![b'0'; 1_000_000];
        let packed = pack(&zeros);
        assert!(packed.len() < 2_000);
        assert_eq!(unpack(&packed, 1_000_000).unwrap(), Some(zeros.clone()));
        assert_eq!(unpack(&packed, 999_999).unwrap(), None);
        assert_eq!(unpack(&pack(b""), 0).unwrap(), Some(Vec::new()));
        // Two in a row are one text.
        assert_eq!(unpack(&[pack(b"ab"), pack(b"c")].concat(), 3).unwrap(), Some(b"abc".to_vec()));
        for end in [0, 1, 10, packed.len() / 2, packed.len() - 1] {
            assert!(unpack(&packed[..end], 1_000_000).is_err(), "{end}");
        }
        for odd in [3, packed.len() - 1, packed.len() - 6] {
            let mut flawed = packed.clone();
            flawed[odd] ^= 0xff;
            assert!(odd == 3 || unpack(&flawed, 1_000_000).is_err(), "{odd}");
            let room = unpack(&flawed, 1_000_000).ok().flatten().map_or(0, |body| body.capacity());
            assert!(room <= 2_000_000, "{odd}");
        }
    }
}
