//! The bounds of a time range, as clients write them: RFC 3339, any offset, up to 9 fractional digits.
//!
//! We keep microseconds. A lower bound is rounded up and an upper bound down, so that a range never includes a time
//! outside of it. Which bound is later is decided before rounding.

use std::str::FromStr;

use chrono::{DateTime, FixedOffset};

use crate::time::Timestamp;

const FRACTION_DIGITS_MAX: usize = 9;

/// A bound, exact to the nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TimeBound(DateTime<FixedOffset>);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "must be an RFC 3339 date-time with at most 9 fractional digits, for example 2026-01-31T23:59:59Z; the + of an \
     offset is sent as %2B"
)]
pub(super) struct TimeBoundError;

impl TimeBound {
    /// The first microsecond that is not before it.
    pub(super) fn lower(self) -> Timestamp {
        self.rounded(self.0.timestamp_subsec_nanos().div_ceil(1000))
    }

    /// The last microsecond that is not after it.
    pub(super) fn upper(self) -> Timestamp {
        self.rounded(self.0.timestamp_subsec_nanos() / 1000)
    }

    /// Years have four digits, so nothing overflows. In a leap second `micros` extends into the next second.
    fn rounded(self, micros: u32) -> Timestamp {
        Timestamp(self.0.timestamp() * 1_000_000 + i64::from(micros))
    }
}

impl FromStr for TimeBound {
    type Err = TimeBoundError;

    /// Stricter than chrono, which also accepts a blank for the T and other minus signs, and cuts longer fractions.
    fn from_str(text: &str) -> Result<Self, TimeBoundError> {
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| TimeBoundError)?;
        let separated = matches!(text.as_bytes().get(10), Some(b'T' | b't'));
        let digits = text.bytes().skip("2026-01-31T23:59:59.".len()).take_while(u8::is_ascii_digit).count();
        if text.is_ascii() && separated && digits <= FRACTION_DIGITS_MAX {
            Ok(TimeBound(time))
        } else {
            Err(TimeBoundError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(text: &str) -> TimeBound {
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    #[test]
    fn a_lower_bound_is_rounded_up_and_an_upper_bound_down() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("1970-01-01T00:00:00.5Z", 500_000, 500_000),
            ("1970-01-01T00:00:00.000001Z", 1, 1),
            ("1970-01-01T00:00:00.000001001Z", 2, 1),
            ("1970-01-01T00:00:00.000000999Z", 1, 0),
            ("1970-01-01T00:00:00.999999999Z", 1_000_000, 999_999),
            ("1969-12-31T23:59:59.999999999Z", 0, -1),
            ("1970-01-01T02:00:00+02:00", 0, 0),
            ("1969-12-31T18:30:00.000000001-05:30", 1, 0),
            ("1970-01-01t00:00:00z", 0, 0),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000_000, 1_483_228_800_000_000),
            ("0000-01-01T00:00:00Z", -62_167_219_200_000_000, -62_167_219_200_000_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000_000, 253_402_300_799_000_000),
        ];
        for (text, lower, upper) in cases {
            assert_eq!((bound(text).lower(), bound(text).upper()), (Timestamp(lower), Timestamp(upper)), "{text}");
        }
    }

    #[test]
    fn bounds_are_compared_before_they_are_rounded() {
        assert!(bound("1970-01-01T00:00:00.000000001Z") < bound("1970-01-01T00:00:00.000000002Z"));
        assert!(bound("1970-01-01T01:00:00+02:00") < bound("1970-01-01T00:00:00Z"));
        assert_eq!(bound("1970-01-01T01:00:00+01:00"), bound("1970-01-01T00:00:00Z"));
    }

    #[test]
    fn what_is_not_rfc_3339_is_refused() {
        let bad = [
            "",
            "now",
            "0",
            "1750000000",
            "2026-01-31",
            "2026-01-31T23:59:59",
            "2026-01-31 23:59:59Z",
            "2026-01-31T23:59Z",
            "2026-01-31T23:59:59.Z",
            "2026-01-31T23:59:59,5Z",
            "2026-01-31T23:59:59.0000000001Z",
            "2026-01-31T23:59:59 02:00",
            "2026-01-31T23:59:59+0200",
            "2026-01-31T23:59:59+24:00",
            "2026-01-31T23:59:59\u{2212}02:00",
            "2026-01-31T23:59:59Z ",
            " 2026-01-31T23:59:59Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-31T24:00:00Z",
            "+2026-01-31T23:59:59Z",
            "12026-01-31T23:59:59Z",
            "2026-01-31T23:59:59[UTC]",
        ];
        for text in bad {
            assert_eq!(text.parse::<TimeBound>(), Err(TimeBoundError), "{text:?}");
        }
    }
}
