//! What became of a transaction.

use landfall_chain::{Address, BlockHash, BlockRef, Fate, TxId, TxLife, TxRef};
use landfall_rpc::Call;
use serde_json::json;

use crate::dialect::Endpoint;
use crate::error::EvmError;
use crate::hex::Quantity;
use crate::wire::WirePlace;

const RECEIPT: &str = "eth_getTransactionReceipt";
const NONCE: &str = "eth_getTransactionCount";

/// One request for both questions, so that one node answers them at one time.
pub(crate) async fn read_fate(endpoint: &Endpoint, tx: &TxRef, at: &BlockRef) -> Result<Fate, EvmError> {
    let foreign = || EvmError::Foreign { chain: endpoint.chain, what: format!("transaction {}", tx.id) };
    let TxId::Evm(_) = tx.id else { return Err(foreign()) };
    let place = Call { method: RECEIPT, params: json!([tx.id.to_string()]) };
    let used = match tx.life {
        TxLife::Nonce { signer: signer @ Address::Evm(_), nonce } => Some((nonces(&signer, at), nonce)),
        TxLife::Nonce { signer: Address::Solana(_), .. } => return Err(foreign()),
        // Nothing can take its place. A withdrawal's id is no hash that a node knows: it is never found.
        TxLife::Block => None,
    };
    let (used, nonce) = used.unzip();
    let calls: Vec<Call> = std::iter::once(place).chain(used).collect();
    let mut answers = endpoint.ask(&calls).await?.into_iter();
    let place = answers.next().ok_or_else(|| endpoint.unusable(RECEIPT, "no answer"))?;
    let place = place.map_err(|error| endpoint.refused(RECEIPT, &error))?;
    if let Some(place) = endpoint.parse::<Option<WirePlace>>(RECEIPT, &place)? {
        return Ok(Fate::In(BlockRef { number: place.block_number.0, hash: BlockHash(place.block_hash.0) }));
    }
    let Some(nonce) = nonce else { return Ok(Fate::Unknown) };
    let used = answers.next().ok_or_else(|| endpoint.unusable(NONCE, "no answer"))?;
    // A node that no longer has the state of a block minutes old says so in various ways: it does not know.
    let Ok(used) = used else { return Ok(Fate::Unknown) };
    let used: Quantity = endpoint.parse(NONCE, &used)?;
    Ok(if used.0 > nonce { Fate::Superseded(*at) } else { Fate::Unknown })
}

/// How many nonces `signer` had used at `at`. By hash (EIP-1898): by number, a node on another branch would answer
/// for its own block.
fn nonces(signer: &Address, at: &BlockRef) -> Call {
    let block = json!({ "blockHash": at.hash.to_string(), "requireCanonical": true });
    Call { method: NONCE, params: json!([signer.to_string(), block]) }
}
