//! The blocks that inputs are made from: forged ones that hold every kind of transaction and leg, and recorded ones.
//!
//! What a node answers about a block is a list of answers, one for each method: a further method is a line in
//! [`Fixture::answers`].

use alloy::consensus::transaction::SignerRecoverable;
use alloy::consensus::{TxEnvelope, TxType};
use alloy::eips::eip4895::Withdrawal;
use alloy::primitives::{Address, B256, Bytes, address};
use landfall_chain::{Address as ChainAddress, Asset, AssetId, Chain, Finality, FinalityRule, Native, Network};
use landfall_evm::network;
use serde_json::{Value, json};

use super::reference::word;
use crate::forge::{self, Deposit, Entry};
use crate::mint::{self, Tx, log, transfer};
use crate::node::Ledger;

pub(super) const BLOCK: &str = "eth_getBlockByNumber";
pub(super) const RECEIPTS: &str = "eth_getBlockReceipts";
pub(super) const RAW_TX: &str = "eth_getRawTransactionByBlockHashAndIndex";

pub(super) const USDC: Address = address!("A0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48");
const USDC_BASE: Address = address!("833589fCD6eDb6E08f4c7C32D4f71b54bdA02913");
pub(super) const USDC_POLYGON: Address = address!("3c499c542cEF5E3811e1192ce70d8cC03d5c3359");
const ALICE: Address = Address::repeat_byte(0x0a);
const BOB: Address = Address::repeat_byte(0x0b);
/// Listed besides, so that the recorded blocks have legs.
const LISTED: [(Chain, Address); 5] = [
    (Chain::EthereumMainnet, address!("0d8775f648430679a709e98d2b0cb6250d2887ef")),
    (Chain::EthereumMainnet, address!("d26114cd6ee289accf82350c8d8487fedb8a0c07")),
    (Chain::OptimismMainnet, address!("94b008aa00579c1307b0ef2c499ad98a8ce58e58")),
    (Chain::PolygonMainnet, address!("7ceb23fd6bc0add59e62ac25578270cff1b9f619")),
    (Chain::PolygonMainnet, address!("2791bca1f2de4661ed88a30c99a7a9449aa84174")),
];
/// Prefix and number in `testdata`, and how often for each hundred of those above it: reading a large one takes long.
const SMALL: [(Chain, &str, u64); 7] = [
    (Chain::EthereumMainnet, "eth_mainnet", 468_179),
    (Chain::BaseMainnet, "base_mainnet", 77_976),
    (Chain::BaseMainnet, "anvil_optimism", 1),
    (Chain::OptimismMainnet, "optimism_mainnet", 10_000),
    (Chain::OptimismMainnet, "optimism_mainnet", 105_237_730),
    (Chain::OptimismMainnet, "optimism_mainnet", 109_860_869),
    (Chain::PolygonMainnet, "polygon_mainnet", 1_000_000),
];
const LARGE: [(Chain, &str, u64); 8] = [
    (Chain::PolygonMainnet, "polygon_mainnet", 10_000_000),
    (Chain::EthereumMainnet, "eth_mainnet", 4_370_006),
    (Chain::EthereumMainnet, "eth_mainnet", 4_404_763),
    (Chain::EthereumMainnet, "eth_mainnet", 7_280_016),
    (Chain::EthereumMainnet, "eth_mainnet", 11_098_450),
    (Chain::EthereumMainnet, "eth_mainnet", 16_899_757),
    (Chain::PolygonMainnet, "polygon_mainnet", 38_102_393),
    (Chain::PolygonMainnet, "polygon_mainnet", 43_200_000),
];

/// A block or a few linked ones, with all that a node tells of them.
pub(super) struct Fixture {
    pub(super) name: String,
    pub(super) network: Network,
    pub(super) blocks: Vec<(Value, Value)>,
    raw: Option<Value>,
}

/// A method and what it answers.
pub(super) type Answer = (&'static str, Value);

pub(super) struct Corpus {
    /// The small ones stand first.
    pub(super) fixtures: Vec<Fixture>,
    pub(super) small: usize,
}

impl Fixture {
    /// What the node answers, in the order of the calls of each method.
    pub(super) fn answers(&self) -> Vec<Answer> {
        let blocks = self.blocks.iter().map(|(block, _)| (BLOCK, block.clone()));
        let has_txs = |block: &Value| block["transactions"] != json!([]);
        let receipts = self.blocks.iter().filter(|(block, _)| has_txs(block));
        let receipts = receipts.map(|(_, receipts)| (RECEIPTS, receipts.clone()));
        blocks.chain(receipts).chain(self.raw.iter().map(|raw| (RAW_TX, raw.clone()))).collect()
    }

    pub(super) fn first(&self) -> u64 {
        u64::from_str_radix(&self.blocks[0].0["number"].as_str().unwrap()[2..], 16).unwrap()
    }

    /// The same blocks as those of a network with other facts.
    pub(super) fn on(self, network: Network) -> Fixture {
        Fixture { network, ..self }
    }

    pub(super) fn made(name: &str, chain: Chain, blocks: Vec<(Value, Value)>) -> Fixture {
        Fixture { name: name.to_owned(), network: listing(chain), blocks, raw: None }
    }
}

impl Corpus {
    pub(super) fn new() -> Corpus {
        let mut fixtures = vec![
            Fixture::made("every type", Chain::EthereumMainnet, vec![every_type(5)]),
            Fixture::made("another at its height", Chain::EthereumMainnet, vec![payouts(5)]),
            Fixture::made("three linked", Chain::EthereumMainnet, three_linked(1)),
            Fixture::made("another branch", Chain::EthereumMainnet, three_linked(2)),
            Fixture::made("payments on Polygon", Chain::PolygonMainnet, vec![payouts(16)]),
            Fixture::made("withdrawals", Chain::EthereumMainnet, vec![withdrawals()]),
            Fixture::made("deposits of the OP stack", Chain::BaseMainnet, vec![deposits()]),
            state_sync(),
        ];
        let recorded = |(chain, prefix, number): (Chain, &str, u64)| {
            let blocks = Ledger::recorded(chain, prefix, number).blocks.into_values().collect();
            Fixture::made(&format!("{prefix}_{number}"), chain, blocks)
        };
        fixtures.extend(SMALL.map(recorded));
        let small = fixtures.len();
        fixtures.extend(LARGE.map(recorded));
        Corpus { fixtures, small }
    }

    /// The true block with this hash, and its receipts.
    pub(super) fn true_block(&self, hash: B256) -> Option<(&Value, &Value)> {
        let mut blocks = self.fixtures.iter().flat_map(|fixture| &fixture.blocks);
        blocks.find(|(block, _)| word(&block["hash"]) == hash).map(|(block, receipts)| (block, receipts))
    }
}

/// A network whose native value is that of transactions, and whose final blocks are those of the tag, whatever its embedded
/// facts say.
pub(super) fn listing(chain: Chain) -> Network {
    let finality = Finality { rule: FinalityRule::FINALIZED, tiers: Vec::new() };
    let mut network = Network { native: Native::TOP_LEVEL, finality, ..network(chain).unwrap() };
    let pattern = network.assets.last().unwrap().clone();
    for (_, contract) in LISTED.into_iter().filter(|(listed, _)| *listed == chain) {
        network.assets.push(Asset { id: AssetId::Token(ChainAddress::Evm(contract.into())), ..pattern.clone() });
    }
    network
}

/// The block with the senders that its signatures have: what recovers them finds nothing to object to.
pub(super) fn with_true_senders((mut block, receipts): (Value, Value)) -> (Value, Value) {
    for tx in block["transactions"].as_array_mut().unwrap() {
        let envelope: TxEnvelope = serde_json::from_value(tx.clone()).unwrap();
        tx["from"] = json!(envelope.recover_signer().unwrap());
    }
    (block, receipts)
}

fn every_type(number: u64) -> (Value, Value) {
    let amount = alloy::primitives::U256::from(5).to_be_bytes::<32>();
    let collectible = log(USDC, &[mint::TRANSFER, ALICE.into_word(), BOB.into_word(), B256::with_last_byte(5)], &[]);
    let fake = transfer(Address::repeat_byte(0xcc), ALICE, BOB, 5);
    let odd = log(USDC, &[mint::TRANSFER, ALICE.into_word(), BOB.into_word()], &amount[1..]);
    let paying = |kind| Tx { kind, to: Some(BOB), value: 7, ..Tx::default() };
    let calling = |kind, logs| Tx { kind, to: Some(USDC), logs, input: vec![1, 2, 3].into(), ..Tx::default() };
    let pair = vec![transfer(USDC, ALICE, BOB, 5), transfer(USDC, ALICE, BOB, 5)];
    let mut txs = vec![
        paying(TxType::Legacy),
        calling(TxType::Legacy, vec![transfer(USDC, ALICE, BOB, 5), fake, collectible, odd]),
        Tx { to: None, value: 9, ..Tx::default() },
        Tx { success: false, value: 7, ..Tx::default() },
        calling(TxType::Eip2930, pair),
        calling(TxType::Eip4844, vec![transfer(USDC, Address::ZERO, ALICE, 1)]),
        paying(TxType::Eip7702),
        Tx::default(),
    ];
    (0..).zip(&mut txs).for_each(|(nonce, tx)| tx.nonce = nonce);
    with_true_senders(mint::block(number, B256::repeat_byte(1), &txs))
}

fn payouts(number: u64) -> (Value, Value) {
    let logs = vec![transfer(USDC, ALICE, BOB, 5), transfer(USDC, BOB, BOB, 5), transfer(USDC, BOB, ALICE, 6)];
    let txs = [Tx { logs, value: 1, ..Tx::default() }, Tx { nonce: 1, value: 7, ..Tx::default() }];
    with_true_senders(mint::block(number, B256::repeat_byte(2), &txs))
}

fn three_linked(amount: u64) -> Vec<(Value, Value)> {
    let paying = |nonce| vec![Tx { nonce, value: amount, logs: vec![transfer(USDC, ALICE, BOB, 5)], ..Tx::default() }];
    mint::chain(20, vec![paying(0), vec![], paying(1)]).into_iter().map(with_true_senders).collect()
}

fn withdrawals() -> (Value, Value) {
    let withdrawal = |index, address, amount| Withdrawal { index, validator_index: index + 7, address, amount };
    forge::block(&[], &[withdrawal(1, ALICE, 32), withdrawal(2, BOB, 5), withdrawal(3, BOB, 5), withdrawal(4, BOB, 0)])
}

fn deposits() -> (Value, Value) {
    let minting = Deposit { mint: Some(11), value: 4, ..Deposit::default() };
    let creating = Deposit { to: None, value: 3, ..Deposit::default() };
    let failed = Entry { success: false, ..Deposit { mint: Some(6), value: 6, ..Deposit::default() }.entry() };
    let logging = Entry { logs: vec![transfer(USDC_BASE, ALICE, BOB, 5)], ..Deposit::default().entry() };
    let before_canyon = Entry { version: None, ..Deposit { value: 2, ..Deposit::default() }.entry() };
    // Nothing proves its nonce, and so not the contract either.
    let creating_early = Entry { version: None, ..creating.entry() };
    let system = Deposit { system: true, ..Deposit::default() };
    let entries = [minting.entry(), creating.entry(), failed, logging, before_canyon, creating_early, system.entry()];
    forge::block(&entries, &[])
}

/// One of PIP-74, whose encoding is asked for by itself.
fn state_sync() -> Fixture {
    let (data, hash) = (Bytes::from_static(b"alpha"), B256::repeat_byte(0x11));
    let event = forge::typed(0xff, &[&1_u64, &Address::repeat_byte(0x10), &data, &hash]).split_off(1);
    let mut leaf = vec![0x7f];
    alloy::rlp::Header { list: true, payload_length: event.len() }.encode(&mut leaf);
    leaf.extend_from_slice(&event);
    let json = json!({
        "type": "0x7f", "from": Address::ZERO, "to": Address::ZERO, "value": "0x0", "gas": "0x0", "input": "0x",
        "nonce": "0x0", "gasPrice": "0x0", "v": "0x0", "r": "0x0", "s": "0x0",
    });
    let logs = vec![transfer(USDC_POLYGON, Address::ZERO, BOB, 5)];
    let raw = Some(json!(Bytes::from(leaf.clone())));
    let entry = Entry { leaf, json, success: true, logs, deposit_nonce: None, version: None };
    Fixture { raw, ..Fixture::made("a state-sync", Chain::PolygonMainnet, vec![forge::block(&[entry], &[])]) }
}
