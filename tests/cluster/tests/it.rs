//! The nodes through their sockets: each method answers as agave does, each refusal has its words, each fault does what
//! it says and no more.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed, and says where")]

use std::io::Read;
use std::time::Duration;

use landfall_chain::{Address, BlockRef};
use landfall_cluster::{
    FEE, Fault, Finality, Instead, Ledger, Node, Refusal, SlotOrder, TIME, Tx, Version, When, hash,
};
use serde_json::{Value, json};

const ALICE: Address = Address::Solana([0xa1; 32]);
const BOB: Address = Address::Solana([0xb0; 32]);
const USDC: &str = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";

fn usdc() -> Address {
    Address::parse(landfall_chain::Family::Solana, USDC).unwrap()
}

async fn post(node: &Node, body: &Value) -> Result<Value, String> {
    // An error says that the process has one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
    let sent = http.post(node.url()).body(body.to_string()).send().await.map_err(|error| error.to_string())?;
    if !sent.status().is_success() {
        return Err(format!("{} {:?}", sent.status(), sent.headers().get("retry-after")));
    }
    let text = sent.text().await.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// The result, or the error.
async fn ask(node: &Node, method: &str, params: Value) -> Value {
    let answer = post(node, &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })).await.unwrap();
    if answer["error"].is_null() { answer["result"].clone() } else { answer["error"].clone() }
}

async fn code(node: &Node, method: &str, params: Value) -> Value {
    ask(node, method, params).await["code"].clone()
}

fn base58(block: &BlockRef) -> String {
    Address::Solana(block.hash.0).to_string()
}

#[tokio::test]
async fn heads_are_reported_at_their_commitment_and_no_node_reaches_a_context_that_it_has_not() {
    let ledger = Ledger::of([10, 11, 14, 15]);
    ledger.finalize(12);
    let (node, behind) = (Node::start(&ledger).await, Node::start(&ledger).await);
    behind.lag(1);
    assert_eq!(ask(&node, "getSlot", json!([])).await, 11);
    assert_eq!(ask(&node, "getSlot", json!([{ "commitment": "confirmed" }])).await, 15);
    assert_eq!(ask(&behind, "getSlot", json!([{ "commitment": "confirmed" }])).await, 14);
    let latest = ask(&node, "getLatestBlockhash", json!([{ "commitment": "finalized" }])).await;
    assert_eq!(
        (&latest["context"]["slot"], &latest["value"]["blockhash"]),
        (&json!(11), &json!(base58(&ledger.finalized())))
    );
    let how = json!([{ "commitment": "confirmed", "minContextSlot": 15 }]);
    assert_eq!(ask(&node, "getSlot", how.clone()).await, 15);
    let refused = ask(&behind, "getSlot", how).await;
    let expected = json!({ "code": -32_016, "message": "Minimum context slot has not been reached", "data": { "contextSlot": 14 } });
    assert_eq!(refused, expected);
    assert_eq!(ask(&node, "getGenesisHash", json!([])).await, landfall_cluster::GENESIS);
}

#[tokio::test]
async fn lists_leave_out_what_is_skipped_lost_or_not_there_and_report_them_not_apart() {
    let ledger = Ledger::of([10, 11, 14, 15, 16]);
    let node = Node::start(&ledger).await;
    let how = json!({ "commitment": "confirmed" });
    assert_eq!(ask(&node, "getBlocks", json!([10, 40, how])).await, json!([10, 11, 14, 15, 16]));
    assert_eq!(ask(&node, "getBlocks", json!([11, how])).await, json!([11, 14, 15, 16]));
    node.lose([14]);
    node.unlist([15]);
    assert_eq!(ask(&node, "getBlocks", json!([10, 16, how])).await, json!([10, 11, 16]));
    assert_eq!(ask(&node, "getBlocks", json!([17, 20, how])).await, json!([]));
    assert_eq!(ask(&node, "getBlocks", json!([10, 16])).await, json!([10]), "what is final");
    assert_eq!(code(&node, "getBlocks", json!([10, 600_000, how])).await, -32_602);
    assert_eq!(code(&node, "getBlocks", json!([10, 16, { "commitment": "processed" }])).await, -32_602);
}

#[tokio::test]
async fn a_block_that_is_not_reported_is_refused_in_the_words_of_where_it_would_be() {
    let ledger = Ledger::of([10, 11, 14, 15, 16]);
    ledger.finalize(15);
    let node = Node::start(&ledger).await;
    let how = json!({ "commitment": "confirmed", "transactionDetails": "none" });
    let refused = async |slot: u64| ask(&node, "getBlock", json!([slot, how])).await["message"].clone();
    assert_eq!(refused(12).await, "Slot 12 was skipped, or missing due to ledger jump to recent snapshot");
    assert_eq!(refused(17).await, "Block not available for slot 17");
    node.lose([14, 16]);
    assert_eq!(refused(14).await, "Slot 14 was skipped, or missing due to ledger jump to recent snapshot");
    assert_eq!(refused(16).await, "Block not available for slot 16", "above what is final nothing is known yet");
    node.prune(11);
    assert_eq!(refused(10).await, "Block 10 cleaned up, does not exist on node. First available block: 11");
    let reported = ask(&node, "getBlock", json!([15, how])).await;
    assert_eq!(
        (&reported["parentSlot"], &reported["previousBlockhash"]),
        (&json!(14), &json!(base58(&BlockRef { number: 14, hash: hash(14, 0) })))
    );
    assert_eq!((&reported["blockTime"], reported.get("transactions")), (&json!(TIME + 15), None));
    assert_eq!(ask(&node, "getBlockTime", json!([15])).await, TIME + 15);
    let finalized = json!([16, { "transactionDetails": "none" }]);
    assert_eq!(code(&node, "getBlock", finalized).await, -32_004, "it is not final");
    assert_eq!(code(&node, "getBlock", json!([15, { "commitment": "processed" }])).await, -32_602);
}

#[tokio::test]
async fn a_block_with_a_newer_transaction_is_refused_whole_until_its_version_is_asked_for() {
    let ledger = Ledger::of([10]);
    let tx = |id, version| Tx::sol(id, ALICE, BOB, 7).with_version(version);
    ledger.produce(11, vec![tx(1, Version::Legacy)]);
    ledger.produce(12, vec![tx(2, Version::Legacy), tx(3, Version::Number(1))]);
    let node = Node::start(&ledger).await;
    let how = |most: Value| json!({ "commitment": "confirmed", "transactionDetails": "accounts", "maxSupportedTransactionVersion": most });
    let reported = async |slot: u64, most: Value| ask(&node, "getBlock", json!([slot, how(most)])).await;
    assert_eq!(reported(11, Value::Null).await["transactions"][0]["version"], "legacy");
    let refused = reported(12, json!(0)).await;
    let words = "Transaction version (1) is not supported by the requesting client. Please try the request again with the \
                 following configuration parameter: \"maxSupportedTransactionVersion\": 1";
    assert_eq!((&refused["code"], &refused["message"]), (&json!(-32_015), &json!(words)));
    assert_eq!(reported(12, json!(1)).await["transactions"][1]["version"], 1);
    ledger.produce(13, vec![tx(4, Version::Number(77))]);
    assert!(reported(13, json!(1)).await["message"].as_str().unwrap().starts_with("Transaction version (77)"));
    let signature = ledger.block(13).unwrap().txs[0].signature().to_owned();
    assert_eq!(code(&node, "getTransaction", json!([signature, how(json!(1))])).await, -32_015);
}

#[tokio::test]
async fn a_method_is_answered_as_a_test_says_with_the_whole_of_an_error_until_that_is_forgotten() {
    let node = Node::start(&Ledger::of([10])).await;
    let tried = async || ask(&node, "simulateTransaction", json!(["AA=="])).await;
    assert_eq!(tried().await["code"], -32_601, "no ledger can try it");
    node.answer_method("simulateTransaction", Ok(json!({ "value": 7 })));
    assert_eq!(tried().await, json!({ "value": 7 }));
    assert_eq!(ask(&node, "getSlot", json!([])).await, 10, "all else is the ledger's");
    let error = json!({ "code": -32_002, "message": "no", "data": { "logs": ["a"] } });
    node.answer_method("simulateTransaction", Err(error.clone()));
    assert_eq!(tried().await, error);
    node.forget_method("simulateTransaction");
    assert_eq!(tried().await["code"], -32_601);
    assert_eq!(node.counts().last["simulateTransaction"], json!(["AA=="]));
}

#[tokio::test]
async fn balances_say_what_payments_say_and_a_failure_costs_its_fee_only() {
    let ledger = Ledger::of([10]);
    let token = Tx::token(2, usdc(), ALICE, BOB, 8);
    let failed = Tx::failing(3, ALICE, &Tx::sol(3, ALICE, BOB, 9).payments);
    ledger.produce(11, vec![Tx::sol(1, ALICE, BOB, 7), token, failed]);
    let node = Node::start(&ledger).await;
    let how =
        json!({ "commitment": "confirmed", "transactionDetails": "accounts", "maxSupportedTransactionVersion": 0 });
    let block = ask(&node, "getBlock", json!([11, how])).await;
    let changes = |tx: &Value| -> Vec<i64> {
        let side =
            |name: &str| tx["meta"][name].as_array().unwrap().iter().map(|it| it.as_i64().unwrap()).collect::<Vec<_>>();
        side("postBalances").iter().zip(side("preBalances")).map(|(post, pre)| post - pre).collect()
    };
    let fee = i64::try_from(FEE).unwrap();
    assert_eq!(changes(&block["transactions"][0]), [-7 - fee, 7, 0]);
    assert_eq!(changes(&block["transactions"][1]), [-fee, 0, 0, 0, 0]);
    assert_eq!(changes(&block["transactions"][2]), [-fee, 0, 0]);
    let meta = &block["transactions"][1]["meta"];
    let held =
        |side: &str, at: usize| meta[side][at]["uiTokenAmount"]["amount"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(held("preTokenBalances", 0) - held("postTokenBalances", 0), 8);
    assert_eq!(held("postTokenBalances", 1) - held("preTokenBalances", 1), 8);
    assert_eq!(meta["postTokenBalances"][1]["owner"], BOB.to_string());
    ledger.finalize(11);
    let paid: Vec<u64> = ledger.paid_above(10).iter().map(|(_, _, payment)| payment.amount).collect();
    assert_eq!(paid, [7, 8]);
    let balance = ask(&node, "getBalance", json!([BOB.to_string()])).await;
    assert_eq!(balance["value"], 1_000_000_000_000_u64, "the last that names it failed");
}

#[tokio::test]
async fn single_transactions_are_reported_with_their_slot_or_as_null() {
    let ledger = Ledger::of([10]);
    let tx = Tx::sol(1, ALICE, BOB, 7);
    ledger.produce(12, vec![tx.clone()]);
    let node = Node::start(&ledger).await;
    let how = json!({ "commitment": "confirmed", "encoding": "json", "maxSupportedTransactionVersion": 0 });
    let reported = ask(&node, "getTransaction", json!([tx.signature(), how])).await;
    assert_eq!((&reported["slot"], &reported["blockTime"]), (&json!(12), &json!(TIME + 12)));
    assert_eq!(reported["transaction"]["message"]["accountKeys"][0], ALICE.to_string());
    let unknown = Tx::sol(2, ALICE, BOB, 7);
    assert_eq!(ask(&node, "getTransaction", json!([unknown.signature(), how])).await, Value::Null);
    assert_eq!(
        ask(&node, "getTransaction", json!([tx.signature(), { "encoding": "json" }])).await,
        Value::Null,
        "not final"
    );
    let statuses = ask(&node, "getSignatureStatuses", json!([[tx.signature(), unknown.signature()]])).await;
    assert_eq!((&statuses["value"][0]["slot"], &statuses["value"][1]), (&json!(12), &Value::Null));
    assert_eq!(
        (&statuses["value"][0]["confirmations"], &statuses["value"][0]["confirmationStatus"]),
        (&json!(0), &json!("confirmed"))
    );
    let many: Vec<&str> = std::iter::repeat_n(tx.signature(), 257).collect();
    assert_eq!(code(&node, "getSignatureStatuses", json!([many])).await, -32_602);
}

#[tokio::test]
async fn signatures_come_newest_first_in_pages_and_an_unknown_bound_is_an_error() {
    let ledger = Ledger::of([10]);
    for slot in 11..=13 {
        ledger.produce(slot, (0..4).map(|nth| Tx::sol(10 * slot + nth, ALICE, BOB, nth + 1)).collect());
    }
    let node = Node::start(&ledger).await;
    let listed = async |more: Value| {
        let mut how = json!({ "commitment": "confirmed" });
        how.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask(&node, "getSignaturesForAddress", json!([BOB.to_string(), how])).await
    };
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|it| it["signature"].as_str().unwrap().to_owned()).collect()
    };
    let slots =
        |list: &Value| -> Vec<u64> { list.as_array().unwrap().iter().map(|it| it["slot"].as_u64().unwrap()).collect() };
    let all = listed(json!({})).await;
    assert_eq!(slots(&all), [13, 13, 13, 13, 12, 12, 12, 12, 11, 11, 11, 11]);
    let all = names(&all);
    assert_eq!(names(&listed(json!({ "limit": 5 })).await), all[..5]);
    assert_eq!(names(&listed(json!({ "limit": 5, "before": all[4] })).await), all[5..10]);
    assert_eq!(names(&listed(json!({ "until": all[3] })).await), all[..3]);
    let stranger = Tx::sol(999, ALICE, BOB, 1);
    for bound in ["before", "until"] {
        let refused = listed(json!({ bound: stranger.signature() })).await;
        assert_eq!(
            (&refused["code"], &refused["message"]),
            (&json!(-32_020), &json!(format!("Transaction {} not found", stranger.signature())))
        );
    }
    assert_eq!(listed(json!({ "limit": 1_001 })).await["code"], -32_602);
    assert_eq!(listed(json!({ "minContextSlot": 14 })).await["code"], -32_016);
    // The other order moves signatures within a slot, and nowhere else.
    node.set_order(SlotOrder::BySignature);
    let other = names(&listed(json!({})).await);
    assert_ne!(other, all);
    let sorted = |names: &[String]| -> Vec<String> {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    assert!(other.chunks(4).zip(all.chunks(4)).all(|(one, other)| sorted(one) == sorted(other)));
    assert_eq!(ask(&node, "getSignaturesForAddress", json!([usdc().to_string()])).await, json!([]), "who is not named");
}

#[tokio::test]
async fn a_rollback_takes_what_is_not_final_and_another_rule_makes_final_at_once() {
    let ledger = Ledger::of([10, 11, 12]);
    ledger.set_finality(Finality::Behind(2));
    assert_eq!(ledger.finalized().number, 10);
    let node = Node::start(&ledger).await;
    assert_eq!(ledger.roll_back_to(10).len(), 0);
    let again = ledger.produce(11, Vec::new());
    assert_ne!(again.hash, hash(11, 0));
    let how = json!({ "commitment": "confirmed", "transactionDetails": "none" });
    assert_eq!(ask(&node, "getBlock", json!([11, how])).await["blockhash"], base58(&again));
    ledger.set_finality(Finality::AtOnce);
    assert_eq!(ask(&node, "getSlot", json!([])).await, 11);
    ledger.set_finality(Finality::Stalled);
    ledger.produce(14, Vec::new());
    assert_eq!(ask(&node, "getSlot", json!([])).await, 11);
    ledger.finalize(14);
    assert_eq!(ask(&node, "getSlot", json!([])).await, 14);
}

#[tokio::test]
async fn every_refusal_strikes_where_it_fits_and_as_often_as_it_was_reported() {
    let ledger = Ledger::of(10..=20);
    let node = Node::start(&ledger).await;
    let how = json!({ "commitment": "confirmed", "transactionDetails": "accounts" });
    for refusal in Refusal::ALL {
        node.misbehave(Fault::Refuse(refusal), When::Next(2));
        let (method, params) = match refusal {
            Refusal::FilterTransactionNotFound => ("getSignaturesForAddress", json!([BOB.to_string()])),
            _ => ("getBlock", json!([12, how])),
        };
        for _ in 0..2 {
            assert_eq!(code(&node, method, params.clone()).await, refusal.code(), "{refusal:?}");
        }
        assert_eq!(code(&node, method, params).await, Value::Null, "{refusal:?}");
        assert_eq!(node.struck(Fault::Refuse(refusal)), 2);
    }
    for other in [-32_003, -32_006, -32_008, -32_013, -32_017, -32_018, -32_022, -32_099] {
        node.misbehave(Fault::Refuse(Refusal::Other(other)), When::Next(1));
        assert_eq!(code(&node, "getBlock", json!([12, how])).await, other);
    }
    node.answer_instead(13, Instead::Null);
    assert_eq!(ask(&node, "getBlock", json!([13, how])).await, Value::Null);
    assert_eq!(node.calls("getBlock", Some(13)), 1);
    assert!(node.counts().bytes["getBlock"] > 100);
    node.misbehave(Fault::Refuse(Refusal::NodeUnhealthy), When::Always);
    node.confine("getBlocks");
    assert_eq!(code(&node, "getBlocks", json!([10, 20])).await, -32_005);
    assert_eq!(code(&node, "getBlock", json!([12, how])).await, Value::Null, "only where it is confined to");
    node.behave();
    node.confine("getBlocks");
    node.set_silent(true);
    assert_eq!(code(&node, "getBlock", json!([12, how])).await, Value::Null);
}

#[tokio::test]
async fn whole_answers_are_compressed_for_those_that_take_it() {
    let node = Node::start(&Ledger::of(10..=20)).await;
    let asked =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "getBlocks", "params": [10, 20, { "commitment": "confirmed" }] });
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (is_taken, compresses) in [(true, true), (true, false), (false, true)] {
        node.set_gzip(compresses);
        // As it comes, and unpacked here.
        let http = reqwest::Client::builder().no_proxy().no_gzip().build().unwrap();
        let request = http.post(node.url()).body(asked.to_string());
        let request = if is_taken { request.header("accept-encoding", "gzip") } else { request };
        let answer = request.send().await.unwrap();
        let is_packed = answer.headers().get("content-encoding").is_some_and(|encoding| encoding == "gzip");
        assert_eq!(is_packed, is_taken && compresses);
        let body = answer.bytes().await.unwrap();
        let mut text = String::new();
        if is_packed {
            flate2::read::GzDecoder::new(body.as_ref()).read_to_string(&mut text).unwrap();
        } else {
            text = String::from_utf8(body.to_vec()).unwrap();
        }
        let reported: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(reported["result"].as_array().unwrap().len(), 11);
    }
}

#[tokio::test]
async fn what_fails_below_the_answer_fails_as_it_says() {
    let ledger = Ledger::of(10..=20);
    let node = Node::start(&ledger).await;
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "getBlocks", "params": [10, 20, { "commitment": "confirmed" }] });
    let cases = [
        (Fault::TooManyRequests { retry_after_secs: None }, "429 Too Many Requests None"),
        (Fault::TooManyRequests { retry_after_secs: Some(7) }, "429 Too Many Requests Some(\"7\")"),
        (Fault::ServerError, "502 Bad Gateway"),
        (Fault::Page, "expected value at line 1"),
        (Fault::Reset, "error sending request"),
        (Fault::Truncated, "EOF while parsing"),
        (Fault::BrokenGzip, "error decoding response body"),
    ];
    for (fault, expected) in cases {
        node.misbehave(fault, When::Next(1));
        let error = post(&node, &call).await.unwrap_err();
        assert!(error.contains(expected), "{fault:?}: {error}");
        assert_eq!(post(&node, &call).await.unwrap()["result"].as_array().unwrap().len(), 11, "{fault:?}");
    }
    node.misbehave(Fault::WrongId, When::Next(1));
    assert_ne!(post(&node, &call).await.unwrap()["id"], 1);
    node.misbehave(Fault::Drip(Duration::from_millis(100)), When::Next(1));
    let begun = std::time::Instant::now();
    post(&node, &call).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn what_a_node_has_is_less_while_a_fault_lasts_and_the_same_behind_it() {
    let ledger = Ledger::of(10..=20);
    ledger.finalize(12);
    let node = Node::start(&ledger).await;
    node.set_bait(vec![Tx::sol(9, ALICE, BOB, 1)]);
    let confirmed = json!([{ "commitment": "confirmed" }]);
    let head = async || ask(&node, "getSlot", confirmed.clone()).await;
    node.misbehave(Fault::Stale(4), When::Next(1));
    assert_eq!((head().await, head().await), (json!(16), json!(20)));
    node.misbehave(Fault::HeadBack(3), When::Next(4));
    assert_eq!([head().await, head().await, head().await, head().await], [17, 20, 17, 20].map(|slot| json!(slot)));
    let latest = async |commitment: &str| ask(&node, "getLatestBlockhash", json!([{ "commitment": commitment }])).await;
    node.misbehave(Fault::AnotherFork, When::Next(1));
    let reported = latest("confirmed").await;
    assert_eq!(reported["context"]["slot"], 20);
    assert_ne!(reported["value"]["blockhash"], base58(&ledger.latest()));
    for (fault, slot, is_real) in
        [(Fault::FinalOnFork, 12, false), (Fault::FinalAhead, 23, false), (Fault::FinalEarly, 20, true)]
    {
        node.misbehave(fault, When::Next(1));
        let reported = latest("finalized").await;
        let real = ledger.block(slot).map(|block| base58(&block.reference()));
        assert_eq!(
            (&reported["context"]["slot"], real.as_deref() == reported["value"]["blockhash"].as_str()),
            (&json!(slot), is_real),
            "{fault:?}"
        );
    }
    node.misbehave(Fault::HeadAhead(1_000), When::Next(1));
    assert_eq!(latest("confirmed").await["context"]["slot"], 1_020);
    let listed =
        async || ask(&node, "getBlocks", json!([13, 20, { "commitment": "confirmed", "minContextSlot": 21 }])).await;
    assert_eq!(listed().await["code"], Refusal::MinContextSlotNotReached.code());
    node.misbehave(Fault::AnyContext, When::Next(1));
    assert_eq!(listed().await.as_array().unwrap().len(), 8);
    node.misbehave(Fault::FinalStill, When::Always);
    ledger.finalize(15);
    assert_eq!(latest("finalized").await["context"]["slot"], 12);
    node.behave();
    assert_eq!(latest("finalized").await["context"]["slot"], 15);
    let listed = async || ask(&node, "getBlocks", json!([13, 20, { "commitment": "confirmed" }])).await;
    node.misbehave(Fault::Hole, When::Next(1));
    assert_eq!(listed().await, json!([13, 14, 16, 17, 19, 20]));
    let block = async |slot: u64, details: &str| {
        let how = json!({ "transactionDetails": details, "maxSupportedTransactionVersion": 1 });
        ask(&node, "getBlock", json!([slot, how])).await
    };
    node.misbehave(Fault::LinkedOver, When::Next(2));
    assert_eq!(listed().await, json!([13, 14, 16, 17, 19, 20]));
    let reported = block(13, "none").await;
    assert_eq!(
        (&reported["parentSlot"], &reported["previousBlockhash"]),
        (&json!(11), &json!(base58(&ledger.block(11).unwrap().reference())))
    );
    assert_eq!(block(13, "none").await["parentSlot"], 12);
    node.misbehave(Fault::Pruned(3), When::Next(1));
    assert_eq!(listed().await, json!([17, 18, 19, 20]));
    node.misbehave(Fault::ShortList, When::Next(1));
    assert_eq!(listed().await.as_array().unwrap().len(), 7);
    node.lose([16]);
    node.misbehave(Fault::LongList, When::Next(1));
    assert_eq!(listed().await.as_array().unwrap().len(), 8);
    assert_eq!(listed().await, json!([13, 14, 15, 17, 18, 19, 20]));
    node.find_all();
    assert_eq!(listed().await.as_array().unwrap().len(), 8);
}
