//! What addresses hold at a block: of the native currency and of tokens, as nodes report it.
//!
//! Promises: the block is asked for by hash (EIP-1898), so a node on another branch does not answer for its own. An
//! amount is 32 bytes; an empty answer, as of an address without code, is none. An asset of an address is reported
//! only if as many endpoints as must agree report it alike. A token whose contract reverts, is not there, or returns
//! no amount does not keep the others from being reported. An endpoint that does not report something, mostly because
//! it does not keep that state, stays as healthy as before.

use landfall_chain::{Address, AssetId, BlockRef, Holdings, Proof, ReportedHolding, U256, holdings_reported_alike};
use landfall_rpc::{Answer, Call, Need, NodeError};
use serde_json::{Value, json};

use crate::dialect::{Endpoint, Pool};
use crate::error::EvmError;
use crate::hex::{Amount, Data};

pub(crate) const BALANCE: &str = "eth_getBalance";
pub(crate) const CALL: &str = "eth_call";
pub(crate) const CODE: &str = "eth_getCode";
/// `balanceOf(address)`, and the bytes before an address in a word.
const BALANCE_OF: &str = "0x70a08231000000000000000000000000";

/// In the order of `addresses`, and in that of `assets` for each.
pub(crate) async fn holdings(
    pool: &Pool,
    addresses: &[Address],
    assets: &[AssetId],
    at: &BlockRef,
) -> Result<Holdings, EvmError> {
    let calls = calls(pool, addresses, assets, at)?;
    let need = Need { first: at.number, last: at.number, methods: &[BALANCE, CALL] };
    let agree = pool.must_agree();
    let believed = |reported: &[(&Endpoint, Amounts)]| {
        let reported: Vec<_> = reported.iter().map(|(_, amounts)| amounts.clone()).collect();
        holdings_reported_alike(&reported, (addresses.len(), assets.len()), agree)
    };
    let calls = &calls[..];
    let read = |endpoint| -> BoxRead<'_> {
        Box::pin(async move {
            let reported = of_endpoint(endpoint, assets, calls, at).await;
            reported
                .map_err(|error| endpoint.lacks(format!("does not tell what addresses hold at block {at}: {error}")))
        })
    };
    let enough = |reported: &[_]| believed(reported).iter().flatten().all(Option::is_some);
    let responses = pool.call_each(need, Vec::new(), read, enough).await?;
    if responses.reported.len() < agree {
        let names: Vec<&str> = responses.reported.iter().map(|(endpoint, _)| endpoint.id.as_str()).collect();
        let (endpoint, missing) = (names.join(" and "), responses.missing.join("; "));
        return Err(EvmError::HoldingsUnreported { chain: pool.chain(), block: *at, agree, endpoint, missing });
    }
    let proof = if agree > 1 { Proof::TwoEndpoints } else { Proof::OneEndpoint };
    Ok(Holdings { proof, amounts: believed(&responses.reported) })
}

/// What one endpoint reports, address by address.
type Amounts = Vec<Vec<Option<ReportedHolding>>>;
type BoxRead<'a> = futures_util::future::BoxFuture<'a, Result<Amounts, EvmError>>;

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

/// A block as a parameter, by its hash: by number, a node on another branch would answer for its own (EIP-1898).
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
    let reported = answers.iter().zip(calls).map(|(answer, call)| balance(endpoint, call.method, answer));
    let reported = reported.collect::<Result<Vec<Option<U256>>, _>>()?;
    let number = at.number;
    let amounts: Vec<_> =
        reported.into_iter().map(|amount| Some(ReportedHolding { amount: amount?, number })).collect();
    Ok(amounts.chunks(assets.len().max(1)).map(<[_]>::to_vec).collect())
}

/// `None` where a token's contract reports no amount: that concerns only those who listed it.
fn balance(endpoint: &Endpoint, method: &'static str, answer: &Answer) -> Result<Option<U256>, EvmError> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if method == CALL && is_of_the_contract(error) => return Ok(None),
        Err(error) => return Err(endpoint.refused(method, error)),
    };
    if method == BALANCE {
        let Amount(amount) = endpoint.parse(method, answer)?;
        return Ok(Some(amount));
    }
    let data: Data<'_> = endpoint.parse(method, answer)?;
    Ok(data.to_array::<32>().map(U256::from_be_bytes))
}

/// Whether the call was run and failed: other calls at that node still work. Geth answers 3 with the contract's
/// message, and otherwise its own (core/vm/errors.go); others -32015 (Nethermind's `ErrorCodes.ExecutionError`).
pub(crate) fn is_of_the_contract(error: &NodeError) -> bool {
    const WORDS: [&str; 5] = ["revert", "invalid opcode", "invalid jump", "out of gas", "stack "];
    let said = error.message.to_lowercase();
    error.limit.is_none() && (matches!(error.code, 3 | -32_015) || WORDS.iter().any(|word| said.contains(word)))
}
