//! Beacon withdrawals (EIP-4895). Synthetic: no recorded block is young enough. Their root is alloy's. [E9]

use alloy::eips::eip4895::Withdrawal;
use alloy::primitives::{Address, B256};
use landfall_chain::{AssetTransfer, Chain, SourceErrorKind, TxId, TxLife, U256};
use serde_json::{Value, json};

use crate::forge::{self, Deposit, Entry, short};

const ALICE: Address = Address::repeat_byte(0xa1);
const BOB: Address = Address::repeat_byte(0xb2);

fn withdrawals() -> Vec<Withdrawal> {
    let withdrawal =
        |index, address, amount| Withdrawal { index, validator_index: index / 2 + 700_000, address, amount };
    vec![
        withdrawal(1, ALICE, 32_000_000_000),
        withdrawal(2, BOB, 5),
        withdrawal(3, BOB, 5),
        // A validator that was exited twice over: nothing arrives.
        withdrawal(4, BOB, 0),
        withdrawal(u64::MAX, BOB, u64::MAX),
    ]
}

#[tokio::test]
async fn e9_synthetic_withdrawals_are_credited_in_wei_one_leg_each() {
    let block = forge::read(Chain::EthereumMainnet, forge::block(&[], &withdrawals())).await.unwrap();
    let wei = |gwei: u64| U256::from(gwei) * U256::from(1_000_000_000);
    let amounts: Vec<U256> = block.transfers.iter().map(|leg| leg.amount).collect();
    assert_eq!(amounts, [wei(32_000_000_000), wei(5), wei(5), wei(u64::MAX)]);
    let eth = U256::from(10).pow(U256::from(18));
    assert_eq!(amounts[0], U256::from(32) * eth);
    let parts = |leg: &AssetTransfer| (leg.sender.to_string(), leg.recipient.to_string(), leg.nth, leg.tx.life);
    let (nobody, bob) = (Address::ZERO.to_string(), BOB.to_string());
    assert_eq!(parts(&block.transfers[0]), (nobody.clone(), ALICE.to_string(), 0, TxLife::Block));
    // Equal ones are no twins: each has an id of its own.
    assert_eq!(parts(&block.transfers[1]), (nobody.clone(), bob.clone(), 0, TxLife::Block));
    assert_eq!(parts(&block.transfers[2]), (nobody, bob, 0, TxLife::Block));
}

#[tokio::test]
async fn a_withdrawals_id_is_the_hash_of_its_index() {
    let block = forge::read(Chain::EthereumMainnet, forge::block(&[], &withdrawals())).await.unwrap();
    // By Python: sha256(0000000d || "withdrawal/v1" || 00000008 || 0000000000000001).
    let first = "0x6f1119c77f1b07527edb3d7fb0e451f42105130aa7458f87fc490e66de3eaf0d";
    assert_eq!(block.txs[0].to_string(), first);
    assert_eq!(block.transfers[0].tx.id, block.txs[0]);
    // Every one stands in its block, also the one that pays nothing: so its block can tell that a leg is gone.
    assert_eq!(block.txs.len(), 5);
    assert!(block.txs.iter().all(|id| matches!(id, TxId::Evm(_))));
}

#[tokio::test]
async fn synthetic_withdrawals_stand_behind_all_transactions() {
    let (mut block, receipts) =
        crate::mint::block(16, B256::repeat_byte(1), &[crate::mint::Tx { value: 7, ..crate::mint::Tx::default() }]);
    let list = vec![withdrawals()[1]];
    let root = alloy::consensus::proofs::calculate_withdrawals_root(&list);
    block = crate::mint::with_header(block, |header| header.withdrawals_root = Some(root));
    block["withdrawals"] = json!(list);
    let mut receipts = receipts;
    receipts[0]["blockHash"] = block["hash"].clone();
    let read = forge::read(Chain::EthereumMainnet, (block, receipts)).await.unwrap();
    let short: Vec<_> = read.transfers.iter().map(short).collect();
    let signer = Address::repeat_byte(0xaa);
    let payee = Address::repeat_byte(0xbb);
    assert_eq!(short, [('N', signer, payee, 7, 0), ('N', Address::ZERO, BOB, 5_000_000_000, 0)]);
    assert_eq!(read.txs.len(), 2);
}

#[tokio::test]
async fn withdrawals_that_are_not_the_headers_are_refused() {
    let (block, receipts) = forge::block(&[], &withdrawals());
    let forged = |change: &dyn Fn(&mut Value)| {
        let mut block = block.clone();
        change(&mut block["withdrawals"]);
        block
    };
    let cases = [
        forged(&|list| list[0]["amount"] = json!("0x1")),
        forged(&|list| list[0]["address"] = json!(BOB)),
        forged(&|list| list[0]["index"] = json!("0x9")),
        forged(&|list| list[0]["validatorIndex"] = json!("0x9")),
        forged(&|list| drop(list.as_array_mut().unwrap().pop())),
        forged(&|list| list.as_array_mut().unwrap().swap(1, 2)),
        forged(&|list| *list = json!([])),
        forged(&|list| *list = Value::Null),
    ];
    for block in cases {
        let error = forge::read(Chain::EthereumMainnet, (block, receipts.clone())).await.unwrap_err();
        assert!(error.to_string().contains("the withdrawals do not make up the header's withdrawalsRoot"), "{error}");
        assert_eq!(error.kind, SourceErrorKind::Transient);
    }
    // The root under the name of a later fork's field has the same encoding, and would hide what is withdrawn.
    let mut renamed = block.clone();
    let root = renamed.as_object_mut().unwrap().remove("withdrawalsRoot").unwrap();
    renamed["requestsHash"] = root;
    renamed["withdrawals"] = json!([]);
    let error = forge::read(Chain::EthereumMainnet, (renamed, receipts.clone())).await.unwrap_err();
    assert!(error.to_string().contains("the header does not hash to it"), "{error}");
    // A header of before Shanghai commits to none.
    let mut early = crate::mint::with_header(block, |header| header.withdrawals_root = None);
    early.as_object_mut().unwrap().remove("withdrawalsRoot");
    let error = forge::read(Chain::EthereumMainnet, (early, receipts)).await.unwrap_err();
    assert!(error.to_string().contains("withdrawalsRoot"), "{error}");
}

#[tokio::test]
async fn on_the_op_stack_the_field_is_no_root_of_withdrawals() {
    // Isthmus: the storage root of L2ToL1MessagePasser.
    let entry: Entry = Deposit { mint: Some(7), ..Deposit::default() }.entry();
    let (block, mut receipts) = forge::block(&[entry], &[]);
    let mut block = crate::mint::with_header(block, |header| header.withdrawals_root = Some(B256::repeat_byte(5)));
    receipts[0]["blockHash"] = block["hash"].clone();
    // And whatever a node lists there is in no root and pays nobody.
    block["withdrawals"] = json!(withdrawals());
    let read = forge::read(Chain::BaseMainnet, (block, receipts)).await.unwrap();
    assert_eq!(read.transfers.iter().map(short).collect::<Vec<_>>(), [('N', Address::ZERO, ALICE, 7, 0)]);
    assert_eq!(read.txs.len(), 1);
}
