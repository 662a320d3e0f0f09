//! What addresses hold at a block is reported alike by as many endpoints as must agree, or it is not reported; and what is not reported is
//! never zero.

use landfall_chain::{
    Address, AssetId, BlockHash, BlockRef, EndpointState, Holding, HoldingSource, Holdings, Proof, SourceError,
    SourceErrorKind, U256,
};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, LEFT_OUT, Ledger, Live, led_by_first, mainnet};

const OWNER: Address = Address::Evm([0xb2; 20]);
const OTHER: Address = Address::Evm([0xb3; 20]);
const TOKEN: AssetId = AssetId::Token(Address::Evm([0x70; 20]));
const ASSETS: [AssetId; 2] = [AssetId::Native, TOKEN];

fn ledger() -> Ledger {
    let paying = |number| vec![Tx { nonce: number, value: 1, ..Tx::default() }];
    Ledger::of(mint::chain(1, (1..=30).map(paying).collect())).up_to(30, Some(20))
}

fn at() -> BlockRef {
    ledger().reference(20)
}

fn word(amount: u64) -> Value {
    json!(format!("0x{amount:064x}"))
}

fn refused(message: &str) -> Answer {
    Err((-32_000, message.to_owned()))
}

/// A node with the state of block 20, where each address has `native` and `token`; it knows no other block's.
fn state(native: u64, token: Value) -> impl Fn(&str, &Value) -> Option<Answer> + Send + 'static {
    let hash = at().hash.to_string();
    move |method, params| {
        if !matches!(method, "eth_getBalance" | "eth_call") {
            return None;
        }
        if params[1] != json!({ "blockHash": hash }) {
            return Some(refused("header not found"));
        }
        Some(match method {
            "eth_getBalance" => Ok(json!(format!("{native:#x}"))),
            _ => {
                assert_eq!(params[0]["to"].as_str().unwrap().to_lowercase(), format!("0x{}", "70".repeat(20)));
                let data = params[0]["data"].as_str().unwrap();
                assert!(data.starts_with(&format!("0x70a08231{}b", "0".repeat(24))) && data.len() == 74, "{data}");
                Ok(token.clone())
            }
        })
    }
}

/// Two nodes, of which the first is asked first.
async fn two() -> (Live, Live, EvmSource) {
    let (first, second) = (Live::start(ledger()).await, Live::start(ledger()).await);
    let source = led_by_first(mainnet(), &[&first, &second]).await;
    (first, second, source)
}

async fn held(source: &EvmSource) -> Result<Holdings, SourceErrorKind> {
    source.holdings(&[OWNER], &ASSETS, &at()).await.map_err(|error: SourceError| error.kind)
}

fn reported(native: u64, token: u64, proof: Proof) -> Holdings {
    Holdings { proof, amounts: vec![vec![held_of(native), held_of(token)]] }
}

fn held_of(amount: u64) -> Option<Holding> {
    Some(Holding { amount: U256::from(amount), number: 20, through: 20 })
}

fn assert_trusted(source: &EvmSource) {
    let states: Vec<EndpointState> = source.endpoints().snapshot().iter().map(|endpoint| endpoint.state).collect();
    assert!(states.iter().all(|state| *state == EndpointState::Healthy), "{states:?}");
}

#[tokio::test]
async fn what_is_held_is_asked_for_by_the_hash_of_the_block_and_reported_by_two() {
    let (first, second, source) = two().await;
    first.lie(state(60, word(7)));
    second.lie(state(60, word(7)));
    assert_eq!(held(&source).await, Ok(reported(60, 7, Proof::TwoEndpoints)));
    let both = source.holdings(&[OWNER, OTHER], &ASSETS, &at()).await.unwrap();
    let each = &reported(60, 7, Proof::TwoEndpoints).amounts[0];
    assert_eq!(both.amounts, [each.clone(), each.clone()]);
    // Where an operator lets one suffice, its word is reported as one's.
    source.set_agree(1).unwrap();
    assert_eq!(held(&source).await, Ok(reported(60, 7, Proof::OneEndpoint)));
    let most = json!(format!("0x{}", "f".repeat(64)));
    first.lie(state(0, most));
    let most = Some(Holding { amount: U256::MAX, number: 20, through: 20 });
    assert_eq!(held(&source).await.unwrap().amounts, [[held_of(0), most]]);
    assert_trusted(&source);
}

#[tokio::test]
async fn an_answer_that_is_empty_short_or_refused_is_never_zero() {
    let cases: Vec<(&str, Answer)> = vec![
        ("a node that lags or follows another fork", refused("header not found")),
        ("a node without that state", refused("missing trie node 6f8c (path )")),
        ("a node that refuses EIP-1898", Err((-32_602, "invalid argument 1".to_owned()))),
        ("a batch that is answered in part", Err((LEFT_OUT, String::new()))),
        ("null", Ok(Value::Null)),
        ("an empty text", Ok(json!(""))),
        ("no hexadecimal", Ok(json!(format!("0x{}", "g".repeat(64))))),
        ("a number", Ok(json!(0))),
    ];
    let (first, second, source) = two().await;
    second.lie(state(60, word(7)));
    for (what, answer) in cases {
        for only in ["eth_getBalance", "eth_call"] {
            let honest = state(60, word(7));
            let answer = answer.clone();
            first.lie(move |method, params| if method == only { Some(answer.clone()) } else { honest(method, params) });
            source.set_agree(2).unwrap();
            assert_eq!(held(&source).await, Err(SourceErrorKind::Transient), "{what} to {only}: one is not enough");
            source.set_agree(1).unwrap();
            assert_eq!(
                held(&source).await,
                Ok(reported(60, 7, Proof::OneEndpoint)),
                "{what} to {only}: another is asked"
            );
            assert_trusted(&source);
        }
    }
}

#[tokio::test]
async fn a_block_of_another_fork_is_not_known_to_who_does_not_follow_it() {
    let (first, second, source) = two().await;
    first.lie(state(60, word(7)));
    second.lie(state(60, word(7)));
    let fork = BlockRef { number: 20, hash: BlockHash([9; 32]) };
    let error = source.holdings(&[OWNER], &ASSETS, &fork).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("header not found"), "{error}");
    assert_trusted(&source);
}

#[tokio::test]
async fn what_two_report_differently_is_not_reported_and_says_nothing_of_others() {
    let (first, second, source) = two().await;
    // One node answers for its newest block, whatever it is asked.
    first.lie(state(60, word(7)));
    let liar = state(60, word(8));
    second.lie(move |method, params| {
        let is_other = method == "eth_call" && params[0]["data"].as_str().is_some_and(|data| data.ends_with("b3"));
        if is_other { Some(Ok(word(7))) } else { liar(method, params) }
    });
    let both = source.holdings(&[OWNER, OTHER], &ASSETS, &at()).await.unwrap();
    assert_eq!(both.amounts, [[held_of(60), None], [held_of(60), held_of(7)]]);
    assert_trusted(&source);
}

#[tokio::test]
async fn a_third_endpoint_says_who_is_right() {
    let lives = [Live::start(ledger()).await, Live::start(ledger()).await, Live::start(ledger()).await];
    let source = led_by_first(mainnet(), &[&lives[0], &lives[1], &lives[2]]).await;
    source.set_agree(2).unwrap();
    for (live, token) in lives.iter().zip([0, 7, 7]) {
        live.lie(state(60, word(token)));
    }
    assert_eq!(held(&source).await, Ok(reported(60, 7, Proof::TwoEndpoints)));
}

#[tokio::test]
async fn what_is_held_of_a_token_without_a_contract_is_not_known_and_no_zero() {
    let (first, second, source) = two().await;
    // What an address without code answers, and a contract that says nothing.
    first.lie(state(60, json!("0x")));
    second.lie(state(60, json!("0x")));
    assert_eq!(held(&source).await.unwrap().amounts, [[held_of(60), None]]);
    source.set_agree(1).unwrap();
    assert_eq!(held(&source).await.unwrap().amounts, [[held_of(60), None]]);
    assert_trusted(&source);
}

#[tokio::test]
async fn an_address_of_another_family_is_refused_for_good() {
    let (_first, _second, source) = two().await;
    for (addresses, assets) in [
        (vec![Address::Solana([1; 32])], ASSETS.to_vec()),
        (vec![OWNER], vec![AssetId::Token(Address::Solana([1; 32]))]),
    ] {
        let error = source.holdings(&addresses, &assets, &at()).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Permanent);
    }
}

#[tokio::test]
async fn a_token_whose_contract_reports_no_amount_keeps_no_other_from_being_reported() {
    let cases: Vec<(&str, Answer)> = vec![
        ("geth", Err((3, "execution reverted: paused".to_owned()))),
        ("erigon", refused("execution reverted")),
        ("nethermind", Err((-32_015, "VM execution error.".to_owned()))),
        ("besu", refused("Execution reverted")),
        ("a contract that is broken", refused("invalid opcode: opcode 0xfe not defined")),
        ("one that does not end", refused("out of gas")),
        ("no bytes, where there is code", Ok(json!("0x"))),
        ("31 bytes", Ok(json!(format!("0x{}", "0".repeat(62))))),
        ("33 bytes", Ok(json!(format!("0x{}", "0".repeat(66))))),
    ];
    let (first, second, source) = two().await;
    for (what, answer) in cases {
        for live in [&first, &second] {
            let (honest, answer) = (state(60, word(7)), answer.clone());
            live.lie(
                move |method, params| if method == "eth_call" { Some(answer.clone()) } else { honest(method, params) },
            );
        }
        source.set_agree(2).unwrap();
        let reported = held(&source).await.unwrap();
        assert_eq!((reported.proof, reported.amounts), (Proof::TwoEndpoints, vec![vec![held_of(60), None]]), "{what}");
        // Another endpoint is asked, and one word is one's.
        second.lie(state(60, word(7)));
        assert_eq!(held(&source).await.unwrap().amounts, [[held_of(60), None]], "{what}");
        source.set_agree(1).unwrap();
        assert_eq!(held(&source).await, Ok(self::reported(60, 7, Proof::OneEndpoint)), "{what}");
        assert_trusted(&source);
    }
}
