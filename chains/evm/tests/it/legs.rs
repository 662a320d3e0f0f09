//! What makes a leg and what does not. Names in brackets are rows of the catalogue of failures, `deposits.md` 2b.

use alloy::primitives::{Address, B256, U256, address};
use landfall_chain::{Address as ChainAddress, AssetId, AssetTransfer, BlockSource, Read, TxLife};

use crate::mint::{self, TRANSFER, Tx, log, transfer};
use crate::node::{Ledger, Node, mainnet};

const USDC: Address = address!("A0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48");
const SIGNER: Address = Address::repeat_byte(0xaa);
const ALICE: Address = Address::repeat_byte(0x0a);
const BOB: Address = Address::repeat_byte(0x0b);

async fn legs(txs: Vec<Tx>) -> Vec<AssetTransfer> {
    let ledger = Ledger::of(mint::chain(5, vec![txs]));
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    node.source(mainnet()).blocks(5..=5, Read::FULL).await.unwrap().remove(0).transfers
}

/// Asset (`N` or `T`), sender, recipient, amount, nth.
async fn short(txs: Vec<Tx>) -> Vec<(char, Address, Address, u64, u32)> {
    let plain = |address: ChainAddress| Address::from_slice(address.as_bytes());
    let asset = |asset| if asset == AssetId::Native { 'N' } else { 'T' };
    let leg = |leg: AssetTransfer| {
        (asset(leg.asset), plain(leg.sender), plain(leg.recipient), leg.amount.try_into().unwrap(), leg.nth)
    };
    legs(txs).await.into_iter().map(leg).collect()
}

fn with_logs(logs: Vec<alloy::primitives::Log>) -> Tx {
    Tx { logs, ..Tx::default() }
}

#[tokio::test]
async fn a_listed_tokens_transfer_is_a_leg_whose_sender_is_the_tokens() {
    // [E13, E15] the signer and the called contract do not matter, [E12] a mint comes from the zero address.
    let tx = with_logs(vec![transfer(USDC, ALICE, BOB, 5), transfer(USDC, Address::ZERO, BOB, 6)]);
    assert_eq!(short(vec![tx]).await, [('T', ALICE, BOB, 5, 0), ('T', Address::ZERO, BOB, 6, 0)]);
}

#[tokio::test]
async fn what_only_looks_like_a_transfer_is_no_leg() {
    let amount = U256::from(5).to_be_bytes::<32>();
    let (from, to) = (ALICE.into_word(), BOB.into_word());
    let dirty = B256::repeat_byte(0x0b);
    let longer = [amount.as_slice(), &[0]].concat();
    let cases = vec![
        ("[E4] another contract", transfer(Address::repeat_byte(0xcc), ALICE, BOB, 5)),
        ("[E6] amount zero", transfer(USDC, ALICE, BOB, 0)),
        ("[E11] to oneself", transfer(USDC, BOB, BOB, 5)),
        ("[E14] ERC-721", log(USDC, &[TRANSFER, from, to, B256::with_last_byte(5)], &[])),
        ("[E14] four topics and data", log(USDC, &[TRANSFER, from, to, B256::with_last_byte(5)], &amount)),
        ("two topics", log(USDC, &[TRANSFER, from], &amount)),
        ("no topics", log(USDC, &[], &amount)),
        ("another event", log(USDC, &[B256::repeat_byte(1), from, to], &amount)),
        ("no data", log(USDC, &[TRANSFER, from, to], &[])),
        ("31 bytes of data", log(USDC, &[TRANSFER, from, to], &amount[1..])),
        ("33 bytes of data", log(USDC, &[TRANSFER, from, to], &longer)),
        ("a sender of 32 bytes", log(USDC, &[TRANSFER, dirty, to], &amount)),
        ("a recipient of 32 bytes", log(USDC, &[TRANSFER, from, dirty], &amount)),
    ];
    for (name, log) in cases {
        assert_eq!(short(vec![with_logs(vec![log])]).await, [], "{name}");
    }
    // [E3] calldata of a transfer that made no log: the token returned false.
    let input = [&[0xa9, 0x05, 0x9c, 0xbb], to.as_slice(), &amount].concat();
    assert_eq!(short(vec![Tx { to: Some(USDC), input: input.into(), ..Tx::default() }]).await, []);
}

#[tokio::test]
async fn e2_a_failed_transaction_moves_nothing() {
    // [E2] with value and, against all rules, with a log.
    let failed = Tx { value: 7, success: false, logs: vec![transfer(USDC, ALICE, BOB, 5)], ..Tx::default() };
    assert_eq!(short(vec![failed]).await, []);
}

#[tokio::test]
async fn the_value_of_a_transaction_is_a_leg() {
    let paid = Tx { value: 7, to: Some(BOB), input: vec![1, 2, 3].into(), ..Tx::default() };
    let oneself = mint::signer(1);
    let to_oneself = Tx { from: oneself, value: 7, to: Some(oneself), nonce: 1, ..Tx::default() };
    let nothing = Tx { value: 0, to: Some(BOB), nonce: 2, ..Tx::default() };
    let legs = legs(vec![paid, to_oneself, nothing]).await;
    assert_eq!(legs.len(), 1);
    let signer = ChainAddress::Evm(SIGNER.into());
    assert_eq!(legs[0].tx.life, TxLife::Nonce { signer, nonce: 0 });
    assert_eq!((legs[0].asset, legs[0].sender), (AssetId::Native, signer));
    assert_eq!(legs[0].recipient, ChainAddress::Evm(BOB.into()));
}

#[tokio::test]
async fn value_sent_with_a_creation_goes_to_the_created_contract() {
    let signer = mint::signer(1);
    let tx = Tx { from: signer, to: None, nonce: 3, value: 7, ..Tx::default() };
    assert_eq!(short(vec![tx]).await, [('N', signer, signer.create(3), 7, 0)]);
}

#[tokio::test]
async fn equal_legs_are_numbered_within_their_transaction_native_first() {
    // [E10] one payout of several equal amounts; the second transaction counts for itself.
    let logs = vec![
        transfer(USDC, ALICE, BOB, 5),
        transfer(USDC, SIGNER, BOB, 5),
        transfer(USDC, ALICE, BOB, 6),
        transfer(USDC, ALICE, ALICE, 5),
        transfer(USDC, ALICE, BOB, 5),
    ];
    let first = Tx { to: Some(BOB), value: 5, logs, ..Tx::default() };
    let second = Tx { nonce: 1, logs: vec![transfer(USDC, ALICE, BOB, 5)], ..Tx::default() };
    let expected = [
        ('N', SIGNER, BOB, 5, 0),
        ('T', ALICE, BOB, 5, 0),
        ('T', SIGNER, BOB, 5, 1),
        ('T', ALICE, BOB, 6, 0),
        ('T', ALICE, BOB, 5, 2),
        ('T', ALICE, BOB, 5, 0),
    ];
    assert_eq!(short(vec![first, second]).await, expected);
}

#[tokio::test]
async fn the_greatest_amount_is_exact() {
    // [E16]
    let most = log(USDC, &[TRANSFER, ALICE.into_word(), BOB.into_word()], &[0xff; 32]);
    let legs = legs(vec![with_logs(vec![most])]).await;
    assert_eq!(legs[0].amount, U256::MAX);
}

#[tokio::test]
async fn a_nodes_way_to_write_addresses_makes_no_difference() {
    // [E24] In capitals, in small letters, in EIP-55: bytes are compared.
    let recipient = address!("f39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
    let (block, receipts) =
        mint::block(5, B256::repeat_byte(1), &[with_logs(vec![transfer(USDC, ALICE, recipient, 5)])]);
    for contract in [USDC.to_string(), format!("{USDC:#x}"), format!("0x{}", alloy::hex::encode_upper(USDC))] {
        let mut receipts = receipts.clone();
        receipts[0]["logs"][0]["address"] = serde_json::json!(contract);
        let topic = format!("0x{}", alloy::hex::encode_upper(recipient.into_word()));
        receipts[0]["logs"][0]["topics"][2] = serde_json::json!(topic);
        let ledger = Ledger::of([(block.clone(), receipts)]);
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let legs = node.source(mainnet()).blocks(5..=5, Read::FULL).await.unwrap().remove(0).transfers;
        assert_eq!(legs.len(), 1, "{contract}");
        assert_eq!(legs[0].recipient, ChainAddress::Evm(recipient.into()), "{contract}");
        assert_eq!(legs[0].recipient.to_string(), recipient.to_string());
    }
}
