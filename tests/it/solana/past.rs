//! `landfall backfill` on Solana: by the signatures of an address and by slots, whatever nodes leave out, reorder or
//! refuse.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::{Deposit, DepositStatus};
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::unattributed;
use landfall::time::Timestamp;
use landfall::watcher::{Backfill, BackfillError, Follower, Job, Progress, Scope, Settings, Start};
use landfall_chain::{
    Address, AddressSource, Asset, AssetId, Chain, Family, Found, Named, Network, Proof, ReadProof, TxId, U256, Watched,
};
use landfall_cluster::tx::associated;
use landfall_cluster::{Before, Fault, Ledger, Lists, Node, Payment, Refusal, SlotOrder, Tx, Version, When};
use landfall_solana::{EndpointUrl, Options, SolanaSource, Timings, TokenProgram, Wrapped, network};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::harness::books::events;
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::solana_ledger::{SPL_TOKEN, TOKEN_2022};
use crate::harness::world::FAILED_GRACE;

pub(crate) const CHAIN: Chain = Chain::SolanaMainnet;
pub(crate) const OURS: Address = Address::Solana([0x21; 32]);
pub(crate) const PAYER: Address = Address::Solana([0x22; 32]);
const OTHER: Address = Address::Solana([0x23; 32]);
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
const SIGNATURES: &str = "getSignaturesForAddress";
const RENT: u64 = 2_039_280;
/// Of an endpoint that is asked last.
const SLOWER: Duration = Duration::from_millis(50);

pub(crate) fn usdc() -> Address {
    let AssetId::Token(mint) = network(CHAIN).unwrap().assets[1].id else { panic!("USDC is a token") };
    mint
}

fn wrapped_sol() -> Address {
    Address::parse(Family::Solana, "So11111111111111111111111111111111111111112").unwrap()
}

fn source(nodes: &[&Node]) -> SolanaSource {
    source_of(&network(CHAIN).unwrap(), nodes, &Options::default())
}

fn source_of(network: &Network, nodes: &[&Node], options: &Options) -> SolanaSource {
    let urls = nodes.iter().map(|node| EndpointUrl::from(node.url().parse::<url::Url>().unwrap()));
    let options = Options { timings: Timings::SHORT, ..options.clone() };
    SolanaSource::at(network, urls.collect(), &options).unwrap()
}

/// A watcher over these nodes that would begin behind `start`.
pub(crate) fn watcher(nodes: &[&Node], store: &TestStore, start: u64) -> Follower<std::sync::Arc<SolanaSource>> {
    watcher_of(network(CHAIN).unwrap(), nodes, &Options::default(), store, start)
}

fn watcher_of(
    network: Network,
    nodes: &[&Node],
    options: &Options,
    store: &TestStore,
    start: u64,
) -> Follower<std::sync::Arc<SolanaSource>> {
    let settings = Settings {
        start: Start::Number(start),
        proof: ReadProof::Candidate,
        poll: Duration::from_millis(10),
        failed_grace: FAILED_GRACE,
        finality_stall: None,
        block_stall: None,
    };
    let source = std::sync::Arc::new(source_of(&network, nodes, options));
    let endpoints = source.endpoints();
    Follower::new(source, endpoints, store.db.clone(), network, settings)
}

pub(crate) async fn watch(store: &TestStore, id: &str, address: Address) {
    let account = NewAccount {
        id: id.to_owned(),
        identity_id: None,
        kind: AccountType::Segregated,
        addresses: [(CHAIN, address)].into(),
    };
    registry::add_accounts(&store.db, &[account], NOW).await.unwrap();
}

/// A store in which `OURS` is watched.
pub(crate) async fn store(engine: Engine) -> TestStore {
    let store = TestStore::fresh(engine).await;
    watch(&store, "ours", OURS).await;
    store
}

/// All that ever named the address.
fn by_address() -> Job {
    Job { from: 0, to: None, proof: ReadProof::Candidate, scope: Scope::Addresses([OURS].into()), dry_run: false }
}

pub(crate) fn by_slots(from: u64, to: u64) -> Job {
    Job { from, to: Some(to), proof: ReadProof::Candidate, scope: Scope::All, dry_run: false }
}

/// The whole job; a step that fails for now is tried again.
pub(crate) async fn run(nodes: &[&Node], store: &TestStore, job: &Job) -> Progress {
    run_by(watcher(nodes, store, 11), job).await
}

async fn run_by(watcher: Follower<std::sync::Arc<SolanaSource>>, job: &Job) -> Progress {
    let mut backfill = Backfill::begin(watcher, job.clone()).await.unwrap();
    while !backfill.is_done() {
        backfill.step(NOW).await.unwrap();
    }
    backfill.progress()
}

pub(crate) async fn deposits_of(store: &TestStore) -> Vec<Deposit> {
    let mut reader = store.db.read().await.unwrap();
    deposits::list(&mut reader, &DepositFilter::default(), 10_000).await.unwrap()
}

/// That every payment to the address which is final is a deposit, CONFIRMED, once, and nothing else is.
pub(crate) async fn assert_all_credited(store: &TestStore, ledger: &Ledger) {
    let mut paid = Vec::new();
    for block in ledger.blocks().iter().filter(|block| block.slot <= ledger.finalized().number) {
        for tx in &block.txs {
            let ours = tx.payments.iter().filter(|payment| payment.recipient == OURS);
            paid.extend(ours.map(|it| (it.asset, U256::from(it.amount), tx.signature().to_owned())));
        }
    }
    let mut credited = Vec::new();
    for deposit in deposits_of(store).await {
        assert_eq!(deposit.status, DepositStatus::Confirmed, "{deposit:?}");
        assert_eq!(deposit.recipient, OURS);
        credited.push((deposit.asset, deposit.amount, deposit.tx.id.to_string()));
    }
    paid.sort_unstable();
    credited.sort_unstable();
    assert_eq!(credited, paid);
}

/// Slots 10 to 260: five transactions that name us in each hundred slots at both ends, one of which pays us, and in
/// slot 150 a burst of 1,500, of which three do. 2,500 signatures in all; what failed is among them.
fn burst() -> Ledger {
    let ledger = Ledger::of(10..=10);
    let of_slot = |slot: u64, count: u64| -> Vec<Tx> {
        let payment = |amount| Payment { asset: AssetId::Native, sender: PAYER, recipient: OURS, amount };
        (0..count)
            .map(|at| {
                let (id, amount) = (slot * 10_000 + at, slot * 10_000 + at + 1);
                if at.is_multiple_of(500) {
                    Tx::sol(id, PAYER, OURS, amount)
                } else {
                    Tx::failing(id, PAYER, &[payment(amount)])
                }
            })
            .collect()
    };
    for slot in 11..=260 {
        let count = match slot {
            20..=119 | 160..=259 => 5,
            150 => 1_500,
            _ => 0,
        };
        ledger.produce(slot, of_slot(slot, count));
    }
    ledger.finalize(260);
    ledger
}

#[tokio::test]
async fn an_owner_with_2500_signatures_on_three_pages_and_a_burst_in_one_slot_is_found_whole() {
    for engine in ENGINES {
        let ledger = burst();
        let node = Node::start(&ledger).await;
        let store = store(engine).await;
        let progress = run(&[&node], &store, &by_address()).await;
        assert_all_credited(&store, &ledger).await;
        assert_eq!((progress.found, progress.confirmed, progress.until), (203, 203, 260), "{engine:?}");
        assert_eq!(
            node.calls(SIGNATURES, None),
            5 + 2,
            "three pages, none behind them, and that it is the end; the token accounts have none"
        );
        assert_eq!(node.counts().last[SIGNATURES][1]["minContextSlot"], json!(260));
        assert_eq!(progress.proof, Some(Proof::OneEndpoint), "one node says that these are all");
        let read: BTreeSet<u64> = (20..=119).chain([150]).chain(160..=259).collect();
        let whole = |slot: u64| node.calls("getBlock", Some(slot)) > 0;
        assert!(
            (10..=260).all(|slot| slot == 260 || whole(slot) == read.contains(&slot)),
            "what names nobody is not read"
        );
    }
}

#[tokio::test]
async fn p4_an_order_that_changes_within_a_slot_from_page_to_page_hides_no_slot() {
    let ledger = burst();
    let node = Node::start(&ledger).await;
    node.set_lists(Lists { order: SlotOrder::Turning, ..Lists::default() });
    let store = store(Engine::Sqlite).await;
    run(&[&node], &store, &by_address()).await;
    assert_all_credited(&store, &ledger).await;
}

#[tokio::test]
async fn p4_a_short_page_is_no_end() {
    let ledger = burst();
    let node = Node::start(&ledger).await;
    node.set_lists(Lists { page_max: 300, ..Lists::default() });
    let store = store(Engine::Sqlite).await;
    run(&[&node], &store, &by_address()).await;
    assert_all_credited(&store, &ledger).await;
    assert_eq!(node.calls(SIGNATURES, None), 9 + 2 + 2);
}

#[tokio::test]
async fn what_one_of_two_nodes_leaves_out_is_found_by_the_other_and_the_level_says_whether_both_reported_all() {
    let ledger = burst();
    let all: Vec<u64> = (20..=119).chain([150]).chain(160..=259).collect();
    for (ends_after, proof) in
        [(None, Proof::TwoEndpoints), (Some(700), Proof::OneEndpoint), (Some(0), Proof::OneEndpoint)]
    {
        let (first, second) = (Node::start(&ledger).await, Node::start(&ledger).await);
        // Whichever is asked first: one of them lies.
        for (liar, honest) in [(&first, &second), (&second, &first)] {
            liar.set_lists(Lists { ends_after, ..Lists::default() });
            honest.set_lists(Lists::default());
            let found = source(&[&first, &second]).candidates(1..=260, Watched::Listed(&[OURS].into())).await.unwrap();
            assert_eq!(found, Found::Named(Named { through: 260, numbers: all.clone(), proof }), "{ends_after:?}");
        }
        let store = store(Engine::Sqlite).await;
        run(&[&first, &second], &store, &by_address()).await;
        assert_all_credited(&store, &ledger).await;
    }
}

#[tokio::test]
async fn a_third_node_bears_out_what_two_report_apart_and_other_slots_are_left_out() {
    let ledger = burst();
    let (first, second, third) = (Node::start(&ledger).await, Node::start(&ledger).await, Node::start(&ledger).await);
    first.set_lists(Lists { ends_after: Some(3), ..Lists::default() });
    let found =
        source(&[&first, &second, &third]).candidates(150..=161, Watched::Listed(&[OURS].into())).await.unwrap();
    assert_eq!(found, Found::Named(Named { through: 161, numbers: vec![150, 160, 161], proof: Proof::TwoEndpoints }));
}

#[tokio::test]
async fn a_node_that_ends_its_list_early_alone_is_believed_and_the_level_says_so() {
    let ledger = burst();
    let node = Node::start(&ledger).await;
    node.set_lists(Lists { ends_after: Some(700), ..Lists::default() });
    let store = store(Engine::Sqlite).await;
    let progress = run(&[&node], &store, &by_address()).await;
    assert!(progress.found < 203);
    assert_eq!(progress.proof, Some(Proof::OneEndpoint));
}

#[tokio::test]
async fn p4_a_node_that_does_not_know_where_a_page_begins_is_left_and_the_filter_is_never_dropped() {
    let ledger = burst();
    let refused = |refusal| (Lists::default(), Some(Fault::Refuse(refusal)));
    let lists = [
        // -32020, of the second page alone and of each, and the older way: the newest page again.
        (Lists { before: Before::Unknown, ..Lists::default() }, None),
        refused(Refusal::FilterTransactionNotFound),
        (Lists { before: Before::Ignored, ..Lists::default() }, None),
        // The storage of what is old cannot be reached; the node is ill, behind, or asked too often.
        refused(Refusal::LongTermStorageUnreachable),
        refused(Refusal::NodeUnhealthy),
        refused(Refusal::MinContextSlotNotReached),
        refused(Refusal::RateLimited),
        (Lists::default(), Some(Fault::TooManyRequests { retry_after_secs: None })),
    ];
    for (lists, fault) in lists {
        let node = Node::start(&ledger).await;
        let store = store(Engine::Sqlite).await;
        node.set_lists(lists);
        node.confine(SIGNATURES);
        fault.iter().for_each(|fault| node.misbehave(*fault, When::Always));
        let mut backfill = Backfill::begin(watcher(&[&node], &store, 11), by_address()).await.unwrap();
        for _ in 0..3 {
            let error = backfill.step(NOW).await.unwrap_err();
            assert!(error.may_pass(), "{error}");
        }
        assert!(deposits_of(&store).await.is_empty() && !backfill.is_done());
        assert!(fault.is_none_or(|fault| node.struck(fault) > 0), "{fault:?}");
        // Another node does.
        let honest = Node::start(&ledger).await;
        let search = watcher(&[&node, &honest], &store, 11);
        let mut backfill = Backfill::begin(search, by_address()).await.unwrap();
        let error = backfill.step(NOW).await.unwrap_err();
        assert!(error.may_pass(), "two must agree: {error}");
        node.behave();
        node.set_lists(Lists::default());
        run(&[&node, &honest], &store, &by_address()).await;
        assert_all_credited(&store, &ledger).await;
    }
}

#[tokio::test]
async fn p4_an_empty_page_of_a_node_that_does_not_know_where_it_begins_is_no_end() {
    let ledger = burst();
    let (node, store) = (Node::start(&ledger).await, store(Engine::Sqlite).await);
    node.set_lists(Lists { before: Before::Nothing, ..Lists::default() });
    let mut backfill = Backfill::begin(watcher(&[&node], &store, 11), by_address()).await.unwrap();
    let error = backfill.step(NOW).await.unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("nothing that shows that it knows it"), "{error}");
    assert!(deposits_of(&store).await.is_empty() && !backfill.is_done());
    // Another node answers at the same address.
    let step = async {
        backfill.step(NOW).await.unwrap();
    };
    let turn = async {
        tokio::time::sleep(std::time::Duration::from_millis(600)).await;
        node.set_lists(Lists::default());
    };
    tokio::join!(step, turn);
    while !backfill.is_done() {
        backfill.step(NOW).await.unwrap();
    }
    assert_all_credited(&store, &ledger).await;
}

#[tokio::test]
async fn p4_lists_that_fail_again_and_again_are_asked_for_until_they_come() {
    const FAILURES: u64 = 9;
    let (ledger, store) = (burst(), store(Engine::Sqlite).await);
    let node = Node::start(&ledger).await;
    let fault = Fault::Refuse(Refusal::FilterTransactionNotFound);
    node.misbehave(fault, When::Next(FAILURES));
    let mut backfill = Backfill::begin(watcher(&[&node], &store, 11), by_address()).await.unwrap();
    let is_found = async {
        while !backfill.is_done() {
            let step = backfill.step(NOW).await;
            assert!(step.is_ok() || node.struck(fault) > 0, "{step:?}");
            // It rests behind a failure.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), is_found).await.unwrap();
    assert_eq!(node.struck(fault), FAILURES);
    assert_all_credited(&store, &ledger).await;
}

/// Some calls fail for ever, as where a node limits them: a list that began again with each would never be whole.
#[tokio::test]
async fn p4_a_list_of_hundreds_of_pages_goes_on_behind_each_call_that_fails() {
    let (ledger, store) = (burst(), store(Engine::Sqlite).await);
    let node = Node::start(&ledger).await;
    node.set_lists(Lists { page_max: 10, ..Lists::default() });
    node.confine(SIGNATURES);
    node.misbehave(Fault::ServerError, When::Percent(5));
    let mut backfill = Backfill::begin(watcher(&[&node], &store, 11), by_address()).await.unwrap();
    for _ in 0..20 {
        // Of a list that has not begun nothing is lost.
        let _ = backfill.step(NOW).await;
    }
    let (calls, struck) = (node.calls(SIGNATURES, None), node.struck(Fault::ServerError));
    assert!(backfill.is_done() && struck > 3 && (250..500).contains(&calls), "{calls} calls, {struck} failed");
    assert_all_credited(&store, &ledger).await;
}

#[tokio::test]
async fn pages_that_go_round_in_a_circle_are_no_list() {
    let ledger = Ledger::of(10..=30);
    (0..1_200).for_each(|id| ledger.put(20, Tx::failing(id, OURS, &[])));
    ledger.finalize(30);
    let node = Node::start(&ledger).await;
    node.set_lists(Lists { before: Before::Ignored, ..Lists::default() });
    let store = store(Engine::Sqlite).await;
    let mut backfill = Backfill::begin(watcher(&[&node], &store, 11), by_address()).await.unwrap();
    let error = backfill.step(NOW).await.unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("nothing new behind a signature of slot 20"), "{error}");
    assert_eq!(node.calls(SIGNATURES, None), 10, "it ends");
}

#[tokio::test]
async fn what_a_node_has_pruned_is_not_taken_for_nothing() {
    let ledger = burst();
    let node = Node::start(&ledger).await;
    node.prune(100);
    let store = store(Engine::Sqlite).await;
    let mut backfill = Backfill::begin(watcher(&[&node], &store, 11), by_address()).await.unwrap();
    let error = backfill.step(NOW).await.unwrap_err();
    assert!(!error.may_pass() && error.to_string().contains("the next one begins at slot 100"), "{error}");
    assert!(deposits_of(&store).await.is_empty());
    let kept = run(&[&node], &store, &Job { from: 100, ..by_address() }).await;
    assert_eq!((kept.found, kept.from), (20 + 3 + 100, 100));
}

#[tokio::test]
async fn a_block_that_endpoints_do_not_show_alike_is_not_believed() {
    let ledger = Ledger::of(10..=30);
    ledger.put(20, Tx::sol(1, PAYER, OURS, 5));
    ledger.finalize(30);
    let lie = Ledger::of(10..=19).forked_at(15);
    for slot in 20..=30 {
        lie.produce(slot, vec![Tx::sol(slot, PAYER, OURS, 9)]);
    }
    lie.finalize(30);
    let (node, liar) = (Node::start(&ledger).await, Node::start(&lie).await);
    let store = store(Engine::Sqlite).await;
    let begun = Backfill::begin(watcher(&[&node, &liar], &store, 11), by_address()).await;
    // Nothing is agreed to be final, or the block of the hit is not.
    if let Ok(mut backfill) = begun {
        for _ in 0..3 {
            assert!(backfill.step(NOW).await.unwrap_err().may_pass());
        }
    }
    assert!(deposits_of(&store).await.is_empty());
    // On a chain that both agree on, one shows another block in an old slot.
    let old = ledger.branch_at(30);
    old.finalize(30);
    old.amend(20, |block| {
        block.branch = 7;
        block.txs = vec![Tx::sol(8, PAYER, OURS, 9)];
    });
    for (first, second) in [(&old, &ledger), (&ledger, &old)] {
        node.show(first);
        liar.show(second);
        let mut backfill = Backfill::begin(watcher(&[&node, &liar], &store, 11), by_address()).await.unwrap();
        for _ in 0..3 {
            let error = backfill.step(NOW).await.unwrap_err();
            assert!(error.may_pass() && error.to_string().contains("call the same block there final"), "{error}");
        }
        assert!(deposits_of(&store).await.is_empty());
    }
    [&node, &liar].into_iter().for_each(|node| node.show(&ledger));
    run(&[&node, &liar], &store, &by_address()).await;
    assert_all_credited(&store, &ledger).await;
}

#[tokio::test]
async fn a_slot_that_a_list_invents_is_passed_over_by_the_chain() {
    let ledger = Ledger::of((10..=30).filter(|slot| *slot != 25));
    [20, 22].into_iter().for_each(|slot| ledger.put(slot, Tx::sol(slot, PAYER, OURS, 5)));
    ledger.finalize(30);
    let node = Node::start(&ledger).await;
    node.set_lists(Lists { invents: Some(25), ..Lists::default() });
    let store = store(Engine::Sqlite).await;
    run(&[&node], &store, &by_address()).await;
    assert_all_credited(&store, &ledger).await;
}

#[tokio::test]
async fn a_slot_that_a_list_names_though_it_holds_no_block_stops_no_backfill_by_slots() {
    let ledger = Ledger::of((10..=32).filter(|slot| ![12, 20, 21, 29].contains(slot)));
    ledger.put(22, Tx::sol(1, PAYER, OURS, 5));
    ledger.finalize(32);
    let nodes = [Node::start(&ledger).await, Node::start(&ledger).await, Node::start(&ledger).await];
    // It is the quickest, and asked first.
    nodes[1..].iter().for_each(|node| node.set_latency(SLOWER));
    nodes[0].misbehave(Fault::LongList, When::Always);
    for nodes in [vec![&nodes[0]], nodes.iter().collect()] {
        for (first, last) in [(12, 29), (20, 29), (12, 12)] {
            let store = store(Engine::Sqlite).await;
            run(&nodes, &store, &by_slots(first, last)).await;
            assert_eq!(deposits_of(&store).await.len(), usize::from(last > 22), "{first} to {last}");
        }
    }
}

#[tokio::test]
async fn a_block_that_one_endpoint_links_over_is_missed_by_no_backfill() {
    let ledger = Ledger::of(10..=32);
    ledger.put(21, Tx::sol(1, PAYER, OURS, 5));
    ledger.finalize(32);
    let nodes = [Node::start(&ledger).await, Node::start(&ledger).await, Node::start(&ledger).await];
    // It is the quickest, and asked first.
    nodes[1..].iter().for_each(|node| node.set_latency(SLOWER));
    nodes[0].misbehave(Fault::LinkedOver, When::Always);
    let job = by_slots(10, 29);

    let (two, store_of_two) = ([&nodes[0], &nodes[1]], store(Engine::Sqlite).await);
    let mut backfill = Backfill::begin(watcher(&two, &store_of_two, 11), job.clone()).await.unwrap();
    for _ in 0..3 {
        let error = backfill.step(NOW).await.unwrap_err();
        assert!(error.may_pass() && error.to_string().contains("slot 12 holds a final block"), "{error}");
    }
    assert!(deposits_of(&store_of_two).await.is_empty());

    let (three, store_of_three) = ([&nodes[0], &nodes[1], &nodes[2]], store(Engine::Sqlite).await);
    let mut backfill = Backfill::begin(watcher(&three, &store_of_three, 11), job.clone()).await.unwrap();
    for _ in 0..20 {
        if !backfill.is_done() {
            let _ = backfill.step(NOW).await;
        }
    }
    assert!(backfill.is_done(), "two agree against the third");
    assert_all_credited(&store_of_three, &ledger).await;

    nodes[0].behave();
    run(&two, &store_of_two, &job).await;
    assert_all_credited(&store_of_two, &ledger).await;
}

#[tokio::test]
async fn a_block_that_is_linked_over_where_a_backfill_begins_is_missed_by_none() {
    let ledger = Ledger::of(10..=32);
    ledger.put(14, Tx::sol(1, PAYER, OURS, 5));
    ledger.finalize(32);
    let liar = ledger.branch_at(32);
    let below = liar.block(11).unwrap().reference();
    liar.amend(16, |block| block.parent = below);
    let nodes = [Node::start(&ledger).await, Node::start(&ledger).await];
    nodes[1].set_latency(SLOWER);
    nodes[0].show(&liar);
    nodes[0].lose(12..16);
    let store = store(Engine::Sqlite).await;
    let job = by_slots(13, 29);
    let mut backfill = Backfill::begin(watcher(&[&nodes[0], &nodes[1]], &store, 11), job.clone()).await.unwrap();
    for _ in 0..3 {
        let error = backfill.step(NOW).await.unwrap_err();
        assert!(error.may_pass() && error.to_string().contains("slot 12 holds a final block"), "{error}");
    }
    nodes[0].show(&ledger);
    nodes[0].find_all();
    run(&[&nodes[0], &nodes[1]], &store, &job).await;
    assert_all_credited(&store, &ledger).await;
}

#[tokio::test]
async fn a_backfill_records_nothing_within_a_dispute_and_ends_it_for_no_process() {
    let ledger = Ledger::of(10..=32);
    ledger.put(14, Tx::sol(1, PAYER, OURS, 5));
    ledger.put(15, Tx::sol(2, PAYER, OTHER, 6));
    ledger.finalize(13);
    let liar = ledger.branch_at(32);
    let below = liar.block(13).unwrap().reference();
    liar.amend(16, |block| block.parent = below);
    liar.finalize(13);
    let nodes = [Node::start(&ledger).await, Node::start(&ledger).await];
    let both = [&nodes[0], &nodes[1]];
    nodes[1].lag(1);
    nodes[0].show(&liar);
    nodes[0].lose([14]);
    nodes[0].unlist([15]);
    let store = store(Engine::Sqlite).await;
    watch(&store, "other", OTHER).await;
    let cursor = async || Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap();
    let mut following = watcher(&both, &store, 11);
    following.tick(NOW).await.unwrap();
    assert_eq!(cursor().await.finalized.map(|block| block.number), Some(13));
    [&ledger, &liar].into_iter().for_each(|ledger| ledger.finalize(30));
    let disputed = async |following: &mut Follower<_>| {
        let mut why = String::new();
        for _ in 0..3 {
            why = following.tick(NOW).await.map_or_else(|error| error.to_string(), |_| String::new());
        }
        assert!(why.contains("slot 14 holds a final block"), "{why}");
        assert_eq!(cursor().await.finalized.map(|block| block.number), Some(13));
    };
    disputed(&mut following).await;
    let job = Job { scope: Scope::Addresses([OTHER].into()), ..by_address() };
    let error = Backfill::begin(watcher(&both, &store, 11), job).await.unwrap().step(NOW).await.unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("connected without a block in that slot"), "{error}");
    assert!(deposits_of(&store).await.is_empty(), "what slot 15 stands on is not on record");
    disputed(&mut following).await;
    disputed(&mut watcher(&both, &store, 11)).await;
}

#[tokio::test]
async fn tokens_are_found_by_the_associated_account_although_their_owner_is_not_named() {
    let ledger = Ledger::of(10..=30);
    let token = Tx::token(1, usdc(), PAYER, OURS, 7_000_000);
    ledger.put(20, token);
    ledger.put(22, Tx::sol(2, PAYER, OURS, 5).with_version(Version::Number(1)));
    ledger.put(23, Tx::token(3, usdc(), PAYER, OTHER, 1));
    // What failed moves nothing, and costs us its fee.
    ledger.put(24, Tx::failing(4, OURS, &[]));
    ledger.finalize(30);
    let node = Node::start(&ledger).await;
    let store = store(Engine::Sqlite).await;
    let progress = run(&[&node], &store, &by_address()).await;
    assert_eq!(progress.found, 2);
    assert_all_credited(&store, &ledger).await;
    assert_eq!(node.calls("getBlock", Some(23)), 0, "somebody else's");
    assert!(node.calls("getBlock", Some(24)) > 0, "by the slot, whatever is said of the signature");
}

/// A transaction of tokens in which our associated account holds these amounts; `None` where there is no account.
pub(crate) fn held(id: u64, mint: Address, program: &str, held: [Option<u64>; 2]) -> Tx {
    let is_wrapped = mint == wrapped_sol();
    let holding = |amount: u64| {
        json!({
            "accountIndex": 1, "mint": mint.to_string(), "owner": OURS.to_string(), "programId": program,
            "uiTokenAmount": { "amount": amount.to_string(), "decimals": if is_wrapped { 9 } else { 6 }, "uiAmount": null },
        })
    };
    let [pre, post] = held.map(|amount| amount.map(holding).into_iter().collect::<Vec<Value>>());
    let inside = held.map(|amount| amount.map_or(0, |amount| RENT + if is_wrapped { amount } else { 0 }));
    let account = associated(&OURS, &mint, program);
    let keys = [PAYER.to_string(), account].map(|key| json!({ "pubkey": key, "signer": false, "writable": true }));
    let lamports = |at: usize| [9_000_000_000 - inside[at] - u64::try_from(at).unwrap() * 5_000, inside[at]];
    Tx::raw(&json!({
        "transaction": {
            "signatures": [TxId::Solana(landfall_cluster::tx::signature(id)).to_string()], "accountKeys": keys,
        },
        "meta": {
            "err": null, "fee": 5_000, "preBalances": lamports(0), "postBalances": lamports(1),
            "preTokenBalances": pre, "postTokenBalances": post,
        },
        "version": 0,
    }))
}

#[tokio::test]
async fn tokens_are_found_under_each_program_that_a_mint_may_have_and_so_is_wrapped_sol_that_counts_as_sol() {
    let mint = Address::Solana([0x67; 32]);
    let known = || Options { programs: vec![(AssetId::Token(mint), TokenProgram::Token2022)], ..Options::default() };
    let native = || Options { wrapped: Some(Wrapped::Native), ..Options::default() };
    let token = AssetId::Token(mint);
    for (options, mint, program, asset) in [
        (known(), mint, TOKEN_2022, token),
        (Options::default(), mint, TOKEN_2022, token),
        (Options::default(), mint, SPL_TOKEN, token),
        (native(), wrapped_sol(), SPL_TOKEN, AssetId::Native),
    ] {
        let ledger = Ledger::of(10..=30);
        ledger.put(20, held(1, mint, program, [Some(1_000), Some(5_001_000)]));
        ledger.finalize(30);
        let node = Node::start(&ledger).await;
        let store = store(Engine::Sqlite).await;
        let mut network = network(CHAIN).unwrap();
        network.assets.push(Asset { id: token, symbol: "TOKEN".to_owned(), decimals: 6, from_block: 0, route: None });
        run_by(watcher_of(network, &[&node], &options, &store, 11), &by_address()).await;
        let found: Vec<_> = deposits_of(&store).await.into_iter().map(|found| (found.asset, found.amount)).collect();
        assert_eq!(found, [(asset, U256::from(5_000_000))], "{program} {options:?}");
    }
}

#[tokio::test]
async fn wrapped_sol_that_is_no_credit_is_put_on_record_by_a_search_of_addresses_too() {
    let ledger = Ledger::of(10..=30);
    ledger.put(20, held(1, wrapped_sol(), SPL_TOKEN, [Some(1), Some(5_000_001)]));
    ledger.finalize(30);
    let (node, store) = (Node::start(&ledger).await, store(Engine::Sqlite).await);
    assert_eq!(run(&[&node], &store, &by_address()).await.found, 0);
    let mut reader = store.db.read().await.unwrap();
    let came = unattributed::list(&mut reader, CHAIN, true, None, 10).await.unwrap();
    assert!(matches!(came.as_slice(), [one] if one.amount == U256::from(5_000_000)), "{came:?}");
}

/// A number with a digit too many is no search that found nothing.
#[tokio::test]
async fn a_search_from_above_all_that_is_final_is_refused() {
    let (ledger, store) = (burst(), store(Engine::Sqlite).await);
    let node = Node::start(&ledger).await;
    let job = |from| Job { from, ..by_address() };
    for (from, is_refused) in [(260, false), (261, false), (262, true), (2_600, true)] {
        let begun = Backfill::begin(watcher(&[&node], &store, 11), job(from)).await;
        assert_eq!(matches!(begun, Err(BackfillError::Above { .. })), is_refused, "{from}");
    }
}

#[tokio::test]
async fn an_associated_account_that_was_closed_and_made_anew_is_found_both_times() {
    let ledger = Ledger::of(10..=30);
    for (slot, amounts) in [(12, [None, Some(5_000_000)]), (15, [Some(5_000_000), None]), (19, [None, Some(7_000_000)])]
    {
        ledger.put(slot, held(slot, usdc(), SPL_TOKEN, amounts));
    }
    ledger.finalize(30);
    let node = Node::start(&ledger).await;
    let store = store(Engine::Sqlite).await;
    run(&[&node], &store, &by_address()).await;
    let mut amounts: Vec<U256> = deposits_of(&store).await.iter().map(|deposit| deposit.amount).collect();
    amounts.sort_unstable();
    assert_eq!(amounts, [5_000_000, 7_000_000].map(U256::from));
}

#[tokio::test]
async fn twice_changes_nothing_and_a_stop_in_the_middle_neither() {
    for engine in ENGINES {
        let ledger = burst();
        let node = Node::start(&ledger).await;
        let store = store(engine).await;
        // Killed behind its first step: 100 slots of 201.
        let mut killed = Backfill::begin(watcher(&[&node], &store, 11), by_address()).await.unwrap();
        killed.step(NOW).await.unwrap();
        let stopped = killed.progress();
        drop(killed);
        assert_eq!((stopped.next, stopped.found), (120, 100), "{engine:?}");
        let resumed = Backfill::begin(watcher(&[&node], &store, 11), by_address()).await.unwrap();
        assert_eq!((resumed.progress().next, resumed.progress().found), (120, 100));
        // What was read under other settings is read again.
        let wrapped = Options { wrapped: Some(Wrapped::Native), ..Options::default() };
        let program =
            Options { programs: vec![(AssetId::Token(usdc()), TokenProgram::Token2022)], ..Options::default() };
        for options in [wrapped, program] {
            let watcher = watcher_of(network(CHAIN).unwrap(), &[&node], &options, &store, 11);
            let begun = Backfill::begin(watcher, by_address()).await.unwrap().progress();
            assert_eq!((begun.next, begun.found), (1, 0), "{options:?}");
        }
        // Meanwhile more has become final: the same command reads it, too.
        ledger.produce(261, vec![Tx::sol(9_000_000, PAYER, OURS, 17)]);
        ledger.finalize(261);
        let progress = run(&[&node], &store, &by_address()).await;
        assert_eq!((progress.found, progress.confirmed, progress.until), (204, 104, 261), "{engine:?}");
        assert_all_credited(&store, &ledger).await;
        let (before, said) = (deposits_of(&store).await, events(&store.db).await);
        let again = run(&[&node], &store, &by_address()).await;
        assert_eq!((again.found, again.confirmed), (0, 0));
        assert_eq!((deposits_of(&store).await, events(&store.db).await), (before, said));
    }
}

#[tokio::test]
async fn what_one_endpoint_reported_before_a_stop_is_its_word_behind_it_too() {
    let ledger = burst();
    let (store, nodes) = (store(Engine::Sqlite).await, [Node::start(&ledger).await, Node::start(&ledger).await]);
    let mut stopped = Backfill::begin(watcher(&[&nodes[0]], &store, 11), by_address()).await.unwrap();
    stopped.step(NOW).await.unwrap();
    assert!(!stopped.is_done() && stopped.progress().proof == Some(Proof::OneEndpoint));
    drop(stopped);
    let progress = run(&[&nodes[0], &nodes[1]], &store, &by_address()).await;
    assert_eq!((progress.found, progress.proof), (203, Some(Proof::OneEndpoint)));
    // Begun anew, it is the word of two.
    let again = run(&[&nodes[0], &nodes[1]], &store, &by_address()).await;
    assert_eq!((again.found, again.proof), (0, Some(Proof::TwoEndpoints)));
}

#[tokio::test]
async fn beside_run_what_came_before_the_account_is_found_and_nothing_twice() {
    for engine in ENGINES {
        let ledger = Ledger::of(10..=60);
        let store = TestStore::fresh(engine).await;
        watch(&store, "other", OTHER).await;
        [20, 30, 40, 55].into_iter().for_each(|slot| ledger.put(slot, Tx::sol(slot, PAYER, OURS, slot)));
        ledger.finalize(50);
        let node = Node::start(&ledger).await;
        let mut following = watcher(&[&node], &store, 11);
        following.tick(NOW).await.unwrap();
        watch(&store, "ours", OURS).await;
        let from = following.tick(NOW).await.unwrap();
        assert_eq!((from.pending, deposits_of(&store).await.len()), (0, 0), "it was read before the account was there");
        let mut backfill = Backfill::begin(watcher(&[&node], &store, 11), by_address()).await.unwrap();
        assert_eq!(backfill.progress().until, 60, "from slot 61 on it is watched");
        ledger.produce(61, vec![Tx::sol(61, PAYER, OURS, 61)]);
        let cursor = Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap().at;
        let (ticked, stepped) = tokio::join!(following.tick(NOW), backfill.step(NOW));
        stepped.unwrap();
        assert_eq!((ticked.unwrap().pending, backfill.progress().found), (1, 3));
        backfill.step(NOW).await.unwrap();
        assert_eq!((backfill.progress().next, backfill.waits_for()), (51, Some(60)), "what is not final is not read");
        assert_ne!(Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap().at, cursor, "that was run");
        ledger.finalize(61);
        following.tick(NOW).await.unwrap();
        while !backfill.is_done() {
            backfill.step(NOW).await.unwrap();
        }
        assert_eq!(backfill.progress().found, 4, "slot 55 lay between");
        let progress = run(&[&node], &store, &by_address()).await;
        assert_eq!((progress.found, progress.until), (0, 61));
        assert_all_credited(&store, &ledger).await;
        let last = Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap().at;
        assert_eq!(last.unwrap().number, 61);
    }
}

#[tokio::test]
async fn without_an_end_an_address_must_be_said_and_a_search_for_all_is_refused() {
    let ledger = Ledger::of(10..=30);
    ledger.finalize(30);
    let node = Node::start(&ledger).await;
    let store = store(Engine::Sqlite).await;
    let refused = async |job: Job| Backfill::begin(watcher(&[&node], &store, 11), job).await.unwrap_err();
    let all = refused(Job { scope: Scope::All, ..by_address() }).await;
    assert!(matches!(all, BackfillError::NoScope { .. }), "{all}");
    let full = refused(Job { proof: ReadProof::Full, ..by_address() }).await;
    assert!(matches!(full, BackfillError::NoEnd { .. }), "{full}");
    assert_eq!(node.calls(SIGNATURES, None), 0);
}

#[tokio::test]
async fn slots_are_scanned_whatever_is_skipped_at_their_ends_or_lost_at_one_endpoint() {
    for engine in ENGINES {
        let skipped = [20, 21, 40, 41, 42, 60];
        let ledger = Ledger::of((10..=70).filter(|slot| !skipped.contains(slot)));
        [22, 39, 43, 45, 59].into_iter().for_each(|slot| ledger.put(slot, Tx::sol(slot, PAYER, OURS, slot)));
        ledger.finalize(65);
        let (node, other) = (Node::start(&ledger).await, Node::start(&ledger).await);
        node.lose([46, 50]);
        other.lose([23, 50]);
        let store = store(engine).await;
        // Both ends are skipped, and so is all of one range. What concerns us is read again, and two report it.
        for (from, to, found) in [(40, 42, 0), (20, 42, 2), (41, 49, 2)] {
            let job = by_slots(from, to);
            let dry = Job { dry_run: true, ..job.clone() };
            assert_eq!(run(&[&node, &other], &store, &dry).await.found, found, "{from} to {to}");
            let progress = run(&[&node, &other], &store, &job).await;
            assert_eq!((progress.found, progress.next), (found, to + 1), "{from} to {to}");
        }
        // What both have lost ends the range before it, with a reason.
        let mut backfill = Backfill::begin(watcher(&[&node, &other], &store, 11), by_slots(49, 60)).await.unwrap();
        backfill.step(NOW).await.unwrap();
        assert_eq!(backfill.progress().next, 50);
        let error = backfill.step(NOW).await.unwrap_err();
        assert!(error.may_pass() && error.to_string().contains("block 50 "), "{error}");
        other.find_all();
        let progress = run(&[&node, &other], &store, &by_slots(49, 60)).await;
        assert_eq!((progress.found, progress.next), (1, 61));
        assert!(progress.proof.is_some_and(|proof| proof != Proof::Roots && proof != Proof::Bloom));
        assert_all_credited(&store, &ledger).await;
        assert_eq!(Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap().at, None, "it never moves");
    }
}

#[tokio::test]
async fn an_end_that_is_lost_is_no_skipped_slot() {
    let ledger = Ledger::of(10..=70);
    ledger.put(40, Tx::sol(40, PAYER, OURS, 40));
    ledger.finalize(65);
    let node = Node::start(&ledger).await;
    node.lose([40]);
    let store = store(Engine::Sqlite).await;
    let mut backfill = Backfill::begin(watcher(&[&node], &store, 11), by_slots(38, 40)).await.unwrap();
    backfill.step(NOW).await.unwrap();
    for _ in 0..3 {
        let error = backfill.step(NOW).await.unwrap_err();
        assert!(error.may_pass(), "{error}");
        assert_eq!((backfill.progress().next, backfill.is_done()), (40, false));
    }
    node.find_all();
    while !backfill.is_done() {
        backfill.step(NOW).await.unwrap();
    }
    assert_all_credited(&store, &ledger).await;
}

/// What the real binary says in this folder: its exit code, stdout, stderr.
pub(crate) async fn landfall(folder: &std::path::Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.current_dir(folder).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), stdout, stderr)
}

#[tokio::test]
async fn the_real_command_reads_an_address_to_its_begin_and_slots_by_their_range() {
    let ledger = Ledger::of((10..=60).filter(|slot| *slot != 40));
    [20, 30].into_iter().for_each(|slot| ledger.put(slot, Tx::sol(slot, PAYER, OURS, slot)));
    ledger.put(35, Tx::token(35, usdc(), PAYER, OURS, 7));
    ledger.finalize(50);
    let node = Node::start(&ledger).await;
    let folder = crate::harness::postgres::folder();
    let config = format!("[api]\nenvironment = \"live\"\n[chains.SOLANA_MAINNET]\nrpc = [\"{}\"]\n", node.url());
    std::fs::write(folder.path().join("landfall.toml"), config).unwrap();
    let run = async |arguments: &[&str]| landfall(folder.path(), arguments).await;
    let address = format!("SOLANA_MAINNET={OURS}");
    let add = ["account", "add", "--account", "ours", "--type", "SEGREGATED", "--address", address.as_str()];
    assert_eq!(run(&add).await.0, Some(0));
    let (code, _, said) = run(&["backfill", "--chain", "SOLANA_MAINNET"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--from"), "{said}");
    let ours = OURS.to_string();
    let by_address = ["backfill", "--chain", "SOLANA_MAINNET", "--address", ours.as_str()];
    let json = |text: &str| -> Value { serde_json::from_str(text.lines().last().unwrap()).unwrap() };
    let (code, reported, said) = run(&[by_address.as_slice(), &["--dry-run", "--json"]].concat()).await;
    assert_eq!((code, json(&reported)["found"].as_u64()), (Some(0), Some(3)), "{reported}{said}");
    let (code, reported, said) = run(&by_address).await;
    assert_eq!(code, Some(0), "{reported}{said}");
    assert_eq!(
        reported,
        "SOLANA_MAINNET: 3 deposits recorded, 3 confirmed; the next slot is 51\n\
         one endpoint alone reported some of it (one_endpoint)\n"
    );
    assert!(said.contains("was never followed: only with start = 51 will `landfall run` leave out no slot"), "{said}");
    let by_slots = ["--chain", "SOLANA_MAINNET", "--from", "15", "--to", "40", "--json"];
    for verb in ["backfill", "rescan"] {
        let (code, reported, said) = run(&[&[verb], by_slots.as_slice()].concat()).await;
        let reported = json(&reported);
        assert_eq!(code, Some(0), "{reported}{said}");
        assert_eq!(
            (&reported["found"], &reported["next"], &reported["proof"]),
            (&json!(0), &json!(41), &json!("one_endpoint"))
        );
    }
}

/// A folder in which the chain was followed up to slot 60 before `OURS` was added; 50 is final.
async fn added_late(ledger: &Ledger, node: &Node) -> (TestStore, tempfile::TempDir) {
    let store = TestStore::fresh(Engine::Sqlite).await;
    watch(&store, "other", OTHER).await;
    [20, 55].into_iter().for_each(|slot| ledger.put(slot, Tx::sol(slot, PAYER, OURS, slot)));
    ledger.finalize(50);
    watcher(&[node], &store, 11).tick(NOW).await.unwrap();
    watch(&store, "ours", OURS).await;
    let (folder, url) = (crate::harness::postgres::folder(), &store.url);
    let config = format!(
        "[store]\nurl = \"{url}\"\n[api]\nenvironment = \"live\"\n[chains.SOLANA_MAINNET]\nrpc = [\"{}\"]\n",
        node.url()
    );
    std::fs::write(folder.path().join("landfall.toml"), config).unwrap();
    (store, folder)
}

/// The line that says what a backfill waits for, and what it says behind that.
async fn waiting(child: &mut tokio::process::Child) -> (String, BufReader<tokio::process::ChildStderr>) {
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("waiting") {
        line.clear();
        assert!(said.read_line(&mut line).await.unwrap() > 0, "it ended without a word of waiting");
    }
    (line, said)
}

#[tokio::test]
async fn the_real_command_waits_behind_account_add_until_nothing_lies_between_and_can_be_stopped() {
    let ledger = Ledger::of(10..=60);
    let node = Node::start(&ledger).await;
    let (store, folder) = added_late(&ledger, &node).await;
    let start = || {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.current_dir(folder.path()).args(["backfill", "--chain", "SOLANA_MAINNET", "--account", "ours"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).kill_on_drop(true);
        command.spawn().unwrap()
    };
    let mut stopped = start();
    let (line, _open) = waiting(&mut stopped).await;
    assert_eq!(
        line,
        "SOLANA_MAINNET: waiting until slot 60 is final and `landfall run` has read it; behind it the addresses are watched\n"
    );
    let id = i32::try_from(stopped.id().unwrap()).unwrap();
    assert!(std::process::Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap().success());
    let output = stopped.wait_with_output().await.unwrap();
    let reported = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains("1 deposits recorded") && reported.contains("the next slot is 51"), "{reported}");
    assert!(reported.contains("stopped before the end; the same command goes on from there"), "{reported}");
    let mut waits = start();
    let (_, mut rest) = waiting(&mut waits).await;
    ledger.finalize(60);
    let output = waits.wait_with_output().await.unwrap();
    let (reported, mut said) = (String::from_utf8(output.stdout).unwrap(), String::new());
    rest.read_to_string(&mut said).await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{reported}{said}");
    assert!(reported.contains("2 deposits recorded") && reported.contains("the next slot is 61"), "{reported}");
    assert!(!said.contains("waiting"), "it is said once: {said}");
    // Above what `run` has looked at for slots that were left out, it is `run` that confirms.
    let mut following = watcher(&[&node], &store, 11);
    for _ in 0..3 {
        following.tick(NOW).await.unwrap();
    }
    assert_all_credited(&store, &ledger).await;
}

#[tokio::test]
async fn a_search_that_pages_for_long_says_how_far_it_has_come() {
    let ledger = Ledger::of(10..=60);
    // So many that a line is due before the last page.
    (0..400).for_each(|id| ledger.put(20 + id / 40, Tx::failing(id, OURS, &[])));
    ledger.finalize(50);
    let node = Node::start(&ledger).await;
    node.set_lists(Lists { page_max: 10, ..Lists::default() });
    node.set_latency(Duration::from_millis(300));
    let folder = crate::harness::postgres::folder();
    let config = format!("[api]\nenvironment = \"live\"\n[chains.SOLANA_MAINNET]\nrpc = [\"{}\"]\n", node.url());
    std::fs::write(folder.path().join("landfall.toml"), config).unwrap();
    let address = format!("SOLANA_MAINNET={OURS}");
    let add = ["account", "add", "--account", "ours", "--type", "SEGREGATED", "--address", address.as_str()];
    assert_eq!(landfall(folder.path(), &add).await.0, Some(0));
    let ours = OURS.to_string();
    let search = ["backfill", "--chain", "SOLANA_MAINNET", "--address", ours.as_str(), "--dry-run"];
    let (code, reported, said) = landfall(folder.path(), &search).await;
    assert_eq!(code, Some(0), "{reported}{said}");
    let line =
        said.lines().find_map(|line| line.strip_prefix("signatures: list 1: ")).unwrap_or_else(|| panic!("{said}"));
    let numbers: Vec<u64> = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let [pages, named, account, lowest] = numbers[..] else { panic!("{line}") };
    assert_eq!(line, format!("{pages} pages, {named} signatures, account {account} down to {lowest}"));
    assert!(account == 1 && pages > 1 && named == 10 * pages && lowest == 29 - (named - 1) / 40, "{line}");
}

/// The most that a process has held in memory, in MiB, as far as it was looked at.
fn peak_mib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1_024)
}

#[tokio::test]
async fn blocks_of_three_megabytes_are_read_ahead_in_bounded_memory() {
    // 1,228 transactions, as on mainnet, of two payments each and 16 accounts that keep what they have.
    let stranger = |of: u64| {
        let mut key = [0x31; 32];
        key[..8].copy_from_slice(&of.to_be_bytes());
        Address::Solana(key)
    };
    let payment = |of: u64| Payment { asset: AssetId::Native, sender: PAYER, recipient: stranger(of), amount: 1 };
    let crowd = |tx: &mut Value| {
        for of in 0..16 {
            let key = json!({ "pubkey": stranger(1_000_000 + of).to_string(), "signer": false, "writable": true });
            tx["transaction"]["accountKeys"].as_array_mut().unwrap().push(key);
            for side in ["preBalances", "postBalances"] {
                tx["meta"][side].as_array_mut().unwrap().push(json!(RENT));
            }
        }
    };
    let tx = |id: u64| Tx::paying(id, PAYER, &[payment(2 * id), payment(2 * id + 1)]).changed(crowd);
    let txs: Vec<Tx> = (0..1_228).map(tx).collect();
    let ledger = Ledger::of(10..=10);
    for slot in 11..=100 {
        ledger.produce(slot, txs.clone());
    }
    ledger.put(45, Tx::sol(9_999, PAYER, OURS, 5));
    ledger.finalize(100);
    let node = Node::start(&ledger).await;
    node.set_gzip(false);
    let folder = crate::harness::postgres::folder();
    let config = format!("[api]\nenvironment = \"live\"\n[chains.SOLANA_MAINNET]\nrpc = [\"{}\"]\n", node.url());
    std::fs::write(folder.path().join("landfall.toml"), config).unwrap();
    let address = format!("SOLANA_MAINNET={OURS}");
    let add = ["account", "add", "--account", "ours", "--type", "SEGREGATED", "--address", address.as_str()];
    assert_eq!(landfall(folder.path(), &add).await.0, Some(0));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.current_dir(folder.path()).args([
        "backfill",
        "--chain",
        "SOLANA_MAINNET",
        "--from",
        "11",
        "--to",
        "100",
        "--json",
    ]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let (mut peak, mut asked, mut since) = (0, 0, std::time::Instant::now());
    while child.try_wait().unwrap().is_none() {
        let now = node.calls("getBlock", None);
        if now > asked {
            (asked, since) = (now, std::time::Instant::now());
        }
        // A slow machine asks for some more than once, since answers come too late.
        assert!(since.elapsed() < Duration::from_secs(120) && asked < 20 * 90, "{asked} calls, and it does not end");
        peak = peak.max(peak_mib(child.id()).unwrap_or_default());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let output = child.wait_with_output().unwrap();
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&reported["found"], &reported["done"]), (&json!(1), &json!(true)), "{reported}");
    let bytes = node.counts().bytes["getBlock"];
    println!("90 blocks of {} kB, at most {peak} MiB", bytes / 90_000);
    assert!(bytes > 90 * 2_500_000, "{bytes}");
    // Eight at once, also while an answer that came too late is still held; all of them would be more as text alone.
    let all = bytes / (1 << 20);
    assert!(peak < 280 && peak < all, "{peak} MiB of {all}");
}
