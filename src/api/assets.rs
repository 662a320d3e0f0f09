//! `GET /v2/assets`: the assets that are credited on the chains that are followed.

use axum::Json;
use axum::extract::{RawQuery, State};
use landfall_chain::{Address, Asset, AssetId, Chain, Network};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::problem::Problem;
use crate::api::query::Query;
use crate::api::{AppState, openapi};

pub(super) const TYPES: [&str; 3] = ["BASE", "ERC20_TOKEN", "SPL_TOKEN"];

/// An asset on a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Asset)]
pub(super) struct AssetResource {
    #[schema(value_type = openapi::ChainName)]
    chain: &'static str,
    symbol: String,
    /// How many decimal places its major unit has.
    #[schema(pattern = "^(0|[1-9][0-9]*)$")]
    decimals: String,
    #[schema(schema_with = openapi::asset_type)]
    r#type: &'static str,
    /// The contract on EVM chains, the mint on Solana; empty for the native currency.
    contract_address: String,
}

/// The assets that are credited.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AssetList {
    assets: Vec<AssetResource>,
}

/// List assets
///
/// What is credited on the chains that are followed, chain by chain, the native currency first. A chain that is not
/// followed has no assets here.
#[utoipa::path(
    get,
    path = "/v2/assets",
    operation_id = "list_assets",
    tag = "Assets",
    security(("bearer" = ["read"])),
    params(("chain" = Option<openapi::ChainName>, Query, nullable = false, description = "Only assets on this chain.")),
    responses(
        (status = 200, description = "The assets.", body = AssetList),
        (status = 400, description = "A parameter is unknown, repeated or malformed.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(state): State<AppState>, RawQuery(query): RawQuery) -> Result<Json<AssetList>, Problem> {
    let mut query = Query::parse(query.as_deref(), &["chain"]);
    let only: Option<Chain> = query.optional("chain", openapi::chain);
    query.check()?;
    let networks = state.settings.networks.iter().filter(|network| only.is_none_or(|only| network.chain == only));
    Ok(Json(AssetList { assets: networks.flat_map(of_network).collect() }))
}

fn of_network(network: &Network) -> impl Iterator<Item = AssetResource> {
    network.assets.iter().map(|asset| resource(network.chain, asset))
}

fn resource(chain: Chain, asset: &Asset) -> AssetResource {
    let (r#type, contract_address) = describe(&asset.id);
    let (symbol, decimals) = (asset.symbol.clone(), asset.decimals.to_string());
    AssetResource { chain: chain.name(), symbol, decimals, r#type, contract_address }
}

/// An asset's type, and its contract; that of the native currency is empty.
pub(super) fn describe(asset: &AssetId) -> (&'static str, String) {
    match asset {
        AssetId::Native => (TYPES[0], String::new()),
        AssetId::Token(contract @ Address::Evm(_)) => (TYPES[1], contract.to_string()),
        AssetId::Token(mint @ Address::Solana(_)) => (TYPES[2], mint.to_string()),
    }
}
