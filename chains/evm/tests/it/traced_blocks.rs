//! More real traces: the rest of the recorded blocks of mainnet, those of before Byzantium, and those of Base, Optimism and
//! Polygon. `testdata/SOURCES.md` says where each is from.
//!
//! Expected legs were read off the traces, by eyes and by a script over the JSON, not by this crate.

use std::collections::BTreeMap;

use alloy::primitives::U256;
use landfall_chain::{Chain, Proof};
use serde_json::Value;

use crate::node::Ledger;
use crate::traced::{lines, recorded, unchanged, verdicts};

#[test]
fn these_recorded_traces_are_unchanged() {
    // No root covers a trace, so nothing else would report.
    unchanged(&[
        ("eth_ropsten_10994_traces", "43cc4971541a1bdd88f4db7c393d3608a3fdae71a0139f92855b5042321a23b4"),
        ("eth_ropsten_239782_traces", "5dbf064a554ef5e2e655a6cc434b2ffbe92645939d1521734af6c7752b0694ca"),
        ("eth_ropsten_363366_traces", "67dfafb847ed74924eb6e8fc70f48ab21106fdf9e29336d41b969641a3b8cea2"),
        ("eth_ropsten_363415_traces", "9aedd6c395968304e3805693ef76c004a560487461d3a2d9f6cdd019e3f165b3"),
        ("eth_ropsten_363753_traces", "162ccd67cd1aec24f13fa91f8f1bfeceeaf1019071ad9a34e3ff9a87b478b734"),
        ("eth_mainnet_468179_traces", "63f9e50dea6dd63b833dcb8ffdbdd94f6b4567a2d791687b888ac4f58ea4a2ba"),
        ("eth_mainnet_4370006_traces", "c3962b72ae60f55d002416a19830f37daa59b203b2a7216f521e4229c018b139"),
        ("eth_mainnet_7280016_traces", "c49294a5b9f4fac3b7bc70c4f3aaa3ccba45df5273fa6eac590c998e63138d39"),
        ("base_mainnet_77976_traces", "6f5a46956ed8d5df02532e6ada9c99ed21831316557e6656514b05ff28b245e4"),
        ("optimism_mainnet_10000_traces", "733acb86d51a6e4e47e7e5baa156553bf29c4b34ef5f24a8f43b5e97286eadb0"),
        ("optimism_mainnet_105237730_traces", "e1785c67e48430c4c7dbd2c8b76790fe37bea97ba3a01192c6065b723a6e6e58"),
        ("optimism_mainnet_109860869_traces", "efc9c66df3479667fbc1769289c96a76d3e581770b718fd274a7628af2f84cf1"),
        ("polygon_mainnet_43200000_traces", "0987e428b936b6b1695f8813b92cf06c11999742ee3f7d236c3c1195bf29f99b"),
    ]);
}

#[tokio::test]
async fn blocks_of_2017_and_2019_have_the_internal_legs_that_were_written_down() {
    // A sweep, and a forwarder whose payment goes on to an exchange.
    let expected = "\
        66ba0aaa e8a9cb0d8284039b3a0e263455de92b0e74c82ff fbb1b73c4f0bda4f67dca266ce6ef42f520fbb98 4600000000000000000\n\
        538483f9 5d8e9a4b36589e6a3a820de41c693b8651eed04b 209c4784ab1e8183cf58ca33cb740efbf3fc18ef 270403532000000000\n\
        538483f9 209c4784ab1e8183cf58ca33cb740efbf3fc18ef 32be343b94f860124dc4fee278fdcbd38c102d88 270403532000000000\n";
    let block = recorded(Chain::EthereumMainnet, "eth_mainnet", 4_370_006).await;
    assert_eq!(lines(&block), expected);
    assert_eq!(block.proof, Proof::OneEndpoint);
    // Payouts of wallets and a splitter; a creation inside without value.
    let expected = "\
        f82e9cff 35bce69c48786fc612ef6742169fe963f65883c9 af1931c20ee0c11bea17a41bfbbad299b2763bc0 55525430000000000000\n\
        3cc90561 89974db1430c2207860df3c731d8b21d98ce741f 854712513c52868617c96d015bba6505b16cae39 30000000000000000000\n\
        e7af9c55 03cb0021808442ad5efb61197966aef72a1def96 8dcccc9f6c0823d0bda75b3859cdbf7613e045cb 4019800000000000000\n\
        5d019b96 e658e6eb4b478da2cf36d9e3712ba0c1b33786a1 f430390ff3c2fab11b4fc8ef7036f6baee58ed99 13068572585978837\n\
        5d019b96 e658e6eb4b478da2cf36d9e3712ba0c1b33786a1 e15f2299f1e4b967bc63e3e07d94e48fd7e42ad8 1000216269841304\n\
        1b063719 b1690c08e213a35ed9bab7b318de14420fb57d8c a096b47ebf7727d01ff4f09c34fc6591f2c375f0 96250000000000000\n";
    let block = recorded(Chain::EthereumMainnet, "eth_mainnet", 7_280_016).await;
    assert_eq!(lines(&block), expected);
}

#[tokio::test]
async fn what_moved_inside_before_byzantium_is_reported_and_credits_nothing() {
    // Counted by a script: calls, creations and self-destructions with value below a root frame, to another than who pays.
    // In 239,782 it is a payment inside a frame that failed, in a transaction that may have succeeded.
    let cases = [
        ("eth_mainnet", 468_179, 0),
        ("eth_ropsten", 10_991, 0),
        ("eth_ropsten", 10_992, 0),
        ("eth_ropsten", 10_994, 0),
        ("eth_ropsten", 239_782, 1),
        ("eth_ropsten", 363_366, 200),
        ("eth_ropsten", 363_415, 199),
        ("eth_ropsten", 363_753, 525),
    ];
    for (prefix, number, moved) in cases {
        let block = recorded(Chain::EthereumMainnet, prefix, number).await;
        assert_eq!(block.transfers, [], "{number}");
        let mut verdicts = verdicts(&block);
        verdicts.remove("zero_value");
        assert_eq!(verdicts.remove("no_status").unwrap_or_default(), moved, "{number}");
        // It is destroyed to itself.
        let expected = if number == 363_415 { BTreeMap::from([("self_transfer", 1)]) } else { BTreeMap::new() };
        assert_eq!(verdicts, expected, "{number}");
    }
}

#[tokio::test]
async fn blocks_of_optimism_and_base_have_the_internal_legs_that_were_written_down() {
    // Before Bedrock: a router wraps what it is paid.
    let expected = "\
        b7547e82 e592427a0aece92de3edee1f18e0157c05861564 4200000000000000000000000000000000000006 21390000000000000\n";
    let block = recorded(Chain::OptimismMainnet, "optimism_mainnet", 10_000).await;
    assert_eq!(lines(&block), expected);
    // An aggregator unwraps and pays out along its way in; another is paid and wraps. The value that its proxy shows to
    // the borrowed code of its implementation is none.
    let expected = "\
        9179de97 4200000000000000000000000000000000000006 b63aae6c353636d66df13b89ba4425cfe13d10ba 32827185415548795\n\
        9179de97 b63aae6c353636d66df13b89ba4425cfe13d10ba 1111111254eeb25477b68fb85ed929f73a960582 32827185415548795\n\
        9179de97 1111111254eeb25477b68fb85ed929f73a960582 1231deb6f5749ef6ce6943a275a1d3e7486f4eae 32827185415548795\n\
        9179de97 1231deb6f5749ef6ce6943a275a1d3e7486f4eae 6676ae96a46458f7307e432a86a26533ee970d1d 32827185415548795\n\
        f9d2dbbe 3a23f943181408eac424116af7b7790c94cb97a5 1111111254eeb25477b68fb85ed929f73a960582 100000000000000\n\
        f9d2dbbe 1111111254eeb25477b68fb85ed929f73a960582 b63aae6c353636d66df13b89ba4425cfe13d10ba 100000000000000\n\
        f9d2dbbe b63aae6c353636d66df13b89ba4425cfe13d10ba 4200000000000000000000000000000000000006 100000000000000\n";
    let block = recorded(Chain::OptimismMainnet, "optimism_mainnet", 109_860_869).await;
    assert_eq!(lines(&block), expected);
    assert_eq!(verdicts(&block).get("delegatecall"), Some(&1));
    // Nothing but what the sequencer puts into each block; a deposit whose mint and value the roots report.
    for (chain, prefix, number) in
        [(Chain::OptimismMainnet, "optimism_mainnet", 105_237_730), (Chain::BaseMainnet, "base_mainnet", 77_976)]
    {
        assert_eq!(recorded(chain, prefix, number).await.transfers, [], "{prefix} {number}");
    }
}

#[tokio::test]
async fn the_traces_of_another_block_of_polygon_report_what_its_logs_report() {
    // [E17] As for block 38,102,393: bor's own logs are an oracle that no tracer wrote.
    const LOG_TRANSFER: &str = "0xe6497e3ee548a3372136af2fcb0696db31fc6cf20260707645068bd3fe97f3c4";
    let ledger = Ledger::recorded(Chain::PolygonMainnet, "polygon_mainnet", 43_200_000);
    let (block, receipts) = &ledger.blocks[&43_200_000];
    let mut expected = String::new();
    for (tx, receipt) in block["transactions"].as_array().unwrap().iter().zip(receipts.as_array().unwrap()) {
        let topic = |log: &Value, at: usize| log["topics"][at].as_str().unwrap()[26..].to_owned();
        let moved = receipt["logs"].as_array().unwrap().iter().filter(|log| log["topics"][0] == LOG_TRANSFER);
        let value: U256 = tx["value"].as_str().unwrap().parse().unwrap();
        let own = usize::from(!value.is_zero() && receipt["status"] == "0x1");
        for log in moved.skip(own) {
            let amount: U256 = log["data"].as_str().unwrap()[..66].parse().unwrap();
            expected +=
                &format!("{} {} {} {amount}\n", &tx["hash"].as_str().unwrap()[2..10], topic(log, 2), topic(log, 3));
        }
    }
    let block = recorded(Chain::PolygonMainnet, "polygon_mainnet", 43_200_000).await;
    assert!(expected.lines().count() > 5);
    assert_eq!(lines(&block), expected);
}
