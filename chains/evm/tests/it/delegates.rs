//! What a block shows of payments by a delegate, and what is asked of endpoints before and for them.

use alloy::hex;
use alloy::primitives::{Address as Plain, B256, Bytes, Log, LogData, U256, keccak256};
use landfall_chain::{
    Acting, Address, AssetId, Authorization, BlockSource, Carried, Delegate, Effect, Intent, IntentKey, Mark, Native,
    Network, PayingChain, Quote, Read, ReadProof, Readiness, Route, SignedAuthorization, SignedIntent, SourceErrorKind,
};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::mint::{self, Tx, log, transfer};
use crate::node::{self, Answer, Ledger, Live, Node, led_by_first};

const STRANGER: Plain = Plain::repeat_byte(0x57);
const DESTINATION: Plain = Plain::repeat_byte(2);
const USDT: Plain = alloy::primitives::address!("dAC17F958D2ee523a2206206994597C13D831ec7");
const LISTED: Read = Read { proof: ReadProof::Candidate, ..Read::FULL };

fn fixture() -> Value {
    serde_json::from_str(include_str!("../../testdata/delegation.json")).unwrap()
}

fn network() -> Network {
    Network { native: Native::TOP_LEVEL, ..node::mainnet() }
}

fn contracts() -> [Address; 5] {
    let Delegate::Metamask { implementation, manager, ids, times, executions } = node::mainnet().delegates[0] else {
        panic!("it is listed")
    };
    [implementation, manager, ids, times, executions]
}

fn plain(address: Address) -> Plain {
    Plain::from_slice(address.as_bytes())
}

fn payer() -> Plain {
    fixture()["payer_key"].as_str().unwrap().parse().unwrap()
}

fn key() -> IntentKey {
    IntentKey::of("eip155:84532", &hex!("bac872c096568527b18ffc8f02a10278"))
}

/// The logs of a transaction that anvil mined, with the real contracts: `UsedId`, then `RedeemedDelegation`.
fn logs() -> [Log; 2] {
    let logs = fixture()["logs"].as_array().unwrap().clone();
    let one = |at: usize| {
        let topics =
            logs[at]["topics"].as_array().unwrap().iter().map(|topic| topic.as_str().unwrap().parse().unwrap());
        let data: Bytes = logs[at]["data"].as_str().unwrap().parse().unwrap();
        let address = logs[at]["address"].as_str().unwrap().parse().unwrap();
        Log { address, data: LogData::new_unchecked(topics.collect(), data) }
    };
    [one(0), one(1)]
}

/// The same of a token: what the manager logs has another execution.
fn token_logs() -> [Log; 2] {
    let [used, redeemed] = logs();
    let native = [DESTINATION.as_slice(), &U256::from(5).to_be_bytes::<32>()].concat();
    let arguments = [DESTINATION.into_word().0, U256::from(5).to_be_bytes::<32>()].concat();
    let data = [USDT.as_slice(), &[0; 32], &hex!("a9059cbb"), &arguments].concat();
    // The terms stand last of the caveats, before the signature: they may grow by two words where that moves too.
    let text = hex::encode(&redeemed.data.data);
    let (old, new) = (hex::encode(&native), hex::encode(&data));
    let at = text.find(&old).unwrap();
    let length_at = at - 64;
    assert_eq!(&text[length_at..at], &format!("{:064x}", native.len()));
    let padded = |length: usize| length.next_multiple_of(32) * 2;
    let (before, after) = (&text[..length_at], &text[at + padded(native.len())..]);
    let filled = format!("{new:0<width$}", width = padded(data.len()));
    let grown = (padded(data.len()) - padded(native.len())) / 2;
    let mut text = format!("{before}{:064x}{filled}{after}", data.len());
    // The place of the args behind the terms, and that of the signature behind the caveats, counted from the delegation.
    let shift = |text: &mut String, word_at: usize| {
        let place = usize::from_str_radix(&text[word_at..word_at + 64], 16).unwrap();
        text.replace_range(word_at..word_at + 64, &format!("{:064x}", place + grown));
    };
    shift(&mut text, length_at - 64);
    shift(&mut text, 64 + 5 * 64);
    let data = Bytes::from(hex::decode(text).unwrap());
    let topics = redeemed.data.topics().to_vec();
    [used, Log { address: redeemed.address, data: LogData::new_unchecked(topics, data) }]
}

async fn marks_of(network: Network, txs: Vec<Vec<Log>>, read: Read) -> Vec<Mark> {
    let txs = (0..).zip(txs).map(|(nonce, logs)| Tx { nonce, logs, ..Tx::default() });
    let ledger = Ledger::of(mint::chain(5, vec![txs.collect()]));
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    node.source(network).blocks(5..=5, read).await.unwrap().remove(0).marks
}

fn shown(marks: &[Mark]) -> Vec<(Address, IntentKey, AssetId, Effect)> {
    marks.iter().map(|mark| (mark.payer, mark.key, mark.asset, mark.effect)).collect()
}

fn paid(asset: AssetId) -> (Address, IntentKey, AssetId, Effect) {
    let effect = Effect::Paid { destination: Address::Evm(DESTINATION.into()), amount: U256::from(5) };
    (Address::Evm(payer().into()), key(), asset, effect)
}

#[tokio::test]
async fn a_use_that_the_manager_made_and_its_own_account_of_it_are_a_payment() {
    for read in [Read::FULL, LISTED] {
        let marks = marks_of(network(), vec![Vec::new(), logs().to_vec()], read).await;
        assert_eq!(shown(&marks), [paid(AssetId::Native)], "{read:?}");
    }
    let mut without = network();
    without.delegates.clear();
    assert_eq!(marks_of(without, vec![logs().to_vec()], Read::FULL).await, []);
}

/// `IdEnforcer.beforeHook` is public: anybody may log a use with himself as the sender.
#[tokio::test]
async fn a_forged_use_shows_nothing() {
    let [used, redeemed] = logs();
    let topics = used.data.topics();
    let id = used.data.data.as_ref();
    let with = |topics: &[B256], data: &[u8]| log(used.address, topics, data);
    let by_stranger = with(&[topics[0], STRANGER.into_word(), topics[2], topics[3]], id);
    let elsewhere = Log { address: STRANGER, ..used.clone() };
    let other_id = with(topics, &U256::from(7).to_be_bytes::<32>());
    let other_wallet = with(&[topics[0], topics[1], STRANGER.into_word(), topics[3]], id);
    let told_elsewhere = Log { address: STRANGER, ..redeemed.clone() };
    let cut = |bytes: usize| log(redeemed.address, redeemed.data.topics(), &redeemed.data.data[..bytes]);
    let cases = [
        ("a stranger called the enforcer", vec![by_stranger.clone(), redeemed.clone()]),
        ("another contract", vec![elsewhere, redeemed.clone()]),
        ("another id", vec![other_id, redeemed.clone()]),
        ("another wallet", vec![other_wallet, redeemed.clone()]),
        ("no account of it", vec![used.clone()]),
        ("another contract's account of it", vec![used.clone(), told_elsewhere]),
        ("an account that ends early", vec![used.clone(), cut(64)]),
        ("no account at all", vec![used.clone(), cut(0)]),
        ("no use", vec![redeemed.clone()]),
        ("too few topics", vec![with(&topics[..3], id), redeemed.clone()]),
        ("too little data", vec![with(topics, &id[..31]), redeemed.clone()]),
    ];
    for (what, logs) in cases {
        assert_eq!(marks_of(network(), vec![logs], Read::FULL).await, [], "{what}");
    }
    let both = vec![vec![by_stranger.clone()], vec![used.clone(), redeemed.clone()]];
    assert_eq!(shown(&marks_of(network(), both, Read::FULL).await), [paid(AssetId::Native)], "the true one counts");
    // What stands in two transactions is not one account.
    assert_eq!(marks_of(network(), vec![vec![used], vec![redeemed]], Read::FULL).await, []);
}

#[tokio::test]
async fn a_token_was_paid_only_if_its_own_log_says_so_too() {
    let [used, redeemed] = token_logs();
    let usdt = AssetId::Token(Address::Evm(USDT.into()));
    let (payer, nothing) = (payer(), (paid(usdt).0, key(), usdt, Effect::Nothing));
    let with = |between: Vec<Log>| {
        let mut logs = vec![used.clone()];
        logs.extend(between);
        logs.push(redeemed.clone());
        vec![logs]
    };
    let exact = transfer(USDT, payer, DESTINATION, 5);
    let cases = [
        ("its own log", with(vec![exact.clone()]), vec![paid(usdt)]),
        ("a token that returns false", with(Vec::new()), vec![nothing]),
        ("another payer's", with(vec![transfer(USDT, STRANGER, DESTINATION, 5)]), vec![nothing]),
        ("another contract's", with(vec![transfer(STRANGER, payer, DESTINATION, 5)]), vec![nothing]),
        ("less", with(vec![transfer(USDT, payer, DESTINATION, 4)]), Vec::new()),
        ("to somebody else", with(vec![transfer(USDT, payer, STRANGER, 5)]), Vec::new()),
        (
            "less, and a fee",
            with(vec![transfer(USDT, payer, DESTINATION, 4), transfer(USDT, payer, STRANGER, 1)]),
            Vec::new(),
        ),
    ];
    for (what, logs, expected) in cases {
        assert_eq!(shown(&marks_of(network(), logs, Read::FULL).await), expected, "{what}");
    }
    let mut unlisted = network();
    unlisted.assets.retain(|asset| asset.id != usdt);
    assert_eq!(marks_of(unlisted, with(vec![exact]), Read::FULL).await, []);
}

fn intent() -> Intent {
    Intent {
        transfer_id: hex!("bac872c096568527b18ffc8f02a10278"),
        chain_ref: "eip155:1".to_owned(),
        route: Route::Delegate(node::mainnet().delegates[0]),
        asset: AssetId::Native,
        payer: Address::Evm(payer().into()),
        destination: Address::Evm(DESTINATION.into()),
        amount: U256::from(5),
        deadline: 1_800_000_000,
    }
}

fn signed() -> SignedIntent {
    SignedIntent { intent: intent(), signature: vec![27; 65] }
}

async fn one() -> (Live, EvmSource) {
    let paying = |number| vec![Tx { nonce: number, value: 1, ..Tx::default() }];
    let ledger = Ledger::of(mint::chain(1, (1..=30).map(paying).collect())).up_to(30, Some(20));
    let live = Live::start(ledger).await;
    let source = led_by_first(node::mainnet(), &[&live]).await;
    (live, source)
}

fn gas(limit: u64) -> Quote {
    Quote::Gas { limit, surcharge: U256::ZERO }
}

fn acting_code() -> Value {
    json!(format!("0xef0100{}", hex::encode(contracts()[0].as_bytes())))
}

#[tokio::test]
async fn t21_a_payer_without_code_needs_an_authorization_of_its_next_nonce_and_one_with_strange_code_gets_none() {
    let (live, source) = one().await;
    let code = |code: Value| {
        live.lie(move |method, params| match method {
            "eth_getCode" => {
                assert_eq!(params, &json!([intent().payer.to_string(), "latest"]));
                Some(Ok(code.clone()))
            }
            "eth_getTransactionCount" => Some(Ok(json!("0x7"))),
            _ => None,
        });
    };
    code(json!("0x"));
    let expected = Authorization {
        chain_ref: "eip155:1".to_owned(),
        wallet: intent().payer,
        implementation: contracts()[0],
        nonce: 7,
    };
    assert_eq!(source.acting(&intent()).await.unwrap(), Acting::With(expected));
    code(acting_code());
    assert_eq!(source.acting(&intent()).await.unwrap(), Acting::Already);
    for strange in [json!("0x00"), json!(format!("0xef0100{}", "57".repeat(20))), json!("0xef0100")] {
        code(strange);
        assert!(matches!(source.acting(&intent()).await.unwrap(), Acting::Never(_)));
    }
    live.lie(|method, _| (method == "eth_getCode").then(|| Err((-32_000, "boom".to_owned()))));
    assert_eq!(source.acting(&intent()).await.unwrap_err().kind, SourceErrorKind::Transient);
}

#[tokio::test]
async fn t24_nothing_is_signed_for_a_delegate_whose_contracts_have_other_code() {
    let (live, source) = one().await;
    live.lie(|method, _| match method {
        "eth_getCode" => Some(Ok(json!("0x"))),
        "eth_call" => Some(Ok(json!(format!("0x{:064x}", 0)))),
        _ => None,
    });
    let Readiness::NotReady(why) = source.readiness(&intent()).await.unwrap() else { panic!("it has no code") };
    assert_eq!(why, format!("implementation {} of the delegate has no code", contracts()[0]));
    let stranger = Intent { chain_ref: "eip155:8453".to_owned(), ..intent() };
    assert_eq!(source.readiness(&stranger).await.unwrap_err().kind, SourceErrorKind::Permanent);
    assert_eq!(source.acting(&stranger).await.unwrap_err().kind, SourceErrorKind::Permanent);
}

/// The listed contracts have none of their code here: only what is asked of the payment itself is compared.
#[tokio::test]
async fn native_currency_is_tried_as_the_payer_would_pay_it_in_the_same_request() {
    let (live, source) = one().await;
    live.lie(|method, _| match method {
        "eth_getCode" => Some(Ok(json!("0x"))),
        "eth_call" => Some(Ok(json!(format!("0x{:064x}", 0)))),
        _ => None,
    });
    live.take_calls();
    source.readiness(&intent()).await.unwrap();
    let asked = live.take_calls();
    let tried: Vec<&Value> = asked.iter().filter(|(method, _)| method == "eth_estimateGas").map(|(_, it)| it).collect();
    let (payer, to) = (intent().payer.to_string(), intent().destination.to_string());
    // 300,000 gas: so much a recipient may take.
    assert_eq!(tried, [&json!([{ "from": payer, "to": to, "value": "0x5", "gas": "0x493e0" }, "latest"])]);
}

#[tokio::test]
async fn t23_what_carrying_takes_is_tried_with_the_authorization_or_with_its_code_in_place() {
    let (live, source) = one().await;
    let authorization = Authorization {
        chain_ref: "eip155:1".to_owned(),
        wallet: intent().payer,
        implementation: contracts()[0],
        nonce: 7,
    };
    let beside = SignedAuthorization { authorization, signature: vec![27; 65] };
    let sponsor = Address::Evm([0x5f; 20]);
    let paid = Carried::Payment { signed: signed(), authorization: Some(Box::new(beside)) };
    let answer = |with_list: Answer, in_place: Answer| {
        live.lie(move |method, params| {
            (method == "eth_estimateGas").then(|| {
                assert_eq!(params[0]["to"], json!(contracts()[1].to_string()));
                // The recipient has no code, which makes no difference.
                let recipient = &params[2][intent().destination.to_string()];
                assert!(recipient.is_null() || *recipient == json!({ "code": "0x" }));
                if params[0]["authorizationList"].is_null() {
                    let wallet = intent().payer.to_string();
                    assert_eq!(params[2][wallet]["code"], acting_code());
                    return in_place.clone();
                }
                let tuple = &params[0]["authorizationList"][0];
                assert_eq!((&tuple["chainId"], &tuple["nonce"]), (&json!("0x1"), &json!("0x7")));
                assert_eq!(tuple["address"], json!(contracts()[0].to_string()));
                with_list.clone()
            })
        });
    };
    let refused = |words: &str| -> Answer { Err((3, words.to_owned())) };
    let unknown = || -> Answer { Err((-32_602, "unknown field authorizationList".to_owned())) };
    let cases = [
        (Ok(json!("0x64")), Ok(json!("0x32")), gas(120)),
        (unknown(), Ok(json!("0x64")), gas(240)),
        // It ignores the list, so the payer has no code.
        (refused("execution reverted"), Ok(json!("0x64")), gas(240)),
        (refused("execution reverted"), refused("other"), Quote::Refused("execution reverted".to_owned())),
        (unknown(), refused("execution reverted"), Quote::Refused("execution reverted".to_owned())),
    ];
    for (with_list, in_place, expected) in cases {
        answer(with_list, in_place);
        assert_eq!(source.quote(&sponsor, &paid).await.unwrap(), expected);
    }
    answer(unknown(), unknown());
    let error = source.quote(&sponsor, &paid).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
}

/// It takes little from the payer, and all from who pays for the gas: `tx.origin` shows him.
#[tokio::test]
async fn a_recipient_that_takes_more_gas_of_a_sponsor_than_it_may_is_not_carried() {
    let (live, source) = one().await;
    let paid = Carried::Payment { signed: signed(), authorization: None };
    let sponsor = Address::Evm([0x5f; 20]);
    let cases = [
        (400_000, gas(480_000)),
        (460_000, gas(552_000)),
        (
            460_001,
            Quote::Refused(format!(
                "a payment to {} takes 300001 gas of a sponsor, and may take 300000",
                intent().destination
            )),
        ),
    ];
    for (takes, expected) in cases {
        live.lie(move |method, params| {
            let is_bare = params[2][intent().destination.to_string()]["code"] == json!("0x");
            let gas = if is_bare { 160_000 } else { takes };
            (method == "eth_estimateGas").then(|| Ok(json!(format!("{gas:#x}"))))
        });
        assert_eq!(source.quote(&sponsor, &paid).await.unwrap(), expected, "{takes}");
    }
    // A token's recipient runs no code, so it is asked once.
    live.take_calls();
    let token = Intent { asset: AssetId::Token(Address::Evm([3; 20])), ..intent() };
    let signed = SignedIntent { intent: token, ..signed() };
    source.quote(&sponsor, &Carried::Payment { signed, authorization: None }).await.unwrap();
    assert_eq!(live.take_calls().iter().filter(|(method, _)| method == "eth_estimateGas").count(), 1);
}

#[tokio::test]
async fn whether_a_delegate_is_to_be_taken_away_follows_from_the_code_and_the_nonce_on_the_chain() {
    let (live, source) = one().await;
    let wallet = intent().payer;
    let code = |code: Value| {
        live.lie(move |method, _| match method {
            "eth_getCode" => Some(Ok(code.clone())),
            "eth_getTransactionCount" => Some(Ok(json!("0x8"))),
            _ => None,
        });
    };
    code(acting_code());
    let clearing = Authorization::clearing("eip155:1".to_owned(), wallet, 8);
    assert_eq!(source.delegated(&wallet).await.unwrap(), Some(8));
    for nothing in [json!("0x"), json!("0x00"), json!(format!("0xef0100{}", "57".repeat(20)))] {
        code(nothing);
        assert_eq!(source.delegated(&wallet).await.unwrap(), None);
    }
    let ledger = mint::chain(1, (1..=30).map(|nonce| vec![Tx { nonce, value: 1, ..Tx::default() }]).collect());
    let at = Ledger::of(ledger).up_to(30, Some(20)).reference(20);
    for (code, expected) in [(acting_code(), true), (json!("0x"), false)] {
        live.lie(move |method, params| {
            (method == "eth_getCode").then(|| {
                assert_eq!(params, &json!([wallet.to_string(), { "blockHash": at.hash.to_string() }]));
                Ok(code.clone())
            })
        });
        assert_eq!(source.is_delegated(&wallet, &at).await.unwrap(), expected);
    }
    // What a node that ignores authorizations says of them is no answer.
    let signed = SignedAuthorization { authorization: clearing, signature: vec![27; 65] };
    let (sponsor, carried) = (Address::Evm([0x5f; 20]), Carried::Clearings(vec![signed; 2]));
    let answer = |with: u64| {
        live.lie(move |method, params| {
            (method == "eth_estimateGas").then(|| {
                assert_eq!(params[0]["to"], params[0]["from"]);
                let list = params[0]["authorizationList"].as_array();
                let gas = list.map_or(21_000, |list| if list.len() == 2 { with } else { 1 });
                Ok(json!(format!("{gas:#x}")))
            })
        });
    };
    answer(71_000);
    assert_eq!(source.quote(&sponsor, &carried).await.unwrap(), gas(85_200));
    answer(21_000);
    assert_eq!(source.quote(&sponsor, &carried).await.unwrap_err().kind, SourceErrorKind::Transient);
}

#[tokio::test]
async fn whether_an_id_was_used_is_asked_of_its_enforcer() {
    let (live, source) = one().await;
    let ledger = mint::chain(1, (1..=30).map(|nonce| vec![Tx { nonce, value: 1, ..Tx::default() }]).collect());
    let at = Ledger::of(ledger).up_to(30, Some(20)).reference(20);
    for (word, expected) in [(0, false), (1, true)] {
        live.lie(move |method, params| {
            (method == "eth_call").then(|| {
                let [_, manager, ids, ..] = contracts();
                let selector = &keccak256("getIsUsed(address,address,uint256)")[..4];
                let words = [plain(manager).into_word(), payer().into_word(), B256::from(intent().key().evm_nonce())];
                let data = format!("0x{}{}", hex::encode(selector), words.map(hex::encode).concat());
                assert_eq!(params[0], json!({ "to": ids.to_string(), "data": data }));
                Ok(json!(format!("0x{word:064x}")))
            })
        });
        assert_eq!(source.is_used(&intent(), &at).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_delegate_that_a_chain_lacks_has_used_no_id_and_one_with_code_that_answers_nothing_is_no_evidence() {
    let (live, source) = one().await;
    let ledger = mint::chain(1, (1..=30).map(|nonce| vec![Tx { nonce, value: 1, ..Tx::default() }]).collect());
    let at = Ledger::of(ledger).up_to(30, Some(20)).reference(20);
    for (code, expected) in [("0x", Some(false)), ("0x00", None)] {
        live.lie(move |method, params| {
            let [_, _, ids, ..] = contracts();
            match method {
                "eth_call" => Some(Ok(json!("0x"))),
                "eth_getCode" => {
                    assert_eq!(params[0], json!(ids.to_string()));
                    Some(Ok(json!(code)))
                }
                _ => None,
            }
        });
        assert_eq!(source.is_used(&intent(), &at).await.ok(), expected, "{code}");
    }
}
