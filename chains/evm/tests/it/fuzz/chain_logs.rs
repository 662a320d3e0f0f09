//! Native currency that the chain itself logs: Polygon's `LogTransfer` and the logs of EIP-7708. Random logs, and
//! changed blocks, on networks of which these are the one source.
//!
//! The roots cover logs, so the verdict is "refused" or the truth, as for tokens. A payment that the chain should have
//! logged and has not makes the whole block refused: its network has another source than we think.

use std::cell::RefCell;

use alloy::consensus::TxType;
use alloy::primitives::{Address, B256, Log, U256};
use landfall_chain::{BlockSource, Chain, Native, NativeSource, Network, Read, SourceErrorKind};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::ask::{Ask, Case, REFUSED, TRUE};
use super::corpus::{BLOCK, Corpus, Fixture, RECEIPTS, USDC, USDC_POLYGON, listing, with_true_senders};
use super::mutate::{CHANGES, Change};
use super::node::{Door, Table};
use super::reference::{self, LOG_TRANSFER, POL, Reported, SYSTEM};
use super::run::{Counts, fuzz};
use crate::forge::{self, Deposit, Entry};
use crate::mint::{self, TRANSFER, Tx, log, transfer};
use crate::node::Ledger;

/// From this block on, EIP-7708 is the source on the Ethereum of these tests.
const FORK: u64 = 21;
const PEOPLE: [Address; 3] = [Address::repeat_byte(0x0a), Address::repeat_byte(0x0b), Address::repeat_byte(0xcc)];

fn polygon() -> Network {
    let native = Native { source: NativeSource::LogTransfer, eip7708_from: None };
    Network { native, ..listing(Chain::PolygonMainnet) }
}

fn ethereum() -> Network {
    let native = Native { source: NativeSource::Trace, eip7708_from: Some(FORK) };
    Network { native, ..listing(Chain::EthereumMainnet) }
}

fn words(amount: u64, count: usize) -> Vec<u8> {
    let word = |index: u64| U256::from(if index == 0 { amount } else { 100 + index });
    (0..).map(word).take(count).flat_map(|word| word.to_be_bytes::<32>()).collect()
}

fn moved(from: Address, to: Address, amount: u64) -> Log {
    log(POL, &[LOG_TRANSFER, POL.into_word(), from.into_word(), to.into_word()], &words(amount, 5))
}

/// The chain's own logs, tokens, and what looks like either and is not quite.
fn a_log() -> impl Strategy<Value = Log> {
    let parts = (select(&PEOPLE), select(&PEOPLE), 0..3_u64);
    let true_one = (parts, 0..4_u8).prop_map(|((from, to, amount), kind)| match kind {
        0 => transfer(USDC, from, to, amount),
        1 => transfer(USDC_POLYGON, from, to, amount),
        2 => moved(from, to, amount),
        _ => transfer(SYSTEM, from, to, amount),
    });
    let contract = prop_oneof![3 => select(&[POL, SYSTEM, USDC]), 1 => any::<[u8; 20]>().prop_map(Address::from)];
    let clean = || prop_oneof![select(&PEOPLE), Just(POL), Just(SYSTEM)].prop_map(|address| address.into_word());
    let topic = move || prop_oneof![6 => clean(), 1 => any::<[u8; 32]>().prop_map(B256::from)];
    let first = prop_oneof![4 => select(&[LOG_TRANSFER, TRANSFER]), 1 => topic()];
    let odd = (contract, first, vec(topic(), 0..=3), 0..3_u64, 0..=6_usize, any::<bool>());
    let odd = odd.prop_map(|(contract, first, others, amount, count, cut)| {
        let mut data = words(amount, count);
        data.truncate(data.len().saturating_sub(usize::from(cut)));
        log(contract, &[vec![first], others].concat(), &data)
    });
    prop_oneof![3 => true_one, 2 => odd]
}

/// A transaction, and whether the chain logs its own value as it should.
type Ran = (Option<Address>, u64, bool, Vec<Log>, bool);

fn ran() -> impl Strategy<Value = Ran> {
    let to = prop_oneof![6 => select(&PEOPLE).prop_map(Some), 1 => Just(None)];
    (to, 0..3_u64, prop::bool::weighted(0.85), vec(a_log(), 0..5), prop::bool::weighted(0.9))
}

fn tx(nonce: u64, (to, value, success, mut logs, is_logged): Ran, on_polygon: bool) -> Tx {
    let from = mint::signer(1);
    let ends = [from, to.unwrap_or_else(|| from.create(nonce))];
    if is_logged && value > 0 {
        let own = if on_polygon { moved(ends[0], ends[1], value) } else { transfer(SYSTEM, ends[0], ends[1], value) };
        logs.insert(0, own);
    }
    Tx { kind: TxType::Eip1559, from, to, value, nonce, success, logs, ..Tx::default() }
}

#[test]
fn exactly_the_movements_that_the_chain_logs_are_legs() {
    let door = RefCell::new(Door::open());
    let counts = Counts { bounded: 1_000, full: 150_000 };
    // The last block before the fork, and the first one behind it.
    let places = [(true, 17), (false, FORK - 1), (false, FORK)];
    let tally =
        fuzz("blocks with the chain's own logs", &counts, &(select(places.to_vec()), vec(ran(), 1..4)), |input| {
            let ((on_polygon, number), ran) = input;
            let network = if on_polygon { polygon() } else { ethereum() };
            let txs: Vec<Tx> = (0..).zip(ran).map(|(nonce, ran)| tx(nonce, ran, on_polygon)).collect();
            let (block, receipts) = with_true_senders(mint::block(number, B256::repeat_byte(1), &txs));
            let lay = || Table::new([(BLOCK, block.to_string()), (RECEIPTS, receipts.to_string())], None);
            let door = &mut door.borrow_mut();
            let read = door.ask(&network, lay, async |source| source.blocks(number..=number, Read::FULL).await);
            let place = if on_polygon { "Polygon" } else { "Ethereum" };
            if reference::is_unlogged(&network, &block, &receipts) {
                let error = read.expect_err("the chain's logs are not the source");
                prop_assert_eq!(error.kind, SourceErrorKind::Permanent);
                return Ok(vec![format!("{place}: unlogged")]);
            }
            let mut read = read.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(read.len(), 1);
            let read = read.remove(0);
            let reported = Reported { header: read.header, txs: read.txs, legs: read.transfers };
            let expected = reference::reported(&network, &block, &receipts);
            let native = expected.legs.iter().filter(|leg| leg.asset == landfall_chain::AssetId::Native).count();
            prop_assert_eq!(reported, expected);
            Ok(vec![format!("{place} {number}: native legs"); native])
        });
    for what in ["Polygon 17: native legs", "Ethereum 20: native legs", "Ethereum 21: native legs"] {
        assert!(tally[what] > 200, "{tally:?}");
    }
    assert!(tally["Polygon: unlogged"] > 10 && tally["Ethereum: unlogged"] > 10, "{tally:?}");
}

/// Blocks whose native currency the chain logs; the last ones are large and real.
pub(super) fn corpus() -> Corpus {
    let [alice, bob, carol] = PEOPLE;
    let payer = mint::signer(1);
    let paying = |on_polygon: bool, first: u64| -> Vec<Tx> {
        let log =
            |from, to, amount| if on_polygon { moved(from, to, amount) } else { transfer(SYSTEM, from, to, amount) };
        let usdc = if on_polygon { USDC_POLYGON } else { USDC };
        let tx = |nonce, to, value, logs| Tx {
            from: payer,
            nonce: first + nonce,
            to: Some(to),
            value,
            logs,
            ..Tx::default()
        };
        vec![
            tx(0, bob, 7, vec![log(payer, bob, 7), transfer(usdc, alice, bob, 7), log(bob, alice, 3)]),
            tx(1, carol, 0, vec![log(carol, bob, 7), log(carol, bob, 7)]),
            Tx { success: false, logs: Vec::new(), ..tx(2, bob, 9, Vec::new()) },
        ]
    };
    let made = |name: &str, network: Network, blocks: Vec<(serde_json::Value, serde_json::Value)>| {
        Fixture::made(name, network.chain, blocks.into_iter().map(with_true_senders).collect()).on(network)
    };
    let polygon_block = mint::block(17, B256::repeat_byte(1), &paying(true, 0));
    let around_the_fork = mint::chain(FORK - 1, vec![paying(false, 0), paying(false, 3), paying(false, 6)]);
    let logs = vec![transfer(SYSTEM, bob, alice, 7), transfer(SYSTEM, alice, bob, 5)];
    let deposit = Deposit { from: alice, to: Some(bob), mint: Some(7), value: 5, ..Deposit::default() }.entry();
    let native = Native { source: NativeSource::Trace, eip7708_from: Some(0) };
    let base = Network { native, ..listing(Chain::BaseMainnet) };
    let minting = Fixture::made("a mint", Chain::BaseMainnet, vec![forge::block(&[Entry { logs, ..deposit }], &[])]);
    let mut fixtures = vec![
        made("POL", polygon(), vec![polygon_block]),
        made("around the fork", ethereum(), around_the_fork),
        minting.on(base),
    ];
    let small = fixtures.len();
    for number in [38_102_393, 43_200_000] {
        let blocks = Ledger::recorded(Chain::PolygonMainnet, "polygon_mainnet", number).blocks.into_values().collect();
        let recorded = Fixture::made("a recorded block of Polygon", Chain::PolygonMainnet, blocks);
        fixtures.push(recorded.on(polygon()));
    }
    Corpus { fixtures, small }
}

#[test]
fn a_changed_block_with_the_chains_own_logs_is_refused_or_has_exactly_its_legs() {
    let (corpus, door) = (corpus(), RefCell::new(Door::open()));
    for fixture in &corpus.fixtures {
        let case = Case::true_one(&corpus, fixture, Ask::Blocks);
        assert_eq!(case.put(&mut door.borrow_mut(), &case.texts(), || None).unwrap(), TRUE, "{}", fixture.name);
    }
    let change = (0..CHANGES.len(), any::<u64>()).prop_map(|(kind, dice)| Change { kind, dice });
    let fixture = prop_oneof![199 => 0..corpus.small, 1 => corpus.small..corpus.fixtures.len()];
    let counts = Counts { bounded: 1_000, full: 150_000 };
    let input = (fixture, vec(change, 1..=3));
    let tally = fuzz("changed blocks with the chain's own logs", &counts, &input, |(fixture, changes)| {
        let mut case = Case::true_one(&corpus, &corpus.fixtures[fixture], Ask::Blocks);
        changes.iter().for_each(|change| change.apply(&mut case.shown, &corpus));
        Ok(vec![case.put(&mut door.borrow_mut(), &case.texts(), || None)?.to_owned()])
    });
    assert!(tally[TRUE] > 50 && tally[REFUSED] > 300, "{tally:?}");
}
