//! How often the log says that attempts at a webhook fail: a client may register a thousand that all do, many times a second.

use std::collections::HashMap;
use std::time::Duration;

use crate::time::Timestamp;

/// Between two lines about one webhook. What happened to each event is on record (`landfall event show`).
const EVERY: Duration = Duration::from_secs(60);

/// The webhooks of which something was said within that time.
#[derive(Debug, Default)]
pub(super) struct Complaints(HashMap<String, Last>);

#[derive(Debug)]
struct Last {
    at: Timestamp,
    left_out: u64,
}

impl Complaints {
    /// How many failures were left out since the last line, where it is time for another; else this one is, too.
    pub(super) fn left_out(&mut self, webhook: &str, now: Timestamp) -> Option<u64> {
        // Also when the clock went back.
        let is_recent = |last: &Last| last.at <= now && now.since(last.at) < EVERY;
        if let Some(last) = self.0.get_mut(webhook).filter(|last| is_recent(last)) {
            last.left_out += 1;
            return None;
        }
        let left_out = self.0.remove(webhook).map_or(0, |last| last.left_out);
        self.0.retain(|_, last| is_recent(last));
        self.0.insert(webhook.to_owned(), Last { at: now, left_out: 0 });
        Some(left_out)
    }
}
