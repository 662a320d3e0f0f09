//! What the contract of a listed token is: reported alike by as many endpoints as must agree, or not at all; and who is silent, fails
//! or is behind says nothing.

use landfall_chain::{Address, AssetFacts, AssetId, AssetSource, EndpointState, SourceErrorKind, Terms};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, LEFT_OUT, Ledger, Live, led_by_first, mainnet};

const TOKEN: AssetId = AssetId::Token(Address::Evm([0x70; 20]));
const REACHED: u64 = 20;

fn ledger() -> Ledger {
    let paying = |number| vec![Tx { nonce: number, value: 1, ..Tx::default() }];
    Ledger::of(mint::chain(1, (1..=30).map(paying).collect())).up_to(30, Some(REACHED))
}

fn word(number: u64) -> Answer {
    Ok(json!(format!("0x{number:064x}")))
}

fn refused(message: &str) -> Answer {
    Err((-32_000, message.to_owned()))
}

/// A node at block 30 with this code at the contract's address, which answers this to `decimals()`.
fn contract(code: Answer, decimals: Answer) -> impl Fn(&str, &Value) -> Option<Answer> + Send + 'static {
    at(30, code, decimals)
}

fn at(number: u64, code: Answer, decimals: Answer) -> impl Fn(&str, &Value) -> Option<Answer> + Send + 'static {
    move |method, params| {
        let address = |value: &Value| value.as_str().unwrap().to_lowercase() == format!("0x{}", "70".repeat(20));
        Some(match method {
            "eth_blockNumber" => Ok(json!(format!("{number:#x}"))),
            "eth_getCode" => {
                assert!(address(&params[0]) && params[1] == "latest", "{params}");
                code.clone()
            }
            "eth_call" => {
                assert!(
                    address(&params[0]["to"]) && params[0]["data"] == "0x313ce567" && params[1] == "latest",
                    "{params}"
                );
                decimals.clone()
            }
            _ => return None,
        })
    }
}

fn code() -> Answer {
    Ok(json!("0x60006000"))
}

fn no_code() -> Answer {
    Ok(json!("0x"))
}

/// Of a contract that says so many decimals, or none.
fn facts(decimals: Option<u8>) -> AssetFacts {
    let (extensions, risks) = (Vec::new(), Vec::new());
    let terms = |decimals| Terms {
        decimals,
        freeze_authority: None,
        permanent_delegate: None,
        transfer_fee: None,
        extensions,
        risks,
    };
    let contract = "contract".to_owned();
    AssetFacts { program: Some(contract.clone()), listed_programs: vec![contract], terms: decimals.map(terms) }
}

/// Two nodes, of which the first is asked first.
async fn two() -> (Live, Live, EvmSource) {
    let (first, second) = (Live::start(ledger()).await, Live::start(ledger()).await);
    let source = led_by_first(mainnet(), &[&first, &second]).await;
    (first, second, source)
}

async fn reported(source: &EvmSource) -> Result<AssetFacts, SourceErrorKind> {
    source.facts(&TOKEN, REACHED).await.map(Option::unwrap).map_err(|error| error.kind)
}

fn assert_trusted(source: &EvmSource) {
    let states: Vec<EndpointState> = source.endpoints().snapshot().iter().map(|endpoint| endpoint.state).collect();
    assert!(states.iter().all(|state| *state == EndpointState::Healthy), "{states:?}");
}

#[tokio::test]
async fn two_report_the_decimals_of_a_contract_or_that_there_is_none() {
    let (first, second, source) = two().await;
    for (answers, expected) in [
        ((code(), word(6)), facts(Some(6))),
        ((code(), word(0)), facts(Some(0))),
        // No uint8: it is not what is listed, whatever that is.
        ((code(), word(300)), facts(Some(u8::MAX))),
        ((no_code(), no_code()), AssetFacts { program: None, ..facts(None) }),
    ] {
        for live in [&first, &second] {
            live.lie(contract(answers.0.clone(), answers.1.clone()));
        }
        let reported = reported(&source).await;
        assert_eq!(reported.as_ref(), Ok(&expected));
        assert_eq!(reported.unwrap().is_under_its_program(), expected.program.is_some());
    }
    assert_eq!(source.facts(&AssetId::Native, REACHED).await.unwrap(), None);
    assert_trusted(&source);
}

#[tokio::test]
async fn a_contract_that_answers_nothing_to_decimals_says_nothing_of_them() {
    let (first, second, source) = two().await;
    for answer in [
        no_code(),
        Err((3, "execution reverted".to_owned())),
        refused("execution reverted"),
        Err((-32_015, "VM execution error.".to_owned())),
        refused("invalid opcode: opcode 0xfe not defined"),
        Ok(json!(format!("0x{}", "0".repeat(62)))),
        Ok(json!(format!("0x{}", "0".repeat(128)))),
    ] {
        for live in [&first, &second] {
            live.lie(contract(code(), answer.clone()));
        }
        assert_eq!(reported(&source).await, Ok(facts(None)), "{answer:?}");
    }
    assert_trusted(&source);
}

#[tokio::test]
async fn one_alone_who_differs_is_silent_fails_or_is_behind_says_nothing() {
    let (first, second, source) = two().await;
    first.lie(contract(code(), word(18)));
    let others: Vec<(&str, u64, Answer, Answer)> = vec![
        ("other decimals", 30, code(), word(6)),
        ("no code", 30, no_code(), no_code()),
        ("a contract that does not answer", 30, code(), no_code()),
        ("behind", REACHED - 1, code(), word(18)),
        ("behind, where it is not there yet", REACHED - 1, no_code(), no_code()),
        ("null", 30, Ok(Value::Null), word(18)),
        ("an empty text", 30, Ok(json!("")), word(18)),
        ("a batch that is answered in part", 30, code(), Err((LEFT_OUT, String::new()))),
        ("no call", 30, code(), refused("header not found")),
        ("no code is told", 30, refused("missing trie node"), word(18)),
        ("null for decimals", 30, code(), Ok(Value::Null)),
    ];
    for (what, number, code, decimals) in others {
        second.lie(at(number, code, decimals));
        source.set_agree(2).unwrap();
        assert_eq!(reported(&source).await, Err(SourceErrorKind::Transient), "{what}");
        source.set_agree(1).unwrap();
        assert_eq!(reported(&source).await, Ok(facts(Some(18))), "{what}");
    }
    second.lie(at(REACHED, code(), word(18)));
    source.set_agree(2).unwrap();
    assert_eq!(reported(&source).await, Ok(facts(Some(18))), "what is final is not behind");
    let foreign = AssetId::Token(Address::Solana([1; 32]));
    assert_eq!(source.facts(&foreign, REACHED).await.unwrap_err().kind, SourceErrorKind::Permanent);
    assert_trusted(&source);
}

#[tokio::test]
async fn a_third_endpoint_says_what_a_contract_is() {
    let lives = [Live::start(ledger()).await, Live::start(ledger()).await, Live::start(ledger()).await];
    let source = led_by_first(mainnet(), &[&lives[0], &lives[1], &lives[2]]).await;
    source.set_agree(2).unwrap();
    for (live, decimals) in lives.iter().zip([18, 6, 6]) {
        live.lie(contract(code(), word(decimals)));
    }
    assert_eq!(reported(&source).await, Ok(facts(Some(6))));
}
