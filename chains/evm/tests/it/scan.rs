//! Where in a range of blocks to look: what is not reported holds nothing of ours, whatever the node leaves out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy::eips::eip4895::Withdrawal;
use alloy::primitives::{Address, B256, address, keccak256};
use landfall_chain::{
    Address as ChainAddress, AddressSource, BlockSource, Candidates, Chain, EndpointState, Found, Native, NativeSource,
    Network, Read, SourceError, SourceErrorKind, Watched,
};
use landfall_evm::{EvmSource, network};
use serde_json::{Value, json};

use crate::forge::{self, Deposit, Entry};
use crate::mint::{self, Tx, transfer};
use crate::node::{Answer, Ledger, Live, Node, chain_id, mainnet};

const USDC: Address = address!("A0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48");
const FAKE: Address = Address::repeat_byte(0xfa);
const PAYER: Address = Address::repeat_byte(0xaa);
const ALICE: Address = Address::repeat_byte(0xa1);
const BOB: Address = Address::repeat_byte(0xb0);

/// Blocks 1..=60: each third pays USDC to Bob, 12 and 33 to Alice, 40 sends Alice's away, the others pay a fake.
fn ledger() -> Ledger {
    let block = |number: u64| {
        let paid = match number {
            12 | 33 => transfer(USDC, PAYER, ALICE, 1),
            40 => transfer(USDC, ALICE, BOB, 1),
            number if number % 3 == 0 => transfer(USDC, PAYER, BOB, 1),
            _ => transfer(FAKE, PAYER, ALICE, 1),
        };
        vec![Tx { nonce: number, logs: vec![paid], ..Tx::default() }]
    };
    Ledger::of(mint::chain(1, (1..=60).map(block).collect()))
}

/// Native movements are logged: headers are enough.
fn logged() -> Network {
    Network { native: Native { source: NativeSource::TopLevel, eip7708_from: Some(0) }, ..mainnet() }
}

async fn scan(
    network: Network,
    answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static,
) -> (Candidates, usize) {
    let node = Node::start(answer).await;
    let source = node.source(network);
    source.check().await.unwrap();
    node.take_requests();
    let watched = |address: &ChainAddress| *address == ChainAddress::Evm(ALICE.into());
    let candidates = linked(source.candidates(1..=60, Watched::Asked(&watched)).await.unwrap());
    (candidates, node.take_requests())
}

fn linked(found: Found) -> Candidates {
    let Found::Linked(candidates) = found else { panic!("{found:?}") };
    candidates
}

fn numbers(candidates: &Candidates) -> Vec<u64> {
    candidates.hits.iter().map(|hit| hit.number).collect()
}

#[tokio::test]
async fn the_blocks_that_pay_or_are_paid_by_a_watched_address_are_reported_with_every_header() {
    let ledger = ledger();
    let (candidates, requests) = scan(logged(), move |method, params| ledger.answer(method, params)).await;
    assert_eq!(numbers(&candidates), [12, 33, 40]);
    assert_eq!(candidates.headers.len(), 60);
    assert!(candidates.headers.windows(2).all(|pair| pair[0].block == pair[1].parent));
    assert_eq!(requests, 2, "the logs of a range and its headers");
}

#[tokio::test]
async fn who_paid_for_a_transaction_that_moved_nothing_is_reported_where_transactions_are_read_and_not_by_logs() {
    let (payer, number) = (mint::signer(1), 1);
    let idle = Tx { from: payer, to: Some(BOB), ..Tx::default() };
    // The other transaction's log keeps the bloom from saying nothing, which would be a reason to look.
    let other = Tx { from: mint::signer(2), logs: vec![transfer(FAKE, PAYER, BOB, 1)], ..Tx::default() };
    let (block, receipts) = mint::block(number, B256::ZERO, &[idle, other]);
    // By logs, only headers are read, and no log tells of a fee; else transactions are.
    for (network, hits) in [(logged(), vec![]), (mainnet(), vec![number])] {
        let ledger = Ledger::of([(block.clone(), receipts.clone())]);
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let source = node.source(network);
        let watched = |address: &ChainAddress| *address == ChainAddress::Evm(payer.into());
        let candidates = linked(source.candidates(number..=number, Watched::Asked(&watched)).await.unwrap());
        assert_eq!(numbers(&candidates), hits);
        let read = source.blocks(number..=number, Read::FULL).await.unwrap();
        assert!(read[0].transfers.is_empty());
        assert!(read[0].fees.iter().any(|fee| fee.payer == ChainAddress::Evm(payer.into())), "receipts tell of it");
    }
}

#[tokio::test]
async fn a_block_whose_logs_are_left_out_is_reported_by_its_bloom() {
    let ledger = ledger();
    let (candidates, _) = scan(logged(), move |method, params| {
        let mut answer = ledger.answer(method, params)?;
        if method == "eth_getLogs" {
            answer.as_array_mut().unwrap().retain(|log| log["blockNumber"] != "0xc" && log["blockNumber"] != "0x6");
        }
        Ok(answer)
    })
    .await;
    assert_eq!(numbers(&candidates), [6, 12, 33, 40]);
}

#[tokio::test]
async fn an_empty_answer_makes_every_block_with_a_listed_contract_a_candidate() {
    let ledger = ledger();
    let (candidates, _) = scan(logged(), move |method, params| match method {
        "eth_getLogs" => Ok(json!([])),
        _ => ledger.answer(method, params),
    })
    .await;
    let mut expected: Vec<u64> = (1..=60).filter(|number| number % 3 == 0 || *number == 40).collect();
    expected.sort_unstable();
    assert_eq!(numbers(&candidates), expected);
}

#[tokio::test]
async fn a_range_that_is_too_wide_is_asked_for_in_parts() {
    for message in
        ["query returned more than 10000 results", "block range is too wide", "exceed maximum block range: 7"]
    {
        let (ledger, widest) = (ledger(), Arc::new(AtomicU64::new(0)));
        let seen = widest.clone();
        let (candidates, _) = scan(logged(), move |method, params| {
            if method == "eth_getLogs" {
                let number = |name: &str| u64::from_str_radix(&params[0][name].as_str().unwrap()[2..], 16).unwrap();
                let width = number("toBlock") - number("fromBlock") + 1;
                if width > 7 {
                    return Err((-32005, message.to_owned()));
                }
                seen.fetch_max(width, Ordering::Relaxed);
            }
            ledger.answer(method, params)
        })
        .await;
        assert_eq!((numbers(&candidates), candidates.headers.len()), (vec![12, 33, 40], 60), "{message}");
        assert!(widest.load(Ordering::Relaxed) > 3);
    }
}

#[tokio::test]
async fn an_error_of_another_kind_is_no_answer() {
    let ledger = ledger();
    let node = Node::start(move |method, params| match method {
        "eth_getLogs" => Err((-32005, "rate limit exceeded".to_owned())),
        _ => ledger.answer(method, params),
    })
    .await;
    let error = node.source(logged()).candidates(1..=60, Watched::Asked(&|_| true)).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("rate limit exceeded"), "{error}");
}

/// What a search says whose node serves seven blocks at a time, and lies about block 50 from the second search on.
async fn search_with_trouble_at_50(
    network: Network,
    trouble: impl Fn(Answer) -> Answer + Copy + Send + 'static,
) -> (Live, EvmSource, Result<Found, SourceError>) {
    let live = Live::start(ledger()).await;
    let answer = move |method: &str, params: &Value, troubled: bool| {
        let number = |name: &str| u64::from_str_radix(&params[0][name].as_str().unwrap()[2..], 16).unwrap();
        if method == "eth_getLogs" && number("toBlock") - number("fromBlock") >= 7 {
            return Some(Err((-32005, "exceed maximum block range: 7".to_owned())));
        }
        let is_50 = method == "eth_getBlockByNumber" && params[0] == "0x32";
        (troubled && is_50).then(|| trouble(ledger().answer(method, params)))
    };
    live.lie(move |method, params| answer(method, params, false));
    let source = live.node.source(network);
    let watched = |address: &ChainAddress| *address == ChainAddress::Evm(ALICE.into());
    source.candidates(1..=60, Watched::Asked(&watched)).await.unwrap();
    live.lie(move |method, params| answer(method, params, true));
    let found = source.candidates(1..=60, Watched::Asked(&watched)).await;
    (live, source, found)
}

#[tokio::test]
async fn a_request_that_fails_behind_others_leaves_what_was_found_before_it() {
    for network in [logged(), mainnet()] {
        let (live, source, found) = search_with_trouble_at_50(network, |_| Err((-32000, "down".to_owned()))).await;
        let candidates = linked(found.unwrap());
        assert_eq!((numbers(&candidates), candidates.headers.len()), (vec![12, 33, 40], 49));
        let status = source.endpoints().snapshot().remove(0);
        assert!(status.state == EndpointState::Failing && status.reason.contains("down"), "{status:?}");
        // Nothing stands before it now.
        let error = source.candidates(50..=60, Watched::Asked(&|_| true)).await.unwrap_err();
        assert!(error.kind == SourceErrorKind::Transient && error.to_string().contains("down"), "{error}");
        live.report_the_truth();
        let rest = linked(source.candidates(50..=60, Watched::Asked(&|_| true)).await.unwrap());
        assert_eq!(rest.headers.len(), 11);
    }
}

#[tokio::test]
async fn a_request_that_fails_within_a_part_leaves_the_headers_that_were_proved_before_it() {
    let live = Live::start(ledger()).await;
    live.lie(|method, params| {
        let is_50 = method == "eth_getBlockByNumber" && params[0] == "0x32";
        is_50.then(|| Err((-32000, "down".to_owned())))
    });
    let source = live.node.source(mainnet());
    let watched = |address: &ChainAddress| *address == ChainAddress::Evm(ALICE.into());
    let candidates = linked(source.candidates(1..=60, Watched::Asked(&watched)).await.unwrap());
    assert_eq!((numbers(&candidates), candidates.headers.len()), (vec![12, 33, 40], 40), "twenty with a request");
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Failing);
}

#[tokio::test]
async fn a_lie_behind_what_was_found_convicts_its_endpoint() {
    let lie = |answer: Answer| {
        answer.map(|mut block| {
            block["timestamp"] = json!("0x1");
            block
        })
    };
    for network in [logged(), mainnet()] {
        let (_live, source, found) = search_with_trouble_at_50(network, lie).await;
        let error = found.expect_err("who lied once may have withheld logs before");
        assert!(error.to_string().contains("the header does not hash to it"), "{error}");
        assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Quarantined);
    }
}

#[tokio::test]
async fn headers_that_do_not_hang_together_end_the_answer() {
    let ledger = ledger();
    let (candidates, _) = scan(logged(), move |method, params| match method {
        "eth_getBlockByNumber" if params[0] == "0x1f" => Ok(mint::block(
            31,
            B256::repeat_byte(9),
            &[Tx { logs: vec![transfer(FAKE, PAYER, BOB, 1)], ..Tx::default() }],
        )
        .0),
        _ => ledger.answer(method, params),
    })
    .await;
    assert_eq!((numbers(&candidates), candidates.headers.len()), (vec![12], 30));
}

#[tokio::test]
async fn logs_of_another_block_and_logs_that_no_bloom_holds_are_refused() {
    type Lie = fn(&mut Value);
    let lies: [(Lie, &str); 3] = [
        (|log| log["blockHash"] = json!(B256::repeat_byte(7)), "logs of another block"),
        (|log| log["blockNumber"] = json!("0x2"), "logs of another block"),
        (|log| log["address"] = json!(FAKE), "not asked for"),
    ];
    for (lie, expected) in lies {
        let ledger = ledger();
        let node = Node::start(move |method, params| {
            let mut answer = ledger.answer(method, params)?;
            if method == "eth_getLogs" {
                lie(&mut answer[0]);
            }
            Ok(answer)
        })
        .await;
        let error = node.source(logged()).candidates(1..=60, Watched::Asked(&|_| true)).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    // Block 2 pays a fake; the log of USDC is invented.
    let ledger = ledger();
    let node = Node::start(move |method, params| {
        let mut answer = ledger.answer(method, params)?;
        if method == "eth_getLogs" {
            let mut invented = answer[0].clone();
            invented["blockNumber"] = json!("0x2");
            invented["blockHash"] = ledger.blocks[&2].0["hash"].clone();
            answer.as_array_mut().unwrap().push(invented);
        }
        Ok(answer)
    })
    .await;
    let error = node.source(logged()).candidates(1..=60, Watched::Asked(&|_| true)).await.unwrap_err();
    assert!(error.to_string().contains("the header's logsBloom excludes a log that was shown"), "{error}");
}

#[tokio::test]
async fn where_value_is_not_logged_transactions_are_looked_at_too() {
    let pay = |nonce, to, from| Tx {
        nonce,
        value: 1,
        to: Some(to),
        from,
        logs: vec![transfer(FAKE, PAYER, BOB, 1)],
        ..Tx::default()
    };
    let mut blocks: Vec<Vec<Tx>> = (1..=60).map(|nonce| vec![pay(nonce, BOB, PAYER)]).collect();
    blocks[24] = vec![pay(25, BOB, PAYER), pay(26, ALICE, PAYER)];
    blocks[49] = vec![pay(50, BOB, ALICE)];
    let ledger = Ledger::of(mint::chain(1, blocks));
    let (candidates, _) = scan(mainnet(), move |method, params| ledger.answer(method, params)).await;
    assert_eq!((numbers(&candidates), candidates.headers.len()), (vec![25, 50], 60));
}

#[tokio::test]
async fn a_mint_of_the_op_stack_is_found_although_its_native_movements_are_logged() {
    // [E19] It mints for Alice; it creates a contract whose address only its receipt reports; it mints for somebody else.
    let mint = Deposit { from: ALICE, to: Some(BOB), mint: Some(7), ..Deposit::default() };
    let creation = Deposit { from: BOB, to: None, value: 7, ..Deposit::default() };
    let other = Deposit { from: PAYER, to: Some(BOB), mint: Some(7), ..Deposit::default() };
    for (deposit, expected) in [(mint, vec![16]), (creation, vec![16]), (other, vec![])] {
        let mut base = network(Chain::BaseMainnet).unwrap();
        base.native = Native { source: NativeSource::TopLevel, eip7708_from: Some(0) };
        // Without a log the bloom would say nothing, and the block be reported for that.
        let entry = Entry { logs: vec![transfer(FAKE, PAYER, BOB, 1)], ..deposit.entry() };
        let known = Ledger::of([forge::block(&[entry], &[])]);
        let ledger = Ledger { chain_id: chain_id(base.chain), ..known };
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let watched = |address: &ChainAddress| *address == ChainAddress::Evm(ALICE.into());
        let candidates = linked(node.source(base).candidates(16..=16, Watched::Asked(&watched)).await.unwrap());
        assert_eq!((numbers(&candidates), candidates.headers.len()), (expected, 1));
    }
}

/// What a search of block 16 says, by a node that leaves its logs out or not.
async fn search(
    network: Network,
    block: (Value, Value),
    is_silent: bool,
) -> (Result<Found, SourceError>, Result<(), SourceError>) {
    let ledger = Ledger { chain_id: chain_id(network.chain), ..Ledger::of([block]) };
    let node = Node::start(move |method, params| match method {
        "eth_getLogs" if is_silent => Ok(json!([])),
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(network);
    let watched = |address: &ChainAddress| *address == ChainAddress::Evm(ALICE.into());
    let found = source.candidates(16..=16, Watched::Asked(&watched)).await;
    (found, source.blocks(16..=16, Read::FULL).await.map(drop))
}

#[tokio::test]
async fn a_type_of_the_future_asks_for_an_upgrade_in_a_search_where_transactions_are_read() {
    let mut op = network(Chain::BaseMainnet).unwrap();
    op.native = Native { source: NativeSource::TopLevel, eip7708_from: Some(0) };
    for network in [mainnet(), op] {
        let chain = network.chain;
        let block = forge::block(&[forge::newer(5, vec![transfer(FAKE, PAYER, BOB, 1)])], &[]);
        let (found, _) = search(network, block, false).await;
        let error = found.expect_err("nothing in it concerns us, but who can tell");
        assert!(error.needs_upgrade && error.kind == SourceErrorKind::Permanent, "{chain}: {error}");
        assert!(error.to_string().contains("block 16 (0x"), "{error}");
    }
}

#[tokio::test]
async fn where_the_chain_logs_what_moves_a_type_of_the_future_that_pays_us_is_found_and_asks_for_an_upgrade() {
    let system = address!("fffffffffffffffffffffffffffffffffffffffe");
    let withdrawal = Withdrawal { index: 1, validator_index: 2, address: ALICE, amount: 3 };
    // Any log keeps the bloom from saying nothing.
    let noise = || transfer(FAKE, PAYER, ALICE, 1);
    let is_silent = true;
    let cases = [
        ("a token", vec![transfer(USDC, PAYER, ALICE, 1)], vec![], false, true),
        ("native currency", vec![transfer(system, PAYER, ALICE, 1)], vec![], false, true),
        ("what leaves us", vec![transfer(system, ALICE, BOB, 1)], vec![], false, true),
        ("a log that is not told", vec![transfer(USDC, PAYER, ALICE, 1)], vec![], is_silent, true),
        ("a bloom that says nothing", vec![], vec![], false, true),
        ("a withdrawal beside it", vec![noise()], vec![withdrawal], false, true),
        (
            "payments of others",
            vec![transfer(USDC, PAYER, BOB, 1), transfer(system, PAYER, BOB, 1)],
            vec![],
            false,
            false,
        ),
        ("a fake", vec![noise()], vec![], false, false),
    ];
    for (name, logs, withdrawals, is_silent, is_hit) in cases {
        let block = forge::block(&[forge::newer(5, logs)], &withdrawals);
        let (found, read) = search(logged(), block, is_silent).await;
        let candidates = linked(found.unwrap());
        assert_eq!((candidates.hits.len(), candidates.headers.len()), (usize::from(is_hit), 1), "{name}");
        // Whoever follows a hit reads it in full, and stops there.
        let error = read.expect_err(name);
        assert!(error.needs_upgrade && error.kind == SourceErrorKind::Permanent, "{name}: {error}");
    }
}

#[tokio::test]
async fn on_polygon_a_type_of_the_future_that_pays_us_is_found_by_the_chains_log() {
    let pol = address!("0000000000000000000000000000000000001010");
    let topic = keccak256("LogTransfer(address,address,address,uint256,uint256,uint256,uint256,uint256)");
    let mut data = alloy::primitives::U256::from(5).to_be_bytes::<32>().to_vec();
    data.extend([0; 128]);
    for (to, is_hit) in [(ALICE, true), (BOB, false)] {
        let moved = mint::log(pol, &[topic, pol.into_word(), PAYER.into_word(), to.into_word()], &data);
        let (block, mut receipts) = forge::block(&[forge::newer(5, vec![moved])], &[]);
        // Every sixteenth block is a hit whatever is in it.
        let block = mint::with_header(block, |header| header.number = 17);
        receipts[0]["blockHash"] = block["hash"].clone();
        receipts[0]["logs"][0]["blockHash"] = block["hash"].clone();
        let network = network(Chain::PolygonMainnet).unwrap();
        let ledger = Ledger { chain_id: chain_id(network.chain), ..Ledger::of([(block, receipts)]) };
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let source = node.source(network);
        let watched = |address: &ChainAddress| *address == ChainAddress::Evm(ALICE.into());
        let candidates = linked(source.candidates(17..=17, Watched::Asked(&watched)).await.unwrap());
        assert_eq!((candidates.hits.len(), candidates.headers.len()), (usize::from(is_hit), 1));
        assert!(source.blocks(17..=17, Read::FULL).await.unwrap_err().needs_upgrade);
    }
}
