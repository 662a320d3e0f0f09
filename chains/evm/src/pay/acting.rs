//! What endpoints are asked about delegates: whether their code is the listed one, and which of them acts for a wallet.

use alloy::primitives::B256;
use landfall_chain::{Acting, Address, Authorization, BlockRef, Delegate, Intent, Readiness};
use landfall_rpc::{Answer, Call};
use serde::Deserialize;
use serde_json::json;

use crate::dialect::{Endpoint, Pool};
use crate::error::EvmError;
use crate::headers::BY_NUMBER;
use crate::hex::{Data, Quantity};
use crate::holdings::{CALL, CODE, by_hash};
use crate::networks::genesis;
use crate::pay::asking::{
    ESTIMATE, NONCE, agreed, call_of, check_chain, code, code_of, given, nonce_of, of_one, tried_as, wrong,
};
use crate::pay::delegate::{self, designator};
use crate::pay::{evm, number_word, trial};

/// What is read of block 0.
#[derive(Deserialize)]
struct First {
    hash: B256,
}

/// Whether the delegate's contracts are the listed ones, are not paused, and may act for the payer.
pub(super) async fn delegate_readiness(
    pool: &Pool,
    delegates: &[Delegate],
    (delegate, intent): (&Delegate, &Intent),
    gas_max: u64,
) -> Result<Readiness, EvmError> {
    let codes = delegate::codes(delegate).map_err(wrong(pool))?;
    let paused = delegate::paused(delegate).map_err(wrong(pool))?;
    let is_private = delegate::is_for_private_chains(delegate);
    let tried = trial::call(intent, gas_max).map_err(wrong(pool))?;
    let mut calls = vec![code_of(&intent.payer), tried];
    calls.extend(codes.iter().map(|code| code_of(&Address::Evm(code.address))));
    calls.extend(paused.iter().map(|(manager, data)| call_of(manager, data, json!("latest"))));
    calls.extend(is_private.then(|| Call { method: BY_NUMBER, params: json!(["0x0", false]) }));
    of_one(pool, &[CALL, CODE, ESTIMATE], &calls, |endpoint, answers| {
        let (of_codes, others) = answers[2..].split_at(codes.len());
        for (expected, answer) in codes.iter().zip(of_codes) {
            if let Some(defect) = expected.defect(&code(endpoint, answer)?) {
                let (name, address) = (expected.name, Address::Evm(expected.address));
                return Ok(Readiness::NotReady(format!("{name} {address} of the delegate {defect}")));
            }
        }
        if is_private && others.last().is_none_or(|first| is_public(endpoint, first)) {
            let name = delegate.name();
            let what = format!("delegate {name} is for private chains, and block 0 is not known to be of one");
            return Ok(Readiness::NotReady(what));
        }
        let code = code(endpoint, &answers[0])?;
        if !code.is_empty() && !is_listed(delegates, &code) {
            return Ok(Readiness::NotReady(strange(intent)));
        }
        let Some((manager, _)) = paused else { return tried_as(endpoint, intent, &answers[1], gas_max) };
        let word: Data<'_> = endpoint.parse(CALL, given(endpoint, CALL, &others[0])?)?;
        Ok(match word.to_array::<32>() {
            Some(word) if word == number_word(0) => tried_as(endpoint, intent, &answers[1], gas_max)?,
            Some(_) => Readiness::NotReady(format!("manager {} of the delegate is paused", Address::Evm(manager))),
            None => return Err(endpoint.unusable(CALL, "paused() has no answer")),
        })
    })
    .await
}

/// Whether block 0 is, or may be, the public network's.
fn is_public(endpoint: &Endpoint, first: &Answer) -> bool {
    let hash = given(endpoint, BY_NUMBER, first).and_then(|first| endpoint.parse::<First>(BY_NUMBER, first));
    !hash.is_ok_and(|first| Some(first.hash) != genesis(endpoint.chain))
}

pub(super) async fn acting(
    pool: &Pool,
    delegates: &[Delegate],
    (delegate, intent): (&Delegate, &Intent),
) -> Result<Acting, EvmError> {
    check_chain(pool, &intent.chain_ref)?;
    let calls = [code_of(&intent.payer), nonce_of(&intent.payer)];
    of_one(pool, &[CODE, NONCE], &calls, |endpoint, answers| {
        let code = code(endpoint, &answers[0])?;
        if acts_for(delegate, &code) {
            return Ok(Acting::Already);
        }
        if !code.is_empty() && !is_listed(delegates, &code) {
            return Ok(Acting::Never(strange(intent)));
        }
        let Quantity(nonce) = endpoint.parse(NONCE, given(endpoint, NONCE, &answers[1])?)?;
        Ok(Acting::With(Authorization {
            chain_ref: intent.chain_ref.clone(),
            wallet: intent.payer,
            implementation: delegate.implementation(),
            nonce,
        }))
    })
    .await
}

/// The next nonce of a wallet that has a listed delegate.
pub(super) async fn delegated(pool: &Pool, delegates: &[Delegate], wallet: &Address) -> Result<Option<u64>, EvmError> {
    evm(wallet).map_err(wrong(pool))?;
    let calls = [code_of(wallet), nonce_of(wallet)];
    of_one(pool, &[CODE, NONCE], &calls, |endpoint, answers| {
        let code = code(endpoint, &answers[0])?;
        let Quantity(nonce) = endpoint.parse(NONCE, given(endpoint, NONCE, &answers[1])?)?;
        Ok(is_listed(delegates, &code).then_some(nonce))
    })
    .await
}

pub(super) async fn is_delegated(
    pool: &Pool,
    delegates: &[Delegate],
    wallet: &Address,
    at: &BlockRef,
) -> Result<bool, EvmError> {
    evm(wallet).map_err(wrong(pool))?;
    let call = Call { method: CODE, params: json!([wallet.to_string(), by_hash(at)]) };
    agreed(pool, at, ("what acts for a wallet", &[CODE], &call), |endpoint, answer| {
        let data: Data<'_> = endpoint.parse(CODE, answer)?;
        let mut code = Vec::new();
        data.append_to(&mut code);
        Ok(is_listed(delegates, &code))
    })
    .await
}

fn strange(intent: &Intent) -> String {
    format!("payer {} has code that is no listed delegate's", intent.payer)
}

pub(super) fn is_listed(delegates: &[Delegate], code: &[u8]) -> bool {
    delegates.iter().any(|delegate| acts_for(delegate, code))
}

fn acts_for(delegate: &Delegate, code: &[u8]) -> bool {
    evm(&delegate.implementation()).is_ok_and(|implementation| code == designator(&implementation))
}
