//! Real blocks with many legs have exactly those of a table that was written down for them.
//!
//! The tables (`testdata/legs`) were written by `tests/vectors/legs.py`, another language that reads the raw JSON another
//! way, and read beside it; `testdata/SOURCES.md` says how. Each begins with how many legs of each asset there are, and
//! their sum.

use std::collections::BTreeMap;

use alloy::primitives::U256;
use landfall_chain::{BlockSource, Chain, SourceErrorKind};
use landfall_evm::network;

use crate::forge;
use crate::node::{Ledger, Node};
use crate::recorded::{USDC_E_POLYGON, WETH_POLYGON, legs};
use crate::traced::{lines, recorded};

/// The legs of a table, after its heading was found to be that of its legs.
pub(crate) fn table(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("{}/testdata/legs/{name}.txt", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (head, legs): (Vec<_>, Vec<_>) = text.lines().map(str::to_owned).partition(|line| line.starts_with("# "));
    let mut sums: BTreeMap<&str, (usize, U256)> = BTreeMap::new();
    for leg in &legs {
        let fields: Vec<&str> = leg.split(' ').collect();
        let sum = sums.entry(fields[1]).or_default();
        *sum = (sum.0 + 1, sum.1 + fields[4].parse::<U256>().unwrap());
    }
    let reported = sums.iter().map(|(asset, (count, sum))| format!("# {asset}: {count} legs, {sum} in all"));
    assert_eq!(head, reported.collect::<Vec<_>>(), "{name}");
    legs
}

#[test]
fn what_was_written_down_by_hand_is_what_the_tables_have() {
    let folder = format!("{}/testdata/hand", env!("CARGO_MANIFEST_DIR"));
    let mut rows = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let (text, name) = (std::fs::read_to_string(&file).unwrap(), file.file_stem().unwrap().to_str().unwrap());
        // On Polygon values and tokens have no order between them.
        let [by_hand, by_table] =
            [text.lines().map(str::to_owned).collect(), table(name)].map(|mut legs: Vec<String>| {
                legs.sort();
                legs
            });
        assert_eq!(by_hand, by_table, "{name}");
        rows += by_hand.len();
    }
    assert_eq!(rows, 403);
}

fn by_line(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[tokio::test]
async fn blocks_of_ethereum_with_many_legs_have_those_of_their_tables() {
    for (number, count) in [(4_404_763, 42), (7_280_016, 43), (11_098_450, 101), (16_899_757, 96)] {
        let expected = table(&format!("eth_mainnet_{number}_roots"));
        assert_eq!(expected.len(), count, "{number}");
        assert_eq!(by_line(&legs(Chain::EthereumMainnet, number, &[]).await), expected, "{number}");
    }
}

#[tokio::test]
async fn a_block_of_ethereum_has_the_ninety_three_internal_legs_of_its_table() {
    let expected = table("eth_mainnet_16899757_traces");
    assert_eq!(expected.len(), 93);
    // Of 118 frames below a root frame that show value; the rest are delegate calls and failed transactions.
    let block = recorded(Chain::EthereumMainnet, "eth_mainnet", 16_899_757).await;
    let reported = lines(&block).lines().map(|line| line.replacen(' ', " native ", 1)).collect::<Vec<_>>();
    assert_eq!(reported, expected);
}

#[tokio::test]
async fn a_block_of_polygon_has_the_legs_that_its_values_and_traces_show() {
    // [E17] What the crate takes from the chain's own logs, the table has from the values of transactions and frames.
    // Those and tokens have no order between them there.
    let expected = table("polygon_mainnet_43200000_roots");
    let reported = legs(Chain::PolygonMainnet, 43_200_000, &[USDC_E_POLYGON, WETH_POLYGON]).await;
    let of = |lines: Vec<&str>, is_native: bool| {
        let kept = lines.into_iter().filter(|line| line.contains(" native ") == is_native);
        kept.map(str::to_owned).collect::<Vec<_>>()
    };
    for (is_native, count) in [(true, 19), (false, 9)] {
        let reported = of(by_line(&reported), is_native);
        assert_eq!(reported.len(), count);
        assert_eq!(reported, of(expected.iter().map(String::as_str).collect(), is_native));
    }
}

#[tokio::test]
async fn e18_parts_of_blocks_with_a_state_sync_are_refused_whatever_their_receipts_pay() {
    // The recorded parts are a header, one or two transactions with the pseudo one as the last, and its receipt, which
    // pays POL or WETH. Two headers are the chain's; of one of them a transaction was exchanged. The third header is
    // another block's with its hash and number changed.
    let cases = [
        (31_992_640, true, "the transactions do not make up the header's transactionsRoot"),
        (34_155_965, true, "transaction 1 does not hash to its stated hash"),
        (38_656_992, false, "the header does not hash to it"),
    ];
    for (number, is_header_true, refused) in cases {
        let ledger = Ledger::recorded(Chain::PolygonMainnet, "polygon_mainnet", number);
        let part = ledger.blocks[&number].clone();
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let headers = node.source(network(Chain::PolygonMainnet).unwrap()).headers(number..=number).await;
        assert_eq!(headers.is_ok(), is_header_true, "{number}: {headers:?}");
        let error = forge::read(Chain::PolygonMainnet, part).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains(refused), "{number}: {error}");
    }
}
