//! What nodes tell of listed mints: as it is asked for, in each form, by as many as must agree, and by nodes that refuse, lag or
//! report half of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall_chain::{
    Address, Asset, AssetFacts, AssetId, AssetSource, Chain, EndpointState, Family, SourceErrorKind, Terms,
};
use landfall_cluster::{Fault, Ledger, Node, Refusal, When};
use landfall_solana::{SolanaSource, network};
use serde_json::{Value, json};

use crate::sources::{source, two};

const USDC: &str = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
const SPL_TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";
const TOKEN_2022: &str = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb";
const SYSTEM: &str = "11111111111111111111111111111111";

fn usdc() -> AssetId {
    AssetId::Token(Address::parse(Family::Solana, USDC).unwrap())
}

/// A mint with six decimals that can be frozen.
pub(crate) fn bare() -> Vec<u8> {
    let mut account = vec![0; 82];
    (account[44], account[45], account[46]) = (6, 1, 1);
    account
}

/// The same, and it can be paused.
fn pausable() -> Vec<u8> {
    let mut account = bare();
    account.resize(165, 0);
    account.extend([1, 26, 0, 33, 0]);
    account.resize(account.len() + 33, 0);
    account
}

fn account(owner: &str, data: &[u8]) -> Value {
    json!({
        "data": [STANDARD.encode(data), "base64"], "executable": false, "lamports": 1_461_600, "owner": owner,
        "rentEpoch": u64::MAX, "space": data.len(),
    })
}

async fn reported(source: &SolanaSource) -> Result<AssetFacts, SourceErrorKind> {
    source.facts(&usdc(), 10).await.map(Option::unwrap).map_err(|error| error.kind)
}

fn facts(program: &str, extensions: &[&str]) -> AssetFacts {
    let names: Vec<String> = extensions.iter().map(|name| (*name).to_owned()).collect();
    let terms = Terms {
        decimals: 6,
        freeze_authority: Some(Address::Solana([0; 32])),
        permanent_delegate: None,
        transfer_fee: None,
        extensions: names.clone(),
        risks: names,
    };
    AssetFacts { program: Some(program.to_owned()), listed_programs: vec!["spl_token".to_owned()], terms: Some(terms) }
}

fn assert_trusted(source: &SolanaSource) {
    let states: Vec<EndpointState> = source.endpoints().snapshot().iter().map(|endpoint| endpoint.state).collect();
    assert!(states.iter().all(|state| *state == EndpointState::Healthy), "{states:?}");
}

#[tokio::test]
async fn s12_a_mint_is_asked_for_at_what_is_final_and_reported_with_its_program_and_its_extensions() {
    let (node, other, source) = two().await;
    let report = |owner: &str, data: &[u8]| [&node, &other].map(|node| node.report_account(USDC, account(owner, data)));
    report(SPL_TOKEN, &bare());
    let as_listed = reported(&source).await.unwrap();
    assert_eq!(as_listed, facts("spl_token", &[]));
    assert!(as_listed.is_under_its_program());
    let asked = json!([USDC, { "commitment": "finalized", "encoding": "base64", "minContextSlot": 10 }]);
    assert_eq!(node.counts().last["getAccountInfo"], asked);
    assert_eq!(
        (node.calls("getAccountInfo", None), other.calls("getAccountInfo", None)),
        (1, 1),
        "one light call each"
    );

    report(TOKEN_2022, &pausable());
    let under_another = reported(&source).await.unwrap();
    assert_eq!(under_another, facts("token_2022", &["pausable"]));
    assert!(!under_another.is_under_its_program());

    report(SYSTEM, &[]);
    let no_token = reported(&source).await.unwrap();
    assert_eq!(no_token, AssetFacts { program: Some(SYSTEM.to_owned()), terms: None, ..facts("", &[]) });
    assert!(!no_token.is_under_its_program());
    assert_eq!(source.facts(&AssetId::Native, 10).await.unwrap(), None);
}

#[tokio::test]
async fn what_two_do_not_report_alike_is_not_reported() {
    let (node, other, source) = two().await;
    node.report_account(USDC, account(SPL_TOKEN, &bare()));
    for account in [account(TOKEN_2022, &bare()), account(SYSTEM, &[]), Value::Null] {
        other.report_account(USDC, account);
        assert_eq!(reported(&source).await, Err(SourceErrorKind::Transient));
    }
    source.set_agree(1).unwrap();
    assert_eq!(reported(&source).await, Ok(facts("spl_token", &[])));
    assert_trusted(&source);
}

#[tokio::test]
async fn a_mint_that_is_listed_without_its_program_is_under_either() {
    let node = Node::start(&Ledger::of(10..=12)).await;
    let mint = Address::Solana([9; 32]);
    let mut network = network(Chain::SolanaMainnet).unwrap();
    let id = AssetId::Token(mint);
    network.assets.push(Asset { id, symbol: "NINE".to_owned(), decimals: 6, from_block: 0, route: None });
    let source = SolanaSource::new(&network, &[node.url().parse().unwrap()]).unwrap();
    for (owner, data) in [(SPL_TOKEN, bare()), (TOKEN_2022, pausable())] {
        node.report_account(&mint.to_string(), account(owner, &data));
        assert!(source.facts(&id, 10).await.unwrap().unwrap().is_under_its_program(), "{owner}");
    }
}

#[tokio::test]
async fn a_node_that_refuses_lags_or_reports_half_of_a_mint_reports_nothing_of_it_and_is_as_good_as_before() {
    let (node, other, source) = two().await;
    source.set_agree(1).unwrap();
    let good = account(SPL_TOKEN, &bare());
    let changed = |key: &str, value: Value| {
        let mut account = good.clone();
        account[key] = value;
        account
    };
    let half = STANDARD.encode(&pausable()[..90]);
    let cases = [
        Value::Null,
        changed("owner", json!("0")),
        changed("data", json!(["", "base64"])),
        changed("data", json!([good["data"][0], "base58"])),
        changed("data", json!(["***", "base64"])),
        changed("data", json!({ "parsed": {} })),
        changed("space", json!(83)),
        // The front of a longer mint is a mint, but for its length.
        json!({ "owner": TOKEN_2022, "data": [STANDARD.encode(&pausable()[..82]), "base64"], "space": 203 }),
        json!({ "owner": TOKEN_2022, "data": [half, "base64"], "space": 90 }),
    ];
    for case in cases {
        node.report_account(USDC, case.clone());
        other.report_account(USDC, case.clone());
        assert_eq!(reported(&source).await, Err(SourceErrorKind::Transient), "{case}");
        // Another one is heard.
        other.report_account(USDC, good.clone());
        assert_eq!(reported(&source).await, Ok(facts("spl_token", &[])), "{case}");
    }
    node.report_account(USDC, good);
    assert_eq!(source.facts(&usdc(), 11).await.unwrap_err().kind, SourceErrorKind::Transient, "10 is final");
    assert_trusted(&source);

    for refusal in Refusal::ALL {
        node.misbehave(Fault::Refuse(refusal), When::Always);
        assert_eq!(reported(&source).await, Ok(facts("spl_token", &[])), "{refusal:?}");
        node.behave();
    }
    for node in [&node, &other] {
        node.misbehave(Fault::Refuse(Refusal::MethodNotFound), When::Always);
    }
    assert_eq!(reported(&source).await, Err(SourceErrorKind::Transient));
    assert_trusted(&source);
    let alone = self::source(&[&node]);
    assert_eq!(alone.facts(&usdc(), 10).await.unwrap_err().kind, SourceErrorKind::Transient);
}
