//! What is no leg, and why: the verdicts that a read reports when it is asked to explain.

use alloy::primitives::{Address, B256, address};
use landfall_chain::{
    Address as ChainAddress, AssetId, Block, Chain, Legs, Native, NativeSource, Network, Read, Rejected, TxId, TxLife,
    Verdict,
};
use landfall_evm::network;
use serde_json::Value;

use crate::forge::{self, Deposit, Entry, short};
use crate::mint::{self, TRANSFER, Tx, log, transfer};
use crate::node::Ledger;

const USDC: Address = address!("A0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48");
const SYSTEM: Address = address!("fffffffffffffffffffffffffffffffffffffffe");
const SIGNER: Address = Address::repeat_byte(0xaa);
const ALICE: Address = Address::repeat_byte(0x0a);
const BOB: Address = Address::repeat_byte(0x0b);
const EXPLAINED: Read = Read { legs: Legs::Explained, ..Read::FULL };

type Short = (&'static str, (char, Address, Address, u64, u32));

fn ethereum() -> Network {
    network(Chain::EthereumMainnet).unwrap()
}

fn rejected(block: &Block) -> Vec<Short> {
    block.rejected.iter().map(|Rejected { transfer, verdict }| (verdict.code(), short(transfer))).collect()
}

/// The rejected movements of block 16; a read that does not ask for them has none, and the same legs.
async fn explained(network: Network, block: (Value, Value)) -> Vec<Short> {
    let reported = forge::read_as(network.clone(), block.clone(), EXPLAINED).await.unwrap();
    let plain = forge::read_as(network, block, Read::FULL).await.unwrap();
    assert_eq!((plain.rejected.len(), &plain.transfers), (0, &reported.transfers));
    rejected(&reported)
}

async fn of(network: Network, tx: Tx) -> Vec<Short> {
    explained(network, mint::block(16, B256::repeat_byte(1), &[tx])).await
}

#[tokio::test]
async fn what_is_no_leg_of_a_successful_transaction_says_why() {
    let unlisted = Address::repeat_byte(0xcc);
    let collectible = |contract| log(contract, &[TRANSFER, ALICE.into_word(), BOB.into_word(), B256::ZERO], &[]);
    let tx = Tx {
        value: 7,
        to: Some(BOB),
        logs: vec![
            transfer(USDC, ALICE, BOB, 5),
            transfer(unlisted, ALICE, BOB, 5),
            transfer(unlisted, ALICE, BOB, 0),
            collectible(unlisted),
            collectible(USDC),
            transfer(USDC, ALICE, BOB, 0),
            transfer(USDC, BOB, BOB, 5),
            // No claim of anything.
            log(USDC, &[TRANSFER, ALICE.into_word()], &[]),
            log(USDC, &[], &[]),
        ],
        ..Tx::default()
    };
    let expected = [
        ("unlisted_token", ('T', ALICE, BOB, 5, 0)),
        ("unlisted_token", ('T', ALICE, BOB, 0, 0)),
        ("unlisted_token", ('T', ALICE, BOB, 1, 0)),
        ("unlisted_token", ('T', ALICE, BOB, 1, 0)),
        ("zero_value", ('T', ALICE, BOB, 0, 0)),
        ("self_transfer", ('T', BOB, BOB, 5, 0)),
    ];
    assert_eq!(of(ethereum(), tx).await, expected);
}

#[tokio::test]
async fn a_transactions_own_value_says_why_it_is_no_leg() {
    let oneself = mint::signer(1);
    let failed = Tx { value: 7, to: Some(BOB), success: false, ..Tx::default() };
    assert_eq!(of(ethereum(), failed).await, [("reverted_tx", ('N', SIGNER, BOB, 7, 0))]);
    // Nothing else tells of it: so it is reported, though it moves nothing.
    let failed_call = Tx { to: Some(USDC), success: false, ..Tx::default() };
    assert_eq!(of(ethereum(), failed_call).await, [("reverted_tx", ('N', SIGNER, USDC, 0, 0))]);
    let nothing = Tx { to: Some(BOB), ..Tx::default() };
    assert_eq!(of(ethereum(), nothing).await, [("zero_value", ('N', SIGNER, BOB, 0, 0))]);
    let call = Tx { to: Some(USDC), logs: vec![transfer(USDC, ALICE, BOB, 5)], ..Tx::default() };
    assert_eq!(of(ethereum(), call).await, []);
    let oneself_paid = || Tx { from: oneself, value: 7, to: Some(oneself), ..Tx::default() };
    let expected = [("self_transfer", ('N', oneself, oneself, 7, 0))];
    assert_eq!(of(ethereum(), oneself_paid()).await, expected);
    let logged = Network { native: Native { source: NativeSource::Trace, eip7708_from: Some(16) }, ..ethereum() };
    assert_eq!(of(logged, oneself_paid()).await, expected);
}

#[tokio::test]
async fn e21_a_listed_contract_is_no_token_below_its_block() {
    // [E21] With `from = 17`, block 16 is too early and block 17 is not.
    let tx = || Tx { logs: vec![transfer(USDC, ALICE, BOB, 5)], ..Tx::default() };
    for (from, is_leg) in [(0, true), (16, true), (17, false)] {
        let mut network = ethereum();
        network.assets.iter_mut().filter(|asset| asset.symbol == "USDC").for_each(|asset| asset.from_block = from);
        let block = mint::block(16, B256::repeat_byte(1), &[tx()]);
        let block = forge::read_as(network, block, EXPLAINED).await.unwrap();
        let reported = rejected(&block);
        let fake: &[Short] = if is_leg { &[] } else { &[("unlisted_token", ('T', ALICE, BOB, 5, 0))] };
        assert_eq!((block.transfers.len(), reported.as_slice()), (usize::from(is_leg), fake), "{from}");
    }
}

#[tokio::test]
async fn the_log_of_eip7708_is_an_unlisted_token_before_its_block() {
    // [E20]
    let tx = || Tx { value: 7, to: Some(BOB), logs: vec![transfer(SYSTEM, SIGNER, BOB, 7)], ..Tx::default() };
    let native = |from| Native { source: NativeSource::Trace, eip7708_from: from };
    let of_from = |from| of(Network { native: native(from), ..ethereum() }, tx());
    assert_eq!(of_from(Some(17)).await, [("unlisted_token", ('T', SIGNER, BOB, 7, 0))]);
    assert_eq!(of_from(Some(16)).await, []);
}

#[tokio::test]
async fn a_synthetic_deposit_that_fails_explains_its_value_and_keeps_its_mint() {
    // [E19]
    let deposit = Deposit { from: ALICE, to: Some(BOB), mint: Some(7), value: 5, ..Deposit::default() }.entry();
    let failed = Entry { success: false, ..deposit };
    let base = network(Chain::BaseMainnet).unwrap();
    let block = forge::read_as(base, forge::block(&[failed], &[]), EXPLAINED).await.unwrap();
    assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), [('N', Address::ZERO, ALICE, 7, 0)]);
    assert_eq!(rejected(&block), [("reverted_tx", ('N', ALICE, BOB, 5, 0))]);
}

#[tokio::test]
async fn recorded_receipts_of_before_byzantium_prove_and_credit_nothing() {
    // Block 468,179: one transaction of 1.72769448 ETH, read off the fixture. Its receipt has a state root and no status.
    let ledger = Ledger::recorded(Chain::EthereumMainnet, "eth_mainnet", 468_179);
    let (reported, receipts) = ledger.blocks.into_values().next().unwrap();
    let block = forge::read_as(ethereum(), (reported, receipts), EXPLAINED).await.unwrap();
    assert_eq!(block.transfers, []);
    assert_eq!(block.rejected.len(), 1);
    let Rejected { transfer, verdict } = &block.rejected[0];
    assert_eq!((*verdict, transfer.asset), (Verdict::NoStatus, AssetId::Native));
    assert_eq!(transfer.amount.to_string(), "1727694480000000000");
    assert_eq!(transfer.recipient.to_string().to_lowercase(), "0x32be343b94f860124dc4fee278fdcbd38c102d88");
    // What it cost is known all the same.
    assert_eq!(block.fees.len(), 1);
}

#[tokio::test]
async fn what_a_recorded_pseudo_receipt_claims_is_unproved() {
    // [E18] The bridged token that the pseudo transaction mints is unlisted, and then it is listed.
    let bridged = address!("385eeac5cb85a38a9a07a70c73e0a3271cfb54a7");
    let ledger = Ledger::recorded(Chain::PolygonMainnet, "polygon_mainnet", 10_000_000);
    let (reported, receipts) = ledger.blocks.into_values().next().unwrap();
    let pseudo: B256 = receipts[5]["transactionHash"].as_str().unwrap().parse().unwrap();
    for (listed, verdict) in [(false, Verdict::UnlistedToken), (true, Verdict::Unproved)] {
        let mut network = network(Chain::PolygonMainnet).unwrap();
        let id = AssetId::Token(ChainAddress::Evm(bridged.into()));
        if listed {
            let symbol = "BRIDGED".to_owned();
            network.assets.push(landfall_chain::Asset { id, symbol, decimals: 18, from_block: 0, route: None });
        }
        let block = forge::read_as(network, (reported.clone(), receipts.clone()), EXPLAINED).await.unwrap();
        assert!(block.transfers.iter().all(|leg| leg.asset != id));
        let claims: Vec<_> = block.rejected.iter().filter(|it| it.transfer.tx.id == TxId::Evm(pseudo.0)).collect();
        assert!(!claims.is_empty());
        assert!(claims.iter().all(|it| it.verdict == verdict && it.transfer.tx.life == TxLife::Block), "{claims:?}");
        assert!(claims.iter().any(|it| it.transfer.asset == id));
    }
}
