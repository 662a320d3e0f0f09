//! How often the log says that attempts at a webhook fail. A client may register a thousand webhooks that all fail,
//! many times a second.

use std::collections::HashMap;
use std::time::Duration;

use crate::time::Timestamp;

/// The time between two lines about one webhook. Each result is on record (`landfall event show`).
const EVERY: Duration = Duration::from_secs(60);

/// The webhooks that were logged within that time.
#[derive(Debug, Default)]
pub(super) struct Complaints(HashMap<String, Last>);

#[derive(Debug)]
struct Last {
    at: Timestamp,
    left_out: u64,
}

impl Complaints {
    /// How many failures were left out since the last line, if another line is due. If not, this failure is counted
    /// too.
    pub(super) fn left_out(&mut self, webhook: &str, now: Timestamp) -> Option<u64> {
        // Not so if the clock went back.
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
