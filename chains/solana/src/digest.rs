//! What a block comes to, in a few bytes: what two endpoints must tell alike.
//!
//! In it is what decides about credits, debits, fees and senders: the block's place and its parent's, and of each
//! transaction its signature, whether it failed, its fee and who paid that, the lamports of each account that changed or
//! holds tokens, and what token accounts held, with mint, owner, program and decimals. Not in it is what honest nodes tell
//! differently: the order of token balances, the block's time, the words of an error, fields that only some tell, and
//! accounts that were only looked at. A program that is not told is the one it counts as (`rules`); what a closed account
//! is still said to have held counts as nothing (`tx`).
//! Promises: whatever changes a credit, a debit, a fee or a sender changes the digest; nobody finds two blocks with one
//! digest (SHA-256 over lengths and values).

use landfall_chain::{BlockRef, Header};
use sha2::{Digest as _, Sha256};

use crate::rules::Rules;
use crate::tx::{Holding, Tx};

/// A block as one endpoint tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    pub block: BlockRef,
    pub parent: BlockRef,
    signatures: [u8; 32],
    effects: [u8; 32],
}

impl Digest {
    /// What `other` tells otherwise, in words; the first of it.
    pub fn difference(&self, other: &Digest) -> Option<&'static str> {
        if self.block != other.block {
            Some("its blockhash")
        } else if self.parent != other.parent {
            Some("its parent")
        } else if self.signatures != other.signatures {
            Some("its transactions")
        } else if self.effects != other.effects {
            Some("what its transactions came to")
        } else {
            None
        }
    }
}

/// Takes in the transactions of one block, one after the other.
pub(crate) struct Digester<'r> {
    rules: &'r Rules,
    signatures: Sha256,
    effects: Sha256,
    /// What is hashed of one transaction.
    text: Vec<u8>,
}

impl<'r> Digester<'r> {
    pub(crate) fn new(rules: &'r Rules) -> Self {
        Digester { rules, signatures: Sha256::new(), effects: Sha256::new(), text: Vec::new() }
    }

    pub(crate) fn tx(&mut self, tx: &Tx<'_>, signature: &[u8; 64]) {
        self.signatures.update(signature);
        self.text.clear();
        self.text.push(u8::from(tx.failed));
        self.number(tx.fee);
        self.word(tx.keys[0]);
        let holdings = in_order(tx);
        let mut rest = holdings.as_slice();
        for (account, key) in tx.keys.iter().enumerate() {
            let (its, others) = rest.split_at(rest.iter().take_while(|holding| holding.account == account).count());
            rest = others;
            let (before, after) = (tx.pre[account], tx.post[account]);
            if before == after && its.is_empty() {
                continue;
            }
            self.text.push(1);
            self.word(key);
            self.number(before);
            self.number(after);
            its.iter().for_each(|holding| self.holding(holding));
        }
        // What no account begins with: one transaction's end is never another one's middle.
        self.text.push(0);
        self.effects.update(&self.text);
    }

    pub(crate) fn finish(self, header: &Header) -> Digest {
        let Header { block, parent, .. } = *header;
        Digest { block, parent, signatures: self.signatures.finalize().into(), effects: self.effects.finalize().into() }
    }

    fn holding(&mut self, holding: &Holding<'_>) {
        self.text.push(if holding.is_after { 3 } else { 2 });
        self.word(holding.mint);
        self.text.push(u8::from(holding.owner.is_some()));
        self.word(holding.owner.unwrap_or_default());
        self.word(holding.program.unwrap_or_else(|| self.rules.counts_as(holding.mint)));
        self.text.push(holding.decimals);
        self.number(holding.amount);
    }

    fn number(&mut self, number: u64) {
        self.text.extend_from_slice(&number.to_be_bytes());
    }

    fn word(&mut self, word: &str) {
        // A key has 44 characters at most; whatever else stands there is told apart by its length all the same.
        match u8::try_from(word.len()) {
            Ok(length) if length < u8::MAX => self.text.push(length),
            Ok(_) | Err(_) => {
                self.text.push(u8::MAX);
                self.text.extend_from_slice(&word.len().to_be_bytes());
            }
        }
        self.text.extend_from_slice(word.as_bytes());
    }
}

/// What token accounts held, by account, before and after.
fn in_order<'t, 'a>(tx: &'t Tx<'a>) -> Vec<&'t Holding<'a>> {
    let mut holdings: Vec<&Holding<'a>> = tx.tokens.iter().collect();
    holdings.sort_by_key(|holding| (holding.account, holding.is_after));
    holdings
}
