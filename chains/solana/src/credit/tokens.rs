//! Tokens: what each owner's token accounts changed by, all of one mint together.
//!
//! By owner and not by account: an account may change its owner with all that is in it, and a movement between two
//! accounts of one owner pays nobody. What came into the owner's associated token account is eligible. What came into
//! another account of the owner's is not, and goes where a person sees it. Only listed mints make legs. Anybody can
//! make any amount of an unlisted one, so it is returned to a caller who asks, and kept nowhere. Two exceptions are
//! kept for a person: wrapped SOL, which is worth as much as SOL, and a listed mint under another program, which is
//! somebody's mistake. Sums cannot overflow, as in `native`.

use hashbrown::HashMap;
use landfall_chain::{Address, AssetId, Legs, Verdict};

use crate::ata::{self, TokenProgram};
use crate::base58;
use crate::credit::native::Holder;
use crate::credit::{Flow, Loss, Rest, Worth, gained};
use crate::error::Unusable;
use crate::rules::{Listed, Rules, WRAPPED_SOL, Wrapped};
use crate::tx::{Holding, Tx};

/// What was gained and lost of each mint: of the listed ones, of those that are kept for a person, and of all where
/// they are to be explained.
pub(super) fn flows<'a>(
    rules: &Rules,
    tx: &Tx<'a>,
    holders: &[Holder<'a>],
    slot: u64,
    asked: Legs,
    known: &mut Associated,
) -> Result<Vec<Flow<'a>>, Unusable> {
    let mut flows = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for holding in &tx.tokens {
        let mint = holding.mint;
        if seen.contains(&mint) {
            continue;
        }
        seen.push(mint);
        if mint == WRAPPED_SOL && rules.wrapped == Wrapped::Native {
            continue;
        }
        let unlisted = match rules.listed(holding, tx.index, slot)? {
            Listed::As(listed, program) => {
                all_owned(tx, mint)?;
                all_listed(rules, tx, mint, slot)?;
                let place = Place { mint, key: listed.key, program };
                flows.push(listed_flow(tx, holders, &place, known)?);
                continue;
            }
            Listed::UnderAnother => Some(Worth::Kept(Verdict::UnlistedToken)),
            Listed::No if mint == WRAPPED_SOL => Some(Worth::Kept(Verdict::UnlistedToken)),
            Listed::No => (asked == Legs::Explained).then_some(Worth::Reported(Verdict::UnlistedToken)),
        };
        if let Some(worth) = unlisted {
            flows.push(unlisted_flow(tx, holders, mint, worth)?);
        }
    }
    Ok(flows)
}

/// That every holding of a mint that counts reports its owner.
///
/// # Errors
/// One that does not: the credits would not be complete.
pub(super) fn all_owned(tx: &Tx<'_>, mint: &str) -> Result<(), Unusable> {
    match tx.tokens.iter().find(|holding| holding.mint == mint && holding.owner.is_none()) {
        Some(_) => Err(Unusable::Owner { index: tx.index, mint: mint.to_owned() }),
        None => Ok(()),
    }
}

/// That every holding of a listed mint reports the decimals that are listed.
///
/// # Errors
/// One that does not, wherever it stands: it would make a sum a thousandfold.
fn all_listed(rules: &Rules, tx: &Tx<'_>, mint: &str, slot: u64) -> Result<(), Unusable> {
    let mut its = tx.tokens.iter().filter(|holding| holding.mint == mint);
    its.try_for_each(|holding| rules.listed(holding, tx.index, slot).map(drop))
}

/// What came of wrapped SOL into accounts of the owner that are not the associated one.
pub(super) fn stray_wrapped(tx: &Tx<'_>, owner: &str, known: &mut Associated) -> Result<u128, Unusable> {
    let key = base58::key(WRAPPED_SOL).ok_or(Unusable::Key { index: tx.index })?;
    let place = Place { mint: WRAPPED_SOL, key, program: TokenProgram::SplToken };
    place.stray(tx, owner, known)
}

/// A mint, and what leads to the associated accounts of it.
struct Place<'m> {
    mint: &'m str,
    key: [u8; 32],
    program: TokenProgram,
}

/// An account, its owner and its mint.
type Keys = [[u8; 32]; 3];

/// Which accounts are the associated ones, under either program. Those of pools come again and again in one block, and
/// to find that one is not costs the most.
#[derive(Default)]
pub(super) struct Associated(HashMap<(Keys, TokenProgram), bool>);

impl Place<'_> {
    fn stray(&self, tx: &Tx<'_>, owner: &str, known: &mut Associated) -> Result<u128, Unusable> {
        let key = |text| base58::key(text).ok_or(Unusable::Key { index: tx.index });
        let owner_key = key(owner)?;
        let is_its = |holding: &&Holding<'_>| holding.mint == self.mint && holding.owner == Some(owner);
        let mut change = 0;
        for holding in tx.tokens.iter().filter(is_its) {
            let account = key(tx.keys[holding.account])?;
            let place = ([account, owner_key, self.key], self.program);
            let is_of = || ata::is_of(&account, &owner_key, self.program, &self.key);
            if !*known.0.entry(place).or_insert_with(is_of) {
                change += holding.change();
            }
        }
        Ok(gained(change))
    }
}

fn listed_flow<'a>(
    tx: &Tx<'a>,
    holders: &[Holder<'a>],
    place: &Place<'_>,
    known: &mut Associated,
) -> Result<Flow<'a>, Unusable> {
    let changes = changes(tx, place.mint);
    let mut flow = Flow {
        asset: AssetId::Token(Address::Solana(place.key)),
        gains: Vec::new(),
        losses: Vec::new(),
        is_listed: true,
        payers: payers(&changes),
    };
    let supply: i128 = changes.iter().map(|(_, change)| change).sum();
    let is_wrapped = place.mint == WRAPPED_SOL;
    if is_wrapped && flow.payers.is_empty() {
        flow.payers = holders.iter().filter(|holder| holder.all() < 0).map(|holder| holder.owner).collect();
    }
    for (owner, change) in changes {
        if change < 0 {
            flow.losses.push(Loss { owner, amount: change.unsigned_abs() });
        }
        let mut rest = Rest { owner, left: gained(change), gains: &mut flow.gains };
        if change > 0 {
            if is_wrapped {
                rest.take(wrapped_by(holders, owner, supply), Worth::Kept(Verdict::SelfTransfer));
            }
            rest.take(place.stray(tx, owner, known)?, Worth::Kept(Verdict::IneligibleTokenAccount));
            rest.take(u128::MAX, Worth::Credit);
        } else if change == 0 {
            // Between two accounts of one owner.
            rest.left = within(tx, place.mint, owner);
            rest.take(u128::MAX, Worth::Reported(Verdict::SelfTransfer));
        }
    }
    Ok(flow)
}

/// What was gained of a mint that is not listed. There are no books of it.
fn unlisted_flow<'a>(tx: &Tx<'a>, holders: &[Holder<'a>], mint: &'a str, worth: Worth) -> Result<Flow<'a>, Unusable> {
    let key = base58::key(mint).ok_or(Unusable::Key { index: tx.index })?;
    let (changes, mut gains) = (changes(tx, mint), Vec::new());
    let supply: i128 = changes.iter().map(|(_, change)| change).sum();
    for (owner, change) in changes.iter().copied() {
        let mut rest = Rest { owner, left: gained(change), gains: &mut gains };
        if mint == WRAPPED_SOL {
            rest.take(wrapped_by(holders, owner, supply), Worth::Reported(Verdict::SelfTransfer));
        }
        rest.take(u128::MAX, worth);
    }
    let asset = AssetId::Token(Address::Solana(key));
    Ok(Flow { asset, gains, losses: Vec::new(), is_listed: false, payers: payers(&changes) })
}

/// How much of their own SOL an owner may have wrapped, given how much more wrapped SOL there is than before.
fn wrapped_by(holders: &[Holder<'_>], owner: &str, supply: i128) -> u128 {
    let own = holders.iter().find(|holder| holder.owner == owner).map_or(0, |holder| holder.own);
    gained(-own).min(gained(supply))
}

/// What each owner's accounts of a mint changed by.
fn changes<'a>(tx: &Tx<'a>, mint: &str) -> Vec<(&'a str, i128)> {
    let mut changes: Vec<(&str, i128)> = Vec::new();
    for holding in tx.tokens.iter().filter(|holding| holding.mint == mint) {
        let Some(owner) = holding.owner else { continue };
        match changes.iter_mut().find(|(other, _)| *other == owner) {
            Some((_, change)) => *change += holding.change(),
            None => changes.push((owner, holding.change())),
        }
    }
    changes
}

fn payers<'a>(changes: &[(&'a str, i128)]) -> Vec<&'a str> {
    changes.iter().filter(|(_, change)| *change < 0).map(|(owner, _)| *owner).collect()
}

/// Who holds what of listed mints after a transaction: by mint and owner, each once.
pub(super) fn listed_holders<'a>(rules: &Rules, tx: &Tx<'a>, slot: u64) -> Result<Vec<([u8; 32], &'a str)>, Unusable> {
    let mut holders = Vec::new();
    for holding in tx.tokens.iter().filter(|holding| holding.is_after) {
        let Listed::As(mint, _) = rules.listed(holding, tx.index, slot)? else { continue };
        if let Some(owner) = holding.owner.filter(|owner| !holders.contains(&(mint.key, *owner))) {
            holders.push((mint.key, owner));
        }
    }
    Ok(holders)
}

/// What moved between accounts of one owner.
fn within(tx: &Tx<'_>, mint: &str, owner: &str) -> u128 {
    let mut accounts: Vec<(usize, i128)> = Vec::new();
    for holding in tx.tokens.iter().filter(|holding| holding.mint == mint && holding.owner == Some(owner)) {
        match accounts.iter_mut().find(|(account, _)| *account == holding.account) {
            Some((_, change)) => *change += holding.change(),
            None => accounts.push((holding.account, holding.change())),
        }
    }
    accounts.iter().map(|(_, change)| gained(*change)).sum()
}
