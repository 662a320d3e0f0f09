//! In which slots accounts were named: `getSignaturesForAddress`, page by page, down to the end of a range or of the
//! history.
//!
//! Only slots are used. The order of signatures within a slot differs from call to call and from storage to storage
//! (solana#22456, solana#35521). One signature may stand in several slots, failed and then successful (SIMD-0297). A
//! block is read whole, so one signature of a slot is as good as all of them. Failed transactions count, too: they
//! cost their payer a fee.
//!
//! Promises:
//! - Newest first: a page begins where the one before it ended, or the endpoint is left. `before` is never dropped.
//!   Pages that go round in a circle are no list.
//! - An error is never an end, nor is a short page. What an endpoint has pruned never counts as nothing.
//! - An empty page is no end: a node also reports one that does not know where the page begins (agave's blockstore and
//!   its Bigtable did). The end is a page that shows the oldest signatures again and nothing behind them; a list
//!   without such an end is no list.
//! - That nothing is reported of an account is one endpoint's report, as is every end: the source asks others.

use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;

use landfall_chain::Pages;
use landfall_rpc::{Call, NodeError, Raw};
use serde::Deserialize;
use serde_json::json;

use crate::base58;
use crate::calls::{failed, one, reaction};
use crate::dialect::Endpoint;
use crate::error::SolanaError;
use crate::reaction::Reaction;

pub(crate) const SIGNATURES: &str = "getSignaturesForAddress";
pub(crate) const FIRST_AVAILABLE: &str = "getFirstAvailableBlock";
/// The most that a node gives at once.
const PAGE_MAX: usize = 1_000;
/// A thousand million signatures of one account: no list that makes sense is longer.
const PAGES_MAX: usize = 1_000_000;

/// How many pages in a row may report nothing new before the endpoint is left.
const STALE_MAX: u32 = 8;

/// The oldest slots: what is above the first one without room is left for another search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slots {
    range: RangeInclusive<u64>,
    max: usize,
    found: BTreeSet<u64>,
}

impl Slots {
    /// None yet of `range`, and never more than `max`.
    pub(crate) fn new(range: RangeInclusive<u64>, max: usize) -> Self {
        Slots { range, max, found: BTreeSet::new() }
    }

    fn add(&mut self, slot: u64) {
        if self.range.contains(&slot) {
            self.found.insert(slot);
        }
        while self.found.len() > self.max {
            self.range = *self.range.start()..=self.found.pop_last().map_or(0, |last| last.saturating_sub(1));
        }
    }

    /// Adds what another list shows.
    pub(crate) fn merge(&mut self, other: &Slots) {
        self.range = *self.range.start()..=self.through().min(other.through());
        self.found.retain(|slot| self.range.contains(slot));
        other.found.iter().for_each(|slot| self.add(*slot));
    }

    /// Whether this list leaves out nothing that `all` shows.
    pub(crate) fn covers(&self, all: &Slots) -> bool {
        self.through() >= all.through() && all.found.is_subset(&self.found)
    }

    /// How far the list goes, inclusive.
    pub(crate) fn through(&self) -> u64 {
        *self.range.end()
    }

    /// Ascending.
    pub(crate) fn into_numbers(self) -> Vec<u64> {
        self.found.into_iter().collect()
    }
}

/// What an endpoint knows of a range.
pub(crate) enum Listed {
    All(Slots),
    /// It keeps nothing below this slot, which lies in the range: of the rest it says nothing.
    From(u64),
}

/// The slots of `range` in which the endpoint names one of `accounts`; each page is added to `pages`.
pub(crate) async fn read_named(
    endpoint: &Endpoint,
    accounts: &[String],
    none: &Slots,
    pages: &Pages<'_>,
) -> Result<Listed, SolanaError> {
    let mut list = List { endpoint, pages, slots: none.clone(), has_begun: false };
    for account in accounts {
        pages.account();
        list.read_all(account).await?;
    }
    // What it prunes while it is asked is known only after the last page.
    let first = list.first_available().await?;
    Ok(if first > *none.range.start() { Listed::From(first) } else { Listed::All(list.slots) })
}

/// What an endpoint has reported so far.
struct List<'a> {
    endpoint: &'a Endpoint,
    pages: &'a Pages<'a>,
    slots: Slots,
    /// Whether a new beginning would lose anything.
    has_begun: bool,
}

#[derive(Deserialize)]
struct Signature<'a> {
    signature: &'a str,
    slot: u64,
}

impl List<'_> {
    async fn read_all(&mut self, account: &str) -> Result<(), SolanaError> {
        let endpoint = self.endpoint;
        let (first, last) = self.slots.range.clone().into_inner();
        let (mut before, mut place, mut stale): (Option<String>, _, _) = (None, Place::default(), 0);
        let mut pauses = endpoint.timings.page_again.iter();
        for _ in 0..PAGES_MAX {
            let refused = |error: &NodeError| refused(endpoint, account, error);
            let answer = self.ask(|| page(account, before.as_deref(), last), refused).await?;
            let page: Vec<Signature<'_>> = endpoint.parse(SIGNATURES, &answer)?;
            self.pages.add(u64::try_from(page.len()).unwrap_or(u64::MAX), page.last().map(|oldest| oldest.slot));
            let Some(oldest) = page.last() else {
                if place.is_nowhere() || self.shows_end(account, &place).await? {
                    return Ok(());
                }
                let Some(pause) = pauses.next() else {
                    return Err(endpoint.lacks(format!(
                        "tells nothing behind a signature of {account} in slot {}, and nothing that shows that it knows it",
                        place.lowest
                    )));
                };
                tokio::time::sleep(endpoint.cooldown().max(*pause)).await;
                continue;
            };
            let is_new = place.advance(&page).map_err(|reason| endpoint.unusable(SIGNATURES, &reason))?;
            page.iter().for_each(|signature| self.slots.add(signature.slot));
            if oldest.slot < first {
                return Ok(());
            }
            stale = if is_new { 0 } else { stale + 1 };
            if stale > STALE_MAX {
                let reason = format!("nothing new behind a signature of slot {}, page after page", place.lowest);
                return Err(endpoint.unusable(SIGNATURES, &reason));
            }
            // Two storages behind one address order a slot in two ways: the same question may have another answer, and
            // if not, the next page goes on.
            if stale.is_multiple_of(2) {
                before = Some(oldest.signature.to_owned());
            }
        }
        Err(endpoint.unusable(SIGNATURES, &format!("more than {PAGES_MAX} pages")))
    }

    /// Whether the endpoint shows the oldest signatures again, and nothing behind them: then they are the end, and the
    /// endpoint knows them.
    async fn shows_end(&mut self, account: &str, place: &Place) -> Result<bool, SolanaError> {
        let (endpoint, last) = (self.endpoint, *self.slots.range.end());
        let refused = |error: &NodeError| refused(endpoint, account, error);
        let answer = self.ask(|| page(account, place.above.as_deref(), last), refused).await?;
        let page: Vec<Signature<'_>> = endpoint.parse(SIGNATURES, &answer)?;
        Ok(place.ends_with(&page))
    }

    async fn first_available(&mut self) -> Result<u64, SolanaError> {
        let endpoint = self.endpoint;
        let call = || Call { method: FIRST_AVAILABLE, params: json!([]) };
        let answer = self.ask(call, |error| failed(endpoint, FIRST_AVAILABLE, error)).await?;
        endpoint.parse(FIRST_AVAILABLE, &answer)
    }

    /// The answer to a call. Once the list has begun, a failure that may pass is retried: an endpoint that limits
    /// calls always refuses some, and a list of thousands that began again each time would never end.
    async fn ask(
        &mut self,
        call: impl Fn() -> Call,
        refused: impl Fn(&NodeError) -> SolanaError,
    ) -> Result<Raw, SolanaError> {
        let mut pauses = self.endpoint.timings.page_again.iter();
        loop {
            let (error, may_pass) = match one(self.endpoint, call()).await {
                Ok(Ok(answer)) => {
                    self.has_begun = true;
                    return Ok(answer);
                }
                Ok(Err(error)) => (refused(&error), reaction(&error).advice().is_none()),
                Err(error) => {
                    let may_pass = !error.is_permanent();
                    (error, may_pass)
                }
            };
            let Some(pause) = pauses.next().filter(|_| self.has_begun && may_pass) else { return Err(error) };
            tokio::time::sleep(self.endpoint.cooldown().max(*pause)).await;
        }
    }
}

/// How far down the pages have come.
struct Place {
    lowest: u64,
    /// The signatures of that slot.
    seen: HashSet<String>,
    /// The last signature of the slots above it; `None` while there are none.
    above: Option<String>,
    /// The last signature of all.
    oldest: Option<String>,
}

impl Default for Place {
    fn default() -> Self {
        Place { lowest: u64::MAX, seen: HashSet::new(), above: None, oldest: None }
    }
}

impl Place {
    /// Whether a page, which is not empty, shows anything new.
    ///
    /// # Errors
    /// A page that begins above the last one's end, or goes up: nodes that do not know `before` report the newest
    /// page.
    fn advance(&mut self, page: &[Signature<'_>]) -> Result<bool, String> {
        let mut above = self.lowest;
        let mut is_new = false;
        for Signature { signature, slot } in page {
            if *slot > above {
                return Err(format!("slot {slot} behind slot {above}, which is not newest first"));
            }
            if base58::signature(signature).is_none() {
                return Err("a signature that is not 64 bytes in base58".to_owned());
            }
            if *slot < self.lowest {
                self.above = self.oldest.take();
                (self.lowest, self.seen) = (*slot, HashSet::new());
            }
            self.oldest = Some((*signature).to_owned());
            is_new |= self.seen.insert((*signature).to_owned());
            above = *slot;
        }
        Ok(is_new)
    }

    fn is_nowhere(&self) -> bool {
        self.oldest.is_none()
    }

    /// Whether a page that begins above the lowest slot shows signatures of that slot, all of which are known, and no
    /// lower slot.
    fn ends_with(&self, page: &[Signature<'_>]) -> bool {
        let mut lowest = page.iter().filter(|reported| reported.slot <= self.lowest).peekable();
        lowest.peek().is_some()
            && lowest.all(|reported| reported.slot == self.lowest && self.seen.contains(reported.signature))
    }
}

/// A page of what is final, reported by a node that has the end of the range.
fn page(account: &str, before: Option<&str>, last: u64) -> Call {
    let mut how = json!({ "limit": PAGE_MAX, "commitment": "finalized", "minContextSlot": last });
    if let Some(before) = before {
        how["before"] = json!(before);
    }
    Call { method: SIGNATURES, params: json!([account, how]) }
}

/// What a refused page says of the endpoint.
fn refused(endpoint: &Endpoint, account: &str, error: &NodeError) -> SolanaError {
    match reaction(error) {
        Reaction::LeaveOpen | Reaction::AskArchive | Reaction::AskAgain => {
            endpoint.lacks(format!("does not tell the signatures of {account}: {error}"))
        }
        Reaction::AskElsewhere
        | Reaction::BackOff
        | Reaction::RaiseVersion { .. }
        | Reaction::Drop
        | Reaction::Page => failed(endpoint, SIGNATURES, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(max: usize, reported: impl IntoIterator<Item = u64>) -> Slots {
        let mut slots = Slots::new(10..=100, max);
        reported.into_iter().for_each(|slot| slots.add(slot));
        slots
    }

    #[test]
    fn of_too_many_slots_the_oldest_are_kept_and_the_list_ends_below_the_first_that_found_no_room() {
        let kept = slots(3, [9, 10, 50, 90, 101]);
        assert_eq!((kept.through(), kept.into_numbers()), (100, vec![10, 50, 90]));
        let kept = slots(3, [90, 50, 60, 40, 95, 55]);
        assert_eq!((kept.through(), kept.into_numbers()), (59, vec![40, 50, 55]));
    }

    #[test]
    fn two_lists_make_one_that_goes_as_far_as_both() {
        let (short, whole) = (slots(2, [20, 30, 40]), slots(9, [20, 35, 60]));
        let mut both = whole.clone();
        both.merge(&short);
        assert_eq!((both.through(), both.clone().into_numbers()), (39, vec![20, 30, 35]));
        assert!(!whole.covers(&both) && !short.covers(&both));
        assert!(slots(9, [20, 30, 35, 70]).covers(&both));
    }
}
