//! `POST /v2/identities` (an extension of the interface) and `GET /v2/identities/{identity_id}`, and the resource they show.
//!
//! Who registers an identity has onboarded it: it is ACTIVE. Its status changes by an operator's command only.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::accounts::{created, replay};
use crate::api::json::{self, Faults, Sent};
use crate::api::problem::Problem;
use crate::api::query::Query;
use crate::api::{AppState, openapi};
use crate::identity::{self, Identity, IdentityType, NewIdentity, SubStatus};
use crate::registry;
use crate::request::Request;
use crate::store::identities;

/// Who accounts belong to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Identity)]
pub(super) struct IdentityResource {
    id: String,
    #[schema(schema_with = openapi::identity_type)]
    r#type: &'static str,
    /// Chosen by the client; may be empty.
    label: String,
    /// Oldest first.
    account_ids: Vec<String>,
    /// Whether it may also use fiat operations; independent of its status.
    fiat_operations_enabled: bool,
    #[schema(schema_with = openapi::identity_status)]
    status: &'static str,
    #[schema(schema_with = openapi::sub_status)]
    sub_status: &'static str,
}

/// An identity that is to be registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewIdentityForm {
    /// The client's own name for this request: sent again with the same body, it registers nothing new.
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    request_id: String,
    #[schema(schema_with = openapi::identity_type)]
    r#type: String,
    #[serde(default)]
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F\uFFFD]*$")]
    label: String,
    #[serde(default)]
    fiat_operations_enabled: bool,
}

/// Register an identity
///
/// An extension of the interface. The identity is `ACTIVE` at once: who registers it has onboarded it. A request that comes again
/// with the same body answers 200 with the same identity.
#[utoipa::path(
    post,
    path = "/v2/identities",
    operation_id = "create_identity",
    tag = "Identities",
    security(("bearer" = ["write"])),
    request_body(content = NewIdentityForm, content_type = "application/json"),
    extensions(("x-landfall-extension" = json!(true))),
    responses(
        (status = 201, description = "The identity, registered by this request.", body = IdentityResource),
        (status = 200, description = "The identity, registered when this request first came.", body = IdentityResource),
        (status = 400, description = "A field is missing, unknown or malformed.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "Another request had this `request_id` (`IDEMPOTENCY_MISMATCH`).", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn open(
    State(state): State<AppState>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Sent,
) -> Result<(StatusCode, Json<IdentityResource>), Problem> {
    Query::parse(query.as_deref(), &[]).check()?;
    let (request, new) = json::parse::<NewIdentityForm>(&headers, body)?.read()?;
    let (id, made) = registry::open_identity(&state.db, &request, &new, state.clock.now()).await.map_err(replay)?;
    Ok((created(made), Json(load(&state, &id).await?)))
}

/// Get an identity
#[utoipa::path(
    get,
    path = "/v2/identities/{identity_id}",
    operation_id = "get_identity",
    tag = "Identities",
    security(("bearer" = ["read"])),
    params(("identity_id" = String, Path, description = "The `id` of the identity.")),
    responses(
        (status = 200, description = "The identity.", body = IdentityResource),
        (status = 400, description = "The request takes no query parameters.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No identity has this id.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn by_id(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<IdentityResource>, Problem> {
    let id = id.ok().map(|Path(id)| id).filter(|id| identity::check_id("identity id", id).is_ok());
    let id = id.ok_or_else(unknown)?;
    Query::parse(query.as_deref(), &[]).check()?;
    Ok(Json(load(&state, &id).await?))
}

fn unknown() -> Problem {
    Problem::not_found("no identity has this id")
}

async fn load(state: &AppState, id: &str) -> Result<IdentityResource, Problem> {
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let found = identities::by_id(&mut reader, id).await.map_err(Problem::internal)?.ok_or_else(unknown)?;
    let account_ids = identities::account_ids(&mut reader, id).await.map_err(Problem::internal)?;
    let Identity { id, kind, label, fiat_operations_enabled, status, sub_status } = found;
    let (r#type, status, sub_status) = (kind.name(), status.name(), SubStatus::text(sub_status));
    Ok(IdentityResource { id, r#type, label, account_ids, fiat_operations_enabled, status, sub_status })
}

impl NewIdentityForm {
    fn read(self) -> Result<(Request, NewIdentity), Problem> {
        let NewIdentityForm { request_id, r#type, label, fiat_operations_enabled } = self;
        let mut faults = Faults::default();
        let kind = faults.take("type", r#type.parse::<IdentityType>().map_err(|_| "must be INDIVIDUAL or BUSINESS"));
        let fits = identity::check_label(&label).map_err(|_| "must have at most 256 characters, no control characters");
        faults.take("label", fits);
        let new = NewIdentity { kind: faults.check(kind)?, label, fiat_operations_enabled };
        let mut faults = Faults::default();
        let request = faults.take("request_id", new.request(&request_id));
        Ok((faults.check(request)?, new))
    }
}
