//! What moves inside of a transaction and what only looks like it, reported in both forms; and traces that cannot be true.
//! Names in brackets are rows of the catalogue of failures, `deposits.md` 2b.

use alloy::primitives::Address;
use landfall_chain::{AssetId, AssetTransfer, Block, Chain, NativeSource, Proof, SourceErrorKind};
use landfall_evm::network;
use serde_json::{Value, json};

use crate::forge::{self, Deposit, short};
use crate::mint::{self, Tx};
use crate::node::{Ledger, chain_id};
use crate::trace::{self, FLAT, NESTED, address, failed, flat, frame, nested, read, read_rewritten, traced};

const SIGNER: Address = address(0xaa);
const ALICE: Address = address(0x0a);
const BOB: Address = address(0x0b);
const CAROL: Address = address(0x0c);

/// A block with one transaction, in which the signer pays 9 to Alice.
fn ledger(success: bool) -> (Ledger, Value) {
    let tx = Tx { to: Some(ALICE), value: 9, success, ..Tx::default() };
    let ledger = Ledger::of(mint::chain(5, vec![vec![tx]]));
    let block = ledger.blocks[&5].0.clone();
    (ledger, block)
}

/// The root frame of that transaction, with these frames inside.
fn root(calls: Vec<Value>) -> Value {
    frame("CALL", SIGNER, ALICE, 9, calls)
}

/// The block, read with these frames in the root frame: the same in both forms.
async fn inside(calls: Vec<Value>) -> Block {
    let (ledger, block) = ledger(true);
    let traces = nested(&block, &[root(calls)]);
    let one = read(traced(), ledger.clone(), NESTED, traces.clone()).await.unwrap();
    let other = read(traced(), ledger, FLAT, flat(&block, &traces)).await.unwrap();
    assert_eq!(one, other);
    one
}

fn pay(from: Address, to: Address, value: u64) -> Value {
    frame("CALL", from, to, value, vec![])
}

/// Sender, recipient, amount, nth.
fn legs(legs: &[AssetTransfer]) -> Vec<(Address, Address, u64, u32)> {
    assert!(legs.iter().all(|leg| leg.asset == AssetId::Native));
    legs.iter().map(short).map(|(_, from, to, amount, nth)| (from, to, amount, nth)).collect()
}

/// Recipient, amount, code.
fn rejected(block: &Block) -> Vec<(Address, u64, &'static str)> {
    let reported = |rejected: &landfall_chain::Rejected| {
        let (_, _, to, amount, nth) = short(&rejected.transfer);
        assert_eq!(nth, 0);
        (to, amount, rejected.verdict.code())
    };
    block.rejected.iter().map(reported).collect()
}

#[tokio::test]
async fn value_that_moves_inside_of_a_transaction_is_a_leg() {
    // [E7] with or without calldata, from whatever depth; [E15] the sender is who called.
    for kind in ["CALL", "CREATE", "CREATE2", "SELFDESTRUCT"] {
        let block = inside(vec![frame(kind, ALICE, BOB, 5, vec![])]).await;
        assert_eq!(legs(&block.transfers), [(ALICE, BOB, 5, 0)], "{kind}");
        assert_eq!((block.rejected, block.proof), (vec![], Proof::OneEndpoint), "{kind}");
        assert_eq!((block.txs.len(), block.fees.len()), (1, 0));
    }
    let deep = (0..13).fold(pay(BOB, CAROL, 5), |inner, _| frame("CALL", BOB, BOB, 0, vec![inner]));
    assert_eq!(legs(&inside(vec![deep]).await.transfers), [(BOB, CAROL, 5, 0)]);
}

#[tokio::test]
async fn the_value_of_the_transaction_itself_is_not_reported_again() {
    assert_eq!(inside(vec![]).await.transfers, []);
    assert_eq!(inside(vec![]).await.rejected, []);
}

#[tokio::test]
async fn what_only_looks_like_a_movement_is_rejected_with_its_reason() {
    // The frame, the expected rejection.
    let frame = |kind, from, to, value| frame(kind, from, to, value, vec![]);
    let cases = [
        ("[E8]", frame("DELEGATECALL", ALICE, BOB, 5), Some((BOB, 5, "delegatecall"))),
        ("[E8]", frame("CALLCODE", ALICE, BOB, 5), Some((BOB, 5, "delegatecall"))),
        ("borrowed and nothing", frame("DELEGATECALL", ALICE, BOB, 0), None),
        ("a look", frame("STATICCALL", ALICE, BOB, 0), None),
        ("[E6]", frame("CALL", ALICE, BOB, 0), Some((BOB, 0, "zero_value"))),
        ("[E6]", frame("CREATE", ALICE, BOB, 0), Some((BOB, 0, "zero_value"))),
        ("[E6]", frame("SELFDESTRUCT", ALICE, BOB, 0), Some((BOB, 0, "zero_value"))),
        ("[E11]", frame("CALL", ALICE, ALICE, 5), Some((ALICE, 5, "self_transfer"))),
        ("[E11]", frame("SELFDESTRUCT", ALICE, ALICE, 5), Some((ALICE, 5, "self_transfer"))),
        ("[E1]", failed(frame("CALL", ALICE, BOB, 5)), Some((BOB, 5, "reverted_frame"))),
        ("[E1]", failed(frame("CREATE2", ALICE, BOB, 5)), Some((BOB, 5, "reverted_frame"))),
    ];
    for (name, frame, expected) in cases {
        let block = inside(vec![frame.clone()]).await;
        assert_eq!(block.transfers, [], "{name} {frame}");
        assert_eq!(rejected(&block), Vec::from_iter(expected), "{name} {frame}");
    }
}

#[tokio::test]
async fn a_payment_below_a_failed_frame_is_none_and_its_neighbours_stay() {
    // [E1] the paying frame succeeds; what fails is the one around it, or the one around that.
    let inner = frame("CALL", BOB, CAROL, 5, vec![frame("SELFDESTRUCT", CAROL, BOB, 6, vec![])]);
    let around = frame("DELEGATECALL", ALICE, BOB, 0, vec![inner]);
    let calls = vec![
        pay(ALICE, BOB, 1),
        failed(frame("CALL", ALICE, BOB, 2, vec![pay(BOB, CAROL, 3), around])),
        pay(ALICE, BOB, 4),
    ];
    let block = inside(calls).await;
    assert_eq!(legs(&block.transfers), [(ALICE, BOB, 1, 0), (ALICE, BOB, 4, 0)]);
    let expected = [(BOB, 2), (CAROL, 3), (CAROL, 5), (BOB, 6)].map(|(to, amount)| (to, amount, "reverted_frame"));
    assert_eq!(rejected(&block), expected);
}

#[tokio::test]
async fn what_borrowed_code_pays_is_paid_by_the_borrower() {
    // [E8]
    let calls = vec![frame("DELEGATECALL", ALICE, BOB, 9, vec![pay(ALICE, CAROL, 5)])];
    let block = inside(calls).await;
    assert_eq!(legs(&block.transfers), [(ALICE, CAROL, 5, 0)]);
    assert_eq!(rejected(&block), [(BOB, 9, "delegatecall")]);
}

#[tokio::test]
async fn equal_legs_count_on_behind_those_that_the_roots_prove() {
    // [E10] 9 to Alice is the transaction's own value; what comes inside is the second and third of the kind.
    let calls =
        vec![pay(ALICE, BOB, 9), pay(BOB, ALICE, 9), pay(BOB, ALICE, 8), pay(CAROL, ALICE, 9), pay(ALICE, BOB, 9)];
    let expected =
        [(ALICE, BOB, 9, 0), (BOB, ALICE, 9, 1), (BOB, ALICE, 8, 0), (CAROL, ALICE, 9, 2), (ALICE, BOB, 9, 1)];
    assert_eq!(legs(&inside(calls).await.transfers), expected);
}

#[tokio::test]
async fn legs_behind_what_an_op_stack_deposit_mints_count_on_too() {
    // [E19] the mint and the root value are the roots'; a bridge pays by an internal call.
    let (a1, b2) = (address(0xa1), address(0xb2));
    let deposit = Deposit { mint: Some(7), value: 5, ..Deposit::default() };
    let (block, receipts) = forge::block(&[deposit.entry()], &[]);
    let calls = vec![pay(b2, a1, 7), pay(CAROL, b2, 5), pay(b2, CAROL, 3)];
    let traces = nested(&block, &[frame("CALL", a1, b2, 5, calls)]);
    let mut base = network(Chain::BaseMainnet).unwrap();
    base.native.source = NativeSource::Trace;
    let ledger = Ledger { chain_id: chain_id(base.chain), ..Ledger::of([(block, receipts)]) };
    let block = read(base, ledger, NESTED, traces).await.unwrap();
    assert_eq!(legs(&block.transfers), [(b2, a1, 7, 1), (CAROL, b2, 5, 1), (b2, CAROL, 3, 0)]);
}

#[tokio::test]
async fn a_self_destruction_is_paid_by_the_account_that_runs_whoever_is_named() {
    let destroyed = |named, heir| frame("SELFDESTRUCT", named, heir, 5, vec![]);
    let borrowed = |inner| frame("DELEGATECALL", ALICE, CAROL, 0, vec![inner]);
    // Who is named, the heir: the caller, and whose code it is, are not who pays.
    for (calls, expected) in [
        (destroyed(SIGNER, SIGNER), vec![(ALICE, SIGNER, 5, 0)]),
        (destroyed(SIGNER, BOB), vec![(ALICE, BOB, 5, 0)]),
        (borrowed(destroyed(CAROL, CAROL)), vec![(ALICE, CAROL, 5, 0)]),
        (borrowed(destroyed(ALICE, CAROL)), vec![(ALICE, CAROL, 5, 0)]),
        (frame("CREATE", ALICE, BOB, 0, vec![destroyed(ALICE, ALICE)]), vec![(BOB, ALICE, 5, 0)]),
        // [E11] to itself: what it has is gone, or stays where it is.
        (destroyed(SIGNER, ALICE), vec![]),
        (borrowed(destroyed(CAROL, ALICE)), vec![]),
    ] {
        let block = inside(vec![calls.clone()]).await;
        assert_eq!(legs(&block.transfers), expected, "{calls}");
        assert_eq!(rejected(&block).contains(&(ALICE, 5, "self_transfer")), expected.is_empty(), "{calls}");
    }
}

#[tokio::test]
async fn a_failed_transaction_moves_nothing_and_says_so() {
    // [E2]
    let (ledger, block) = ledger(false);
    let calls = vec![pay(ALICE, BOB, 5), frame("DELEGATECALL", ALICE, BOB, 9, vec![])];
    let traces = nested(&block, &[failed(root(calls))]);
    for (method, traces) in [(NESTED, traces.clone()), (FLAT, flat(&block, &traces))] {
        let block = read(traced(), ledger.clone(), method, traces).await.unwrap();
        assert_eq!(block.transfers, []);
        assert_eq!(rejected(&block), [(BOB, 5, "reverted_tx"), (BOB, 9, "delegatecall")]);
    }
    // Nobody needs its trace: the receipt proves that it moved nothing.
    let none = json!([{ "txHash": block["transactions"][0]["hash"], "error": "incorrect number of top-level calls" }]);
    assert_eq!(read(traced(), ledger, NESTED, none).await.unwrap().transfers, []);
}

#[tokio::test]
async fn whatever_is_reported_of_a_failed_transaction_it_moves_nothing_and_its_block_is_traced() {
    // The first pays Alice inside; the second failed.
    let txs = vec![Tx { to: Some(ALICE), ..Tx::default() }, Tx { nonce: 1, success: false, ..Tx::default() }];
    let ledger = Ledger::of(mint::chain(5, vec![txs]));
    let block = ledger.blocks[&5].0.clone();
    let paid = frame("CALL", SIGNER, ALICE, 0, vec![pay(BOB, ALICE, 5)]);
    let proved = || frame("CALL", SIGNER, address(0xbb), 0, vec![pay(ALICE, BOB, 7)]);
    let with = |field: &str, value: Value| {
        let mut root = failed(proved());
        root[field] = value;
        root
    };
    let strange = [
        // Of op-geth, when a deposit fails before it begins, and of reth.
        json!({ "from": Address::ZERO, "gas": "0x0", "error": "failed deposit transaction", "type": "STOP" }),
        json!({ "from": Address::ZERO, "gas": "0x0", "gasUsed": "0x0", "input": "0x", "type": "" }),
        json!({}),
        with("to", json!(Address::ZERO)),
        with("from", json!(Address::ZERO)),
        with("value", json!("0x8")),
        with("value", json!("eight")),
        with("type", json!("CREATE")),
        with("calls", json!([{ "type": "TELEPORT", "calls": [{ "value": "0x9" }, 7] }, proved()])),
        proved(),
    ];
    for root in strange {
        let traces = nested(&block, &[paid.clone(), root.clone()]);
        let read = read(traced(), ledger.clone(), NESTED, traces).await.unwrap();
        assert_eq!(legs(&read.transfers), [(BOB, ALICE, 5, 0)], "{root}");
        // In the place of the one that succeeded, each of them is refused: but for this one, its frames contradict.
        let traces = nested(&block, &[root.clone(), failed(proved())]);
        let error = trace::read(traced(), ledger.clone(), NESTED, traces).await.expect_err("no trace of its own");
        assert_eq!(error.kind, SourceErrorKind::Transient, "{root}");
    }
    // It is the failed one's hash that counts, and its frames have their place in the list.
    let mut other = nested(&block, &[paid.clone(), failed(proved())]);
    other[1]["txHash"] = json!(format!("0x{}", "22".repeat(32)));
    assert!(trace::read(traced(), ledger.clone(), NESTED, other).await.is_err());
    assert!(trace::read(traced(), ledger.clone(), NESTED, nested(&block, std::slice::from_ref(&paid))).await.is_err());
    // The same in the other form.
    let mut frames = flat(&block, &nested(&block, &[paid, failed(proved())]));
    frames[2]["action"]["to"] = json!(Address::ZERO);
    frames[3]["type"] = json!("teleport");
    let read = read(traced(), ledger, FLAT, frames).await.unwrap();
    assert_eq!(legs(&read.transfers), [(BOB, ALICE, 5, 0)]);
}

#[tokio::test]
async fn before_byzantium_no_trace_credits() {
    let ledger = Ledger::recorded(Chain::EthereumMainnet, "eth_mainnet", 468_179);
    let block = ledger.blocks[&468_179].0.clone();
    let tx = &block["transactions"][0];
    let mut root = frame("CALL", ALICE, BOB, 0, vec![pay(ALICE, BOB, 5)]);
    for field in ["from", "to", "value"] {
        root[field] = tx[field].clone();
    }
    let block = read(traced(), ledger, NESTED, nested(&block, &[root])).await.unwrap();
    assert_eq!((block.transfers.len(), rejected(&block)), (0, vec![(BOB, 5, "no_status")]));
}

#[tokio::test]
async fn the_order_of_fields_and_what_nodes_add_do_not_matter() {
    let (ledger, block) = ledger(true);
    let hash = block["transactions"][0]["hash"].as_str().unwrap().to_owned();
    let inner = format!(
        r#"{{ "logs": [{{"data":"]}}\"","topics":[[],{{}}]}}] , "calls" : null, "value":"0x05", "error":null,
            "to":"{BOB:?}","from":"{ALICE}","gasUsed":12.5e3, "revertReason":"\\\"}}]", "type":"CALL", "x":true }}"#
    );
    let text = format!(
        r#"[{{"result":{{"calls":[{inner}],"output":"0x","value":"0x9","to":"{ALICE}","from":"{SIGNER}","type":"CALL"}},
            "txHash":"{hash}"}}]"#
    );
    let block = read_rewritten(traced(), ledger, NESTED, json!("@"), move |reply| reply.replace("\"@\"", &text)).await;
    assert_eq!(legs(&block.unwrap().transfers), [(ALICE, BOB, 5, 0)]);
}

#[tokio::test]
async fn calls_as_deep_as_the_chain_allows_are_read() {
    // 1024 below the root frame, in which JSON is nested 2050 deep: the leg is at the very bottom.
    let open = |error: &str| format!(r#"{{"type":"CALL","from":"{BOB}","to":"{BOB}","value":"0x0"{error},"calls":["#);
    let leaf = format!(r#"{{"type":"CALL","from":"{BOB}","to":"{CAROL}","value":"0x5"}}"#);
    let (ledger, block) = ledger(true);
    let hash = block["transactions"][0]["hash"].as_str().unwrap().to_owned();
    for (error, expected) in [("", vec![(BOB, CAROL, 5, 0)]), (r#","error":"out of gas""#, vec![])] {
        let text = format!(
            r#"[{{"txHash":"{hash}","result":{{"type":"CALL","from":"{SIGNER}","to":"{ALICE}","value":"0x9",
                "calls":[{}{}{leaf}{}]}}}}]"#,
            open(error),
            open("").repeat(1022),
            "]}".repeat(1023),
        );
        let rewrite = move |reply: String| reply.replace("\"@\"", &text);
        let block = read_rewritten(traced(), ledger.clone(), NESTED, json!("@"), rewrite).await.unwrap();
        assert_eq!(legs(&block.transfers), expected);
        assert_eq!(block.rejected.len(), 1024 - expected.len());
    }
    let way = |depth: usize| vec![0_u32; depth];
    let flat_frame = |depth: usize| {
        let (from, to, value) = match depth {
            0 => (SIGNER, ALICE, 9),
            1024 => (BOB, CAROL, 5),
            _ => (BOB, BOB, 0),
        };
        json!({
            "type": "call", "blockHash": block["hash"], "transactionHash": hash, "traceAddress": way(depth),
            "subtraces": u32::from(depth < 1024), "error": null,
            "action": { "callType": "call", "from": from, "to": to, "value": forge::hex(value) },
        })
    };
    let traces = (0..=1024).map(flat_frame).collect();
    let block = read(traced(), ledger, FLAT, traces).await.unwrap();
    assert_eq!(legs(&block.transfers), [(BOB, CAROL, 5, 0)]);
}

#[tokio::test]
async fn a_trace_that_contradicts_the_proved_block_is_refused_in_both_forms() {
    let (good, block) = ledger(true);
    let one = |root: Value| nested(&block, &[root]);
    let with = |field: &str, value: Value| {
        let mut root = root(vec![pay(ALICE, BOB, 5)]);
        root[field] = value;
        one(root)
    };
    let mut other_tx = one(root(vec![]));
    other_tx[0]["txHash"] = json!(format!("0x{}", "22".repeat(32)));
    let mut two = one(root(vec![]));
    let again = two[0].clone();
    two.as_array_mut().unwrap().push(again);
    two[1]["txHash"] = json!(format!("0x{}", "22".repeat(32)));
    let mut inner = root(vec![pay(ALICE, BOB, 5)]);
    inner["calls"][0]["value"] = json!("five");
    let cases = [
        ("no trace", good.clone(), json!([]), "0 traces for 1 transactions"),
        ("a trace too many", good.clone(), two, "2 traces for 1 transactions"),
        ("another transaction's", good.clone(), other_tx, "the trace at its place is of 0x2222"),
        ("another sender", good.clone(), with("from", json!(BOB)), "its root frame has another sender"),
        ("another recipient", good.clone(), with("to", json!(BOB)), "its root frame has another recipient"),
        ("another value", good.clone(), with("value", json!("0x8")), "its root frame has another value"),
        ("another type", good.clone(), with("type", json!("CREATE")), "its root frame is of another type"),
        ("borrowed", good.clone(), with("type", json!("DELEGATECALL")), "its root frame is of another type"),
        ("failed", good.clone(), one(failed(root(vec![]))), "its trace failed, but its receipt says success"),
        ("a value of words", good, one(inner), "no hexadecimal number|hexadecimal text without 0x"),
    ];
    for (name, ledger, traces, expected) in cases {
        let number = ledger.blocks[&5].0.clone();
        for (method, traces) in [(NESTED, traces.clone()), (FLAT, flat(&number, &traces))] {
            let error = read(traced(), ledger.clone(), method, traces).await.unwrap_err();
            assert_eq!(error.kind, SourceErrorKind::Transient, "{name} {method}");
            let text = error.to_string();
            assert!(expected.split('|').any(|expected| text.contains(expected)), "{name} {method}: {error}");
            assert!(text.contains(method), "{name} {method}: {error}");
        }
    }
}

#[tokio::test]
async fn a_nested_trace_that_is_malformed_is_refused() {
    let (ledger, block) = ledger(true);
    let hash = block["transactions"][0]["hash"].as_str().unwrap().to_owned();
    let root = format!(r#""type":"CALL","from":"{SIGNER}","to":"{ALICE}","value":"0x9""#);
    let call = format!(r#""type":"CALL","from":"{ALICE}","to":"{BOB}""#);
    let whole = |inside: &str| format!(r#"[{{"txHash":"{hash}","result":{{{root},"calls":[{{{inside}}}]}}}}]"#);
    let cases = [
        ("null".to_owned(), "the answer is not what a call tracer tells"),
        ("{}".to_owned(), "the answer is not what"),
        ("[[]]".to_owned(), "a trace is not what"),
        ("[null]".to_owned(), "a trace is not what"),
        (r#"["x"]"#.to_owned(), "a trace is not what"),
        ("[{}]".to_owned(), "nothing is traced"),
        (format!(r#"[{{"txHash":"{hash}","result":null}}]"#), "nothing is traced"),
        (format!(r#"[{{"txHash":"{hash}","error":"tracing failed"}}]"#), "tracing failed"),
        (format!(r#"[{{"txHash":"0x12","result":{{{root}}}}}]"#), "txHash is not what"),
        (format!(r#"[{{"result":[{{{root}}}]}}]"#), "result is not what"),
        (format!(r#"[{{"result":{{{root}}},"result":{{{root}}}}}]"#), "result is told twice"),
        (format!(r#"[{{"result":{{{root},"calls":{{}}}}}}]"#), "calls is not what"),
        (format!(r#"[{{"result":{{{root},"calls":[[]]}}}}]"#), "a call is not what"),
        (format!(r#"[{{"result":{{{root},"calls":[null]}}}}]"#), "a call is not what"),
        (format!(r#"[{{"result":{{{root},"calls":[],"calls":[]}}}}]"#), "calls is told twice"),
        (whole(&call.replace("\"CALL\"", "7")), "type is not what"),
        (whole(&format!(r#"{call},"value":5"#)), "value is not what"),
        (whole(&format!(r#"{call},"value":"0x1{}""#, "0".repeat(64))), "a number of more than 256 bits"),
        (whole(&format!(r#"{call},"value":"0x5","value":"0x6""#)), "value is told twice"),
        (whole(&format!(r#"{call},"value":"0x5","error":"""#)), "error is not what"),
        (whole(&format!(r#"{call},"value":"0x5","error":{{}}"#)), "error is not what"),
        (whole(&format!(r#"{call},"value":"0x5","\u0065rror":"reverted""#)), "a key is not what"),
        (whole(&format!(r#"{call},"value":"0x5","from":"{BOB}""#)), "from is told twice"),
        (whole(r#""type":"CALL","from":"0x0b","to":"0x0b","value":"0x5""#), "is no address"),
    ];
    for (text, expected) in cases {
        let given = text.clone();
        let rewrite = move |reply: String| reply.replace("\"@\"", &text);
        let read = read_rewritten(traced(), ledger.clone(), NESTED, json!("@"), rewrite).await;
        let error = read.expect_err(&given);
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains(expected), "{given}: {error}");
    }
}

#[tokio::test]
async fn a_flat_trace_that_is_malformed_is_refused() {
    let (ledger, block) = ledger(true);
    let calls = vec![frame("CALL", ALICE, BOB, 5, vec![pay(BOB, CAROL, 6)]), pay(ALICE, CAROL, 7)];
    let good = flat(&block, &nested(&block, &[root(calls)]));
    assert_eq!(read(traced(), ledger.clone(), FLAT, good.clone()).await.unwrap().transfers.len(), 3);
    type Change = fn(&mut Vec<Value>);
    let cases: [(Change, &str); 11] = [
        (|frames| drop(frames.remove(0)), "or the one around it is not"),
        (|frames| drop(frames.remove(1)), "or the one around it is not"),
        (|frames| frames.push(frames[0].clone()), "is told twice"),
        (|frames| frames.push(frames[2].clone()), "is told twice"),
        (|frames| frames[0]["subtraces"] = json!(1), "has 2 frames inside, but counts 1"),
        (|frames| frames[1]["subtraces"] = json!(0), "has 1 frames inside, but counts 0"),
        (|frames| frames[2]["traceAddress"] = json!([5, 0]), "or the one around it is not"),
        (|frames| frames[3]["blockHash"] = json!(format!("0x{}", "33".repeat(32))), "a trace is of block 0x3333"),
        (|frames| frames[3]["transactionHash"] = Value::Null, "a trace belongs to no transaction"),
        (|frames| frames[3]["error"] = json!(""), "an error without words"),
        (|frames| frames.clear(), "0 traces for 1 transactions"),
    ];
    for (change, expected) in cases {
        let mut frames = good.as_array().unwrap().clone();
        change(&mut frames);
        let error = read(traced(), ledger.clone(), FLAT, frames.into()).await.expect_err(expected);
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    assert!(read(traced(), ledger, FLAT, Value::Null).await.is_err());
}

#[tokio::test]
async fn a_frame_in_a_form_that_nobody_knows_is_set_aside_and_the_payment_beside_it_is_seen() {
    let (ledger, block) = ledger(true);
    let hash = block["transactions"][0]["hash"].as_str().unwrap().to_owned();
    let seen = root(vec![pay(ALICE, CAROL, 7)]).to_string();
    let with = |fields: &str| {
        format!(
            r#"[{{"txHash":"{hash}","result":{}}}]"#,
            seen.replace(r#""calls":["#, &format!(r#""calls":[{{{fields}}},"#))
        )
    };
    let call = format!(r#""type":"CALL","from":"{ALICE}","to":"{BOB}""#);
    let unknown = [
        format!(r#"{call},"value":null"#),
        call.clone(),
        format!(r#"{},"value":"0x5""#, call.replace(r#""type":"CALL","#, "")),
        format!(r#"{},"value":"0x5""#, call.replace("CALL", "TELEPORT")),
        format!(r#""type":"CALL","to":"{BOB}","value":"0x5""#),
        // revm before July 2026, of a contract that destroys itself.
        format!(r#""type":"SELFDESTRUCT","from":"{BOB}","to":null,"value":null"#),
        format!(r#""type":"CALL","from":"{BOB}","value":"0x5""#),
    ];
    for fields in unknown {
        let text = with(&fields);
        let rewrite = move |reply: String| reply.replace("\"@\"", &text);
        let block = read_rewritten(traced(), ledger.clone(), NESTED, json!("@"), rewrite).await;
        assert_eq!(legs(&block.expect(&fields).transfers), [(ALICE, CAROL, 7, 0)], "{fields}");
    }
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 6] = [
        ("a type", |frame| frame["type"] = json!("teleport")),
        ("a call's type", |frame| frame["action"]["callType"] = json!("authcall")),
        ("no call's type", |frame| drop(frame["action"].as_object_mut().unwrap().remove("callType"))),
        ("no value", |frame| drop(frame["action"].as_object_mut().unwrap().remove("value"))),
        ("no sender", |frame| drop(frame["action"].as_object_mut().unwrap().remove("from"))),
        ("no recipient", |frame| frame["action"]["to"] = Value::Null),
    ];
    let good = flat(&block, &nested(&block, &[root(vec![pay(ALICE, BOB, 5), pay(ALICE, CAROL, 7)])]));
    for (what, change) in changes {
        let mut frames = good.clone();
        change(&mut frames[1]);
        let block = read(traced(), ledger.clone(), FLAT, frames).await.expect(what);
        assert_eq!(legs(&block.transfers), [(ALICE, CAROL, 7, 0)], "{what}");
    }
}

#[tokio::test]
async fn a_flat_trace_out_of_order_with_a_reward_and_gaps_is_read_in_execution_order() {
    // Older reth reports a self-destruction before what came before it, and reth and Erigon leave out calls of
    // precompiled contracts that move nothing, but count them. A block's reward belongs to no transaction.
    let (ledger, block) = ledger(true);
    let destroyed = frame("SELFDESTRUCT", BOB, CAROL, 6, vec![]);
    let calls = vec![pay(ALICE, CAROL, 0), frame("CALL", ALICE, BOB, 5, vec![pay(BOB, CAROL, 7), destroyed])];
    let mut frames = flat(&block, &nested(&block, &[root(calls)])).as_array().unwrap().clone();
    frames.remove(1);
    frames.swap(2, 3);
    frames.push(json!({
        "type": "reward", "action": { "author": BOB, "rewardType": "block", "value": "0x1bc16d674ec80000" },
        "blockHash": block["hash"], "result": null, "subtraces": 0, "traceAddress": [], "transactionHash": null,
    }));
    let block = read(traced(), ledger, FLAT, frames.into()).await.unwrap();
    assert_eq!(legs(&block.transfers), [(ALICE, BOB, 5, 0), (BOB, CAROL, 7, 0), (BOB, CAROL, 6, 0)]);
}
