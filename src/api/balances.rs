//! `GET /v2/accounts/{account_id}/balances`: what an account has of each asset, from readings of its addresses at final
//! blocks.
//!
//! Promises: each listed asset of each chain on which the account has an address has a line. The whole answer is
//! refused, with the names of the chains and assets, wherever a line could be wrong:
//! - the balance was never read, or some of it may have left unseen;
//! - the chain is halted, or its newest blocks have not been read for long;
//! - its newest blocks were not traced for long, where traces show what leaves of the native currency;
//! - the chain was followed once and is not configured any more;
//! - the account had some of an asset that is not listed any more.
//!
//! In the last two cases a line would be missing, which reads as zero. An operator configures the chain or lists the
//! asset again, or gives it up for good. A request for one chain or one symbol is answered for that alone.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use landfall_chain::{Asset, AssetId, Chain, Network};
use serde::Serialize;
use utoipa::ToSchema;

use crate::account::AccountStatus;
use crate::amount::to_decimal;
use crate::api::accounts::{account_id, unknown};
use crate::api::assets::describe;
use crate::api::problem::Problem;
use crate::api::query::{self, Query};
use crate::api::{AppState, Settings, openapi};
use crate::balance::{AHEAD_MAX, Balance, UNREAD_MAX};
use crate::store::balances::{self, Known};
use crate::store::cursors::Cursor;
use crate::store::deposit_pages;
use crate::store::{Connection, StoreError, account_pages, status};

/// What an account has of an asset on a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Balance)]
pub(super) struct BalanceResource {
    pub symbol: String,
    /// The sum of what each of its addresses held when it was last read, in the major unit. If all were read after the
    /// same block, this is the balance after that block. If not, an amount that moved between two of them since the
    /// older reading may be counted twice, or not at all, for the seconds until they are read again.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub total: String,
    /// What of it may be spent: without deposits that are not CONFIRMED, without what left the addresses since, and
    /// without what transfers under way have reserved. Zero while the account is not ACTIVE.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub available: String,
    /// How many decimal places the major unit has.
    pub decimals: u8,
    #[schema(schema_with = openapi::asset_type)]
    pub r#type: &'static str,
    #[schema(value_type = openapi::ChainName)]
    pub chain: &'static str,
    /// The contract on EVM chains, the mint on Solana; empty for the native currency.
    pub contract_address: String,
    /// The final block (the slot on Solana) after which `total` is true. If the addresses were read at several blocks,
    /// the oldest: then `total` is not of one block.
    #[schema(extensions(("x-landfall-extension" = json!(true))))]
    pub as_of_block: u64,
    /// When that was read; if there are several readings, the time of the oldest.
    #[schema(format = DateTime, extensions(("x-landfall-extension" = json!(true))))]
    pub as_of_time: String,
}

/// What cannot be reported of an account.
#[derive(Default, Debug)]
struct Unknown {
    /// Chains, and assets on them.
    names: Vec<String>,
    /// What an operator must do before any of it is known.
    remedies: Vec<String>,
}

/// What an account has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BalanceList {
    balances: Vec<BalanceResource>,
}

/// Get an account's balances
///
/// A line for each listed asset of each chain on which the account has an address, chain by chain, the native currency
/// first; also zeros. Balances are read at final blocks: soon after an address was added, again once a movement is
/// final, and in a slow round over all addresses. `as_of_block` reports the block. Frozen and closed accounts are
/// answered too.
///
/// The answer is refused (`BALANCE_UNKNOWN`) while a line would say more than is known:
///
/// - before an asset was read of all addresses;
/// - where there is some of it, until the block is final from which the address, or the asset, is followed;
/// - while the newest blocks of the chain have not been read for 5 minutes, or the chain is halted;
/// - for the native currency where traces show what contracts move: while a block above the reading has waited for its
///   trace for 5 minutes;
/// - while the account has an address on a chain that was followed once and is not followed any more;
/// - while an asset is no longer listed of which the account held some, or got a deposit that is not FAILED. It is
///   named by its contract.
///
/// A chain that never was followed has no line, nor has a chain or an asset that was given up for good. With `chain` or
/// `symbol` only what was asked for must be known.
#[utoipa::path(
    get,
    path = "/v2/accounts/{account_id}/balances",
    operation_id = "get_account_balances",
    tag = "Accounts",
    security(("bearer" = ["read"])),
    params(
        ("account_id" = String, Path, description = "The `id` of the account."),
        ("chain" = Option<openapi::ChainName>, Query, nullable = false,
            description = "Only balances on this chain; without it, on all chains that are followed."),
        ("symbol" = Option<String>, Query, nullable = false, min_length = 1,
            extensions(("x-landfall-extension" = json!(true))),
            pattern = r"^[^\u0000-\u001F\u007F-\u009F\uFFFD]+$",
            description = "Only balances of assets with this symbol, which some chain that is followed lists, an extension of the interface."),
    ),
    responses(
        (status = 200, description = "What the account has.", body = BalanceList),
        (status = 400, description = "A parameter is unknown, repeated or malformed, or no chain that is followed lists the symbol.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No account has this id.", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "What the account has is not known of some chain, or of some asset on it; `detail` names them. Send \
            it again after `Retry-After` seconds; without this header an operator must act first, as `detail` says \
            (`BALANCE_UNKNOWN`).", body = Problem,
            content_type = "application/problem+json", headers(("Retry-After" = u64))),
    ),
)]
pub(super) async fn of_account(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<BalanceList>, Problem> {
    let account_id = account_id(id)?;
    let mut query = Query::parse(query.as_deref(), &["chain", "symbol"]);
    let (networks, now) = (&state.settings.networks, state.clock.now());
    let unread_since = now.minus(UNREAD_MAX);
    let only: Option<Chain> = query.optional("chain", openapi::chain);
    let symbol: Option<String> = query.optional("symbol", |text| listed(text, networks));
    query.check()?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let found = account_pages::identity(&mut reader, &account_id).await.map_err(Problem::internal)?;
    let (_, status) = found.ok_or_else(unknown)?;
    // Read before the movements that left are searched: a block that is read in between is then in that search.
    let read = status::followed_since(&mut reader, unread_since, now.plus(AHEAD_MAX)).await;
    let read = read.map_err(Problem::internal)?;
    let known = balances::of_account(&mut reader, &account_id, unread_since).await.map_err(Problem::internal)?;
    let mut unknown = unfollowed(&mut reader, &known, &state.settings, only).await.map_err(Problem::internal)?;
    let unlisted = unlisted(&mut reader, &account_id, &known, &state.settings, symbol.as_deref()).await;
    let mut unlisted = unlisted.map_err(Problem::internal)?;
    let mut balances = Vec::new();
    for network in networks.iter().filter(|network| only.is_none_or(|only| network.chain == only)) {
        let addresses: Vec<_> = known.iter().filter(|of| of.chain == network.chain).collect();
        let assets = network.assets.iter().filter(|asset| symbol.as_ref().is_none_or(|only| asset.symbol == *only));
        let assets: Vec<&Asset> = assets.collect();
        let unlisted = unlisted.remove(&network.chain).unwrap_or_default();
        let unlisted: Vec<String> = unlisted.iter().map(AssetId::to_string).collect();
        if addresses.is_empty() || (assets.is_empty() && unlisted.is_empty()) {
            continue;
        }
        if !unlisted.is_empty() {
            let (tokens, chain) = (unlisted.join(", "), network.chain);
            unknown.remedies.push(format!("lists {tokens} in [chains.{chain}] again, or in its `retired`"));
        }
        if !read.contains(&network.chain) {
            unknown.names.push(network.chain.name().to_owned());
            continue;
        }
        let unread = match of_chain(network.chain, &assets, status, &addresses)? {
            Ok(lines) => {
                balances.extend(lines);
                Vec::new()
            }
            Err(unread) => unread,
        };
        if unread.len() == network.assets.len() {
            unknown.names.push(network.chain.name().to_owned());
        } else if !(unread.is_empty() && unlisted.is_empty()) {
            let assets: Vec<String> = unread.into_iter().chain(unlisted).collect();
            unknown.names.push(format!("{} ({})", network.chain, assets.join(", ")));
        }
    }
    let Unknown { names, remedies } = unknown;
    if names.is_empty() { Ok(Json(BalanceList { balances })) } else { Err(Problem::balance_unknown(&names, &remedies)) }
}

/// A symbol that some chain lists. Of any other symbol the account would seem to have nothing.
fn listed(text: &str, networks: &[Network]) -> Result<String, &'static str> {
    let symbol = query::text(text)?;
    let is_listed = networks.iter().flat_map(|network| &network.assets).any(|asset| asset.symbol == symbol);
    if is_listed { Ok(symbol) } else { Err("is listed by no chain that is followed: `GET /v2/assets` shows which are") }
}

/// The chains of these addresses that are not configured: no balance there is known. A chain that never was followed is
/// named only if the request asks for it.
async fn unfollowed(
    reader: &mut impl Connection,
    known: &[Known],
    settings: &Settings,
    only: Option<Chain>,
) -> Result<Unknown, StoreError> {
    let chains: BTreeSet<Chain> = known.iter().map(|address| address.chain).collect();
    let mut unfollowed = Unknown::default();
    for chain in chains.into_iter().filter(|chain| only.is_none_or(|only| *chain == only)) {
        if settings.networks.iter().any(|network| network.chain == chain) {
            continue;
        }
        let is_missed = !settings.retired.contains(&chain) && Cursor::load(reader, chain).await?.at.is_some();
        if only.is_some() || is_missed {
            let or_retired = if only.is_some() { "" } else { " again, or names it in `retired`" };
            unfollowed.names.push(chain.name().to_owned());
            unfollowed.remedies.push(format!("follows {chain}{or_retired}"));
        }
    }
    Ok(unfollowed)
}

/// For each chain that is followed, the assets that are not listed and of which the account has had some, by a reading
/// or by a deposit that is not FAILED: nobody reads these balances. With `symbol`, only assets that may have that
/// symbol. An asset that only a reading shows has no known symbol, so it may.
async fn unlisted(
    reader: &mut impl Connection,
    account_id: &str,
    known: &[Known],
    settings: &Settings,
    symbol: Option<&str>,
) -> Result<BTreeMap<Chain, BTreeSet<AssetId>>, StoreError> {
    let kinds = deposit_pages::kinds(reader, account_id).await?;
    let held = known.iter().flat_map(|of| of.held.iter().map(move |held| (of.chain, held)));
    let held = held.filter(|(_, held)| !held.amount.is_zero()).map(|(chain, held)| (chain, held.asset));
    let mut unlisted: BTreeMap<Chain, BTreeSet<AssetId>> = BTreeMap::new();
    for (chain, asset) in held {
        let mut kinds = kinds.iter().filter(|kind| kind.chain == chain && kind.asset == asset).peekable();
        let is_asked = symbol.is_none_or(|symbol| kinds.peek().is_none() || kinds.any(|kind| kind.symbol == symbol));
        if is_asked && is_unlisted(settings, chain, asset) {
            unlisted.entry(chain).or_default().insert(asset);
        }
    }
    for kind in &kinds {
        let is_asked = symbol.is_none_or(|symbol| kind.symbol == symbol);
        if is_asked
            && is_unlisted(settings, kind.chain, kind.asset)
            && deposit_pages::is_any_not_failed(reader, account_id, kind).await?
        {
            unlisted.entry(kind.chain).or_default().insert(kind.asset);
        }
    }
    Ok(unlisted)
}

/// Whether a chain that is followed does not list the asset, and no operator gave it up for good.
fn is_unlisted(settings: &Settings, chain: Chain, asset: AssetId) -> bool {
    let network = settings.networks.iter().find(|network| network.chain == chain);
    let is_listed = network.is_none_or(|network| network.assets.iter().any(|listed| listed.id == asset));
    let is_retired = matches!(asset, AssetId::Token(token) if settings.retired_tokens.contains(&(chain, token)));
    !is_listed && !is_retired
}

/// A line for each of these assets, or the symbols of those whose balance is not known at one of these addresses.
fn of_chain(
    chain: Chain,
    assets: &[&Asset],
    status: AccountStatus,
    addresses: &[&Known],
) -> Result<Result<Vec<BalanceResource>, Vec<String>>, Problem> {
    let (mut lines, mut unknown) = (Vec::with_capacity(assets.len()), Vec::new());
    for asset in assets {
        let held = addresses.iter().map(|address| address.held.as_slice());
        let balance = Balance::of(&asset.id, status, held).map_err(|error| {
            Problem::internal(StoreError::Inconsistent { what: "balance", reason: error.to_string() })
        })?;
        match balance {
            Some(balance) => lines.push(BalanceResource::of(chain, asset, &balance)),
            None => unknown.push(asset.symbol.clone()),
        }
    }
    Ok(if unknown.is_empty() { Ok(lines) } else { Err(unknown) })
}

impl BalanceResource {
    fn of(chain: Chain, asset: &Asset, balance: &Balance) -> Self {
        let (r#type, contract_address) = describe(&asset.id);
        BalanceResource {
            symbol: asset.symbol.clone(),
            total: to_decimal(balance.total, asset.decimals),
            available: to_decimal(balance.available, asset.decimals),
            decimals: asset.decimals,
            r#type,
            chain: chain.name(),
            contract_address,
            as_of_block: balance.number,
            as_of_time: balance.read_at.to_string(),
        }
    }
}
