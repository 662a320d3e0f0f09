//! The questions a source is asked, what a node answers to each, and whether what was learnt is the truth.
//!
//! A further method is a line in [`Ask::answers`], or in those of the corpus; a further question is a variant.
//! What is proved must be the truth: a block of the corpus by its hash, with all of its legs and no other, or, under
//! a hash that the input forged, what its own JSON says. Whatever is refused is no credit, and fine.
//! What is not proved may differ: a signed transaction's `from`, and all that is a node's word (`fate`).

use alloy::primitives::B256;
use landfall_chain::{
    Address, Block, BlockHash, BlockRef, BlockSource, Fate, Header, Proof, Read, SourceError, Tip, TxId, TxLife, TxRef,
};
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use serde_json::{Value, json};

use super::corpus::{Answer, BLOCK, Corpus, Fixture};
use super::mutate;
use super::node::{Door, Spoil, Table};
use super::reference::{self, Reported};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Blocks,
    Headers,
    Tip,
    FinalAt,
    Fate,
}

/// A question about a fixture, and what the node shows to it.
pub(super) struct Case<'c> {
    pub(super) corpus: &'c Corpus,
    pub(super) fixture: &'c Fixture,
    pub(super) ask: Ask,
    pub(super) shown: Vec<Answer>,
}

type Outcome = Result<&'static str, TestCaseError>;

pub(super) const REFUSED: &str = "refused";
pub(super) const NOTHING: &str = "nothing";
pub(super) const TRUE: &str = "true";

impl Ask {
    pub(super) const ALL: [Ask; 5] = [Ask::Blocks, Ask::Headers, Ask::Tip, Ask::FinalAt, Ask::Fate];

    /// The truth, in the order of the calls of each method.
    pub(super) fn answers(self, fixture: &Fixture) -> Vec<Answer> {
        let headers = fixture.blocks.iter().map(|(block, _)| (BLOCK, block.clone()));
        match self {
            Ask::Blocks => fixture.answers(),
            Ask::Headers => headers.collect(),
            // The latest is asked for before the final one.
            Ask::Tip => headers.rev().collect(),
            Ask::FinalAt => {
                headers.rev().chain(fixture.blocks.first().map(|(block, _)| (BLOCK, block.clone()))).collect()
            }
            Ask::Fate => {
                let (block, receipts) = &fixture.blocks[0];
                let mut receipt = receipts.get(0).cloned().unwrap_or_default();
                receipt["blockNumber"] = block["number"].clone();
                receipt["blockHash"] = block["hash"].clone();
                vec![("eth_getTransactionReceipt", receipt), ("eth_getTransactionCount", json!("0x1"))]
            }
        }
    }
}

impl<'c> Case<'c> {
    pub(super) fn true_one(corpus: &'c Corpus, fixture: &'c Fixture, ask: Ask) -> Case<'c> {
        Case { corpus, fixture, ask, shown: ask.answers(fixture) }
    }

    /// The answers as text, for the node's table.
    pub(super) fn texts(&self) -> Vec<(&'static str, String)> {
        self.shown.iter().map(|(method, value)| (*method, mutate::text(value))).collect()
    }

    /// Puts the case to a source and judges what it says.
    pub(super) fn put(
        &self,
        door: &mut Door,
        texts: &[(&'static str, String)],
        spoil: impl Fn() -> Option<Spoil>,
    ) -> Outcome {
        let lay = || Table::new(texts.iter().cloned(), spoil());
        let first = self.fixture.first();
        let range = first..=first - 1 + u64::try_from(self.fixture.blocks.len()).unwrap();
        let network = &self.fixture.network;
        match self.ask {
            Ask::Blocks => {
                let learnt = door.ask(network, lay, async |source| source.blocks(range.clone(), Read::FULL).await);
                // A body that was spoilt may show another sender than the answers that it was made of.
                self.blocks(learnt, &if spoil().is_some() { door.said() } else { Vec::new() })
            }
            Ask::Headers => self.headers(door.ask(network, lay, async |source| source.headers(range.clone()).await)),
            Ask::Tip => self.tip(door.ask(network, lay, async |source| source.tip().await)),
            Ask::FinalAt => self.final_at(door.ask(network, lay, async |source| source.final_at(first).await)),
            Ask::Fate => {
                let (tx, at) = (some_tx(), reference::header(&self.fixture.blocks[0].0).block);
                fate(door.ask(network, lay, async |source| source.fate(&tx, &at).await), at)
            }
        }
    }

    fn blocks(&self, learnt: Result<Vec<Block>, SourceError>, said: &[Value]) -> Outcome {
        let Ok(blocks) = learnt else { return Ok(REFUSED) };
        prop_assert!(blocks.len() <= self.fixture.blocks.len(), "{} blocks", blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            prop_assert_eq!(block.proof, Proof::Roots);
            prop_assert_eq!(block.header.block.number, self.fixture.first() + u64::try_from(index).unwrap());
            let reported = Reported { header: block.header, txs: block.txs.clone(), legs: block.transfers.clone() };
            prop_assert_eq!(reported, self.truth(index, block.header.block.hash, said));
        }
        let headers: Vec<Header> = blocks.iter().map(|block| block.header).collect();
        prop_assert!(are_linked(&headers), "{:?}", headers);
        Ok(if blocks.is_empty() { NOTHING } else { TRUE })
    }

    /// What is true of the block that was shown at this place and accepted under this hash.
    fn truth(&self, index: usize, hash: BlockHash, said: &[Value]) -> Reported {
        let is_named =
            |block: &&Value| block["hash"].as_str().is_some_and(|text| text.parse() == Ok(B256::from(hash.0)));
        let shown_block = said.iter().find(is_named).unwrap_or_else(|| self.shown_block(index));
        if let Some((block, receipts)) = self.corpus.true_block(hash.0.into()) {
            // Of another chain, perhaps: within one block nothing reports.
            return reference::reported(&self.fixture.network, &with_senders_of(block, shown_block), receipts);
        }
        // The header is forged. While it commits to the same content, that must be read.
        let (block, receipts) = &self.fixture.blocks[index];
        let roots = ["transactionsRoot", "receiptsRoot", "withdrawalsRoot"];
        let same = roots.iter().all(|root| shown_block.get(root) == block.get(root));
        let reported = if same {
            reference::reported(&self.fixture.network, &with_senders_of(block, shown_block), receipts)
        } else {
            reference::reported(&self.fixture.network, shown_block, self.shown_receipts(index))
        };
        Reported { header: reference::header(shown_block), ..reported }
    }

    fn shown_block(&self, index: usize) -> &Value {
        self.shown.iter().filter(|(method, _)| *method == BLOCK).nth(index).map_or(&Value::Null, |(_, block)| block)
    }

    fn shown_receipts(&self, index: usize) -> &Value {
        let shown = self.shown.iter().filter(|(method, _)| *method == super::corpus::RECEIPTS).nth(index);
        shown.map_or(&Value::Null, |(_, receipts)| receipts)
    }

    fn headers(&self, learnt: Result<Vec<Header>, SourceError>) -> Outcome {
        let Ok(headers) = learnt else { return Ok(REFUSED) };
        for (number, header) in (self.fixture.first()..).zip(&headers) {
            prop_assert_eq!(header.block.number, number);
            prop_assert!(self.is_true(header.block, |known| *known == *header), "{:?}", header);
        }
        prop_assert!(are_linked(&headers), "{:?}", headers);
        Ok(if headers.is_empty() { NOTHING } else { TRUE })
    }

    fn tip(&self, learnt: Result<Tip, SourceError>) -> Outcome {
        let Ok(tip) = learnt else { return Ok(REFUSED) };
        for block in [Some(tip.latest), tip.finalized].into_iter().flatten() {
            prop_assert!(self.is_true(block, |known| known.block == block), "{:?}", tip);
        }
        let is_within = |block: BlockRef| block.number < tip.latest.number || block == tip.latest;
        prop_assert!(tip.finalized.is_none_or(is_within), "{:?}", tip);
        Ok(if tip.finalized.is_none() { NOTHING } else { TRUE })
    }

    fn final_at(&self, learnt: Result<Option<BlockRef>, SourceError>) -> Outcome {
        let Ok(block) = learnt else { return Ok(REFUSED) };
        let Some(block) = block else { return Ok(NOTHING) };
        prop_assert_eq!(block.number, self.fixture.first());
        prop_assert!(self.is_true(block, |known| known.block == block), "{:?}", block);
        Ok(TRUE)
    }

    /// Whether `is_it` holds for the block of the corpus with this hash, or for one that was shown under it.
    fn is_true(&self, block: BlockRef, is_it: impl Fn(&Header) -> bool) -> bool {
        if let Some((known, _)) = self.corpus.true_block(block.hash.0.into()) {
            return is_it(&reference::header(known));
        }
        let text = block.hash.to_string();
        self.shown.iter().any(|(_, shown)| shown["hash"] == text.as_str() && is_it(&reference::header(shown)))
    }
}

fn are_linked(headers: &[Header]) -> bool {
    headers.windows(2).all(|pair| pair[0].block == pair[1].parent)
}

fn some_tx() -> TxRef {
    let life = TxLife::Nonce { signer: Address::Evm([0x0a; 20]), nonce: 0 };
    TxRef { id: TxId::Evm([7; 32]), life }
}

/// A node's word, which no root covers: only what was asked may be answered.
fn fate(learnt: Result<Fate, SourceError>, at: BlockRef) -> Outcome {
    match learnt {
        Err(_) | Ok(Fate::Unanswered { .. }) => Ok(REFUSED),
        Ok(Fate::Unknown) => Ok(NOTHING),
        Ok(Fate::In(_)) => Ok(TRUE),
        Ok(Fate::Superseded(block)) => {
            prop_assert_eq!(block, at);
            Ok(TRUE)
        }
    }
}

/// The true block with the senders that were shown, of those transactions that say nothing of it but by signature.
fn with_senders_of(block: &Value, shown: &Value) -> Value {
    let mut block = block.clone();
    let txs = block["transactions"].as_array_mut().into_iter().flatten();
    for (tx, shown) in txs.zip(shown["transactions"].as_array().into_iter().flatten()) {
        let signed = !matches!(tx["type"].as_str(), Some("0x7e" | "0x7f"));
        let readable = shown["from"].as_str().is_some_and(|from| from.parse::<alloy::primitives::Address>().is_ok());
        if signed && readable {
            tx["from"] = shown["from"].clone();
        }
    }
    block
}
