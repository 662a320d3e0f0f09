//! Real traces have the legs that were written down for them, and what anvil moved agrees with what is owned there.
//!
//! `testdata/SOURCES.md` says where each is from. The traces of mainnet and Polygon are reported as recorded, below
//! `result`, because their source kept the frames only.

use std::collections::BTreeMap;

use alloy::primitives::{Address, U256, address as plain};
use landfall_chain::{
    AccountState, Address as ChainAddress, AddressSource, Block, BlockHash, BlockRef, Chain, NativeSource, Proof,
};
use landfall_evm::network;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::accounts::Accounts;
use crate::node::{Ledger, Node};
use crate::trace::{FLAT, NESTED, flat, nested, read, traced};

fn testdata(name: &str) -> Value {
    serde_json::from_str(&text(name)).unwrap()
}

fn text(name: &str) -> String {
    std::fs::read_to_string(format!("{}/testdata/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// A recorded block, read in both forms.
pub(crate) async fn recorded(chain: Chain, prefix: &str, number: u64) -> Block {
    let mut network = network(chain).unwrap();
    network.native.source = NativeSource::Trace;
    let ledger = Ledger::recorded(chain, prefix, number);
    let block = ledger.blocks[&number].0.clone();
    let traces = nested(&block, testdata(&format!("{prefix}_{number}_traces")).as_array().unwrap());
    let one = read(network.clone(), ledger.clone(), NESTED, traces.clone()).await.unwrap();
    let other = read(network, ledger, FLAT, flat(&block, &traces)).await.unwrap();
    assert_eq!(one, other);
    one
}

/// First 4 bytes of the hash, sender, recipient, base units.
pub(crate) fn lines(block: &Block) -> String {
    let hex = |bytes: &[u8]| alloy::hex::encode(bytes);
    let line = |leg: &landfall_chain::AssetTransfer| {
        let (tx, sender) = (hex(&leg.tx.id.as_bytes()[..4]), hex(leg.sender.as_bytes()));
        format!("{tx} {sender} {} {}\n", hex(leg.recipient.as_bytes()), leg.amount)
    };
    block.transfers.iter().map(line).collect()
}

pub(crate) fn verdicts(block: &Block) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for rejected in &block.rejected {
        *counts.entry(rejected.verdict.code()).or_default() += 1;
    }
    counts
}

#[test]
fn the_recorded_traces_are_unchanged() {
    // No root covers a trace, so nothing else would report.
    unchanged(&[
        ("eth_mainnet_4404763_traces", "5e7e7bcc0f47566c7097a7f0d1a05e3a9490a3e0a7e5bd8a1455283f72f2f408"),
        ("eth_mainnet_11098450_traces", "dd390e3af1b11ebca74f8b24eedd20a500e50d8a75b299995d49b931e1af4e92"),
        ("eth_mainnet_16899757_traces", "896369dd248e176088eed7e3a59d3e20031ad1f0653dc403b1b46c7baef25ccb"),
        ("polygon_mainnet_38102393_traces", "bc11b679ae64edf2b843724e5b21a5056feba8fc804193e222f40da434e50e8b"),
        ("anvil_inside_2_traces", "5aaea03afc5e7c5036dffc37e6a8fadc8686a98a348ace325f0a1add7cc12534"),
        ("anvil_inside_2_trace_block", "cf25eda7261118ccf2103b5168f71a22ff5dac7f7dd99cf24a397efeba76415e"),
    ]);
}

/// That these files of `testdata` have these SHA-256.
pub(crate) fn unchanged(hashes: &[(&str, &str)]) {
    for (name, expected) in hashes {
        assert_eq!(alloy::hex::encode(Sha256::digest(text(name))), *expected, "{name}");
    }
}

#[tokio::test]
async fn blocks_of_ethereum_have_the_internal_legs_that_were_written_down() {
    // Read off the traces, by eyes and by a script over the JSON, not by this crate: calls with value below a root
    // frame, none of which failed in these two blocks. Exchange sweeps, splitters, payouts.
    let expected = "\
        cca08e02 fa52274dd61e1643d2205169732f29114bc240b3 267be1c1d684f78cb4f6a176c4911b741e4ffdc0 52217249953205000\n\
        7a493ee5 03287346dc8c215de0cc6b222cb390fcb8751a1e 1522900b6dafac587d499a862861c0869be6e428 9030000000000000000\n\
        974755bd e94b04a0fed112f3664e45adb2b8915693dd5ff3 fbb1b73c4f0bda4f67dca266ce6ef42f520fbb98 98931430000000000\n\
        a8933018 ece701c76bd00d1c3f96410a0c69ea8dfcf5f34e d837320ffc6402929947de564432008d815db79d 1\n\
        6853e902 8d12a197cb00d4747a1fe03395095ce2a5cc6819 653ec427aac069d11f52b60aedc826548873bf22 47000000000000000\n\
        7f46894a 8d12a197cb00d4747a1fe03395095ce2a5cc6819 989a9969899940f2b42e9201c18ea662b380cd3c 5100000000000000000\n\
        cef00ac3 8d12a197cb00d4747a1fe03395095ce2a5cc6819 7cbdad3fb970dc81c17c72d7beddbb0416aae122 1000000000000000000\n\
        ba8b2976 ece701c76bd00d1c3f96410a0c69ea8dfcf5f34e 3dbdc81a6edc94c720b0b88fb65dbd7e395fdcf6 4866357104315650\n\
        281bf4c8 ece701c76bd00d1c3f96410a0c69ea8dfcf5f34e 3dbdc81a6edc94c720b0b88fb65dbd7e395fdcf6 4866357104315650\n\
        c572a08d 1522900b6dafac587d499a862861c0869be6e428 0ec147b594dc9f3da976996739038a0dbcb34b4a 249400000000000000\n\
        3147e889 9e4c19af3bc46d841ad248dec6d637d3b954e8b8 fbb1b73c4f0bda4f67dca266ce6ef42f520fbb98 51878930000000000\n\
        30dae3e7 ece701c76bd00d1c3f96410a0c69ea8dfcf5f34e 13d11b26e75406f6a57439c22390212d6479e839 1\n\
        f6e9ec78 ece701c76bd00d1c3f96410a0c69ea8dfcf5f34e ba6c2e940d78b3915427e5d8c7227db72ebcea2e 1\n";
    let block = recorded(Chain::EthereumMainnet, "eth_mainnet", 4_404_763).await;
    assert_eq!(lines(&block), expected);
    assert_eq!(block.proof, Proof::OneEndpoint);
    // Routers: WETH that is unwrapped goes on to the buyer, so the same value moves twice.
    let expected = "\
        64791913 7a250d5630b4cf539739df2c5dacb4c659f2488d c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 610000000000000000\n\
        9b267d41 fa52274dd61e1643d2205169732f29114bc240b3 267be1c1d684f78cb4f6a176c4911b741e4ffdc0 1868258243136318998\n\
        f65ef3aa 7a250d5630b4cf539739df2c5dacb4c659f2488d c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 400000000000000000\n\
        a7b697be 7a250d5630b4cf539739df2c5dacb4c659f2488d c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 2000000000000000000\n\
        899971b1 7a250d5630b4cf539739df2c5dacb4c659f2488d c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 577332079542352131\n\
        899971b1 7a250d5630b4cf539739df2c5dacb4c659f2488d 0a740c1bcc33099c47a61aa65e4dcf070e700f4a 474184806791769\n\
        6fd6cd52 7a250d5630b4cf539739df2c5dacb4c659f2488d c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 54000000000000000\n\
        16051979 f4985070ce32b6b1994329df787d1acc9a2dd9e2 4843fdf2f27df6676d03b47afb40b644c69e456f 151619007547260803\n\
        16051979 f4985070ce32b6b1994329df787d1acc9a2dd9e2 4033644ae4cf3269f8ada5d577d271ad9f5fb758 5700231481481\n\
        4db8dbf7 c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 7a250d5630b4cf539739df2c5dacb4c659f2488d 95065171891532395\n\
        4db8dbf7 7a250d5630b4cf539739df2c5dacb4c659f2488d 73dbe803ced34c0d4cf64ca9f2eff348fd365781 95065171891532395\n\
        4c74fb44 7a250d5630b4cf539739df2c5dacb4c659f2488d c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 21000073068783549\n\
        4c74fb44 7a250d5630b4cf539739df2c5dacb4c659f2488d bee5696df717e55773cd024e1b0f7f36f1040a77 1680005845502683\n\
        668dbb20 7a250d5630b4cf539739df2c5dacb4c659f2488d c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 1000000000000000000\n\
        b4e4c6de 5acc84a3e955bdd76467d3348077d003f00ffb97 b75a58c9d652f58b1cbe8bba762da6c4a4817f15 200000000000000000\n\
        06636ccb 806495173f7b360e2826154f5dde870d0cd8a579 b688c7d50ac0e182663dd46853de453b8560b5f3 720000000000000000\n\
        ea9ec06a b02ce2d3586532966aee0206dc0804c702047b14 cc6fcfb8b3988043e382a481d6bf482d68897024 500000000000000000000\n\
        a32c62af ce96c75b5b2252efb6d22770c7d7a3567c4c30f1 7a250d5630b4cf539739df2c5dacb4c659f2488d 356400000000000000\n\
        a32c62af 7a250d5630b4cf539739df2c5dacb4c659f2488d c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 356400000000000000\n\
        a32c62af ce96c75b5b2252efb6d22770c7d7a3567c4c30f1 c54fa7403b020e78828886becd99b6caaa1433cb 2160000000000000\n\
        a32c62af ce96c75b5b2252efb6d22770c7d7a3567c4c30f1 5b32cdda19ea68f8e3a8511455ef39a9d178c5ca 1440000000000000\n\
        a32c62af ce96c75b5b2252efb6d22770c7d7a3567c4c30f1 2258860c41135e572e0e7958a1a69a36538bd0df 6338119000000000\n\
        0782b50a c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 7a250d5630b4cf539739df2c5dacb4c659f2488d 25183082517552750\n\
        0782b50a 7a250d5630b4cf539739df2c5dacb4c659f2488d 6bcc2598f353d9400b23df1cea8ac78447abc965 25183082517552750\n\
        57c76a66 f4985070ce32b6b1994329df787d1acc9a2dd9e2 7910bc2531e012af2c16337d8703b2a8b3602633 168427242187500000\n\
        57c76a66 f4985070ce32b6b1994329df787d1acc9a2dd9e2 6eb16be2b90acca5ec05ae2510b7a80b0df03caa 220833333333333\n\
        eb125110 c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 7a250d5630b4cf539739df2c5dacb4c659f2488d 2148781291367624361\n\
        eb125110 7a250d5630b4cf539739df2c5dacb4c659f2488d 5f3bce4b242d00ed748d48172c1f2d47a0bcb19b 2148781291367624361\n\
        beeb07bf c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 7a250d5630b4cf539739df2c5dacb4c659f2488d 34729389894917140\n\
        beeb07bf 7a250d5630b4cf539739df2c5dacb4c659f2488d 5efb33a08ee20576d0709dfaa91ddbf47ea1d4b1 34729389894917140\n\
        dc64a25a c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 7a250d5630b4cf539739df2c5dacb4c659f2488d 17483608415969523\n\
        dc64a25a 7a250d5630b4cf539739df2c5dacb4c659f2488d ceba559a8bbb37bebf410ab3959aceb298084b8b 17483608415969523\n\
        43758eac 98945bc69a554f8b129b09ac8afdc2cc2431c48e 7a250d5630b4cf539739df2c5dacb4c659f2488d 14117420344229008\n\
        43758eac 7a250d5630b4cf539739df2c5dacb4c659f2488d c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2 14117420344229008\n";
    let block = recorded(Chain::EthereumMainnet, "eth_mainnet", 11_098_450).await;
    assert_eq!(lines(&block), expected);
    assert!(block.transfers.iter().all(|leg| leg.nth == 0));
}

#[tokio::test]
async fn a_block_of_ethereum_with_proxies_credits_none_of_their_implementations() {
    // Counted by a script over the JSON, not by this crate: 118 frames below a root frame show value, 23 of them
    // delegate calls, and 2 in transactions that failed.
    let block = recorded(Chain::EthereumMainnet, "eth_mainnet", 16_899_757).await;
    assert_eq!(block.transfers.len(), 118 - 23 - 2);
    assert_eq!(verdicts(&block).get("delegatecall"), Some(&23));
    assert_eq!(verdicts(&block).get("reverted_tx"), Some(&2));
    assert_eq!(verdicts(&block).get("reverted_frame"), None);
    // The diamond of zkSync's bridge receives at the root and shows the same value to its facet.
    let facet = ChainAddress::Evm(plain!("c796a402e1b26ecd2cd38f23e05a2f904504ec89").into());
    assert!(block.transfers.iter().all(|leg| leg.recipient != facet));
    assert!(block.rejected.iter().any(|rejected| rejected.transfer.recipient == facet));
}

#[tokio::test]
async fn what_weth_is_paid_and_pays_is_what_its_own_logs_report() {
    // An oracle that no tracer wrote: proved logs. A deposit by the transaction's own value is the roots'.
    const DEPOSIT: &str = "0xe1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c";
    const WITHDRAWAL: &str = "0x7fcf532c15f0a6db0bd6d0e038bea71d30d808c7d98cb3bf7268a95bf5081b65";
    const WETH: Address = plain!("c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2");
    let weth = ChainAddress::Evm(WETH.into());
    for (number, expected) in [(11_098_450, 14), (16_899_757, 35)] {
        let ledger = Ledger::recorded(Chain::EthereumMainnet, "eth_mainnet", number);
        let (block, receipts) = &ledger.blocks[&number];
        let mut logged = Vec::new();
        for (tx, receipt) in block["transactions"].as_array().unwrap().iter().zip(receipts.as_array().unwrap()) {
            for log in receipt["logs"].as_array().unwrap() {
                let by_root = log["topics"][0] == DEPOSIT && tx["to"].as_str() == Some(&format!("{WETH:?}"));
                let reported = log["topics"][0] == DEPOSIT || log["topics"][0] == WITHDRAWAL;
                if reported && !by_root && log["address"].as_str() == Some(&format!("{WETH:?}")) {
                    let amount: U256 = log["data"].as_str().unwrap().parse().unwrap();
                    logged.push((tx["hash"].as_str().unwrap().to_owned(), amount));
                }
            }
        }
        let traced = recorded(Chain::EthereumMainnet, "eth_mainnet", number).await.transfers;
        let traced = traced.iter().filter(|leg| leg.recipient == weth || leg.sender == weth);
        let mut traced: Vec<(String, U256)> = traced.map(|leg| (leg.tx.id.to_string(), leg.amount)).collect();
        // WETH logs a withdrawal before it pays, so the order within a transaction may differ.
        traced.sort();
        logged.sort();
        assert_eq!(traced, logged);
        assert_eq!(traced.len(), expected, "{number}");
    }
}

#[tokio::test]
async fn the_traces_of_polygon_report_what_its_logs_report() {
    // [E17] bor writes a LogTransfer from 0x1010 for every movement: an oracle that no tracer wrote. Root values are
    // not reported by the lane, so they are taken out of the logs: the one whose ends and amount are the transaction's.
    const LOG_TRANSFER: &str = "0xe6497e3ee548a3372136af2fcb0696db31fc6cf20260707645068bd3fe97f3c4";
    let ledger = Ledger::recorded(Chain::PolygonMainnet, "polygon_mainnet", 38_102_393);
    let (block, receipts) = &ledger.blocks[&38_102_393];
    let mut expected = String::new();
    for (tx, receipt) in block["transactions"].as_array().unwrap().iter().zip(receipts.as_array().unwrap()) {
        let topic = |log: &Value, at: usize| log["topics"][at].as_str().unwrap()[26..].to_owned();
        let moved = receipt["logs"].as_array().unwrap().iter().filter(|log| log["topics"][0] == LOG_TRANSFER);
        let moved = moved.map(|log| {
            let amount: U256 = log["data"].as_str().unwrap()[..66].parse().unwrap();
            (topic(log, 2), topic(log, 3), amount)
        });
        let value: U256 = tx["value"].as_str().unwrap().parse().unwrap();
        let own = usize::from(!value.is_zero() && receipt["status"] == "0x1");
        for (from, to, amount) in moved.skip(own) {
            expected += &format!("{} {from} {to} {amount}\n", &tx["hash"].as_str().unwrap()[2..10]);
        }
    }
    let block = recorded(Chain::PolygonMainnet, "polygon_mainnet", 38_102_393).await;
    assert!(!expected.is_empty());
    assert_eq!(lines(&block), expected);
}

const CONTRACT: Address = plain!("5fbdb2315678afecb367f032d93f642f64180aa3");
const RECIPIENT: Address = Address::repeat_byte(0xb2);

/// The block of `nodes/contracts/Inside.sol`: paid 5 at the root, everything at once, everything in vain, a creation.
async fn inside(method: &'static str) -> Block {
    let ledger = Ledger::recorded(Chain::EthereumMainnet, "anvil_inside", 2);
    let traces = testdata(if method == NESTED { "anvil_inside_2_traces" } else { "anvil_inside_2_trace_block" });
    read(traced(), ledger, method, traces).await.unwrap()
}

#[tokio::test]
async fn what_a_contract_moves_in_every_way_is_reported_alike_by_both_methods_of_anvil() {
    let block = inside(NESTED).await;
    assert_eq!(block.transfers, inside(FLAT).await.transfers);
    // From the contract's source; 11 and 12 pass through what is made and destroyed, 13, 14 and 8 stay there.
    let amounts: Vec<(U256, u32)> = block.transfers.iter().map(|leg| (leg.amount, leg.nth)).collect();
    let expected = [5, 5, 7, 9, 6, 11, 11, 12, 12, 8, 13, 14].map(U256::from);
    assert_eq!(amounts.iter().map(|(amount, _)| *amount).collect::<Vec<_>>(), expected);
    assert_eq!(amounts[..2], [(U256::from(5), 0), (U256::from(5), 1)]);
    let mut rejected = verdicts(&block);
    rejected.remove("zero_value");
    // The second transaction does the same and fails. There, the 3 of the failed frame and the call that goes around
    // everything count too, and the 14 have no recipient: that address is taken.
    let expected = [("delegatecall", 4), ("reverted_frame", 1), ("reverted_tx", 12), ("self_transfer", 5)];
    assert_eq!(rejected, BTreeMap::from(expected));
}

#[tokio::test]
async fn what_anvil_says_that_is_owned_agrees_with_the_legs() {
    let accounts = Accounts::recorded();
    let [before, after] = accounts.blocks();
    let node = Node::start(move |method, params| accounts.answer(method, params)).await;
    let source = node.source(traced());
    let owners = [RECIPIENT, CONTRACT, Address::repeat_byte(0xee)].map(|owner| ChainAddress::Evm(owner.into()));
    let (had, has) =
        (source.account_states(&owners, &before).await.unwrap(), source.account_states(&owners, &after).await.unwrap());
    let block = inside(NESTED).await;
    // The roots' own: 5 to the recipient, 1000 to the contract.
    let roots = [U256::from(5), U256::from(1000), U256::ZERO];
    for (index, owner) in owners.iter().enumerate() {
        let sum = |mine: fn(&landfall_chain::AssetTransfer) -> ChainAddress| -> U256 {
            block.transfers.iter().filter(|leg| mine(leg) == *owner).map(|leg| leg.amount).sum()
        };
        let (received, paid) = (sum(|leg| leg.recipient), sum(|leg| leg.sender));
        assert_eq!(had[index].balance + roots[index] + received - paid, has[index].balance, "{owner}");
    }
    let state = |balance, has_code| AccountState { balance: U256::from(balance), has_code };
    assert_eq!(has, [state(60, false), state(910, true), state(0, false)]);
}

#[test]
fn the_recorded_blocks_are_those_of_the_accounts() {
    let block = testdata("anvil_inside_2_block");
    let hash: alloy::primitives::B256 = block["hash"].as_str().unwrap().parse().unwrap();
    let [before, after] = Accounts::recorded().blocks();
    assert_eq!(after, BlockRef { number: 2, hash: BlockHash(hash.0) });
    assert_eq!(json!(before.hash.to_string()), block["parentHash"]);
}
