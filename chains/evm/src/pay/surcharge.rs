//! What the OP stack takes of a sender on top of gas: for the transaction's bytes on the L1, and for the operator.
//!
//! Promise: it is what the chain's own `GasPriceOracle` reports, never a figure of ours. A chain of the OP stack whose oracle
//! does not answer has no surcharge of nothing: then it is an error, and nothing is carried.

use futures_util::future::BoxFuture;
use landfall_chain::{Address, Carried, Carrier, U256};
use landfall_rpc::{Answer, Call, Need};
use serde_json::json;

use crate::dialect::{Endpoint, Pool};
use crate::error::EvmError;
use crate::hex::Data;
use crate::holdings::CALL;
use crate::networks::stack;
use crate::pay::asking::{answers, call_of, given};
use crate::pay::{PayError, carrier, number_word};
use crate::stack::Stack;

/// The predeploy (optimism, `Predeploys.GAS_PRICE_ORACLE`).
const ORACLE: [u8; 20] = [0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0f];
/// `getL1FeeUpperBound(uint256)`: of a transaction of so many bytes without its signature. Since Fjord.
const L1_FEE: [u8; 4] = [0xf1, 0xc7, 0xa5, 0x8b];
/// `getOperatorFee(uint256)`: of a transaction that uses so much gas. Since Isthmus.
const OPERATOR_FEE: [u8; 4] = [0x27, 0x5a, 0xed, 0xd2];

/// What a usual transaction is, for floors and holds: no less than the first payment of a wallet by a delegate, the dearest
/// that there is. Nothing is limited by it.
const USUAL: Size = Size { bytes: 2_500, gas: 250_000 };

/// What the surcharge of a transaction depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    /// Without its signature.
    bytes: u64,
    /// The most that it may use.
    gas: u64,
}

impl Size {
    /// That of the carrier with this limit, whatever its nonce and its fees will be.
    pub(super) fn of(sponsor: &Address, carried: &Carried, gas: u64) -> Result<Self, PayError> {
        let (nonce, max_fee, tip) = (u64::MAX, u128::MAX, u128::MAX);
        let longest = Carrier { sponsor: *sponsor, carried: carried.clone(), nonce, gas_limit: gas, max_fee, tip };
        Ok(Size { bytes: carrier(&longest)?.unsigned_bytes(), gas })
    }
}

/// What a usual transaction is surcharged now.
pub(super) async fn usual(pool: &Pool) -> Result<U256, EvmError> {
    of_size(pool, USUAL).await
}

/// What a transaction of this size is surcharged now; nothing where the network is no OP stack.
pub(super) async fn of_size(pool: &Pool, size: Size) -> Result<U256, EvmError> {
    match stack(pool.chain()) {
        Stack::Ethereum | Stack::Polygon => return Ok(U256::ZERO),
        Stack::Op => {}
    }
    let calls = calls(size);
    let ask = |endpoint| -> BoxFuture<'_, Result<U256, EvmError>> {
        let calls = &calls;
        Box::pin(async move {
            let reported = answers(endpoint, calls).await.and_then(|answers| sum(endpoint, &answers));
            reported.map_err(|error| endpoint.lacks(format!("does not report what the OP stack takes: {error}")))
        })
    };
    pool.call(Need { methods: &[CALL], ..Need::default() }, ask).await
}

fn calls(size: Size) -> [Call; 2] {
    let call = |selector: [u8; 4], number| {
        let mut data = selector.to_vec();
        data.extend(number_word(number));
        call_of(&ORACLE, &data, json!("latest"))
    };
    [call(L1_FEE, size.bytes), call(OPERATOR_FEE, size.gas)]
}

fn sum(endpoint: &Endpoint, answers: &[Answer]) -> Result<U256, EvmError> {
    let mut sum = U256::ZERO;
    for answer in answers {
        let word: Data<'_> = endpoint.parse(CALL, given(endpoint, CALL, answer)?)?;
        let fee = word.to_array::<32>().map(U256::from_be_bytes);
        let fee = fee.ok_or_else(|| endpoint.unusable(CALL, "the oracle of gas prices reports no fee"))?;
        sum = sum.saturating_add(fee);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use alloy::primitives::keccak256;

    use super::*;

    #[test]
    fn the_selectors_are_those_of_the_functions_and_the_oracle_is_the_predeploy() {
        for (function, selector) in [("getL1FeeUpperBound(uint256)", L1_FEE), ("getOperatorFee(uint256)", OPERATOR_FEE)]
        {
            assert_eq!(keccak256(function)[..4], selector, "{function}");
        }
        assert_eq!(alloy::hex::encode(ORACLE), "420000000000000000000000000000000000000f");
        let [l1, operator] = calls(Size { bytes: 0x101, gas: 0x0203 }).map(|call| call.params);
        let data = |selector: &str, number: &str| json!(format!("0x{selector}{number:0>64}"));
        assert_eq!((&l1[0]["data"], &l1[1]), (&data("f1c7a58b", "101"), &json!("latest")));
        assert_eq!(operator[0]["data"], data("275aedd2", "203"));
    }
}
