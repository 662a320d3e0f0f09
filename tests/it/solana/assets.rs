//! What is known of listed mints: asked for one by one, kept, and an alarm if it is not what the configuration lists.
//! Then nothing of them is CONFIRMED.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall::deposit::DepositStatus;
use landfall::incident::{Incident, IncidentKind};
use landfall::store::asset_facts::{self, AssetRow};
use landfall::store::incidents;
use landfall::watcher::AssetWatch;
use landfall_chain::{Address, Asset, AssetId, Chain, Network};
use landfall_cluster::{Fault, Ledger as Cluster, Refusal, When};
use landfall_solana::{SolanaSource, network};
use serde_json::{Value, json};

use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::solana_ledger::{Ledger, Mint, Place, SPL_TOKEN, TOKEN_2022, asset, owner};
use crate::harness::solana_line::{Line, with};

const CHAIN: Chain = Chain::SolanaMainnet;
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SYSTEM: &str = "11111111111111111111111111111111";

/// A mint as its program keeps it.
fn mint(program: &str, decimals: u8, extension: &[u8]) -> Value {
    let mut data = vec![0; 82];
    (data[44], data[45]) = (decimals, 1);
    if !extension.is_empty() {
        data.resize(165, 0);
        data.push(1);
        data.extend_from_slice(extension);
    }
    json!({ "data": [STANDARD.encode(&data), "base64"], "lamports": 1_461_600, "owner": program, "space": data.len() })
}

/// Pausable, by nobody.
fn pausable() -> Vec<u8> {
    [&[26, 0, 33, 0][..], &[0; 33]].concat()
}

fn other() -> AssetId {
    AssetId::Token(Address::Solana([0x77; 32]))
}

/// Mainnet, and another mint of six decimals that may be under either program.
fn listing() -> Network {
    let mut network = network(CHAIN).unwrap();
    network.assets.push(Asset { id: other(), symbol: "OTHER".to_owned(), decimals: 6, from_block: 0, route: None });
    network
}

async fn line(engine: Engine, blocks: Cluster) -> Line {
    Line::of(listing(), TestStore::fresh(engine).await, blocks, 1).await
}

fn watch(line: &Line) -> AssetWatch<Arc<SolanaSource>> {
    AssetWatch::new(Arc::clone(&line.source), line.store.db.clone(), &line.network)
}

async fn rows(line: &Line) -> Vec<AssetRow> {
    asset_facts::all(&mut line.store.db.read().await.unwrap()).await.unwrap()
}

async fn open(line: &Line) -> Vec<Incident> {
    incidents::open(&mut line.store.db.read().await.unwrap()).await.unwrap()
}

/// Symbol, program, decimals, extensions, and whether the last look reported something.
type Shown<'r> = (&'r str, Option<&'r str>, Option<u8>, Vec<String>, bool);

fn reported(rows: &[AssetRow]) -> Vec<Shown<'_>> {
    let all = rows.iter().map(|row| {
        let reported = row.reported.as_ref();
        let terms = reported.and_then(|reported| reported.terms.as_ref());
        let extensions = terms.map_or_else(Vec::new, |terms| terms.extensions.clone());
        let program = reported.and_then(|reported| reported.program.as_deref());
        (row.symbol.as_str(), program, terms.map(|terms| terms.decimals), extensions, row.reason.is_empty())
    });
    all.collect()
}

#[tokio::test]
async fn each_listed_mint_is_looked_at_once_after_a_start_and_then_daily_one_a_tick() {
    for engine in ENGINES {
        let mut line = line(engine, Cluster::of(10..=15)).await;
        let node = &line.nodes[0];
        node.report_account(&asset(Mint::Usdc).to_string(), mint(SPL_TOKEN, 6, &[]));
        node.report_account(&other().to_string(), mint(TOKEN_2022, 6, &pausable()));
        line.finalize(14);
        line.catch_up().await;
        let mut watch = watch(&line);
        assert_eq!(watch.tick(line.now).await.unwrap(), Some(asset(Mint::Usdc)));
        // What was final on our own chain is what the answer must have reached.
        assert_eq!(line.nodes[0].counts().last["getAccountInfo"][1]["minContextSlot"], 14);
        assert_eq!(watch.tick(line.now).await.unwrap(), Some(other()));
        assert_eq!(watch.tick(line.now.plus(DAY - SECOND)).await.unwrap(), None);
        let all = rows(&line).await;
        let paused = vec!["pausable".to_owned()];
        let expected =
            [("OTHER", Some("token_2022"), Some(6), paused, true), ("USDC", Some("spl_token"), Some(6), vec![], true)];
        assert_eq!(reported(&all), expected);
        assert_eq!(open(&line).await, []);
        assert_eq!(watch.tick(line.now.plus(DAY)).await.unwrap(), Some(asset(Mint::Usdc)));
        assert_eq!(line.nodes[0].calls("getAccountInfo", None), 3);

        // Not listed any more, it is not shown any more.
        let mut again = AssetWatch::new(Arc::clone(&line.source), line.store.db.clone(), &network(CHAIN).unwrap());
        assert_eq!(again.tick(line.now).await.unwrap(), Some(asset(Mint::Usdc)), "after each start");
        assert_eq!(rows(&line).await.len(), 1);
    }
}

#[tokio::test]
async fn a_look_that_fails_says_nothing_of_the_mint_and_is_tried_again() {
    let mut line = line(Engine::Sqlite, Cluster::of(10..=15)).await;
    line.catch_up().await;
    line.nodes[0].report_account(&other().to_string(), mint(TOKEN_2022, 6, &pausable()));
    let mut watch = watch(&line);
    // The account is not there: maybe the node has lost it.
    assert_eq!(watch.tick(line.now).await.unwrap(), Some(asset(Mint::Usdc)));
    assert_eq!(watch.tick(line.now).await.unwrap(), Some(other()));
    let all = rows(&line).await;
    assert_eq!(reported(&all)[1], ("USDC", None, None, vec![], false));
    assert!(all[1].reason.contains("shows no account"), "{}", all[1].reason);
    assert_eq!(open(&line).await, []);

    line.nodes[0].report_account(&asset(Mint::Usdc).to_string(), mint(SPL_TOKEN, 6, &[]));
    assert_eq!(watch.tick(line.now.plus(14 * SECOND)).await.unwrap(), None);
    let later = line.now.plus(15 * SECOND);
    assert_eq!(watch.tick(later).await.unwrap(), Some(asset(Mint::Usdc)));
    assert_eq!(reported(&rows(&line).await)[1], ("USDC", Some("spl_token"), Some(6), vec![], true));

    // What is known stays when the node refuses.
    line.nodes[0].misbehave(Fault::Refuse(Refusal::MethodNotFound), When::Always);
    let tomorrow = line.now.plus(DAY);
    assert_eq!(watch.tick(tomorrow).await.unwrap(), Some(other()));
    let all = rows(&line).await;
    assert_eq!(reported(&all)[0], ("OTHER", Some("token_2022"), Some(6), vec!["pausable".to_owned()], false));
    assert_eq!(open(&line).await, [], "that a node refuses is nobody's mistake in the configuration");
}

#[tokio::test]
async fn a_mint_with_other_decimals_or_under_another_program_is_an_incident_that_names_each_and_says_what_to_do() {
    for engine in ENGINES {
        let mut line = line(engine, Cluster::of(10..=15)).await;
        line.catch_up().await;
        let usdc = asset(Mint::Usdc).to_string();
        line.nodes[0].report_account(&usdc, mint(TOKEN_2022, 6, &[]));
        line.nodes[0].report_account(&other().to_string(), mint(SPL_TOKEN, 9, &[]));
        let mut watch = watch(&line);
        watch.tick(line.now).await.unwrap();
        watch.tick(line.now).await.unwrap();
        let [incident] = &open(&line).await[..] else { panic!("one incident: {:?}", open(&line).await) };
        assert_eq!((incident.kind, incident.chain), (IncidentKind::AssetMismatch, CHAIN));
        let expected = format!(
            "SOLANA_MAINNET says otherwise of listed assets than the configuration does: OTHER ({}): it has 9 decimals, and \
             is listed with 6 and USDC ({usdc}): it is kept by token_2022, and listed under spl_token; until that is corrected",
            other()
        );
        assert!(incident.what.starts_with(&expected), "{}", incident.what);
        assert!(incident.what.contains("`landfall backfill --chain SOLANA_MAINNET`"), "{}", incident.what);

        // A program that keeps no tokens at all.
        line.nodes[0]
            .report_account(&usdc, json!({ "data": ["", "base64"], "lamports": 1, "owner": SYSTEM, "space": 0 }));
        watch.tick(line.now.plus(DAY)).await.unwrap();
        let [incident] = &open(&line).await[..] else { panic!("the same one") };
        let keeps_none = format!("it is kept by {SYSTEM}, which keeps no tokens, and listed under spl_token");
        assert!(incident.what.contains(&keeps_none), "{}", incident.what);
        assert_eq!((incident.opened_at, incident.seen_at), (line.now, line.now.plus(DAY)));

        // Resolved while nothing was corrected, it comes back at the next look.
        let mut tx = line.store.db.begin().await.unwrap();
        incidents::resolve(&mut tx, &incident.id, "overlooked", line.now).await.unwrap();
        tx.commit().await.unwrap();
        watch.tick(line.now.plus(DAY)).await.unwrap();
        assert_eq!(open(&line).await.len(), 1);
    }
}

#[tokio::test]
async fn a_mint_that_is_said_to_have_other_decimals_keeps_its_deposits_pending() {
    for engine in ENGINES {
        let mut ledger = Ledger::new();
        let usdc = |who: u8| (who, Mint::Usdc, Place::Associated);
        let paid = ledger.tx(0x23, |it| it.pay(usdc(0x23), usdc(0x21), 6));
        let blocks = with(Cluster::of(10..=15), 13, [paid]);
        let mut line = line(engine, blocks).await;
        line.finalize(12);
        line.catch_up().await;
        line.nodes[0].report_account(&asset(Mint::Usdc).to_string(), mint(SPL_TOKEN, 9, &[]));
        watch(&line).tick(line.now).await.unwrap();
        assert_eq!(open(&line).await.len(), 1);
        line.finalize(15);
        line.catch_up().await;
        // The block shows its tokens itself, and it is recorded.
        assert_eq!(
            (line.deposit().await.recipient, line.deposit().await.status),
            (owner(0x21), DepositStatus::Pending)
        );
        line.nodes[0].report_account(&asset(Mint::Usdc).to_string(), mint(SPL_TOKEN, 6, &[]));
        watch(&line).tick(line.now).await.unwrap();
        line.catch_up().await;
        assert_eq!(line.deposit().await.status, DepositStatus::Confirmed);
    }
}
