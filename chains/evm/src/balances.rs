//! What addresses own of the native currency at a block, proved by the block's own state root.
//!
//! Promises: nothing is believed but a Merkle proof (`eth_getProof`) from the `stateRoot` of the header that hashes
//! to the block asked for; an address that is proved to be in no leaf owns nothing. A short, empty or broken proof is
//! a failed proof and never zero. Endpoints are asked one after the other until one proves it. That one does not serve
//! proofs changes nothing in the pool's opinion of it, as with traces; that one proves a lie does.

use alloy::primitives::{Address as Plain, B256, Bytes, keccak256};
use alloy_trie::proof::verify_proof;
use alloy_trie::{Nibbles, TrieAccount};
use landfall_chain::{Address, BlockRef, U256};
use landfall_rpc::{Answer, Call, Need, Raw};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dialect::{Endpoint, Pool};
use crate::error::{Check, EvmError};
use crate::headers::{HeaderOnly, refused};
use crate::hex::{Amount, Data, Quantity};
use crate::proof;

const BY_HASH: &str = "eth_getBlockByHash";
const PROOF: &str = "eth_getProof";
/// A proof is some kilobytes, and some dozens of reads of the node's database.
const PROOFS_MAX: usize = 100;

/// What a node claims of an account, and the nodes of the trie from the root down.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireAccount<'a> {
    #[serde(borrow)]
    account_proof: Vec<Data<'a>>,
    balance: Amount,
    nonce: Quantity,
    code_hash: B256,
    storage_hash: B256,
}

/// In the order of `addresses`, from the first endpoint that proves them.
pub(crate) async fn balances(pool: &Pool, addresses: &[Address], at: &BlockRef) -> Result<Vec<U256>, EvmError> {
    let need = Need { first: at.number, last: at.number, methods: &[PROOF] };
    let mut failure = None;
    for endpoint in pool.candidates(need).await {
        match of_endpoint(endpoint, addresses, at).await {
            Ok(balances) => return Ok(balances),
            Err(error) if error.is_permanent() => return Err(error),
            Err(error) => {
                tracing::warn!(chain = %pool.chain(), "an endpoint proved no balances: {error}");
                if matches!(error, EvmError::ProofFailed { .. }) {
                    endpoint.failed(&error);
                }
                failure = failure.or(Some(error));
            }
        }
    }
    Err(failure.unwrap_or_else(|| pool.nobody()))
}

async fn of_endpoint(endpoint: &Endpoint, addresses: &[Address], at: &BlockRef) -> Result<Vec<U256>, EvmError> {
    let mut balances = Vec::with_capacity(addresses.len());
    for some in addresses.chunks(PROOFS_MAX) {
        let plain: Vec<Plain> = some.iter().map(|address| plain(endpoint, address)).collect::<Result<_, _>>()?;
        // EIP-1898: by number, a node on another branch would answer for its own block.
        let by_hash = json!({ "blockHash": at.hash.to_string() });
        let (root, mut answers) = ask(endpoint, &plain, at, &by_hash).await?;
        let by_number = answers.iter().any(Result::is_err);
        if by_number {
            // Some nodes know a block here by number only. The root decides.
            answers = ask(endpoint, &plain, at, &json!(format!("{:#x}", at.number))).await?.1;
        }
        for (address, answer) in plain.iter().zip(answers) {
            let answer = answer.map_err(|error| endpoint.refused(PROOF, &error))?;
            let account: WireAccount<'_> = endpoint.parse(PROOF, &answer)?;
            // An honest node on another branch answers by number for another state; by hash it has no excuse.
            if by_number && !account.begins_with(root) {
                return Err(endpoint.unusable(PROOF, &format!("the proof is not of block {at}")));
            }
            let proved = account.balance_of(address, root);
            balances.push(proved.ok_or_else(|| failed(endpoint, at, address))?);
        }
    }
    Ok(balances)
}

fn plain(endpoint: &Endpoint, address: &Address) -> Result<Plain, EvmError> {
    match address {
        Address::Evm(bytes) => Ok(Plain::from(*bytes)),
        Address::Solana(_) => Err(EvmError::Foreign { chain: endpoint.chain, what: format!("address {address}") }),
    }
}

/// The proved state root of the block `at`, and the answers for the state of `block`: one request, one node.
async fn ask(
    endpoint: &Endpoint,
    addresses: &[Plain],
    at: &BlockRef,
    block: &Value,
) -> Result<(B256, Vec<Answer>), EvmError> {
    let header = Call { method: BY_HASH, params: json!([at.hash.to_string(), false]) };
    let proof = |address: &Plain| Call { method: PROOF, params: json!([address.to_string(), [], block]) };
    let calls: Vec<Call> = std::iter::once(header).chain(addresses.iter().map(proof)).collect();
    let mut answers = endpoint.ask_aside(&calls).await?.into_iter();
    let header = answers.next().ok_or_else(|| endpoint.unusable(BY_HASH, "no answer"))?;
    let header = header.map_err(|error| endpoint.refused(BY_HASH, &error))?;
    Ok((state_root(endpoint, at, &header)?, answers.collect()))
}

fn state_root(endpoint: &Endpoint, at: &BlockRef, answer: &Raw) -> Result<B256, EvmError> {
    let block: Option<HeaderOnly<'_>> = endpoint.parse(BY_HASH, answer)?;
    let block = block.ok_or_else(|| endpoint.unusable(BY_HASH, &format!("the block {at} is not known there")))?;
    let header = proof::header(endpoint.chain, &block);
    let header = header.map_err(|refusal| refused(endpoint, *at, BY_HASH, &refusal))?;
    if header.block != *at {
        return Err(endpoint.unusable(BY_HASH, &format!("asked for block {at}, but got block {}", header.block)));
    }
    Ok(block.state_root)
}

impl WireAccount<'_> {
    /// The balance, when the proof leads to it from `root`.
    fn balance_of(&self, address: &Plain, root: B256) -> Option<U256> {
        let nodes: Vec<Bytes> = self.account_proof.iter().map(bytes).collect();
        let key = Nibbles::unpack(keccak256(address));
        let claimed = TrieAccount {
            nonce: self.nonce.0,
            balance: self.balance.0,
            storage_root: self.storage_hash,
            code_hash: self.code_hash,
        };
        let proves = |leaf| verify_proof(root, key, leaf, &nodes).is_ok();
        // Who is in no leaf owns nothing; nodes disagree about what else to write for such an account.
        let exists = proves(Some(alloy::rlp::encode(claimed)));
        (exists || self.balance.0.is_zero() && proves(None)).then_some(self.balance.0)
    }

    fn begins_with(&self, root: B256) -> bool {
        self.account_proof.first().is_some_and(|node| keccak256(bytes(node)) == root)
    }
}

fn failed(endpoint: &Endpoint, at: &BlockRef, address: &Plain) -> EvmError {
    let check = Check::Account(Address::Evm((*address).into()));
    EvmError::ProofFailed { chain: endpoint.chain, endpoint: endpoint.id.clone(), block: *at, check }
}

fn bytes(data: &Data<'_>) -> Bytes {
    let mut bytes = Vec::with_capacity(data.len());
    data.append_to(&mut bytes);
    bytes.into()
}
