//! Blocks read by their logs (`proof = "logs"`): header and transactions are proved, the logs of listed contracts are
//! compared with the header's bloom. These say what was paid and, of tokens that take intents, which were used.
//!
//! Promises: what it returns are candidates, to be read again in full before anything is recorded. These are read with
//! receipts at once:
//! - a contract that the bloom may hold and that shows no log
//! - a bloom that says nothing
//! - what a header cannot prove: Polygon's state-syncs, which were in no bloom before Madhugiri, and the recipients of
//!   OP-stack deposits that create a contract
//!
//! A bloom holds contracts and topics, and not which go together. So a use of an intent counts as missing only where no
//! other log explains its contract, or none its topic: else most blocks of a busy token would be read with receipts.
//! A false alarm costs a read. Not promised: that each log of a contract is there, when some are. Only receipts prove
//! that.

pub(crate) mod scan;
pub(crate) mod seen;

use std::ops::RangeInclusive;

use alloy::primitives::{Address as Contract, B256};
use landfall_chain::{
    Address, Asset, AssetId, AssetTransfer, Block, BlockRef, Debits, Fee, Header, Legs, Mark, Native, NativeSource,
    Network, Proof, Route, Signers, U256, number_equal_legs,
};
use landfall_rpc::{Call, Raw};
use serde::Deserialize;
use serde_json::json;

use crate::dialect::Endpoint;
use crate::error::{Check, EvmError};
use crate::headers::{BY_NUMBER, by_number, refused};
use crate::hex::{Data, Quantity};
use crate::legs::fees;
use crate::legs::native::{self, LOG_TRANSFER, POLYGON_POL, SYSTEM};
use crate::legs::withdrawals;
use crate::legs::{self, Movement, TRANSFER};
use crate::pay::delegate::{self, REDEEMED, USED_ID};
use crate::pay::marks::{self, CANCELED, USED};
use crate::polygon;
use crate::proof::bloom::{Bits, Bloom};
use crate::proof::encode::created_contract;
use crate::proof::{self, Refusal};
use crate::read::{BLOCKS_MAX, Found, Reader, next_part, txs};
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WireLog, WireTx};

pub(crate) const LOGS: &str = "eth_getLogs";
const BY_HASH: &str = "eth_getBlockByHash";

/// Every contract whose logs may be credits, and the topic that says so.
#[derive(Debug)]
pub(crate) struct Sources {
    sources: Vec<Source>,
    native: Native,
}

/// A contract and the first topic of its logs that count.
#[derive(Debug)]
pub(crate) struct Source {
    contract: Contract,
    topic: B256,
    /// The first block in which it counts.
    from: u64,
    bits: [Bits; 2],
}

/// A log as `eth_getLogs` shows it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedLog<'a> {
    pub(crate) address: Contract,
    pub(crate) topics: Vec<B256>,
    #[serde(borrow)]
    pub(crate) data: Data<'a>,
    pub(crate) block_hash: B256,
    pub(crate) block_number: Quantity,
    transaction_hash: B256,
    pub(crate) removed: Option<bool>,
}

/// How logs fit a bloom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fit {
    /// The bloom may hold logs of a source, and none was shown.
    pub(crate) misses: bool,
    /// A log was shown that it does not hold.
    pub(crate) excludes: bool,
}

/// What must be asked beside a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beside {
    /// Its bloom holds none of the listed contracts.
    Nothing,
    Logs,
    Receipts,
}

impl Sources {
    pub(crate) fn of(network: &Network) -> Self {
        let source = |contract: Contract, topic: B256, from| {
            let bits = [Bits::of(contract.as_slice()), Bits::of(topic.as_slice())];
            Source { contract, topic, from, bits }
        };
        let token = |asset: &Asset| match asset.id {
            AssetId::Token(Address::Evm(contract)) => {
                let topics: &[B256] = match asset.route {
                    Some(Route::Erc3009 { .. }) => &[TRANSFER, USED, CANCELED],
                    Some(Route::Guard { .. } | Route::Delegate(_)) | None => &[TRANSFER],
                };
                topics.iter().map(|topic| source(contract.into(), *topic, asset.from_block)).collect()
            }
            AssetId::Token(Address::Solana(_)) | AssetId::Native => Vec::new(),
        };
        let mut sources: Vec<Source> = network.assets.iter().flat_map(token).collect();
        if network.native.source == NativeSource::LogTransfer {
            sources.push(source(POLYGON_POL, LOG_TRANSFER, 0));
        }
        let of_delegates = network.delegates.iter().flat_map(delegate::sources);
        sources.extend(of_delegates.map(|(contract, topic)| source(contract.into(), topic, 0)));
        sources.extend(network.native.eip7708_from.map(|from| source(SYSTEM, TRANSFER, from)));
        Sources { sources, native: network.native }
    }

    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether the bloom of block `number` may hold a log of one of them.
    fn may_be_in(&self, number: u64, bloom: &Bloom) -> bool {
        self.at(number).any(|(_, source)| source.may_be_in(bloom))
    }

    /// How the logs that were `shown` of block `number`, by the places of their sources, fit its bloom.
    pub(crate) fn compare(&self, number: u64, bloom: &Bloom, shown: &[bool]) -> Fit {
        let is_shown = |place: usize| shown.get(place) == Some(&true);
        let mut fit = Fit { misses: false, excludes: false };
        for (place, source) in self.at(number) {
            match (source.may_be_in(bloom), is_shown(place)) {
                (true, false) => fit.misses |= !(source.is_use() && self.explain(source, is_shown)),
                (false, true) => fit.excludes = true,
                (true, true) | (false, false) => {}
            }
        }
        fit
    }

    /// Whether other logs that were shown explain why the bloom holds this contract, and why it holds this topic.
    fn explain(&self, source: &Source, is_shown: impl Fn(usize) -> bool) -> bool {
        let shown = || self.sources.iter().enumerate().filter(|(place, _)| is_shown(*place));
        shown().any(|(_, other)| other.contract == source.contract)
            && shown().any(|(_, other)| other.topic == source.topic)
    }

    /// Those that count in block `number`, with their places.
    fn at(&self, number: u64) -> impl Iterator<Item = (usize, &Source)> {
        self.sources.iter().enumerate().filter(move |(_, source)| source.from <= number)
    }

    /// The place of the source of a log.
    pub(crate) fn position(&self, contract: &Contract, topic: &B256) -> Option<usize> {
        self.sources.iter().position(|source| source.contract == *contract && source.topic == *topic)
    }

    /// Whether a log of this contract with this topic is an answer to the question.
    pub(crate) fn asked_for(&self, contract: &Contract, topic: &B256) -> bool {
        let sources = &self.sources;
        sources.iter().any(|it| it.contract == *contract) && sources.iter().any(|it| it.topic == *topic)
    }

    /// Whether native movements of block `number` are logged, all of them.
    pub(crate) fn log_native(&self, number: u64) -> bool {
        self.native.source == NativeSource::LogTransfer || self.native.eip7708_from.is_some_and(|from| from <= number)
    }

    /// The call for the logs of some blocks; `None` when no contract is listed.
    pub(crate) fn call(&self, mut filter: serde_json::Value) -> Option<Call> {
        let mut topics: Vec<B256> = self.sources.iter().map(|source| source.topic).collect();
        topics.sort_unstable();
        topics.dedup();
        // Those of a contract stand together.
        let mut contracts: Vec<Contract> = self.sources.iter().map(|source| source.contract).collect();
        contracts.dedup();
        filter["address"] = json!(contracts);
        filter["topics"] = json!([topics]);
        (!self.sources.is_empty()).then(|| Call { method: LOGS, params: json!([filter]) })
    }
}

impl Source {
    fn may_be_in(&self, bloom: &Bloom) -> bool {
        self.bits.into_iter().all(|bits| bloom.may_hold(bits))
    }

    /// Whether its logs report that intents were used, and move nothing.
    fn is_use(&self) -> bool {
        self.topic == USED || self.topic == CANCELED || self.topic == USED_ID || self.topic == REDEEMED
    }
}

/// Whether the bloom of a block says nothing: it is empty though something happened, or state-syncs, which were in no
/// bloom before Madhugiri, may be missing in it.
pub(crate) fn bloom_is_mute<T>(stack: Stack, block: &WireBlock<'_, T>, is_empty: bool, bloom: &Bloom) -> bool {
    bloom.is_zero() && !is_empty || polygon::may_sync(stack, block.number.0)
}

impl Reader {
    /// The blocks of `range` by their logs. `reported` is the newest block that a tip named: it is asked for by hash,
    /// together with its logs, which saves a request at the live head.
    pub(crate) async fn listed(
        &self,
        endpoint: &Endpoint,
        range: RangeInclusive<u64>,
        reported: Option<BlockRef>,
    ) -> Result<Vec<Block>, EvmError> {
        if let Some(tip) = reported.filter(|tip| range == (tip.number..=tip.number)) {
            if self.pool.dialect().foreseen.within(&range).is_some() {
                return self.blocks(endpoint, range, Legs::Creditable).await;
            }
            if let Some(block) = self.listed_tip(endpoint, tip).await? {
                return Ok(vec![block]);
            }
        }
        let (mut numbers, mut blocks): (_, Vec<Block>) = (range.take(BLOCKS_MAX), Vec::new());
        while let Some(part) = next_part(endpoint, &mut numbers, 1) {
            let wanted = part.clone().count();
            let parent = blocks.last().map(|block| block.header);
            let read = self.listed_part(endpoint, part, parent).await?;
            let is_whole = read.len() == wanted;
            blocks.extend(read);
            if !is_whole {
                break;
            }
        }
        Ok(blocks)
    }

    /// As many of `range` as stand on `parent`, and each on the one before it.
    async fn listed_part(
        &self,
        endpoint: &Endpoint,
        range: RangeInclusive<u64>,
        parent: Option<Header>,
    ) -> Result<Vec<Block>, EvmError> {
        let answers = endpoint.ask_all(&by_number(range.clone(), true)).await?;
        let mut linked: Vec<Found<'_>> = Vec::with_capacity(answers.len());
        for (number, answer) in range.zip(&answers) {
            let below = linked.last().map(|found| &found.header).or(parent.as_ref());
            let Some(found) = self.next(endpoint, number, answer, below)? else { break };
            linked.push(found);
        }
        let calls = linked.iter().map(|found| self.calls_beside(endpoint, found)).collect::<Result<Vec<_>, _>>()?;
        let counts: Vec<usize> = calls.iter().map(Vec::len).collect();
        let answers = endpoint.ask_all(&calls.into_iter().flatten().collect::<Vec<_>>()).await?;
        let (mut answers, mut blocks) = (answers.iter(), Vec::with_capacity(linked.len()));
        for (found, count) in linked.into_iter().zip(counts) {
            let answers: Vec<&Raw> = answers.by_ref().take(count).collect();
            blocks.push(self.judged(endpoint, found, &answers).await?);
            tokio::task::yield_now().await;
        }
        Ok(blocks)
    }

    /// The newest block; `None` when this endpoint does not have it.
    async fn listed_tip(&self, endpoint: &Endpoint, tip: BlockRef) -> Result<Option<Block>, EvmError> {
        let hash = tip.hash.to_string();
        let block = Call { method: BY_HASH, params: json!([hash, true]) };
        let calls: Vec<Call> = std::iter::once(block).chain(self.logs_of(&tip)).collect();
        let mut answers = endpoint.ask(&calls).await?.into_iter();
        let block = answers.next().ok_or_else(|| endpoint.unusable(BY_HASH, "no answer"))?;
        let Ok(block) = block else { return Ok(None) };
        let Some(found) = self.next(endpoint, tip.number, &block, None)? else { return Ok(None) };
        if found.header.block != tip {
            return Err(endpoint.unusable(BY_HASH, &format!("asked for block {tip}, but got {}", found.header.block)));
        }
        let logs = match (self.beside(endpoint, &found)?, answers.next()) {
            (Beside::Logs, Some(Ok(logs))) => Some(logs),
            (Beside::Logs, Some(Err(error))) => return Err(endpoint.refused(LOGS, &error)),
            (Beside::Nothing | Beside::Logs | Beside::Receipts, _) => None,
        };
        if self.beside(endpoint, &found)? == Beside::Receipts {
            return self.with_receipts(endpoint, found).await.map(Some);
        }
        let logs: Vec<&Raw> = logs.iter().collect();
        self.judged(endpoint, found, &logs).await.map(Some)
    }

    /// The block from the answers to [`Reader::calls_beside`]; read with receipts when its bloom contradicts its logs.
    async fn judged(&self, endpoint: &Endpoint, found: Found<'_>, answers: &[&Raw]) -> Result<Block, EvmError> {
        if self.beside(endpoint, &found)? == Beside::Receipts {
            return self.with_receipts(endpoint, found).await;
        }
        match self.candidates_of(endpoint, &found, answers.first().copied())? {
            Some(block) => Ok(block),
            None => self.with_receipts(endpoint, found).await,
        }
    }

    fn calls_beside(&self, endpoint: &Endpoint, found: &Found<'_>) -> Result<Vec<Call>, EvmError> {
        Ok(match self.beside(endpoint, found)? {
            Beside::Nothing | Beside::Receipts => Vec::new(),
            Beside::Logs => self.logs_of(&found.header.block).into_iter().collect(),
        })
    }

    fn beside(&self, endpoint: &Endpoint, found: &Found<'_>) -> Result<Beside, EvmError> {
        let Found { header, block, .. } = found;
        let bloom = bloom(endpoint, block)?;
        let is_empty = block.transactions.is_empty();
        let is_mute = bloom_is_mute(self.rules.stack, block, is_empty, &bloom);
        // A state-sync is proved by an encoding that is asked for beside the receipts.
        let needs_receipts = block.transactions.iter().any(|tx| legs::creates_by_deposit(self.rules.stack, tx));
        if is_mute && !is_empty || needs_receipts || found.state_sync(self.rules.stack).is_some() {
            return Ok(Beside::Receipts);
        }
        let is_held = self.sources.may_be_in(header.block.number, &bloom);
        Ok(if is_held { Beside::Logs } else { Beside::Nothing })
    }

    fn logs_of(&self, block: &BlockRef) -> Option<Call> {
        self.sources.call(json!({ "blockHash": block.hash.to_string() }))
    }

    /// The block with what its transactions and logs may credit; `None` when its bloom contradicts the logs.
    fn candidates_of(
        &self,
        endpoint: &Endpoint,
        found: &Found<'_>,
        logs: Option<&Raw>,
    ) -> Result<Option<Block>, EvmError> {
        let Found { header, block, .. } = found;
        let refused = |method| move |refusal| refused(endpoint, header.block, method, &refusal);
        proof::transactions(self.rules.stack, block, None).map_err(refused(BY_NUMBER))?;
        proof::withdrawals(self.rules.stack, block).map_err(refused(BY_NUMBER))?;
        let mut logs: Vec<ListedLog<'_>> = match logs {
            Some(answer) => endpoint.parse(LOGS, answer)?,
            None => Vec::new(),
        };
        logs.retain(|log| log.removed != Some(true));
        self.check_places(endpoint, found, &logs)?;
        let mut shown = vec![false; self.sources.len()];
        logs.iter().filter_map(|log| self.place(log)).for_each(|place| shown[place] = true);
        let fit = self.sources.compare(header.block.number, &bloom(endpoint, block)?, &shown);
        if fit.excludes {
            return Err(refused(LOGS)(Refusal::Unproved(Check::Bloom)));
        }
        if fit.misses {
            return Ok(None);
        }
        Ok(Some(Block {
            header: *header,
            txs: txs(self.rules.stack, block),
            transfers: self.transfers(found, &logs),
            debits: Debits::ByLegs,
            unattributed: Vec::new(),
            fees: self.fees(found),
            marks: self.marks(found, &logs),
            rejected: Vec::new(),
            fee_recipient: fees::recipient(self.rules.stack, block),
            proof: Proof::Bloom,
            signers: Signers::default(),
            inside: None,
        }))
    }

    /// That each log is of this block, of a transaction of it, and one that was asked for. A log that is shown twice,
    /// or in another order, only costs a read of whoever it pays.
    fn check_places(&self, endpoint: &Endpoint, found: &Found<'_>, logs: &[ListedLog<'_>]) -> Result<(), EvmError> {
        let Found { header, block, .. } = found;
        let is_ours = |log: &ListedLog<'_>| {
            log.block_hash == block.hash
                && log.block_number == block.number
                && log.topics.first().is_some_and(|topic| self.sources.asked_for(&log.address, topic))
                && block.transactions.iter().any(|tx| tx.hash == log.transaction_hash)
        };
        if logs.iter().all(is_ours) {
            return Ok(());
        }
        let reason = format!("a log of another block, transaction or contract than asked for: {}", header.block);
        Err(endpoint.unusable(LOGS, &reason))
    }

    fn place(&self, log: &ListedLog<'_>) -> Option<usize> {
        self.sources.position(&log.address, log.topics.first()?)
    }

    /// What may be a credit: each transaction's own value whether or not it succeeded (unless the chain logs native
    /// movements), mints, withdrawals, logs.
    fn transfers(&self, found: &Found<'_>, logs: &[ListedLog<'_>]) -> Vec<AssetTransfer> {
        let number = found.header.block.number;
        let source = native::Source::of(self.rules.native, number);
        let mut transfers = Vec::new();
        for wire in &found.block.transactions {
            let Ok(kind) = Kind::parse(wire.kind, self.rules.stack) else { continue };
            let own = (source == native::Source::OwnValues).then(|| {
                let recipient = wire.to.map_or_else(|| created_contract(&wire.from, wire.nonce.0), Into::into);
                Movement::native(wire.from.into(), recipient, wire.value.0)
            });
            let of_tx = logs.iter().filter(|log| log.transaction_hash == wire.hash).map(ListedLog::wire);
            let logged = of_tx.filter_map(|log| source.movement(&log).or_else(|| self.token(&log, number)));
            let movements = legs::minted(kind, wire).into_iter().chain(own).chain(logged);
            let tx = legs::reference(kind, wire);
            transfers.extend(movements.filter(|it| it.defect().is_none()).map(|it| it.transfer(tx)));
        }
        transfers.extend(withdrawals::of_block(self.rules.stack, &found.block).iter().filter_map(withdrawals::leg));
        number_equal_legs(&mut transfers);
        transfers
    }

    /// What may be uses of intents: what stands between two logs in their block is not seen here.
    fn marks(&self, found: &Found<'_>, logs: &[ListedLog<'_>]) -> Vec<Mark> {
        let mut marks = Vec::new();
        if !self.rules.take_intents() {
            return marks;
        }
        for wire in &found.block.transactions {
            let Ok(kind) = Kind::parse(wire.kind, self.rules.stack) else { continue };
            let of_tx = logs.iter().filter(|log| log.transaction_hash == wire.hash).map(ListedLog::wire);
            let (tx, of_tx) = (legs::reference(kind, wire), of_tx.collect::<Vec<_>>());
            marks.extend(marks::of_logs(&self.rules, found.header.block.number, tx, &of_tx));
        }
        marks
    }

    fn token(&self, log: &WireLog<'_>, number: u64) -> Option<Movement> {
        legs::token(log).filter(|_| self.rules.listed.holds(&log.address.into(), number))
    }

    /// Who paid for each transaction, and what it could have cost at most.
    fn fees(&self, found: &Found<'_>) -> Vec<Fee> {
        let fee = |wire: &WireTx<'_>| {
            let kind = Kind::parse(wire.kind, self.rules.stack).ok()?;
            let price = wire.max_fee_per_gas.or(wire.gas_price)?.0;
            let amount = price.saturating_mul(U256::from(wire.gas.0));
            let payer = Address::Evm(wire.from.into());
            Some(Fee { tx: legs::reference(kind, wire), payer, amount, outlay: 0, proved: false })
        };
        found.block.transactions.iter().filter_map(fee).collect()
    }
}

pub(crate) fn bloom<T>(endpoint: &Endpoint, block: &WireBlock<'_, T>) -> Result<Bloom, EvmError> {
    Bloom::read(block.logs_bloom).ok_or_else(|| endpoint.unusable(BY_NUMBER, "a logsBloom of another length than 256"))
}

impl<'a> ListedLog<'a> {
    /// As a receipt would show it.
    fn wire(&self) -> WireLog<'a> {
        WireLog { address: self.address, topics: self.topics.clone(), data: self.data }
    }
}
