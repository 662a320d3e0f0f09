//! `GET /v2/accounts/{account_id}/coverage` (an extension of the interface): which blocks were matched against its
//! addresses.
//!
//! It reports what is on record and nothing else. Its description says what the record leaves out.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use landfall_chain::{Chain, Lane, Proof};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::accounts::{account_id, unknown};
use crate::api::problem::Problem;
use crate::api::query::Query;
use crate::api::{AppState, openapi};
use crate::store::account_pages;
use crate::store::coverage::{self, AddressCoverage, Backfilled};

/// Which blocks were matched against an account's addresses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Coverage {
    account_id: String,
    coverage: Vec<AddressEntry>,
}

/// What is known of an address on a chain. Numbers are of blocks (slots on Solana), inclusive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AddressCoverage)]
pub(super) struct AddressEntry {
    #[schema(value_type = openapi::ChainName)]
    chain: &'static str,
    address: String,
    /// The first block that is matched against the address; 0 until the chain is followed.
    watched_from: u64,
    /// Every block from `watched_from` up to this one was matched. Omitted while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    complete_through: Option<u64>,
    /// The newest of them that is final. Those above may still be replaced, and are then matched again. Omitted while
    /// there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    final_through: Option<u64>,
    /// Up to here, value that moved inside of transactions was read from traces too. Omitted where a chain is not
    /// traced, and while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    traced_through: Option<u64>,
    /// Which past blocks were read for this address.
    backfilled: Vec<Span>,
}

/// Blocks that a backfill read, both ends inclusive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Span {
    from: u64,
    to: u64,
    /// How the blocks were read: `receipts` reads each block in full; `logs` reads the blocks that logs name. On Solana
    /// `logs` reads the slots that the signatures of the address name.
    #[schema(value_type = String)]
    proof: &'static str,
    /// Whether the blocks were read from traces.
    traces: bool,
    /// The weakest proof of these blocks, and of the lists that name them: `roots`, `bloom`, `two_endpoints` or
    /// `one_endpoint`. Omitted for traces, and where it is not on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<String>)]
    level: Option<&'static str>,
}

/// Get an account's coverage
///
/// An extension of the interface. A block that is in none of the ranges was not matched against the address, as far as
/// the record shows. The record does not show:
///
/// - blocks below `watched_from` that no listed backfill read;
/// - assets that were listed after a block had been read;
/// - how far searches through an address's signatures (Solana, without an end) reached;
/// - how strongly blocks were proved that are older than those on record.
#[utoipa::path(
    get,
    path = "/v2/accounts/{account_id}/coverage",
    operation_id = "get_account_coverage",
    tag = "Accounts",
    security(("bearer" = ["read"])),
    extensions(("x-landfall-extension" = json!(true))),
    params(("account_id" = String, Path, description = "The `id` of the account.")),
    responses(
        (status = 200, description = "What is known, for each address on each chain.", body = Coverage),
        (status = 400, description = "The request takes no query parameters.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No account has this id.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn of_account(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<Coverage>, Problem> {
    let account_id = account_id(id)?;
    Query::parse(query.as_deref(), &[]).check()?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    account_pages::identity(&mut reader, &account_id).await.map_err(Problem::internal)?.ok_or_else(unknown)?;
    let found = coverage::of_account(&mut reader, &account_id).await.map_err(Problem::internal)?;
    Ok(Json(Coverage { account_id, coverage: found.into_iter().map(AddressEntry::of).collect() }))
}

impl AddressEntry {
    fn of(found: AddressCoverage) -> Self {
        let AddressCoverage {
            chain,
            address,
            watched_from,
            complete_through,
            final_through,
            traced_through,
            backfilled,
        } = found;
        let span = |Backfilled { from, to, proof, lane, level }: Backfilled| {
            let (proof, traces, level) = (proof.name(), lane == Lane::Traces, level.map(Proof::name));
            Span { from, to, proof, traces, level }
        };
        AddressEntry {
            chain: Chain::name(chain),
            address: address.to_string(),
            watched_from,
            complete_through,
            final_through,
            traced_through,
            backfilled: backfilled.into_iter().map(span).collect(),
        }
    }
}
