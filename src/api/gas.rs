//! `GET /v2/gas-credit`: how much of what sending costs the credit pays, and what is billed beyond it.

use axum::Json;
use axum::extract::{RawQuery, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::AppState;
use crate::api::problem::Problem;
use crate::api::query::Query;
use crate::gas::Credit;
use crate::store::gas_ledger;
use crate::time::Timestamp;

/// What sending costs, in USD: what was given for it, and what became of that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GasCredit)]
pub struct GasCreditResource {
    /// The credit that was given, once.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub granted_usd: String,
    /// What final transactions took of it.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub used_usd: String,
    /// What transfers under way may cost.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub held_usd: String,
    /// What is neither used nor held.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub remaining_usd: String,
    /// What final transactions cost beyond it.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub billable_usd: String,
    /// How many final transactions wait for a price: what they cost is in no sum yet.
    #[schema(minimum = 0)]
    pub unpriced: u64,
    /// When this was so.
    #[schema(format = DateTime)]
    pub as_of: String,
}

/// Get the gas credit
///
/// The service pays the gas of transfers. What it costs goes to the credit as far as that reaches, and is billed beyond.
#[utoipa::path(
    get,
    path = "/v2/gas-credit",
    operation_id = "get_gas_credit",
    tag = "Gas credit",
    security(("bearer" = ["read"])),
    extensions(("x-landfall-extension" = json!(true))),
    responses(
        (status = 200, description = "The credit at this moment.", body = GasCreditResource),
        (status = 400, description = "The request takes no query parameters.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn credit(
    State(state): State<AppState>,
    RawQuery(query): RawQuery,
) -> Result<Json<GasCreditResource>, Problem> {
    Query::parse(query.as_deref(), &[]).check()?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let credit = gas_ledger::credit(&mut reader).await.map_err(Problem::internal)?;
    let unpriced = gas_ledger::unpriced_costs(&mut reader).await.map_err(Problem::internal)?;
    Ok(Json(GasCreditResource::of(credit, unpriced, state.clock.now())))
}

impl GasCreditResource {
    pub fn of(credit: Credit, unpriced: u64, as_of: Timestamp) -> Self {
        GasCreditResource {
            granted_usd: credit.granted.to_string(),
            used_usd: credit.used.to_string(),
            held_usd: credit.held.to_string(),
            remaining_usd: credit.remaining().to_string(),
            billable_usd: credit.billed.to_string(),
            unpriced,
            as_of: as_of.to_string(),
        }
    }
}
