//! The newest events, for requests that wait for one: one query of the store for all of them.
//!
//! Promises: a request that waits holds no connection to the store and no place among those that are being answered. It
//! is woken for each number that may match its filter, and for few others. Where the tail has not seen a number, or has
//! forgotten it, the request reads the store itself. No key takes all the seats. Without the loop of the tail no
//! request is woken, and a waiting request ends when its time is over.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::store::feed::{self, EventKey, FeedFilter};
use crate::store::{Db, StoreError};

/// How often the store is read while a request waits.
const POLL: Duration = Duration::from_millis(100);
const POLL_AFTER_ERROR: Duration = Duration::from_secs(1);
/// How many events are remembered.
const RECENT_MAX: u64 = 1_000;
/// How many requests may wait at the same time. Each has a connection, of which there are 800 unless `[api]` says
/// otherwise.
const WAITING_MAX: usize = 400;
/// How many of them with the same key.
const WAITING_BY_KEY_MAX: usize = 200;
/// How many of the woken requests read the store at the same time.
const READING_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Tail {
    recent: watch::Sender<Recent>,
    /// One for each request that waits.
    waiting: Semaphore,
    /// How many requests wait with each key, for keys with any.
    by_key: Mutex<HashMap<String, usize>>,
    /// A permit for each woken request that reads.
    pub reading: Semaphore,
}

/// The seat of a request that waits, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Seat<'t> {
    tail: &'t Tail,
    key_id: String,
    _permit: SemaphorePermit<'t>,
}

/// Why a request may not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// As many requests wait with its key as may.
    ByKey { most: usize },
    /// As many requests wait as may.
    ByAll,
}

/// The events that were numbered last.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The number of the newest.
    pub last: u64,
    /// The newest ones, in their order. Older ones are not known.
    reported: VecDeque<EventKey>,
}

impl Default for Tail {
    fn default() -> Self {
        let (recent, _) = watch::channel(Recent::default());
        let (waiting, reading) = (Semaphore::new(WAITING_MAX), Semaphore::new(READING_MAX));
        Tail { recent, waiting, by_key: Mutex::default(), reading }
    }
}

impl Tail {
    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        WAITING_MAX - self.waiting.available_permits()
    }

    /// A seat for a request that is going to wait.
    pub(super) fn seat(&self, key_id: &str) -> Result<Seat<'_>, Refused> {
        let mut by_key = self.by_key();
        let taken = by_key.get(key_id).copied().unwrap_or_default();
        if taken >= WAITING_BY_KEY_MAX {
            return Err(Refused::ByKey { most: WAITING_BY_KEY_MAX });
        }
        let permit = self.waiting.try_acquire().map_err(|_| Refused::ByAll)?;
        by_key.insert(key_id.to_owned(), taken + 1);
        Ok(Seat { tail: self, key_id: key_id.to_owned(), _permit: permit })
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives every change from now on.
    pub(super) fn listen(&self) -> watch::Receiver<Recent> {
        self.recent.subscribe()
    }

    /// Reads the store again and again while a request waits, until `stop`.
    pub(super) async fn run(&self, db: &Db, stop: &CancellationToken) {
        let mut pause = POLL;
        while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            pause = POLL;
            if self.recent.receiver_count() == 0 {
                continue;
            }
            if let Err(error) = self.look(db).await {
                warn!("requests that wait for events are answered later, because the store cannot be read: {error}");
                pause = POLL_AFTER_ERROR;
            }
        }
    }

    async fn look(&self, db: &Db) -> Result<(), StoreError> {
        let known = self.recent.borrow().last;
        let mut reader = db.read().await?;
        let last = feed::last(&mut reader).await?;
        if last == known {
            return Ok(());
        }
        // Older events than these would be forgotten at once.
        let from = known.max(last.saturating_sub(RECENT_MAX)).min(last);
        let reported = feed::keys(&mut reader, (from, last)).await?;
        drop(reader);
        self.recent.send_modify(|recent| recent.append(from, last, reported));
        Ok(())
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut by_key = self.tail.by_key();
        match by_key.get_mut(&self.key_id) {
            Some(taken) if *taken > 1 => *taken -= 1,
            _ => drop(by_key.remove(&self.key_id)),
        }
    }
}

impl Recent {
    /// Whether an event above `seen` may match.
    pub(super) fn may_match(&self, filter: &FeedFilter, seen: u64) -> bool {
        let new = self.last.saturating_sub(seen);
        let known = usize::try_from(new).unwrap_or(usize::MAX).min(self.reported.len());
        let is_known = u64::try_from(known).is_ok_and(|known| known == new);
        !is_known || self.reported.iter().rev().take(known).any(|reported| filter.may_match(reported))
    }

    fn append(&mut self, from: u64, last: u64, reported: Vec<EventKey>) {
        let is_whole = u64::try_from(reported.len()).is_ok_and(|count| from + count == last);
        if from != self.last || !is_whole {
            self.reported.clear();
        }
        if is_whole {
            self.reported.extend(reported);
        }
        let most = usize::try_from(RECENT_MAX).unwrap_or(usize::MAX);
        self.reported.drain(..self.reported.len().saturating_sub(most));
        self.last = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(account: &str) -> EventKey {
        EventKey { account_id: account.to_owned(), kind: "deposit_v2".to_owned() }
    }

    fn of(account: &str) -> FeedFilter {
        FeedFilter { account_id: Some(account.to_owned()), kind: None }
    }

    #[test]
    fn a_request_is_reported_of_what_it_waits_for_and_of_what_is_not_known() {
        let mut recent = Recent::default();
        recent.append(0, 3, vec![reported("a"), reported("b"), reported("c")]);
        let reports = |recent: &Recent, account: &str, seen| recent.may_match(&of(account), seen);
        assert!(
            reports(&recent, "b", 0)
                && reports(&recent, "b", 1)
                && !reports(&recent, "b", 2)
                && !reports(&recent, "b", 3)
        );
        assert!(!reports(&recent, "d", 0), "nothing for d, and all is known");
        assert!(recent.may_match(&FeedFilter::default(), 2) && !recent.may_match(&FeedFilter::default(), 3));
        let kind = |kind: &str| FeedFilter { account_id: None, kind: Some(kind.to_owned()) };
        assert!(recent.may_match(&kind("deposit_v2"), 0) && !recent.may_match(&kind("other"), 0));
        // A number in between was not read, or fewer events were found than there are numbers.
        recent.append(10, 12, vec![reported("a"), reported("a")]);
        assert!(reports(&recent, "d", 9) && !reports(&recent, "d", 10));
        recent.append(12, 14, vec![reported("a")]);
        assert!(reports(&recent, "d", 13) && !reports(&recent, "d", 14));
    }

    #[test]
    fn no_key_takes_all_the_seats() {
        let tail = Tail::default();
        let take = |key: &str, count: usize| (0..count).map(|_| tail.seat(key).unwrap()).collect::<Vec<_>>();
        let mut first = take("a", 200);
        assert_eq!(tail.seat("a").unwrap_err(), Refused::ByKey { most: 200 });
        let _others = ["b", "c"].map(|key| take(key, 50));
        let last = take("d", 100);
        assert_eq!(tail.seat("e").unwrap_err(), Refused::ByAll);
        first.pop();
        assert_eq!(tail.waiting(), 399);
        drop(tail.seat("a").unwrap());
        drop(last);
        drop(first);
        assert_eq!((tail.waiting(), tail.by_key().len()), (100, 2), "nobody is remembered who does not wait");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut recent = Recent::default();
        for last in (0..3 * RECENT_MAX).step_by(7) {
            recent.append(last, last + 7, vec![reported("a"); 7]);
        }
        assert_eq!(recent.reported.len(), 1_000);
        assert!(!recent.may_match(&of("b"), recent.last - RECENT_MAX));
        assert!(recent.may_match(&of("b"), recent.last - RECENT_MAX - 1));
    }
}
