//! Where the next page of a list begins: base64url of version | hash of the filters | created_us | id of the last
//! object shown.
//!
//! A cursor names the last object shown, not a position, so that pages neither repeat nor skip when more arrive.
//! It belongs to its filters and is refused with others; the page's size may change. It is no secret and no proof:
//! whatever it says, a list shows only what its filters let through.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::deposit::DepositId;
use crate::store::deposits::DepositFilter;
use crate::time::Timestamp;

const VERSION: u8 = 1;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum CursorError {
    #[error("must be a cursor that this list gave")]
    Malformed,
    #[error("belongs to other filters: send those of the page before")]
    OtherFilters,
}

/// The cursor of the page that follows `last`, in a list with these filters.
pub(super) fn encode(filter: &DepositFilter, (at, DepositId(id)): (Timestamp, DepositId)) -> String {
    encode_place(filter_hash(filter), at, id.as_bytes())
}

/// The deposit after which a list with these filters continues.
///
/// # Errors
/// A text that [`encode`] did not make, or made for other filters.
pub(super) fn decode(text: &str, filter: &DepositFilter) -> Result<(Timestamp, DepositId), CursorError> {
    let (at, id) = decode_place(text, filter_hash(filter))?;
    Ok((at, DepositId(Uuid::from_slice(&id).map_err(|_| CursorError::Malformed)?)))
}

/// As [`encode`], for a list whose filters have this hash.
pub(super) fn encode_place(filters: [u8; 8], at: Timestamp, id: &[u8]) -> String {
    let bytes = [&[VERSION][..], &filters, &at.0.to_be_bytes(), id].concat();
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads [`encode_place`].
///
/// # Errors
/// See [`decode`].
pub(super) fn decode_place(text: &str, filters: [u8; 8]) -> Result<(Timestamp, Vec<u8>), CursorError> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError::Malformed)?;
    let (&version, rest) = bytes.split_first().ok_or(CursorError::Malformed)?;
    let (hash, rest) = rest.split_first_chunk::<8>().ok_or(CursorError::Malformed)?;
    let (at, id) = rest.split_first_chunk::<8>().ok_or(CursorError::Malformed)?;
    if version != VERSION {
        return Err(CursorError::Malformed);
    }
    if *hash != filters {
        return Err(CursorError::OtherFilters);
    }
    Ok((Timestamp(i64::from_be_bytes(*at)), id.to_vec()))
}

/// The hash of a list's filters that its cursor holds. The fields are given in a fixed order.
pub(super) fn hash_of<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> [u8; 8] {
    let hash = landfall_chain::hash_of(fields);
    let (head, _) = hash.split_first_chunk().expect("32 is more than 8");
    *head
}

/// A filter that is not set counts as an empty field, which no set filter is.
fn filter_hash(filter: &DepositFilter) -> [u8; 8] {
    let DepositFilter { account_id, chain, symbol, start, end, after: _ } = filter;
    let time = |at: &Option<Timestamp>| at.map_or_else(Vec::new, |at| at.0.to_be_bytes().to_vec());
    hash_of([
        account_id.as_deref().unwrap_or_default().as_bytes(),
        chain.map_or("", |chain| chain.name()).as_bytes(),
        symbol.as_deref().unwrap_or_default().as_bytes(),
        &time(start),
        &time(end),
    ])
}

#[cfg(test)]
mod tests {
    use landfall_chain::Chain;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LAST: (Timestamp, DepositId) = (Timestamp(1_750_000_000_000_001), DepositId(Uuid::from_u128(0x1234_5678)));

    fn filter() -> DepositFilter {
        DepositFilter { account_id: Some("acc_1".into()), ..DepositFilter::default() }
    }

    #[test]
    fn a_cursor_is_read_back() {
        for at in [i64::MIN, -1, 0, i64::MAX] {
            let last = (Timestamp(at), LAST.1);
            assert_eq!(decode(&encode(&filter(), last), &filter()), Ok(last));
        }
    }

    #[test]
    fn the_form_of_a_cursor_never_changes() {
        assert_eq!(encode(&filter(), LAST), "Af4jH75pb5e3AAY3naBbYAEAAAAAAAAAAAAAAAASNFZ4");
    }

    #[test]
    fn a_cursor_is_refused_with_other_filters() {
        let cursor = encode(&filter(), LAST);
        let others = [
            DepositFilter { account_id: Some("acc_2".into()), ..filter() },
            DepositFilter { chain: Some(Chain::BaseMainnet), ..filter() },
            DepositFilter { symbol: Some("USDC".into()), ..filter() },
            DepositFilter { start: Some(Timestamp(0)), ..filter() },
            DepositFilter { end: Some(Timestamp(0)), ..filter() },
        ];
        for other in others {
            assert_eq!(decode(&cursor, &other), Err(CursorError::OtherFilters), "{other:?}");
            assert_eq!(decode(&encode(&other, LAST), &filter()), Err(CursorError::OtherFilters), "{other:?}");
            assert_eq!(decode(&encode(&other, LAST), &other), Ok(LAST));
        }
        let behind = DepositFilter { after: Some(LAST), ..filter() };
        assert_eq!(decode(&cursor, &behind), Ok(LAST), "where a page begins is no filter");
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        let cursor = encode(&filter(), LAST);
        let (padded, longer) = (format!("{cursor}="), format!("{cursor}AAAA"));
        let other_version = format!("Ag{}", &cursor[2..]);
        let bad = ["", "A", "AAAA", "!!!!", "é", &cursor[..40], &cursor[4..], &padded, &longer, &other_version];
        for text in bad {
            assert_eq!(decode(text, &filter()), Err(CursorError::Malformed), "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_panics_and_what_is_read_was_written(text in "\\PC{0,80}", bytes in vec(any::<u8>(), 0..60), head in any::<bool>()) {
            let ours = [&[VERSION][..], &filter_hash(&filter()), &bytes].concat();
            let reported = BASE64_URL_SAFE_NO_PAD.encode(if head { &ours } else { &bytes });
            for text in [text, reported] {
                if let Ok(last) = decode(&text, &filter()) {
                    prop_assert_eq!(encode(&filter(), last), text);
                }
            }
        }
    }
}
