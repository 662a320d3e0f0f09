//! Blocks that two endpoints must report alike: what they report differently is believed of nobody until a third decides, what
//! only one can report is waited for, and who looked through a block before need not report it again.

use std::time::{Duration, Instant};

use landfall_chain::{
    Block, BlockRef, BlockSource, EndpointState, Proof, Read, ReadProof, SourceError, SourceErrorKind, U256,
};
use landfall_cluster::{Instead, Ledger, Node, Refusal, Tx, Version, hash};
use landfall_solana::{Sample, SolanaSource, Timings};
use serde_json::{Value, json};

use crate::made::{FEE, Made, RENT, SPL_TOKEN, USDC, associated, key};
use crate::sources::{at, hear_all, leads, settled, source, source_with};

/// A block as a node reports it.
type ReportedBlock = landfall_cluster::Block;
/// What an endpoint says is not so.
type Lie = fn(&mut ReportedBlock);
/// Has a node not report its blocks.
type Spoil = fn(&Node);

const LISTED: Read = Read { proof: ReadProof::Candidate, ..Read::FULL };
const TOKEN_2022: &str = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb";
/// Longer than any machine stands still.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than it takes to ask and hear.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);

/// SOL, and USDC to where it belongs.
pub(crate) fn payments() -> Vec<Value> {
    let sol = Made::default().account("payer", [5_000_000, 3_000_000]).account("ours", [0, 2_000_000]).tx();
    let mut usdc = Made::default()
        .account("payer", [5_000_000, 5_000_000])
        .tokens("from", "payer", USDC, [RENT; 2], [Some(900), Some(200)])
        .tokens_at(associated(&key("ours")), "ours", USDC, [RENT; 2], [Some(0), Some(700)])
        .tx();
    usdc["transaction"]["signatures"] = json!([bs58::encode([8; 64]).into_string()]);
    vec![sol, usdc]
}

fn paying(slots: std::ops::RangeInclusive<u64>) -> Ledger {
    let ledger = Ledger::of(slots);
    // Of a version that is asked for at once: otherwise the first look at the block costs one more call.
    payments().iter().for_each(|tx| ledger.put(12, Tx::raw(tx).with_version(Version::Number(0))));
    ledger
}

/// As many nodes with the same blocks, each with a ledger of its own; the first is a block ahead, so that it leads and is
/// asked first.
async fn nodes(count: usize) -> (Vec<Node>, SolanaSource) {
    patient(count, Timings::PRODUCTION.second_wait).await
}

/// The same, and a second one that does not have a block yet is waited for so long.
async fn patient(count: usize, second_wait: Duration) -> (Vec<Node>, SolanaSource) {
    let mut nodes = vec![Node::start(&paying(10..=16)).await];
    for _ in 1..count {
        nodes.push(Node::start(&paying(10..=15)).await);
    }
    let timings = Timings { second_wait, ..Timings::PRODUCTION };
    let source = source_with(&nodes.iter().collect::<Vec<_>>(), timings);
    leads(&source, 16).await;
    (nodes, source)
}

/// Has the node report the block that pays otherwise.
fn spoil(node: &Node, lie: Lie) {
    node.ledger().amend(12, lie);
}

/// Changes what is told of the transaction at this place.
fn report(reported: &mut ReportedBlock, at: usize, change: impl FnOnce(&mut Value)) {
    reported.txs[at] = reported.txs[at].changed(change);
}

async fn full(source: &SolanaSource, slot: u64) -> Result<Block, SourceError> {
    let blocks = source.blocks(slot..=slot, Read::FULL).await?;
    Ok(blocks.into_iter().next().unwrap())
}

fn states(source: &SolanaSource) -> Vec<EndpointState> {
    source.endpoints().snapshot().iter().map(|endpoint| endpoint.state).collect()
}

fn other_signature() -> String {
    bs58::encode([9; 64]).into_string()
}

/// What an endpoint may report otherwise of the block, each by itself, and what it is said to be.
const LIES: [(&str, &str, Lie); 15] = [
    ("one lamport more", "what its transactions came to", |reported| {
        report(reported, 0, |tx| tx["meta"]["postBalances"][1] = json!(2_000_001));
    }),
    ("one lamport more before", "what its transactions came to", |reported| {
        report(reported, 0, |tx| tx["meta"]["preBalances"][1] = json!(1));
    }),
    ("a transaction left out", "its transactions", |reported| drop(reported.txs.pop())),
    ("a transaction twice as another", "its transactions", |reported| {
        let again = reported.txs[0].changed(|tx| tx["transaction"]["signatures"] = json!([other_signature()]));
        reported.txs.push(again);
    }),
    ("another signature", "its transactions", |reported| {
        report(reported, 0, |tx| tx["transaction"]["signatures"] = json!([other_signature()]));
    }),
    ("a failure", "what its transactions came to", |reported| {
        report(reported, 1, |tx| tx["meta"]["err"] = json!({ "InstructionError": [0, "Custom"] }));
    }),
    ("another owner", "what its transactions came to", |reported| {
        report(reported, 1, |tx| tx["meta"]["postTokenBalances"][1]["owner"] = json!(key("theirs")));
    }),
    ("another token program", "what its transactions came to", |reported| {
        for side in ["preTokenBalances", "postTokenBalances"] {
            report(reported, 1, |tx| tx["meta"][side][1]["programId"] = json!(TOKEN_2022));
        }
    }),
    ("another mint", "what its transactions came to", |reported| {
        report(reported, 1, |tx| tx["meta"]["postTokenBalances"][1]["mint"] = json!(key("mint")));
    }),
    ("one unit more", "what its transactions came to", |reported| {
        report(reported, 1, |tx| tx["meta"]["postTokenBalances"][1]["uiTokenAmount"]["amount"] = json!("701"));
    }),
    ("another fee", "what its transactions came to", |reported| {
        report(reported, 0, |tx| tx["meta"]["fee"] = json!(FEE + 1))
    }),
    ("another payer", "what its transactions came to", |reported| {
        report(reported, 0, |tx| tx["transaction"]["accountKeys"][0]["pubkey"] = json!(key("somebody")));
    }),
    ("another token account", "what its transactions came to", |reported| {
        report(reported, 1, |tx| tx["transaction"]["accountKeys"][2]["pubkey"] = json!(key("elsewhere")));
    }),
    ("another parent's hash", "its parent", |reported| reported.parent.hash = hash(11, 9)),
    ("another parent's slot", "its parent", |reported| reported.parent = BlockRef { number: 10, ..reported.parent }),
];

#[tokio::test]
async fn a_block_that_two_report_differently_is_nobodys_and_a_third_decides_whoever_leads() {
    for (what, shown, lie) in LIES {
        for liar in [0, 1] {
            let (nodes, source) = nodes(2).await;
            spoil(&nodes[liar], lie);
            let error = full(&source, 12).await.unwrap_err();
            assert!(error.is_disputed && error.kind == SourceErrorKind::Transient, "{what}: {error}");
            let text = error.to_string();
            assert!(nodes.iter().all(|node| text.contains(node.id())), "{what}: {text}");
            assert!(text.contains(&format!("tell block {} differently ({shown})", at(12))), "{what}: {text}");
            assert_eq!(states(&source), [EndpointState::Healthy; 2], "{what}: nothing says who lies");
            assert!(full(&source, 11).await.is_ok(), "other blocks are read all the same");
        }
        // With a third one, the first two that are asked are the liar and an honest one.
        let (nodes, source) = nodes(3).await;
        spoil(&nodes[0], lie);
        let block = full(&source, 12).await.unwrap();
        assert_eq!((block.proof, block.header.parent, block.txs.len()), (Proof::TwoEndpoints, at(11), 2), "{what}");
        let amounts: Vec<U256> = block.transfers.iter().map(|leg| leg.amount).collect();
        assert_eq!(amounts, [U256::from(2_000_000), U256::from(700)], "{what}");
        let [liar, one, other] = [0, 1, 2].map(|index| source.endpoints().snapshot()[index].clone());
        assert_eq!(liar.state, EndpointState::Quarantined, "{what}");
        assert!(liar.reason.contains(&format!("tells block {} otherwise than ", at(12))), "{}", liar.reason);
        assert!(liar.reason.ends_with(&format!("({shown})")), "{}", liar.reason);
        assert_eq!([one.state, other.state], [EndpointState::Healthy; 2], "{what}");
    }
}

#[tokio::test]
async fn decimals_that_are_not_the_listed_ones_are_no_second_word() {
    let (nodes, source) = nodes(2).await;
    let decimals = |reported: &mut ReportedBlock| {
        report(reported, 1, |tx| tx["meta"]["preTokenBalances"][0]["uiTokenAmount"]["decimals"] = json!(7));
    };
    spoil(&nodes[1], decimals);
    let error = full(&source, 12).await.unwrap_err().to_string();
    assert!(error.contains("is told by endpoint") && error.contains("has 7 decimals in block 12"), "{error}");
}

#[tokio::test]
async fn who_looked_a_block_through_is_not_asked_for_it_again_and_one_more_look_asks_both() {
    let (nodes, source) = nodes(2).await;
    let listed = source.blocks(10..=15, LISTED).await.unwrap();
    assert!(listed.iter().all(|block| block.proof == Proof::OneEndpoint));
    let calls = |node: usize| (nodes[node].calls("getBlock", Some(12)), nodes[node].calls("getBlocks", None));
    assert_eq!((calls(0), calls(1)), ((1, 1), (0, 0)));
    let block = full(&source, 12).await.unwrap();
    assert_eq!((block.proof, block.transfers.len(), block.fees.len()), (Proof::TwoEndpoints, 2, 2));
    assert_eq!((calls(0), calls(1)), ((1, 1), (1, 0)), "the first is not asked again, nor where the blocks are");
    // Who judges by it later has both report it anew.
    assert_eq!(full(&source, 12).await.unwrap(), block);
    assert_eq!((calls(0), calls(1)), ((2, 2), (2, 0)));
    assert_eq!(nodes[1].calls("getBlock", None), 2, "the second is asked for nothing else");
}

#[tokio::test]
async fn a_word_that_is_out_of_date_convicts_nobody() {
    let (nodes, source) = nodes(2).await;
    spoil(&nodes[0], |reported| drop(reported.txs.pop()));
    source.blocks(10..=15, LISTED).await.unwrap();
    // It reported the block before it knew all of it.
    nodes[0].show(&paying(10..=16));
    let block = full(&source, 12).await.unwrap();
    assert_eq!((block.proof, block.txs.len()), (Proof::TwoEndpoints, 2));
    assert_eq!(states(&source), [EndpointState::Healthy; 2]);
    // And so with a word on another branch.
    nodes[0].show(&paying(10..=16).forked_at(12));
    source.blocks(10..=15, LISTED).await.unwrap();
    nodes[0].show(&paying(10..=16));
    assert_eq!(full(&source, 12).await.unwrap().header.block, at(12));
}

#[tokio::test]
async fn what_the_second_cannot_report_is_waited_for_and_never_passed_over() {
    let cases: [(&str, Spoil); 4] = [
        ("has not reached block 12: its newest one is 11", |node| node.lag(4)),
        ("does not tell block 12", |node| node.answer_instead(12, Instead::Null)),
        ("does not tell block 12", |node| spoil(node, |reported| report(reported, 0, |tx| tx["meta"] = Value::Null))),
        ("Internal error", |node| node.answer_instead(12, Instead::Refuse(Refusal::Internal))),
    ];
    for (why, spoil) in cases {
        let (nodes, source) = nodes(2).await;
        source.blocks(10..=15, LISTED).await.unwrap();
        spoil(&nodes[1]);
        // Whether it has come as far is known then.
        leads(&source, 16).await;
        let error = full(&source, 12).await.unwrap_err();
        assert_eq!((error.kind, error.is_disputed), (SourceErrorKind::Transient, false), "{error}");
        let text = error.to_string();
        let alone = format!("block {} is told by endpoint {} alone, and two endpoints", at(12), nodes[0].id());
        assert!(text.contains(&alone) && text.contains(why) && text.contains(nodes[1].id()), "{text}");
        assert_eq!(nodes[0].calls("getBlock", Some(12)), 1, "the first is not asked again for that");
        nodes[1].behave();
        nodes[1].lag(0);
        nodes[1].show(&paying(10..=15));
        // A poll shows that it has come further; a slow machine lets a wait end before it has answered.
        let begun = Instant::now();
        let block = loop {
            hear_all(&source).await;
            match full(&source, 12).await {
                Ok(block) => break block,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
        };
        assert_eq!(block.proof, Proof::TwoEndpoints, "{why}");
    }
}

#[tokio::test]
async fn a_second_endpoint_that_is_a_moment_behind_is_waited_for() {
    let (nodes, source) = patient(2, PATIENCE).await;
    nodes[1].lag(4);
    let comes_later = async {
        while nodes[1].calls("getBlock", Some(12)) == 0 {
            tokio::task::yield_now().await;
        }
        nodes[1].ledger().grow(Vec::new());
        nodes[1].lag(0);
    };
    let both = async { tokio::join!(full(&source, 12), comes_later).0 };
    let block = tokio::time::timeout(PATIENCE, both).await.unwrap();
    assert_eq!(block.unwrap().proof, Proof::TwoEndpoints);
    assert_eq!(nodes[1].calls("getBlock", Some(12)), 2, "once more when it has told a newer block");
}

/// Whether the block is asked of two with all the patience that there is, and reported by one all the same.
async fn is_waited_for(source: &SolanaSource, slot: u64) -> bool {
    let begun = Instant::now();
    let error = full(source, slot).await.unwrap_err();
    assert!(error.is_unwitnessed, "{error}");
    begun.elapsed() >= SHORT_PATIENCE
}

#[tokio::test]
async fn a_second_endpoint_that_was_waited_for_in_vain_is_waited_for_again_when_it_has_come_as_far() {
    let (nodes, source) = patient(2, SHORT_PATIENCE).await;
    nodes[1].lag(4);
    leads(&source, 16).await;
    assert!(is_waited_for(&source, 12).await);
    for slot in [12, 13, 14] {
        assert!(!is_waited_for(&source, slot).await, "far behind as it is, it costs no other block a wait: {slot}");
    }
    assert_eq!(nodes[1].calls("getBlock", None), 0, "by its own word it has none of them");
    nodes[1].lag(3);
    leads(&source, 16).await;
    assert!(is_waited_for(&source, 14).await);
    assert_eq!(full(&source, 12).await.unwrap().proof, Proof::TwoEndpoints);
}

#[tokio::test]
async fn a_second_endpoint_that_lacks_blocks_which_it_has_passed_is_waited_for_again_when_it_reported_one() {
    let (nodes, source) = patient(2, SHORT_PATIENCE).await;
    for slot in [12, 14] {
        nodes[1].answer_instead(slot, Instead::Null);
    }
    assert!(is_waited_for(&source, 12).await);
    assert!(!is_waited_for(&source, 12).await && !is_waited_for(&source, 14).await);
    assert_eq!(full(&source, 13).await.unwrap().proof, Proof::TwoEndpoints);
    assert!(is_waited_for(&source, 14).await);
}

#[tokio::test]
async fn nobody_is_waited_for_with_a_block_that_is_final() {
    let (nodes, source) = patient(2, SHORT_PATIENCE).await;
    nodes[1].answer_instead(12, Instead::Null);
    nodes[1].answer_instead(13, Instead::Null);
    nodes.iter().for_each(|node| node.call_final(12));
    assert_eq!(settled(&source).await.finalized, Some(at(12)));
    assert!(!is_waited_for(&source, 12).await);
    assert!(is_waited_for(&source, 13).await, "it is no word about others");
}

#[tokio::test]
async fn a_second_endpoint_is_asked_for_a_block_when_a_poll_shows_it_there() {
    let (nodes, source) = patient(2, PATIENCE).await;
    nodes[1].lag(4);
    leads(&source, 16).await;
    let asked = nodes[1].calls("getLatestBlockhash", None);
    let comes_later = async {
        while nodes[1].calls("getLatestBlockhash", None) < asked + 4 {
            tokio::task::yield_now().await;
        }
        assert_eq!(nodes[1].calls("getBlock", None), 0, "by its own word it is not there yet");
        nodes[1].lag(0);
    };
    let both = async { tokio::join!(full(&source, 12), comes_later).0 };
    let block = tokio::time::timeout(PATIENCE, both).await.unwrap();
    assert_eq!(block.unwrap().proof, Proof::TwoEndpoints);
    assert_eq!([&nodes[0], &nodes[1]].map(|node| node.calls("getBlock", None)), [1, 1]);
}

#[tokio::test]
async fn who_fails_at_a_block_is_not_asked_for_it_again_while_another_is_waited_for() {
    // Of a version that nobody knows it is asked for in three ways, once.
    for (refusal, calls) in [(Refusal::Internal, 1), (Refusal::TransactionVersion(9), 3)] {
        let (nodes, source) = nodes(3).await;
        nodes[2].answer_instead(12, Instead::Refuse(refusal));
        nodes[1].lag(4);
        leads(&source, 16).await;
        let error = full(&source, 12).await.unwrap_err().to_string();
        assert!(error.contains("has not reached block 12") && error.contains(nodes[2].id()), "{error}");
        assert_eq!(nodes[2].calls("getBlock", Some(12)), calls, "{error}");
        // It failed once, and rests for as long as one does that failed once.
        nodes[2].behave();
        nodes[2].show(&paying(10..=15));
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!(full(&source, 12).await.unwrap().proof, Proof::TwoEndpoints, "{refusal:?}");
    }
}

#[tokio::test]
async fn another_block_in_the_slot_is_another_branch_and_neither_a_lie_nor_a_second_word() {
    let (nodes, source) = nodes(2).await;
    nodes[1].show(&paying(10..=15).forked_at(12));
    let error = full(&source, 12).await.unwrap_err();
    assert!(!error.is_disputed, "{error}");
    let text = error.to_string();
    for (node, fork) in [(0, 0), (1, 1)] {
        let shows = format!("endpoint {} shows block 12 ({})", nodes[node].id(), hash(12, fork));
        assert!(text.contains(&shows), "{text}");
    }
    assert_eq!(states(&source), [EndpointState::Healthy; 2]);
    nodes[1].show(&paying(10..=15));
    assert_eq!(full(&source, 12).await.unwrap().proof, Proof::TwoEndpoints);
}

#[tokio::test]
async fn where_one_may_suffice_its_word_counts_and_says_so() {
    let (nodes, source) = nodes(2).await;
    nodes[1].answer_instead(12, Instead::Null);
    source.endpoints().override_agree(Some(1));
    assert_eq!(full(&source, 12).await.unwrap().proof, Proof::OneEndpoint);
    assert_eq!(nodes[1].calls("getBlock", None), 0);
    source.endpoints().override_agree(None);
    assert!(full(&source, 12).await.is_err(), "the word is taken back");
    source.set_agree(1).unwrap();
    assert_eq!(full(&source, 12).await.unwrap().proof, Proof::OneEndpoint);
    // And there is only one.
    let (nodes, source) = self::nodes(1).await;
    assert_eq!(full(&source, 12).await.unwrap().proof, Proof::OneEndpoint);
    assert_eq!(nodes[0].calls("getBlock", None), 1);
}

#[tokio::test]
async fn an_endpoint_that_leaves_transactions_out_is_found_in_blocks_without_a_hit() {
    let every = Sample { one_in: 1, key: 0 };
    let (nodes, source) = nodes(2).await;
    let source = source.with_sample(every);
    assert!(source.blocks(10..=15, LISTED).await.unwrap().iter().all(|block| block.proof == Proof::TwoEndpoints));
    spoil(&nodes[0], |reported| reported.txs.clear());
    let shown = source.blocks(10..=15, LISTED).await.unwrap();
    assert_eq!(shown.len(), 2, "nothing moves on from where they differ");
    assert!(source.blocks(12..=15, LISTED).await.unwrap_err().is_disputed);
    let (nodes, source) = self::nodes(3).await;
    let source = source.with_sample(every);
    spoil(&nodes[0], |reported| reported.txs.clear());
    let shown = source.blocks(10..=15, LISTED).await.unwrap();
    assert_eq!((shown.len(), shown[2].txs.len()), (6, 2));
    assert_eq!(states(&source)[0], EndpointState::Quarantined);
    assert!(source.endpoints().snapshot()[0].reason.contains("(its transactions)"));
}

#[tokio::test]
async fn a_block_that_was_to_be_compared_and_concerns_somebody_is_not_asked_for_again_of_who_reported_it() {
    let (nodes, source) = patient(2, PATIENCE).await;
    let source = source.with_sample(Sample { one_in: 1, key: 0 });
    nodes[1].lag(4);
    let listed = source.blocks(12..=12, LISTED).await.unwrap();
    assert_eq!(listed[0].proof, Proof::OneEndpoint, "the second has not got it yet");
    nodes[1].lag(0);
    assert_eq!(full(&source, 12).await.unwrap().proof, Proof::TwoEndpoints);
    assert_eq!(nodes[0].calls("getBlock", Some(12)), 1);
}

#[tokio::test]
async fn a_word_that_was_owed_and_is_out_of_date_takes_back_nothing_that_two_reported_in_full() {
    let (nodes, source) = patient(2, PATIENCE).await;
    let source = source.with_sample(Sample { one_in: 1, key: 0 });
    spoil(&nodes[0], |reported| drop(reported.txs.pop()));
    nodes[1].lag(4);
    let listed = source.blocks(12..=12, LISTED).await.unwrap();
    assert_eq!((listed[0].proof, listed[0].txs.len()), (Proof::OneEndpoint, 1), "the second has not got it yet");
    // It reported the block before it knew all of it.
    nodes[0].show(&paying(10..=16));
    nodes[1].lag(0);
    assert_eq!(full(&source, 12).await.unwrap().txs.len(), 2);
    assert_eq!(source.cross_check(&at(11), 12..=12, &[at(12)], true).await.unwrap(), None);
}

#[tokio::test]
async fn of_many_blocks_one_in_32_costs_the_second_endpoint_a_read() {
    const SLOTS: u64 = 1_280;
    let (first, second) =
        (Node::start(&Ledger::of(10..=10 + SLOTS)).await, Node::start(&Ledger::of(10..=9 + SLOTS)).await);
    let sample = Sample::default();
    let source = source(&[&first, &second]).with_sample(sample);
    leads(&source, 10 + SLOTS).await;
    let mut sampled = 0;
    let mut from = 10;
    while from < 10 + SLOTS {
        let to = (from + 255).min(9 + SLOTS);
        let shown = source.blocks(from..=to, LISTED).await.unwrap();
        assert_eq!(shown.len() as u64, to + 1 - from);
        sampled += shown.iter().filter(|block| block.proof == Proof::TwoEndpoints).count() as u64;
        let is_picked = |block: &Block| sample.picks(&block.header.block.hash) == (block.proof == Proof::TwoEndpoints);
        assert!(shown.iter().all(is_picked));
        from = to + 1;
    }
    assert!((20..=60).contains(&sampled), "{sampled}");
    assert_eq!((first.calls("getBlock", None), second.calls("getBlock", None)), (1_280, sampled));
}

#[tokio::test]
async fn a_token_balance_without_its_program_is_that_of_the_listed_one() {
    let (nodes, source) = nodes(2).await;
    spoil(&nodes[1], |reported| report(reported, 1, without_programs));
    assert_eq!(full(&source, 12).await.unwrap().proof, Proof::TwoEndpoints);
}

fn without_programs(tx: &mut Value) {
    for side in ["preTokenBalances", "postTokenBalances"] {
        for balance in tx["meta"][side].as_array_mut().unwrap() {
            assert_eq!(balance["programId"], SPL_TOKEN);
            balance.as_object_mut().unwrap().remove("programId");
        }
    }
}
