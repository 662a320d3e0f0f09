//! How fast blocks are read, and how long the rest will take: for occasional log lines.

use std::time::Duration;

use landfall_chain::Searched;

use crate::time::Timestamp;

/// How often a line is due.
const SAY_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Pace {
    said_at: Timestamp,
    /// Blocks since `said_at`.
    blocks: u64,
}

impl Pace {
    pub fn new(now: Timestamp) -> Self {
        Pace { said_at: now, blocks: 0 }
    }

    pub fn add(&mut self, blocks: u64) {
        self.blocks += blocks;
    }

    /// The line for a search of single addresses, whose rest is unknown; `None` until it is due.
    pub fn search(&mut self, searched: &Searched, now: Timestamp) -> Option<String> {
        self.is_due(now).then(|| {
            self.said_at = now;
            search_line(searched)
        })
    }

    fn is_due(&self, now: Timestamp) -> bool {
        now.since(self.said_at) >= SAY_EVERY
    }

    /// The line, `None` until it is due: with 600 blocks in 10 s and 1200 left, `1200 blocks left, 60 blocks/s, 20s`.
    /// `numbers` is the noun for what is counted.
    pub fn line(&mut self, left: u64, numbers: &str, now: Timestamp) -> Option<String> {
        if !self.is_due(now) {
            return None;
        }
        let passed = now.since(self.said_at);
        let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = self.blocks.saturating_mul(1_000) / millis;
        let eta = left.saturating_mul(millis).checked_div(self.blocks).map(|millis| millis / 1_000);
        *self = Pace::new(now);
        let eta = eta.map_or("standing still".to_owned(), duration);
        Some(format!("{left} {numbers} left, {rate} {numbers}/s, {eta}"))
    }
}

/// For example `list 1: 12 pages, 11500 signatures, account 2 down to 150`. Pages and signatures are those of all
/// accounts so far.
pub fn search_line(Searched { list, pages, named, account, lowest }: &Searched) -> String {
    let down = lowest.map_or(String::new(), |lowest| format!(", account {account} down to {lowest}"));
    format!("list {list}: {pages} pages, {named} signatures{down}")
}

/// For example `2d 3h`, `5m 10s`, `20s`.
fn duration(secs: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let mut rest = secs;
    let mut parts = Vec::new();
    for (size, unit) in units {
        if rest >= size {
            parts.push(format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts[..parts.len().min(2)].join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_every_ten_seconds_with_rate_and_rest() {
        let start = Timestamp::from_secs(100);
        let mut pace = Pace::new(start);
        pace.add(600);
        assert_eq!(pace.line(1_200, "blocks", Timestamp::from_secs(109)), None);
        let line = pace.line(1_200, "blocks", Timestamp::from_secs(110)).unwrap();
        assert_eq!(line, "1200 blocks left, 60 blocks/s, 20s");
        assert_eq!(pace.line(1_200, "blocks", Timestamp::from_secs(111)), None);
        assert_eq!(
            pace.line(7, "blocks", Timestamp::from_secs(120)).unwrap(),
            "7 blocks left, 0 blocks/s, standing still"
        );
        assert_eq!((duration(0), duration(310), duration(183_700)), ("0s".into(), "5m 10s".into(), "2d 3h".into()));
    }
}
