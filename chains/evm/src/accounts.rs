//! What addresses are after a block: their balance of the native currency, and whether they have code.
//!
//! The block's own state root proves them where an endpoint serves a proof (`eth_getProof`). Where none does, as many
//! endpoints as must agree report the same of the block by its hash (`eth_getBalance`, `eth_getCode`). Promises: a
//! proof leads from the `stateRoot` of the header that hashes to the requested block. An address that is proved to be
//! in no leaf owns nothing and has no code. A short, empty or broken proof is a failed proof and never zero. An
//! endpoint that does not serve proofs or states stays as healthy as before, as with traces; one that proves a lie
//! does not.

use alloy::primitives::{Address as Plain, B256, Bytes, KECCAK256_EMPTY, keccak256};
use alloy_trie::proof::verify_proof;
use alloy_trie::{Nibbles, TrieAccount};
use landfall_chain::{AccountState, Address, BlockRef};
use landfall_rpc::{Answer, Call, Limit, Need, NodeError, Raw};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dialect::{Endpoint, Pool};
use crate::error::{Check, EvmError};
use crate::headers::{HeaderOnly, refused};
use crate::hex::{Amount, Data, Quantity};
use crate::holdings::{BALANCE, CODE, by_hash};
use crate::proof;

const BY_HASH: &str = "eth_getBlockByHash";
const PROOF: &str = "eth_getProof";
/// A proof is some kilobytes, and some dozens of reads of the node's database.
const PROOFS_MAX: usize = 100;
/// Of an address, its balance and its code, which is 24 KiB at most (EIP-170).
const REPORTS_MAX: usize = 50;

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

/// In the order of `addresses`: from the first endpoint that proves them, else as enough endpoints report them.
pub(crate) async fn accounts(pool: &Pool, addresses: &[Address], at: &BlockRef) -> Result<Vec<AccountState>, EvmError> {
    let need = Need { first: at.number, last: at.number, methods: &[PROOF] };
    let mut failure = None;
    for endpoint in pool.candidates(need).await.into_iter().filter(|endpoint| endpoint.may_serve(PROOF)) {
        match proved(endpoint, addresses, at).await {
            Ok(accounts) => return Ok(accounts),
            Err(error) if error.is_permanent() => return Err(error),
            Err(error) => {
                tracing::debug!(chain = %pool.chain(), "an endpoint proved no accounts: {error}");
                if matches!(error, EvmError::ProofFailed { .. }) {
                    tracing::warn!(chain = %pool.chain(), "an endpoint proved a false account: {error}");
                    endpoint.failed(&error);
                }
                failure = failure.or(Some(error));
            }
        }
    }
    let failure = failure.unwrap_or_else(|| pool.nobody());
    reported(pool, addresses, at, &failure).await.map_err(|error| match failure {
        EvmError::ProofFailed { .. } => failure,
        _ => error,
    })
}

/// As many endpoints as must agree report the same. No endpoint proves it; `unproved` is the first reason.
async fn reported(
    pool: &Pool,
    addresses: &[Address],
    at: &BlockRef,
    unproved: &EvmError,
) -> Result<Vec<AccountState>, EvmError> {
    let need = Need { first: at.number, last: at.number, methods: &[BALANCE, CODE] };
    let (chain, agree) = (pool.chain(), pool.must_agree());
    let mut reports: Vec<Vec<AccountState>> = Vec::new();
    let (mut without, mut failure) = (Vec::new(), None);
    for endpoint in pool.of_use(need).await {
        match report(endpoint, addresses, at).await {
            Ok(Some(report)) => {
                reports.push(report);
                if let Some(agreed) = reports.iter().find(|one| reports.iter().filter(|it| it == one).count() >= agree)
                {
                    return Ok(agreed.clone());
                }
            }
            Ok(None) => without.push(endpoint.id.as_str()),
            Err(error) if error.is_permanent() => return Err(error),
            Err(error) => {
                tracing::warn!(chain = %chain, "an endpoint reported no accounts: {error}");
                failure = failure.or(Some(error));
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let differ = reports.windows(2).any(|two| two[0] != two[1]);
    if differ || without.is_empty() {
        let (reports, unproved) = (reports.len(), unproved.to_string());
        return Err(EvmError::AccountsUnproved { chain, block: *at, agree, reports, unproved });
    }
    let (endpoints, unproved) = (without.join(", "), unproved.to_string());
    Err(EvmError::StateGone { chain, block: *at, endpoints, unproved })
}

/// What one endpoint reports; `None` where it answers that it does not have that state.
async fn report(
    endpoint: &Endpoint,
    addresses: &[Address],
    at: &BlockRef,
) -> Result<Option<Vec<AccountState>>, EvmError> {
    let block = by_hash(at);
    let mut accounts = Vec::with_capacity(addresses.len());
    for some in addresses.chunks(REPORTS_MAX) {
        let mut calls = Vec::with_capacity(2 * some.len());
        for address in some {
            let address = plain(endpoint, address)?.to_string();
            calls.push(Call { method: BALANCE, params: json!([address, block]) });
            calls.push(Call { method: CODE, params: json!([address, block]) });
        }
        let answers = endpoint.ask_aside(&calls).await?;
        if answers.iter().any(|answer| answer.as_ref().is_err_and(is_without)) {
            return Ok(None);
        }
        for two in answers.chunks_exact(2) {
            let [balance, code] = [(&two[0], BALANCE), (&two[1], CODE)]
                .map(|(answer, method)| answer.as_ref().map_err(|error| endpoint.refused(method, error)));
            let Amount(balance) = endpoint.parse(BALANCE, balance?)?;
            let code: Data<'_> = endpoint.parse(CODE, code?)?;
            accounts.push(AccountState { balance, has_code: code.len() > 0 });
        }
    }
    if accounts.len() != addresses.len() {
        return Err(endpoint.unusable(BALANCE, &format!("{} of {} accounts", accounts.len(), addresses.len())));
    }
    Ok(Some(accounts))
}

/// Whether it says that it does not keep the state, or does not serve the method.
fn is_without(error: &NodeError) -> bool {
    matches!(error.limit, Some(Limit::Pruned | Limit::Unsupported))
}

/// What one endpoint proves.
async fn proved(endpoint: &Endpoint, addresses: &[Address], at: &BlockRef) -> Result<Vec<AccountState>, EvmError> {
    let mut accounts = Vec::with_capacity(addresses.len());
    for some in addresses.chunks(PROOFS_MAX) {
        let plain: Vec<Plain> = some.iter().map(|address| plain(endpoint, address)).collect::<Result<_, _>>()?;
        // EIP-1898: by number, a node on another branch would answer for its own block.
        let (root, mut answers) = ask(endpoint, &plain, at, &by_hash(at)).await?;
        let by_number = answers.iter().any(Result::is_err);
        if by_number {
            // Some nodes find a block here by number only. The root decides.
            answers = ask(endpoint, &plain, at, &json!(format!("{:#x}", at.number))).await?.1;
        }
        for (address, answer) in plain.iter().zip(answers) {
            let answer = answer.map_err(|error| endpoint.refused(PROOF, &error))?;
            let account: WireAccount<'_> = endpoint.parse(PROOF, &answer)?;
            // An honest node on another branch answers by number for another state; by hash it cannot.
            if by_number && !account.begins_with(root) {
                return Err(endpoint.unusable(PROOF, &format!("the proof is not of block {at}")));
            }
            let proved = account.state_of(address, root);
            accounts.push(proved.ok_or_else(|| failed(endpoint, at, address))?);
        }
    }
    Ok(accounts)
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
    /// What is claimed, when the proof leads to it from `root`.
    fn state_of(&self, address: &Plain, root: B256) -> Option<AccountState> {
        let nodes: Vec<Bytes> = self.account_proof.iter().map(bytes).collect();
        let key = Nibbles::unpack(keccak256(address));
        let claimed = TrieAccount {
            nonce: self.nonce.0,
            balance: self.balance.0,
            storage_root: self.storage_hash,
            code_hash: self.code_hash,
        };
        let proves = |leaf| verify_proof(root, key, leaf, &nodes).is_ok();
        // An address in no leaf owns nothing; nodes disagree about what else to write for such an account.
        let exists = proves(Some(alloy::rlp::encode(claimed)));
        let state = AccountState { balance: self.balance.0, has_code: exists && self.code_hash != KECCAK256_EMPTY };
        (exists || self.balance.0.is_zero() && proves(None)).then_some(state)
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
