//! What a refusal means: nodes and providers have their own words for too much.
//!
//! Promises: a refusal only decides what to do next (ask for less, elsewhere, later); it proves nothing about the
//! chain. A refusal that no rule knows is an ordinary failure. The words, and the codes of JSON-RPC and HTTP, are
//! common to all; a family hands in the codes of its nodes. The messages behind the rules are in the family's
//! `testdata/limits.json`, with their sources.

use std::time::Duration;

/// What a node refuses to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// A search over too many blocks; with the most that it serves, where it says so.
    RangeTooWide { most: Option<u64> },
    /// The answer would be too large; with a range that would do, where it says so.
    TooManyResults { range: Option<u64> },
    /// Too many calls in one request.
    BatchTooLarge { most: Option<u64> },
    /// Too much was asked lately.
    RateLimited { pause: Option<Duration> },
    /// The node does not have the block yet.
    NotThereYet,
    /// The node no longer has what old blocks held.
    Pruned,
    /// The node does not serve this method.
    Unsupported,
}

/// What the error codes of a family's nodes mean, whatever their words.
#[derive(Debug)]
pub struct Codes {
    /// A batch of too many calls.
    pub batch_too_large: &'static [i64],
    /// What was asked for is no longer there.
    pub pruned: &'static [i64],
    /// Too much of something: of calls, where the message does not say otherwise.
    pub limit_exceeded: &'static [i64],
}

/// HTTP's code for too many requests, which some nodes repeat as their code.
const TOO_MANY_REQUESTS: i64 = 429;
/// JSON-RPC's.
const METHOD_NOT_FOUND: i64 = -32_601;

const RATE: [&str; 15] = [
    "too many requests",
    "rate limit",
    "ratelimit",
    "rate-limit",
    "requests per second",
    "compute units per second",
    "compute unit limit",
    "network traffic limit",
    "credits limited",
    "request limit reached",
    "usage limit",
    "capacity limit",
    "the quota",
    "requests limited to",
    "under too much load",
];
const PRUNED: [&str; 7] = [
    "pruned",
    "missing trie node",
    "historical state",
    "state is not available",
    "neither stored nor reproducible",
    "archive",
    "history is not available",
];
const NOT_YET: [&str; 8] = [
    "beyond current head",
    "beyond head",
    "header not found",
    "header for hash not found",
    "unknown block",
    "block not found",
    "not yet available",
    "block is out of range",
];
const TOO_MANY: [&str; 11] = [
    "exceeds max results",
    "response too large",
    "response size",
    "response is too big",
    "result is too big",
    "logs matched by query exceeds limit",
    "logs over more",
    "too many logs",
    "too many results",
    "result set too large",
    "try paginating",
];
/// Before the number of blocks that a node serves at most.
const WIDTHS: [&str; 19] = [
    "maximum is set to ",
    "max range: ",
    "number of requested blocks is ",
    "limited to a ",
    "limited to ",
    "up to a ",
    "limit the query to at most ",
    "maximum block range: ",
    "max block range: ",
    "max block range ",
    "range greater than ",
    "block range exceeds ",
    "max is ",
    "smaller than size ",
    "(maximum ",
    "maximum allowed is ",
    "blocks distance: ",
    "ranges over ",
    " > ",
];
const WIDE: [&str; 9] = [
    "too large",
    "too wide",
    "limit exceeded",
    "exceed",
    "threshold",
    "too many blocks",
    "limited to",
    "not supported",
    "must be smaller",
];
const BATCHES: [&str; 6] = ["max limit of ", "more than ", "batch size ", "maximum of ", "limit is ", "less than: "];
const PAUSES: [&str; 5] =
    ["\"backoff_seconds\":", "retry in ", "try again in ", "retry after ", "again in approximately "];

impl Codes {
    /// For a family whose nodes have no codes of their own: then only words count.
    pub(crate) const NONE: Codes = Codes { batch_too_large: &[], pruned: &[], limit_exceeded: &[] };
}

impl Limit {
    /// What a refusal of `code` and `text` (its message, then its data) means; `None` when no rule knows it.
    pub fn of(code: i64, text: &str, codes: &Codes) -> Option<Limit> {
        let text = text.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let rate_limited = Limit::RateLimited { pause: PAUSES.iter().find_map(|word| seconds_behind(&text, word)) };
        Some(if code == METHOD_NOT_FOUND || is_unsupported(&text) && !has(&PRUNED) && !has(&NOT_YET) {
            Limit::Unsupported
        } else if codes.batch_too_large.contains(&code) || is_batch(&text) {
            Limit::BatchTooLarge { most: BATCHES.iter().find_map(|word| number_behind(&text, word)) }
        } else if code == TOO_MANY_REQUESTS || has(&RATE) {
            rate_limited
        } else if codes.pruned.contains(&code) || has(&PRUNED) {
            Limit::Pruned
        } else if has(&NOT_YET) {
            Limit::NotThereYet
        } else if has(&TOO_MANY) || text.contains("more than") && has(&["results", "logs"]) {
            Limit::TooManyResults { range: suggested_range(&text) }
        } else if let Some(most) = widest(&text) {
            Limit::RangeTooWide { most: Some(most) }
        } else if text.contains("range") && has(&WIDE) {
            Limit::RangeTooWide { most: None }
        } else if codes.limit_exceeded.contains(&code) {
            rate_limited
        } else {
            return None;
        })
    }
}

fn is_unsupported(text: &str) -> bool {
    const WHY: [&str; 6] =
        ["not found", "does not exist", "not supported", "unsupported", "not whitelisted", "not available"];
    text.contains("not included in your current plan")
        || text.contains("method") && WHY.iter().any(|why| text.contains(why))
}

fn is_batch(text: &str) -> bool {
    const WHY: [&str; 5] = ["too large", "too big", "limit", "exceed", "more than"];
    text.contains("batch") && WHY.iter().any(|why| text.contains(why))
}

/// How many blocks at most, in a message about blocks.
fn widest(text: &str) -> Option<u64> {
    if !["range", "block", "smaller than size"].iter().any(|word| text.contains(word)) {
        return None;
    }
    WIDTHS.iter().find_map(|word| number_behind(text, word)).or_else(|| suggested_range(text))
}

/// The width of "[0x3d7773, 0x3d7966]" or "the range 6000000-6000509", both ends included.
fn suggested_range(text: &str) -> Option<u64> {
    let bracketed = text.split_once("[0x").and_then(|(_, rest)| {
        let (from, to) = rest.split_once(']')?.0.split_once(',')?;
        let hex = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
        Some((hex(from)?, hex(to)?))
    });
    let dashed = || {
        let (_, rest) = text.split_once("with the range ")?;
        let (from, to) = rest.split_once('-')?;
        Some((leading_number(from)?, leading_number(to)?))
    };
    let (from, to) = bracketed.or_else(dashed)?;
    to.checked_sub(from)?.checked_add(1)
}

/// The first positive number behind `word`: "limited to a 10,000 range", "max is 10k", "limited to 0 - 3000 blocks".
fn number_behind(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.split_once(word)?;
    match leading_number(rest)? {
        0 => leading_number(rest.strip_prefix("0 - ")?).filter(|number| *number > 0),
        number => Some(number),
    }
}

fn seconds_behind(text: &str, word: &str) -> Option<Duration> {
    let (_, rest) = text.split_once(word)?;
    let rest = rest.trim_start();
    let number = leading_number(rest)?;
    let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    Some(if behind.starts_with("ms") { Duration::from_millis(number) } else { Duration::from_secs(number) })
}

fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ',' || c == '.')).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let number: u64 = digits.replace([',', '.'], "").parse().ok()?;
    // "10k", but not the k of the next word.
    let thousands = rest.starts_with('k') && !rest[1..].starts_with(|c: char| c.is_alphabetic());
    if thousands { number.checked_mul(1_000) } else { Some(number) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_means_what_its_family_says_and_words_mean_the_same_everywhere() {
        let codes = Codes { batch_too_large: &[-1], pruned: &[-2], limit_exceeded: &[-3] };
        let rate_limited = Some(Limit::RateLimited { pause: None });
        let cases = [
            (-1, "no", None, Some(Limit::BatchTooLarge { most: None })),
            (-2, "no", None, Some(Limit::Pruned)),
            (-3, "no", None, rate_limited),
            (-3, "block range exceeds 10", Some(Limit::RangeTooWide { most: Some(10) }), None),
            (-4, "batch size 7 is too large", Some(Limit::BatchTooLarge { most: Some(7) }), None),
            (429, "no", rate_limited, None),
            (-32_601, "no", Some(Limit::Unsupported), None),
            (-4, "the method x is not available", Some(Limit::Unsupported), None),
            (-4, "method x: missing trie node, state is not available", Some(Limit::Pruned), None),
            (-4, "method x: block not found", Some(Limit::NotThereYet), None),
            (-4, "no", None, None),
        ];
        for (code, words, without, with) in cases {
            assert_eq!(Limit::of(code, words, &Codes::NONE), without, "{code} {words}");
            assert_eq!(Limit::of(code, words, &codes), with.or(without), "{code} {words}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(code in any::<i64>(), text in ".{0,80}", word in 0..WIDTHS.len()) {
            let texts = [
                text.clone(),
                format!("block range {}{text}", WIDTHS[word]),
                format!("retry in {text} [0x{text}, 0x{text}] with the range {text}-{text}"),
            ];
            for text in texts {
                Limit::of(code, &text, &Codes::NONE);
            }
        }
    }
}
