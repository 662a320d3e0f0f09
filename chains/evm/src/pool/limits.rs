//! What a refusal means: nodes and providers say in their own words what is too much.
//!
//! Promises: a refusal is only ever read for what to do next (ask for less, elsewhere, later); it proves nothing about
//! the chain. What no rule knows stays an ordinary failure. The messages of the providers that the rules were made
//! from stand in `testdata/limits.json`, each with its source.

use std::time::Duration;

/// What a node said it will not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// `eth_getLogs` over too many blocks; the most that it serves, where it says so.
    RangeTooWide { most: Option<u64> },
    /// The answer would be too large; a range that would do, where it says so.
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

/// EIP-1474's code for "limit exceeded", and HTTP's for too many requests, which some repeat as a code.
const LIMIT_EXCEEDED: i64 = -32_005;
const TOO_MANY_REQUESTS: i64 = 429;
const METHOD_NOT_FOUND: i64 = -32_601;
/// jsonrpsee's (reth and many L2s) for a batch of too many calls.
const BATCH_TOO_LARGE: i64 = -32_010;
/// EIP-4444's.
const HISTORY_PRUNED: i64 = 4_444;

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

impl Limit {
    /// What a refusal of `code` and `text` (its message, and its data behind it) means; `None` when no rule knows it.
    pub(crate) fn of(code: i64, text: &str) -> Option<Limit> {
        let text = text.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let rate_limited = Limit::RateLimited { pause: PAUSES.iter().find_map(|word| seconds_behind(&text, word)) };
        Some(if code == METHOD_NOT_FOUND || is_unsupported(&text) {
            Limit::Unsupported
        } else if code == BATCH_TOO_LARGE || is_batch(&text) {
            Limit::BatchTooLarge { most: BATCHES.iter().find_map(|word| number_behind(&text, word)) }
        } else if code == TOO_MANY_REQUESTS || has(&RATE) {
            rate_limited
        } else if code == HISTORY_PRUNED || has(&PRUNED) {
            Limit::Pruned
        } else if has(&NOT_YET) {
            Limit::NotThereYet
        } else if has(&TOO_MANY) || text.contains("more than") && has(&["results", "logs"]) {
            Limit::TooManyResults { range: suggested_range(&text) }
        } else if let Some(most) = widest(&text) {
            Limit::RangeTooWide { most: Some(most) }
        } else if text.contains("range") && has(&WIDE) {
            Limit::RangeTooWide { most: None }
        } else if code == LIMIT_EXCEEDED {
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
    use std::collections::BTreeSet;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fixture {
        provider: String,
        code: i64,
        message: String,
        kind: Option<String>,
        value: Option<u64>,
        source: String,
    }

    fn told(limit: Option<Limit>) -> (Option<&'static str>, Option<u64>) {
        match limit {
            None => (None, None),
            Some(Limit::RangeTooWide { most }) => (Some("range_too_wide"), most),
            Some(Limit::TooManyResults { range }) => (Some("too_many_results"), range),
            Some(Limit::BatchTooLarge { most }) => (Some("batch_too_large"), most),
            Some(Limit::RateLimited { pause }) => (Some("rate_limited"), pause.map(|pause| pause.as_secs())),
            Some(Limit::NotThereYet) => (Some("not_there_yet"), None),
            Some(Limit::Pruned) => (Some("pruned"), None),
            Some(Limit::Unsupported) => (Some("unsupported"), None),
        }
    }

    #[test]
    fn the_words_of_thirty_providers_are_understood() {
        let fixtures: Vec<Fixture> = serde_json::from_str(include_str!("../../testdata/limits.json")).unwrap();
        let mut wrong = Vec::new();
        for Fixture { provider, code, message, kind, value, source } in &fixtures {
            assert!(!source.is_empty());
            let told = told(Limit::of(*code, message));
            if told != (kind.as_deref(), *value) {
                wrong.push(format!("{provider}: {message:?} ({code}) is {told:?}, not {:?}", (kind, value)));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let providers: BTreeSet<&str> = fixtures.iter().map(|fixture| fixture.provider.as_str()).collect();
        assert!(providers.len() >= 30, "{}", providers.len());
    }

    #[test]
    fn any_text_is_read_without_a_panic() {
        use proptest::prelude::*;
        proptest!(|(code in any::<i64>(), text in ".{0,80}", word in 0..WIDTHS.len())| {
            Limit::of(code, &text);
            Limit::of(code, &format!("block range {}{text}", WIDTHS[word]));
            Limit::of(code, &format!("retry in {text} [0x{text}, 0x{text}] with the range {text}-{text}"));
        });
    }
}
