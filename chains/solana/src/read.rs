//! From the bytes of a `getBlock` answer to a block.
//!
//! Pure: the source checks what it stands on, and whether others report the same. It is a candidate until then, and
//! one endpoint's report after that: Solana's blockhash covers no balances that could be recomputed. Promises: all
//! transactions are in it, or it is refused. A transaction is in it once, even if the block records it several times
//! (SIMD-0297: one of a durable nonce may fail before it succeeds, and after).

use std::ops::RangeInclusive;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use landfall_chain::{
    Address, Block, BlockHash, BlockRef, Debits, Fee, Header, Legs, Mark, Proof, Signers, TxId, TxLife, TxRef, U256,
};

use serde::de::DeserializeSeed;

use crate::base58;
use crate::credit::{Judge, address};
use crate::digest::{Digest, Digester};
use crate::error::Unusable;
use crate::pay::marks;
use crate::rules::Rules;
use crate::scan;
use crate::tx::Tx;
use crate::wire::{WireBlock, WireHeader, WireTx};

/// When a block can have been made: from 16 March 2020, the day of mainnet's first block, to the end of 2099. A time in
/// milliseconds, or in thousands of seconds, lies outside of it, and counts as none.
const TIMES_SECS: RangeInclusive<u64> = 1_584_316_800..=4_102_444_799;

/// What was asked for; the answer does not repeat it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub slot: u64,
    /// The time of a block nearby: it stands in where the node does not report one (yet).
    pub time_secs: u64,
    pub legs: Legs,
}

/// A block as one endpoint reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub block: Block,
    /// What another endpoint must report alike.
    pub digest: Digest,
}

/// The block that `answer`, the result of `getBlock`, reports.
///
/// # Errors
/// An answer that is not whole; see [`Unusable`]. None of them says that the slot is empty.
pub fn block(rules: &Rules, answer: &str, asked: &Asked) -> Result<Candidate, Unusable> {
    let text = reported(answer)?;
    let (wire, taken) = match scanned(rules, text, asked) {
        Some(read) => read,
        None => parsed(rules, text, asked)?,
    };
    let header = header_of(wire, asked.slot, asked.time_secs)?;
    let Taken { txs, fees, marks, judge, digester, .. } = taken;
    let (judged, digest) = (judge.finish(), digester.finish(&header));
    let block = Block {
        header,
        txs,
        transfers: judged.transfers,
        debits: Debits::Net(judged.debits),
        unattributed: judged.unattributed,
        fees,
        marks,
        rejected: judged.rejected,
        fee_recipient: None,
        proof: Proof::OneEndpoint,
        signers: Signers::default(),
        inside: None,
    };
    Ok(Candidate { block, digest })
}

/// The block, where its text is plain and nothing is wrong with it.
fn scanned<'a, 'r>(rules: &'r Rules, text: &'a str, asked: &Asked) -> Option<(WireHeader<'a>, Taken<'r>)> {
    let mut taken = Taken::new(rules, asked);
    let wire = scan::block(text, |wire| taken.take(wire).is_ok())?;
    Some((wire, taken))
}

/// The same of any text; it says what is wrong.
fn parsed<'a, 'r>(rules: &'r Rules, text: &'a str, asked: &Asked) -> Result<(WireHeader<'a>, Taken<'r>), Unusable> {
    let mut taken = Taken::new(rules, asked);
    let mut refused = None;
    let take = |wire: WireTx<'_>| match taken.take(&wire) {
        Ok(()) => true,
        Err(error) => {
            refused = Some(error);
            false
        }
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let wire = WireBlock(take).deserialize(&mut deserializer).and_then(|wire| deserializer.end().map(|()| wire));
    match (refused, wire) {
        (Some(error), _) => Err(error),
        (None, wire) => Ok((wire.map_err(|error| Unusable::json("a block", &error))?, taken)),
    }
}

/// What was taken in of a block's transactions, one after the other.
struct Taken<'r> {
    rules: &'r Rules,
    slot: u64,
    /// How many stood there, also of those that did so before.
    count: usize,
    txs: Vec<TxId>,
    seen: HashMap<[u8; 64], Seen>,
    fees: Vec<Fee>,
    marks: Vec<Mark>,
    judge: Judge<'r>,
    digester: Digester<'r>,
}

/// A transaction that stood there before.
struct Seen {
    last: Record,
    has_succeeded: bool,
}

/// What one standing of a transaction cost who paid its fee.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Record {
    payer: Address,
    failed: bool,
    fee: u64,
    held: [u64; 2],
}

impl Record {
    fn of_fee(self, tx: TxRef) -> Fee {
        let [before, after] = self.held.map(i128::from);
        let outlay = before - after - i128::from(self.fee);
        // Nothing is covered by a root here.
        Fee { tx, payer: self.payer, amount: U256::from(self.fee), outlay, proved: false }
    }
}

impl<'r> Taken<'r> {
    fn new(rules: &'r Rules, asked: &Asked) -> Self {
        let (txs, seen, fees, marks) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        let (judge, digester) = (Judge::new(rules, asked.slot, asked.legs), Digester::new(rules));
        Taken { rules, slot: asked.slot, count: 0, txs, seen, fees, marks, judge, digester }
    }

    fn take(&mut self, wire: &WireTx<'_>) -> Result<(), Unusable> {
        let tx = Tx::of(self.count, wire)?;
        self.count += 1;
        let signature = signature(&tx)?;
        self.digester.tx(&tx, &signature);
        let payer = address(&tx, tx.keys[0])?;
        let record = Record { payer, failed: tx.failed, fee: tx.fee, held: [tx.pre[0], tx.post[0]] };
        let reference = reference(signature);
        match self.seen.entry(signature) {
            Entry::Vacant(entry) => {
                entry.insert(Seen { last: record, has_succeeded: !tx.failed });
                self.txs.push(reference.id);
                self.fees.extend(Some(record.of_fee(reference)).filter(|_| tx.fee > 0));
                self.marks.extend(marks::of_tx(self.rules, &tx, reference, self.slot)?);
                self.judge.tx(&tx, reference)
            }
            Entry::Occupied(mut entry) => {
                let seen = entry.get_mut();
                // agave keeps one record of a signature in a slot, and reports it each time
                // (`map_transactions_to_statuses` in ledger/src/blockstore.rs).
                if seen.last == record {
                    return Ok(());
                }
                if seen.last.payer != payer || seen.has_succeeded && !tx.failed {
                    return Err(Unusable::Twice { index: tx.index });
                }
                *seen = Seen { last: record, has_succeeded: seen.has_succeeded || !tx.failed };
                self.pay_again(reference, &record);
                if tx.failed {
                    return Ok(());
                }
                self.marks.extend(marks::of_tx(self.rules, &tx, reference, self.slot)?);
                self.judge.tx_that_failed_before(&tx, reference)
            }
        }
    }

    /// Adds what it cost this time to what it cost before.
    fn pay_again(&mut self, tx: TxRef, record: &Record) {
        let again = record.of_fee(tx);
        match self.fees.iter_mut().find(|fee| fee.tx == tx) {
            Some(fee) => {
                fee.amount += again.amount;
                fee.outlay += again.outlay;
            }
            None if record.fee > 0 => self.fees.push(again),
            None => {}
        }
    }
}

/// A text of JSON as what it should be.
pub(crate) fn parse<'a, T: serde::Deserialize<'a>>(what: &'static str, answer: &'a str) -> Result<T, Unusable> {
    serde_json::from_str(reported(answer)?).map_err(|error| Unusable::json(what, &error))
}

fn reported(answer: &str) -> Result<&str, Unusable> {
    if answer.trim_ascii() == "null" { Err(Unusable::Null) } else { Ok(answer) }
}

pub(crate) fn signature(tx: &Tx<'_>) -> Result<[u8; 64], Unusable> {
    base58::signature(tx.signature).ok_or(Unusable::Signature { index: tx.index })
}

/// A transaction by its first signature. Balances do not show what it used up: its blockhash stands in the message,
/// which is not asked for.
fn reference(signature: [u8; 64]) -> TxRef {
    TxRef { id: TxId::Solana(signature), life: TxLife::Block }
}

/// The header of the block in `slot` by `answer`, the result of `getBlock` in mode `none`; its time is 0 where the node
/// does not report one that can be.
pub(crate) fn header(answer: &str, slot: u64) -> Result<Header, Unusable> {
    header_of(parse("a header", answer)?, slot, 0)
}

fn header_of(wire: WireHeader<'_>, slot: u64, else_secs: u64) -> Result<Header, Unusable> {
    let hash = |text, what| base58::key(text).map(BlockHash).ok_or(Unusable::Hash { what });
    let parent = wire.parent_slot;
    if parent >= slot {
        return Err(Unusable::Parent { slot, parent });
    }
    let reported = wire.block_time.and_then(|secs| u64::try_from(secs).ok()).filter(|secs| TIMES_SECS.contains(secs));
    Ok(Header {
        block: BlockRef { number: slot, hash: hash(wire.blockhash, "blockhash")? },
        parent: BlockRef { number: parent, hash: hash(wire.previous_blockhash, "previousBlockhash")? },
        time_secs: reported.unwrap_or(else_secs),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(name: &str) -> String {
        let path = format!("{}/testdata/chainstorage/{name}.json", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).expect(&path)
    }

    fn hash(text: &str) -> BlockHash {
        BlockHash(base58::key(text).expect("32 bytes"))
    }

    #[test]
    fn recorded_headers_read_as_they_are_reported() {
        let reported = Header {
            block: BlockRef { number: 100_000_000, hash: hash("GdY1gj7F8vq1nCy4dgCZK42WV19bkfQ4cp2e9evK18ry") },
            parent: BlockRef { number: 99_999_999, hash: hash("7KpgQJdgXdPhzj69gCnyvyBiw9s6DZ5gmfNrhQr3XW1t") },
            time_secs: 1_633_504_705,
        };
        assert_eq!(header(&recorded("client_block_header"), 100_000_000), Ok(reported));
        // Its parent's hash was taken out, and stands there as zeros; its time is not reported.
        let orphan = Header {
            block: BlockRef { number: 1_021_085, hash: hash("2TLDT6Z3WJ5h5958BjdzMwmNGnVo3e4qcHyGBVgBPDm9") },
            parent: BlockRef { number: 1_021_084, hash: BlockHash([0; 32]) },
            time_secs: 0,
        };
        assert_eq!(header(&recorded("client_block_without_parent_hash"), 1_021_085), Ok(orphan));
        let below = header(&recorded("client_block_header"), 99_999_999);
        assert_eq!(below, Err(Unusable::Parent { slot: 99_999_999, parent: 99_999_999 }));
    }

    #[test]
    fn a_time_that_cannot_be_counts_as_none() {
        let reported = recorded("client_block_header");
        let cases: [(i64, u64); 9] = [
            (-7, 0),
            (0, 0),
            (1_633_504, 0),
            (1_584_316_799, 0),
            (1_584_316_800, 1_584_316_800),
            (1_790_000_000, 1_790_000_000),
            (4_102_444_799, 4_102_444_799),
            (4_102_444_800, 0),
            (1_633_504_705_000, 0),
        ];
        for (time, expected) in cases {
            let text = reported.replace("1633504705", &time.to_string());
            assert_eq!(header(&text, 100_000_000).map(|header| header.time_secs), Ok(expected), "{time}");
        }
    }
}
