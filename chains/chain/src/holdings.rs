//! What addresses hold: their balances at a final block, as the nodes of a chain tell them.
//!
//! Promises: an amount is what as many endpoints as must agree tell alike of one address; an answer that is empty, short or
//! of an older block is none, and never zero. No root covers it, and no credit is decided by it: what is proved, where a
//! chain can prove it, is [`crate::AddressSource::balances`].

use crate::{Address, AssetId, BlockHash, BlockRef, Proof, SourceError, U256};

/// What addresses held at a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// The number of the final block: the one that was asked for, or a later one where a chain tells nothing older than
    /// its newest state.
    pub number: u64,
    /// Its hash; `None` where only the number is told.
    pub hash: Option<BlockHash>,
    /// Whose word it is.
    pub proof: Proof,
    /// For each address, in the order of the question, its amounts in the order of the assets, in base units; `None` where
    /// those who must tell it alike did not.
    pub amounts: Vec<Option<Vec<U256>>>,
}

/// A chain that can be asked what addresses hold.
pub trait HoldingSource: Send + Sync + 'static {
    /// What each of `addresses` held of each of `assets` after `at`, which is final, or after a later block that is final
    /// too. It retries nothing.
    fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> impl Future<Output = Result<Holdings, SourceError>> + Send;
}

/// What is believed of each address when each of `told` is one endpoint's answer, address by address: the amounts that
/// `agree` of them tell alike.
pub fn told_alike(told: &[Vec<Vec<U256>>], addresses: usize, agree: usize) -> Vec<Option<Vec<U256>>> {
    let alike = |index: usize| {
        let votes = || told.iter().filter_map(move |answer| answer.get(index));
        votes().find(|one| votes().filter(|other| other == one).count() >= agree.max(1)).cloned()
    };
    (0..addresses).map(alike).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(amounts: [u64; 2]) -> Vec<Vec<U256>> {
        amounts.map(|amount| vec![U256::from(amount)]).to_vec()
    }

    #[test]
    fn an_amount_is_believed_that_as_many_tell_alike_as_must_agree() {
        let some = |amount: u64| Some(vec![U256::from(amount)]);
        let cases = [
            (vec![], 1, [None, None]),
            (vec![answer([5, 0])], 1, [some(5), some(0)]),
            (vec![answer([5, 0])], 2, [None, None]),
            (vec![answer([5, 0]), answer([5, 1])], 2, [some(5), None]),
            (vec![answer([5, 0]), answer([6, 1]), answer([6, 0])], 2, [some(6), some(0)]),
            // None that must agree is one all the same.
            (vec![], 0, [None, None]),
            // A short answer says nothing of whom it leaves out.
            (vec![answer([5, 0])[..1].to_vec(), answer([5, 0])], 2, [some(5), None]),
        ];
        for (told, agree, expected) in cases {
            assert_eq!(told_alike(&told, 2, agree), expected, "{told:?}, {agree}");
        }
    }
}
