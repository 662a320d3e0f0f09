//! How far a search of single addresses has come while it runs, for whoever waits for it.
//!
//! Promises: it reports a search only while that runs, also when the search is dropped at an await. It decides
//! nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A place where a source says how far its search has come; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Searching(Arc<Mutex<Option<Searched>>>);

/// How far a search has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Searched {
    /// Which list it is at, counted from 1: each endpoint that is asked has one of its own.
    pub list: u32,
    /// How many pages of this list were read.
    pub pages: u64,
    /// How many transactions they named.
    pub named: u64,
    /// Which account of the list is asked for, counted from 1: each has pages of its own.
    pub account: u32,
    /// The lowest number that a page of this account named; `None` before the first.
    pub lowest: Option<u64>,
}

/// The pages of a search that goes on until this is dropped.
#[derive(Debug)]
pub struct Pages<'a>(&'a Searching);

impl Searching {
    /// A search begins.
    pub fn begin(&self) -> Pages<'_> {
        *self.lock() = Some(Searched::default());
        Pages(self)
    }

    /// How far the search that runs now has come; `None` if none does.
    pub fn now(&self) -> Option<Searched> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Searched>> {
        // It is replaced as a whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages<'_> {
    /// Another list is read, from its begin.
    pub fn list(&self) {
        let mut searched = self.0.lock();
        let list = searched.map_or(0, |searched| searched.list) + 1;
        *searched = Some(Searched { list, ..Searched::default() });
    }

    /// Another account of the list is asked for, from its newest page.
    pub fn account(&self) {
        if let Some(searched) = self.0.lock().as_mut() {
            searched.account += 1;
            searched.lowest = None;
        }
    }

    /// A page was read that named so many transactions, with this as their lowest number.
    pub fn add(&self, named: u64, lowest: Option<u64>) {
        if let Some(searched) = self.0.lock().as_mut() {
            searched.pages += 1;
            searched.named += named;
            searched.lowest = searched.lowest.into_iter().chain(lowest).min();
        }
    }
}

impl Drop for Pages<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_reported_of_list_by_list_while_it_goes_on() {
        let searching = Searching::default();
        assert_eq!(searching.now(), None);
        let pages = searching.begin();
        assert_eq!(searching.now(), Some(Searched::default()));
        pages.list();
        pages.account();
        pages.add(1_000, Some(90));
        pages.add(3, Some(70));
        pages.add(0, None);
        let searched = Searched { list: 1, pages: 3, named: 1_003, account: 1, lowest: Some(70) };
        assert_eq!(searching.clone().now(), Some(searched));
        pages.account();
        assert_eq!(
            searching.now(),
            Some(Searched { account: 2, lowest: None, ..searched }),
            "nothing of it is known yet"
        );
        pages.add(1_000, Some(95));
        let searched = Searched { pages: 4, named: 2_003, account: 2, lowest: Some(95), ..searched };
        assert_eq!(searching.now(), Some(searched), "it begins at its newest");
        pages.list();
        assert_eq!(searching.now(), Some(Searched { list: 2, ..Searched::default() }));
        drop(pages);
        assert_eq!(searching.now(), None);
    }
}
