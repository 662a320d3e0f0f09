//! Durations as operators write them: `90s`, `5m`, `2h`.

use std::time::Duration;

/// Reads a number with its unit.
///
/// # Errors
/// A message for the person who typed it.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(['s', 'm', 'h']);
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err("expected a number and s, m or h, for example 60s".to_owned()),
    };
    let count: u64 = digits.parse().map_err(|_| "expected a number and s, m or h, for example 60s".to_owned())?;
    Ok(Duration::from_secs(count.saturating_mul(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, secs) in [("60s", 60), ("5m", 300), ("2h", 7_200)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(secs)));
        }
        for text in ["", "s", "7", "1d", "-1s", "1.5s", "1ms"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
