//! The marks of intents in a block's logs: which one-time keys were used, and what for.
//!
//! EIP-3009: a payment is two neighbouring logs of the token in one transaction: `AuthorizationUsed(payer, key)`, and
//! right behind it `Transfer(payer, destination, amount)`. FiatToken logs them in this order (`EIP3009.sol`:
//! `_markAuthorizationAsUsed`, then `_transfer`), and so does OpenZeppelin Contracts 5.7.
//! A delegate: its logs show what a wallet was made to do (`delegate`). For native value nothing else
//! is needed. For a token, the transaction must hold as many equal `Transfer` logs of the payer as equal payments,
//! because a token may return false and do nothing. What failed was undone: it paid nothing, whatever stands beside it.
//! Promises: a token counts only if its network lists it with this route. A key has the form of our keys; the caller
//! knows whose it is. If nothing has a route, reading marks costs nothing.

use alloy::primitives::{B256, b256};
use landfall_chain::{Address, AssetId, Effect, IntentKey, Mark, TxRef};

use crate::legs::{self, Rules, address_of, reference};
use crate::pay::delegate::{self, Use};
use crate::wire::{Kind, WireBlock, WireLog, WireReceipt, WireTx};

/// keccak256("AuthorizationUsed(address,bytes32)")
pub(crate) const USED: B256 = b256!("98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5");
/// keccak256("AuthorizationCanceled(address,bytes32)")
pub(crate) const CANCELED: B256 = b256!("1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81");

/// The marks of a block whose receipts are proved. A failed transaction has no logs.
pub(crate) fn of_block(
    rules: &Rules,
    block: &WireBlock<'_, Vec<WireTx<'_>>>,
    receipts: &[WireReceipt<'_>],
) -> Vec<Mark> {
    let mut marks = Vec::new();
    if !rules.take_intents() {
        return marks;
    }
    for (wire, receipt) in block.transactions.iter().zip(receipts) {
        // A block with another type was refused before.
        let Ok(kind) = Kind::parse(wire.kind, rules.stack) else { continue };
        marks.extend(of_logs(rules, block.number.0, reference(kind, wire), &receipt.logs));
    }
    marks
}

/// The marks of one transaction in block `number`, by its logs in their order.
pub(crate) fn of_logs(rules: &Rules, number: u64, tx: TxRef, logs: &[WireLog<'_>]) -> impl Iterator<Item = Mark> {
    let uses: Vec<Use> = rules.delegates.iter().flat_map(|delegate| delegate::uses(delegate, logs)).collect();
    let of_delegates: Vec<Mark> = uses.iter().filter_map(|it| of_use(rules, number, tx, (it, &uses, logs))).collect();
    of_tokens(rules, number, tx, logs).chain(of_delegates)
}

/// The mark of one of the `uses` of a delegate. `None` where the logs prove neither that it paid nor that it did not.
fn of_use(rules: &Rules, number: u64, tx: TxRef, (it, uses, logs): (&Use, &[Use], &[WireLog<'_>])) -> Option<Mark> {
    let Use { payer, key, token, destination, amount, is_paid } = *it;
    let paid = Effect::Paid { destination: Address::Evm(destination), amount };
    let asset = match token {
        None => AssetId::Native,
        Some(token) => {
            rules.listed.holds(&token, number).then_some(())?;
            AssetId::Token(Address::Evm(token))
        }
    };
    let effect = match token {
        _ if !is_paid => Effect::Nothing,
        None => paid,
        Some(token) => {
            let left = logs.iter().filter(|log| log.address == token).filter_map(legs::token);
            let left: Vec<_> = left.filter(|left| left.sender == payer).collect();
            let exact = left.iter().filter(|left| (left.recipient, left.amount) == (destination, amount)).count();
            let same = |other: &&Use| Use { key, ..**other } == *it;
            match exact >= uses.iter().filter(same).count() {
                true => paid,
                false => left.is_empty().then_some(Effect::Nothing)?,
            }
        }
    };
    Some(Mark { tx, payer: Address::Evm(payer), key, asset, effect })
}

fn of_tokens(rules: &Rules, number: u64, tx: TxRef, logs: &[WireLog<'_>]) -> impl Iterator<Item = Mark> {
    logs.iter().enumerate().filter_map(move |(at, log)| {
        let [event @ (USED | CANCELED), payer, nonce] = log.topics.as_slice() else { return None };
        if !rules.sendable.holds(&log.address.into(), number) {
            return None;
        }
        let (payer, key) = (address_of(payer)?, IntentKey::of_evm_nonce(&nonce.0)?);
        let effect = match *event == USED {
            true => used(log, &payer, (logs.get(at + 1), logs))?,
            false => Effect::Cancelled,
        };
        let asset = AssetId::Token(Address::Evm(log.address.into()));
        Some(Mark { tx, payer: Address::Evm(payer), key, asset, effect })
    })
}

/// What a use did, by the log behind its own. `None` where it stands apart from a payment of the payer in the same
/// transaction: then its logs prove neither that it paid nor that it did not.
fn used(log: &WireLog<'_>, payer: &[u8; 20], (behind, all): (Option<&WireLog<'_>>, &[WireLog<'_>])) -> Option<Effect> {
    let paid = |log_of: &WireLog<'_>| {
        let paid = Some(log_of).filter(|it| it.address == log.address).and_then(legs::token);
        paid.filter(|paid| paid.sender == *payer)
    };
    match behind.and_then(paid) {
        Some(paid) => Some(Effect::Paid { destination: Address::Evm(paid.recipient), amount: paid.amount }),
        None => {
            // One that stands behind another use is that one's.
            let is_of_a_use = |at: usize| {
                let before = at.checked_sub(1).and_then(|before| all.get(before));
                before.is_some_and(|it| it.address == log.address && it.topics.first() == Some(&USED))
            };
            let mut others = all.iter().enumerate().filter(|(_, other)| paid(other).is_some());
            others.all(|(at, _)| is_of_a_use(at)).then_some(Effect::Nothing)
        }
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::keccak256;

    use super::*;

    #[test]
    fn the_topics_are_the_hashes_of_the_events_signatures() {
        assert_eq!(USED, keccak256("AuthorizationUsed(address,bytes32)"));
        assert_eq!(CANCELED, keccak256("AuthorizationCanceled(address,bytes32)"));
    }
}
