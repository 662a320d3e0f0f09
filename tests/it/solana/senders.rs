//! Who paid a deposit on Solana: by balances, and by instructions where balances do not show it, which are asked for
//! only for our own deposits. The rule is on record. No deposit waits long for a sender, and none is missed for one.

use std::time::Duration;

use landfall::deposit::DepositStatus::Confirmed;
use landfall::time::Timestamp;
use landfall_chain::{Chain, SenderRule};
use landfall_cluster::{Ledger as Cluster, Node, TIME};
use landfall_solana::network;
use serde_json::{Value, json};

use crate::harness::books::events;
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::solana_ledger::{Ledger, owner};
use crate::harness::solana_line::{Line, with};

const ASKED: &str = "getTransaction";
const SYSTEM: &str = "11111111111111111111111111111111";
const SECOND: Duration = Duration::from_secs(1);

/// 0x24 and 0x23 pay 70 and 30 at once, the one to somebody else and the other to us; 0x24 pays the fee.
fn two_pay(ledger: &mut Ledger) -> Value {
    ledger.tx(0x24, |ledger| {
        ledger.send(0x24, 0x22, 70);
        ledger.send(0x23, 0x21, 30);
    })
}

fn signature(tx: &Value) -> String {
    tx["transaction"]["signatures"][0].as_str().unwrap().to_owned()
}

/// What `getTransaction` reports of such a transaction in `slot`.
fn reported(tx: &Value, slot: u64) -> Value {
    let mut keys: Vec<Value> = tx["transaction"]["accountKeys"].as_array().unwrap().clone();
    let at = |who: u8| keys.iter().position(|key| key["pubkey"] == owner(who).to_string()).unwrap();
    let transfer = |from: u8, to: u8, lamports: u64| {
        let data = [2_u32.to_le_bytes().as_slice(), &lamports.to_le_bytes()].concat();
        // Base58 of a transfer is long to write by hand: a signature's text form is base58 too.
        json!({ "programIdIndex": keys.len(), "accounts": [at(from), at(to)], "data": base58(&data) })
    };
    let instructions = [transfer(0x24, 0x22, 70), transfer(0x23, 0x21, 30)];
    keys.push(json!({ "pubkey": SYSTEM }));
    let mut meta = tx["meta"].clone();
    for side in ["preBalances", "postBalances"] {
        meta[side].as_array_mut().unwrap().push(1.into());
    }
    let message = json!({ "accountKeys": keys, "instructions": instructions });
    let transaction = json!({ "signatures": tx["transaction"]["signatures"], "message": message });
    json!({ "slot": slot, "blockTime": 1, "transaction": transaction, "meta": meta, "version": 0 })
}

fn base58(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let (mut number, mut text) = (bytes.iter().fold(0_u128, |sum, byte| sum << 8 | u128::from(*byte)), Vec::new());
    while number > 0 {
        text.push(LETTERS[usize::try_from(number % 58).unwrap()]);
        number /= 58;
    }
    text.extend(bytes.iter().take_while(|byte| **byte == 0).map(|_| b'1'));
    text.reverse();
    String::from_utf8(text).unwrap()
}

fn answer(node: &Node, tx: &Value, answer: Result<Value, (i64, &str)>) {
    let answer = answer.map_err(|(code, message)| (code, message.to_owned()));
    node.answer_transaction(&signature(tx), answer);
}

/// A line before two nodes, whose block 12 holds a payment of two that neither of them can report by itself.
async fn line(engine: Engine) -> (Line, Value) {
    let tx = two_pay(&mut Ledger::new());
    let network = network(Chain::SolanaMainnet).unwrap();
    let blocks = with(Cluster::of(10..=14), 12, [tx.clone()]);
    let line = Line::of(network, TestStore::fresh(engine).await, blocks, 2).await;
    line.nodes.iter().for_each(|node| answer(node, &tx, Ok(Value::Null)));
    (line, tx)
}

/// The deposit of 30, which is ours; the other one is of the other account.
async fn payer(line: &Line) -> (landfall_chain::Address, SenderRule) {
    let all = line.deposits().await;
    let deposit = &all.iter().find(|(deposit, _)| deposit.recipient == owner(0x21)).unwrap().0;
    (deposit.sender, deposit.sender_rule)
}

fn asked(line: &Line) -> u64 {
    line.nodes.iter().map(|node| node.calls(ASKED, None)).sum()
}

#[tokio::test]
async fn a_sender_that_balances_report_is_asked_of_nobody() {
    for engine in ENGINES {
        let mut ledger = Ledger::new();
        // Two payments to us, and one of two payers to others.
        let txs = [
            ledger.tx(0x23, |ledger| ledger.send(0x23, 0x21, 5)),
            ledger.tx(0x24, |ledger| ledger.send(0x22, 0x21, 6)),
            ledger.tx(0x21, |ledger| {
                ledger.send(0x21, 0x23, 1);
                ledger.send(0x22, 0x24, 2);
            }),
        ];
        let network = network(Chain::SolanaMainnet).unwrap();
        let blocks = with(Cluster::of(10..=14), 12, txs);
        let mut line = Line::of(network, TestStore::fresh(engine).await, blocks, 1).await;
        line.catch_up().await;
        let deposits = line.deposits().await;
        let of: Vec<_> = deposits.iter().map(|(it, _)| (it.sender, it.sender_rule)).collect();
        assert_eq!(of, [(owner(0x23), SenderRule::OnlyPayer), (owner(0x22), SenderRule::OnlyPayer)]);
        assert_eq!(deposits[0].0.source_account_id, None);
        assert_eq!(deposits[1].0.source_account_id.as_deref(), Some("account 34"), "one of ours has paid");
        assert_eq!(asked(&line), 0);
    }
}

#[tokio::test]
async fn a_sender_that_balances_do_not_report_is_the_one_whose_instruction_paid_and_stays() {
    for engine in ENGINES {
        let (mut line, tx) = line(engine).await;
        for node in &line.nodes {
            answer(node, &tx, Ok(reported(&tx, 12)));
        }
        line.catch_up().await;
        assert_eq!(payer(&line).await, (owner(0x23), SenderRule::Instruction));
        assert_eq!(asked(&line), 2, "once for each of the two deposits");
        // It is final: the block is read again, and who paid is not.
        line.nodes.iter().for_each(|node| answer(node, &tx, Ok(Value::Null)));
        line.finalize(14);
        line.catch_up().await;
        assert!(line.amounts().await.iter().all(|(_, status)| *status == Confirmed));
        assert_eq!((payer(&line).await, asked(&line)), ((owner(0x23), SenderRule::Instruction), 2));
    }
}

#[tokio::test]
async fn who_knows_nothing_leaves_the_answer_to_the_next_endpoint() {
    for elsewhere in [true, false] {
        for at in [0, 1] {
            let (mut line, tx) = line(Engine::Sqlite).await;
            answer(&line.nodes[at], &tx, Ok(reported(&tx, 12)));
            if elsewhere {
                // As a node on another fork has it.
                answer(&line.nodes[1 - at], &tx, Ok(reported(&tx, 13)));
            }
            line.catch_up().await;
            assert_eq!(payer(&line).await, (owner(0x23), SenderRule::Instruction), "{elsewhere} {at}");
        }
    }
}

#[tokio::test]
async fn where_nobody_can_report_the_fee_payer_is_recorded_as_such_at_once() {
    let cases: [Result<Value, (i64, &str)>; 4] = [
        Ok(Value::Null),
        Err((-32_601, "Method not found")),
        Err((-32_011, "Transaction history is not available from this node")),
        Err((-32_015, "Transaction version (9) is not supported")),
    ];
    for case in cases {
        let (mut line, tx) = line(Engine::Sqlite).await;
        for node in &line.nodes {
            answer(node, &tx, case.clone());
        }
        line.try_tick().await.unwrap();
        assert_eq!(payer(&line).await, (owner(0x24), SenderRule::FeePayer), "{case:?}");
    }
}

#[tokio::test]
async fn while_one_endpoint_may_still_report_a_block_waits_for_a_minute_and_no_longer() {
    for engine in ENGINES {
        let (mut line, tx) = line(engine).await;
        // One knows nothing, the other one fails: it may know.
        answer(&line.nodes[1], &tx, Err((-32_005, "Node is behind by 42 slots")));
        let begun = line.now;
        let (mut waited, mut connected) = (0, 0);
        while line.deposits().await.is_empty() {
            match line.try_tick().await {
                Ok(ticked) => connected += ticked.connected,
                Err(error) => {
                    assert_eq!(connected, 1, "the block below it does not wait");
                    assert!(error.may_pass() && error.to_string().contains("getTransaction"), "{error}");
                    waited += 1;
                }
            }
            line.now = line.now.plus(10 * SECOND);
            assert!(line.now.since(begun) < 100 * SECOND, "a deposit must not wait for a name");
        }
        assert_eq!((waited, connected), (5, 4), "every ten seconds for a minute");
        assert_eq!(payer(&line).await, (owner(0x24), SenderRule::StandIn));

        // It is asked for once more before CONFIRMED, which does not wait for a name either.
        let before = asked(&line);
        line.finalize(14);
        line.catch_up().await;
        assert!(line.amounts().await.iter().all(|(_, status)| *status == Confirmed));
        assert_eq!(payer(&line).await, (owner(0x24), SenderRule::StandIn));
        assert!(asked(&line) > before);
    }
}

/// Seconds behind the moment in which the block in slot 14 was made.
fn secs_behind(secs: u64) -> Timestamp {
    Timestamp::from_secs(TIME + 14 + secs)
}

#[tokio::test]
async fn that_no_node_knows_a_transaction_of_a_young_block_is_no_answer_yet() {
    for engine in ENGINES {
        // Of an old one it is an answer.
        for (secs, is_young) in [(1, true), (117, true), (118, false)] {
            let (mut line, tx) = line(engine).await;
            line.now = secs_behind(secs);
            let first = line.try_tick().await;
            if !is_young {
                assert_eq!(payer(&line).await, (owner(0x24), SenderRule::FeePayer));
                continue;
            }
            assert_eq!(first.unwrap().connected, 1, "the block below it does not wait");
            let error = line.try_tick().await.unwrap_err();
            assert!(error.may_pass() && error.to_string().contains("who paid"), "{error}");
            assert_eq!(line.amounts().await, []);
            answer(&line.nodes[1], &tx, Ok(reported(&tx, 12)));
            line.catch_up().await;
            assert_eq!(payer(&line).await, (owner(0x23), SenderRule::Instruction));
        }
    }
}

#[tokio::test]
async fn a_sender_that_nobody_knew_is_asked_for_once_more_before_confirmed_is_reported() {
    for engine in ENGINES {
        let (mut line, tx) = line(engine).await;
        for secs in (1..=71).step_by(10) {
            line.now = secs_behind(secs);
            line.try_tick().await.ok();
        }
        assert_eq!(payer(&line).await, (owner(0x24), SenderRule::StandIn));
        line.nodes.iter().for_each(|node| answer(node, &tx, Ok(reported(&tx, 12))));
        let before = asked(&line);
        line.finalize(14);
        line.catch_up().await;
        assert!(line.amounts().await.iter().all(|(_, status)| *status == Confirmed));
        assert_eq!(payer(&line).await, (owner(0x23), SenderRule::Instruction));
        assert_eq!(asked(&line), before + 2, "once for each of the two deposits");
        // What was sent stays as it was.
        let reported: Vec<(String, String)> =
            events(&line.store.db).await.iter().filter_map(|it| of_30(&it.payload)).collect();
        let expected = [("PENDING", owner(0x24)), ("CONFIRMED", owner(0x23))];
        assert_eq!(reported, expected.map(|(status, from)| (status.to_owned(), from.to_string())));
    }
}

/// Status and sender of an event about the deposit of 30.
fn of_30(payload: &str) -> Option<(String, String)> {
    let data = &serde_json::from_str::<Value>(payload).unwrap()["data"];
    let text = |key: &str| data[key].as_str().unwrap().to_owned();
    (text("amount") == "0.00000003").then(|| (text("status"), text("source_address")))
}

#[tokio::test]
async fn an_answer_in_time_ends_the_wait() {
    let (mut line, tx) = line(Engine::Sqlite).await;
    for node in &line.nodes {
        answer(node, &tx, Err((-32_603, "Internal error")));
    }
    assert_eq!(line.try_tick().await.unwrap().connected, 1);
    for _ in 0..3 {
        assert!(line.try_tick().await.is_err());
        line.now = line.now.plus(SECOND);
    }
    assert_eq!(line.amounts().await, []);
    answer(&line.nodes[0], &tx, Ok(reported(&tx, 12)));
    line.catch_up().await;
    assert_eq!(payer(&line).await, (owner(0x23), SenderRule::Instruction));
}

#[tokio::test]
async fn after_a_rollback_a_stand_in_takes_no_name_back() {
    let (mut line, tx) = line(Engine::Sqlite).await;
    for node in &line.nodes {
        answer(node, &tx, Ok(reported(&tx, 12)));
    }
    line.catch_up().await;
    // The same transaction in another slot, of which nobody reports anything.
    let blocks = with(Cluster::of(10..=16).forked_at(12), 14, [tx]);
    line.replace_record(&blocks);
    line.finalize(16);
    line.catch_up().await;
    assert!(line.amounts().await.iter().all(|(_, status)| *status == Confirmed));
    assert_eq!(payer(&line).await, (owner(0x23), SenderRule::Instruction));
}
