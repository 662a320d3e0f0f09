//! Real blocks of 2023 to 2026 prove, and have the legs that a second reading in another language finds in them.
//!
//! Shapella, Dencun, Pectra and Fusaka of Ethereum; Ecotone, Holocene and Isthmus of the OP stack; Polygon after Indore. Mode
//! and Unichain are no chains of the interface: their rules are those of OP Mainnet and OP Sepolia, and they are read as these.
//! `testdata/SOURCES.md` says where each is from, `tests/vectors/legs.py` writes the tables.

use alloy::primitives::B256;
use landfall_chain::{BlockSource, Chain, EndpointState, Native, Network, Proof, Read, ReadProof, SourceErrorKind};
use landfall_evm::network;
use serde_json::json;

use crate::node::{Ledger, Node};
use crate::recorded::{self, USDC_E_POLYGON, WETH_POLYGON, legs_of, listing};
use crate::tables::table;
use crate::traced::{self, unchanged};

const TOKEN: (&str, &str) = ("token", "0x298b4c4f9be251c100724a3beae234bd1652cbce");

/// A block, how many transactions and withdrawals its roots hold, and how many legs its table has.
type Case = (Chain, &'static str, u64, usize, usize);

const WHOLE: [Case; 14] = [
    (Chain::EthereumMainnet, "eth_mainnet", 18_000_000, 94 + 16, 65),
    (Chain::EthereumMainnet, "eth_mainnet", 19_807_080, 9 + 16, 25),
    (Chain::EthereumMainnet, "eth_mainnet", 19_840_104, 16, 16),
    (Chain::EthereumMainnet, "eth_mainnet", 20_000_000, 134 + 16, 111),
    (Chain::EthereumMainnet, "eth_mainnet", 20_066_032, 43 + 16, 38),
    (Chain::EthereumMainnet, "eth_mainnet", 22_244_135, 125 + 16, 134),
    (Chain::EthereumMainnet, "eth_mainnet", 23_879_620, 142 + 16, 135),
    (Chain::EthereumMainnet, "eth_mainnet", 24_628_607, 66 + 16, 91),
    (Chain::EthereumMainnet, "eth_mainnet", 24_647_140, 60 + 16, 116),
    (Chain::OptimismMainnet, "mode_mainnet", 8_017_051, 6, 0),
    (Chain::OptimismSepolia, "optimism_sepolia", 26_207_960, 10, 9),
    (Chain::OptimismSepolia, "optimism_sepolia", 26_207_962, 48, 42),
    (Chain::OptimismSepolia, "unichain_sepolia", 35_535_698, 6, 0),
    (Chain::PolygonMainnet, "polygon_mainnet", 50_000_000, 564, 34),
];

const WITHOUT_RECEIPTS: [Case; 4] = [
    (Chain::EthereumMainnet, "eth_mainnet", 19_426_587, 37 + 16, 31),
    (Chain::EthereumMainnet, "eth_mainnet", 22_431_084, 95 + 16, 59),
    (Chain::EthereumMainnet, "eth_mainnet", 23_223_655, 372 + 16, 148),
    (Chain::EthereumTestnet, "eth_sepolia", 10_100_112, 48 + 16, 19),
];

fn listed(chain: Chain) -> Network {
    match chain {
        Chain::OptimismSepolia => listing(chain, &[TOKEN]),
        Chain::PolygonMainnet => listing(chain, &[USDC_E_POLYGON, WETH_POLYGON]),
        chain => listing(chain, &[]),
    }
}

/// Nothing but transactions' own values: neither logs nor receipts are asked for.
fn own_values(chain: Chain) -> Network {
    let mut network = Network { native: Native::TOP_LEVEL, ..network(chain).unwrap() };
    network.assets.truncate(1);
    network.delegates.clear();
    network
}

const LISTED: Read = Read { proof: ReadProof::Candidate, ..Read::FULL };

#[tokio::test]
async fn blocks_of_2023_to_2026_prove_and_have_the_legs_of_their_tables() {
    for (chain, prefix, number, txs, count) in WHOLE {
        let (network, expected) = (listed(chain), table(&format!("{prefix}_{number}_roots")));
        let block = recorded::read(network.clone(), prefix, number).await;
        assert_eq!(block.proof, Proof::Roots);
        assert_eq!(legs_of(&network, &block).lines().collect::<Vec<_>>(), expected, "{prefix} {number}");
        assert_eq!((block.txs.len(), expected.len()), (txs, count), "{prefix} {number}");
    }
}

#[tokio::test]
async fn blocks_recorded_without_receipts_prove_their_headers_transactions_and_withdrawals() {
    for (chain, prefix, number, txs, count) in WITHOUT_RECEIPTS {
        let network = own_values(chain);
        let ledger = Ledger::recorded_without_receipts(chain, prefix, number);
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let block = node.source(network.clone()).blocks(number..=number, LISTED).await.unwrap().remove(0);
        assert_eq!((block.proof, block.txs.len()), (Proof::Bloom, txs), "{prefix} {number}");
        let expected = table(&format!("{prefix}_{number}_candidates"));
        assert_eq!(legs_of(&network, &block).lines().collect::<Vec<_>>(), expected, "{prefix} {number}");
        assert_eq!(expected.len(), count, "{prefix} {number}");
    }
}

#[tokio::test]
async fn a_recent_block_without_receipts_is_refused_when_anything_in_it_is_changed() {
    let word = json!(B256::repeat_byte(9));
    // The fields of each fork, and the parts of each kind of transaction, in the last of these blocks: Pectra's, with type 4.
    let cases = [
        ("/parentBeaconBlockRoot", &word, "the header does not hash to it"),
        ("/excessBlobGas", &json!("0x1"), "the header does not hash to it"),
        ("/requestsHash", &word, "the header does not hash to it"),
        ("/withdrawals/3/amount", &json!("0x1"), "the withdrawals do not make up the header's withdrawalsRoot"),
        ("/withdrawals/3/address", &json!("0x00000000000000000000000000000000000000aa"), "withdrawalsRoot"),
        ("/transactions/200/value", &json!("0x1"), "transaction 200 does not hash to its stated hash"),
        ("/transactions/0/hash", &word, "transaction 0 does not hash to its stated hash"),
    ];
    let (chain, prefix, number, ..) = WITHOUT_RECEIPTS[2];
    let truth = Ledger::recorded_without_receipts(chain, prefix, number);
    let txs = truth.blocks[&number].0["transactions"].as_array().unwrap();
    let set_code = txs.iter().position(|tx| tx["type"] == "0x4").unwrap();
    let of_set_code = format!("/transactions/{set_code}/authorizationList/0/address");
    let expected = format!("transaction {set_code} does not hash to its stated hash");
    let delegated = (of_set_code.as_str(), &json!("0x00000000000000000000000000000000000000aa"), expected.as_str());
    for (path, value, expected) in cases.into_iter().chain([delegated]) {
        let mut lie = truth.clone();
        lie.blocks.entry(number).and_modify(|(block, _)| *block.pointer_mut(path).unwrap() = value.clone());
        let node = Node::start(move |method, params| lie.answer(method, params)).await;
        let source = node.source(own_values(chain));
        let error = source.blocks(number..=number, LISTED).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{path}: {error}");
        assert_eq!(error.kind, SourceErrorKind::Transient, "{path}");
        assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Quarantined, "{path}");
    }
}

#[tokio::test]
async fn a_block_of_2025_has_the_internal_legs_of_its_table() {
    // No root covers a trace, so nothing else would report.
    let hash = "475305be7d59a3c8e3c94af52308e16aa10ee671a27bb389b172dff2d5ad9b5f";
    unchanged(&[("eth_mainnet_22244135_traces", hash)]);
    let expected = table("eth_mainnet_22244135_traces");
    assert_eq!(expected.len(), 36);
    let block = traced::recorded(Chain::EthereumMainnet, "eth_mainnet", 22_244_135).await;
    let reported = traced::lines(&block).lines().map(|line| line.replacen(' ', " native ", 1)).collect::<Vec<_>>();
    assert_eq!(reported, expected);
}
