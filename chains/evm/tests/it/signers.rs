//! Who signed: proved where it decides about a leg, and on demand everywhere else.

use alloy::consensus::TxType;
use alloy::primitives::{Address, B256};
use landfall_chain::{
    Address as ChainAddress, Block, BlockSource, Chain, EndpointState, Read, SourceErrorKind, TxId, TxLife, TxRef,
};
use landfall_evm::network;
use serde_json::{Value, json};

use crate::forge::{self, Deposit, short};
use crate::mint::{self, Tx};
use crate::node::{Ledger, Live, led_by_first, mainnet};

const BOB: Address = Address::repeat_byte(0x0b);

/// The transactions of a block as a node told them, deposits left out.
fn references(block: &Value) -> Vec<TxRef> {
    let signed = block["transactions"].as_array().unwrap().iter().filter(|tx| tx["type"] != "0x7e");
    signed
        .map(|tx| {
            let text = |field: &str| tx[field].as_str().unwrap();
            let signer = ChainAddress::Evm(text("from").parse::<Address>().unwrap().into());
            let nonce = u64::from_str_radix(&text("nonce")[2..], 16).unwrap();
            TxRef { id: TxId::Evm(text("hash").parse::<B256>().unwrap().0), life: TxLife::Nonce { signer, nonce } }
        })
        .collect()
}

fn named(tx: TxRef, signer: Address) -> TxRef {
    let TxLife::Nonce { nonce, .. } = tx.life else { panic!("{tx:?}") };
    TxRef { life: TxLife::Nonce { signer: ChainAddress::Evm(signer.into()), nonce }, ..tx }
}

async fn read(chain: Chain, block: (Value, Value)) -> Block {
    forge::read_as(network(chain).unwrap(), block, Read::FULL).await.unwrap()
}

#[tokio::test]
async fn recorded_transactions_were_signed_by_whom_their_nodes_named() {
    // Before and after EIP-155 and Homestead, types 0 to 4, before and after Bedrock.
    let mut count = 0;
    for (chain, prefix, numbers) in [
        (
            Chain::EthereumMainnet,
            "eth_mainnet",
            &[468_179, 4_370_006, 4_404_763, 7_280_016, 11_098_450, 16_899_757, 20_000_000, 24_647_140][..],
        ),
        (Chain::OptimismMainnet, "optimism_mainnet", &[10_000, 105_237_730, 109_860_869]),
        (Chain::PolygonMainnet, "polygon_mainnet", &[38_102_393, 43_200_000]),
        (Chain::BaseMainnet, "anvil_optimism", &[1]),
        (Chain::OptimismSepolia, "optimism_sepolia", &[26_207_962]),
        (Chain::OptimismSepolia, "unichain_sepolia", &[35_535_698]),
    ] {
        for number in numbers {
            let ledger = Ledger::recorded(chain, prefix, *number);
            let (reported, receipts) = ledger.blocks.into_values().next().unwrap();
            let block = read(chain, (reported.clone(), receipts)).await;
            for tx in references(&reported) {
                block.signers.prove(&tx).unwrap();
                assert!(block.signers.prove(&named(tx, BOB)).is_err(), "{chain} {number}");
                count += 1;
            }
        }
    }
    assert_eq!(count, 725 + 134 + 60 + 47 + 5);
}

#[tokio::test]
async fn every_type_of_transaction_has_its_signer_proved() {
    let kinds = [TxType::Legacy, TxType::Legacy, TxType::Eip2930, TxType::Eip1559, TxType::Eip4844, TxType::Eip7702];
    let txs: Vec<Tx> = (0..60)
        .zip(kinds.into_iter().cycle())
        .map(|(nonce, kind)| Tx { kind, nonce, from: mint::signer(2), ..Tx::default() })
        .collect();
    let (reported, receipts) = mint::block(16, B256::repeat_byte(1), &txs);
    let block = read(Chain::EthereumMainnet, (reported.clone(), receipts)).await;
    for tx in references(&reported) {
        block.signers.prove(&tx).unwrap();
        assert!(block.signers.prove(&named(tx, mint::signer(3))).is_err());
    }
}

#[tokio::test]
async fn a_false_signer_is_a_failed_proof_of_the_endpoint_that_named_it() {
    let truth = Tx { from: mint::signer(1), to: Some(BOB), value: 7, ..Tx::default() };
    let (block, receipts) = mint::block(16, B256::repeat_byte(1), &[Tx { nonce: 8, ..Tx::default() }, truth]);
    let mut lie = block.clone();
    lie["transactions"][1]["from"] = json!(mint::signer(2));
    let (honest, liar) = (Ledger::of([(block, receipts.clone())]), Ledger::of([(lie, receipts)]));
    let (liar, honest) = (Live::start(liar).await, Live::start(honest).await);
    let source = led_by_first(mainnet(), &[&liar, &honest]).await;

    let block = source.blocks(16..=16, Read::FULL).await.unwrap().remove(0);
    assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), [('N', mint::signer(2), BOB, 7, 0)]);
    let error = block.signers.prove(&block.transfers[0].tx).unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    let text = error.to_string();
    assert!(text.contains("which is not proved: transaction 1 was not signed by its stated sender"), "{text}");
    assert!(text.contains(liar.node.id()), "{text}");
    let status = source.endpoints().snapshot().remove(0);
    assert_eq!(status.state, EndpointState::Quarantined);
    assert_eq!(status.reason, text);

    // The next reading asks another one.
    let block = source.blocks(16..=16, Read::FULL).await.unwrap().remove(0);
    block.signers.prove(&block.transfers[0].tx).unwrap();
    assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), [('N', mint::signer(1), BOB, 7, 0)]);
}

#[tokio::test]
async fn the_signer_is_proved_at_once_where_it_decides_about_a_leg() {
    let (signer, other) = (mint::signer(1), mint::signer(2));
    let pays = |to| Tx { from: signer, to, value: 7, ..Tx::default() };
    let cases = [
        // [E11] A payment hidden as one to oneself, and the other way about.
        ("a payment told as one to oneself", pays(Some(other)), other, false),
        ("a payment to oneself", pays(Some(signer)), signer, true),
        ("a creation told as somebody else's", pays(None), other, false),
        ("a creation", pays(None), signer, true),
        // Nothing is decided by it: proved on demand only.
        ("a creation without value", Tx { value: 0, ..pays(None) }, other, true),
        ("a call of oneself without value", Tx { value: 0, ..pays(Some(other)) }, other, true),
    ];
    for (name, tx, reported, accepted) in cases {
        let (mut block, receipts) = mint::block(16, B256::repeat_byte(1), &[tx]);
        block["transactions"][0]["from"] = json!(reported);
        match forge::read(Chain::EthereumMainnet, (block, receipts)).await {
            Ok(_) => assert!(accepted, "{name}"),
            Err(error) => {
                assert!(!accepted, "{name}: {error}");
                assert_eq!(error.kind, SourceErrorKind::Transient);
                assert!(error.to_string().contains("transaction 0 was not signed by its stated sender"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn what_has_no_signature_has_nothing_to_prove_and_what_is_not_there_is_an_error() {
    let deposit = Deposit { mint: Some(7), ..Deposit::default() }.entry();
    let block = read(Chain::BaseMainnet, forge::block(&[deposit], &[])).await;
    block.signers.prove(&block.transfers[0].tx).unwrap();
    let elsewhere =
        TxRef { id: TxId::Evm([9; 32]), life: TxLife::Nonce { signer: ChainAddress::Evm(BOB.into()), nonce: 0 } };
    let error = block.signers.prove(&elsewhere).unwrap_err();
    assert!(error.to_string().contains("is not in block 16 (0x"), "{error}");
}

/// A legacy transaction of BOB's, so he says, with this signature.
fn legacy(v: u64, r: u64, s: u64) -> forge::Entry {
    let to = Address::repeat_byte(5);
    let fields: &[&dyn alloy::rlp::Encodable] = &[&3_u64, &0_u64, &21_000_u64, &to, &0_u64, &"", &v, &r, &s];
    let json = json!({
        "type": "0x0", "from": BOB, "to": to, "value": "0x0", "gas": "0x5208", "input": "0x", "nonce": "0x3",
        "gasPrice": "0x0", "v": forge::hex(v), "r": forge::hex(r), "s": forge::hex(s),
    });
    let leaf = forge::typed(0xff, fields).split_off(1);
    forge::Entry { leaf, json, success: true, logs: Vec::new(), deposit_nonce: None, version: None }
}

#[tokio::test]
async fn a_synthetic_transaction_that_l1_sent_before_bedrock_has_no_signature() {
    // Legacy, with a signature of zeros, on the OP stack only; a signature that is nobody's is another thing.
    let cases = [
        (Chain::OptimismMainnet, (0, 0, 0), true),
        (Chain::EthereumMainnet, (0, 0, 0), false),
        (Chain::OptimismMainnet, (27, 0, 1), false),
        (Chain::OptimismMainnet, (27, 5, 0), false),
        (Chain::OptimismMainnet, (29, 5, 5), false),
    ];
    for (chain, (v, r, s), proves) in cases {
        let (reported, receipts) = forge::block(&[legacy(v, r, s)], &[]);
        let block = read(chain, (reported.clone(), receipts)).await;
        assert_eq!(block.signers.prove(&references(&reported)[0]).is_ok(), proves, "{chain} {v} {r} {s}");
    }
}
