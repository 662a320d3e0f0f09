//! What a block shows of payments by Landfall's own delegate, and what is asked of endpoints for them.

use alloy::hex;
use alloy::primitives::{Address as Plain, B256, Bytes, Log, LogData, U256, keccak256};
use landfall_chain::{
    Acting, Address, AssetId, BlockSource, Delegate, Effect, Intent, IntentKey, Mark, Native, Network, PayingChain,
    Read, Readiness, Route,
};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::mint::{self, Tx, log, transfer};
use crate::node::{self, Ledger, Live, Node, led_by_first};

const STRANGER: Plain = Plain::repeat_byte(0x57);
const DESTINATION: Plain = Plain::repeat_byte(2);
const USDT: Plain = alloy::primitives::address!("dAC17F958D2ee523a2206206994597C13D831ec7");
const OWN: Delegate = Delegate::Own { implementation: Address::Evm([0x5a; 20]) };
/// Of block 0 of Ethereum.
const GENESIS: &str = "0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3";

fn fixture() -> Value {
    serde_json::from_str(include_str!("../../testdata/own_delegate.json")).unwrap()
}

/// A private chain that plays Ethereum.
fn network() -> Network {
    let mut network = Network { native: Native::TOP_LEVEL, ..node::mainnet() };
    network.delegates.push(OWN);
    network
}

fn payer() -> Plain {
    fixture()["payer"].as_str().unwrap().parse().unwrap()
}

fn key() -> IntentKey {
    IntentKey::of("eip155:84532", &hex!("bac872c096568527b18ffc8f02a10278"))
}

/// What the wallet logged on anvil when it paid native currency, or failed to.
fn settled(of: &str) -> Log {
    let logged = fixture()["cases"][0][of][0].clone();
    let topics = logged["topics"].as_array().unwrap().iter().map(|topic| topic.as_str().unwrap().parse().unwrap());
    let data: Bytes = logged["data"].as_str().unwrap().parse().unwrap();
    Log { address: payer(), data: LogData::new_unchecked(topics.collect(), data) }
}

/// The same with other words.
fn with(words: impl IntoIterator<Item = (usize, B256)>) -> Log {
    let log = settled("logs");
    let mut data = log.data.data.to_vec();
    words.into_iter().for_each(|(at, word)| data[at * 32..][..32].copy_from_slice(word.as_slice()));
    Log { address: log.address, data: LogData::new_unchecked(log.data.topics().to_vec(), data.into()) }
}

fn of_token(token: Plain) -> Log {
    with([(1, token.into_word())])
}

fn failed(token: Plain) -> Log {
    with([(0, B256::ZERO), (1, token.into_word())])
}

async fn marks_of(network: Network, txs: Vec<Vec<Log>>) -> Vec<Mark> {
    let txs = (0..).zip(txs).map(|(nonce, logs)| Tx { nonce, logs, ..Tx::default() });
    let ledger = Ledger::of(mint::chain(5, vec![txs.collect()]));
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    node.source(network).blocks(5..=5, Read::FULL).await.unwrap().remove(0).marks
}

async fn shown(logs: Vec<Log>) -> Vec<(Address, IntentKey, AssetId, Effect)> {
    let marks = marks_of(network(), vec![logs]).await;
    marks.iter().map(|mark| (mark.payer, mark.key, mark.asset, mark.effect)).collect()
}

fn of(asset: AssetId, effect: Effect) -> (Address, IntentKey, AssetId, Effect) {
    (Address::Evm(payer().into()), key(), asset, effect)
}

fn paid() -> Effect {
    Effect::Paid { destination: Address::Evm(DESTINATION.into()), amount: U256::from(5) }
}

#[tokio::test]
async fn what_a_wallet_says_that_it_settled_is_a_payment_or_none() {
    assert_eq!(shown(vec![settled("logs")]).await, [of(AssetId::Native, paid())]);
    assert_eq!(shown(vec![settled("failed")]).await, [of(AssetId::Native, Effect::Nothing)]);
    let mut unlisted = network();
    unlisted.delegates.pop();
    assert_eq!(marks_of(unlisted, vec![vec![settled("logs")]]).await, []);
}

#[tokio::test]
async fn a_token_was_paid_only_if_its_own_log_says_so_too_and_never_by_a_call_that_failed() {
    let usdt = AssetId::Token(Address::Evm(USDT.into()));
    let exact = || transfer(USDT, payer(), DESTINATION, 5);
    let nothing = || vec![of(usdt, Effect::Nothing)];
    let again = || {
        let (log, mut other) = (of_token(USDT), key().evm_nonce());
        other[0] ^= 1;
        let topics = vec![log.data.topics()[0], other.into()];
        Log { address: log.address, data: LogData::new_unchecked(topics, log.data.data) }
    };
    let cases = [
        ("its own log", vec![exact(), of_token(USDT)], vec![of(usdt, paid())]),
        ("no log of it", vec![of_token(USDT)], nothing()),
        ("another payer's", vec![transfer(USDT, STRANGER, DESTINATION, 5), of_token(USDT)], nothing()),
        ("another contract's", vec![transfer(STRANGER, payer(), DESTINATION, 5), of_token(USDT)], nothing()),
        ("less", vec![transfer(USDT, payer(), DESTINATION, 4), of_token(USDT)], Vec::new()),
        ("two payments, and one log", vec![exact(), of_token(USDT), again()], Vec::new()),
        ("it failed", vec![failed(USDT)], nothing()),
        ("it failed beside a log like it", vec![exact(), failed(USDT)], nothing()),
        ("no listed token", vec![transfer(STRANGER, payer(), DESTINATION, 5), of_token(STRANGER)], Vec::new()),
    ];
    for (what, logs, expected) in cases {
        assert_eq!(shown(logs).await, expected, "{what}");
    }
}

/// Anybody may log anything under his own address, and that is all that he may.
#[tokio::test]
async fn what_somebody_else_logs_is_no_use_of_the_payers_key() {
    let good = settled("logs");
    let topics = good.data.topics();
    let data = good.data.data.as_ref();
    let by_stranger = shown(vec![Log { address: STRANGER, ..good.clone() }]).await;
    assert_eq!(by_stranger, [(Address::Evm(STRANGER.into()), key(), AssetId::Native, paid())]);
    let mut tail = key().evm_nonce();
    tail[31] = 1;
    let cases = [
        ("by the code itself", Log { address: Plain::repeat_byte(0x5a), ..good.clone() }),
        ("another event", log(payer(), &[keccak256("Settled(bytes32,bool)"), topics[1]], data)),
        ("a sequence", log(payer(), &[topics[0], tail.into()], data)),
        ("no nonce", log(payer(), &topics[..1], data)),
        ("too many topics", log(payer(), &[topics[0], topics[1], topics[1]], data)),
        ("too little data", log(payer(), topics, &data[..127])),
        ("too much data", log(payer(), topics, &[data, &[0]].concat())),
        ("neither true nor false", with([(0, B256::with_last_byte(2))])),
        ("no address", with([(2, B256::repeat_byte(2))])),
    ];
    for (what, log) in cases {
        let of_payer = shown(vec![log]).await;
        assert!(of_payer.iter().all(|(who, ..)| *who != Address::Evm(payer().into())), "{what}: {of_payer:?}");
    }
}

fn intent() -> Intent {
    Intent {
        transfer_id: hex!("bac872c096568527b18ffc8f02a10278"),
        chain_ref: "eip155:1".to_owned(),
        route: Route::Delegate(OWN),
        asset: AssetId::Native,
        payer: Address::Evm(payer().into()),
        destination: Address::Evm(DESTINATION.into()),
        amount: U256::from(5),
        deadline: 1_800_000_000,
    }
}

async fn one() -> (Live, EvmSource) {
    let paying = |number| vec![Tx { nonce: number, value: 1, ..Tx::default() }];
    let ledger = Ledger::of(mint::chain(1, (1..=30).map(paying).collect())).up_to(30, Some(20));
    let live = Live::start(ledger).await;
    let source = led_by_first(network(), &[&live]).await;
    (live, source)
}

fn runtime() -> Value {
    let compiled = include_str!("../../../../nodes/contracts/OwnDelegate.json");
    serde_json::from_str::<Value>(compiled).unwrap()["runtime"].clone()
}

/// Of the wallet, and of everybody else.
fn with_code(live: &Live, wallet: Value, others: Value, genesis: Option<&'static str>) {
    live.lie(move |method, params| match method {
        "eth_getCode" if params[0] == json!(intent().payer.to_string()) => Some(Ok(wallet.clone())),
        "eth_getCode" => Some(Ok(others.clone())),
        "eth_getTransactionCount" => Some(Ok(json!("0x7"))),
        "eth_estimateGas" => Some(Ok(json!("0x5208"))),
        "eth_getBlockByNumber" if params[0] == "0x0" => Some(match genesis {
            Some(hash) => Ok(json!({ "hash": hash })),
            None => Err((4_444, "pruned history unavailable".to_owned())),
        }),
        _ => None,
    });
}

#[tokio::test]
async fn nothing_is_signed_for_it_on_a_public_network_or_with_other_code() {
    let (live, source) = one().await;
    let private = "0x1111111111111111111111111111111111111111111111111111111111111111";
    let cases = [
        (runtime(), Some(private), None),
        (runtime(), Some(GENESIS), Some("delegate own is for private chains, and block 0 is not known to be of one")),
        (runtime(), None, Some("delegate own is for private chains, and block 0 is not known to be of one")),
        (json!("0x00"), Some(private), Some("of the delegate has other code")),
        (json!("0x"), Some(private), Some("of the delegate has no code")),
    ];
    for (code, genesis, refused) in cases {
        with_code(&live, json!("0x"), code, genesis);
        match (source.readiness(&intent()).await.unwrap(), refused) {
            (Readiness::Ready, None) => {}
            (Readiness::NotReady(why), Some(expected)) => assert!(why.contains(expected), "{why}"),
            (other, expected) => panic!("{other:?}: {expected:?}"),
        }
    }
}

#[tokio::test]
async fn a_wallet_with_another_listed_delegate_is_given_the_right_one_by_a_new_authorization() {
    let (live, source) = one().await;
    let private = Some("0x1111111111111111111111111111111111111111111111111111111111111111");
    let acts = |delegate: Delegate| json!(format!("0xef0100{}", hex::encode(delegate.implementation().as_bytes())));
    let metamask = network().delegates[0];
    for (delegate, acting) in [(metamask, OWN), (OWN, metamask)] {
        let intent = Intent { route: Route::Delegate(delegate), ..intent() };
        with_code(&live, acts(acting), runtime(), private);
        let Acting::With(authorization) = source.acting(&intent).await.unwrap() else { panic!("{acting}") };
        assert_eq!((authorization.implementation, authorization.nonce), (delegate.implementation(), 7));
        assert_eq!(source.delegated(&intent.payer).await.unwrap(), Some(7), "it may be taken away");
        with_code(&live, acts(delegate), runtime(), private);
        assert_eq!(source.acting(&intent).await.unwrap(), Acting::Already);
    }
    with_code(&live, acts(metamask), runtime(), private);
    assert_eq!(source.readiness(&intent()).await.unwrap(), Readiness::Ready);
}

/// The wallet need not have code that would answer.
#[tokio::test]
async fn whether_a_nonce_was_used_is_read_in_the_wallets_storage() {
    let (live, source) = one().await;
    let ledger = mint::chain(1, (1..=30).map(|nonce| vec![Tx { nonce, value: 1, ..Tx::default() }]).collect());
    let at = Ledger::of(ledger).up_to(30, Some(20)).reference(20);
    for (word, expected) in [(0, Some(false)), (1, Some(true)), (2, None)] {
        live.lie(move |method, params| {
            (method == "eth_getStorageAt").then(|| {
                let nonce = B256::from(intent().key().evm_nonce());
                let of_mapping = hex!("5667e0d389c222d6da0c9b91687fae778b1778b9aae280c59d26dd15f27a4100");
                let slot = keccak256([nonce.as_slice(), &of_mapping].concat());
                assert_eq!(params[0], json!(intent().payer.to_string()));
                assert_eq!((&params[1], &params[2]["blockHash"]), (&json!(slot), &json!(at.hash.to_string())));
                Ok(json!(format!("0x{word:064x}")))
            })
        });
        assert_eq!(source.is_used(&intent(), &at).await.ok(), expected, "{word}");
    }
}
