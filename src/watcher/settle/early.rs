//! What may be confirmed above the block that is final for all: what fits a tier of the network, and what an operator
//! declared final. Each needs a block on our own chain. What only a trace shows may be confirmed here once a second
//! witness corroborates it.

use landfall_chain::{AssetId, BlockRef, Tier, Tip, U256};

use crate::overrides::Overrides;
use crate::store::Reader;
use crate::store::cursors;
use crate::store::deposits::{self, Fits, Settleable};
use crate::store::witnesses;
use crate::watcher::TickError;
use crate::watcher::books::Books;

/// A deposit that may be confirmed, and by which grant, if its block is not final for all.
#[derive(Debug)]
pub(in crate::watcher) struct Due {
    pub(in crate::watcher) settleable: Settleable,
    pub(in crate::watcher) grant: Option<Grant>,
}

/// A block above what is final for all, up to which something may be confirmed.
#[derive(Clone, Debug)]
pub(in crate::watcher) struct Grant {
    pub(in crate::watcher) through: BlockRef,
    /// The operator's reason, if an operator declared it.
    pub(in crate::watcher) reason: Option<String>,
}

impl<S> Books<S> {
    /// Deposits above `above`, the block that is final for all, that may be confirmed; at most `limit` of each kind.
    pub(in crate::watcher) async fn granted(
        &self,
        reader: &mut Reader,
        at: &BlockRef,
        tip: &Tip,
        orders: &Overrides,
        above: Option<BlockRef>,
        limit: u32,
    ) -> Result<Vec<Due>, TickError> {
        let from = above.map_or(0, |block| block.number);
        let mut due = Vec::new();
        let tiers = &self.network.finality.tiers;
        for (index, through) in tip.tiers.iter().enumerate().take(tiers.len()) {
            let Some(through) = self.ours(reader, at, *through, from).await? else { continue };
            let Some(fits) = fits(tiers, index) else { continue };
            let range = (from, through.number);
            let mut found = deposits::settleable_by_tier(reader, self.chain(), &fits, range, limit).await?;
            found.extend(witnesses::borne_out(reader, self.chain(), &fits, range, limit).await?);
            let grant = Grant { through, reason: None };
            due.extend(found.into_iter().map(|settleable| Due { settleable, grant: Some(grant.clone()) }));
        }
        if let Some((through, reason)) = &orders.confirm
            && let Some(through) = self.ours(reader, at, Some(*through), from).await?
        {
            let range = (from + 1, through.number);
            let mut found = deposits::settleable(reader, self.chain(), range, limit).await?;
            // Traces show nothing but the native currency.
            let inside = Fits { asset: AssetId::Native, least: U256::ZERO, most: U256::MAX };
            found.extend(witnesses::borne_out(reader, self.chain(), &inside, (from, through.number), limit).await?);
            let grant = Grant { through, reason: Some(reason.clone()) };
            let known: Vec<_> = due.iter().map(|due: &Due| due.settleable.deposit.id).collect();
            let more = found.into_iter().filter(|found| !known.contains(&found.deposit.id));
            due.extend(more.map(|settleable| Due { settleable, grant: Some(grant.clone()) }));
        }
        Ok(due)
    }

    /// The block, if it is above `from` and canonical on our chain. `None` if our chain does not reach it yet or has
    /// another block at its number: then it grants nothing.
    async fn ours(
        &self,
        reader: &mut Reader,
        at: &BlockRef,
        block: Option<BlockRef>,
        from: u64,
    ) -> Result<Option<BlockRef>, TickError> {
        let Some(block) = block.filter(|block| block.number > from && block.number <= at.number) else {
            return Ok(None);
        };
        let ours = cursors::canonical_at(reader, self.chain(), block.number).await?;
        Ok((ours == Some(block.hash)).then_some(block))
    }
}

/// What the tier at `index` is for: its asset up to its amount, without what an earlier tier of the asset covers.
/// `None` if earlier tiers cover all of it.
fn fits(tiers: &[Tier], index: usize) -> Option<Fits> {
    let Tier { asset, up_to, .. } = tiers[index];
    let earlier = tiers[..index].iter().filter(|tier| tier.asset == asset).map(|tier| tier.up_to).max();
    let least = earlier.map_or(Some(U256::ZERO), |taken| taken.checked_add(U256::from(1)))?;
    (least <= up_to).then_some(Fits { asset, least, most: up_to })
}

#[cfg(test)]
mod tests {
    use landfall_chain::{Address, FinalityRule};

    use super::*;

    #[test]
    fn of_the_tiers_that_fit_a_deposit_the_first_counts() {
        let token = AssetId::Token(Address::Evm([7; 20]));
        let tier = |asset, up_to: u64| Tier { asset, up_to: U256::from(up_to), rule: FinalityRule::confirmations(1) };
        let tiers = [tier(token, 100), tier(AssetId::Native, 5), tier(token, 1_000), tier(token, 50)];
        let range = |index| fits(&tiers, index).map(|fits| (fits.least, fits.most));
        let amounts = |least: u64, most: u64| Some((U256::from(least), U256::from(most)));
        assert_eq!(
            [range(0), range(1), range(2), range(3)],
            [amounts(0, 100), amounts(0, 5), amounts(101, 1_000), None]
        );
        let all = [Tier { up_to: U256::MAX, ..tier(token, 0) }, tier(token, 9)];
        assert_eq!(fits(&all, 1), None, "nothing is left above the highest amount");
    }
}
