//! The OP stack on a real node: deposit transactions (type 0x7e) prove with the encoding of today, and what they mint
//! is credited, also when they fail. And what it takes of a sponsor on top of gas is asked of its oracle.

use landfall::sandbox::anvil::Anvil;
use landfall_chain::{
    Address, AssetId, Carried, Chain, Intent, PayingChain, Quote, Route, SignedIntent, SourceErrorKind, U256,
};
use landfall_evm::EvmSource;
use serde_json::{Value, json};

use crate::stage::{Engine, Service, Stage, address, op_stack_node};

const BASE_CHAIN_ID: u64 = 8_453;
const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
/// A contract that always reverts.
const REFUSES: u8 = 0xde;
const ETHER: u128 = 1_000_000_000_000_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn e19_what_the_op_stack_mints_is_credited_also_when_the_transaction_fails() {
    let stage = Stage::new(Engine::Sqlite).await;
    let base = op_stack_node(stage.folder.path(), BASE_CHAIN_ID).await;
    let config = format!(
        "[api]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[chains.BASE_MAINNET]\nrpc = [\"{}\"]\nstart = 0\npoll_ms = 50\n\
         finality = \"finalized\"\n",
        base.url()
    );
    std::fs::write(stage.folder.path().join("landfall.toml"), config).unwrap();
    for (account, who) in [("alice", ALICE), ("bob", BOB)] {
        let spec = format!("BASE_MAINNET={}", address(who));
        stage.ok(&["account", "add", "--account", account, "--type", "SEGREGATED", "--address", &spec]);
    }
    base.set_code(&address(REFUSES), "0x60006000fd").await.unwrap();
    let mut service: Service = stage.start();

    // Alice bridges 1 ETH and 0.4 of it goes on to bob; then 0.5 ETH that are to go on to a contract that refuses.
    deposit(&base, 1, address(ALICE), address(BOB), ETHER, ETHER / 10 * 4).await;
    base.mine(1).await.unwrap();
    deposit(&base, 2, address(ALICE), address(REFUSES), ETHER / 2, ETHER / 10).await;
    base.mine(3).await.unwrap();
    let all_confirmed = |d: &[Value]| d.len() == 3 && d.iter().all(|d| d["status"] == "CONFIRMED");
    let deposits = stage.until("three CONFIRMED", all_confirmed).await;
    let mut reported: Vec<(&str, &str)> =
        deposits.iter().map(|d| (d["account_id"].as_str().unwrap(), d["amount"].as_str().unwrap())).collect();
    reported.sort_unstable();
    assert_eq!(reported, [("alice", "0.5"), ("alice", "1"), ("bob", "0.4")]);
    assert_eq!(base.balance(&address(ALICE)).await.unwrap(), U256::from(ETHER / 10 * 11), "1 - 0.4 + 0.5");
    assert_eq!(base.balance(&address(BOB)).await.unwrap(), U256::from(ETHER / 10 * 4));
    assert!(service.is_running(), "{}", service.log());
    assert_eq!(service.stop().0, Some(0));
}

/// The predeploy `GasPriceOracle`. Anvil has none.
const ORACLE: Address = Address::Evm([0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0f]);
/// Answers each question with its argument: a double, whose L1 fee is the bytes and whose operator fee is the gas.
const ECHO: &str = "0x6004355f5260205ff3";

#[tokio::test(flavor = "multi_thread")]
async fn t22_what_is_taken_on_top_of_gas_is_asked_of_the_oracle_and_without_one_nothing_is_carried() {
    let stage = Stage::new(Engine::Sqlite).await;
    let base = op_stack_node(stage.folder.path(), BASE_CHAIN_ID).await;
    let source =
        EvmSource::new(landfall_evm::network(Chain::BaseMainnet).unwrap(), &[base.url().parse().unwrap()]).unwrap();
    let missing = source.surcharge().await.unwrap_err();
    assert_eq!(missing.kind, SourceErrorKind::Transient, "{missing}");

    base.set_code(&ORACLE, ECHO).await.unwrap();
    let usual = source.surcharge().await.unwrap();
    let intent = Intent {
        transfer_id: [7; 16],
        chain_ref: format!("eip155:{BASE_CHAIN_ID}"),
        route: Route::Erc3009 { name: "A".to_owned(), version: "1".to_owned() },
        // Nothing stands there, so that whatever is called goes through.
        asset: AssetId::Token(address(0x70)),
        payer: address(ALICE),
        destination: address(BOB),
        amount: U256::from(5),
        deadline: 1_900_000_000,
    };
    let signed = SignedIntent { intent, signature: vec![27; 65] };
    let quote = source.quote(&address(BOB), &Carried::Payment { signed, authorization: None }).await.unwrap();
    let Quote::Gas { limit, surcharge } = quote else { panic!("{quote:?}") };
    let bytes = surcharge - U256::from(limit);
    assert!(bytes > U256::from(300) && bytes < U256::from(600), "{bytes} bytes, {limit} gas");
    assert!(usual > surcharge, "{usual}: no less than the dearest that is usual");
}

/// Sends a deposit transaction as the sequencer would: `0x7e || rlp([source, from, to, mint, value, gas, system,
/// data])`.
async fn deposit(node: &Anvil, source: u8, from: Address, to: Address, mint: u128, value: u128) {
    let fields = [
        string(&[source; 32]),
        string(from.as_bytes()),
        string(to.as_bytes()),
        number(mint),
        number(value),
        number(200_000),
        number(0),
        string(&[]),
    ];
    let payload = fields.concat();
    // Longer than 55 bytes and shorter than 256.
    let length = u8::try_from(payload.len()).unwrap();
    let raw = [vec![0x7e, 0xf8, length], payload].concat();
    node.rpc("eth_sendRawTransaction", json!([format!("0x{}", hex::encode(raw))])).await.unwrap();
}

/// RLP of a string of less than 56 bytes.
fn string(bytes: &[u8]) -> Vec<u8> {
    match bytes {
        [byte] if *byte < 0x80 => vec![*byte],
        _ => [&[0x80 + u8::try_from(bytes.len()).unwrap()], bytes].concat(),
    }
}

/// RLP of a number: its bytes, big endian, without leading zeros.
fn number(number: u128) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    string(&bytes[first..])
}
