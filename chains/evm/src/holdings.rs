//! What addresses hold at a block: of the native currency and of tokens, as nodes tell it.
//!
//! Promises: the block is asked for by hash (EIP-1898), so a node on another branch has no answer and gives none; an amount
//! is 32 bytes and never an empty answer. That nobody holds a token which is not there yet takes another question: whether
//! its contract has code in that block. As many endpoints as must agree tell each asset of each address alike, or that is not
//! told; a token whose contract reverts, or tells no amount, keeps no other from being told. What an endpoint does not tell,
//! for want of the state mostly, says nothing of how it serves all else.

use std::collections::BTreeSet;

use landfall_chain::{Address, AssetId, BlockRef, Holdings, Proof, ToldHolding, U256, told_alike};
use landfall_rpc::{Answer, Call, Need, NodeError};
use serde_json::{Value, json};

use crate::dialect::{Endpoint, Pool};
use crate::error::EvmError;
use crate::hex::{Amount, Data};

pub(crate) const BALANCE: &str = "eth_getBalance";
const CALL: &str = "eth_call";
pub(crate) const CODE: &str = "eth_getCode";
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
    let believed = |told: &[(&Endpoint, Amounts)]| {
        let told: Vec<_> = told.iter().map(|(_, amounts)| amounts.clone()).collect();
        told_alike(&told, (addresses.len(), assets.len()), agree)
    };
    let calls = &calls[..];
    let read = |endpoint| -> BoxRead<'_> {
        Box::pin(async move {
            let told = of_endpoint(endpoint, assets, calls, at).await;
            told.map_err(|error| endpoint.lacks(format!("does not tell what addresses hold at block {at}: {error}")))
        })
    };
    let enough = |told: &[_]| believed(told).iter().flatten().all(Option::is_some);
    let heard = pool.call_each(need, Vec::new(), read, enough).await?;
    if heard.told.len() < agree {
        let names: Vec<&str> = heard.told.iter().map(|(endpoint, _)| endpoint.id.as_str()).collect();
        let (endpoint, missing) = (names.join(" and "), heard.missing.join("; "));
        return Err(EvmError::HoldingsUntold { chain: pool.chain(), block: *at, agree, endpoint, missing });
    }
    let proof = if agree > 1 { Proof::TwoEndpoints } else { Proof::OneEndpoint };
    Ok(Holdings { proof, amounts: believed(&heard.told) })
}

/// What one endpoint tells, address by address.
type Amounts = Vec<Vec<Option<ToldHolding>>>;
type BoxRead<'a> = futures_util::future::BoxFuture<'a, Result<Amounts, EvmError>>;

/// What a token's contract answers.
enum Balance {
    Of(U256),
    /// Nothing at all, as an address without code does.
    Nothing,
    /// No amount: that is between it and those who listed it.
    Untold,
}

/// What is asked: address by address, each asset in turn.
fn calls(pool: &Pool, addresses: &[Address], assets: &[AssetId], at: &BlockRef) -> Result<Vec<Call>, EvmError> {
    let foreign = |address: &Address| EvmError::Foreign { chain: pool.chain(), what: format!("address {address}") };
    let block = by_hash(at);
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

/// A block as a parameter: by number, a node on another branch would answer for its own (EIP-1898).
pub(crate) fn by_hash(at: &BlockRef) -> Value {
    json!({ "blockHash": at.hash.to_string() })
}

async fn of_endpoint(
    endpoint: &Endpoint,
    assets: &[AssetId],
    calls: &[Call],
    at: &BlockRef,
) -> Result<Amounts, EvmError> {
    let answers = endpoint.ask_aside(calls).await?;
    if answers.len() != calls.len() {
        return Err(endpoint.unusable(CALL, &format!("{} answers to {} calls", answers.len(), calls.len())));
    }
    let told = answers.iter().zip(calls).map(|(answer, call)| balance(endpoint, call.method, answer));
    let told = told.collect::<Result<Vec<Balance>, _>>()?;
    let of_assets = || told.iter().zip(assets.iter().cycle());
    let silent = of_assets().filter(|(told, _)| matches!(told, Balance::Nothing)).map(|(_, asset)| *asset);
    let absent = absent(endpoint, silent.collect(), at).await?;
    let amounts = of_assets().map(|(told, asset)| match told {
        Balance::Of(amount) => Some(*amount),
        Balance::Nothing => absent.contains(asset).then_some(U256::ZERO),
        Balance::Untold => None,
    });
    let number = at.number;
    let amounts: Vec<_> = amounts.map(|amount| Some(ToldHolding { amount: amount?, number })).collect();
    Ok(amounts.chunks(assets.len().max(1)).map(<[_]>::to_vec).collect())
}

fn balance(endpoint: &Endpoint, method: &'static str, answer: &Answer) -> Result<Balance, EvmError> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if method == CALL && is_of_the_contract(error) => return Ok(Balance::Untold),
        Err(error) => return Err(endpoint.refused(method, error)),
    };
    if method == BALANCE {
        let Amount(amount) = endpoint.parse(method, answer)?;
        return Ok(Balance::Of(amount));
    }
    let data: Data<'_> = endpoint.parse(method, answer)?;
    if data.len() == 0 {
        return Ok(Balance::Nothing);
    }
    Ok(data.to_array::<32>().map_or(Balance::Untold, |word| Balance::Of(U256::from_be_bytes(word))))
}

/// Whether the call was run and failed: what another call finds there is not touched by it. Geth answers 3 with what the
/// contract said, and its own words otherwise (core/vm/errors.go); others -32015 (Nethermind's `ErrorCodes.ExecutionError`).
fn is_of_the_contract(error: &NodeError) -> bool {
    const WORDS: [&str; 5] = ["revert", "invalid opcode", "invalid jump", "out of gas", "stack "];
    let said = error.message.to_lowercase();
    error.limit.is_none() && (matches!(error.code, 3 | -32_015) || WORDS.iter().any(|word| said.contains(word)))
}

/// Those of `tokens` that have no code in the block: nobody can hold any of them.
async fn absent(endpoint: &Endpoint, tokens: BTreeSet<AssetId>, at: &BlockRef) -> Result<BTreeSet<AssetId>, EvmError> {
    let calls: Vec<Call> =
        tokens.iter().map(|token| Call { method: CODE, params: json!([token.to_string(), by_hash(at)]) }).collect();
    if calls.is_empty() {
        return Ok(tokens);
    }
    let answers = endpoint.ask_aside(&calls).await?;
    if answers.len() != calls.len() {
        return Err(endpoint.unusable(CODE, &format!("{} answers to {} calls", answers.len(), calls.len())));
    }
    let mut absent = BTreeSet::new();
    for (answer, token) in answers.iter().zip(tokens) {
        let answer = answer.as_ref().map_err(|error| endpoint.refused(CODE, error))?;
        let code: Data<'_> = endpoint.parse(CODE, answer)?;
        if code.len() == 0 {
            absent.insert(token);
        }
    }
    Ok(absent)
}
