//! What is asked of endpoints to make guards and to judge them, and what becomes of answers that are wrong, late or
//! contradict each other.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall_chain::{
    Address, AssetId, BlockHash, BlockRef, BroadcastResponse, Chain, Effect, GuardQuote, GuardTerms, Guarded, Intent,
    KeyReport, Maker, Mark, PayingChain, Readiness, Reclaim, ReclaimQuote, Route, SourceErrorKind, TxId, TxLife, TxRef,
    U256, Unpayable,
};
use landfall_cluster::{Before, Fault, Instead, Ledger, Lists, MethodAnswer, Node, Refusal, Tx, When};
use landfall_solana::{SolanaSource, Timings, network, pay};
use serde_json::{Value, json};

use crate::assets::bare;
use crate::fixtures::address;
use crate::holdings::{SYSTEM, account, assert_trusted, tokens, usdc};
use crate::made::{SPL_TOKEN, USDC, associated_of};
use crate::sources::{at, leads, source, source_with, two};

const SPONSOR: Address = Address::Solana([0x5f; 32]);
const PAYER: Address = Address::Solana([9; 32]);
const BOB: Address = Address::Solana([0xb0; 32]);
const AMOUNT: u64 = 5_000_000;
/// What an account without data must have, as the first endpoint says, and as the second does.
const RENT: u64 = 890_880;
const OTHER_RENT: u64 = 445_440;

const RENT_OF: &str = "getMinimumBalanceForRentExemption";
const FEES: &str = "getRecentPrioritizationFees";
const ACCOUNTS: &str = "getMultipleAccounts";
const SIMULATE: &str = "simulateTransaction";
const SEND: &str = "sendTransaction";
const BALANCE: &str = "getBalance";
const SIGNATURES: &str = "getSignaturesForAddress";
const TRANSACTION: &str = "getTransaction";
const FIRST_AVAILABLE: &str = "getFirstAvailableBlock";

/// What is done to two nodes before they are asked.
type Scene = (&'static str, fn(&Node, &Node), Result<bool, SourceErrorKind>);

const NOTHING: Result<bool, SourceErrorKind> = Err(SourceErrorKind::Transient);

/// Of SOL.
fn intent() -> Intent {
    Intent {
        transfer_id: [7; 16],
        chain_ref: network(Chain::SolanaMainnet).unwrap().chain_ref,
        route: Route::Guard { program: None, decimals: 9 },
        asset: AssetId::Native,
        payer: PAYER,
        destination: BOB,
        amount: U256::from(AMOUNT),
        deadline: 1_800_000_000,
    }
}

/// As much of USDC, with the same guard.
fn of_token() -> Intent {
    let program = Some(address(SPL_TOKEN));
    Intent { route: Route::Guard { program, decimals: 6 }, asset: usdc(), ..intent() }
}

fn guard() -> Address {
    intent().guard().unwrap()
}

/// Two nodes that serve those who pay, of which the first is asked first. Slots up to 14 are final.
async fn paying() -> (Node, Node, SolanaSource) {
    let (first, second, source) = two().await;
    for (node, rent) in [(&first, RENT), (&second, OTHER_RENT)] {
        node.ledger().finalize(14);
        serve(node, rent);
    }
    (first, second, source)
}

/// The same with a third one.
async fn three() -> ([Node; 3], SolanaSource) {
    let ledgers = [Ledger::of(10..=16), Ledger::of(10..=15), Ledger::of(10..=15)];
    ledgers.iter().for_each(|ledger| ledger.finalize(14));
    let [first, second, third] = ledgers;
    let nodes = [Node::start(&first).await, Node::start(&second).await, Node::start(&third).await];
    let source = source(&nodes.each_ref());
    leads(&source, 16).await;
    (nodes, source)
}

/// What a node answers to those who pay where nothing goes wrong.
fn serve(node: &Node, rent: u64) {
    node.answer_method(RENT_OF, Ok(json!(rent)));
    let paid = [4, 1, 3, 2].map(|fee| json!({ "slot": 14, "prioritizationFee": fee }));
    node.answer_method(FEES, Ok(json!(paid)));
    node.answer_method(SIMULATE, of_slot(&json!({ "err": null, "unitsConsumed": 1_000, "logs": [] })));
}

/// Both parties of a payment have what it takes, of SOL and of USDC.
fn fund(node: &Node) {
    node.report_account(&BOB.to_string(), account(SYSTEM, RENT, &[]));
    node.report_account(&PAYER.to_string(), account(SYSTEM, 2 * AMOUNT, &[]));
    node.report_account(USDC, account(SPL_TOKEN, 1_461_600, &bare()));
    node.report_account(&held_by(&PAYER), account(SPL_TOKEN, 2_039_280, &tokens(USDC, &PAYER, AMOUNT)));
}

/// Where the USDC of an owner is.
fn held_by(owner: &Address) -> String {
    associated_of(&owner.to_string(), USDC)
}

/// What an attempt is made of that tried well.
fn terms(rent: u64, makes_account: bool) -> GuardTerms {
    GuardTerms { blockhash: at(15).hash, rent, compute_limit: 1_400, compute_price: 4, memo: false, makes_account }
}

fn of_slot(value: &Value) -> MethodAnswer {
    Ok(json!({ "context": { "slot": 15 }, "value": value }))
}

fn error(code: i64, message: &str) -> MethodAnswer {
    Err(json!({ "code": code, "message": message }))
}

/// As a proxy answers that hands on what a node said of a transaction that it did not send.
fn preflight_failure() -> MethodAnswer {
    let err = json!({ "InstructionError": [0, { "Custom": 1 }] });
    let logs = ["Program 11111111111111111111111111111111 invoke [1]", "Transfer: insufficient lamports 5, need 9"];
    Err(json!({
        "code": -32_002,
        "message": "Transaction simulation failed: Error processing Instruction 0: custom program error: 0x1",
        "data": { "accounts": null, "err": err, "logs": logs, "unitsConsumed": 150 },
    }))
}

/// The parameters of the last call of this method.
fn last(node: &Node, method: &str) -> Value {
    node.counts().last[method].clone()
}

/// The transaction without signatures, of so many keys, as it is tried.
fn unsigned(message: &[u8], signers: u8) -> Value {
    let signatures = vec![0; 64 * usize::from(signers)];
    let how = json!({ "encoding": "base64", "sigVerify": false, "commitment": "confirmed" });
    json!([STANDARD.encode([&[signers][..], signatures.as_slice(), message].concat()), how])
}

/// The accounts that a message writes to, by its header: how many sign, how many of them it only reads, how many of the
/// others, and how many accounts there are.
fn written(message: &[u8]) -> BTreeSet<String> {
    let [0x80, signers, read_signers, read, count, keys @ ..] = message else { panic!("{message:?}") };
    let [signers, read_signers, read, count] = [*signers, *read_signers, *read, *count].map(usize::from);
    let is_written = |at: usize| if at < signers { at < signers - read_signers } else { at < count - read };
    let written = keys.chunks(32).take(count).enumerate().filter(|(at, _)| is_written(*at));
    written.map(|(_, key)| bs58::encode(key).into_string()).collect()
}

#[tokio::test]
async fn an_attempt_is_made_of_what_one_endpoint_says_and_priced_by_the_accounts_that_it_writes_to() {
    let (first, second, source) = paying().await;
    let confirmed = json!({ "commitment": "confirmed" });
    for (intent, makes_account) in [(intent(), false), (of_token(), true)] {
        let terms = terms(RENT, makes_account);
        let quoted = source.guard_quote(&SPONSOR, &intent, &at(15)).await.unwrap();
        assert_eq!(quoted, GuardQuote::Terms(terms));
        assert_eq!(last(&first, RENT_OF), json!([0, confirmed]));
        let tried = GuardTerms { compute_limit: 1_400_000, compute_price: 0, ..terms };
        let tried = pay::guarded(&Guarded { sponsor: SPONSOR, intent, terms: tried }).unwrap();
        assert_eq!(last(&first, SIMULATE), unsigned(tried.message(), 2));
        let priced = last(&first, FEES);
        let [Value::Array(keys)] = priced.as_array().unwrap().as_slice() else { panic!("{priced}") };
        let named: BTreeSet<String> = keys.iter().map(|key| key.as_str().unwrap().to_owned()).collect();
        assert_eq!((keys.len(), named), (4, written(tried.message())), "each once");
    }
    let how = json!({ "commitment": "confirmed", "encoding": "base64" });
    assert_eq!(last(&first, ACCOUNTS), json!([[held_by(&BOB)], how]), "whether the recipient's account must be made");
    for method in [RENT_OF, FEES, ACCOUNTS, SIMULATE] {
        assert_eq!(second.calls(method, None), 0, "{method}: what belongs together is one endpoint's");
    }
    assert_trusted(&source);
}

#[tokio::test]
async fn a_guard_is_made_with_one_lamport_more_where_as_much_is_paid() {
    let (_first, _second, source) = paying().await;
    for (amount, rent) in [(RENT - 1, RENT), (RENT, RENT + 1), (RENT + 1, RENT)] {
        let intent = Intent { amount: U256::from(amount), ..intent() };
        let quoted = source.guard_quote(&SPONSOR, &intent, &at(15)).await.unwrap();
        assert_eq!(quoted, GuardQuote::Terms(terms(rent, false)), "{amount}");
    }
}

#[tokio::test]
async fn where_one_endpoint_does_not_say_all_of_an_attempt_another_says_all_of_it() {
    let fees = |of: Value| Ok(json!([{ "slot": 14, "prioritizationFee": 4 }, of]));
    let listed = |accounts: Value| of_slot(&accounts);
    let cases: Vec<(&str, MethodAnswer)> = vec![
        (RENT_OF, Ok(Value::Null)),
        // With it a guard would be none.
        (RENT_OF, Ok(json!(0))),
        (RENT_OF, Ok(json!("890880"))),
        (RENT_OF, Ok(json!(-1))),
        (RENT_OF, Ok(json!({}))),
        (RENT_OF, error(-32_603, "Internal error")),
        (FEES, Ok(Value::Null)),
        (FEES, Ok(json!({}))),
        (FEES, fees(json!({ "slot": 15 }))),
        (FEES, fees(json!({ "slot": 15, "prioritizationFee": "7" }))),
        (FEES, error(-32_005, "Node is behind by 42 slots")),
        (ACCOUNTS, Ok(Value::Null)),
        (ACCOUNTS, listed(Value::Null)),
        (ACCOUNTS, listed(json!([]))),
        (ACCOUNTS, listed(json!([null, null]))),
        (ACCOUNTS, listed(json!([{ "lamports": 1, "owner": SYSTEM }]))),
        (ACCOUNTS, listed(json!([{ "lamports": 1, "owner": SYSTEM, "data": { "parsed": {} } }]))),
        (ACCOUNTS, listed(json!([{ "lamports": 1, "owner": SYSTEM, "data": ["***", "base64"] }]))),
        (ACCOUNTS, error(-32_016, "Minimum context slot has not been reached")),
        (SIMULATE, Ok(Value::Null)),
        (SIMULATE, of_slot(&Value::Null)),
        (SIMULATE, of_slot(&json!({ "err": null, "logs": [] }))),
        (SIMULATE, of_slot(&json!({ "err": null, "unitsConsumed": null }))),
        (SIMULATE, of_slot(&json!({ "err": null, "unitsConsumed": -1 }))),
        (SIMULATE, error(-32_602, "Invalid params")),
        // Whose lamports were too few is not said there in a form that anybody may rely on.
        (SIMULATE, preflight_failure()),
        (SIMULATE, error(-32_002, "Transaction simulation failed: Blockhash not found")),
    ];
    for (method, answer) in cases {
        let (first, _second, source) = paying().await;
        first.answer_method(method, answer.clone());
        let quoted = source.guard_quote(&SPONSOR, &of_token(), &at(15)).await.unwrap();
        assert_eq!(quoted, GuardQuote::Terms(terms(OTHER_RENT, true)), "{method} {answer:?}");
        assert_eq!(first.calls(method, None), 1, "{method} {answer:?}: it was asked first");
        assert_trusted(&source);
        let (first, second, source) = paying().await;
        for node in [&first, &second] {
            node.answer_method(method, answer.clone());
        }
        let nothing = source.guard_quote(&SPONSOR, &of_token(), &at(15)).await.unwrap_err();
        assert_eq!(nothing.kind, SourceErrorKind::Transient, "{method} {answer:?}");
        assert_trusted(&source);
    }
}

#[tokio::test]
async fn rent_and_an_account_that_is_there_are_not_asked_for_twice_by_payments_that_follow_each_other() {
    let (first, second, source) = paying().await;
    let holds = |node: &Node, whose: &Address| {
        node.report_account(&held_by(whose), account(SPL_TOKEN, 2_039_280, &tokens(USDC, whose, AMOUNT)));
    };
    fund(&first);
    holds(&first, &BOB);
    let others = [7, 8, 9].map(|id| Intent { transfer_id: [id; 16], ..of_token() });
    for intent in &others {
        assert_eq!(source.readiness(intent).await.unwrap(), Readiness::Ready);
        let quoted = source.guard_quote(&SPONSOR, intent, &at(15)).await.unwrap();
        assert_eq!(quoted, GuardQuote::Terms(terms(RENT, false)));
    }
    let asked = || [RENT_OF, FEES, ACCOUNTS, SIMULATE].map(|method| first.calls(method, None));
    assert_eq!(asked(), [1, 3, 3, 3], "what is there for each payment is checked, and each is priced and tried");
    // Another one's account is missing, and that is asked for until it is made.
    let to_another = Intent { destination: SPONSOR, ..of_token() };
    first.report_account(&SPONSOR.to_string(), account(SYSTEM, RENT, &[]));
    assert_eq!(source.readiness(&to_another).await.unwrap(), Readiness::Ready);
    let quoted = source.guard_quote(&SPONSOR, &to_another, &at(15)).await.unwrap();
    assert_eq!(quoted, GuardQuote::Terms(terms(RENT, true)));
    holds(&first, &SPONSOR);
    let quoted = source.guard_quote(&SPONSOR, &to_another, &at(15)).await.unwrap();
    assert_eq!(quoted, GuardQuote::Terms(terms(RENT, false)));
    assert_eq!(asked(), [1, 5, 6, 5]);
    // Another endpoint is asked for its own.
    first.answer_method(SIMULATE, error(-32_603, "Internal error"));
    let quoted = source.guard_quote(&SPONSOR, &others[0], &at(15)).await.unwrap();
    assert_eq!(quoted, GuardQuote::Terms(terms(OTHER_RENT, true)));
    assert_eq!((second.calls(RENT_OF, None), second.calls(ACCOUNTS, None)), (1, 1));
    // What a try failed with is asked for again, and what stands otherwise after two seconds.
    first.answer_method(SIMULATE, of_slot(&json!({ "err": "AccountInUse", "logs": [] })));
    let quoted = source.guard_quote(&SPONSOR, &others[0], &at(15)).await.unwrap();
    assert!(matches!(quoted, GuardQuote::Refused(_)), "{quoted:?}");
    serve(&first, RENT + 7);
    first.report_account(&held_by(&BOB), Value::Null);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let quoted = source.guard_quote(&SPONSOR, &others[0], &at(15)).await.unwrap();
    assert_eq!(quoted, GuardQuote::Terms(terms(RENT + 7, true)));
    assert_trusted(&source);
}

#[tokio::test]
async fn an_account_that_its_recipient_gave_away_is_paid_neither_at_first_nor_by_a_later_attempt() {
    let (first, _second, source) = paying().await;
    fund(&first);
    let given = account(SPL_TOKEN, 2_039_280, &tokens(USDC, &SPONSOR, 0));
    first.report_account(&held_by(&BOB), given);
    let why = format!("belongs to {SPONSOR} now");
    let found = source.readiness(&of_token()).await.unwrap();
    let Readiness::Unpayable(Unpayable::Destination, said) = found else { panic!("{found:?}") };
    assert!(said.ends_with(&why), "{said}");
    let quoted = source.guard_quote(&SPONSOR, &of_token(), &at(15)).await.unwrap();
    let GuardQuote::Refused(said) = quoted else { panic!("{quoted:?}") };
    assert!(said.ends_with(&why), "{said}");
    assert_eq!(first.calls(SIMULATE, None), 0, "nothing is tried");
    assert_trusted(&source);
}

#[tokio::test]
async fn what_became_of_a_try_is_no_failure_of_the_endpoint_and_says_whose_lamports_are_too_few() {
    let (first, second, source) = paying().await;
    let refused = |text: &str| GuardQuote::Refused(text.to_owned());
    let cases = [
        (json!("BlockhashNotFound"), json!([]), GuardQuote::NotYet),
        (json!("AccountNotFound"), json!([]), GuardQuote::Poor),
        (json!("InsufficientFundsForFee"), Value::Null, GuardQuote::Poor),
        (json!({ "InsufficientFundsForRent": { "account_index": 0 } }), json!([]), GuardQuote::Poor),
        (json!({ "InstructionError": [0, { "Custom": 1 }] }), json!(["Program failed"]), GuardQuote::Poor),
        (
            json!({ "InsufficientFundsForRent": { "account_index": 2 } }),
            Value::Null,
            refused(r#"{"InsufficientFundsForRent":{"account_index":2}}; "#),
        ),
        // The guard is there.
        (
            json!({ "InstructionError": [0, { "Custom": 0 }] }),
            json!(["Create Account: account Address already in use", "Program failed: custom program error: 0x0"]),
            refused(r#"{"InstructionError":[0,{"Custom":0}]}; "#),
        ),
        (
            json!({ "InstructionError": [3, { "Custom": 1 }] }),
            json!(["Program log: Error: no", "Program log: Error: insufficient\nfunds", "Program failed"]),
            refused(r#"{"InstructionError":[3,{"Custom":1}]}; Program log: Error: insufficient funds"#),
        ),
        (json!("AccountInUse"), json!(["insufficient"]), refused(r#""AccountInUse"; insufficient"#)),
    ];
    for (err, logs, expected) in cases {
        first.answer_method(SIMULATE, of_slot(&json!({ "err": err, "unitsConsumed": 150, "logs": logs })));
        assert_eq!(source.guard_quote(&SPONSOR, &intent(), &at(15)).await.unwrap(), expected, "{err}");
    }
    assert_eq!(second.calls(SIMULATE, None), 0, "an answer is an answer");
    assert_trusted(&source);
}

#[tokio::test]
async fn a_reclaim_is_made_of_what_one_endpoint_says_that_guards_hold_and_is_tried_with_just_that() {
    let (first, second, source) = paying().await;
    let intents = [intent(), Intent { transfer_id: [8; 16], ..intent() }];
    let guards = intents.each_ref().map(|intent| intent.guard().unwrap().to_string());
    let quote = async || source.reclaim_quote(&SPONSOR, &intents, &at(15)).await;
    assert_eq!(quote().await.unwrap(), ReclaimQuote::Absent(vec![0, 1]));
    first.report_account(&guards[1], account(SYSTEM, RENT + 7, &[]));
    first.report_account(&guards[0], account(SYSTEM, 0, &[]));
    assert_eq!(quote().await.unwrap(), ReclaimQuote::Absent(vec![0]), "one without lamports is none");
    first.report_account(&guards[0], account(SYSTEM, RENT, &[]));
    let all = ReclaimQuote::Terms { lamports: vec![RENT, RENT + 7], compute_limit: 1_400 };
    assert_eq!(quote().await.unwrap(), all);
    assert_eq!(last(&first, ACCOUNTS), json!([guards, { "commitment": "confirmed", "encoding": "base64" }]));
    let taken = intents.iter().cloned().zip([RENT, RENT + 7]).collect();
    let tried = Reclaim { sponsor: SPONSOR, guards: taken, blockhash: at(15).hash, compute_limit: 1_400_000 };
    assert_eq!(last(&first, SIMULATE), unsigned(pay::reclaim(&tried).unwrap().message(), 2));
    assert_eq!((second.calls(ACCOUNTS, None), second.calls(SIMULATE, None)), (0, 0));
    for (err, expected) in [
        (json!("BlockhashNotFound"), ReclaimQuote::NotYet),
        (json!("InsufficientFundsForFee"), ReclaimQuote::Poor),
        (json!("AccountInUse"), ReclaimQuote::Refused(r#""AccountInUse"; "#.to_owned())),
    ] {
        first.answer_method(SIMULATE, of_slot(&json!({ "err": err, "logs": [] })));
        assert_eq!(quote().await.unwrap(), expected, "{err}");
    }
    // What one does not say another says, with the lamports that it knows itself.
    guards.iter().for_each(|guard| second.report_account(guard, account(SYSTEM, 5, &[])));
    let of_second = ReclaimQuote::Terms { lamports: vec![5, 5], compute_limit: 1_400 };
    for (method, answer) in [
        (SIMULATE, preflight_failure()),
        (SIMULATE, of_slot(&json!({ "err": null }))),
        (SIMULATE, Ok(Value::Null)),
        (ACCOUNTS, Ok(Value::Null)),
        (ACCOUNTS, error(-32_603, "Internal error")),
    ] {
        serve(&first, RENT);
        first.answer_method(method, answer.clone());
        assert_eq!(quote().await.unwrap(), of_second, "{method} {answer:?}");
        second.answer_method(method, answer.clone());
        assert_eq!(quote().await.unwrap_err().kind, SourceErrorKind::Transient, "{method} {answer:?}");
        second.forget_method(ACCOUNTS);
        serve(&second, OTHER_RENT);
    }
    assert_trusted(&source);
}

#[tokio::test]
async fn what_solana_would_refuse_is_found_before_the_signature_in_what_one_endpoint_reports_of_accounts() {
    let (first, second, source) = paying().await;
    fund(&first);
    for (intent, keys) in [
        (intent(), json!([BOB.to_string(), PAYER.to_string()])),
        (of_token(), json!([BOB.to_string(), PAYER.to_string(), USDC, held_by(&PAYER), held_by(&BOB)])),
    ] {
        assert_eq!(source.readiness(&intent).await.unwrap(), Readiness::Ready);
        assert_eq!(last(&first, ACCOUNTS), json!([keys, { "commitment": "confirmed", "encoding": "base64" }]));
    }
    assert_eq!(last(&first, RENT_OF), json!([0, { "commitment": "confirmed" }]));
    let (bob, payer, from) = (BOB.to_string(), PAYER.to_string(), held_by(&PAYER));
    let sol = |lamports| account(SYSTEM, lamports, &[]);
    let of = |owner: &Address, amount| account(SPL_TOKEN, 2_039_280, &tokens(USDC, owner, amount));
    let cases = [
        (intent(), &payer, sol(AMOUNT - 1), Unpayable::Funds, "has 4999999 lamports, and 5000000 are to be paid"),
        (intent(), &payer, Value::Null, Unpayable::Funds, "has 0 lamports"),
        (intent(), &payer, sol(AMOUNT + RENT - 1), Unpayable::Funds, "would keep 890879 lamports"),
        (intent(), &bob, of(&SPONSOR, 1), Unpayable::Destination, "is a token account"),
        (of_token(), &from, of(&PAYER, AMOUNT - 1), Unpayable::Funds, "has 4999999 base units"),
        (of_token(), &from, Value::Null, Unpayable::Funds, "has 0 base units"),
    ];
    for (intent, key, reported, what, part) in cases {
        first.report_account(key, reported);
        let found = source.readiness(&intent).await.unwrap();
        let Readiness::Unpayable(found, why) = found else { panic!("{part}: {found:?}") };
        assert!(found == what && why.contains(part), "{found:?} {why}");
        fund(&first);
    }
    for (mint, part) in [(Value::Null, "it has no account"), (sol(1), "it is not kept by the program that is listed")] {
        first.report_account(USDC, mint);
        let Readiness::NotReady(why) = source.readiness(&of_token()).await.unwrap() else { panic!("{part}") };
        assert!(why.contains(part), "{why}");
    }
    let itself = Intent { destination: guard(), ..intent() };
    first.forget_counts();
    let itself = source.readiness(&itself).await.unwrap();
    assert!(matches!(itself, Readiness::Unpayable(Unpayable::Destination, _)), "{itself:?}");
    assert_eq!((first.calls(ACCOUNTS, None), second.calls(ACCOUNTS, None)), (0, 0));
    assert_trusted(&source);
}

#[tokio::test]
async fn an_endpoint_that_does_not_report_accounts_or_rent_says_nothing_against_a_payment() {
    for (method, answer) in [
        (ACCOUNTS, Ok(Value::Null)),
        (ACCOUNTS, of_slot(&Value::Null)),
        (ACCOUNTS, of_slot(&json!([{ "lamports": 1 }, null]))),
        (ACCOUNTS, error(-32_005, "Node is behind by 42 slots")),
        (RENT_OF, Ok(Value::Null)),
        (RENT_OF, Ok(json!("890880"))),
        (RENT_OF, error(-32_603, "Internal error")),
    ] {
        let (first, second, source) = paying().await;
        // By the first one's own record nothing could be paid.
        fund(&second);
        if method == RENT_OF {
            fund(&first);
        }
        first.answer_method(method, answer.clone());
        assert_eq!(source.readiness(&intent()).await.unwrap(), Readiness::Ready, "{method} {answer:?}");
        assert_trusted(&source);
        let (first, second, source) = paying().await;
        for node in [&first, &second] {
            fund(node);
            node.answer_method(method, answer.clone());
        }
        let nothing = source.readiness(&intent()).await.unwrap_err();
        assert_eq!(nothing.kind, SourceErrorKind::Transient, "{method} {answer:?}");
        assert_trusted(&source);
    }
}

#[tokio::test]
async fn accounts_in_another_form_than_was_asked_for_cost_an_endpoint_nothing_of_its_standing() {
    let half = account(SPL_TOKEN, 1_461_600, &bare()[..40]);
    let wallet = account(SYSTEM, 2 * AMOUNT, &[]);
    let unread = json!({ "lamports": 1, "owner": SYSTEM, "data": ["***", "base64"] });
    for accounts in
        [json!([]), json!([null]), json!([unread, wallet, null, null, null]), json!([wallet, wallet, half, null, null])]
    {
        let (first, second, source) = paying().await;
        fund(&second);
        first.answer_method(ACCOUNTS, of_slot(&accounts));
        assert_eq!(source.readiness(&of_token()).await.unwrap(), Readiness::Ready, "{accounts}");
        assert_trusted(&source);
        first.forget_counts();
        second.report_account(&guard().to_string(), account(SYSTEM, RENT, &[]));
        first.answer_method(ACCOUNTS, of_slot(&json!([unread, null])));
        let quoted = source.reclaim_quote(&SPONSOR, &[intent()], &at(15)).await.unwrap();
        assert_eq!(quoted, ReclaimQuote::Terms { lamports: vec![RENT], compute_limit: 1_400 }, "{accounts}");
        assert_eq!(first.calls(ACCOUNTS, None), 1, "it was asked first");
        assert_trusted(&source);
    }
}

#[tokio::test]
async fn what_an_address_owns_is_asked_for_as_confirmed_and_of_another_where_one_does_not_say() {
    let (first, second, source) = paying().await;
    first.answer_method(BALANCE, of_slot(&json!(7)));
    second.answer_method(BALANCE, of_slot(&json!(8)));
    assert_eq!(source.owned(&SPONSOR).await.unwrap(), U256::from(7));
    assert_eq!(last(&first, BALANCE), json!([SPONSOR.to_string(), { "commitment": "confirmed" }]));
    first.answer_method(BALANCE, of_slot(&Value::Null));
    assert_eq!(source.owned(&SPONSOR).await.unwrap(), U256::from(8), "null is not 0");
    second.answer_method(BALANCE, error(-32_603, "Internal error"));
    assert_eq!(source.owned(&SPONSOR).await.unwrap_err().kind, SourceErrorKind::Transient);
}

#[tokio::test]
async fn an_endpoint_that_does_not_say_what_an_address_owns_serves_all_else_as_before() {
    for answer in [Ok(Value::Null), of_slot(&json!("7")), error(-32_603, "Internal error")] {
        let (first, second, source) = paying().await;
        first.answer_method(BALANCE, answer);
        second.answer_method(BALANCE, of_slot(&json!(8)));
        assert_eq!(source.owned(&SPONSOR).await.unwrap(), U256::from(8));
        assert_trusted(&source);
    }
}

#[tokio::test]
async fn what_is_no_intent_of_this_chain_is_refused_for_good_and_asks_nobody() {
    let (first, second, source) = paying().await;
    let erc3009 = Route::Erc3009 { name: "USD Coin".to_owned(), version: "2".to_owned() };
    for intent in [
        Intent { chain_ref: "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1".to_owned(), ..intent() },
        Intent { chain_ref: "eip155:1".to_owned(), ..intent() },
        Intent { route: erc3009, ..of_token() },
    ] {
        for error in [
            source.readiness(&intent).await.unwrap_err(),
            source.guard_quote(&SPONSOR, &intent, &at(15)).await.unwrap_err(),
            source.reclaim_quote(&SPONSOR, std::slice::from_ref(&intent), &at(15)).await.unwrap_err(),
            source.is_used(&intent, &at(14)).await.unwrap_err(),
            source.was_made(&intent, 9, &at(14)).await.unwrap_err(),
            source.maker(&intent, &at(14)).await.unwrap_err(),
        ] {
            assert_eq!(error.kind, SourceErrorKind::Permanent, "{error}");
        }
    }
    let no_program = Intent { route: Route::Guard { program: None, decimals: 6 }, ..of_token() };
    assert_eq!(source.readiness(&no_program).await.unwrap_err().kind, SourceErrorKind::Permanent);
    let quoted = source.guard_quote(&SPONSOR, &no_program, &at(15)).await.unwrap_err();
    assert_eq!(quoted.kind, SourceErrorKind::Permanent);
    for method in [RENT_OF, FEES, ACCOUNTS, SIMULATE, SIGNATURES, TRANSACTION, FIRST_AVAILABLE] {
        assert_eq!((first.calls(method, None), second.calls(method, None)), (0, 0), "{method}");
    }
}

#[tokio::test]
async fn whether_a_guard_stands_counts_only_at_what_is_final_and_as_two_report_it_alike() {
    let (first, second, source) = paying().await;
    let (stands, emptied, absent) = (account(SYSTEM, RENT, &[]), account(SYSTEM, 0, &[]), Value::Null);
    // Somebody else's lamports, and an account that was given away: nothing is made there a second time.
    let (gift, given_away) = (account(SYSTEM, 1, &[]), account(SPL_TOKEN, RENT, &tokens(USDC, &BOB, 1)));
    let cases = [
        ([&stands, &stands], Some(true)),
        ([&gift, &given_away], Some(true)),
        ([&absent, &absent], Some(false)),
        ([&emptied, &absent], Some(false)),
        ([&stands, &absent], None),
        ([&absent, &stands], None),
        ([&emptied, &gift], None),
    ];
    for (reported, expected) in cases {
        for (node, reported) in [&first, &second].into_iter().zip(reported) {
            node.forget_counts();
            node.report_account(&guard().to_string(), reported.clone());
        }
        let answer = source.key_report(&intent(), &at(14)).await;
        let Some(is_used) = expected else {
            let error = answer.unwrap_err();
            let by_first = reported[0]["lamports"].as_u64().unwrap_or_default() > 0;
            let said = format!("{} reports {by_first}, {} reports {}", first.id(), second.id(), !by_first);
            assert!(error.kind == SourceErrorKind::Transient && error.to_string().contains(&said), "{error}");
            continue;
        };
        let reported_by = [&first, &second].map(|node| node.id().to_owned()).to_vec();
        assert_eq!(answer.unwrap(), KeyReport { is_used, reported_by }, "{reported:?}");
        let how = json!({
            "commitment": "finalized", "encoding": "base64", "minContextSlot": 14,
            "dataSlice": { "offset": 0, "length": 165 },
        });
        for node in [&first, &second] {
            assert_eq!(last(node, ACCOUNTS), json!([[guard().to_string()], how]));
            assert_eq!(node.calls(ACCOUNTS, None), 1);
        }
    }
    assert_trusted(&source);
}

/// That nothing is known of the guard, and that nobody is thought the less of for it.
async fn assert_open(source: &SolanaSource, what: &str) {
    let answer = source.is_used(&intent(), &at(14)).await.map_err(|error| error.kind);
    assert_eq!(answer, NOTHING, "{what}");
    assert_trusted(source);
}

#[tokio::test]
async fn t4_no_answer_is_neither_used_nor_unused() {
    let (first, second, source) = paying().await;
    let of = |slot: u64, value: Value| -> MethodAnswer { Ok(json!({ "context": { "slot": slot }, "value": value })) };
    for answer in [
        of(14, json!([])),
        of(14, json!([null, null])),
        of(14, Value::Null),
        // It is behind, whatever it was asked for.
        of(13, json!([null])),
        Ok(json!({ "context": {}, "value": [null] })),
        Ok(json!({ "context": null, "value": [null] })),
        Ok(json!({ "value": [null] })),
        Ok(Value::Null),
        of(14, json!([{ "owner": SYSTEM, "data": ["", "base64"] }])),
        of(14, json!([{ "lamports": "0", "owner": SYSTEM, "data": ["", "base64"] }])),
        error(-32_016, "Minimum context slot has not been reached"),
        preflight_failure(),
    ] {
        first.forget_counts();
        first.answer_method(ACCOUNTS, answer.clone());
        assert_open(&source, &format!("{answer:?} of one")).await;
        assert_eq!(first.calls(ACCOUNTS, None), 1, "{answer:?}");
        second.answer_method(ACCOUNTS, answer.clone());
        assert_open(&source, &format!("{answer:?} of both")).await;
        second.forget_method(ACCOUNTS);
    }
    // Where an operator lets one suffice, one does.
    source.set_agree(1).unwrap();
    assert!(!source.is_used(&intent(), &at(14)).await.unwrap());
    source.set_agree(2).unwrap();
    first.forget_method(ACCOUNTS);
    assert!(!source.is_used(&intent(), &at(14)).await.unwrap());
    let not_final = source.is_used(&intent(), &at(15)).await.unwrap_err();
    assert_eq!(not_final.kind, SourceErrorKind::Transient, "{not_final}");
    first.lag(3);
    assert_open(&source, "a node that is at slot 13").await;
}

#[tokio::test]
async fn t4_neither_a_refusal_nor_a_broken_connection_nor_silence_is_an_unused_guard() {
    let (first, second, source) = paying().await;
    let transport = [
        Fault::Null,
        Fault::Reset,
        Fault::ServerError,
        Fault::Page,
        Fault::Truncated,
        Fault::BrokenGzip,
        Fault::WrongId,
        Fault::TooManyRequests { retry_after_secs: None },
    ];
    let mut struck = 0;
    for fault in Refusal::ALL.into_iter().map(Fault::Refuse).chain(transport) {
        let before = first.struck(fault);
        first.confine(ACCOUNTS);
        first.misbehave(fault, When::Always);
        let answer = source.is_used(&intent(), &at(14)).await;
        if first.struck(fault) > before {
            struck += 1;
            assert_eq!(answer.map_err(|error| error.kind), NOTHING, "{fault:?}");
        } else {
            assert!(!answer.unwrap(), "{fault:?}: agave says no such thing of an account");
        }
        assert_trusted(&source);
        first.behave();
    }
    assert!(struck > transport.len() + 10, "{struck}");
    assert!(!source.is_used(&intent(), &at(14)).await.unwrap());
    let limit = Duration::from_secs(2);
    let timings = Timings { call_timeout: limit, connect_timeout: limit, ..Timings::PRODUCTION };
    let impatient = source_with(&[&first, &second], timings);
    leads(&impatient, 16).await;
    first.confine(ACCOUNTS);
    first.set_silent(true);
    [&first, &second].into_iter().for_each(Node::forget_counts);
    let answer = impatient.is_used(&intent(), &at(14)).await.map_err(|error| error.kind);
    assert_eq!(answer, NOTHING, "silence");
    assert_eq!((first.calls(ACCOUNTS, None), second.calls(ACCOUNTS, None)), (1, 1));
}

#[tokio::test]
async fn a_third_endpoint_fills_in_for_one_that_fails_and_one_that_contradicts_keeps_it_open() {
    let ([first, second, third], source) = three().await;
    let stands = |node: &Node| node.report_account(&guard().to_string(), account(SYSTEM, RENT, &[]));
    first.answer_method(ACCOUNTS, Ok(Value::Null));
    let KeyReport { is_used, mut reported_by } = source.key_report(&intent(), &at(14)).await.unwrap();
    let mut two = [&second, &third].map(|node| node.id().to_owned());
    reported_by.sort_unstable();
    two.sort_unstable();
    assert_eq!((is_used, &reported_by[..]), (false, &two[..]), "two are enough");
    [&second, &third].into_iter().for_each(stands);
    assert!(source.is_used(&intent(), &at(14)).await.unwrap());
    third.report_account(&guard().to_string(), Value::Null);
    assert_open(&source, "one of three says nothing, and the others differ").await;
    stands(&third);
    first.forget_method(ACCOUNTS);
    assert_open(&source, "the first of three differs from the others").await;
}

/// A transaction of somebody else that names the guard.
fn naming(id: u64, succeeds: bool) -> Tx {
    let tx = Tx::sol(id, BOB, guard(), 1);
    if succeeds { tx } else { Tx::failing(id, BOB, &tx.payments) }
}

fn put(nodes: &[&Node], slot: u64, tx: &Tx) {
    nodes.iter().for_each(|node| node.ledger().put(slot, tx.clone()));
}

fn ends_after(node: &Node, count: usize) {
    node.set_lists(Lists { ends_after: Some(count), ..Lists::default() });
}

/// The node refuses calls of this method.
fn refuse(node: &Node, method: &'static str, refusal: Refusal) {
    node.confine(method);
    node.misbehave(Fault::Refuse(refusal), When::Always);
}

#[tokio::test]
async fn that_a_guard_never_was_counts_only_as_two_list_nothing_of_it_and_keep_all_of_that_time() {
    let scenes: [Scene; 17] = [
        ("nobody named it", |_, _| (), Ok(false)),
        ("one that succeeded named it", |one, other| put(&[one, other], 12, &naming(1, true)), Ok(true)),
        ("one that failed named it", |one, other| put(&[one, other], 12, &naming(1, false)), Ok(false)),
        ("not final", |one, other| put(&[one, other], 15, &naming(1, true)), Ok(false)),
        ("the first alone lists it", |one, _| put(&[one], 12, &naming(1, true)), NOTHING),
        ("the second alone lists it", |_, other| put(&[other], 12, &naming(1, true)), NOTHING),
        ("one keeps less", |one, _| one.prune(11), NOTHING),
        ("both keep less", |one, other| [one, other].iter().for_each(|node| node.prune(11)), NOTHING),
        ("both keep just enough", |one, other| [one, other].iter().for_each(|node| node.prune(10)), Ok(false)),
        (
            "both keep less, and list it",
            |one, other| {
                put(&[one, other], 12, &naming(1, true));
                [one, other].iter().for_each(|node| node.prune(11));
            },
            Ok(true),
        ),
        ("one has no history", |one, _| refuse(one, SIGNATURES, Refusal::HistoryNotAvailable), NOTHING),
        ("one leaves the guard out", |_, other| refuse(other, SIGNATURES, Refusal::KeyExcluded), NOTHING),
        ("no list", |one, _| one.answer_method(SIGNATURES, Ok(Value::Null)), NOTHING),
        ("a list of something else", |one, _| one.answer_method(SIGNATURES, Ok(json!([{ "slot": 12 }]))), NOTHING),
        ("one does not say what it keeps", |one, _| one.answer_method(FIRST_AVAILABLE, Ok(Value::Null)), NOTHING),
        ("one cannot say what it keeps", |one, _| refuse(one, FIRST_AVAILABLE, Refusal::Internal), NOTHING),
        (
            "one lists nothing of it",
            |one, other| {
                put(&[one, other], 12, &naming(1, true));
                ends_after(one, 0);
            },
            NOTHING,
        ),
    ];
    for (what, prepare, expected) in scenes {
        let (first, second, source) = paying().await;
        prepare(&first, &second);
        let answer = source.was_made(&intent(), 9, &at(14)).await.map_err(|error| error.kind);
        assert_eq!(answer, expected, "{what}");
        let asked = last(&first, SIGNATURES);
        assert_eq!((&asked[0], &asked[1]["commitment"]), (&json!(guard().to_string()), &json!("finalized")), "{what}");
        assert_trusted(&source);
    }
}

/// A guard that was made, and so much in front of it that failed that it is not on the first page of its list.
fn bury(nodes: &[&Node]) {
    put(nodes, 12, &naming(1, true));
    let failed: Vec<Tx> = (2..1_002).map(|id| naming(id, false)).collect();
    for node in nodes {
        node.ledger().amend(13, |block| block.txs.extend(failed.iter().cloned()));
    }
}

#[tokio::test]
async fn a_guard_is_searched_for_behind_a_page_of_what_failed() {
    let (first, second, source) = paying().await;
    bury(&[&first, &second]);
    assert!(source.was_made(&intent(), 9, &at(14)).await.unwrap());
    assert!(first.calls(SIGNATURES, None) >= 2 && second.calls(SIGNATURES, None) >= 2);
    for before in [Before::Ignored, Before::Unknown] {
        first.set_lists(Lists { before, ..Lists::default() });
        let answer = source.was_made(&intent(), 9, &at(14)).await.map_err(|error| error.kind);
        assert_eq!(answer, NOTHING, "{before:?}");
        assert_trusted(&source);
    }
}

#[tokio::test]
async fn a_page_that_is_short_is_not_taken_for_the_end_of_what_named_a_guard() {
    let (first, second, source) = paying().await;
    put(&[&first, &second], 12, &naming(1, true));
    for node in [&first, &second] {
        [2, 3].into_iter().for_each(|id| put(&[node], 13, &naming(id, false)));
        node.set_lists(Lists { page_max: 2, ..Lists::default() });
    }
    let answer = source.was_made(&intent(), 9, &at(14)).await.map_err(|error| error.kind);
    assert_ne!(answer, Ok(false), "it was made in slot 12, and nodes may give less than was asked for");
}

#[tokio::test]
async fn nothing_behind_a_signature_that_a_node_does_not_know_is_not_taken_for_the_end_of_what_named_a_guard() {
    let (first, second, source) = paying().await;
    bury(&[&first, &second]);
    for node in [&first, &second] {
        node.set_lists(Lists { before: Before::Nothing, ..Lists::default() });
    }
    let answer = source.was_made(&intent(), 9, &at(14)).await.map_err(|error| error.kind);
    assert_ne!(answer, Ok(false), "it was made in slot 12");
}

#[tokio::test]
async fn the_list_of_a_node_that_has_not_come_so_far_does_not_say_that_a_guard_never_was() {
    let (first, second, source) = paying().await;
    put(&[&first, &second], 12, &naming(1, true));
    [&first, &second].into_iter().for_each(|node| node.call_final(11));
    let answer = source.was_made(&intent(), 9, &at(14)).await.map_err(|error| error.kind);
    assert_eq!(answer, NOTHING, "slot 14 is final, and both list what they have of slot 11");
    assert_trusted(&source);
}

/// A final transaction as it is reported with its accounts: what the guard had before and after, and whether the
/// payer's key signed it.
fn reported(before: u64, after: u64, is_payers: bool) -> Value {
    let key = |key: Address, signer: bool| json!({ "pubkey": key.to_string(), "signer": signer, "writable": true });
    let keys = [key(SPONSOR, true), key(guard(), false), key(PAYER, is_payers)];
    json!({
        "slot": 12,
        "meta": { "err": null, "preBalances": [9, before, 5], "postBalances": [8, after, 5] },
        "transaction": { "message": { "accountKeys": keys } },
    })
}

/// The node reports the transaction with this id so.
fn report(node: &Node, id: u64, tx: Value) {
    node.answer_transaction(naming(id, true).signature(), Ok(tx));
}

/// The same, but for this part of it.
fn report_with(node: &Node, pointer: &str, value: Value) {
    let mut tx = reported(0, RENT, true);
    *tx.pointer_mut(pointer).unwrap() = value;
    report(node, 1, tx);
}

#[tokio::test]
async fn who_made_a_guard_counts_only_as_two_report_the_same_of_its_oldest_transactions() {
    let scenes: [Scene; 14] = [
        ("the payer's key signed it", |_, _| (), Ok(true)),
        (
            "nobody had the payer sign",
            |one, other| [one, other].iter().for_each(|node| report(node, 1, reported(0, RENT, false))),
            Ok(false),
        ),
        ("they differ in who signed", |_, other| report(other, 1, reported(0, RENT, false)), NOTHING),
        (
            "they differ in which it was",
            |_, other| {
                report(other, 1, reported(1, RENT, true));
                report(other, 2, reported(0, RENT, true));
            },
            NOTHING,
        ),
        ("one lists nothing", |one, _| ends_after(one, 0), NOTHING),
        ("one's list ends before it", |_, other| ends_after(other, 1), NOTHING),
        ("nobody lists it", |one, other| [one, other].iter().for_each(|node| ends_after(node, 0)), NOTHING),
        ("one lists it and has it not", |one, _| report(one, 1, Value::Null), NOTHING),
        ("one has no history", |one, _| one.answer_method(TRANSACTION, error(-32_011, "no history")), NOTHING),
        ("one has no list", |_, other| refuse(other, SIGNATURES, Refusal::LongTermStorageUnreachable), NOTHING),
        ("what became of it is not said", |one, _| report_with(one, "/meta", Value::Null), NOTHING),
        ("half of the balances", |one, _| report_with(one, "/meta/preBalances", json!([9, 0])), NOTHING),
        ("it failed", |one, _| report_with(one, "/meta/err", json!("AccountInUse")), NOTHING),
        ("it names no accounts", |one, _| report_with(one, "/transaction/message", json!({})), NOTHING),
    ];
    for (what, prepare, expected) in scenes {
        let (first, second, source) = paying().await;
        // And a gift behind it.
        [(12, 1), (13, 2)].into_iter().for_each(|(slot, id)| put(&[&first, &second], slot, &naming(id, true)));
        for node in [&first, &second] {
            report(node, 1, reported(0, RENT, true));
            report(node, 2, reported(RENT, RENT + 1, false));
        }
        prepare(&first, &second);
        let answer = source.maker(&intent(), &at(14)).await.map_err(|error| error.kind);
        let expected = expected.map(|is_payers| Some(Maker { tx: naming(1, true).id(), is_payers }));
        assert_eq!(answer, expected, "{what}");
        assert_trusted(&source);
        if answer.is_ok() {
            let how =
                json!({ "encoding": "jsonParsed", "commitment": "finalized", "maxSupportedTransactionVersion": 1 });
            for node in [&first, &second] {
                assert_eq!(last(node, TRANSACTION), json!([naming(1, true).signature(), how]), "{what}");
                assert_eq!(node.calls(TRANSACTION, None), 1, "{what}: the oldest first");
                let asked = last(node, SIGNATURES);
                assert_eq!((&asked[0], &asked[1]["limit"]), (&json!(guard().to_string()), &json!(1_000)), "{what}");
                assert_eq!(asked[1]["commitment"], "finalized", "{what}");
            }
        }
    }
}

/// A transaction of a block that makes the guard and pays.
fn payment() -> Value {
    let accounts = [
        (SPONSOR, 9_000_000, 9_000_000 - 10_000 - RENT),
        (PAYER, 2 * AMOUNT, AMOUNT),
        (guard(), 0, RENT),
        (BOB, 50, AMOUNT + 50),
    ];
    let keys = accounts.map(|(key, ..)| json!({ "pubkey": key.to_string(), "signer": false, "writable": true }));
    let (before, after) = (accounts.map(|(_, before, _)| before), accounts.map(|(.., after)| after));
    let signatures = [9_u8, 10].map(|byte| bs58::encode([byte; 64]).into_string());
    json!({
        "transaction": { "signatures": signatures, "accountKeys": keys },
        "meta": {
            "err": null, "fee": 10_000, "preBalances": before, "postBalances": after, "preTokenBalances": [],
            "postTokenBalances": [],
        },
    })
}

/// What its block shows of it.
fn mark(amount: u64) -> Mark {
    let tx = TxRef { id: TxId::Solana([9; 64]), life: TxLife::Block };
    let effect = Effect::Paid { destination: BOB, amount: U256::from(amount) };
    Mark { tx, payer: PAYER, key: intent().key().shown(&PAYER), asset: AssetId::Native, effect }
}

#[tokio::test]
async fn what_a_block_shows_of_a_payment_counts_only_as_two_report_that_very_block_alike() {
    let scenes: [Scene; 4] = [
        ("both show it", |_, _| (), Ok(true)),
        ("the first shows nothing of it", |one, _| one.ledger().amend(12, |block| block.txs.clear()), NOTHING),
        ("the second shows nothing of it", |_, other| other.ledger().amend(12, |block| block.txs.clear()), NOTHING),
        (
            "one has not the block any more",
            |_, other| other.answer_instead(12, Instead::Refuse(Refusal::BlockCleanedUp)),
            NOTHING,
        ),
    ];
    for (what, prepare, expected) in scenes {
        let (first, second, source) = paying().await;
        put(&[&first, &second], 12, &Tx::raw(&payment()));
        prepare(&first, &second);
        let answer = source.is_shown(&mark(AMOUNT), &at(12)).await.map_err(|error| error.kind);
        assert_eq!(answer, expected, "{what}");
    }
    let (first, second, source) = paying().await;
    put(&[&first, &second], 12, &Tx::raw(&payment()));
    assert!(!source.is_shown(&mark(AMOUNT - 1), &at(12)).await.unwrap(), "both show another amount");
    let another = BlockRef { number: 12, hash: BlockHash([9; 32]) };
    let error = source.is_shown(&mark(AMOUNT), &another).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient, "{error}");
    // Where one suffices, its report was recorded already: nobody is asked.
    source.set_agree(1).unwrap();
    [&first, &second].into_iter().for_each(Node::forget_counts);
    assert!(source.is_shown(&mark(AMOUNT), &at(12)).await.unwrap());
    assert_eq!((first.calls("getBlock", None), second.calls("getBlock", None)), (0, 0));
}

const ID: TxId = TxId::Solana([0x1d; 64]);

/// What comes of a transaction that both nodes get, once and as it is.
async fn sent(nodes: [&Node; 2], source: &SolanaSource, answers: [MethodAnswer; 2]) -> BroadcastResponse {
    for (node, answer) in nodes.into_iter().zip(answers) {
        node.forget_counts();
        node.answer_method(SEND, answer);
    }
    let response = source.broadcast(&ID, &[2, 0xc0]).await;
    let how = json!({
        "encoding": "base64", "skipPreflight": true, "maxRetries": 0, "preflightCommitment": "confirmed",
    });
    for node in nodes {
        assert_eq!(node.calls(SEND, None), 1);
        assert_eq!(last(node, SEND), json!([STANDARD.encode([2, 0xc0]), how]));
    }
    response
}

fn pooled() -> MethodAnswer {
    Ok(json!(ID.to_string()))
}

#[tokio::test]
async fn a_transaction_goes_to_two_endpoints_once_as_it_is_and_the_better_answer_counts() {
    use BroadcastResponse::{Expired, Known, Pooled, Poor, Refused, Unknown};
    let (first, second, source) = paying().await;
    let nodes = [&first, &second];
    let no = |what: &str| error(-32_002, &format!("Transaction simulation failed: {what}"));
    let (expired, poor) = (no("Blockhash not found"), no("Insufficient funds for fee"));
    let (known, unknown) = (no("This transaction has already been processed"), no("nobody knows this"));
    let unsigned = no("Transaction signature verification failure");
    let cases = [
        ([pooled(), pooled()], Pooled),
        ([expired.clone(), pooled()], Pooled),
        ([known.clone(), unknown.clone()], Known),
        ([expired.clone(), known], Known),
        ([poor.clone(), unsigned.clone()], Poor),
        ([unsigned, expired.clone()], Refused),
        ([unknown.clone(), expired.clone()], Expired),
        ([unknown, error(-32_005, "Node is behind by 42 slots")], Unknown),
        ([error(429, "too many requests"), error(-32_603, "Internal error")], Unknown),
        // What its message says counts, whatever is beside that.
        ([preflight_failure(), Ok(Value::Null)], Refused),
    ];
    for (answers, expected) in cases {
        let what = format!("{answers:?}");
        assert_eq!(sent(nodes, &source, answers).await, expected, "{what}");
    }
    for (fault, answer, expected) in [
        (Fault::Truncated, pooled(), Pooled),
        (Fault::ServerError, expired, Expired),
        (Fault::Page, poor, Poor),
        (Fault::WrongId, Ok(Value::Null), Unknown),
    ] {
        first.confine(SEND);
        first.misbehave(fault, When::Always);
        assert_eq!(sent(nodes, &source, [pooled(), answer]).await, expected, "{fault:?}");
        first.behave();
    }
    // As an endpoint that takes no transactions, it still serves all reads.
    assert_eq!(sent(nodes, &source, [error(-32_601, "Method not found"), pooled()]).await, Pooled);
    assert_trusted(&source);
}

#[tokio::test]
async fn what_nodes_say_to_a_transaction_means_the_same_by_any_code_and_with_any_logs() {
    let (first, second, source) = paying().await;
    let fixtures: Vec<Value> = serde_json::from_str(include_str!("../../testdata/broadcast.json")).unwrap();
    assert!(fixtures.len() > 20, "{}", fixtures.len());
    for fixture in fixtures {
        let logs = json!({ "err": "AccountInUse", "logs": ["Program log: Error: already processed"] });
        let bare = json!({ "code": -32_002, "message": fixture["message"] });
        let with_logs = json!({ "code": -32_003, "message": fixture["message"], "data": logs });
        let response = sent([&first, &second], &source, [Err(bare), Err(with_logs)]).await;
        assert_eq!(format!("{response:?}"), fixture["response"].as_str().unwrap(), "{}", fixture["message"]);
    }
    assert_trusted(&source);
}

#[tokio::test]
async fn an_answer_that_names_another_transaction_says_nothing() {
    let (first, second, source) = paying().await;
    let other = || Ok(json!(TxId::Solana([0x1e; 64]).to_string()));
    // In base58 both cases of a letter are digits of their own.
    let lower = ID.to_string().to_lowercase();
    assert_ne!(lower, ID.to_string());
    for answer in [other(), Ok(json!(lower)), Ok(Value::Null), Ok(json!("")), Ok(json!(7)), Ok(json!({}))] {
        let what = format!("{answer:?}");
        let response = sent([&first, &second], &source, [answer, other()]).await;
        assert_eq!(response, BroadcastResponse::Unknown, "{what}");
    }
}

#[tokio::test]
async fn no_more_than_two_of_several_endpoints_get_a_transaction() {
    let (nodes, source) = three().await;
    nodes.iter().for_each(|node| node.answer_method(SEND, pooled()));
    assert_eq!(source.broadcast(&ID, &[2]).await, BroadcastResponse::Pooled);
    assert_eq!(nodes.iter().map(|node| node.calls(SEND, None)).sum::<u64>(), 2);
}
