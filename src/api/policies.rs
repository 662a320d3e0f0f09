//! `GET /v2/transaction-limits/policies/{policy_id}`: what an operator allows to be sent.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::problem::Problem;
use crate::api::query::Query;
use crate::api::{AppState, openapi};
use crate::policy::{Policy, PolicyLimit, PolicyScope};
use crate::store::policies;

/// What may be sent. A transfer is accepted only where all policies that apply to it leave room.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionLimitPolicy)]
pub struct PolicyResource {
    #[schema(format = "uuid")]
    pub id: String,
    pub label: String,
    #[schema(schema_with = openapi::policy_status)]
    pub status: &'static str,
    pub scope: ScopeResource,
    /// Only transfers on this chain count; omitted where those on all chains do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = openapi::ChainName, nullable = false)]
    pub chain: Option<&'static str>,
    #[schema(min_items = 1)]
    pub limits: Vec<LimitResource>,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// Whose transfers a policy limits, together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionLimitScope)]
pub struct ScopeResource {
    #[schema(schema_with = openapi::policy_scope)]
    pub r#type: &'static str,
    pub id: String,
}

/// The most of a currency in a period: an amount, a number of transfers, or both.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionLimit)]
pub struct LimitResource {
    #[schema(schema_with = openapi::period)]
    pub period: &'static str,
    pub currency_symbol: String,
    /// In the currency's major unit, whichever chain it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$", nullable = false)]
    pub amount: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, nullable = false)]
    pub count: Option<u64>,
}

/// Get a policy on transfers
///
/// Operators make and remove policies. One that was removed is still shown.
#[utoipa::path(
    get,
    path = "/v2/transaction-limits/policies/{policy_id}",
    operation_id = "get_transaction_limit_policy",
    tag = "Transaction limits",
    security(("bearer" = ["read"])),
    params(("policy_id" = String, Path, format = "uuid", description = "The `id` of the policy.")),
    responses(
        (status = 200, description = "The policy.", body = PolicyResource),
        (status = 400, description = "The request takes no query parameters.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No policy has this id.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn by_id(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<PolicyResource>, Problem> {
    let unknown = || Problem::not_found("no policy has this id");
    let Path(id) = id.map_err(|_| unknown())?;
    Query::parse(query.as_deref(), &[]).check()?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let policy = policies::by_id(&mut reader, &id).await.map_err(Problem::internal)?;
    Ok(Json(PolicyResource::of(&policy.ok_or_else(unknown)?)))
}

impl PolicyResource {
    /// The resource that shows `policy`.
    pub fn of(policy: &Policy) -> Self {
        let Policy { id, label, status, scope, chain, limits, created_at, updated_at } = policy;
        PolicyResource {
            id: id.clone(),
            label: label.clone(),
            status: status.name(),
            scope: ScopeResource::of(scope),
            chain: chain.map(landfall_chain::Chain::name),
            limits: limits.iter().map(LimitResource::of).collect(),
            created_at: created_at.to_string(),
            updated_at: updated_at.to_string(),
        }
    }
}

impl ScopeResource {
    fn of(scope: &PolicyScope) -> Self {
        ScopeResource { r#type: scope.name(), id: scope.id().to_owned() }
    }
}

impl LimitResource {
    pub(super) fn of(limit: &PolicyLimit) -> Self {
        let PolicyLimit { period, symbol, amount, count } = limit;
        LimitResource {
            period: period.name(),
            currency_symbol: symbol.clone(),
            amount: amount.map(|amount| amount.to_string()),
            count: *count,
        }
    }
}
