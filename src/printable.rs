//! Text that is safe to show. Some characters are not seen themselves but control a terminal, or change the text beside
//! them.
//!
//! Promises: a printable text is one line, looks like what it is, and inside of a line of JSON means the same as
//! before.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character controls the display: C0 and C1, and characters that end lines or reverse the order of letters.
/// No text that somebody chooses may contain one.
pub fn is_control(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text in one line. Control characters are escaped as in JSON.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            // All of them have four digits. Writing to a text does not fail.
            control if is_control(control) => _ = write!(shown, "\\u{:04x}", u32::from(control)),
            seen => shown.push(seen),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_a_terminal_is_seen_instead() {
        let sent =
            "503\r\n\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31mred\u{202e}txt\u{7f}\t\u{85}\u{2028}\u{2069} \u{e9} \u{1f600}";
        let shown = "503\\r\\n\\u001b]0;title\\u0007\\u001b[2J\\u009b31mred\\u202etxt\\u007f\\t\\u0085\\u2028\\u2069 \u{e9} \u{1f600}";
        assert_eq!(printable(sent), shown);
        assert!(matches!(printable("\u{e9}\\ \u{200f}"), Cow::Borrowed(_)));
    }
}
