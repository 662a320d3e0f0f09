//! `GET /v2/crypto/deposits` and `GET /v2/crypto/deposits/{deposit_id}`, and the resource they show.
//!
//! A list is of one account, newest first, in pages of at most 25. An unknown account has no deposits.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::problem::Problem;
use crate::api::query::{self, Query};
use crate::api::time_bound::TimeBound;
use crate::api::{AppState, cursor, openapi};
use crate::deposit::{Deposit, DepositId};
use crate::event::DepositData;
use crate::store::deposits::{self, DepositFilter};

pub(super) const LIMIT_DEFAULT: u8 = 10;
pub(super) const LIMIT_MAX: u8 = 25;
const LIST_PARAMETERS: [&str; 7] =
    ["account_id", "destination_chain", "currency_symbol", "start_time", "end_time", "limit", "cursor"];

/// A cryptocurrency deposit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Deposit)]
pub struct DepositResource {
    /// Never changes, also not when the chain reorganises: it is derived from the movement of money itself.
    #[schema(format = "uuid")]
    pub id: String,
    /// The `id` of the first webhook event of this deposit. Deduplicate on it together with `status`.
    #[schema(format = "uuid")]
    pub dedup_key: String,
    /// The account that received the deposit.
    pub account_id: String,
    /// The address of the receiving account: EIP-55 on EVM chains, base58 on Solana.
    pub account_address: String,
    /// The address that sent the deposit.
    pub source_address: String,
    #[schema(schema_with = openapi::source_type)]
    pub source_type: &'static str,
    /// The ticker of the asset.
    pub currency_symbol: String,
    /// In the asset's major unit, without exponent and without trailing zeros.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub amount: String,
    #[schema(value_type = openapi::ChainName)]
    pub destination_chain: &'static str,
    /// The transaction hash (EVM) or signature (Solana).
    pub transaction_hash: String,
    #[schema(schema_with = openapi::deposit_status)]
    pub status: &'static str,
    /// When it was decided that the deposit is final; `1970-01-01T00:00:00Z` until then.
    #[schema(format = DateTime)]
    pub confirmed_at: String,
    /// The time of the first block that the deposit was seen in; never changes.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// The account that sent the deposit, when it is one of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub source_account_id: Option<String>,
}

/// A page of deposits, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DepositList {
    #[schema(max_items = 25)]
    deposits: Vec<DepositResource>,
    /// Send it as `cursor`, with the same filters, to get the next page. Omitted on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cursor: Option<String>,
}

/// What a list request asks for.
struct Page {
    filter: DepositFilter,
    limit: u8,
}

/// List deposits
///
/// The deposits of an account, newest first. An unknown account has none. Parameters that are not listed here, or
/// sent twice, are refused.
#[utoipa::path(
    get,
    path = "/v2/crypto/deposits",
    operation_id = "list_deposits",
    tag = "Deposits",
    security(("bearer" = ["read"])),
    params(
        ("account_id" = String, Query, description = "The account that received the deposits.", min_length = 1,
            pattern = r"^[^\u0000-\u001F\u007F-\u009F\uFFFD]+$"),
        ("destination_chain" = Option<openapi::ChainName>, Query, nullable = false,
            description = "Only deposits on this chain."),
        ("currency_symbol" = Option<String>, Query, nullable = false,
            description = "Only deposits of this asset; upper and lower case differ.",
            min_length = 1, pattern = r"^[^\u0000-\u001F\u007F-\u009F\uFFFD]+$"),
        ("start_time" = Option<String>, Query, nullable = false, format = DateTime,
            description = "Only deposits with a `created_at` at or after this time: RFC 3339, at most 9 fractional digits."),
        ("end_time" = Option<String>, Query, nullable = false, format = DateTime,
            description = "Only deposits with a `created_at` at or before this time. Not before `start_time`."),
        ("limit" = inline(Option<openapi::PageLimit>), Query, nullable = false,
            description = "How many deposits a page has at most."),
        ("cursor" = Option<String>, Query, nullable = false,
            description = "The `cursor` of the page before; the filters must be the same."),
    ),
    responses(
        (status = 200, description = "A page of deposits.", body = DepositList),
        (status = 400, description = "A parameter is missing, unknown, repeated or malformed.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(state): State<AppState>,
    RawQuery(query): RawQuery,
) -> Result<Json<DepositList>, Problem> {
    let page = Page::parse(query.as_deref())?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    // One row more than a page shows whether there is another page.
    let limit = u32::from(page.limit) + 1;
    let found = deposits::list(&mut reader, &page.filter, limit).await.map_err(Problem::internal)?;
    Ok(Json(page.show(&found)))
}

/// Get a deposit
#[utoipa::path(
    get,
    path = "/v2/crypto/deposits/{deposit_id}",
    operation_id = "get_deposit",
    tag = "Deposits",
    security(("bearer" = ["read"])),
    params(("deposit_id" = String, Path, format = "uuid", description = "The `id` of the deposit.")),
    responses(
        (status = 200, description = "The deposit.", body = DepositResource),
        (status = 400, description = "The request takes no query parameters.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No deposit has this id.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn by_id(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<DepositResource>, Problem> {
    let unknown = || Problem::not_found("no deposit has this id");
    let id: DepositId = id.ok().and_then(|Path(id)| id.parse().ok()).ok_or_else(unknown)?;
    Query::parse(query.as_deref(), &[]).check()?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let deposit = deposits::by_id(&mut reader, id).await.map_err(Problem::internal)?;
    let deposit = deposit.filter(|deposit| !deposit.is_self_transfer);
    Ok(Json(DepositResource::of(&deposit.ok_or_else(unknown)?)))
}

impl Page {
    fn parse(raw: Option<&str>) -> Result<Self, Problem> {
        let mut query = Query::parse(raw, &LIST_PARAMETERS);
        let account_id = query.required("account_id", query::text);
        let chain = query.optional("destination_chain", openapi::chain);
        let symbol = query.optional("currency_symbol", query::text);
        let start = query.optional("start_time", str::parse::<TimeBound>);
        let end = query.optional("end_time", str::parse::<TimeBound>);
        if start.zip(end).is_some_and(|(start, end)| start > end) {
            query.refuse("start_time", "must not be after end_time");
        }
        let limit = query.optional("limit", |text| query::limit(text, LIMIT_MAX)).unwrap_or(LIMIT_DEFAULT);
        // Only if the filters are right can the cursor be checked against them.
        query.check()?;
        let (start, end) = (start.map(TimeBound::lower), end.map(TimeBound::upper));
        let mut filter = DepositFilter { account_id: Some(account_id), chain, symbol, start, end, after: None };
        filter.after = query.optional("cursor", |text| cursor::decode(text, &filter));
        query.check()?;
        Ok(Page { filter, limit })
    }

    /// The answer, if `found` is what the store returned: at most one row more than a page.
    fn show(&self, found: &[Deposit]) -> DepositList {
        let limit = usize::from(self.limit);
        let shown = &found[..found.len().min(limit)];
        let last = shown.last().filter(|_| found.len() > limit);
        DepositList {
            deposits: shown.iter().map(DepositResource::of).collect(),
            cursor: last.map(|last| cursor::encode(&self.filter, (last.created_at, last.id))),
        }
    }
}

impl DepositResource {
    /// The resource that shows `deposit`.
    pub fn of(deposit: &Deposit) -> Self {
        let data = DepositData::of(deposit);
        DepositResource {
            id: data.id,
            dedup_key: data.dedup_key,
            account_id: data.account_id.to_owned(),
            account_address: data.account_address,
            source_address: data.source_address,
            source_type: data.source_type,
            currency_symbol: data.currency_symbol.to_owned(),
            amount: data.amount,
            destination_chain: data.destination_chain,
            transaction_hash: data.transaction_hash,
            status: data.status,
            confirmed_at: data.confirmed_at,
            created_at: data.created_at,
            source_account_id: deposit.source_account_id.clone(),
        }
    }
}
