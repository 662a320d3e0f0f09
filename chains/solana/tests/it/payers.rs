//! Who paid, asked of endpoints: what each refusal of `getTransaction` comes to, and who is asked at all.

use landfall_chain::{
    Address, AssetId, AssetTransfer, BlockSource, Payer, SenderRule, SourceError, SourceErrorKind, TxId, TxLife, TxRef,
    U256,
};
use landfall_cluster::{Fault, Ledger, Node, OwnAnswer, When};
use serde_json::{Value, json};

use crate::made::{Made, key};
use crate::sources::{at, hear_all, source};

const SLOT: u64 = 12;
const ASKED: &str = "getTransaction";

fn owner(name: &str) -> Address {
    crate::fixtures::address(&key(name))
}

/// A leg of the made transaction to W, whose sender is known so.
fn leg(sender_rule: SenderRule) -> AssetTransfer {
    AssetTransfer {
        tx: TxRef { id: TxId::Solana([7; 64]), life: TxLife::Block },
        asset: AssetId::Native,
        sender: owner("F"),
        sender_rule,
        recipient: owner("W"),
        amount: U256::from(30),
        nth: 0,
    }
}

/// F pays the fee, A pays us 30.
fn reported(slot: u64) -> Value {
    let tx = Made::default().account("F", [9, 9]).account("A", [90, 60]).account("W", [0, 30]).tx();
    let mut keys = tx["transaction"]["accountKeys"].as_array().unwrap().clone();
    keys.push(json!({ "pubkey": "11111111111111111111111111111111" }));
    let data = bs58::encode([2_u32.to_le_bytes().as_slice(), &30_u64.to_le_bytes()].concat()).into_string();
    let sent = json!({ "programIdIndex": 3, "accounts": [1, 2], "data": data });
    let mut meta = tx["meta"].clone();
    for side in ["preBalances", "postBalances"] {
        meta[side].as_array_mut().unwrap().push(1.into());
    }
    let message = json!({ "accountKeys": keys, "instructions": [sent] });
    let transaction = json!({ "signatures": tx["transaction"]["signatures"], "message": message });
    json!({ "slot": slot, "transaction": transaction, "meta": meta, "version": 0 })
}

async fn ask(answers: &[OwnAnswer], rule: SenderRule) -> (Result<Vec<Payer>, SourceError>, u64) {
    let mut nodes = Vec::new();
    for answer in answers {
        let node = Node::start(&Ledger::of(10..=14)).await;
        node.answer_transaction(&TxId::Solana([7; 64]).to_string(), answer.clone());
        nodes.push(node);
    }
    let source = source(&nodes.iter().collect::<Vec<_>>());
    hear_all(&source).await;
    let payers = source.payers(&at(SLOT), &[leg(rule)]).await;
    for node in &nodes {
        let counts = node.counts();
        let Some(how) = counts.last.get(ASKED).map(|params| &params[1]) else { continue };
        assert_eq!((&how["commitment"], &how["encoding"]), (&json!("confirmed"), &json!("json")));
        assert!(how["maxSupportedTransactionVersion"].as_u64() >= Some(1));
    }
    (payers, nodes.iter().map(|node| node.calls(ASKED, None)).sum())
}

fn refusal(code: i64, message: &str) -> OwnAnswer {
    Err((code, message.to_owned()))
}

fn without_meta() -> Value {
    let mut reported = reported(SLOT);
    reported["meta"] = Value::Null;
    reported
}

#[tokio::test]
async fn only_a_sender_that_balances_do_not_report_is_asked_for() {
    use SenderRule::{FeePayer, Instruction, Mint, OnlyPayer, Reported, StandIn};
    for rule in [Reported, OnlyPayer, Instruction, Mint, FeePayer] {
        let (payers, asked) = ask(&[Ok(reported(SLOT))], rule).await;
        assert_eq!((payers.unwrap(), asked), (vec![Payer { sender: owner("F"), rule }], 0));
    }
    let (payers, asked) = ask(&[Ok(reported(SLOT))], StandIn).await;
    assert_eq!((payers.unwrap(), asked), (vec![Payer { sender: owner("A"), rule: Instruction }], 1));
}

#[tokio::test]
async fn who_says_that_it_cannot_report_leaves_the_fee_payer_and_who_does_not_know_it_a_stand_in_and_both_are_asked_once()
 {
    let does_not_know = [
        Ok(Value::Null),
        Ok(without_meta()),
        Ok(reported(SLOT + 1)),
        refusal(-32_004, "not available"),
        refusal(-32_007, "was skipped"),
    ];
    for answer in does_not_know {
        let (payers, asked) = ask(std::slice::from_ref(&answer), SenderRule::StandIn).await;
        let stand_in = vec![Payer { sender: owner("F"), rule: SenderRule::StandIn }];
        assert_eq!((payers.unwrap(), asked), (stand_in, 1), "{answer:?}");
    }
    let fee_payer = vec![Payer { sender: owner("F"), rule: SenderRule::FeePayer }];
    let cases = [
        (refusal(-32_001, "cleaned up"), 1),
        (refusal(-32_009, "was skipped, or missing in long-term storage"), 1),
        (refusal(-32_010, "excluded"), 1),
        (refusal(-32_011, "Transaction history is not available from this node"), 1),
        (refusal(-32_601, "Method not found"), 1),
        (refusal(-32_602, "Invalid params"), 1),
        // Asked once more with the version that it names.
        (refusal(-32_015, "Transaction version (3) is not supported"), 2),
    ];
    for (answer, times) in cases {
        let (payers, asked) = ask(std::slice::from_ref(&answer), SenderRule::StandIn).await;
        assert_eq!((payers.unwrap(), asked), (fee_payer.clone(), times), "{answer:?}");
    }
}

#[tokio::test]
async fn who_fails_may_know_and_only_another_who_reports_makes_up_for_it() {
    let mut broken = reported(SLOT);
    broken["transaction"]["message"]["instructions"][0]["accounts"] = json!([99]);
    for failing in [
        refusal(-32_005, "Node is behind"),
        refusal(-32_014, "Block status not yet available"),
        refusal(-32_016, "Minimum context slot has not been reached"),
        refusal(-32_019, "Failed to query long-term storage; please try again"),
        refusal(-32_603, "Internal error"),
        refusal(429, "too many requests"),
        Ok(broken),
    ] {
        for answers in
            [vec![failing.clone()], vec![failing.clone(), Ok(Value::Null)], vec![Ok(Value::Null), failing.clone()]]
        {
            let error = ask(&answers, SenderRule::StandIn).await.0.unwrap_err();
            assert_eq!(error.kind, SourceErrorKind::Transient, "{error}");
        }
        for answers in [vec![failing.clone(), Ok(reported(SLOT))], vec![Ok(reported(SLOT)), failing.clone()]] {
            let payers = ask(&answers, SenderRule::StandIn).await.0.unwrap();
            assert_eq!(payers, [Payer { sender: owner("A"), rule: SenderRule::Instruction }], "{failing:?}");
        }
    }
}

#[tokio::test]
async fn who_must_be_left_alone_for_a_while_may_know() {
    for answer in [Ok(Value::Null), Ok(reported(SLOT))] {
        let (one, other) = (Node::start(&Ledger::of(10..=14)).await, Node::start(&Ledger::of(10..=14)).await);
        one.answer_transaction(&TxId::Solana([7; 64]).to_string(), answer.clone());
        let source = source(&[&one, &other]);
        other.misbehave(Fault::TooManyRequests { retry_after_secs: Some(120) }, When::Always);
        // It is asked in the background where it does not lead.
        let has_refused = async {
            while source.endpoints().snapshot()[1].reason.is_empty() || other.counts().calls.is_empty() {
                source.tip().await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), has_refused).await.unwrap();
        let payers = source.payers(&at(SLOT), &[leg(SenderRule::StandIn)]).await;
        assert_eq!(other.calls(ASKED, None), 0);
        if answer == Ok(Value::Null) {
            let error = payers.unwrap_err();
            assert_eq!(error.kind, SourceErrorKind::Transient, "{error}");
        } else {
            assert_eq!(payers.unwrap(), [Payer { sender: owner("A"), rule: SenderRule::Instruction }]);
        }
    }
}
