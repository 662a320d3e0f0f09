//! A block's effects in a few bytes: what two endpoints must report alike.
//!
//! It covers what decides about credits, debits, fees and senders:
//! - the block's place and its parent's
//! - of each transaction its signature, whether it failed, its fee and who paid that
//! - the lamports of each account that changed or holds tokens
//! - where an account came into being, all who signed
//! - what token accounts held, with mint, owner, program and decimals
//!
//! It leaves out what honest nodes report differently: the order of token balances, the block's time, the text of an
//! error, fields that only some report, and accounts that were only read. A missing program is the one that it counts
//! as (`rules`); what a closed account is still reported to hold counts as nothing (`tx`). Promises: whatever changes
//! a credit, a debit, a fee, a sender or a mark changes the digest. Nobody finds two blocks with one digest (BLAKE3 over
//! lengths and values; a digest is compared and never kept beyond the process).

use landfall_chain::{BlockRef, Header};

use crate::rules::Rules;
use crate::tx::{Holding, Tx};

/// How many bytes are hashed at once: BLAKE3 works on many pieces of its input side by side, and is slow in small ones.
const AT_ONCE: usize = 32 * 1_024;

/// A block as one endpoint reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    pub block: BlockRef,
    pub parent: BlockRef,
    signatures: [u8; 32],
    effects: [u8; 32],
}

impl Digest {
    /// The first difference to `other`, in words.
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

/// Hashes the transactions of one block, one after the other.
pub(crate) struct Digester<'r> {
    rules: &'r Rules,
    signatures: Text,
    effects: Text,
}

impl<'r> Digester<'r> {
    pub(crate) fn new(rules: &'r Rules) -> Self {
        Digester { rules, signatures: Text::default(), effects: Text::default() }
    }

    pub(crate) fn tx(&mut self, tx: &Tx<'_>, signature: &[u8; 64]) {
        self.signatures.bytes(signature);
        self.effects.byte(u8::from(tx.failed));
        self.effects.number(tx.fee);
        self.effects.word(tx.keys[0]);
        let holdings = in_order(tx);
        let mut rest = holdings.as_slice();
        for (account, key) in tx.keys.iter().enumerate() {
            let (its, others) = rest.split_at(rest.iter().take_while(|holding| holding.account == account).count());
            rest = others;
            let (before, after) = (tx.pre[account], tx.post[account]);
            if before == after && its.is_empty() {
                continue;
            }
            self.effects.byte(1);
            self.effects.word(key);
            self.effects.number(before);
            self.effects.number(after);
            its.iter().for_each(|holding| self.holding(holding));
        }
        if !tx.failed && tx.makes_accounts() {
            for signer in tx.signers() {
                self.effects.byte(4);
                self.effects.word(signer);
            }
        }
        // No account begins with it: one transaction's end is never another one's middle.
        self.effects.byte(0);
        self.signatures.hash_what_is_long();
        self.effects.hash_what_is_long();
    }

    pub(crate) fn finish(self, header: &Header) -> Digest {
        let Header { block, parent, .. } = *header;
        Digest { block, parent, signatures: self.signatures.finish(), effects: self.effects.finish() }
    }

    fn holding(&mut self, holding: &Holding<'_>) {
        self.effects.byte(if holding.is_after { 3 } else { 2 });
        self.effects.word(holding.mint);
        self.effects.byte(u8::from(holding.owner.is_some()));
        self.effects.word(holding.owner.unwrap_or_default());
        self.effects.word(holding.program.unwrap_or_else(|| self.rules.counts_as(holding.mint)));
        self.effects.byte(holding.decimals);
        self.effects.number(holding.amount);
    }
}

/// What is hashed, of which the last bytes wait for more.
#[derive(Default)]
struct Text {
    hashed: blake3::Hasher,
    rest: Vec<u8>,
}

impl Text {
    fn byte(&mut self, byte: u8) {
        self.rest.push(byte);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_be_bytes());
    }

    fn word(&mut self, word: &str) {
        // A key has 44 characters at most; the length of any other text keeps it distinct.
        match u8::try_from(word.len()) {
            Ok(length) if length < u8::MAX => self.byte(length),
            Ok(_) | Err(_) => {
                self.byte(u8::MAX);
                self.bytes(&word.len().to_be_bytes());
            }
        }
        self.bytes(word.as_bytes());
    }

    fn hash_what_is_long(&mut self) {
        if self.rest.len() >= AT_ONCE {
            self.hashed.update(&self.rest);
            self.rest.clear();
        }
    }

    fn finish(mut self) -> [u8; 32] {
        self.hashed.update(&self.rest);
        self.hashed.finalize().into()
    }
}

/// What token accounts held, by account, before and after.
fn in_order<'t, 'a>(tx: &'t Tx<'a>) -> Vec<&'t Holding<'a>> {
    let mut holdings: Vec<&Holding<'a>> = tx.tokens.iter().collect();
    holdings.sort_by_key(|holding| (holding.account, holding.is_after));
    holdings
}
