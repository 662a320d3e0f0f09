//! What each owner gained and lost by a transaction, and which of it is a credit.
//!
//! One leg per owner and asset: the net change of what the owner holds. Instructions and logs are never read: some
//! programs move value without either, and a fee or an extension makes less arrive than was sent. A failed transaction
//! moves nothing. The fee is no part of the change: it is added back to who paid it, and reported separately. Each
//! gain is judged once: it is a leg, or it has a verdict. A gain of a listed asset that is no credit still stands in
//! its owner's books, so that what an owner holds is always what came, less what went. All others are returned to a
//! caller who asks to have them explained. The losses show who paid, where exactly one owner lost of the asset; else
//! the fee payer stands in, and the rule says so (`sender` knows more).

mod native;
mod tokens;

use landfall_chain::{
    Address, AssetId, AssetTransfer, Legs, Rejected, SenderRule, TxRef, U256, Verdict, number_equal_legs,
};

use crate::base58;
use crate::credit::tokens::Associated;
use crate::error::Unusable;
use crate::rules::Rules;
use crate::tx::Tx;

/// What a block's transactions come to.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) transfers: Vec<AssetTransfer>,
    /// What owners lost, net.
    pub(crate) debits: Vec<AssetTransfer>,
    /// What came and is no credit.
    pub(crate) unattributed: Vec<Rejected>,
    /// What did not come; only where it was asked for.
    pub(crate) rejected: Vec<Rejected>,
}

/// The changes of one asset in one transaction.
struct Flow<'a> {
    asset: AssetId,
    gains: Vec<Gain<'a>>,
    /// What owners lost; only if `is_listed` is it reported as a debit.
    losses: Vec<Loss<'a>>,
    is_listed: bool,
    /// Who may have paid.
    payers: Vec<&'a str>,
}

struct Gain<'a> {
    owner: &'a str,
    amount: u128,
    worth: Worth,
}

/// What a gain is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    Credit,
    /// No credit, and the owner has it.
    Kept(Verdict),
    /// Only looks like one, or is nothing that we keep books of.
    Reported(Verdict),
}

struct Loss<'a> {
    owner: &'a str,
    amount: u128,
}

/// Judges the transactions of one block, one after the other.
pub(crate) struct Judge<'r> {
    rules: &'r Rules,
    slot: u64,
    asked: Legs,
    known: Associated,
    judged: Judged,
}

impl Judged {
    fn count(&self) -> usize {
        self.transfers.len() + self.debits.len() + self.unattributed.len() + self.rejected.len()
    }
}

impl<'r> Judge<'r> {
    pub(crate) fn new(rules: &'r Rules, slot: u64, asked: Legs) -> Self {
        Judge { rules, slot, asked, known: Associated::default(), judged: Judged::default() }
    }

    pub(crate) fn finish(mut self) -> Judged {
        // Two owners may lose the same to the same; a gain is alone with its owner and asset.
        number_equal_legs(&mut self.judged.debits);
        self.judged
    }

    /// # Errors
    /// A transaction that does not report what its credits depend on.
    pub(crate) fn tx(&mut self, tx: &Tx<'_>, reference: TxRef) -> Result<(), Unusable> {
        if tx.failed {
            return self.failed(tx, reference);
        }
        let holders = native::holders(tx);
        let native = native::flow(self.rules, tx, &holders, &mut self.known)?;
        let before = self.judged.count();
        self.flow(tx, reference, &native)?;
        if tx.tokens.is_empty() {
            return Ok(());
        }
        for flow in tokens::flows(self.rules, tx, &holders, self.slot, self.asked, &mut self.known)? {
            self.flow(tx, reference, &flow)?;
        }
        if self.asked == Legs::Explained && self.judged.count() == before {
            self.moved_nothing(tx, reference)?;
        }
        Ok(())
    }

    /// As [`Judge::tx`], for one that failed in this block before and then did not.
    pub(crate) fn tx_that_failed_before(&mut self, tx: &Tx<'_>, reference: TxRef) -> Result<(), Unusable> {
        self.judged.rejected.retain(|rejected| rejected.transfer.tx != reference);
        self.tx(tx, reference)
    }

    /// It named tokens, and no balance changed: a transfer of nothing, by somebody who wants to be seen.
    fn moved_nothing(&mut self, tx: &Tx<'_>, reference: TxRef) -> Result<(), Unusable> {
        for (mint, owner) in tokens::listed_holders(self.rules, tx, self.slot)? {
            let asset = AssetId::Token(Address::Solana(mint));
            let transfer = transfer(tx, reference, asset, [tx.keys[0], owner], 0)?;
            let transfer = AssetTransfer { sender_rule: SenderRule::StandIn, ..transfer };
            self.judged.rejected.push(Rejected { transfer, verdict: Verdict::ZeroValue });
        }
        Ok(())
    }

    /// Its balances show nothing of what it tried.
    fn failed(&mut self, tx: &Tx<'_>, reference: TxRef) -> Result<(), Unusable> {
        if self.asked == Legs::Explained {
            let payer = address(tx, tx.keys[0])?;
            let transfer = AssetTransfer {
                tx: reference,
                asset: AssetId::Native,
                sender: payer,
                sender_rule: SenderRule::FeePayer,
                recipient: payer,
                amount: U256::ZERO,
                nth: 0,
            };
            self.judged.rejected.push(Rejected { transfer, verdict: Verdict::RevertedTx });
        }
        Ok(())
    }

    fn flow(&mut self, tx: &Tx<'_>, reference: TxRef, flow: &Flow<'_>) -> Result<(), Unusable> {
        for gain in &flow.gains {
            let mut others = flow.payers.iter().filter(|payer| **payer != gain.owner);
            let (sender, rule) = match (others.next(), others.next(), gain.worth.verdict()) {
                (_, _, Some(Verdict::RentRefund | Verdict::SelfTransfer)) => (gain.owner, SenderRule::OnlyPayer),
                (Some(payer), None, _) => (*payer, SenderRule::OnlyPayer),
                (_, _, _) => (tx.keys[0], SenderRule::StandIn),
            };
            let transfer = transfer(tx, reference, flow.asset, [sender, gain.owner], gain.amount)?;
            let transfer = AssetTransfer { sender_rule: rule, ..transfer };
            match gain.worth {
                Worth::Credit => self.judged.transfers.push(transfer),
                Worth::Kept(verdict) => self.judged.unattributed.push(Rejected { transfer, verdict }),
                Worth::Reported(verdict) if self.asked == Legs::Explained => {
                    self.judged.rejected.push(Rejected { transfer, verdict });
                }
                Worth::Reported(_) => {}
            }
        }
        if flow.is_listed {
            for loss in &flow.losses {
                // Burnt, or locked up as rent, where nobody gained. What is only reported must not decide, for not
                // every read reports it.
                let gained = flow.gains.iter().find(|gain| !matches!(gain.worth, Worth::Reported(_)));
                let recipient = gained.map_or(loss.owner, |gain| gain.owner);
                let debit = transfer(tx, reference, flow.asset, [loss.owner, recipient], loss.amount)?;
                self.judged.debits.push(debit);
            }
        }
        Ok(())
    }
}

impl Worth {
    fn verdict(self) -> Option<Verdict> {
        match self {
            Worth::Credit => None,
            Worth::Kept(verdict) | Worth::Reported(verdict) => Some(verdict),
        }
    }
}

/// What is left to judge of an owner's gain, in the order of judging.
struct Rest<'a, 'f> {
    owner: &'a str,
    left: u128,
    gains: &'f mut Vec<Gain<'a>>,
}

impl Rest<'_, '_> {
    /// Of what is left, up to `most` gets this verdict.
    fn take(&mut self, most: u128, worth: Worth) {
        let amount = self.left.min(most);
        self.left -= amount;
        if amount > 0 {
            self.gains.push(Gain { owner: self.owner, amount, worth });
        }
    }
}

fn transfer(
    tx: &Tx<'_>,
    reference: TxRef,
    asset: AssetId,
    [sender, recipient]: [&str; 2],
    amount: u128,
) -> Result<AssetTransfer, Unusable> {
    let (sender, recipient) = (address(tx, sender)?, address(tx, recipient)?);
    let (sender_rule, amount) = (SenderRule::OnlyPayer, U256::from(amount));
    Ok(AssetTransfer { tx: reference, asset, sender, sender_rule, recipient, amount, nth: 0 })
}

pub(crate) fn address(tx: &Tx<'_>, text: &str) -> Result<Address, Unusable> {
    base58::key(text).map(Address::Solana).ok_or(Unusable::Key { index: tx.index })
}

/// The amount of a change that is a gain; 0 for others.
fn gained(change: i128) -> u128 {
    u128::try_from(change).unwrap_or_default()
}
