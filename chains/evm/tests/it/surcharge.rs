//! What the OP stack takes on top of gas: asked of its oracle for each carrier, and never taken to be nothing.

use alloy::hex;
use landfall_chain::{
    Address, AssetId, Carried, Carrier, Chain, Intent, PayingChain, Quote, Route, SignedIntent, SourceErrorKind, U256,
};
use landfall_evm::{EvmSource, network, pay};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, Ledger, Live, chain_id, led_by_first, mainnet};

const ORACLE: &str = "0x420000000000000000000000000000000000000F";
const SPONSOR: Address = Address::Evm([0x5f; 20]);

fn ledger(chain: Chain) -> Ledger {
    let paying = |number| vec![Tx { nonce: number, value: 1, ..Tx::default() }];
    let blocks = Ledger::of(mint::chain(1, (1..=30).map(paying).collect())).up_to(30, Some(20));
    Ledger { chain_id: chain_id(chain), ..blocks }
}

async fn two(chain: Chain) -> (Live, Live, EvmSource) {
    let (first, second) = (Live::start(ledger(chain)).await, Live::start(ledger(chain)).await);
    let network = if chain == Chain::EthereumMainnet { mainnet() } else { network(chain).unwrap() };
    let source = led_by_first(network, &[&first, &second]).await;
    (first, second, source)
}

fn paid(chain: Chain) -> Carried {
    let intent = Intent {
        transfer_id: [7; 16],
        chain_ref: format!("eip155:{}", chain_id(chain)),
        route: Route::Erc3009 { name: "USD Coin".to_owned(), version: "2".to_owned() },
        asset: AssetId::Token(Address::Evm([0x70; 20])),
        payer: Address::Evm([0xaa; 20]),
        destination: Address::Evm([0xb2; 20]),
        amount: U256::from(5),
        deadline: 1_800_000_000,
    };
    Carried::Payment { signed: SignedIntent { intent, signature: vec![27; 65] }, authorization: None }
}

/// Estimates 100 gas, and answers the two questions of the oracle so.
fn answers(live: &Live, l1: Answer, operator: Answer) {
    live.lie(move |method, params| match method {
        "eth_estimateGas" => Some(Ok(json!("0x64"))),
        "eth_call" if params[0]["to"] == json!(ORACLE) => {
            let data = params[0]["data"].as_str().unwrap().to_owned();
            Some(if data.starts_with("0xf1c7a58b") { l1.clone() } else { operator.clone() })
        }
        _ => None,
    });
}

fn word(number: u64) -> Answer {
    Ok(json!(format!("{number:#066x}")))
}

fn asked(live: &Live) -> Vec<(String, u64)> {
    let calls = live
        .take_calls()
        .into_iter()
        .filter(|(method, params)| method == "eth_call" && params[0]["to"] == json!(ORACLE));
    calls
        .map(|(_, params): (String, Value)| {
            let data = params[0]["data"].as_str().unwrap();
            (data[..10].to_owned(), u64::from_str_radix(&data[58..], 16).unwrap())
        })
        .collect()
}

#[tokio::test]
async fn t22_a_carrier_is_surcharged_what_the_oracle_says_of_its_bytes_and_its_gas() {
    let chain = Chain::BaseMainnet;
    let (first, _second, source) = two(chain).await;
    answers(&first, word(7_000), word(500));
    first.take_calls();
    let expected = Quote::Gas { limit: 120, surcharge: U256::from(7_500) };
    assert_eq!(source.quote(&SPONSOR, &paid(chain)).await.unwrap(), expected);
    let [(l1, bytes), (operator, gas)] = &asked(&first)[..] else { panic!("two questions") };
    assert_eq!([l1.as_str(), operator.as_str()], ["0xf1c7a58b", "0x275aedd2"]);
    assert_eq!(*gas, 120, "the limit, which may be used whole");
    // Whatever its nonce and its fees will be, it has no more bytes; the oracle adds those of a signature.
    let (max_fee, tip) = (1_000_000_000_000, 1_000_000_000);
    let carrier = Carrier { sponsor: SPONSOR, carried: paid(chain), nonce: 9_999, gas_limit: 120, max_fee, tip };
    let raw = pay::carrier(&carrier).unwrap().signed(&[27; 65]).0;
    let longest = u64::try_from(raw.len()).unwrap();
    assert!(*bytes + 68 >= longest && *bytes < longest, "{bytes} of {longest}: {}", hex::encode(raw));

    answers(&first, word(9_000), word(0));
    first.take_calls();
    assert_eq!(source.surcharge().await.unwrap(), U256::from(9_000));
    let usual = asked(&first);
    assert!(usual[0].1 > *bytes && usual[1].1 > 200_000, "{usual:?}");
}

#[tokio::test]
async fn t22_an_oracle_that_does_not_answer_is_no_surcharge_of_nothing_and_another_endpoint_is_asked() {
    let chain = Chain::OptimismMainnet;
    let (first, second, source) = two(chain).await;
    let reverted: Answer = Err((3, "execution reverted".to_owned()));
    for wrong in [Ok(json!("0x")), Ok(json!("0x01")), reverted] {
        answers(&first, wrong.clone(), word(1));
        answers(&second, word(2), wrong);
        assert_eq!(source.surcharge().await.unwrap_err().kind, SourceErrorKind::Transient);
        assert_eq!(source.quote(&SPONSOR, &paid(chain)).await.unwrap_err().kind, SourceErrorKind::Transient);
        answers(&second, word(2), word(3));
        assert_eq!(source.surcharge().await.unwrap(), U256::from(5));
    }
    answers(&first, Ok(json!(format!("0x{}", "f".repeat(64)))), word(1));
    assert_eq!(source.surcharge().await.unwrap(), U256::MAX, "no sum of fees wraps around");
}

#[tokio::test]
async fn elsewhere_nothing_is_taken_on_top_of_gas_and_nobody_is_asked() {
    for chain in [Chain::EthereumMainnet, Chain::PolygonMainnet] {
        let (first, _second, source) = two(chain).await;
        answers(&first, word(7), word(7));
        first.take_calls();
        assert_eq!(source.surcharge().await.unwrap(), U256::ZERO);
        let expected = Quote::Gas { limit: 120, surcharge: U256::ZERO };
        assert_eq!(source.quote(&SPONSOR, &paid(chain)).await.unwrap(), expected);
        assert_eq!(asked(&first), []);
    }
}
