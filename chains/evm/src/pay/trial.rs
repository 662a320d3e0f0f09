//! Tries a payment as if the payer made it itself. So it can be tried before anything is signed.
//!
//! Promises: if a token refuses the payment, it is asked again for the reason, so that a paused token does not look
//! like a refused recipient. An answer that says nothing about the payment is an error. Nothing here is evidence: a
//! moment later the same payment may succeed.

use landfall_chain::{Address, AssetId, Intent, U256, Unpayable};
use landfall_rpc::{Answer, Call};
use serde_json::json;

use crate::dialect::Endpoint;
use crate::error::EvmError;
use crate::hex::{Data, Quantity};
use crate::holdings::{CALL, is_of_the_contract};
use crate::pay::asking::{ESTIMATE, call_of, is_refused};
use crate::pay::metamask::Execution;
use crate::pay::{PayError, address_word, contract, evm, number_word};

/// A payment of native currency to its recipient may take so much gas, if nothing else is configured. To a new account it
/// may take 204,600 when Glamsterdam is there (EIP-2780); a wallet with code takes less than 60,000 today.
pub(crate) const RECIPIENT_GAS_MAX: u64 = 300_000;

/// `paused()`, and `isBlacklisted(address)` of FiatToken; `balanceOf(address)` of all tokens.
const PAUSED: [u8; 4] = [0x5c, 0x97, 0x5a, 0xbb];
const IS_BLACKLISTED: [u8; 4] = [0xfe, 0x57, 0x5a, 0x87];
const BALANCE_OF: [u8; 4] = [0x70, 0xa0, 0x82, 0x31];
/// What nodes say of a payer that owns too little of the native currency.
const POOR: [&str; 2] = ["insufficient funds", "insufficient balance"];

/// Why something cannot be paid now.
pub(super) type Why = (Unpayable, String);

/// The payment, as the payer would make it; a recipient may take so much gas.
pub(super) fn call(intent: &Intent, recipient_gas_max: u64) -> Result<Call, PayError> {
    let Execution { target, value, data } = Execution::of(intent)?;
    let mut tx = json!({ "from": intent.payer.to_string(), "to": Address::Evm(target).to_string() });
    let method = match intent.asset {
        AssetId::Native => {
            tx["value"] = json!(format!("{value:#x}"));
            // Else a recipient that burns gas has nodes search for long.
            tx["gas"] = json!(format!("{recipient_gas_max:#x}"));
            ESTIMATE
        }
        AssetId::Token(_) => {
            tx["data"] = json!(alloy::hex::encode_prefixed(data));
            CALL
        }
    };
    Ok(Call { method, params: json!([tx, "latest"]) })
}

/// Why [`call`] would fail by its answer; `None` where it would not.
pub(super) fn read(
    endpoint: &Endpoint,
    intent: &Intent,
    answer: &Answer,
    recipient_gas_max: u64,
) -> Result<Option<Why>, EvmError> {
    let to = intent.destination;
    match (intent.asset, answer) {
        (AssetId::Native, Ok(answer)) => {
            let Quantity(gas) = endpoint.parse(ESTIMATE, answer)?;
            let why = format!("a payment to {to} takes {gas} gas, and may take {recipient_gas_max}");
            Ok((gas > recipient_gas_max).then_some((Unpayable::Destination, why)))
        }
        (AssetId::Native, Err(error))
            if !is_of_the_contract(error) && POOR.iter().any(|words| error.message.to_lowercase().contains(words)) =>
        {
            Ok(Some((Unpayable::Funds, endpoint.clean(&error.message))))
        }
        (AssetId::Native, Err(error)) if error.message.contains("gas required exceeds allowance") => {
            let why = format!("a payment to {to} takes more than the {recipient_gas_max} gas that it may take");
            Ok(Some((Unpayable::Destination, why)))
        }
        (AssetId::Native, Err(error)) if is_refused(error) => {
            Ok(Some((Unpayable::Destination, format!("{to} does not take it: {}", endpoint.clean(&error.message)))))
        }
        (AssetId::Native, Err(error)) => Err(endpoint.refused(ESTIMATE, error)),
        (AssetId::Token(_), Ok(answer)) => {
            let data: Data<'_> = endpoint.parse(CALL, answer)?;
            let is_false = data.to_array::<32>().is_some_and(|word| word == number_word(0));
            Ok(is_false.then(|| (Unpayable::Refused, "the token answers false".to_owned())))
        }
        (AssetId::Token(_), Err(error)) if is_of_the_contract(error) => {
            Ok(Some((Unpayable::Refused, endpoint.clean(&error.message))))
        }
        (AssetId::Token(_), Err(error)) => Err(endpoint.refused(CALL, error)),
    }
}

/// What a token that refuses a payment is asked: whether it is paused, refuses recipient or payer, and what the payer has.
pub(super) fn questions(intent: &Intent) -> Result<[Call; 4], PayError> {
    let token = contract(&intent.asset)?;
    let of = |selector: [u8; 4], address: Option<[u8; 20]>| {
        let word = address.map(address_word).unwrap_or_default();
        let data = [&selector[..], if address.is_some() { &word[..] } else { &[] }].concat();
        call_of(&token, &data, json!("latest"))
    };
    let (payer, recipient) = (evm(&intent.payer)?, evm(&intent.destination)?);
    Ok([
        of(PAUSED, None),
        of(IS_BLACKLISTED, Some(recipient)),
        of(IS_BLACKLISTED, Some(payer)),
        of(BALANCE_OF, Some(payer)),
    ])
}

/// What the answers say; `None` where they say nothing against the payment. A token need not know what it is asked.
pub(super) fn reason(endpoint: &Endpoint, intent: &Intent, answers: &[Answer]) -> Option<Why> {
    let word = |answer: &Answer| {
        let answer = answer.as_ref().ok()?;
        endpoint.parse::<Data<'_>>(CALL, answer).ok()?.to_array::<32>()
    };
    let is_true = |at: usize| answers.get(at).and_then(word) == Some(number_word(1));
    let Intent { payer, destination, amount, .. } = intent;
    if is_true(0) {
        return Some((Unpayable::Paused, "its owner stopped all payments".to_owned()));
    }
    if is_true(1) {
        return Some((Unpayable::Destination, format!("the token has {destination} on its blacklist")));
    }
    if is_true(2) {
        return Some((Unpayable::Destination, format!("the token has the paying address {payer} on its blacklist")));
    }
    let held = U256::from_be_bytes(answers.get(3).and_then(word)?);
    let why = format!("{payer} has {held} base units of the token, and {amount} are to be paid");
    (held < *amount).then_some((Unpayable::Funds, why))
}

#[cfg(test)]
mod tests {
    use alloy::primitives::keccak256;

    use super::*;

    #[test]
    fn the_selectors_are_those_of_the_functions() {
        let functions =
            [("paused()", PAUSED), ("isBlacklisted(address)", IS_BLACKLISTED), ("balanceOf(address)", BALANCE_OF)];
        for (function, selector) in functions {
            assert_eq!(keccak256(function)[..4], selector, "{function}");
        }
    }
}
