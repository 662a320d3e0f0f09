//! What is asked of endpoints to carry intents, and what becomes of answers that are wrong, late or contradict each other.

use alloy::hex;
use alloy::primitives::keccak256;
use landfall_chain::{
    Address, AssetId, BlockHash, BlockRef, BroadcastResponse, Carried, Carrier, Chain, EndpointState, FeeMarket,
    Intent, KeyReport, Network, PayingChain, Quote, Readiness, Route, SignedIntent, SourceErrorKind, TxId, U256,
    Unpayable,
};
use landfall_evm::{EvmSource, network, pay};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, LEFT_OUT, Ledger, Live, led_by_first, mainnet};

const TOKEN: Address = Address::Evm([0x70; 20]);
const SPONSOR: Address = Address::Evm([0x5f; 20]);

fn ledger() -> Ledger {
    let paying = |number| vec![Tx { nonce: number, value: 1, ..Tx::default() }];
    Ledger::of(mint::chain(1, (1..=30).map(paying).collect())).up_to(30, Some(20))
}

fn at() -> BlockRef {
    ledger().reference(20)
}

fn intent() -> Intent {
    Intent {
        transfer_id: [7; 16],
        chain_ref: "eip155:1".to_owned(),
        route: Route::Erc3009 { name: "USD Coin".to_owned(), version: "2".to_owned() },
        asset: AssetId::Token(TOKEN),
        payer: Address::Evm([0xaa; 20]),
        destination: Address::Evm([0xb2; 20]),
        amount: U256::from(5),
        deadline: 1_800_000_000,
    }
}

fn signed() -> SignedIntent {
    SignedIntent { intent: intent(), signature: vec![27; 65] }
}

fn paid() -> Carried {
    Carried::Payment { signed: signed(), authorization: None }
}

fn refused(message: &str) -> Answer {
    Err((-32_000, message.to_owned()))
}

/// Two nodes, of which the first is asked first.
async fn two_of(network: Network) -> (Live, Live, EvmSource) {
    let (first, second) = (Live::start(ledger()).await, Live::start(ledger()).await);
    let source = led_by_first(network, &[&first, &second]).await;
    (first, second, source)
}

async fn two() -> (Live, Live, EvmSource) {
    two_of(mainnet()).await
}

/// A quote of a chain that takes nothing on top of gas.
fn gas(limit: u64) -> Quote {
    Quote::Gas { limit, surcharge: U256::ZERO }
}

/// The node answers `method` so, and all else truly.
fn answers(live: &Live, method: &'static str, answer: Answer) {
    live.lie(move |asked, _| (asked == method).then(|| answer.clone()));
}

fn calls(live: &Live, method: &str) -> Vec<Value> {
    live.take_calls().into_iter().filter(|(asked, _)| asked == method).map(|(_, params)| params).collect()
}

fn assert_trusted(source: &EvmSource) {
    let states: Vec<EndpointState> = source.endpoints().snapshot().iter().map(|endpoint| endpoint.state).collect();
    assert!(states.iter().all(|state| *state == EndpointState::Healthy), "{states:?}");
}

#[tokio::test]
async fn what_gas_costs_is_asked_of_another_endpoint_where_one_does_not_say() {
    let (first, second, source) = two().await;
    let history = json!({ "oldestBlock": "0x1", "baseFeePerGas": ["0x9", "0x5"], "gasUsedRatio": [0.5],
        "reward": [["0x77359400"]] });
    answers(&second, "eth_feeHistory", Ok(history));
    for answer in [
        refused("boom"),
        Ok(Value::Null),
        Ok(json!({})),
        Ok(json!({ "baseFeePerGas": [] })),
        Err((LEFT_OUT, String::new())),
    ] {
        answers(&first, "eth_feeHistory", answer);
        let market = source.fee_market().await.unwrap();
        assert_eq!(market, FeeMarket { base_fee: 5, tip: 2_000_000_000 });
    }
    assert_eq!(calls(&second, "eth_feeHistory")[0], json!(["0xa", "latest", [50]]));
    answers(&second, "eth_feeHistory", refused("boom"));
    assert_eq!(source.fee_market().await.unwrap_err().kind, SourceErrorKind::Transient);
    assert_trusted(&source);
}

#[tokio::test]
async fn on_polygon_no_transaction_offers_less_than_its_nodes_take() {
    let polygon = Network { finality: mainnet().finality, ..network(Chain::PolygonMainnet).unwrap() };
    let polygon_ledger = || Ledger { chain_id: 137, ..ledger() };
    let live = Live::start(polygon_ledger()).await;
    let history = json!({ "baseFeePerGas": ["0x9", "0x5"], "reward": [["0x1"]] });
    answers(&live, "eth_feeHistory", Ok(history));
    let source = led_by_first(polygon, &[&live]).await;
    assert_eq!(source.fee_market().await.unwrap(), FeeMarket { base_fee: 5, tip: 25_000_000_000 });
}

/// What the token and the payer's account answer; the token pays what it is asked to.
fn token(live: &Live, domain: Answer, code: &'static str) {
    live.lie(move |method, params| match method {
        "eth_call" if params[0]["from"].is_null() => {
            assert_eq!(params[0]["data"], json!("0x3644e515"));
            Some(domain.clone())
        }
        "eth_call" => Some(Ok(word(1))),
        "eth_getCode" => Some(Ok(json!(code))),
        _ => None,
    });
}

/// A token that answers a payment so, and these questions: paused, recipient and payer on its blacklist, what the payer has.
fn token_that(live: &Live, payment: Answer, answers: [Answer; 4]) {
    live.lie(move |method, params| {
        let data = params[0]["data"].as_str().unwrap_or_default().to_owned();
        let of = |address: [u8; 20]| data.ends_with(&hex::encode(address));
        match method {
            "eth_getCode" => Some(Ok(json!("0x"))),
            "eth_call" if data.starts_with("0x3644e515") => Some(Ok(json!(hex::encode_prefixed(domain())))),
            "eth_call" if data.starts_with("0xa9059cbb") => {
                assert_eq!(params[0]["from"], json!(intent().payer.to_string()), "as the payer would pay");
                Some(payment.clone())
            }
            "eth_call" if data.starts_with("0x5c975abb") => Some(answers[0].clone()),
            "eth_call" if data.starts_with("0xfe575a87") && of([0xb2; 20]) => Some(answers[1].clone()),
            "eth_call" if data.starts_with("0xfe575a87") && of([0xaa; 20]) => Some(answers[2].clone()),
            "eth_call" if data.starts_with("0x70a08231") && of([0xaa; 20]) => Some(answers[3].clone()),
            _ => None,
        }
    });
}

#[tokio::test]
async fn what_a_token_would_refuse_is_found_before_the_signature_and_named() {
    let (first, second, source) = two().await;
    let reverts = || Err((3, "execution reverted: no".to_owned()));
    let (no, yes, enough) = (|| Ok(word(0)), || Ok(word(1)), || Ok(word(5)));
    for paid in [Ok(word(1)), Ok(json!("0x"))] {
        token_that(&first, paid, [yes(), yes(), yes(), no()]);
        assert_eq!(source.readiness(&intent()).await.unwrap(), Readiness::Ready, "a token that pays is asked nothing");
    }
    let cases = [
        ([yes(), no(), no(), enough()], Unpayable::Paused, "its owner stopped all payments"),
        ([no(), yes(), no(), enough()], Unpayable::Destination, "has 0xb2b2b2"),
        ([no(), no(), yes(), enough()], Unpayable::Destination, "has the paying address"),
        ([no(), no(), no(), Ok(word(4))], Unpayable::Funds, "has 4 base units of the token, and 5 are to be paid"),
        // It knows nothing of lists, or says nothing against it: then the node's own words are kept.
        ([reverts(), reverts(), reverts(), enough()], Unpayable::Refused, "execution reverted: no"),
        ([reverts(), Ok(json!("0x")), no(), reverts()], Unpayable::Refused, "execution reverted: no"),
    ];
    for (answers, what, words) in cases {
        token_that(&first, reverts(), answers);
        let found = source.readiness(&intent()).await.unwrap();
        let Readiness::Unpayable(found, why) = found else { panic!("{words}: {found:?}") };
        assert!(found == what && why.contains(words), "{found:?} {why}");
    }
    token_that(&first, Ok(word(0)), [no(), no(), no(), enough()]);
    let answers_false = Readiness::Unpayable(Unpayable::Refused, "the token answers false".to_owned());
    assert_eq!(source.readiness(&intent()).await.unwrap(), answers_false);
    // A node that fails says nothing of the token: another one is asked.
    token_that(&first, refused("header not found"), [yes(), yes(), yes(), no()]);
    token_that(&second, Ok(word(1)), [no(), no(), no(), enough()]);
    assert_eq!(source.readiness(&intent()).await.unwrap(), Readiness::Ready);
    assert_trusted(&source);
}

fn domain() -> [u8; 32] {
    let words = [
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)").0,
        keccak256("USD Coin").0,
        keccak256("2").0,
        U256::from(1).to_be_bytes(),
        U256::from_be_slice(&[0x70; 20]).to_be_bytes(),
    ];
    keccak256(words.as_flattened()).0
}

#[tokio::test]
async fn a_token_is_ready_when_it_reports_its_own_domain_and_the_payer_has_no_code() {
    let own = json!(hex::encode_prefixed(domain()));
    let other = json!(hex::encode_prefixed([9; 32]));
    // The listed delegate answers for the payer's key (ERC-1271).
    for code in ["0x", "0xef010063c0c19a282a1b52b07dd5a65b58948a07dae32b"] {
        let (first, _second, source) = two().await;
        token(&first, Ok(own.clone()), code);
        assert_eq!(source.readiness(&intent()).await.unwrap(), Readiness::Ready);
    }
    let cases = [
        (Ok(other), "0x", "reports the domain 0x0909"),
        (Ok(json!("0x")), "0x", "reports no DOMAIN_SEPARATOR"),
        (Err((3, "execution reverted".to_owned())), "0x", "reports no DOMAIN_SEPARATOR"),
        (Ok(own), "0xef01005757575757575757575757575757575757575757", "has code"),
    ];
    for (domain, code, expected) in cases {
        let (first, _second, source) = two().await;
        token(&first, domain, code);
        let Readiness::NotReady(why) = source.readiness(&intent()).await.unwrap() else { panic!("{expected}") };
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test]
async fn a_token_that_reported_its_domain_is_not_asked_for_it_again_at_once() {
    let (first, _second, source) = two().await;
    token(&first, Ok(json!(hex::encode_prefixed([9; 32]))), "0x");
    for _ in 0..2 {
        let other = source.readiness(&intent()).await.unwrap();
        assert!(matches!(other, Readiness::NotReady(_)), "{other:?}");
    }
    assert_eq!(calls(&first, "eth_call").len(), 4, "another domain is never kept");
    token(&first, Ok(json!(hex::encode_prefixed(domain()))), "0x");
    for _ in 0..3 {
        assert_eq!(source.readiness(&intent()).await.unwrap(), Readiness::Ready);
    }
    assert_eq!(calls(&first, "eth_call").len(), 4, "three payments, and the domain once");
}

#[tokio::test]
async fn whether_a_payer_has_code_is_not_asked_again_at_once_where_it_has_none() {
    for (code, asked) in [("0x", 1), ("0xef010063c0c19a282a1b52b07dd5a65b58948a07dae32b", 3)] {
        let (first, _second, source) = two().await;
        token(&first, Ok(json!(hex::encode_prefixed(domain()))), code);
        first.take_calls();
        for _ in 0..3 {
            assert_eq!(source.readiness(&intent()).await.unwrap(), Readiness::Ready);
        }
        assert_eq!(calls(&first, "eth_getCode").len(), asked, "{code}");
    }
}

#[tokio::test]
async fn what_is_no_intent_of_this_chain_is_refused_for_good_and_asks_nobody() {
    let (first, second, source) = two().await;
    let cases = [
        Intent { chain_ref: "eip155:8453".to_owned(), ..intent() },
        Intent { chain_ref: "solana:x".to_owned(), ..intent() },
        Intent { asset: AssetId::Native, ..intent() },
        Intent { payer: Address::Solana([1; 32]), ..intent() },
    ];
    first.take_calls();
    for intent in cases {
        let signed = SignedIntent { intent: intent.clone(), signature: vec![27; 65] };
        let carried = Carried::Payment { signed, authorization: None };
        for error in [
            source.readiness(&intent).await.unwrap_err(),
            source.quote(&SPONSOR, &carried).await.unwrap_err(),
            source.is_used(&intent, &at()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind, SourceErrorKind::Permanent, "{error}");
        }
    }
    let short = SignedIntent { signature: vec![27; 64], ..signed() };
    let short = Carried::Payment { signed: short, authorization: None };
    let error = source.quote(&SPONSOR, &short).await.unwrap_err();
    assert_eq!(error.to_string(), "ETHEREUM_MAINNET: a signature of 64 bytes; r, s and v are 65");
    for live in [first, second] {
        let asked = live.take_calls();
        assert!(
            asked.iter().all(|(method, _)| !matches!(method.as_str(), "eth_call" | "eth_estimateGas")),
            "{asked:?}"
        );
    }
}

#[tokio::test]
async fn a_carrier_may_use_a_fifth_more_than_it_was_estimated_to_take_and_never_more_than_a_transaction_may() {
    let (first, _second, source) = two().await;
    let cases = [
        ("0x64", gas(120)),
        ("0x1", gas(2)),
        ("0xe00000", gas(1 << 24)),
        ("0x1000000", gas(1 << 24)),
        ("0x1000001", Quote::Refused("it takes 16777217 gas, and a transaction may use 16777216".to_owned())),
    ];
    for (gas, expected) in cases {
        answers(&first, "eth_estimateGas", Ok(json!(gas)));
        assert_eq!(source.quote(&SPONSOR, &paid()).await.unwrap(), expected, "{gas}");
    }
    let asked = calls(&first, "eth_estimateGas").remove(0);
    let carrier = Carrier { sponsor: SPONSOR, carried: paid(), nonce: 0, gas_limit: 1, max_fee: 1, tip: 1 };
    let raw = hex::encode(pay::carrier(&carrier).unwrap().signed(&[27; 65]).0);
    assert!(raw.contains(&asked[0]["data"].as_str().unwrap()[2..]), "the call that the carrier makes");
    assert_eq!((&asked[0]["from"], &asked[0]["to"]), (&json!(SPONSOR.to_string()), &json!(TOKEN.to_string())));
    assert_eq!((asked[0].as_object().unwrap().len(), &asked[1]), (3, &json!("latest")));
}

#[tokio::test]
async fn a_revert_is_an_answer_and_a_node_that_fails_is_none() {
    let (first, second, source) = two().await;
    let used = "execution reverted: FiatTokenV2: authorization is used or canceled";
    answers(&first, "eth_estimateGas", Err((3, used.to_owned())));
    assert_eq!(source.quote(&SPONSOR, &paid()).await.unwrap(), Quote::Refused(used.to_owned()));
    answers(&first, "eth_estimateGas", refused("gas required exceeds allowance (0)"));
    assert!(matches!(source.quote(&SPONSOR, &paid()).await.unwrap(), Quote::Refused(_)));
    for live in [&first, &second] {
        answers(live, "eth_estimateGas", refused("header not found"));
    }
    assert_eq!(source.quote(&SPONSOR, &paid()).await.unwrap_err().kind, SourceErrorKind::Transient);
    answers(&second, "eth_estimateGas", Ok(json!("0x64")));
    assert_eq!(source.quote(&SPONSOR, &paid()).await.unwrap(), gas(120), "another one is asked");
    assert_trusted(&source);
}

#[tokio::test]
async fn a_nonce_is_asked_for_after_a_block_by_its_hash_or_after_the_newest() {
    let (first, second, source) = two().await;
    answers(&first, "eth_getTransactionCount", Ok(json!("0x10")));
    answers(&second, "eth_getTransactionCount", Ok(json!("0x11")));
    let differ = source.nonce_at(&SPONSOR, Some(&at())).await.unwrap_err();
    assert_eq!(differ.kind, SourceErrorKind::Transient, "{differ}");
    answers(&second, "eth_getTransactionCount", Ok(json!("0x10")));
    assert_eq!(source.nonce_at(&SPONSOR, Some(&at())).await.unwrap(), 16);
    assert_eq!(source.nonce_at(&SPONSOR, None).await.unwrap(), 16);
    let asked = calls(&first, "eth_getTransactionCount");
    let sponsor = SPONSOR.to_string();
    let of_block = json!([sponsor, { "blockHash": at().hash.to_string() }]);
    assert_eq!(asked, [of_block.clone(), of_block, json!([sponsor, "latest"])]);
    let foreign = source.nonce_at(&Address::Solana([1; 32]), None).await.unwrap_err();
    assert_eq!(foreign.kind, SourceErrorKind::Permanent);
}

const ID: TxId = TxId::Evm([0x1d; 32]);

async fn sent(first: &Live, second: &Live, source: &EvmSource, answer: [Answer; 2]) -> BroadcastResponse {
    let [of_first, of_second] = answer;
    answers(first, "eth_sendRawTransaction", of_first);
    answers(second, "eth_sendRawTransaction", of_second);
    source.broadcast(&ID, &[2, 0xc0]).await
}

#[tokio::test]
async fn a_transaction_goes_to_two_endpoints_once_and_the_better_answer_counts() {
    use BroadcastResponse::{Gapped, Known, NonceUsed, Pooled, Underpriced, Unknown};
    let (first, second, source) = two().await;
    let pooled = || Ok(json!(ID.to_string()));
    let lost = || Err((LEFT_OUT, String::new()));
    let cases = [
        ([pooled(), pooled()], Pooled),
        ([refused("nonce too low: next nonce 5, tx nonce 3"), pooled()], Pooled),
        ([lost(), refused("already known")], Known),
        ([refused("nonce too high"), refused("nonce too low")], NonceUsed),
        ([refused("replacement transaction underpriced"), lost()], Underpriced),
        ([refused("nonce too high"), refused("txpool is full")], Gapped),
        ([refused("nobody knows these words"), lost()], Unknown),
        ([Err((-32_601, "the method eth_sendRawTransaction does not exist".to_owned())), lost()], Unknown),
        ([Err((429, "too many requests".to_owned())), refused("")], Unknown),
    ];
    for (answer, expected) in cases {
        let what = format!("{answer:?}");
        assert_eq!(sent(&first, &second, &source, answer).await, expected, "{what}");
        for live in [&first, &second] {
            assert_eq!(calls(live, "eth_sendRawTransaction"), [json!(["0x02c0"])], "{what}");
        }
    }
    assert_trusted(&source);
}

#[tokio::test]
async fn an_answer_that_names_another_transaction_says_nothing() {
    let (first, second, source) = two().await;
    let other = || Ok(json!(format!("0x{}", "1e".repeat(32))));
    for answer in [other(), Ok(Value::Null), Ok(json!("")), Ok(json!(7)), Ok(json!({}))] {
        let response = sent(&first, &second, &source, [answer, other()]).await;
        assert_eq!(response, BroadcastResponse::Unknown);
    }
    let upper = Ok(json!(format!("0x{}", "1D".repeat(32))));
    assert_eq!(sent(&first, &second, &source, [upper, other()]).await, BroadcastResponse::Pooled);
}

#[tokio::test]
async fn no_more_than_two_of_several_endpoints_get_a_transaction() {
    let nodes = [Live::start(ledger()).await, Live::start(ledger()).await, Live::start(ledger()).await];
    let source = led_by_first(mainnet(), &nodes.each_ref()).await;
    for live in &nodes {
        answers(live, "eth_sendRawTransaction", Ok(json!(ID.to_string())));
    }
    assert_eq!(source.broadcast(&ID, &[2]).await, BroadcastResponse::Pooled);
    let sent: usize = nodes.iter().map(|live| calls(live, "eth_sendRawTransaction").len()).sum();
    assert_eq!(sent, 2);
}

/// A node whose state of block 20 says so; it knows no other block's.
fn state(live: &Live, used: Value) {
    let hash = at().hash.to_string();
    live.lie(move |method, params| {
        (method == "eth_call").then(|| {
            let data = format!("0xe94a0102{}{}", hex::encode([0; 12]), hex::encode([0xaa; 20]));
            let nonce = hex::encode(intent().key().evm_nonce());
            assert_eq!(params[0], json!({ "to": TOKEN.to_string(), "data": format!("{data}{nonce}") }));
            if params[1] == json!({ "blockHash": hash }) { Ok(used.clone()) } else { refused("header not found") }
        })
    });
}

fn word(number: u64) -> Value {
    json!(format!("0x{number:064x}"))
}

#[tokio::test]
async fn whether_a_key_was_used_counts_only_as_two_report_it_alike_and_both_are_named() {
    let (first, second, source) = two().await;
    for (used, is_used) in [(0, false), (1, true)] {
        state(&first, word(used));
        state(&second, word(used));
        let reported_by = [&first, &second].map(|live| live.node.id().to_owned()).to_vec();
        assert_eq!(source.key_report(&intent(), &at()).await.unwrap(), KeyReport { is_used, reported_by });
        assert_eq!(source.is_used(&intent(), &at()).await.unwrap(), is_used);
    }
    state(&second, word(0));
    let error = source.is_used(&intent(), &at()).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    let said = error.to_string();
    assert!(said.contains(&format!("{} reports true, {} reports false", first.node.id(), second.node.id())), "{said}");
    assert_trusted(&source);
}

#[tokio::test]
async fn t4_no_answer_is_neither_used_nor_unused() {
    let (first, second, source) = two().await;
    state(&second, word(0));
    let cases = [
        Ok(json!("0x")),
        Ok(word(2)),
        Ok(json!("0x00")),
        Ok(Value::Null),
        refused("missing trie node 6f8c (path )"),
        Err((3, "execution reverted".to_owned())),
        Err((LEFT_OUT, String::new())),
    ];
    for answer in cases {
        let what = format!("{answer:?}");
        answers(&first, "eth_call", answer);
        assert_eq!(source.is_used(&intent(), &at()).await.unwrap_err().kind, SourceErrorKind::Transient, "{what}");
    }
    let elsewhere = BlockRef { number: 20, hash: BlockHash([9; 32]) };
    state(&first, word(0));
    assert_eq!(source.is_used(&intent(), &elsewhere).await.unwrap_err().kind, SourceErrorKind::Transient);
    assert_trusted(&source);
    // Where an operator lets one suffice, one does.
    source.set_agree(1).unwrap();
    let reported_by = vec![first.node.id().to_owned()];
    assert_eq!(source.key_report(&intent(), &at()).await.unwrap(), KeyReport { is_used: false, reported_by });
}

#[tokio::test]
async fn one_of_three_who_contradicts_keeps_it_open() {
    let nodes = [Live::start(ledger()).await, Live::start(ledger()).await, Live::start(ledger()).await];
    let source = led_by_first(mainnet(), &nodes.each_ref()).await;
    state(&nodes[0], word(1));
    state(&nodes[1], word(0));
    state(&nodes[2], word(0));
    assert_eq!(source.is_used(&intent(), &at()).await.unwrap_err().kind, SourceErrorKind::Transient);
}
