//! What transactions cost: recorded ones as their nodes reckoned it, made ones as the rules say.

use alloy::consensus::TxType;
use alloy::primitives::{Address, B256, Bytes, U256};
use landfall_chain::{Address as ChainAddress, Chain, Fee, Read, TxId, TxLife};
use landfall_evm::network;
use serde_json::{Value, json};

use crate::forge::{self, Deposit};
use crate::mint::{self, Tx};
use crate::node::{ANYTHING, Ledger, MARK};

const SIGNER: Address = Address::repeat_byte(0xaa);

async fn fees(chain: Chain, block: (Value, Value)) -> Vec<Fee> {
    forge::read_as(network(chain).unwrap(), block, Read::FULL).await.unwrap().fees
}

async fn amounts(chain: Chain, block: (Value, Value)) -> Vec<u64> {
    fees(chain, block).await.iter().map(|fee| fee.amount.try_into().unwrap()).collect()
}

fn recorded(chain: Chain, prefix: &str, number: u64) -> (Value, Value) {
    Ledger::recorded(chain, prefix, number).blocks.into_values().next().unwrap()
}

/// A made block; every transaction uses 21,000 gas, and the base fee is 7.
fn block(txs: &[Tx]) -> (Value, Value) {
    mint::block(16, B256::repeat_byte(1), txs)
}

/// The block with other extra data, hashing to itself again.
fn with_extra_data((block, mut receipts): (Value, Value), extra: Vec<u8>) -> (Value, Value) {
    let block = mint::with_header(block, |header| header.extra_data = extra.into());
    for receipt in receipts.as_array_mut().unwrap() {
        receipt["blockHash"] = block["hash"].clone();
    }
    (block, receipts)
}

#[tokio::test]
async fn whom_the_fees_go_to_is_reported_by_the_header_except_on_polygon() {
    for (chain, prefix, number) in
        [(Chain::EthereumMainnet, "eth_mainnet", 16_899_757), (Chain::PolygonMainnet, "polygon_mainnet", 38_102_393)]
    {
        let (block, receipts) = recorded(chain, prefix, number);
        let miner: Address = block["miner"].as_str().unwrap().parse().unwrap();
        let fees_read = forge::read_as(network(chain).unwrap(), (block, receipts), Read::FULL).await.unwrap();
        let expected = (chain == Chain::EthereumMainnet).then(|| ChainAddress::Evm(miner.into()));
        assert_eq!(fees_read.fee_recipient, expected, "{chain}");
    }
}

#[tokio::test]
async fn recorded_transactions_cost_what_their_receipts_say() {
    // Of types 0 to 4, some failed. What is compared, `gasUsed` and `effectiveGasPrice`, is not read otherwise. Blobs come on
    // top, and on the OP stack `l1Fee`, which no root covers; its deposits (0x7e) cost nothing.
    for (chain, prefix, number, count) in [
        (Chain::EthereumMainnet, "eth_mainnet", 16_899_757, 147),
        (Chain::PolygonMainnet, "polygon_mainnet", 38_102_393, 65),
        (Chain::OptimismMainnet, "optimism_mainnet", 105_237_730, 1),
        (Chain::OptimismMainnet, "optimism_mainnet", 109_860_869, 7),
        (Chain::EthereumMainnet, "eth_mainnet", 20_000_000, 134),
        (Chain::EthereumMainnet, "eth_mainnet", 23_879_620, 142),
        (Chain::EthereumMainnet, "eth_mainnet", 24_647_140, 60),
        (Chain::OptimismMainnet, "mode_mainnet", 8_017_051, 5),
        (Chain::OptimismSepolia, "optimism_sepolia", 26_207_962, 47),
        (Chain::OptimismSepolia, "unichain_sepolia", 35_535_698, 5),
        (Chain::PolygonMainnet, "polygon_mainnet", 50_000_000, 564),
    ] {
        let (block, receipts) = recorded(chain, prefix, number);
        let number = |field: &Value| field.as_str().map(|text| text.parse::<U256>().unwrap());
        let expected = receipts.as_array().unwrap().iter().filter_map(|receipt| {
            let price = number(&receipt["effectiveGasPrice"])?;
            let id = TxId::Evm(receipt["transactionHash"].as_str().unwrap().parse::<B256>().unwrap().0);
            let payer: Address = receipt["from"].as_str().unwrap().parse().unwrap();
            let l1 = number(&receipt["l1Fee"]);
            let blobs =
                number(&receipt["blobGasUsed"]).zip(number(&receipt["blobGasPrice"])).map(|(gas, price)| gas * price);
            let amount = number(&receipt["gasUsed"]).unwrap() * price + l1.or(blobs).unwrap_or_default();
            (!amount.is_zero()).then(|| (id, ChainAddress::Evm(payer.into()), amount, l1.or(blobs).is_none()))
        });
        let expected: Vec<_> = expected.collect();
        let fees_read = fees(chain, (block, receipts)).await;
        let reported = fees_read.iter().map(|fee| (fee.tx.id, fee.payer, fee.amount, fee.proved));
        assert_eq!(reported.collect::<Vec<_>>(), expected, "{prefix}");
        assert_eq!(fees_read.len(), count, "{prefix}");
        assert!(fees_read.iter().all(|fee| matches!(fee.tx.life, TxLife::Nonce { signer, .. } if signer == fee.payer)));
    }
}

#[tokio::test]
async fn every_type_of_transaction_costs_its_gas_price_failed_or_not() {
    let kinds = [TxType::Legacy, TxType::Eip2930, TxType::Eip1559, TxType::Eip7702, TxType::Eip1559];
    let txs: Vec<Tx> =
        (0..).zip(kinds).map(|(nonce, kind)| Tx { kind, nonce, success: nonce != 4, ..Tx::default() }).collect();
    // The first two say 9; the others at most 9, but base fee 7 and tip 1.
    let expected = [9, 9, 8, 8, 8].map(|price| price * 21_000);
    assert_eq!(amounts(Chain::EthereumMainnet, block(&txs)).await, expected);
    let (block, receipts) = block(&txs[2..3]);
    let dear = mint::with_header(block, |header| header.base_fee_per_gas = Some(1_000));
    let mut receipts = receipts;
    receipts[0]["blockHash"] = dear["hash"].clone();
    // More than the maximum is never paid.
    assert_eq!(amounts(Chain::EthereumMainnet, (dear, receipts)).await, [9 * 21_000]);
}

#[tokio::test]
async fn blobs_are_paid_too_and_a_contradiction_about_them_leaves_the_fee_out() {
    let tx = || Tx { kind: TxType::Eip4844, ..Tx::default() };
    let with = |used: Option<&str>, price: Option<&str>| {
        let (block, mut receipts) = block(&[tx(), Tx { nonce: 1, ..Tx::default() }]);
        for (field, value) in [("blobGasUsed", used), ("blobGasPrice", price)] {
            if let Some(value) = value {
                receipts[0][field] = json!(value);
            }
        }
        (block, receipts)
    };
    // What a blob cost is in no root, nor is what a rollup adds.
    let fees_read = fees(Chain::EthereumMainnet, with(Some("0x40000"), Some("0x3"))).await;
    assert_eq!(fees_read.iter().map(|fee| fee.proved).collect::<Vec<_>>(), [false, true]);
    // Two blobs of 131,072 gas at 3, and a price of 7: no tip.
    let both = vec![7 * 21_000 + 2 * 131_072 * 3, 8 * 21_000];
    let other = vec![8 * 21_000];
    for (used, price, expected) in [
        (Some("0x40000"), Some("0x3"), &both),
        (Some("0x20000"), Some("0x3"), &other),
        (None, Some("0x3"), &other),
        (Some("0x40000"), None, &other),
    ] {
        assert_eq!(&amounts(Chain::EthereumMainnet, with(used, price)).await, expected, "{used:?} {price:?}");
    }
}

#[tokio::test]
async fn synthetic_receipts_of_the_op_stack_add_the_fees_for_l1_and_for_the_operator() {
    let jovian = || [vec![1], vec![0; 16]].concat();
    let holocene = || vec![0; 9];
    let execution = 8 * 21_000;
    let operator = [("operatorFeeScalar", "0x7a120"), ("operatorFeeConstant", "0x5")];
    let l1 = ("l1Fee", "0x64");
    let [scalar, constant] = operator;
    let cases: [(_, _, Vec<Field>, Vec<u64>); 7] = [
        ("before Isthmus, or with no operator's fee", holocene(), vec![l1], vec![execution + 100]),
        // 500,000 millionths for each gas.
        ("Isthmus", holocene(), vec![l1, scalar, constant], vec![execution + 100 + 10_500 + 5]),
        ("Jovian", jovian(), vec![l1, scalar, constant], vec![execution + 100 + 500_000 * 21_000 * 100 + 5]),
        ("a constant alone", jovian(), vec![l1, constant], vec![execution + 105]),
        ("nothing for L1 told", jovian(), vec![scalar, constant], vec![]),
        ("nothing told", holocene(), vec![], vec![]),
        ("more than there is", jovian(), vec![("l1Fee", MOST)], vec![]),
    ];
    for (name, extra, fields, expected) in cases {
        let (block, mut receipts) = with_extra_data(block(&[Tx::default()]), extra);
        for (field, value) in fields {
            receipts[0][field] = json!(value);
        }
        assert_eq!(amounts(Chain::BaseMainnet, (block.clone(), receipts.clone())).await, expected, "{name}");
        let fees_read = fees(Chain::BaseMainnet, (block.clone(), receipts.clone())).await;
        assert!(fees_read.iter().all(|fee| !fee.proved), "{name}");
        // Elsewhere these fields mean nothing.
        assert_eq!(amounts(Chain::EthereumMainnet, (block, receipts)).await, [execution], "{name}");
    }
}

#[tokio::test]
async fn whatever_stands_in_a_field_that_no_root_covers_makes_a_fee_unknown_and_nothing_else() {
    // Erigon of 2024 wrote "1". Texts with which the first transaction's fee is known, `null` being as good as nothing.
    let (ethereum, base) = (Chain::EthereumMainnet, Chain::BaseMainnet);
    let cases: [(Chain, &str, &[&str]); 8] = [
        (ethereum, "blobGasPrice", &[r#""0x9""#]),
        (ethereum, "blobGasUsed", &[]),
        (base, "l1Fee", &[r#""0x9""#]),
        (base, "operatorFeeScalar", &[r#""0x9""#, "null"]),
        (base, "operatorFeeConstant", &[r#""0x9""#, "null"]),
        // Nothing is made of them there.
        (ethereum, "l1Fee", &ANYTHING),
        (ethereum, "operatorFeeScalar", &ANYTHING),
        (ethereum, "operatorFeeConstant", &ANYTHING),
    ];
    for (chain, field, known) in cases {
        let kind = if chain == ethereum { TxType::Eip4844 } else { TxType::Eip1559 };
        let (block, mut receipts) = block(&[Tx { kind, value: 5, ..Tx::default() }, Tx { nonce: 1, ..Tx::default() }]);
        for (name, value) in [("blobGasUsed", "0x40000"), ("blobGasPrice", "0x3"), ("l1Fee", "0x64")] {
            receipts[0][name] = json!(value);
        }
        receipts[1]["l1Fee"] = json!("0x64");
        let truth = forge::read(chain, (block.clone(), receipts.clone())).await.unwrap();
        assert_eq!((truth.transfers.len(), truth.fees.len()), (1, 2));
        receipts[0][field] = json!(MARK);
        for text in ANYTHING {
            let read = forge::read_with_text(chain, (block.clone(), receipts.clone()), text).await;
            let read = read.unwrap_or_else(|error| panic!("{field}: {text}: {error}"));
            assert_eq!((&read.transfers, &read.txs), (&truth.transfers, &truth.txs), "{field}: {text}");
            assert_eq!(read.fees.len(), if known.contains(&text) { 2 } else { 1 }, "{field}: {text}");
            assert_eq!(read.fees.last(), truth.fees.last(), "{field}: {text}");
        }
    }
}

/// A field of a receipt.
type Field = (&'static str, &'static str);

const MOST: &str = "0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

#[tokio::test]
async fn what_comes_from_l1_pays_nothing() {
    let deposits = [Deposit { mint: Some(7), ..Deposit::default() }.entry(), Deposit::default().entry()];
    assert_eq!(amounts(Chain::BaseMainnet, forge::block(&deposits, &[])).await, [0; 0]);
    // Recorded: deposits, and a transaction whose receipt reports nothing of L1.
    let anvil = recorded(Chain::BaseMainnet, "anvil_optimism", 1);
    assert_eq!(amounts(Chain::BaseMainnet, anvil).await, [0; 0]);
}

#[tokio::test]
async fn the_payer_is_the_signer_and_not_who_is_called() {
    let fees_read =
        fees(Chain::EthereumMainnet, block(&[Tx { input: Bytes::from_static(&[1]), ..Tx::default() }])).await;
    assert_eq!(fees_read.iter().map(|fee| fee.payer).collect::<Vec<_>>(), [ChainAddress::Evm(SIGNER.into())]);
}
