//! What may be confirmed above the block that is final for all, deposits and payments of transfers: what fits a tier of the
//! network, and what an operator declared final. Each needs a block on our own chain. What only a trace shows may be
//! confirmed here once a second witness corroborates it.

use landfall_chain::{AssetId, BlockRef, Tier, Tip, U256};

use crate::overrides::Overrides;
use crate::store::Reader;
use crate::store::cursors::{self, Cursor};
use crate::store::deposits::{self, Fits, Settleable};
use crate::store::{audit, marks, witnesses};
use crate::time::Timestamp;
use crate::watcher::TickError;
use crate::watcher::books::Books;
use crate::watcher::settle::verdict::{audited, is_ours};

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
        let mut due: Vec<Due> = Vec::new();
        for (fits, grant) in self.grants(reader, at, tip, orders, from).await? {
            let through = grant.through.number;
            // Traces show nothing but the native currency.
            let inside = fits.unwrap_or(Fits { asset: AssetId::Native, least: U256::ZERO, most: U256::MAX });
            let mut found = match fits {
                Some(fits) => deposits::settleable_by_tier(reader, self.chain(), &fits, (from, through), limit).await?,
                None => deposits::settleable(reader, self.chain(), (from + 1, through), limit).await?,
            };
            found.extend(witnesses::borne_out(reader, self.chain(), &inside, (from, through), limit).await?);
            let known: Vec<_> = due.iter().map(|due| due.settleable.deposit.id).collect();
            let more = found.into_iter().filter(|found| fits.is_some() || !known.contains(&found.deposit.id));
            due.extend(more.map(|settleable| Due { settleable, grant: Some(grant.clone()) }));
        }
        Ok(due)
    }

    /// Records which payments of transfers above `above`, the block that is final for all, are final for themselves.
    pub(in crate::watcher) async fn grant_payments(
        &self,
        at: &BlockRef,
        tip: &Tip,
        orders: &Overrides,
        above: Option<BlockRef>,
        now: Timestamp,
    ) -> Result<(), TickError> {
        let (chain, from) = (self.chain(), above.map_or(0, |block| block.number));
        if self.network.finality.tiers.is_empty() && orders.confirm.is_none() {
            return Ok(());
        }
        let mut reader = self.db.read().await?;
        let payments = marks::grantable(&mut reader, chain).await?;
        if payments.is_empty() {
            return Ok(());
        }
        let grants = self.grants(&mut reader, at, tip, orders, from).await?;
        drop(reader);
        let granted = payments.iter().filter_map(|of| {
            let is_within = |through: &BlockRef| of.block.number > from && of.block.number <= through.number;
            let is_for = |fits: &Fits| fits.asset == of.asset && (fits.least..=fits.most).contains(&of.amount);
            let grant =
                grants.iter().find(|(fits, grant)| is_within(&grant.through) && fits.as_ref().is_none_or(is_for));
            grant.map(|(_, grant)| (of, grant))
        });
        let granted: Vec<_> = granted.collect();
        if granted.is_empty() {
            return Ok(());
        }
        let mut tx = self.db.begin().await?;
        // No block is disconnected before the end of the transaction.
        Cursor::lock(&mut tx, chain).await?;
        for (of, Grant { through, reason }) in granted {
            if !is_ours(&mut tx, chain, &of.block).await? || !is_ours(&mut tx, chain, through).await? {
                continue;
            }
            marks::grant(&mut tx, chain, of).await?;
            if let Some(reason) = reason {
                let what = format!("the payment of transfer {} in block {}", of.transfer, of.block);
                audit::append(&mut tx, &audited(chain, "confirmed_by_override", what, reason, now)).await?;
            }
        }
        Ok(tx.commit().await?)
    }

    /// What is final above `from`, by a tier for what fits it, and by an operator for everything.
    async fn grants(
        &self,
        reader: &mut Reader,
        at: &BlockRef,
        tip: &Tip,
        orders: &Overrides,
        from: u64,
    ) -> Result<Vec<(Option<Fits>, Grant)>, TickError> {
        let (tiers, mut grants) = (&self.network.finality.tiers, Vec::new());
        for (index, through) in tip.tiers.iter().enumerate().take(tiers.len()) {
            let Some(through) = self.ours(reader, at, *through, from).await? else { continue };
            let fits = fits(tiers, index);
            grants.extend(fits.map(|fits| (Some(fits), Grant { through, reason: None })));
        }
        if let Some((through, reason)) = &orders.confirm
            && let Some(through) = self.ours(reader, at, Some(*through), from).await?
        {
            grants.push((None, Grant { through, reason: Some(reason.clone()) }));
        }
        Ok(grants)
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
