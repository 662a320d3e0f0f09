//! Deposits of the OP stack: transactions of type 0x7e, which come from L1. [E19]

use alloy::primitives::{Address, address};
use landfall_chain::{Chain, Native, Network, Proof, Read, ReadProof, SourceErrorKind, TxLife};
use landfall_evm::network;
use serde_json::{Value, json};

use crate::forge::{self, Deposit, Entry, short};
use crate::mint::{self, transfer};

const USDC: Address = address!("833589fCD6eDb6E08f4c7C32D4f71b54bdA02913");
const ALICE: Address = Address::repeat_byte(0xa1);
const BOB: Address = Address::repeat_byte(0xb2);
const NOBODY: Address = Address::ZERO;

async fn legs(entries: &[Entry]) -> Vec<(char, Address, Address, u64, u32)> {
    let block = forge::read(Chain::BaseMainnet, forge::block(entries, &[])).await.unwrap();
    assert!(block.transfers.iter().all(|leg| leg.tx.life == TxLife::Block));
    block.transfers.iter().map(short).collect()
}

async fn refusal(chain: Chain, block: (Value, Value)) -> (SourceErrorKind, String) {
    let error = forge::read(chain, block).await.expect_err("a tampered block was accepted");
    (error.kind, error.to_string())
}

#[tokio::test]
async fn a_synthetic_deposit_mints_first_and_then_pays() {
    let both = Deposit { mint: Some(7), value: 5, ..Deposit::default() }.entry();
    assert_eq!(legs(&[both]).await, [('N', NOBODY, ALICE, 7, 0), ('N', ALICE, BOB, 5, 0)]);
}

#[tokio::test]
async fn e19_a_synthetic_deposit_that_fails_keeps_its_mint_and_moves_nothing() {
    let logs = vec![transfer(USDC, ALICE, BOB, 9)];
    let failed = Entry { success: false, logs, ..Deposit { mint: Some(7), value: 5, ..Deposit::default() }.entry() };
    assert_eq!(legs(&[failed]).await, [('N', NOBODY, ALICE, 7, 0)]);
}

#[tokio::test]
async fn synthetic_deposits_of_every_shape_prove_and_pay() {
    let logs = vec![transfer(USDC, NOBODY, BOB, 9)];
    let entries = [
        Deposit { system: true, ..Deposit::default() }.entry(),
        Entry { logs, ..Deposit { mint: Some(0), ..Deposit::default() }.entry() },
        // To itself: what was minted is there, and it moves nowhere.
        Deposit { from: BOB, mint: Some(6), value: 6, ..Deposit::default() }.entry(),
        // An equal mint in a transaction of its own is no twin.
        Deposit { from: BOB, mint: Some(6), value: 1, to: Some(ALICE), ..Deposit::default() }.entry(),
    ];
    let expected =
        [('T', NOBODY, BOB, 9, 0), ('N', NOBODY, BOB, 6, 0), ('N', NOBODY, BOB, 6, 0), ('N', BOB, ALICE, 1, 0)];
    assert_eq!(legs(&entries).await, expected);
}

#[tokio::test]
async fn value_sent_with_a_synthetic_creation_goes_to_the_contract_of_the_proved_nonce() {
    let creation = || Deposit { from: ALICE, to: None, value: 3, ..Deposit::default() }.entry();
    // The receipt says nonce 4; the transaction's own nonce, 9 in the JSON, is in no root.
    assert_eq!(legs(&[creation()]).await, [('N', ALICE, ALICE.create(4), 3, 0)]);
    // Before Canyon no nonce is proved.
    assert_eq!(legs(&[Entry { version: None, ..creation() }]).await, []);
    // Before Regolith there was not even one.
    assert_eq!(legs(&[Entry { version: None, deposit_nonce: None, ..creation() }]).await, []);
}

#[tokio::test]
async fn whom_a_synthetic_creation_pays_is_reported_by_its_receipt_also_where_blocks_are_read_by_logs() {
    let creation = || Deposit { from: ALICE, to: None, value: 3, ..Deposit::default() }.entry();
    let listed = Read { proof: ReadProof::Candidate, ..Read::FULL };
    let base = || Network { native: Native::TOP_LEVEL, ..network(Chain::BaseMainnet).unwrap() };
    // With a log that is nobody's: a bloom of zeros would ask for the receipts anyway.
    let another = || {
        let logs = vec![transfer(Address::repeat_byte(0xcc), ALICE, BOB, 9)];
        Entry { logs, ..Deposit::default().entry() }
    };
    let block = forge::block(&[creation(), another()], &[]);
    let block = forge::read_as(base(), block, listed).await.unwrap();
    assert_eq!(block.proof, Proof::Roots);
    assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), [('N', ALICE, ALICE.create(4), 3, 0)]);
    // Another deposit needs none.
    let block = forge::block(&[Deposit { value: 3, ..Deposit::default() }.entry(), another()], &[]);
    let block = forge::read_as(base(), block, listed).await.unwrap();
    assert_eq!(block.proof, Proof::Bloom);
}

#[tokio::test]
async fn a_synthetic_deposit_needs_no_nonce_and_a_signed_transaction_does() {
    let deposit = || Deposit { from: ALICE, to: None, mint: Some(7), value: 3, ..Deposit::default() }.entry();
    for shown in [None, Some(Value::Null)] {
        let (mut block, receipts) = forge::block(&[deposit()], &[]);
        let fields = block["transactions"][0].as_object_mut().unwrap();
        fields.remove("nonce");
        fields.extend(shown.map(|nonce| ("nonce".to_owned(), nonce)));
        let block = forge::read(Chain::BaseMainnet, (block, receipts)).await.unwrap();
        let expected = [('N', NOBODY, ALICE, 7, 0), ('N', ALICE, ALICE.create(4), 3, 0)];
        assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), expected);
    }
    let signed = mint::Tx { nonce: 1, ..mint::Tx::default() };
    let (mut block, receipts) = mint::block(16, alloy::primitives::B256::repeat_byte(1), &[signed]);
    block["transactions"][0].as_object_mut().unwrap().remove("nonce");
    let (_, text) = refusal(Chain::BaseMainnet, (block, receipts)).await;
    assert!(text.contains("transaction 0 does not hash to its stated hash"), "{text}");
}

#[tokio::test]
async fn a_synthetic_deposit_with_anything_changed_is_refused() {
    let good = || {
        let failed = Entry { success: false, ..Deposit { mint: Some(7), value: 5, ..Deposit::default() }.entry() };
        forge::block(&[failed], &[])
    };
    let hash = "transaction 0 does not hash to its stated hash";
    let address = json!(Address::repeat_byte(9));
    // `from` is a part of the encoding: nobody can be robbed of a mint.
    for (field, value) in [
        ("from", address.clone()),
        ("to", address),
        ("mint", json!("0x8")),
        ("mint", Value::Null),
        ("value", json!("0x6")),
        ("gas", json!("0x1")),
        ("input", json!("0x")),
        ("isSystemTx", json!(true)),
        ("isSystemTransaction", json!(true)),
        ("sourceHash", json!(alloy::primitives::B256::ZERO)),
    ] {
        let (mut block, receipts) = good();
        block["transactions"][0][field] = value;
        let (kind, text) = refusal(Chain::OptimismMainnet, (block, receipts)).await;
        assert!(text.contains(hash), "{field}: {text}");
        assert_eq!(kind, SourceErrorKind::Transient, "{field}");
    }
    let root = "the receipts do not make up the header's receiptsRoot";
    for (field, value) in
        [("status", json!("0x1")), ("depositNonce", json!("0x5")), ("depositReceiptVersion", Value::Null)]
    {
        let (block, mut receipts) = good();
        receipts[0][field] = value;
        let (_, text) = refusal(Chain::OptimismMainnet, (block, receipts)).await;
        assert!(text.contains(root), "{field}: {text}");
    }
    let (mut block, receipts) = good();
    block["transactions"][0].as_object_mut().unwrap().remove("sourceHash");
    let (_, text) = refusal(Chain::OptimismMainnet, (block, receipts)).await;
    assert!(text.contains("a transaction at index 0: sourceHash is missing"), "{text}");
}

#[tokio::test]
async fn a_mint_that_no_root_covers_is_none() {
    // A field of this name in a signed transaction is a node's invention.
    let (mut block, receipts) = mint::block(16, alloy::primitives::B256::repeat_byte(1), &[mint::Tx::default()]);
    block["transactions"][0]["mint"] = json!("0x7");
    block["transactions"][0]["sourceHash"] = json!(alloy::primitives::B256::ZERO);
    let block = forge::read(Chain::BaseMainnet, (block, receipts)).await.unwrap();
    assert_eq!(block.transfers, []);
}

#[tokio::test]
async fn another_stacks_type_asks_for_an_upgrade() {
    let (block, receipts) = forge::block(&[Deposit::default().entry()], &[]);
    for chain in [Chain::EthereumMainnet, Chain::PolygonMainnet] {
        let (kind, text) = refusal(chain, (block.clone(), receipts.clone())).await;
        assert_eq!(kind, SourceErrorKind::Permanent);
        assert!(text.contains("holds a transaction of type 0x7e, which this version of landfall cannot prove"));
    }
    for unknown in ["0x5", "0x7d", "0x7f"] {
        let mut block = block.clone();
        block["transactions"][0]["type"] = json!(unknown);
        let (kind, text) = refusal(Chain::BaseMainnet, (block, receipts.clone())).await;
        assert_eq!(kind, SourceErrorKind::Permanent, "{unknown}: {text}");
    }
}
