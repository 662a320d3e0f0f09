//! What addresses hold: their balances at a final block, as the nodes of a chain report them.
//!
//! Promises: an amount is what as many endpoints as must agree report alike of one asset of one address; their reports
//! of other assets do not matter. An answer that is empty, short or of an older block is no report, and never zero. No
//! root covers it, and it decides no credit. What a chain can prove is [`crate::AddressSource::account_states`].

use crate::{Address, AssetId, BlockRef, Proof, SourceError, U256};

/// What addresses held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// How many endpoints reported it.
    pub proof: Proof,
    /// For each address, in the order of the question, each asset in its order. `None` where too few endpoints
    /// reported the same.
    pub amounts: Vec<Vec<Option<Holding>>>,
}

/// How much of an asset an address held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    /// In base units.
    pub amount: U256,
    /// The number of the final block at which this is the amount, if nothing moved up to `through`. It is the block
    /// that was asked for, or a later one where a chain reports only its newest state.
    pub number: u64,
    /// The newest block of the reports that agree: 7 where one is of block 5 and one of block 7.
    pub through: u64,
}

/// What one endpoint reports of an asset of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportedHolding {
    /// In base units.
    pub amount: U256,
    /// The number of the final block that the report is of.
    pub number: u64,
}

/// A chain that can be asked what addresses hold.
pub trait HoldingSource: Send + Sync + 'static {
    /// What each of `addresses` held of each of `assets` after `at`, which is final, or after a later final block. It
    /// retries nothing.
    fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> impl Future<Output = Result<Holdings, SourceError>> + Send;
}

/// What is believed of each asset of each address: what `agree` of the endpoints report alike. Each of `reported` is
/// one endpoint's answer, address by address and asset by asset; `None` is what it does not report.
pub fn holdings_reported_alike(
    reported: &[Vec<Vec<Option<ReportedHolding>>>],
    (addresses, assets): (usize, usize),
    agree: usize,
) -> Vec<Vec<Option<Holding>>> {
    let of = |address: usize, asset: usize| {
        let votes = || reported.iter().filter_map(move |answer| *answer.get(address)?.get(asset)?);
        votes().find_map(|one| alike(one.amount, votes(), agree.max(1)))
    };
    (0..addresses).map(|address| (0..assets).map(|asset| of(address, asset)).collect()).collect()
}

/// The amount, if `agree` of the votes are for it.
fn alike(amount: U256, votes: impl Iterator<Item = ReportedHolding>, agree: usize) -> Option<Holding> {
    // The first that suffice: more would only make it older and less sure.
    let numbers: Vec<u64> = votes.filter(|vote| vote.amount == amount).map(|vote| vote.number).take(agree).collect();
    let (number, through) = (*numbers.iter().min()?, *numbers.iter().max()?);
    (numbers.len() == agree).then_some(Holding { amount, number, through })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an endpoint reports of block `number`: of two addresses, two assets each.
    fn answer(number: u64, amounts: [[Option<u64>; 2]; 2]) -> Vec<Vec<Option<ReportedHolding>>> {
        let reported =
            |amount: Option<u64>| amount.map(|amount| ReportedHolding { amount: U256::from(amount), number });
        amounts.map(|amounts| amounts.map(reported).to_vec()).to_vec()
    }

    fn is(amount: u64, number: u64, through: u64) -> Option<Holding> {
        Some(Holding { amount: U256::from(amount), number, through })
    }

    #[test]
    fn an_amount_is_believed_that_as_many_report_alike_as_must_agree() {
        let of = |amounts: [u64; 2]| answer(9, [amounts.map(Some), [Some(1), Some(1)]]);
        let cases = [
            (vec![], 1, [None, None]),
            (vec![of([5, 0])], 1, [is(5, 9, 9), is(0, 9, 9)]),
            (vec![of([5, 0])], 2, [None, None]),
            // One asset that is reported differently says nothing of the other.
            (vec![of([5, 0]), of([5, 1])], 2, [is(5, 9, 9), None]),
            (vec![of([5, 0]), of([6, 1]), of([6, 0])], 2, [is(6, 9, 9), is(0, 9, 9)]),
            // None that must agree is one all the same.
            (vec![], 0, [None, None]),
            // What is not reported is no vote, and no zero.
            (vec![answer(9, [[Some(5), None]; 2]), of([5, 0])], 2, [is(5, 9, 9), None]),
            (vec![answer(9, [[None, None]; 2]), answer(9, [[None, None]; 2])], 2, [None, None]),
            // A short answer says nothing of whom it leaves out.
            (vec![Vec::new(), of([5, 0]), of([5, 1])], 2, [is(5, 9, 9), None]),
        ];
        for (reported, agree, expected) in cases {
            assert_eq!(holdings_reported_alike(&reported, (2, 2), agree)[0], expected, "{reported:?}, {agree}");
        }
    }

    #[test]
    fn an_amount_is_of_the_blocks_of_those_who_report_it_and_of_no_other() {
        let of = |number, amount| answer(number, [[Some(amount), Some(1)], [Some(2), Some(2)]]);
        // The first was asked before something came: it does not corroborate what the others report.
        let reported = [of(5, 3), of(8, 7), of(7, 7)];
        let believed = holdings_reported_alike(&reported, (2, 2), 2);
        assert_eq!(believed, [[is(7, 7, 8), is(1, 5, 8)], [is(2, 5, 8), is(2, 5, 8)]]);
        assert_eq!(holdings_reported_alike(&reported, (2, 2), 3)[0], [None, is(1, 5, 8)]);
    }
}
