//! What clients read of why a transfer cannot be paid, where the text is somebody else's.
//!
//! Promises: it names no machine, neither by a URL nor by a host, and it is not long. What stands in an endpoint's own URL
//! and headers was taken out where its answer was read. A node may name others, such as those behind it. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// So many letters are kept.
const LETTERS_MAX: usize = 300;
/// Shown in place of what names a machine.
const HIDDEN: &str = "***";
/// What may stand around the name of a machine.
const AROUND: [char; 22] =
    ['(', ')', '[', ']', '{', '}', '<', '>', '"', '\'', '`', ',', ';', '/', '=', '?', '#', '|', '&', '%', '*', '\\'];
/// How many digits a port has. Fewer would hide many a number that stands behind a colon.
const PORT_DIGITS: RangeInclusive<usize> = 2..=5;

/// The text without what names a machine.
pub(super) fn diagnostic(text: &str) -> String {
    let pieces: Vec<&str> = text.split(char::is_whitespace).map(shown).collect();
    pieces.join(" ").chars().take(LETTERS_MAX).collect()
}

fn shown(piece: &str) -> &str {
    let is_url = piece.contains("://") || piece.contains('@');
    if is_url || piece.split(AROUND).any(is_machine) { HIDDEN } else { piece }
}

/// An address, a name with a port, or a name with a point in it. What else stands between colons may be in front of it.
fn is_machine(part: &str) -> bool {
    let part = part.trim_end_matches(['.', ':', '!']);
    let (name, port) = part.rsplit_once(':').unwrap_or((part, ""));
    let is_port = PORT_DIGITS.contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_named = name.bytes().any(|byte| byte.is_ascii_alphabetic());
    part.parse::<Ipv6Addr>().is_ok() || part.split(':').any(is_host) || (is_port && is_named)
}

/// Names of hosts are written in one case. So an error such as `ERC20.transfer` is none.
fn is_host(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_of_one_case = name == lower || name == name.to_ascii_uppercase();
    let is_label = |label: &str| {
        let is_of_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !label.is_empty() && label.bytes().all(is_of_label)
    };
    let last = name.rsplit_once('.').map_or("", |(_, last)| last);
    let is_top = last.len() > 1 && last.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_dotted = is_of_one_case && is_top && name.split('.').all(is_label);
    lower == "localhost" || name.parse::<Ipv4Addr>().is_ok() || is_dotted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_machine_is_hidden_and_the_rest_stays() {
        for (text, expected) in [
            ("http://user:pw@node.example:8545/v2/KEY?a=b says no", "*** says no"),
            ("execution reverted (wss://node.example/KEY)", "execution reverted ***"),
            ("dial tcp 10.0.0.7:8545: connection refused", "dial tcp *** connection refused"),
            ("upstream geth-1:8545 timed out", "upstream *** timed out"),
            ("upstream:10.0.0.7:8545 tcp:node.example:443 host:node.example", "*** *** ***"),
            ("NODE.EXAMPLE or node.example?apikey=KEY or a.example|b", "*** or *** or ***"),
            ("ask eth-mainnet.g.node.example, or [2001:db8::1]:8545.", "ask *** or ***"),
            ("user:pw@node at localhost", "*** at ***"),
            (r#"{"upstream":"10.0.0.7"}; no"#, "*** no"),
            ("node.example. It says  no", "*** It says  no"),
        ] {
            assert_eq!(diagnostic(text), expected, "{text}");
        }
    }

    #[test]
    fn what_chains_say_of_payments_stays_as_it_is() {
        for text in [
            "execution reverted: ERC20: transfer amount exceeds balance",
            "insufficient funds for gas * price + value: address 0xA1A1a1a1A1A1A1A1A1a1a1a1a1a1A1A1a1A1a1a1 have 0 want 1",
            r#"{"InstructionError":[2,{"Custom":6001}]}; Program log: Error: insufficient funds"#,
            "TransferHelper.safeTransfer: failed, e.g. 0.5 of v1.2.3 (code -32000)",
            "0xA1A1a1a1A1A1A1A1A1a1a1a1a1a1A1A1a1A1a1a1 has 3 base units of the token, and 5 are to be paid",
            "",
        ] {
            assert_eq!(diagnostic(text), text);
        }
        assert_eq!(diagnostic(&"x".repeat(301)), "x".repeat(300));
    }
}
