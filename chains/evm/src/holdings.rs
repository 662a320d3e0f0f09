//! What addresses hold at a block: of the native currency and of tokens, as nodes tell it.
//!
//! Promises: the block is asked for by hash (EIP-1898), so a node on another branch has no answer and gives none; an amount
//! is 32 bytes and never an empty answer. That nobody holds a token which is not there yet takes another question: whether
//! its contract has code in that block. As many endpoints as must agree tell each address alike, or it is not told. What an
//! endpoint does not tell, for want of the state mostly, says nothing of how it serves all else.

use std::collections::BTreeSet;

use landfall_chain::{Address, AssetId, BlockRef, Holdings, Proof, U256, told_alike};
use landfall_rpc::{Answer, Call, Need};
use serde_json::{Value, json};

use crate::dialect::{Endpoint, Pool};
use crate::error::EvmError;
use crate::hex::{Amount, Data};

const BALANCE: &str = "eth_getBalance";
const CALL: &str = "eth_call";
const CODE: &str = "eth_getCode";
/// `balanceOf(address)`, and the bytes before an address in a word.
const BALANCE_OF: &str = "0x70a08231000000000000000000000000";

/// In the order of `addresses`, of `assets` each.
pub(crate) async fn holdings(
    pool: &Pool,
    addresses: &[Address],
    assets: &[AssetId],
    at: &BlockRef,
) -> Result<Holdings, EvmError> {
    let calls = calls(pool, addresses, assets, at)?;
    let need = Need { first: at.number, last: at.number, methods: &[BALANCE, CALL] };
    let agree = pool.must_agree();
    let believed = |told: &[(&Endpoint, Vec<Vec<U256>>)]| {
        let told: Vec<_> = told.iter().map(|(_, amounts)| amounts.clone()).collect();
        told_alike(&told, addresses.len(), agree)
    };
    let calls = &calls[..];
    let read = |endpoint| -> BoxRead<'_> {
        Box::pin(async move {
            let told = of_endpoint(endpoint, assets, calls, at).await;
            told.map_err(|error| endpoint.lacks(format!("does not tell what addresses hold at block {at}: {error}")))
        })
    };
    let enough = |told: &[_]| believed(told).iter().all(Option::is_some);
    let heard = pool.call_each(need, Vec::new(), read, enough).await?;
    if heard.told.len() < agree {
        let names: Vec<&str> = heard.told.iter().map(|(endpoint, _)| endpoint.id.as_str()).collect();
        let (endpoint, missing) = (names.join(" and "), heard.missing.join("; "));
        return Err(EvmError::HoldingsUntold { chain: pool.chain(), block: *at, agree, endpoint, missing });
    }
    let proof = if agree > 1 { Proof::TwoEndpoints } else { Proof::OneEndpoint };
    Ok(Holdings { number: at.number, hash: Some(at.hash), proof, amounts: believed(&heard.told) })
}

type BoxRead<'a> = futures_util::future::BoxFuture<'a, Result<Vec<Vec<U256>>, EvmError>>;

/// What is asked: address by address, each asset in turn.
fn calls(pool: &Pool, addresses: &[Address], assets: &[AssetId], at: &BlockRef) -> Result<Vec<Call>, EvmError> {
    let foreign = |address: &Address| EvmError::Foreign { chain: pool.chain(), what: format!("address {address}") };
    let block = block(at);
    let mut calls = Vec::with_capacity(addresses.len() * assets.len());
    for address in addresses {
        let Address::Evm(_) = address else { return Err(foreign(address)) };
        for asset in assets {
            calls.push(match asset {
                AssetId::Native => Call { method: BALANCE, params: json!([address.to_string(), block]) },
                AssetId::Token(token @ Address::Evm(_)) => {
                    let data = format!("{BALANCE_OF}{}", address.to_string().trim_start_matches("0x").to_lowercase());
                    let call = json!({ "to": token.to_string(), "data": data });
                    Call { method: CALL, params: json!([call, block]) }
                }
                AssetId::Token(other) => return Err(foreign(other)),
            });
        }
    }
    Ok(calls)
}

fn block(at: &BlockRef) -> Value {
    json!({ "blockHash": at.hash.to_string() })
}

async fn of_endpoint(
    endpoint: &Endpoint,
    assets: &[AssetId],
    calls: &[Call],
    at: &BlockRef,
) -> Result<Vec<Vec<U256>>, EvmError> {
    let answers = endpoint.ask_aside(calls).await?;
    if answers.len() != calls.len() {
        return Err(endpoint.unusable(CALL, &format!("{} answers to {} calls", answers.len(), calls.len())));
    }
    let mut amounts = Vec::with_capacity(answers.len());
    let mut absent = BTreeSet::new();
    for ((answer, call), asset) in answers.iter().zip(calls).zip(assets.iter().cycle()) {
        let amount = amount(endpoint, call.method, answer)?;
        if amount.is_none() {
            absent.insert(*asset);
        }
        amounts.push(amount.unwrap_or_default());
    }
    assert_absent(endpoint, absent, at).await?;
    Ok(amounts.chunks(assets.len().max(1)).map(<[U256]>::to_vec).collect())
}

/// What an answer tells; `None` when a call came back with nothing at all, as one to an address without code does.
fn amount(endpoint: &Endpoint, method: &'static str, answer: &Answer) -> Result<Option<U256>, EvmError> {
    let answer = answer.as_ref().map_err(|error| endpoint.refused(method, error))?;
    if method == BALANCE {
        let Amount(amount) = endpoint.parse(method, answer)?;
        return Ok(Some(amount));
    }
    let data: Data<'_> = endpoint.parse(method, answer)?;
    if data.len() == 0 {
        return Ok(None);
    }
    let word = data.to_array::<32>();
    let word = word.ok_or_else(|| endpoint.unusable(method, &format!("balanceOf told {} bytes", data.len())))?;
    Ok(Some(U256::from_be_bytes(word)))
}

/// That none of these tokens has code in the block: nobody can hold any of it.
async fn assert_absent(endpoint: &Endpoint, tokens: BTreeSet<AssetId>, at: &BlockRef) -> Result<(), EvmError> {
    let calls: Vec<Call> =
        tokens.iter().map(|token| Call { method: CODE, params: json!([token.to_string(), block(at)]) }).collect();
    if calls.is_empty() {
        return Ok(());
    }
    let answers = endpoint.ask_aside(&calls).await?;
    if answers.len() != calls.len() {
        return Err(endpoint.unusable(CODE, &format!("{} answers to {} calls", answers.len(), calls.len())));
    }
    for (answer, token) in answers.iter().zip(&tokens) {
        let answer = answer.as_ref().map_err(|error| endpoint.refused(CODE, error))?;
        let code: Data<'_> = endpoint.parse(CODE, answer)?;
        if code.len() > 0 {
            return Err(endpoint.unusable(CALL, &format!("balanceOf told nothing, although {token} has code")));
        }
    }
    Ok(())
}
