//! What a trace's frames say, whether they agree with the proved block, and which value moved.
//!
//! The outermost call of a transaction is the root frame. The roots prove its value, so only the frames inside of it
//! are judged here. Value moves by a call, a creation or a self-destruction if neither it nor any frame around it
//! failed, in a transaction whose proved receipt says success. Borrowed code (DELEGATECALL, CALLCODE) moves nothing,
//! although nodes write a value beside it. A frame in an unknown form is set aside alone: the payments beside it are
//! still seen, and balances show what is missing. A value without a recipient moved nothing, nor did a recipient
//! without a value. Promises: a trace is refused, with those of the whole block, if it contradicts what is proved of a
//! transaction that may have moved something. A failed transaction moves nothing, whatever is reported of it. There is
//! no recursion. Not promised: a trace with a wrong inside is not found, for no root covers it.

use std::collections::BTreeSet;

use alloy::primitives::{Address as Plain, B256};
use landfall_chain::{Address, AssetId, AssetTransfer, Rejected, SenderRule, TxId, TxLife, TxRef, U256, Verdict};

use crate::legs;
use crate::proof::encode::created_contract;
use crate::signer;
use crate::stack::Stack;
use crate::wire::{Kind, WireAuthorization, WireBlock, WireReceipt, WireTx};

/// A trace that is not what was asked for, in words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

/// What one transaction did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// Old nodes leave it out.
    pub(crate) tx: Option<B256>,
    /// In execution order, each behind the frame around it: the root frame first. Empty where there is an error.
    pub(crate) frames: Vec<Frame>,
    /// Why there are no frames: the node's message, or what is malformed in its report.
    pub(crate) error: Option<String>,
}

/// One call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The index of the frame around it; only the root frame has none.
    pub(crate) parent: Option<usize>,
    pub(crate) act: Act,
    pub(crate) from: Option<Plain>,
    /// A creation that failed has none.
    pub(crate) to: Option<Plain>,
    pub(crate) value: U256,
    pub(crate) failed: bool,
}

/// What a frame does with its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Call,
    Create,
    /// SELFDESTRUCT: the whole balance goes to the beneficiary.
    Destroy,
    /// DELEGATECALL and CALLCODE: the value is the caller's own.
    Borrow,
    /// STATICCALL has no value.
    Look,
    /// In an unknown form: what it moved, if anything, is not reported.
    Unknown,
}

/// How many frames of one transaction may be set aside; with more it is no trace.
pub(crate) const SET_ASIDE_MAX: usize = 1_000;

/// What is proved of a transaction, and its frames must agree with.
#[derive(Debug)]
pub(crate) struct ProvedTx {
    tx: TxRef,
    hash: B256,
    root: Option<ProvedRoot>,
    outcome: Outcome,
    delegations: Vec<WireAuthorization>,
}

/// Its outermost call.
#[derive(Debug)]
struct ProvedRoot {
    act: Act,
    from: Plain,
    /// The address of a creation may not follow from what is proved.
    to: Option<Plain>,
    value: U256,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Success,
    Failure,
    /// Before Byzantium.
    Unreported,
}

/// What moved inside of a block's transactions, and what only looked like it.
#[derive(Default, Debug)]
pub(crate) struct Moved {
    pub(crate) legs: Vec<AssetTransfer>,
    pub(crate) rejected: Vec<Rejected>,
    /// The contracts that frames say were created, also where the creation failed.
    pub(crate) created: BTreeSet<Address>,
    /// How many frames were in an unknown form.
    pub(crate) set_aside: usize,
}

impl ProvedTx {
    /// The transactions of a block whose content is proved.
    pub(crate) fn of_block(
        stack: Stack,
        block: &WireBlock<'_, Vec<WireTx<'_>>>,
        receipts: &[WireReceipt<'_>],
    ) -> Vec<ProvedTx> {
        let proved = |(wire, receipt): (&WireTx<'_>, &WireReceipt<'_>)| {
            // A block with another type was refused before.
            let kind = Kind::parse(wire.kind, stack).ok()?;
            Some(ProvedTx {
                tx: legs::reference(kind, wire),
                hash: wire.hash,
                root: ProvedRoot::of(kind, wire, receipt),
                outcome: match receipt.status.map(|status| status.0) {
                    Some(1) => Outcome::Success,
                    Some(_) => Outcome::Failure,
                    None => Outcome::Unreported,
                },
                delegations: wire.authorization_list.clone().unwrap_or_default(),
            })
        };
        block.transactions.iter().zip(receipts).filter_map(proved).collect()
    }

    pub(crate) fn hash(&self) -> B256 {
        self.hash
    }

    /// Who may run code by it without having any before and after it: what it creates, and who signed a delegation in
    /// it.
    pub(crate) fn ran_code(&self) -> impl Iterator<Item = Address> {
        let created = self.root.iter().filter(|root| root.act == Act::Create).filter_map(|root| root.to);
        let delegating = self.delegations.iter().filter_map(signer::authority);
        created.chain(delegating).map(|address| Address::Evm(address.into()))
    }

    /// Who pays for it; nobody for what comes from L1.
    pub(crate) fn payer(&self) -> Option<(TxId, Address)> {
        match self.tx.life {
            TxLife::Nonce { signer, .. } => Some((self.tx.id, signer)),
            TxLife::Block => None,
        }
    }

    /// Whether its receipt leaves open what moved inside of it.
    pub(crate) fn may_have_moved(&self) -> bool {
        self.outcome != Outcome::Failure
    }

    /// That `trace` can be of this transaction.
    fn check(&self, trace: &Trace) -> Result<(), Malformed> {
        let refused = |what: String| Err(Malformed(format!("transaction {}: {what}", self.hash)));
        if let Some(other) = trace.tx.filter(|tx| *tx != self.hash) {
            return refused(format!("the trace at its place is of {other}"));
        }
        // The receipt proves that a failed one moved nothing: its trace is not needed, and nodes report strange ones.
        // For a deposit that failed before it began, op-geth enters a frame of type STOP (`core/state_transition.go`),
        // and anybody can make one from L1. For a creation that failed, Erigon names 0x0 as the contract.
        if self.outcome == Outcome::Failure {
            return Ok(());
        }
        if let Some(why) = &trace.error {
            return refused(why.clone());
        }
        let set_aside = trace.frames.iter().filter(|frame| frame.act == Act::Unknown).count();
        if set_aside > SET_ASIDE_MAX {
            return Err(many_set_aside());
        }
        let Some(root) = trace.frames.first() else { return refused("nothing is traced".to_owned()) };
        if root.parent.is_some() || trace.frames.iter().skip(1).any(|frame| frame.parent.is_none()) {
            return refused("its trace has not one root frame".to_owned());
        }
        if let Some(proved) = &self.root {
            proved.check(root).or_else(|what| refused(what.to_owned()))?;
        }
        if self.outcome == Outcome::Success && root.failed {
            return refused("its trace failed, but its receipt says success".to_owned());
        }
        Ok(())
    }

    fn judge(&self, trace: &Trace, moved: &mut Moved) {
        let mut failed: Vec<bool> = Vec::with_capacity(trace.frames.len());
        for frame in &trace.frames {
            // The frame around it stands before it.
            let around = frame.parent.and_then(|parent| failed.get(parent));
            failed.push(frame.failed || around == Some(&true));
            moved.set_aside += usize::from(frame.act == Act::Unknown);
            let Some(to) = frame.to else { continue };
            if frame.act == Act::Create {
                moved.created.insert(Address::Evm(to.into()));
            }
            let Some(parent) = frame.parent else { continue };
            // Older nodes say that the caller, or the contract whose code it is, destroyed itself (revm-inspectors).
            // With the caller as the heir, this would look like a payment to oneself.
            let sender = match frame.act {
                Act::Destroy => trace.frames.get(parent).and_then(Frame::account).or(frame.from),
                Act::Call | Act::Create | Act::Borrow | Act::Look | Act::Unknown => frame.from,
            };
            let Some(sender) = sender else { continue };
            let transfer = AssetTransfer {
                tx: self.tx,
                asset: AssetId::Native,
                sender: Address::Evm(sender.into()),
                sender_rule: SenderRule::Reported,
                recipient: Address::Evm(to.into()),
                amount: frame.value,
                nth: 0,
            };
            match self.verdict(frame, [sender, to], failed.last() == Some(&true)) {
                Judged::Leg => moved.legs.push(transfer),
                Judged::No(verdict) => moved.rejected.push(Rejected { transfer, verdict }),
                Judged::ClaimsNothing => {}
            }
        }
    }

    /// What is no credit in any transaction gets that verdict; only what would be one is reported as failed.
    fn verdict(&self, frame: &Frame, [sender, to]: [Plain; 2], failed: bool) -> Judged {
        match frame.act {
            Act::Look | Act::Unknown => return Judged::ClaimsNothing,
            Act::Borrow if frame.value.is_zero() => return Judged::ClaimsNothing,
            Act::Borrow => return Judged::No(Verdict::Delegatecall),
            Act::Call | Act::Create | Act::Destroy => {}
        }
        if frame.value.is_zero() {
            return Judged::No(Verdict::ZeroValue);
        }
        if sender == to {
            return Judged::No(Verdict::SelfTransfer);
        }
        match self.outcome {
            Outcome::Failure => Judged::No(Verdict::RevertedTx),
            Outcome::Unreported => Judged::No(Verdict::NoStatus),
            Outcome::Success if failed => Judged::No(Verdict::RevertedFrame),
            Outcome::Success => Judged::Leg,
        }
    }
}

enum Judged {
    Leg,
    No(Verdict),
    ClaimsNothing,
}

impl ProvedRoot {
    fn of(kind: Kind, wire: &WireTx<'_>, receipt: &WireReceipt<'_>) -> Option<Self> {
        let nonce = match kind {
            Kind::Legacy | Kind::AccessList | Kind::DynamicFee | Kind::Blob | Kind::SetCode => Some(wire.nonce),
            // Proved since Canyon.
            Kind::Deposit => receipt.deposit_receipt_version.and(receipt.deposit_nonce),
            // Nothing of it is proved but its hash.
            Kind::StateSync => return None,
        };
        let created = || nonce.map(|nonce| Plain::from(created_contract(&wire.from, nonce.0)));
        let act = if wire.to.is_some() { Act::Call } else { Act::Create };
        Some(ProvedRoot { act, from: wire.from, to: wire.to.or_else(created), value: wire.value.0 })
    }

    fn check(&self, root: &Frame) -> Result<(), &'static str> {
        if root.act != self.act {
            Err("its root frame is of another type")
        } else if root.from != Some(self.from) {
            Err("its root frame has another sender")
        } else if root.to.zip(self.to).is_some_and(|(to, proved)| to != proved) {
            Err("its root frame has another recipient")
        } else if root.value != self.value {
            Err("its root frame has another value")
        } else {
            Ok(())
        }
    }
}

impl Frame {
    /// The account that its code runs as, and whose balance it spends.
    fn account(&self) -> Option<Plain> {
        match self.act {
            Act::Call | Act::Create | Act::Look => self.to,
            Act::Borrow => self.from,
            Act::Destroy | Act::Unknown => None,
        }
    }
}

pub(crate) fn many_set_aside() -> Malformed {
    Malformed(format!("more than {SET_ASIDE_MAX} frames are in a form that nobody knows"))
}

/// What moved inside of `txs`, all of a block, when `traces` can be theirs.
pub(crate) fn moved(txs: &[ProvedTx], traces: &[Trace]) -> Result<Moved, Malformed> {
    if txs.len() != traces.len() {
        return Err(Malformed(format!("{} traces for {} transactions", traces.len(), txs.len())));
    }
    let mut moved = Moved::default();
    for (tx, trace) in txs.iter().zip(traces) {
        tx.check(trace)?;
        tx.judge(trace, &mut moved);
    }
    Ok(moved)
}

/// What moved inside of `tx`, when `trace` can be its trace.
pub(crate) fn moved_in(tx: &ProvedTx, trace: &Trace) -> Result<Moved, Malformed> {
    moved(std::slice::from_ref(tx), std::slice::from_ref(trace))
}

/// Of the transactions `ids`, the hash of the one that stands first in the block.
pub(crate) fn first_of(txs: &[ProvedTx], ids: &[TxId]) -> Option<B256> {
    txs.iter().find(|tx| ids.contains(&tx.tx.id)).map(|tx| tx.hash)
}
