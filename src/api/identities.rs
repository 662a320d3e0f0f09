//! `POST /v2/identities` (an extension of the interface) and `GET /v2/identities/{identity_id}`, and the resource they
//! show.
//!
//! A client that registers an identity has onboarded it, so it is ACTIVE. Its status changes only by an operator's
//! command. An answer names every account, however many there are, but holds few of them in memory: it is sent in
//! parts. An answer that cannot be completed is cut off, so that no client takes a part for the whole.

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use tracing::error;
use utoipa::ToSchema;

use crate::api::accounts::{created, replay};
use crate::api::json::{self, Faults, Sent};
use crate::api::problem::Problem;
use crate::api::query::Query;
use crate::api::scope::Caller;
use crate::api::{AppState, openapi};
use crate::identity::{self, Identity, IdentityType, NewIdentity, SubStatus};
use crate::overrides::Author;
use crate::registry;
use crate::request::Request;
use crate::store::identities::{self, LastAccount};
use crate::store::{Db, StoreError};

/// How many accounts are read, and sent, at once.
const ACCOUNTS_AT_ONCE: u32 = 1_000;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

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
    /// All of them, oldest first. There may be millions: such an answer comes in parts (`Transfer-Encoding: chunked`).
    /// Discard an answer that ends before its last part.
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
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F\u2028-\u202E\u2066-\u2069\uFFFD]*$")]
    label: String,
    #[serde(default)]
    fiat_operations_enabled: bool,
}

/// Register an identity
///
/// An extension of the interface. The identity is `ACTIVE` at once: a client that registers it has onboarded it. A
/// request that is sent again with the same body is answered 200 with the same identity.
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
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Sent,
) -> Result<(StatusCode, Response), Problem> {
    Query::parse(query.as_deref(), &[]).check()?;
    let (request, new) = json::parse::<NewIdentityForm>(&headers, body)?.read()?;
    let actor = caller.actor();
    let by = Author { actor: &actor, reason: "", now: state.clock.now() };
    let (id, made) = registry::open_identity(&state.db, &request, &new, &by).await.map_err(replay)?;
    Ok((created(made), load(&state, &id).await.map_err(Problem::behind_change)?))
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
) -> Result<Response, Problem> {
    let id = id.ok().map(|Path(id)| id).filter(|id| identity::check_id("identity id", id).is_ok());
    let id = id.ok_or_else(unknown)?;
    Query::parse(query.as_deref(), &[]).check()?;
    load(&state, &id).await
}

fn unknown() -> Problem {
    Problem::not_found("no identity has this id")
}

async fn load(state: &AppState, id: &str) -> Result<Response, Problem> {
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let found = identities::by_id(&mut reader, id).await.map_err(Problem::internal)?.ok_or_else(unknown)?;
    let read = identities::accounts_behind(&mut reader, id, None, ACCOUNTS_AT_ONCE).await;
    let (account_ids, last) = read.map_err(Problem::internal)?;
    let Identity { id, kind, label, fiat_operations_enabled, status, sub_status } = found;
    let (r#type, status, sub_status) = (kind.name(), status.name(), SubStatus::text(sub_status));
    let shown = IdentityResource { id, r#type, label, account_ids, fiat_operations_enabled, status, sub_status };
    Ok(match last {
        None => Json(shown).into_response(),
        Some(last) => in_parts(&state.db, &shown, last),
    })
}

/// The answer that begins with `shown`, which has the accounts up to `last`, and continues with the later accounts.
fn in_parts(db: &Db, shown: &IdentityResource, last: LastAccount) -> Response {
    let text = serde_json::to_string(shown).expect("strings always serialise");
    // After the only list come fields of ours alone, none with a bracket.
    let (begin, end) = text.rsplit_once(']').expect("it has a list");
    let rest = Rest { db: db.clone(), id: shown.id.clone(), last: Some(last), end: format!("]{end}") };
    let parts = stream::once(std::future::ready(Ok(begin.to_owned())));
    let parts = parts.chain(stream::try_unfold(rest, Rest::next));
    let parts = parts.inspect_err(|error| error!("an answer with an identity's accounts was cut off: {error}"));
    ([(header::CONTENT_TYPE, JSON)], Body::from_stream(parts)).into_response()
}

/// The part of an answer that is still to be sent. It holds no connection while the client reads.
struct Rest {
    db: Db,
    id: String,
    /// The account that was sent last; `None` when all is sent.
    last: Option<LastAccount>,
    /// The text after the last account.
    end: String,
}

impl Rest {
    async fn next(mut self) -> Result<Option<(String, Self)>, StoreError> {
        let Some(last) = self.last.take() else { return Ok(None) };
        let mut reader = self.db.read().await?;
        let (ids, last) = identities::accounts_behind(&mut reader, &self.id, Some(&last), ACCOUNTS_AT_ONCE).await?;
        let mut part: String = ids.iter().map(|id| format!(",{}", serde_json::Value::from(id.as_str()))).collect();
        if last.is_none() {
            part.push_str(&self.end);
        }
        self.last = last;
        Ok(Some((part, self)))
    }
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
