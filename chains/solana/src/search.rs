//! In which slots to look for single addresses: those that their signatures name, at two endpoints where there are
//! two.
//!
//! Nothing on Solana proves that a list of signatures is whole. So every slot that either of two endpoints names is
//! read, and the proof says whether two of them named all of it. Promises: as many endpoints as must agree on what is
//! final have reported their lists, each down to the end of the range, or it is an error. Deliberately not here: token
//! accounts that are not the owner's associated ones. Nothing reports which of them there were, and what arrives there
//! is not credited; reading slot by slot finds it.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use landfall_chain::{
    AccountState, Address, AddressSource, BlockRef, Found, Named, Proof, Search, Searching, SourceError, Watched,
};
use landfall_rpc::Need;
use tokio::time::Instant;

use crate::error::SolanaError;
use crate::signatures::{Listed, SIGNATURES, Slots, read_named};
use crate::source::SolanaSource;

/// How many slots one search names at most: eight bytes each, some times over.
const NAMED_MAX: usize = 200_000;
/// How many lists must hold all that is known before two endpoints count as agreeing.
const WITNESSES: usize = 2;

impl AddressSource for SolanaSource {
    fn search(&self) -> Search {
        Search::ByAddress
    }

    async fn candidates(&self, range: RangeInclusive<u64>, watched: Watched<'_>) -> Result<Found, SourceError> {
        let Watched::Listed(addresses) = watched else {
            return Err(SolanaError::NotListed { chain: self.pool.chain() }.into());
        };
        Ok(Found::Named(self.named(range, addresses).await?))
    }

    fn searching(&self) -> Option<Searching> {
        Some(self.searching.clone())
    }

    /// There is no root to prove one by, and nobody asks.
    async fn account_states(&self, _: &[Address], _: &BlockRef) -> Result<Vec<AccountState>, SourceError> {
        Err(SolanaError::NoBalances { chain: self.pool.chain() }.into())
    }
}

impl SolanaSource {
    async fn named(&self, range: RangeInclusive<u64>, addresses: &BTreeSet<Address>) -> Result<Named, SolanaError> {
        let accounts = self.accounts(addresses)?;
        let (from, none) = (*range.start(), Slots::new(range.clone(), NAMED_MAX));
        let need = Need { first: from, last: *range.end(), methods: &[SIGNATURES] };
        let (mut all, mut lists, mut starts, mut last) = (none.clone(), Vec::new(), Vec::new(), None);
        let pages = self.searching.begin();
        for endpoint in self.pool.of_use(need).await {
            let begun = Instant::now();
            pages.list();
            match read_named(endpoint, &accounts, &none, &pages).await {
                Ok(Listed::All(slots)) => {
                    endpoint.answered(begun, None);
                    all.merge(&slots);
                    lists.push(slots);
                }
                Ok(Listed::From(first)) => {
                    endpoint.answered(begun, None);
                    starts.push(first);
                }
                Err(error) if error.is_permanent() => return Err(error),
                Err(error) => {
                    self.pool.noted(endpoint, &error);
                    last = Some(error);
                }
            }
            if witnesses(&lists, &all) >= WITNESSES {
                break;
            }
        }
        let (whole, must) = (lists.len(), self.pool.must_agree().min(WITNESSES));
        if whole < must {
            let no_history = |first| SolanaError::NoHistory { chain: self.pool.chain(), from, first, whole, must };
            // One that could not be asked may keep it.
            return Err(last
                .or_else(|| starts.into_iter().min().map(no_history))
                .unwrap_or_else(|| self.pool.nobody()));
        }
        let proof = if witnesses(&lists, &all) >= WITNESSES { Proof::TwoEndpoints } else { Proof::OneEndpoint };
        Ok(Named { through: all.through(), numbers: all.into_numbers(), proof })
    }

    fn accounts(&self, addresses: &BTreeSet<Address>) -> Result<Vec<String>, SolanaError> {
        let mut accounts = BTreeSet::new();
        for address in addresses {
            let Address::Solana(owner) = address else {
                return Err(SolanaError::ForeignAddress { chain: self.pool.chain(), address: *address });
            };
            accounts.extend(self.reader.accounts_of(owner));
        }
        Ok(accounts.into_iter().map(|account| Address::Solana(account).to_string()).collect())
    }
}

/// How many of the lists leave out nothing of `all`.
fn witnesses(lists: &[Slots], all: &Slots) -> usize {
    lists.iter().filter(|list| list.covers(all)).count()
}
