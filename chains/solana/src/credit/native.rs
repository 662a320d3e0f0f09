//! SOL: what the lamports of owners changed by.
//!
//! A token account's lamports are no SOL of its owner: they are rent, or stand behind wrapped SOL. So they never
//! credit. But rent that comes back from an own account is no deposit either, and whoever pays rent for another has
//! paid. Sums are of 64-bit numbers, fewer than an answer has bytes: they cannot overflow 128 bits.

use landfall_chain::{AssetId, Verdict};

use crate::credit::tokens::Associated;
use crate::credit::{Flow, Loss, Rest, Worth, gained, tokens};
use crate::error::Unusable;
use crate::rules::{Rules, WRAPPED_SOL, Wrapped};
use crate::tx::{Holding, Tx};

/// What one owner's lamports changed by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder<'a> {
    pub(super) owner: &'a str,
    /// Those of the account itself; the fee is added back.
    pub(super) own: i128,
    /// Those that stand behind wrapped SOL.
    pub(super) wrapped: i128,
    /// All others in token accounts: rent.
    rent: i128,
}

impl Holder<'_> {
    /// What the owner is richer by, counting what is locked up.
    pub(super) fn all(&self) -> i128 {
        self.own + self.wrapped + self.rent
    }
}

/// Everyone whose lamports changed, and everyone with a token account.
pub(super) fn holders<'a>(tx: &Tx<'a>) -> Vec<Holder<'a>> {
    let mut holders = Vec::new();
    for holding in &tx.tokens {
        let Some(owner) = holding.owner else { continue };
        let change = if holding.mint == WRAPPED_SOL { holding.change() } else { 0 };
        holder(&mut holders, owner).wrapped += change;
    }
    let owners = holders.len();
    for (account, key) in tx.keys.iter().enumerate() {
        let change = tx.lamports_change(account);
        if change == 0 {
            continue;
        }
        if tx.is_token_account(account) {
            if let Some(owner) = tx.token_owner(account) {
                holder(&mut holders, owner).rent += rent_change(tx, account, change);
            }
        } else if let Some(holder) = holders[..owners].iter_mut().find(|holder| holder.owner == *key) {
            holder.own += change;
        } else {
            holders.push(Holder { owner: key, own: change, wrapped: 0, rent: 0 });
        }
    }
    holders
}

fn holder<'h, 'a>(holders: &'h mut Vec<Holder<'a>>, owner: &'a str) -> &'h mut Holder<'a> {
    let at = holders.iter().position(|holder| holder.owner == owner).unwrap_or_else(|| {
        holders.push(Holder { owner, own: 0, wrapped: 0, rent: 0 });
        holders.len() - 1
    });
    &mut holders[at]
}

/// The change of a token account's lamports that does not stand behind wrapped SOL. `SyncNative`, which counts
/// lamports that came earlier, moves none.
fn rent_change(tx: &Tx<'_>, account: usize, lamports: i128) -> i128 {
    let is_its = |holding: &&Holding<'_>| holding.account == account && holding.mint == WRAPPED_SOL;
    let wrapped: i128 = tx.tokens.iter().filter(is_its).map(Holding::change).sum();
    if lamports > 0 { (lamports - wrapped.max(0)).max(0) } else { (lamports - wrapped.min(0)).min(0) }
}

/// What was gained and lost of SOL.
pub(super) fn flow<'a>(
    rules: &Rules,
    tx: &Tx<'a>,
    holders: &[Holder<'a>],
    known: &mut Associated,
) -> Result<Flow<'a>, Unusable> {
    let mut flow = Flow {
        asset: AssetId::Native,
        gains: Vec::new(),
        losses: Vec::new(),
        is_listed: true,
        payers: holders.iter().filter(|holder| holder.all() < 0).map(|holder| holder.owner).collect(),
    };
    if rules.wrapped == Wrapped::Native {
        tokens::all_owned(tx, WRAPPED_SOL)?;
    }
    let supply: i128 = holders.iter().map(|holder| holder.wrapped).sum();
    for holder in holders {
        let (owner, (change, unwrapped)) = (
            holder.owner,
            match rules.wrapped {
                Wrapped::Token => (holder.own, gained(-holder.wrapped).min(gained(-supply))),
                Wrapped::Native => (holder.own + holder.wrapped, 0),
            },
        );
        if change <= 0 {
            if change < 0 {
                flow.losses.push(Loss { owner, amount: change.unsigned_abs() });
            }
            continue;
        }
        let mut rest = Rest { owner, left: gained(change), gains: &mut flow.gains };
        rest.take(gained(-holder.rent), Worth::Kept(Verdict::RentRefund));
        rest.take(unwrapped, Worth::Kept(Verdict::SelfTransfer));
        if rules.wrapped == Wrapped::Native && holder.wrapped != 0 {
            let stray = tokens::stray_wrapped(tx, owner, known)?;
            rest.take(stray, Worth::Kept(Verdict::IneligibleTokenAccount));
        }
        rest.take(u128::MAX, Worth::Credit);
    }
    Ok(flow)
}
