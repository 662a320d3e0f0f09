//! Who paid, by four rules; the rule that decided is recorded.
//!
//! 1. Exactly one owner lost of the asset: balances alone show it, in every block.
//! 2. Several did, or none: whoever sent to the recipient by an instruction. That is the owner of the account that was
//!    drawn on, never the delegate who signed for it. No balance shows the owner of an account that was made and
//!    closed within the transaction: there it is who closed it. Of several senders, the one who sent most.
//! 3. Nobody did, and it was minted: the mint authority.
//! 4. Else the fee payer, who at least wanted it.
//!
//! Rules 2 and 3 need the instructions, which are asked for only of transactions that pay us. They name a sender and
//! nothing else: no amount ever comes from them.

use landfall_chain::{Address, AssetId, AssetTransfer, Payer, SenderRule, TxId};

use crate::base58;
use crate::credit::address;
use crate::error::Unusable;
use crate::instructions::{Kind, Sent, all_sent};
use crate::read::{parse, signature};
use crate::rules::{Rules, WRAPPED_SOL, Wrapped};
use crate::tx::Tx;
use crate::wire::{WireProgram, WireTx};

/// Who paid `transfer`, by `answer`, the result of `getTransaction` with encoding `json`: by the rules 2 to 4.
///
/// # Errors
/// An answer that is not whole, or is of another transaction.
pub fn by_instructions(rules: &Rules, answer: &str, transfer: &AssetTransfer) -> Result<Payer, Unusable> {
    let wire: WireTx<'_> = parse("a transaction", answer)?;
    let tx = Tx::of(0, &wire)?;
    if TxId::Solana(signature(&tx)?) != transfer.tx.id {
        return Err(Unusable::OtherTransaction);
    }
    let program: WireProgram<'_> = parse("a transaction with its instructions", answer)?;
    let all = all_sent(&tx, &program)?;
    let to_recipient: Vec<&Sent> = all.iter().filter(|sent| is_paid_by(rules, &tx, transfer, sent)).collect();
    let mut senders: Vec<(&str, u128)> = Vec::new();
    for sent in to_recipient.iter().filter(|sent| sent.kind != Kind::Minted) {
        let (owner, sent) = (owner_of(&tx, sent), weight(&tx, sent, &all));
        match senders.iter_mut().find(|(other, _)| *other == owner) {
            Some((_, amount)) => *amount += sent,
            None => senders.push((owner, sent)),
        }
    }
    let recipient = transfer.recipient.to_string();
    let most = senders.iter().filter(|(owner, _)| *owner != recipient).rev().max_by_key(|(_, amount)| *amount);
    let minted = to_recipient.iter().find(|sent| sent.kind == Kind::Minted);
    let (text, rule) = match (most, minted) {
        (Some((owner, _)), _) => (*owner, SenderRule::Instruction),
        (None, Some(minted)) => (tx.keys[minted.from], SenderRule::Mint),
        (None, None) => (tx.keys[0], SenderRule::FeePayer),
    };
    Ok(Payer { sender: address(&tx, text)?, rule })
}

/// Whether what was sent reached the recipient as the asset.
fn is_paid_by(rules: &Rules, tx: &Tx<'_>, transfer: &AssetTransfer, sent: &Sent) -> bool {
    let is = |text: &str, address: &Address| base58::key(text).is_some_and(|key| key == address.as_bytes());
    let mint = |account: usize| tx.tokens.iter().find(|holding| holding.account == account).map(|holding| holding.mint);
    let is_theirs = is(owner_after(tx, sent.to), &transfer.recipient);
    match (&transfer.asset, mint(sent.to)) {
        // To the account itself, or as wrapped SOL where that is SOL.
        (AssetId::Native, Some(held)) => is_theirs && held == WRAPPED_SOL && rules.wrapped == Wrapped::Native,
        (AssetId::Native, None) => is_theirs && sent.kind == Kind::Lamports,
        (AssetId::Token(wanted), Some(held)) => {
            let fits = sent.kind != Kind::Lamports || held == WRAPPED_SOL;
            is_theirs && fits && is(held, wanted)
        }
        (AssetId::Token(_), None) => false,
    }
}

/// Who owned what was drawn on: of a token account its owner before, or who closed it, else the account itself.
fn owner_of<'a>(tx: &Tx<'a>, sent: &Sent) -> &'a str {
    tx.token_owner(sent.from).unwrap_or(tx.keys[sent.closed_by.unwrap_or(sent.from)])
}

/// How much was sent; of an account that was closed, what it had and what came to it.
fn weight(tx: &Tx<'_>, sent: &Sent, all: &[Sent]) -> u128 {
    if sent.closed_by.is_none() {
        return sent.amount.into();
    }
    let came = all.iter().filter(|it| it.kind == Kind::Lamports && it.to == sent.from).map(|it| u128::from(it.amount));
    u128::from(tx.pre[sent.from]) + came.sum::<u128>()
}

/// Who owns what was sent to.
fn owner_after<'a>(tx: &Tx<'a>, account: usize) -> &'a str {
    let after = tx.tokens.iter().rev().find(|holding| holding.account == account);
    after.and_then(|holding| holding.owner).unwrap_or(tx.keys[account])
}
