//! What is owned is proved by the state root, or it is not reported.

use std::time::{Duration, Instant};

use alloy::primitives::Address;
use landfall_chain::{
    AccountState, Address as ChainAddress, AddressSource, BlockHash, BlockRef, EndpointState, SourceError,
    SourceErrorKind, U256,
};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::node::{Answer, Ledger, Live, Node, led_by_first, mainnet};

const RECIPIENT: Address = Address::repeat_byte(0xb2);
const NOBODY: Address = Address::repeat_byte(0xee);

/// What anvil proved of some accounts at two blocks: `testdata/SOURCES.md`.
#[derive(Clone)]
pub(crate) struct Accounts(Value);

impl Accounts {
    pub(crate) fn recorded() -> Accounts {
        let path = format!("{}/testdata/anvil_inside_accounts.json", env!("CARGO_MANIFEST_DIR"));
        Accounts(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    pub(crate) fn blocks(&self) -> [BlockRef; 2] {
        [1, 2].map(|number| {
            let header = self.header(|header| header["number"] == format!("{number:#x}"));
            let hash: alloy::primitives::B256 = header["hash"].as_str().unwrap().parse().unwrap();
            BlockRef { number, hash: BlockHash(hash.0) }
        })
    }

    /// The header of block 1 or 2: their places in [`Accounts::blocks`].
    pub(crate) fn header_of(&self, place: usize) -> Value {
        let number = json!(format!("{:#x}", self.blocks()[place].number));
        self.header(|header| header["number"] == number)
    }

    /// What was proved of `owner` there.
    pub(crate) fn proof(&self, place: usize, owner: &Address) -> Value {
        self.0["proofs"][format!("{:#x} {owner:?}", self.blocks()[place].number)].clone()
    }

    fn header(&self, is: impl Fn(&Value) -> bool) -> Value {
        self.0["headers"].as_array().unwrap().iter().find(|header| is(header)).cloned().unwrap_or_default()
    }

    pub(crate) fn answer(&self, method: &str, params: &Value) -> Answer {
        match method {
            "eth_chainId" => Ok(json!("0x1")),
            // Nothing is final yet.
            "eth_getBlockByNumber" if params[0] == "latest" => Ok(self.header(|header| header["number"] == "0x2")),
            "eth_getBlockByNumber" => Ok(self.header(|header| header["number"] == params[0])),
            "eth_getBlockByHash" => Ok(self.header(|header| header["hash"] == params[0])),
            "eth_getProof" => {
                let number = match &params[2]["blockHash"] {
                    Value::Null => params[2].clone(),
                    hash => self.header(|header| header["hash"] == *hash)["number"].clone(),
                };
                let of = format!("{} {}", number.as_str().unwrap(), params[0].as_str().unwrap().to_lowercase());
                Ok(self.0["proofs"][of].clone())
            }
            method => Err((-32601, format!("the method {method} does not exist"))),
        }
    }
}

/// What each of `owners` owned at the block.
async fn balances(source: &EvmSource, owners: &[ChainAddress], at: &BlockRef) -> Result<Vec<U256>, SourceError> {
    Ok(source.account_states(owners, at).await?.into_iter().map(|state| state.balance).collect())
}

/// What the recipient owned at the second block, from a node whose every answer passes through `lie`.
async fn balance(lie: impl Fn(&str, &Value, &mut Value) + Send + Sync + 'static) -> Result<U256, SourceError> {
    balance_of(RECIPIENT, lie).await
}

async fn balance_of(
    owner: Address,
    lie: impl Fn(&str, &Value, &mut Value) + Send + Sync + 'static,
) -> Result<U256, SourceError> {
    let accounts = Accounts::recorded();
    let [_, at] = accounts.blocks();
    let node = Node::start(move |method, params| {
        let mut answer = accounts.answer(method, params)?;
        lie(method, params, &mut answer);
        Ok(answer)
    })
    .await;
    let balances = balances(&node.source(mainnet()), &[ChainAddress::Evm(owner.into())], &at).await?;
    assert_eq!(balances.len(), 1);
    Ok(balances[0])
}

#[tokio::test]
async fn balances_are_proved_in_one_request_and_reported_in_order() {
    let accounts = Accounts::recorded();
    let [before, after] = accounts.blocks();
    let node = Node::start(move |method, params| accounts.answer(method, params)).await;
    let source = node.source(mainnet());
    source.check().await.unwrap();
    node.take_requests();
    let owners = [NOBODY, RECIPIENT, NOBODY].map(|owner| ChainAddress::Evm(owner.into()));
    assert_eq!(balances(&source, &owners, &after).await.unwrap(), [0, 60, 0].map(U256::from));
    assert_eq!(balances(&source, &owners, &before).await.unwrap(), [U256::ZERO; 3]);
    assert_eq!(node.take_requests(), 2);
    assert!(balances(&source, &[], &after).await.unwrap().is_empty());
    // More than a node proves at once are asked for in parts.
    let many = owners.repeat(70);
    assert_eq!(balances(&source, &many, &after).await.unwrap(), [0, 60, 0].map(U256::from).repeat(70));
    assert_eq!(node.take_requests(), 3);
}

#[tokio::test]
async fn a_false_proof_is_never_a_balance() {
    type Lie = fn(&mut Value);
    let cases: [(&str, Lie); 12] = [
        ("more", |proof| proof["balance"] = json!("0x3d")),
        ("nothing", |proof| proof["balance"] = json!("0x0")),
        ("another nonce", |proof| proof["nonce"] = json!("0x7")),
        ("another code", |proof| proof["codeHash"] = json!(format!("0x{}", "11".repeat(32)))),
        ("another storage", |proof| proof["storageHash"] = json!(format!("0x{}", "11".repeat(32)))),
        ("no proof", |proof| proof["accountProof"] = json!([])),
        ("an empty trie", |proof| proof["accountProof"] = json!(["0x80"])),
        ("nothing, and no proof", |proof| {
            proof["balance"] = json!("0x0");
            proof["accountProof"] = json!([]);
        }),
        ("nothing, and an empty trie", |proof| {
            proof["balance"] = json!("0x0");
            proof["accountProof"] = json!(["0x80"]);
        }),
        ("nothing, and a proof cut short", |proof| {
            proof["balance"] = json!("0x0");
            proof["accountProof"].as_array_mut().unwrap().pop();
        }),
        ("a proof cut short", |proof| drop(proof["accountProof"].as_array_mut().unwrap().pop())),
        ("no trie at all", |proof| proof["accountProof"] = json!(["0xc0", "0x01"])),
    ];
    for (name, lie) in cases {
        let lying = move |method: &str, _: &Value, answer: &mut Value| {
            if method == "eth_getProof" {
                lie(answer);
            }
        };
        let error = balance(lying).await.expect_err(name);
        assert_eq!(error.kind, SourceErrorKind::Transient, "{name}");
        let expected = format!("which is not proved: the account proof of {RECIPIENT} does not lead from the header's");
        assert!(error.to_string().contains(&expected), "{name}: {error}");
    }
}

#[tokio::test]
async fn the_proof_of_another_account_or_block_is_none() {
    for other in ["0x2 0x5fbdb2315678afecb367f032d93f642f64180aa3", "0x1 0xb2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2"] {
        let swapped = move |method: &str, _: &Value, answer: &mut Value| {
            if method == "eth_getProof" {
                *answer = Accounts::recorded().0["proofs"][other].clone();
            }
        };
        let error = balance(swapped).await.unwrap_err();
        assert!(error.to_string().contains("the account proof of"), "{other}: {error}");
    }
}

#[tokio::test]
async fn who_is_in_no_leaf_owns_nothing_whatever_else_a_node_writes() {
    for (balance, code, expected) in [("0x0", "00", Some(0)), ("0x0", "c5", Some(0)), ("0x1", "00", None)] {
        let strange = move |method: &str, _: &Value, answer: &mut Value| {
            if method == "eth_getProof" {
                answer["balance"] = json!(balance);
                answer["codeHash"] = json!(format!("0x{}", code.repeat(32)));
            }
        };
        assert_eq!(balance_of(NOBODY, strange).await.ok(), expected.map(U256::from), "{balance} {code}");
    }
}

#[tokio::test]
async fn the_header_must_be_the_one_asked_for() {
    type Lie = fn(&mut Value);
    let cases: [(Lie, &str); 3] = [
        (|header| *header = Value::Null, "is not known there"),
        (|header| *header = Accounts::recorded().0["headers"][0].clone(), "asked for block 2"),
        (|header| header["stateRoot"] = json!(format!("0x{}", "11".repeat(32))), "the header does not hash to it"),
    ];
    for (lie, expected) in cases {
        let lying = move |method: &str, _: &Value, answer: &mut Value| {
            if method == "eth_getBlockByHash" {
                lie(answer);
            }
        };
        let error = balance(lying).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn a_node_that_knows_blocks_by_number_only_is_asked_by_number() {
    // The block it answers for: the right one, and one of another branch.
    for (state, expected) in [("0x2", Some(60)), ("0x1", None)] {
        let accounts = Accounts::recorded();
        let [_, at] = accounts.blocks();
        let node = Node::start(move |method, params| match method {
            "eth_getProof" if params[2].is_object() => Err((-32602, "invalid argument 2: hex string".to_owned())),
            "eth_getProof" => {
                assert_eq!(params[2], "0x2");
                accounts.answer(method, &json!([params[0], [], state]))
            }
            _ => accounts.answer(method, params),
        })
        .await;
        let source = node.source(mainnet());
        let balances = balances(&source, &[ChainAddress::Evm(RECIPIENT.into())], &at).await;
        match expected {
            Some(expected) => assert_eq!(balances.unwrap(), [U256::from(expected)]),
            None => {
                // No lie: by number it answered for its own block.
                let error = balances.unwrap_err();
                assert!(error.to_string().contains("the proof is not of block 2"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_node_that_proves_nothing_is_an_error() {
    let accounts = Accounts::recorded();
    let [_, at] = accounts.blocks();
    let node = Node::start(move |method, params| match method {
        "eth_getProof" => Err((-32000, "distance to target block exceeds maximum proof window".to_owned())),
        _ => accounts.answer(method, params),
    })
    .await;
    let source = node.source(mainnet());
    let error = balances(&source, &[ChainAddress::Evm(RECIPIENT.into())], &at).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("exceeds maximum proof window"), "{error}");
    // Its blocks are as good as before.
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Healthy);
    let error = balances(&source, &[ChainAddress::Solana([1; 32])], &at).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Permanent);
}

#[tokio::test]
async fn who_serves_no_proofs_is_left_for_another_and_who_proves_a_lie_is_left_out() {
    let (all, [_, at]) = (Accounts::recorded(), Accounts::recorded().blocks());
    type Lie = fn(Answer) -> Answer;
    let cases: [(Lie, EndpointState); 3] = [
        (|_| Err((-32005, "rate limit exceeded".to_owned())), EndpointState::Healthy),
        (|_| Err((-32601, "the method eth_getProof does not exist".to_owned())), EndpointState::Healthy),
        (
            |proof| {
                let mut proof = proof?;
                proof["balance"] = json!("0x3d");
                Ok(proof)
            },
            EndpointState::Quarantined,
        ),
    ];
    for (lie, expected) in cases {
        let (lying, honest) = (Live::start(Ledger::default()).await, Live::start(Ledger::default()).await);
        let accounts = all.clone();
        honest.lie(move |method, params| Some(accounts.answer(method, params)));
        let accounts = all.clone();
        lying.lie(move |method, params| {
            let truth = accounts.answer(method, params);
            Some(if method == "eth_getProof" { lie(truth) } else { truth })
        });
        let source = led_by_first(mainnet(), &[&lying, &honest]).await;
        lying.take_calls();
        let begun = Instant::now();
        let owner = [ChainAddress::Evm(RECIPIENT.into())];
        assert_eq!(balances(&source, &owner, &at).await.unwrap(), [U256::from(60)]);
        assert!(lying.take_calls().iter().any(|(method, _)| method == "eth_getProof"), "it was asked first");
        assert_eq!(source.endpoints().snapshot()[0].state, expected);
        // It is asked for all else at once, and in quarantine behind a fifth of 800 ms at the least.
        source.check().await.ok();
        let is_asked = !lying.take_calls().is_empty();
        if expected == EndpointState::Quarantined {
            assert!(!is_asked || begun.elapsed() >= Duration::from_millis(160));
        } else {
            assert!(is_asked);
        }
    }
}

/// Endpoints without proofs, of which each answers `eth_getBalance` and `eth_getCode` so.
async fn reported_by(answers: [fn(&str) -> Answer; 2], agree: usize) -> Result<Vec<AccountState>, SourceError> {
    let [_, at] = Accounts::recorded().blocks();
    let nodes = [Live::start(Ledger::default()).await, Live::start(Ledger::default()).await];
    for (node, report) in nodes.iter().zip(answers) {
        node.lie(move |method, params| {
            Some(match method {
                "eth_getProof" => Err((-32000, "distance to target block exceeds maximum proof window".to_owned())),
                "eth_getBalance" | "eth_getCode" => {
                    assert_eq!(params[1], json!({ "blockHash": at.hash.to_string() }), "by hash, or of another branch");
                    report(method)
                }
                _ => Accounts::recorded().answer(method, params),
            })
        });
    }
    let source = led_by_first(mainnet(), &[&nodes[0], &nodes[1]]).await;
    source.set_agree(agree).unwrap();
    source.account_states(&[ChainAddress::Evm(RECIPIENT.into())], &at).await
}

#[tokio::test]
async fn where_nobody_proves_it_as_many_as_must_agree_report_a_balance_and_code() {
    type Report = fn(&str) -> Answer;
    let sixty: Report = |method: &str| Ok(json!(if method == "eth_getBalance" { "0x3c" } else { "0x" }));
    let contract: Report = |method: &str| Ok(json!(if method == "eth_getBalance" { "0x3c" } else { "0x30ff" }));
    let pruned: Report = |_: &str| Err((-32000, "missing trie node 5b (path ) state is not available".to_owned()));
    let busy: Report = |_: &str| Err((-32603, "internal error".to_owned()));
    let state = |has_code| AccountState { balance: U256::from(60), has_code };
    assert_eq!(reported_by([sixty, sixty], 2).await.unwrap(), [state(false)]);
    assert_eq!(reported_by([contract, contract], 2).await.unwrap(), [state(true)]);
    assert_eq!(reported_by([pruned, sixty], 1).await.unwrap(), [state(false)]);
    // Whether it has code decides as much as the balance.
    let differ = reported_by([sixty, contract], 2).await.unwrap_err();
    assert!(!differ.is_state_gone && differ.to_string().contains("of 2 reports no 2 do"), "{differ}");
    // Gone is what every endpoint answers that it has not; who could not be asked may have it.
    for answers in [[pruned, pruned], [sixty, pruned], [pruned, sixty]] {
        let error = reported_by(answers, 2).await.unwrap_err();
        assert!(error.is_state_gone && error.kind == SourceErrorKind::Transient, "{error}");
    }
    for answers in [[pruned, busy], [sixty, busy]] {
        let error = reported_by(answers, 2).await.unwrap_err();
        assert!(!error.is_state_gone && error.to_string().contains("internal error"), "{error}");
    }
}
