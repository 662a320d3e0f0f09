//! What owners hold, as nodes report it of a final slot: alike by as many as must agree; by nodes that lag, refuse or report half of
//! it, nothing; and never zero for want of an answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall_chain::{
    Address, AssetId, Chain, EndpointState, Family, Holding, HoldingSource, Holdings, Proof, SourceErrorKind, U256,
};
use landfall_cluster::{Fault, Ledger, Node, Refusal, When};
use landfall_solana::{Options, SolanaSource, WRAPPED_SOL, Wrapped, network};
use serde_json::{Value, json};

use crate::made::associated_of;
use crate::sources::{at, source, two};

const USDC: &str = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
const SPL_TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";
const TOKEN_2022: &str = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb";
pub(crate) const SYSTEM: &str = "11111111111111111111111111111111";
const OWNER: Address = Address::Solana([0xb2; 32]);
const OTHER: Address = Address::Solana([0xb3; 32]);

pub(crate) fn usdc() -> AssetId {
    AssetId::Token(Address::parse(Family::Solana, USDC).unwrap())
}

fn key(text: &str) -> [u8; 32] {
    bs58::decode(text).into_vec().unwrap().try_into().unwrap()
}

/// The bytes of a token account.
pub(crate) fn tokens(mint: &str, owner: &Address, amount: u64) -> Vec<u8> {
    let mut data = [&key(mint)[..], owner.as_bytes(), &amount.to_le_bytes()].concat();
    data.resize(165, 0);
    data[108] = 1;
    data
}

pub(crate) fn account(program: &str, lamports: u64, data: &[u8]) -> Value {
    json!({ "data": [STANDARD.encode(data), "base64"], "lamports": lamports, "owner": program, "space": data.len() })
}

/// Tells that the owner has so many lamports and so much USDC.
fn report(nodes: &[&Node], owner: &Address, lamports: u64, amount: u64) {
    for node in nodes {
        node.report_account(&owner.to_string(), account(SYSTEM, lamports, &[]));
        let place = associated_of(&owner.to_string(), USDC);
        node.report_account(&place, account(SPL_TOKEN, 2_039_280, &tokens(USDC, owner, amount)));
    }
}

async fn held(source: &SolanaSource) -> Result<Holdings, SourceErrorKind> {
    source.holdings(&[OWNER], &[AssetId::Native, usdc()], &at(10)).await.map_err(|error| error.kind)
}

fn of_slots(amount: u64, (number, through): (u64, u64)) -> Option<Holding> {
    Some(Holding { amount: U256::from(amount), number, through })
}

fn amounts(lamports: u64, tokens: u64) -> Vec<Option<Holding>> {
    [lamports, tokens].map(|amount| of_slots(amount, (10, 10))).to_vec()
}

fn reported(lamports: u64, tokens: u64, proof: Proof) -> Holdings {
    Holdings { proof, amounts: vec![amounts(lamports, tokens)] }
}

pub(crate) fn assert_trusted(source: &SolanaSource) {
    let states: Vec<EndpointState> = source.endpoints().snapshot().iter().map(|endpoint| endpoint.state).collect();
    assert!(states.iter().all(|state| *state == EndpointState::Healthy), "{states:?}");
}

#[tokio::test]
async fn what_owners_hold_is_asked_for_at_what_is_final_and_reported_by_two() {
    let (node, other, source) = two().await;
    report(&[&node, &other], &OWNER, 5_000, 7);
    assert_eq!(held(&source).await, Ok(reported(5_000, 7, Proof::TwoEndpoints)));
    let place = associated_of(&OWNER.to_string(), USDC);
    let how = json!({
        "commitment": "finalized", "encoding": "base64", "minContextSlot": 10, "dataSlice": { "offset": 0, "length": 165 },
    });
    assert_eq!(node.counts().last["getMultipleAccounts"], json!([[OWNER.to_string(), place], how]));
    assert_eq!((node.calls("getMultipleAccounts", None), other.calls("getMultipleAccounts", None)), (1, 1));
    source.set_agree(1).unwrap();
    assert_eq!(held(&source).await, Ok(reported(5_000, 7, Proof::OneEndpoint)));
    assert_trusted(&source);
}

#[tokio::test]
async fn an_account_that_is_not_there_is_zero_only_at_a_slot_that_was_reached() {
    let (node, other, source) = two().await;
    assert_eq!(held(&source).await, Ok(reported(0, 0, Proof::TwoEndpoints)), "nobody has heard of the owner");
    // It answers of an older slot, whatever it is asked.
    node.report_accounts_at(9);
    assert_eq!(held(&source).await, Err(SourceErrorKind::Transient));
    other.report_accounts_at(9);
    assert_eq!(held(&source).await, Err(SourceErrorKind::Transient));
    node.report_accounts_at(None);
    other.report_accounts_at(None);
    // A slot that nothing is final at yet.
    let error = source.holdings(&[OWNER], &[AssetId::Native], &at(12)).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert_trusted(&source);
}

#[tokio::test]
async fn each_answer_is_of_its_own_slot_and_both_are_reported() {
    let (node, other, source) = two().await;
    report(&[&node, &other], &OWNER, 5_000, 7);
    node.report_accounts_at(14);
    other.report_accounts_at(15);
    let of_both = |amount| of_slots(amount, (14, 15));
    assert_eq!(held(&source).await.unwrap().amounts, [[of_both(5_000), of_both(7)]]);
    // Whoever is asked second may be some slots behind the first, as long as it has reached what is agreed to be final.
    other.report_accounts_at(13);
    let of_both = |amount| of_slots(amount, (13, 14));
    assert_eq!(held(&source).await.unwrap().amounts, [[of_both(5_000), of_both(7)]]);
    assert_eq!(other.counts().last["getMultipleAccounts"][1]["minContextSlot"], 10);
}

#[tokio::test]
async fn owners_that_two_report_differently_are_not_reported_and_others_are() {
    let (node, other, source) = two().await;
    report(&[&node, &other], &OWNER, 5_000, 7);
    report(&[&node], &OTHER, 5_000, 7);
    report(&[&other], &OTHER, 5_000, 8);
    let both = source.holdings(&[OTHER, OWNER], &[AssetId::Native, usdc()], &at(10)).await.unwrap();
    assert_eq!(both.amounts, [vec![amounts(5_000, 7)[0], None], amounts(5_000, 7)]);
    assert_trusted(&source);
}

#[tokio::test]
async fn a_token_account_counts_when_program_mint_and_owner_are_those_that_it_was_asked_for() {
    let (node, other, source) = two().await;
    let place = associated_of(&OWNER.to_string(), USDC);
    let with = |at: usize, byte: u8| {
        let mut data = tokens(USDC, &OWNER, 7);
        data[at] = byte;
        account(SPL_TOKEN, 1, &data)
    };
    let cases = [
        ("frozen, it is there all the same", with(108, 2), Some(7)),
        ("given to somebody else", account(SPL_TOKEN, 1, &tokens(USDC, &OTHER, 7)), Some(0)),
        ("lamports of a stranger, before it was made", account(SYSTEM, 7, &[]), Some(0)),
        ("of another program", account(TOKEN_2022, 1, &tokens(USDC, &OWNER, 7)), Some(0)),
        ("of another mint", account(SPL_TOKEN, 1, &tokens(WRAPPED_SOL, &OWNER, 7)), None),
        ("not initialised", with(108, 0), None),
        ("cut off", account(SPL_TOKEN, 1, &tokens(USDC, &OWNER, 7)[..164]), None),
        ("empty", account(SPL_TOKEN, 1, &[]), None),
        ("no base64", json!({ "data": ["***", "base64"], "lamports": 1, "owner": SPL_TOKEN }), None),
        ("base58", json!({ "data": ["", "base58"], "lamports": 1, "owner": SPL_TOKEN }), None),
        ("no data", json!({ "lamports": 1, "owner": SPL_TOKEN }), None),
        ("parsed", json!({ "data": { "parsed": {} }, "lamports": 1, "owner": SPL_TOKEN }), None),
    ];
    for (what, reported_account, expected) in cases {
        for node in [&node, &other] {
            node.report_account(&place, reported_account.clone());
        }
        // What is no account is none at all; a token account that is not one keeps SOL from nobody.
        let of_token = expected.and_then(|amount| of_slots(amount, (10, 10)));
        let is_account = !matches!(what, "no data" | "parsed");
        let expected = is_account.then(|| vec![vec![of_slots(0, (10, 10)), of_token]]);
        assert_eq!(held(&source).await.ok().map(|held| held.amounts), expected, "{what}");
        assert_trusted(&source);
    }
}

#[tokio::test]
async fn a_node_that_refuses_or_knows_no_such_method_is_as_good_as_before_for_all_else() {
    let (node, other, source) = two().await;
    report(&[&node, &other], &OWNER, 5_000, 7);
    let mut refused = 0;
    for refusal in Refusal::ALL {
        let fault = Fault::Refuse(refusal);
        node.misbehave(fault, When::Always);
        let held = held(&source).await;
        if node.struck(fault) > 0 {
            assert_eq!(held, Err(SourceErrorKind::Transient), "{refusal:?}: one is not enough");
            refused += 1;
        }
        node.behave();
    }
    assert!(refused >= 3, "a node that lags, that is limited, that knows no such method");
    assert_eq!(held(&source).await, Ok(reported(5_000, 7, Proof::TwoEndpoints)));
    assert_trusted(&source);
}

#[tokio::test]
async fn wrapped_sol_is_sol_where_that_is_so_and_many_owners_are_asked_for_in_parts() {
    let node = Node::start(&Ledger::of(10..=15)).await;
    let mainnet = network(Chain::SolanaMainnet).unwrap();
    let options = Options { wrapped: Some(Wrapped::Native), ..Options::default() };
    let url: url::Url = node.url().parse().unwrap();
    let native = SolanaSource::at(&mainnet, vec![url.into()], &options).unwrap();
    let owners: Vec<Address> = (0..150).map(|who| Address::Solana([who; 32])).collect();
    for (owner, lamports) in owners.iter().zip(1_000..) {
        node.report_account(&owner.to_string(), account(SYSTEM, lamports, &[]));
        let place = associated_of(&owner.to_string(), WRAPPED_SOL);
        node.report_account(&place, account(SPL_TOKEN, 2_039_285, &tokens(WRAPPED_SOL, owner, 5)));
    }
    let held = native.holdings(&owners, &[AssetId::Native], &at(10)).await.unwrap();
    let expected: Vec<_> = (0..150).map(|index| vec![of_slots(1_005 + index, (10, 10))]).collect();
    assert_eq!((held.amounts, held.proof), (expected, Proof::OneEndpoint));
    assert_eq!(node.calls("getMultipleAccounts", None), 3, "50 owners have 100 accounts");
    let token = source(&[&node]);
    let held = token.holdings(&owners[..1], &[AssetId::Native], &at(10)).await.unwrap();
    assert_eq!(held.amounts, [[of_slots(1_000, (10, 10))]]);
}
