//! What chains say of listed assets: as it was reported, whatever failed since, until it is forgotten.

use landfall::store::asset_facts::{self, AssetRow, ReportedAsset};
use landfall_chain::{Address, Asset, AssetFacts, AssetId, Chain, Terms, TransferFee};

use super::cast::{NOW, write};
use crate::harness::postgres::TestStore;

on_both_engines!(what_was_reported_of_an_asset_stays_when_a_later_look_fails_and_goes_when_it_is_forgotten,);

const CHAIN: Chain = Chain::SolanaMainnet;
const ELSEWHERE: Chain = Chain::SolanaDevnet;

fn asset(symbol: &str, key: u8) -> Asset {
    let id = AssetId::Token(Address::Solana([key; 32]));
    Asset { id, symbol: symbol.to_owned(), decimals: 6, from_block: 0, route: None }
}

fn terms() -> Terms {
    Terms {
        decimals: u8::MAX,
        freeze_authority: Some(Address::Solana([1; 32])),
        permanent_delegate: Some(Address::Solana([2; 32])),
        transfer_fee: Some(TransferFee { basis_points: u16::MAX, maximum: u64::MAX }),
        extensions: vec!["it's \"one\"".to_owned(), "unknown_4711".to_owned()],
        risks: vec!["unknown_4711".to_owned()],
    }
}

async fn all(store: &TestStore) -> Vec<AssetRow> {
    asset_facts::all(&mut store.db.read().await.unwrap()).await.unwrap()
}

async fn what_was_reported_of_an_asset_stays_when_a_later_look_fails_and_goes_when_it_is_forgotten(store: TestStore) {
    let (rich, poor) = (asset("RICH", 9), asset("POOR", 8));
    let facts = |terms: Option<Terms>| AssetFacts {
        program: Some("token_2022".to_owned()),
        listed_programs: vec!["spl_token".to_owned()],
        terms,
    };
    let row = |asset: &Asset, reported: Option<ReportedAsset>, reason: &str| AssetRow {
        chain: CHAIN,
        asset: asset.id,
        symbol: asset.symbol.clone(),
        reported,
        reason: reason.to_owned(),
        is_held: false,
    };
    let reported = |terms: Option<Terms>, differs: &str| {
        Some(ReportedAsset { at: NOW, program: Some("token_2022".to_owned()), terms, differs: differs.to_owned() })
    };
    write(&store, async |tx| asset_facts::fail(tx, CHAIN, &rich, ("silent", false)).await.unwrap()).await;
    assert_eq!(all(&store).await, [row(&rich, None, "silent")]);
    write(&store, async |tx| {
        asset_facts::report(tx, CHAIN, &rich, &facts(Some(terms())), ("all of it", false), NOW).await.unwrap();
        asset_facts::report(tx, CHAIN, &poor, &facts(None), ("", false), NOW).await.unwrap();
        asset_facts::report(tx, ELSEWHERE, &poor, &facts(None), ("", false), NOW).await.unwrap();
    })
    .await;
    let elsewhere = AssetRow { chain: ELSEWHERE, ..row(&poor, reported(None, ""), "") };
    let rich_row = row(&rich, reported(Some(terms()), "all of it"), "");
    assert_eq!(all(&store).await, [elsewhere.clone(), row(&poor, reported(None, ""), ""), rich_row.clone()]);

    write(&store, async |tx| {
        asset_facts::fail(tx, CHAIN, &rich, ("down", false)).await.unwrap();
        asset_facts::forget(tx, CHAIN, &poor.id).await.unwrap();
        asset_facts::forget(tx, CHAIN, &poor.id).await.unwrap();
    })
    .await;
    let down = AssetRow { reason: "down".to_owned(), ..rich_row };
    assert_eq!(all(&store).await, [elsewhere.clone(), down]);
    // After a new report, nothing of the earlier one is left.
    let bare = Terms { freeze_authority: None, permanent_delegate: None, transfer_fee: None, ..terms() };
    write(&store, async |tx| {
        asset_facts::report(tx, CHAIN, &rich, &facts(Some(bare.clone())), ("", false), NOW).await.unwrap();
    })
    .await;
    assert_eq!(all(&store).await, [elsewhere, row(&rich, reported(Some(bare), ""), "")]);
}
