//! What a listed token's contract is, as nodes report it: whether it has code, and how many decimals it says.
//!
//! Promises: as many endpoints as must agree report the same. They are asked aside, for their newest state, which
//! every node keeps; the response of one that is below what is final on our record does not count. A contract without
//! code is reported as that. A contract that reverts, or answers anything but one word, says nothing of its decimals:
//! `decimals()` is optional in ERC-20. Deliberately not here: what follows from it.

use futures_util::future::BoxFuture;
use landfall_chain::{Address, AssetFacts, AssetId, Terms, U256, reported_alike};
use landfall_rpc::{Call, Need};
use serde_json::json;

use crate::dialect::{Endpoint, Pool};
use crate::error::EvmError;
use crate::hex::{Data, Quantity};
use crate::holdings::{CALL, CODE, is_of_the_contract};

const NUMBER: &str = "eth_blockNumber";
/// `decimals()`.
const DECIMALS: &str = "0x313ce567";
/// What keeps a token.
const CONTRACT: &str = "contract";

/// What `asset` is, when as many endpoints as must agree report it alike; `None` for the native currency.
pub(crate) async fn facts(pool: &Pool, asset: &AssetId, reached: u64) -> Result<Option<AssetFacts>, EvmError> {
    let (chain, agree) = (pool.chain(), pool.must_agree());
    let contract = match asset {
        AssetId::Native => return Ok(None),
        AssetId::Token(contract @ Address::Evm(_)) => contract,
        AssetId::Token(other @ Address::Solana(_)) => {
            return Err(EvmError::Foreign { chain, what: format!("address {other}") });
        }
    };
    let agreed = |reported: &[(&Endpoint, AssetFacts)]| {
        let reported: Vec<AssetFacts> = reported.iter().map(|(_, facts)| facts.clone()).collect();
        reported_alike(&reported, agree).cloned()
    };
    let read = |endpoint| -> BoxFuture<'_, Result<AssetFacts, EvmError>> {
        Box::pin(async move {
            let facts = facts_of(endpoint, contract, reached).await;
            facts.map_err(|error| endpoint.lacks(format!("does not report what contract {contract} is: {error}")))
        })
    };
    let need = Need { first: reached, last: reached, methods: &[CODE, CALL] };
    let responses = pool.call_each(need, Vec::new(), read, |reported| agreed(reported).is_some()).await?;
    let facts = agreed(&responses.reported).ok_or_else(|| {
        let names: Vec<&str> = responses.reported.iter().map(|(endpoint, _)| endpoint.id.as_str()).collect();
        let (endpoints, missing) = (names.join(" and "), responses.missing.join("; "));
        EvmError::ContractUnreported { chain, contract: *contract, agree, endpoints, missing }
    })?;
    Ok(Some(facts))
}

async fn facts_of(endpoint: &Endpoint, contract: &Address, reached: u64) -> Result<AssetFacts, EvmError> {
    let at = contract.to_string();
    let calls = [
        Call { method: NUMBER, params: json!([]) },
        Call { method: CODE, params: json!([at, "latest"]) },
        Call { method: CALL, params: json!([{ "to": at, "data": DECIMALS }, "latest"]) },
    ];
    let answers = endpoint.ask_aside(&calls).await?;
    let [number, code, decimals] = &answers[..] else {
        return Err(endpoint.unusable(CODE, &format!("{} answers to {} calls", answers.len(), calls.len())));
    };
    let number = number.as_ref().map_err(|error| endpoint.refused(NUMBER, error))?;
    let Quantity(number) = endpoint.parse(NUMBER, number)?;
    if number < reached {
        return Err(endpoint.lacks(format!("is at block {number}, which is behind")));
    }
    let code = code.as_ref().map_err(|error| endpoint.refused(CODE, error))?;
    let code: Data<'_> = endpoint.parse(CODE, code)?;
    let listed_programs = vec![CONTRACT.to_owned()];
    if code.len() == 0 {
        return Ok(AssetFacts { program: None, listed_programs, terms: None });
    }
    let decimals = match decimals {
        Ok(answer) => decimals_in(&endpoint.parse(CALL, answer)?),
        Err(error) if is_of_the_contract(error) => None,
        Err(error) => return Err(endpoint.refused(CALL, error)),
    };
    Ok(AssetFacts { program: Some(CONTRACT.to_owned()), listed_programs, terms: decimals.map(terms) })
}

/// The word that it answered. A number that is no `uint8` becomes the greatest one, which no token is listed with.
fn decimals_in(answer: &Data<'_>) -> Option<u8> {
    let decimals = U256::from_be_bytes(answer.to_array::<32>()?);
    Some(u8::try_from(decimals).unwrap_or(u8::MAX))
}

fn terms(decimals: u8) -> Terms {
    let (extensions, risks) = (Vec::new(), Vec::new());
    Terms { decimals, freeze_authority: None, permanent_delegate: None, transfer_fee: None, extensions, risks }
}
