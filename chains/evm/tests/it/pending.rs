//! What is in no block yet is never asked for: neither `pending`, nor flash blocks, whose hashes are not those of the
//! blocks that come.

use alloy::primitives::Address;
use landfall_chain::{
    Address as ChainAddress, AddressSource, BlockSource, Read, ReadProof, TxId, TxLife, TxRef, Watched,
};

use crate::mint::{self, Tx};
use crate::node::{Ledger, Live, source};
use crate::trace::{FULL, traced};

#[tokio::test]
async fn what_is_not_in_a_block_is_never_asked_for() {
    let paying = |nonce| vec![Tx { nonce, value: 1, ..Tx::default() }];
    let ledger = Ledger { finalized: Some(6), ..Ledger::of(mint::chain(5, (0..3).map(paying).collect())) };
    let live = Live::start(ledger.clone()).await;
    let source = source(traced(), &[&live.node]);
    // Each kind of question; what the node cannot answer was asked all the same.
    let (range, at) = (5..=7, ledger.reference(6));
    source.tip().await.unwrap();
    source.headers(range.clone()).await.unwrap();
    source.final_at(5).await.unwrap();
    for read in [Read::FULL, Read { proof: ReadProof::Candidate, ..Read::FULL }, FULL] {
        let _ = source.blocks(range.clone(), read).await;
    }
    let signer = ChainAddress::Evm(Address::repeat_byte(0xaa).into());
    let tx = TxRef { id: TxId::Evm([7; 32]), life: TxLife::Nonce { signer, nonce: 0 } };
    let _ = source.fate(&tx, &at).await;
    let _ = source.account_states(&[signer], &at).await;
    let _ = source.candidates(range, Watched::Asked(&|_| true)).await;
    let calls = live.take_calls();
    for method in ["eth_getBlockReceipts", "eth_getLogs", "debug_traceBlockByHash", "eth_getProof"] {
        assert!(calls.iter().any(|(asked, _)| asked == method), "{method} was not asked: {calls:?}");
    }
    for (method, params) in calls {
        let text = params.to_string();
        assert!(!text.contains("pending") && !text.contains("earliest"), "{method} {text}");
        // Without a block of its own, a node may take the pending one.
        let names_block = !matches!(method.as_str(), "eth_getTransactionCount" | "eth_getProof" | "eth_call");
        assert!(names_block || params.as_array().is_some_and(|params| params.len() > 1), "{method} {text}");
    }
}
