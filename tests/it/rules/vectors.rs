//! The golden vectors: ids and amounts as `tests/vectors/check.py` derives them, in another language.

use landfall::amount::{AmountError, from_decimal, to_decimal};
use landfall::deposit::{DepositStatus, Leg};
use landfall::event::EventId;
use landfall_chain::{Address, AssetId, TxId, U256};
use serde_json::Value;

const IDS: &str = include_str!("../../vectors/ids.json");
const AMOUNTS: &str = include_str!("../../vectors/amounts.json");

#[test]
fn ids_are_those_of_the_vectors() {
    let vectors: Value = serde_json::from_str(IDS).unwrap();
    let vectors = vectors["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 8);
    for vector in vectors {
        let leg = &vector["leg"];
        let hash = Leg {
            chain_ref: text(&leg["chain_ref"]),
            tx: TxId::from_bytes(&bytes(&leg["tx_id"])).unwrap(),
            asset: AssetId::from_bytes(&bytes(&leg["asset"])).unwrap(),
            recipient: Address::from_bytes(&bytes(&leg["recipient"])).unwrap(),
            amount: integer(&leg["raw_amount"]),
            nth: u32::try_from(leg["nth"].as_u64().unwrap()).unwrap(),
        }
        .hash();
        assert_eq!(hash.0.to_vec(), bytes(&vector["leg_hash"]));
        assert_eq!(hash.deposit_id().to_string(), text(&vector["id"]));
        assert_eq!(EventId::dedup_key(&hash).to_string(), text(&vector["dedup_key"]));
        let events = vector["events"].as_object().unwrap();
        assert_eq!(events.len(), 5);
        for (name, id) in events {
            let (status, entry) = name.split_once('/').unwrap();
            let status: DepositStatus = status.parse().unwrap();
            assert_eq!(EventId::of(&hash, status, entry.parse().unwrap()).to_string(), text(id), "{name}");
        }
    }
}

#[test]
fn the_vector_of_the_design_holds() {
    let leg = Leg {
        chain_ref: "eip155:84532",
        tx: TxId::Evm([0x11; 32]),
        asset: AssetId::Native,
        recipient: Address::Evm([0x22; 20]),
        amount: U256::from(1),
        nth: 0,
    };
    let hash = leg.hash();
    assert_eq!(hash.deposit_id().to_string(), "615684f4-6776-8c35-b3dd-17080e18a784");
    assert_eq!(EventId::dedup_key(&hash).to_string(), "f9150424-d6f3-8e22-ac0d-cdfe936706b1");
    let confirmed = EventId::of(&hash, DepositStatus::Confirmed, 0);
    assert_eq!(confirmed.to_string(), "26b318bd-5003-875a-9a17-a4b5dd8efc27");
}

#[test]
fn amounts_are_those_of_the_vectors_both_ways() {
    let vectors: Value = serde_json::from_str(AMOUNTS).unwrap();
    for vector in vectors["vectors"].as_array().unwrap() {
        let (base_units, decimals, decimal) =
            (integer(&vector["base_units"]), decimals(vector), text(&vector["decimal"]));
        assert_eq!(to_decimal(base_units, decimals), decimal);
        assert_eq!(from_decimal(decimal, decimals), Ok(base_units), "{decimal} with {decimals}");
    }
    for vector in vectors["accepted"].as_array().unwrap() {
        let decimal = text(&vector["decimal"]);
        assert_eq!(from_decimal(decimal, decimals(vector)), Ok(integer(&vector["base_units"])), "{decimal}");
    }
}

#[test]
fn bad_amounts_are_refused_for_the_reason_in_the_vectors() {
    let vectors: Value = serde_json::from_str(AMOUNTS).unwrap();
    for vector in vectors["refused"].as_array().unwrap() {
        let reason = match from_decimal(text(&vector["decimal"]), decimals(vector)).unwrap_err() {
            AmountError::Malformed(_) => "malformed",
            AmountError::TooPrecise { .. } => "too precise",
            AmountError::TooLarge(_) => "too large",
        };
        assert_eq!(reason, text(&vector["error"]), "{vector}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(text(value)).unwrap()
}

fn integer(value: &Value) -> U256 {
    U256::from_str_radix(text(value), 10).unwrap()
}

fn decimals(vector: &Value) -> u8 {
    u8::try_from(vector["decimals"].as_u64().unwrap()).unwrap()
}
