//! Real blocks prove, and have the legs that were written down for them by hand.
//!
//! `testdata/SOURCES.md` says where each is from. What a list of legs was taken from stands beside it.

use landfall_chain::{
    Address as ChainAddress, AddressSource, Asset, AssetId, AssetTransfer, Block, BlockSource, Chain, EndpointState,
    Family, Found, Network, Proof, Read, Watched,
};
use landfall_evm::network;
use serde_json::json;

use crate::forge;
use crate::node::{Ledger, Node};

const BAT: (&str, &str) = ("BAT", "0x0d8775f648430679a709e98d2b0cb6250d2887ef");
const OMG: (&str, &str) = ("OMG", "0xd26114cd6ee289accf82350c8d8487fedb8a0c07");
const USDT_OP: (&str, &str) = ("USDT", "0x94b008aa00579c1307b0ef2c499ad98a8ce58e58");
const USDC_E_OP: (&str, &str) = ("USDC.e", "0x7f5c764cbc14f9669b88837ca1490cca17c31607");
const OP: (&str, &str) = ("OP", "0x4200000000000000000000000000000000000042");
pub(crate) const WETH_POLYGON: (&str, &str) = ("WETH", "0x7ceb23fd6bc0add59e62ac25578270cff1b9f619");
pub(crate) const USDC_E_POLYGON: (&str, &str) = ("USDC.e", "0x2791bca1f2de4661ed88a30c99a7a9449aa84174");
const DAI_POLYGON: (&str, &str) = ("DAI", "0x8f3cf7ad23cd3cadbd9735aff958023239c6a063");
/// Minted by the pseudo transaction of the block, and by nothing else in it.
const BRIDGED_POLYGON: (&str, &str) = ("bridged", "0x385eeac5cb85a38a9a07a70c73e0a3271cfb54a7");

const NAMES: [(Chain, &str); 4] = [
    (Chain::EthereumMainnet, "eth_mainnet"),
    (Chain::BaseMainnet, "base_mainnet"),
    (Chain::OptimismMainnet, "optimism_mainnet"),
    (Chain::PolygonMainnet, "polygon_mainnet"),
];

pub(crate) fn listing(chain: Chain, contracts: &[(&str, &str)]) -> Network {
    let mut network = network(chain).unwrap();
    for (symbol, contract) in contracts {
        let contract = ChainAddress::parse(Family::Evm, contract).unwrap();
        let id = AssetId::Token(contract);
        network.assets.push(Asset { id, symbol: (*symbol).to_owned(), decimals: 18, from_block: 0, route: None });
    }
    network
}

pub(crate) async fn read(network: Network, prefix: &str, number: u64) -> Block {
    let ledger = Ledger::recorded(network.chain, prefix, number);
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let mut blocks = node.source(network).blocks(number..=number, Read::FULL).await.unwrap();
    assert_eq!(blocks.len(), 1);
    blocks.remove(0)
}

/// The legs as text: first 4 bytes of the hash, symbol, sender, recipient, base units.
pub(crate) async fn legs(chain: Chain, number: u64, contracts: &[(&str, &str)]) -> String {
    let network = listing(chain, contracts);
    let prefix = NAMES.iter().find(|(name, _)| *name == chain).unwrap().1;
    let block = read(network.clone(), prefix, number).await;
    assert!(block.transfers.iter().all(|transfer| transfer.nth == 0));
    legs_of(&network, &block)
}

/// The same of a block that was read.
pub(crate) fn legs_of(network: &Network, block: &Block) -> String {
    block.transfers.iter().map(|transfer| line(network, transfer)).collect()
}

fn line(network: &Network, transfer: &AssetTransfer) -> String {
    let hex = |bytes: &[u8]| alloy::hex::encode(bytes);
    let symbol = match transfer.asset {
        AssetId::Native => "native",
        AssetId::Token(_) => &network.asset(&transfer.asset).unwrap().symbol,
    };
    let (tx, sender) = (hex(&transfer.tx.id.as_bytes()[..4]), hex(transfer.sender.as_bytes()));
    format!("{tx} {symbol} {sender} {} {}\n", hex(transfer.recipient.as_bytes()), transfer.amount)
}

#[tokio::test]
async fn recorded_blocks_prove() {
    use Chain::{BaseMainnet, EthereumMainnet, OptimismMainnet, PolygonMainnet};
    // Chain, number, transactions in the roots, legs: native ones, then Circle's and Tether's tokens. Which they are is
    // written down below and, where they are many, in `testdata/legs`.
    let cases = [
        (EthereumMainnet, 468_179, 1, 0),
        (EthereumMainnet, 4_370_006, 64, 7),
        (EthereumMainnet, 4_404_763, 95, 42),
        (EthereumMainnet, 7_280_016, 91, 43),
        (EthereumMainnet, 11_098_450, 185, 52 + 6 + 43),
        (EthereumMainnet, 16_899_757, 147, 73 + 11 + 12),
        (BaseMainnet, 100, 1, 0),
        (BaseMainnet, 77_976, 2, 1),
        (OptimismMainnet, 10_000, 1, 1),
        (OptimismMainnet, 105_237_730, 2, 0),
        (OptimismMainnet, 109_860_869, 8, 1),
        (PolygonMainnet, 1_000_000, 0, 0),
        (PolygonMainnet, 10_000_000, 5, 0),
        (PolygonMainnet, 38_102_393, 65, 16),
        (PolygonMainnet, 43_200_000, 67, 19),
    ];
    for (chain, number, txs, legs) in cases {
        let prefix = NAMES.iter().find(|(name, _)| *name == chain).unwrap().1;
        let block = read(network(chain).unwrap(), prefix, number).await;
        assert_eq!(block.proof, Proof::Roots);
        assert_eq!((block.txs.len(), block.transfers.len()), (txs, legs), "{chain} {number}");
    }
}

#[tokio::test]
async fn recorded_blocks_of_ropsten_before_byzantium_prove_and_credit_nothing() {
    let cases = [
        (10_991, 0),
        (10_992, 0),
        (10_994, 1),
        (239_782, 1),
        (363_366, 3),
        (363_415, 2),
        (363_753, 2),
        (468_179, 2),
        (468_194, 2),
    ];
    for (number, txs) in cases {
        let block = read(network(Chain::EthereumMainnet).unwrap(), "eth_ropsten", number).await;
        assert_eq!(block.proof, Proof::Roots);
        assert_eq!((block.txs.len(), block.transfers.len()), (txs, 0), "{number}");
    }
}

#[tokio::test]
async fn a_block_of_ethereum_has_the_legs_written_down_by_hand() {
    // The OMG one is a sweep: its signer is the recipient, the sender is another.
    let expected = "\
        61d92893 native 69ea6b31ef305d6b99bb2d4c9d99456fa108b02a d1f34dc6b5d55e8040db54f55fd1e180d3b54f93 3000000000000000\n\
        18507e71 BAT fbb1b73c4f0bda4f67dca266ce6ef42f520fbb98 4dc13078776561275afb811c98b32d659f00c605 853913793100000000000\n\
        5eaf490d OMG a5d334876493831ade6c8681b75623bc3e005f5f fbb1b73c4f0bda4f67dca266ce6ef42f520fbb98 200095855930000000000\n\
        f61c57a5 native dd8c5bfe09d6f2a8b9054ffd83da98f52f26c15c 8d12a197cb00d4747a1fe03395095ce2a5cc6819 144351154000000000\n\
        538483f9 native 215c86bc952b0d98c4b2313a0a9ae56fa33c7f5d 5d8e9a4b36589e6a3a820de41c693b8651eed04b 270403532000000000\n\
        6c49c671 native 44de2e2b1f378d51e0d2a2ae5ebe4d427ab955a9 b9ddcddba5d5ccfefc63321d8db7b05f1e9567fa 19364070000000000\n\
        6e2ca73c native df2c94453c39ae8df0cad78fc8cb4d6ed54b4e3a 008ef0e604fb49d668d9315c06aefb3d59a49c38 124767404000000000\n\
        0ee1211e native 45690335ffb5c44dad712882854b1c589522fc24 3f165fea4a171377d78af26cb988663aea137b03 50000000000000000\n\
        bb4ee2f3 native 23f28731980af955bb97da67cc9e2a512ee5157a 2479ce552d2c2abe17ddaa6c539a068138a56940 50537890000000000\n";
    assert_eq!(legs(Chain::EthereumMainnet, 4_370_006, &[BAT, OMG]).await, expected);
    let block = read(network(Chain::EthereumMainnet).unwrap(), "eth_mainnet", 4_370_006).await;
    assert_eq!(block.header.parent.number, 4_370_005);
    assert_eq!(block.header.time_secs, 0x59e4_4269);
}

#[tokio::test]
async fn a_block_of_base_has_the_mint_of_a_deposit() {
    // Read off the fixture: the second deposit mints 0.019 ETH for its sender and sends the same to that sender.
    let expected = "de692cc7 native 0000000000000000000000000000000000000000 e8a3ecea7d6a688ee903173024225357ddf29e93 \
        19178228000000000\n";
    assert_eq!(legs(Chain::BaseMainnet, 77_976, &[]).await, expected);
}

#[tokio::test]
async fn a_deposit_of_before_canyon_has_its_nonce_in_the_receipt_and_not_in_the_root() {
    // The fixture's source kept no depositNonce; nodes show it for blocks of that time.
    for (version, proves) in [(None, true), (Some("0x1"), false)] {
        let ledger = Ledger::recorded(Chain::BaseMainnet, "base_mainnet", 77_976);
        let (block, mut receipts) = ledger.blocks.into_values().next().unwrap();
        receipts[0]["depositNonce"] = json!("0x13097");
        receipts[1]["depositNonce"] = json!("0x0");
        if let Some(version) = version {
            receipts[1]["depositReceiptVersion"] = json!(version);
        }
        let read = forge::read(Chain::BaseMainnet, (block, receipts)).await;
        match read {
            Ok(_) => assert!(proves),
            Err(error) => assert!(!proves && error.to_string().contains("receiptsRoot"), "{error}"),
        }
    }
}

#[tokio::test]
async fn the_root_of_a_nodes_own_deposits_holds_with_canyons_encoding_alone() {
    let ledger = Ledger::recorded(Chain::BaseMainnet, "anvil_optimism", 1);
    let (block, receipts) = ledger.blocks.into_values().next().unwrap();
    assert!(forge::read(Chain::BaseMainnet, (block.clone(), receipts.clone())).await.is_ok());
    for field in ["depositReceiptVersion", "depositNonce"] {
        let mut receipts = receipts.clone();
        for receipt in receipts.as_array_mut().unwrap() {
            receipt.as_object_mut().unwrap().remove(field);
        }
        let error = forge::read(Chain::BaseMainnet, (block.clone(), receipts)).await.unwrap_err();
        assert!(error.to_string().contains("receiptsRoot"), "without {field}: {error}");
    }
}

#[tokio::test]
async fn blocks_of_optimism_have_the_legs_written_down_by_hand() {
    // The oracle is the list of token transfers that the fixture holds, and the values of its transactions.
    let before_bedrock = "\
        b7547e82 native af5078304758425660b93bada9fc922801c0cbdc e592427a0aece92de3edee1f18e0157c05861564 21390000000000000\n\
        b7547e82 USDT c858a329bf053be78d6239c4a4343b8fbd21472b af5078304758425660b93bada9fc922801c0cbdc 100068169\n";
    assert_eq!(legs(Chain::OptimismMainnet, 10_000, &[USDT_OP]).await, before_bedrock);
    let expected = "\
        279fb42e USDC.e 85149247691df622eaf1a8bd0cafd40bc45154a9 6cfdac4a1f9df334db8dccfda2fb62b46f705582 2200070048\n\
        9179de97 OP 6676ae96a46458f7307e432a86a26533ee970d1d 1231deb6f5749ef6ce6943a275a1d3e7486f4eae 40000000000000000000\n\
        9179de97 OP 1231deb6f5749ef6ce6943a275a1d3e7486f4eae b63aae6c353636d66df13b89ba4425cfe13d10ba 40000000000000000000\n\
        9179de97 OP b63aae6c353636d66df13b89ba4425cfe13d10ba ba12222222228d8ba445958a75a0704d566bf2c8 40000000000000000000\n\
        c1d86704 USDC.e a09e1c45292989a1502c7661258d08b31f072893 3fc91a3afd70395cd496c647d5a6cc9d4b2b7fad 57643400\n\
        c1d86704 USDC.e 3fc91a3afd70395cd496c647d5a6cc9d4b2b7fad 8eda97883a1bc02cf68c6b9fb996e06ed8fdb3e5 57643400\n\
        f9d2dbbe native 100d96c63ede21dc84e703d4c12c934ab35fca85 3a23f943181408eac424116af7b7790c94cb97a5 100000000000000\n\
        f9d2dbbe OP cdd41009e74bd1ae4f7b2eecf892e4bc718b9302 1111111254eeb25477b68fb85ed929f73a960582 121904596828963025\n\
        f9d2dbbe OP 1111111254eeb25477b68fb85ed929f73a960582 100d96c63ede21dc84e703d4c12c934ab35fca85 121904596828963025\n";
    assert_eq!(legs(Chain::OptimismMainnet, 109_860_869, &[USDC_E_OP, OP]).await, expected);
}

#[tokio::test]
async fn a_block_of_polygon_has_the_legs_written_down_by_hand() {
    // The oracle as above. The first transfer of WETH has amount zero; the bridged token's mint, of the pseudo
    // transaction, is in no root and must not be there although the token is listed.
    let expected = "\
        5f91f2af USDC.e eaef0c7b11f84a8a97af028d3dbdab5f90adf52e 63f505dc1b9267bc2017b7e3d2f9fca29f1b285d 35000000\n\
        5f91f2af USDC.e 63f505dc1b9267bc2017b7e3d2f9fca29f1b285d 4d97dcd97ec945f40cf65f87097ace5ea0476045 34300000\n\
        fc7e00e3 USDC.e 4d97dcd97ec945f40cf65f87097ace5ea0476045 3d8a89a20aa73fba0f30d080e8120de9f9555724 12037748138\n\
        7f9a797d DAI cdcdb5e59e14ca5d3291dd6d8aa7c122d15b9a76 bf79ce2fbd819e5abc2327563d02a200255b7cb3 62500000000000000000\n";
    let listed = [WETH_POLYGON, USDC_E_POLYGON, DAI_POLYGON, BRIDGED_POLYGON];
    assert_eq!(legs(Chain::PolygonMainnet, 10_000_000, &listed).await, expected);
}

#[tokio::test]
async fn e18_a_search_reads_a_block_whose_state_sync_is_shown_and_in_no_bloom() {
    // Nodes answer eth_getLogs with the logs of the pseudo transaction too, and no header vouches for them.
    let network = listing(Chain::PolygonMainnet, &[BRIDGED_POLYGON]);
    let ledger = Ledger::recorded(Chain::PolygonMainnet, "polygon_mainnet", 10_000_000);
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let source = node.source(network);
    let found = source.candidates(10_000_000..=10_000_000, Watched::Asked(&|_| false)).await.unwrap();
    let Found::Linked(candidates) = found else { panic!("{found:?}") };
    let numbers: Vec<u64> = candidates.hits.iter().map(|hit| hit.number).collect();
    assert_eq!((numbers, candidates.headers.len()), (vec![10_000_000], 1));
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy, "it showed nothing false");
    // Whoever reads it in full sets those logs aside.
    let block = source.blocks(10_000_000..=10_000_000, Read::FULL).await.unwrap().remove(0);
    assert!(block.transfers.iter().all(|leg| leg.asset == AssetId::Native), "{:?}", block.transfers);
}

#[tokio::test]
async fn e17_native_legs_of_polygon_are_those_of_its_transfer_logs() {
    // Read off the logs of 0x1010 with the topic LogTransfer. The first transaction's own value is one of them,
    // once; the second has no value of its own, and moves some five times inside. The block's 65 fees are logged at the
    // same address, and make no leg.
    let expected = "\
        77aa9d4d native 67ce2ecbf88c58592968a0314934d1b0412a79ab e27d8cfa2ccc821a9b9f1f15e4e570045ad2c725 9563000000000000\n\
        654bc104 native 0d500b1d8e8ef31e21c99d1db9a6444d3adf1270 f2280f5c0284cf52c0cb2244fb7803f6df42436e 189190000000000000000\n\
        654bc104 native f2280f5c0284cf52c0cb2244fb7803f6df42436e a63d57042b2d462b8dcf1570f8288dba405cc909 189190000000000000000\n\
        654bc104 native a63d57042b2d462b8dcf1570f8288dba405cc909 d4013b79867c03d3fb5196899193efc8f29d54a4 189190000000000000000\n\
        654bc104 native d4013b79867c03d3fb5196899193efc8f29d54a4 7199d57efddf2731933bbde8ab0dd0245ba032f4 188811620000000000000\n\
        654bc104 native d4013b79867c03d3fb5196899193efc8f29d54a4 fe94035585cf6695446204682c4e3cb09dc74041 378380000000000000\n\
        27a5cba8 native 2265c22d39e9da0ab8d0c81cbcb703c597f3c574 6a13904a3fb14ffc9d82384ece9bd846f354e1d8 1000000000000000000\n\
        27a5cba8 native 6a13904a3fb14ffc9d82384ece9bd846f354e1d8 a1aac672766302d3722eac432dc7b49c0c41eaaf 1000000000000000000\n\
        b0774a96 native d18bf1c327132060454f41dc354fa6cfb1665205 5268ba85beada5891203aa7f836269741127e31d 40000000000000000\n\
        b0774a96 native 5268ba85beada5891203aa7f836269741127e31d 47c3988f10aa680ee4c4ae38d7a22e0eef5724c5 1800000000000000\n\
        b0774a96 native 5268ba85beada5891203aa7f836269741127e31d f4e5a4fa21c91494e913d1619757d11bebc16d93 38200000000000000\n\
        4b071a98 native f80c025c8575f2a427e3d95e6ca27d80b82609dd 19c53b843e3072acf0e2860b6758e87df5dbeb80 102000000000000000000\n\
        ed3ffd66 native 6b8cc7730dd18c8c1a7a74d229f030493f5056d4 535a8a4a0d1eb5e9541227ebfb13d98c67c0fbf1 7300000000000000000\n\
        ed3ffd66 native 535a8a4a0d1eb5e9541227ebfb13d98c67c0fbf1 309b186792b74cc81497a113555b333ad79ac78c 7300000000000000000\n\
        ed3ffd66 native 309b186792b74cc81497a113555b333ad79ac78c 4b7ac2d3fd354239f2e6be00918387d978bdfc46 6789000000000000000\n\
        ed3ffd66 native 309b186792b74cc81497a113555b333ad79ac78c d0caf45a4769e7fe1e142838d23fbc0be98464ab 511000000000000000\n";
    assert_eq!(legs(Chain::PolygonMainnet, 38_102_393, &[]).await, expected);
}

#[tokio::test]
async fn a_block_that_anvil_made_of_deposits_proves_as_canyon_encodes_it() {
    // Sent as raw transactions to anvil 1.7.1; the balances that it showed afterwards were those of these legs. The
    // second deposit failed and kept its mint; the fourth made a log.
    let base = network(Chain::BaseMainnet).unwrap();
    let block = read(base.clone(), "anvil_optimism", 1).await;
    let a1 = "a1".repeat(20);
    let (b2, zero) = ("b2".repeat(20), "00".repeat(20));
    let expected = [
        format!("1e17ea74 native f39fd6e51aad88f6f4ce6ab8827279cfffb92266 {b2} 5\n"),
        format!("c1f75848 native {zero} {a1} 1000000000000000000\n"),
        format!("c1f75848 native {a1} {b2} 400000000000000000\n"),
        format!("105deba9 native {zero} {} 500000000000000000\n", "c3".repeat(20)),
        format!("a8edd5e8 native {zero} {} 7\n", "d4".repeat(20)),
        format!("e159056c USDC {a1} {b2} 1000000\n"),
    ];
    assert_eq!(legs_of(&base, &block), expected.concat());
}

#[test]
fn every_recorded_file_has_its_source_written_down() {
    let folder = format!("{}/testdata", env!("CARGO_MANIFEST_DIR"));
    let sources = std::fs::read_to_string(format!("{folder}/SOURCES.md")).unwrap();
    // `a_{b,c}.json` is `a_b.json` and `a_c.json`.
    let mut written = Vec::new();
    for name in sources.split('`').filter(|text| text.ends_with(".json")) {
        match name.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?))) {
            Some((head, (parts, tail))) => written.extend(parts.split(',').map(|part| format!("{head}{part}{tail}"))),
            None => written.push(name.to_owned()),
        }
    }
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // What providers say about limits was written down, not recorded.
        let is_recorded = name.ends_with(".json") && name != "limits.json";
        assert!(!is_recorded || written.contains(&name), "{name}");
    }
}
