//! Whether operators' policies leave room for a transfer that is asked for.

use crate::policy::{self, Exceeded, Major, Policy, PolicyLimit, Used};
use crate::store::policies::{self, Payer};
use crate::store::{StoreError, Tx};
use crate::time::Timestamp;
use crate::transfer::Order;

/// Counts a transfer against every policy that applies; returns the narrowest limit that leaves too little. Holds the
/// policies' locks afterwards: whoever accepts at the same time waits, and counts this one too.
pub(super) async fn exceeded(
    tx: &mut Tx,
    order: &Order,
    identity_id: &str,
    now: Timestamp,
) -> Result<Option<Exceeded>, StoreError> {
    let Order { account_id, chain, asset, amount, .. } = order;
    let payer = Payer { account_id, identity_id, chain: *chain, symbol: &asset.symbol };
    let applying = policies::lock_applying(tx, payer).await?;
    let mut counted: Vec<(&Policy, &PolicyLimit, Used)> = Vec::new();
    for policy in &applying {
        for limit in policy.limits.iter().filter(|limit| limit.symbol == asset.symbol) {
            counted.push((policy, limit, policies::used(tx, policy, limit, now).await?));
        }
    }
    Ok(policy::allow(counted, Major::of(*amount, asset.decimals)).err())
}
