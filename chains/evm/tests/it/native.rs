//! Native currency reported by the chain's own logs: Polygon's `LogTransfer` [E17, E18] and EIP-7708 [E20]. Synthetic
//! blocks; `recorded.rs` has Polygon's real ones.

use alloy::primitives::{Address, B256, Log, U256, address, b256, keccak256};
use landfall_chain::{
    Asset, AssetId, Block, BlockSource, Chain, EndpointState, Native, NativeSource, Network, Read, SourceError,
    SourceErrorKind,
};
use landfall_evm::{EvmSource, network};
use serde_json::Value;

use crate::forge::{self, Deposit, short};
use crate::mint::{self, TRANSFER, Tx, log, transfer};
use crate::node::{Ledger, Live, chain_id, led_by_first, until};

const POL: Address = address!("0000000000000000000000000000000000001010");
const SYSTEM: Address = address!("fffffffffffffffffffffffffffffffffffffffe");
const LOG_TRANSFER: B256 = b256!("e6497e3ee548a3372136af2fcb0696db31fc6cf20260707645068bd3fe97f3c4");
const USDC_POLYGON: Address = address!("3c499c542cEF5E3811e1192ce70d8cC03d5c3359");
const SIGNER: Address = Address::repeat_byte(0xaa);
const ALICE: Address = Address::repeat_byte(0x0a);
const BOB: Address = Address::repeat_byte(0x0b);

/// Five words: the amount, and what both had before and after.
fn words(amount: u64) -> Vec<u8> {
    [amount, 100, 0, 100 - amount, amount].map(|word| U256::from(word).to_be_bytes::<32>()).concat()
}

fn moved(from: Address, to: Address, amount: u64) -> Log {
    log(POL, &[LOG_TRANSFER, POL.into_word(), from.into_word(), to.into_word()], &words(amount))
}

fn by(source: NativeSource, eip7708_from: Option<u64>, chain: Chain) -> Network {
    Network { native: Native { source, eip7708_from }, ..network(chain).unwrap() }
}

/// Block 16 of these transactions.
async fn read(network: Network, txs: &[Tx]) -> Result<Block, SourceError> {
    forge::read_as(network, mint::block(16, B256::repeat_byte(1), txs), Read::FULL).await
}

async fn legs(network: Network, txs: &[Tx]) -> Vec<(char, Address, Address, u64, u32)> {
    read(network, txs).await.unwrap().transfers.iter().map(short).collect()
}

fn polygon() -> Network {
    network(Chain::PolygonMainnet).unwrap()
}

fn pays(value: u64, logs: Vec<Log>) -> Tx {
    Tx { to: Some(BOB), value, logs, ..Tx::default() }
}

#[test]
fn the_topic_is_the_hash_of_the_events_signature() {
    let signature = "LogTransfer(address,address,address,uint256,uint256,uint256,uint256,uint256)";
    assert_eq!(LOG_TRANSFER, keccak256(signature));
}

#[tokio::test]
async fn e17_a_transfer_log_of_polygon_is_a_leg_once_and_replaces_the_transactions_own_value() {
    // [E17] its own value, what moves inside, and equal ones among them; tokens stand where their logs do.
    let logs = vec![
        moved(SIGNER, BOB, 7),
        transfer(USDC_POLYGON, ALICE, BOB, 7),
        moved(BOB, ALICE, 3),
        moved(ALICE, BOB, 7),
        moved(ALICE, ALICE, 9),
    ];
    let expected =
        [('N', SIGNER, BOB, 7, 0), ('T', ALICE, BOB, 7, 0), ('N', BOB, ALICE, 3, 0), ('N', ALICE, BOB, 7, 1)];
    assert_eq!(legs(polygon(), &[pays(7, logs)]).await, expected);
}

#[tokio::test]
async fn e17_what_only_looks_like_a_transfer_log_of_polygon_is_no_leg() {
    let (token, from, to) = (POL.into_word(), ALICE.into_word(), BOB.into_word());
    let fee = b256!("4dfe1bbbcf077ddc3e01291eea2d5c70c2b422b415d95645b9adcfd678cb1d63");
    let longer = [words(5), vec![0]].concat();
    let cases = vec![
        ("[E17] another contract", log(ALICE, &[LOG_TRANSFER, token, from, to], &words(5))),
        ("[E17] POL's contract, of another token", log(POL, &[LOG_TRANSFER, from, from, to], &words(5))),
        ("a fee", log(POL, &[fee, token, from, to], &words(5))),
        ("[E17] the ERC-20 log of POL's contract", transfer(POL, ALICE, BOB, 5)),
        ("three topics", log(POL, &[LOG_TRANSFER, token, from], &words(5))),
        ("four words", log(POL, &[LOG_TRANSFER, token, from, to], &words(5)[..128])),
        ("a byte more", log(POL, &[LOG_TRANSFER, token, from, to], &longer)),
        ("a recipient of 32 bytes", log(POL, &[LOG_TRANSFER, token, from, B256::repeat_byte(0x0b)], &words(5))),
        ("[E6] amount zero", moved(ALICE, BOB, 0)),
        ("[E20] the log of EIP-7708", transfer(SYSTEM, ALICE, BOB, 5)),
    ];
    for (name, log) in cases {
        assert_eq!(legs(polygon(), &[pays(0, vec![log])]).await, [], "{name}");
    }
    // Where the source is another one, the log is nothing.
    for source in [NativeSource::TopLevel, NativeSource::Trace] {
        let network = by(source, None, Chain::PolygonMainnet);
        let expected = [('N', SIGNER, BOB, 7, 0)];
        assert_eq!(legs(network, &[pays(7, vec![moved(SIGNER, BOB, 7)])]).await, expected);
    }
}

#[tokio::test]
async fn a_failed_transaction_of_polygon_moves_nothing() {
    // [E2] Against all rules with a log.
    let failed = Tx { success: false, ..pays(7, vec![moved(SIGNER, BOB, 7)]) };
    assert_eq!(legs(polygon(), &[failed]).await, []);
}

#[tokio::test]
async fn value_sent_with_a_creation_on_polygon_is_reported_by_its_log() {
    let signer = mint::signer(1);
    let created = signer.create(3);
    let tx = Tx { from: signer, to: None, nonce: 3, ..pays(7, vec![moved(signer, created, 7)]) };
    assert_eq!(legs(polygon(), &[tx]).await, [('N', signer, created, 7, 0)]);
}

#[tokio::test]
async fn e20_eip7708_is_the_one_source_from_its_block_on_and_nothing_before() {
    // [E20] A payment that the chain logs, another inside, and a token that is not the system's.
    let tx = || pays(7, vec![transfer(SYSTEM, SIGNER, BOB, 7), transfer(SYSTEM, BOB, ALICE, 3)]);
    let own = vec![('N', SIGNER, BOB, 7, 0)];
    let logged = vec![('N', SIGNER, BOB, 7, 0), ('N', BOB, ALICE, 3, 0)];
    for source in [NativeSource::TopLevel, NativeSource::Trace] {
        for (from, expected) in [(None, &own), (Some(17), &own), (Some(16), &logged), (Some(0), &logged)] {
            let network = by(source, from, Chain::EthereumMainnet);
            assert_eq!(network.native.is_traced(16), source == NativeSource::Trace && expected == &own);
            assert_eq!(&legs(network, &[tx()]).await, expected, "{source:?} {from:?}");
        }
    }
    // On Polygon too: both logs would be the same money.
    let both = || pays(7, vec![transfer(SYSTEM, SIGNER, BOB, 7), moved(SIGNER, BOB, 7)]);
    for from in [None, Some(16)] {
        let network = by(NativeSource::LogTransfer, from, Chain::PolygonMainnet);
        assert_eq!(legs(network, &[both()]).await, own, "{from:?}");
    }
}

#[tokio::test]
async fn what_only_looks_like_a_log_of_eip7708_is_no_leg() {
    let (from, to) = (ALICE.into_word(), BOB.into_word());
    let burnt = b256!("4bfaba3443c1a1836cd362418edc679fc96cae8449cbefccb6457cdf2c943083");
    let amount = U256::from(5).to_be_bytes::<32>();
    for (name, log) in [
        ("another contract", transfer(Address::repeat_byte(0xcc), ALICE, BOB, 5)),
        ("its other event", log(SYSTEM, &[burnt, from], &amount)),
        ("four topics", log(SYSTEM, &[TRANSFER, from, to, to], &amount)),
        ("two words", log(SYSTEM, &[TRANSFER, from, to], &[amount, amount].concat())),
        ("to oneself", transfer(SYSTEM, BOB, BOB, 5)),
        ("amount zero", transfer(SYSTEM, ALICE, BOB, 0)),
    ] {
        let network = by(NativeSource::Trace, Some(0), Chain::EthereumMainnet);
        assert_eq!(legs(network, &[pays(0, vec![log])]).await, [], "{name}");
    }
}

#[tokio::test]
async fn a_synthetic_mint_stays_with_every_source_and_comes_first() {
    // [E19] The equal payment inside is the second of its kind.
    let logs = vec![transfer(SYSTEM, BOB, ALICE, 7), transfer(SYSTEM, ALICE, BOB, 5)];
    let deposit = Deposit { from: ALICE, to: Some(BOB), mint: Some(7), value: 5, ..Deposit::default() }.entry();
    let deposit = forge::Entry { logs, ..deposit };
    let network = by(NativeSource::Trace, Some(0), Chain::BaseMainnet);
    let block = forge::read_as(network, forge::block(&[deposit], &[]), Read::FULL).await.unwrap();
    let expected = [('N', Address::ZERO, ALICE, 7, 0), ('N', BOB, ALICE, 7, 1), ('N', ALICE, BOB, 5, 0)];
    assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_payment_that_the_chain_did_not_log_stops_it_and_misses_nothing() {
    let ethereum = || by(NativeSource::Trace, Some(0), Chain::EthereumMainnet);
    let signer = mint::signer(1);
    let pays = |value, logs| Tx { from: signer, ..pays(value, logs) };
    let cases = [
        ("no log", polygon(), pays(7, Vec::new())),
        ("another amount", polygon(), pays(7, vec![moved(signer, BOB, 6)])),
        ("another recipient", polygon(), pays(7, vec![moved(signer, ALICE, 7)])),
        ("the other log", polygon(), pays(7, vec![transfer(SYSTEM, signer, BOB, 7)])),
        ("before the fork", ethereum(), pays(7, Vec::new())),
        ("a creation", ethereum(), Tx { to: None, ..pays(7, Vec::new()) }),
    ];
    for (name, network, tx) in cases {
        let chain = network.chain;
        let error = read(network, &[Tx::default(), tx]).await.expect_err(name);
        assert_eq!(error.kind, SourceErrorKind::Permanent, "{name}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("{chain}: transaction 1 of block 16 (0x")), "{text}");
        assert!(text.contains(&format!("check chains.{chain}.native and chains.{chain}.eip7708_from")), "{text}");
    }
    // A lie about the signer does not look like it: a node must not be able to stop the chain.
    let (mut block, receipts) = mint::block(16, B256::repeat_byte(1), &[pays(7, vec![moved(SIGNER, BOB, 7)])]);
    block["transactions"][0]["from"] = serde_json::json!(ALICE);
    let block = forge::read_as(polygon(), (block, receipts), Read::FULL).await.unwrap();
    assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), [('N', SIGNER, BOB, 7, 0)]);
    // Failed, of nothing, and to oneself (which EIP-7708 does not log): nothing has to be logged.
    let oneself = Tx { from: signer, to: Some(signer), nonce: 2, value: 7, ..Tx::default() };
    let failed = Tx { success: false, ..pays(7, Vec::new()) };
    assert_eq!(legs(ethereum(), &[failed, Tx { nonce: 1, ..pays(0, Vec::new()) }, oneself]).await, []);
}

#[tokio::test]
async fn a_payment_that_one_endpoint_alone_shows_unlogged_stops_nothing() {
    let signer = mint::signer(1);
    let ledger = move |logs| {
        let block = mint::block(16, B256::repeat_byte(1), &[Tx { from: signer, ..pays(7, logs) }]);
        Ledger { chain_id: chain_id(Chain::PolygonMainnet), ..Ledger::of([block]) }
    };
    let logged = ledger(vec![moved(signer, BOB, 7)]);
    let (first, second) = (Live::start(logged.clone()).await, Live::start(logged).await);
    let source = led_by_first(polygon(), &[&first, &second]).await;
    let unlogged = move || {
        let ledger = ledger(Vec::new());
        move |method: &str, params: &Value| {
            let is_content = method == "eth_getBlockReceipts" || params[1] == Value::Bool(true);
            is_content.then(|| ledger.answer(method, params))
        }
    };
    first.lie(unlogged());
    let block = source.blocks(16..=16, Read::FULL).await.unwrap().remove(0);
    assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), [('N', signer, BOB, 7, 0)]);
    let status = source.endpoints().snapshot().remove(0);
    assert_eq!(status.state, EndpointState::Failing);
    assert!(
        status.reason.contains("no other endpoint says so") && status.reason.contains("wrote no log"),
        "{status:?}"
    );
    // While the other one is silent, it is still one word alone.
    second.lie(|method, params| {
        let is_content = method == "eth_getBlockReceipts" || params[1] == Value::Bool(true);
        is_content.then(|| Err((-32000, "down".to_owned())))
    });
    for _ in 0..3 {
        let error = source.blocks(16..=16, Read::FULL).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient, "{error}");
    }
    second.lie(unlogged());
    until("both are asked and say so", async || {
        source.check().await.ok();
        source.blocks(16..=16, Read::FULL).await.unwrap_err().kind == SourceErrorKind::Permanent
    })
    .await;
}

#[tokio::test]
async fn a_false_payer_of_a_payment_to_oneself_is_a_lie_and_no_missing_log() {
    let ethereum = || by(NativeSource::Trace, Some(0), Chain::EthereumMainnet);
    let signer = mint::signer(1);
    let oneself = Tx { from: signer, to: Some(signer), value: 7, ..Tx::default() };
    let (mut block, receipts) = mint::block(16, B256::repeat_byte(1), &[oneself]);
    assert_eq!(forge::read_as(ethereum(), (block.clone(), receipts.clone()), Read::FULL).await.unwrap().transfers, []);
    block["transactions"][0]["from"] = serde_json::json!(ALICE);
    let error = forge::read_as(ethereum(), (block, receipts), Read::FULL).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("transaction 0 was not signed by its stated sender"), "{error}");
}

#[test]
fn facts_that_cannot_be_are_refused() {
    let url = || ["http://127.0.0.1:1".parse().unwrap()];
    for chain in [Chain::EthereumMainnet, Chain::BaseMainnet] {
        let error = EvmSource::new(by(NativeSource::LogTransfer, None, chain), &url()).unwrap_err();
        let text = format!("{chain}: native source log_transfer is Polygon's alone; check chains.{chain}.native");
        assert_eq!(error.to_string(), text);
        assert!(error.is_permanent());
    }
    for contract in [POL, SYSTEM] {
        let id = AssetId::Token(landfall_chain::Address::Evm(contract.into()));
        let mut network = polygon();
        network.assets.push(Asset { id, symbol: "POL".to_owned(), decimals: 18, from_block: 0, route: None });
        let error = EvmSource::new(network, &url()).unwrap_err();
        let text = format!("POLYGON_MAINNET: {contract} cannot be listed as a token");
        assert!(error.is_permanent() && error.to_string().starts_with(&text), "{error}");
    }
}
