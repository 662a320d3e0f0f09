//! `/v2/webhooks`: receivers of events as their owner registers them.
//!
//! A signing key is in the answer to the request that made it, and in no later one. Nothing here lets a webhook reach
//! an internal network, and no answer reports which addresses a name has: both are for operators. The rules of
//! registration are those of `registry`.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::AppState;
use crate::api::json::{self, Sent};
use crate::api::problem::Problem;
use crate::api::query::Query;
use crate::api::scope::Caller;
use crate::overrides::Author;
use crate::random;
use crate::registry::{self, NewWebhook, WebhookError};
use crate::store::webhooks::{self, Webhook};
use crate::time::Timestamp;
use crate::webhook::{
    AllowedNetworks, PREVIOUS_KEY_TIME_DEFAULT, PREVIOUS_KEY_TIME_MAX, symmetric_key, verification_key,
};

/// A receiver of events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Webhook)]
pub(super) struct WebhookResource {
    id: String,
    /// Where events are sent.
    url: String,
    label: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// `ACTIVE` gets events. `FAILING` has failed again and again: one event is attempted now and then, and all are
    /// sent as soon as one arrives. `PAUSED`, and `GONE` (it answered 410), wait for an operator. Events are kept in
    /// each state.
    #[schema(value_type = String)]
    status: &'static str,
    /// Names the signing key in use; it is no secret.
    signing_key_id: String,
    #[schema(format = DateTime)]
    signing_key_created_at: String,
    /// Until when the signing key before this one signs too: the latest time that was reported for a key that still
    /// signed then. Omitted when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    previous_key_expires_at: Option<String>,
    /// The secret that signs as `v1` of Standard Webhooks. It is only in the answer to the request that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^whsec_", extensions(("x-landfall-extension" = json!(true))))]
    signing_key: Option<String>,
    /// The public key for `v1a` signatures of Standard Webhooks. Omitted when they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^whpk_", extensions(("x-landfall-extension" = json!(true))))]
    verification_key: Option<String>,
}

/// Every webhook, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookList {
    webhooks: Vec<WebhookResource>,
}

/// A webhook to be registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewWebhook)]
pub(super) struct NewWebhookForm {
    /// https, on port 443 or one from 1024 on, and reachable from the internet.
    #[schema(format = "uri", max_length = 2048)]
    url: String,
    /// Its name, for people.
    #[serde(default)]
    #[schema(max_length = 256, pattern = r"^[^\u0000-\u001F\u007F-\u009F\u2028-\u202E\u2066-\u2069\uFFFD]*$")]
    label: String,
    /// Sign with Ed25519 (`v1a`) too.
    #[serde(default)]
    #[schema(extensions(("x-landfall-extension" = json!(true))))]
    ed25519: bool,
}

/// How a signing key is rotated.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KeyRotation {
    /// How long the key in use until now signs too; 0 when others know it.
    #[schema(minimum = 0, maximum = 604_800, default = 86_400)]
    previous_key_valid_secs: u64,
}

/// No fields.
#[derive(Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Empty {}

/// A test event that was queued.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookTest {
    /// The `id` of the event's envelope.
    #[schema(format = "uuid")]
    event_id: String,
}

/// List webhooks
#[utoipa::path(
    get, path = "/v2/webhooks", operation_id = "list_webhooks", tag = "Webhooks",
    security(("bearer" = ["webhooks"])),
    responses(
        (status = 200, description = "Every webhook.", body = WebhookList),
        (status = 400, description = "The request takes no parameters.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(state): State<AppState>,
    RawQuery(query): RawQuery,
) -> Result<Json<WebhookList>, Problem> {
    Query::parse(query.as_deref(), &[]).check()?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let webhooks = webhooks::list(&mut reader).await.map_err(Problem::internal)?;
    let now = state.clock.now();
    Ok(Json(WebhookList { webhooks: webhooks.iter().map(|webhook| WebhookResource::of(webhook, now)).collect() }))
}

/// Register a webhook
///
/// It gets the events that come from now on. At most 1,000 webhooks may be registered.
#[utoipa::path(
    post, path = "/v2/webhooks", operation_id = "create_webhook", tag = "Webhooks",
    security(("bearer" = ["webhooks"])),
    extensions(("x-landfall-extension" = json!(true))),
    request_body = NewWebhookForm,
    responses(
        (status = 201, description = "The webhook, with its signing key, this once.", body = WebhookResource),
        (status = 400, description = "A field is missing, unknown or malformed, or the URL is not taken.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn create(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Sent,
) -> Result<(StatusCode, Json<WebhookResource>), Problem> {
    Query::parse(query.as_deref(), &[]).check()?;
    let NewWebhookForm { url, label, ed25519 } = json::parse(&headers, body)?;
    let inside = AllowedNetworks::default();
    let webhook = NewWebhook { url: &url, label: &label, allowed_networks: &inside, ed25519 };
    let (actor, now) = (caller.actor(), state.clock.now());
    let by = Author { actor: &actor, reason: "", now };
    // A client must not learn which addresses an internal name has, so the name is resolved only when an event is sent.
    let added = registry::add_webhook(&state.db, None, &webhook, &random::bytes(), &by).await;
    Ok((StatusCode::CREATED, Json(WebhookResource::with_key(&added.map_err(refused)?, now))))
}

/// Get a webhook
#[utoipa::path(
    get, path = "/v2/webhooks/{webhook_id}", operation_id = "get_webhook", tag = "Webhooks",
    security(("bearer" = ["webhooks"])),
    extensions(("x-landfall-extension" = json!(true))),
    params(("webhook_id" = String, Path, description = "The `id` of the webhook.")),
    responses(
        (status = 200, description = "The webhook.", body = WebhookResource),
        (status = 400, description = "The request takes no parameters.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No webhook has this id.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn by_id(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<WebhookResource>, Problem> {
    let id = existing(&state, id).await?;
    Query::parse(query.as_deref(), &[]).check()?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let webhook = webhooks::by_id(&mut reader, &id).await.map_err(Problem::internal)?.ok_or_else(unknown)?;
    Ok(Json(WebhookResource::of(&webhook, state.clock.now())))
}

/// Delete a webhook
///
/// Nothing more is sent to it. What was not delivered yet is held, and never dropped.
#[utoipa::path(
    delete, path = "/v2/webhooks/{webhook_id}", operation_id = "delete_webhook", tag = "Webhooks",
    security(("bearer" = ["webhooks"])),
    params(("webhook_id" = String, Path, description = "The `id` of the webhook.")),
    responses(
        (status = 200, description = "It is deleted.", body = Empty),
        (status = 400, description = "The request takes no parameters.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No webhook has this id.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn delete(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<Empty>, Problem> {
    let id = existing(&state, id).await?;
    Query::parse(query.as_deref(), &[]).check()?;
    let actor = caller.actor();
    let by = Author { actor: &actor, reason: "", now: state.clock.now() };
    registry::remove_webhook(&state.db, &id, &by).await.map_err(refused)?;
    Ok(Json(Empty {}))
}

/// Rotate a webhook's signing key
///
/// Until `previous_key_expires_at` both keys sign, and so do earlier keys that still sign. So a request whose answer
/// was lost may be sent again, and the key that the receiver knows goes on signing. No key stops before the time that
/// was reported for it: while the keys of three rotations sign beside the one in use, a further rotation is refused. A
/// rotation with `previous_key_valid_secs` of 0 is never refused: the new key alone signs, at once. Events that were
/// claimed before it may still arrive with the old signature for half a minute.
#[utoipa::path(
    post, path = "/v2/webhooks/{webhook_id}/rotate-key", operation_id = "rotate_webhook_key", tag = "Webhooks",
    security(("bearer" = ["webhooks"])),
    extensions(("x-landfall-extension" = json!(true))),
    params(("webhook_id" = String, Path, description = "The `id` of the webhook.")),
    request_body = KeyRotation,
    responses(
        (status = 200, description = "The webhook, with its new signing key, this once.", body = WebhookResource),
        (status = 400, description = "A field is unknown or malformed.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No webhook has this id.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "As many keys sign as may (`PREVIOUS_KEYS_VALID`).", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn rotate_key(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Sent,
) -> Result<Json<WebhookResource>, Problem> {
    let id = existing(&state, id).await?;
    Query::parse(query.as_deref(), &[]).check()?;
    let KeyRotation { previous_key_valid_secs } = json::parse_optional(&headers, body)?;
    let previous_for = Duration::from_secs(previous_key_valid_secs);
    if previous_for > PREVIOUS_KEY_TIME_MAX {
        let max = PREVIOUS_KEY_TIME_MAX.as_secs();
        return Err(json::refusal("previous_key_valid_secs", format!("must be an integer from 0 to {max}")));
    }
    let now = state.clock.now();
    let actor = caller.actor();
    let by = Author { actor: &actor, reason: "", now };
    let rotated = registry::rotate_webhook_key(&state.db, &id, previous_for, &random::bytes(), &by).await;
    Ok(Json(WebhookResource::with_key(&rotated.map_err(refused)?, now)))
}

/// Send a test event to a webhook
///
/// Its type is `webhook_test`. It is queued, signed, sent and retried like any other.
#[utoipa::path(
    post, path = "/v2/webhooks/{webhook_id}/test", operation_id = "test_webhook", tag = "Webhooks",
    security(("bearer" = ["webhooks"])),
    extensions(("x-landfall-extension" = json!(true))),
    params(("webhook_id" = String, Path, description = "The `id` of the webhook.")),
    responses(
        (status = 202, description = "The event is queued.", body = WebhookTest),
        (status = 400, description = "The request takes no parameters and no fields.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No webhook has this id.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn test(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Sent,
) -> Result<(StatusCode, Json<WebhookTest>), Problem> {
    let id = existing(&state, id).await?;
    Query::parse(query.as_deref(), &[]).check()?;
    let Empty {} = json::parse_optional(&headers, body)?;
    let now = state.clock.now();
    let event = registry::test_webhook(&state.db, &id, &random::bytes(), now).await.map_err(refused)?;
    Ok((StatusCode::ACCEPTED, Json(WebhookTest { event_id: event.id.to_string() })))
}

impl Default for KeyRotation {
    fn default() -> Self {
        KeyRotation { previous_key_valid_secs: PREVIOUS_KEY_TIME_DEFAULT.as_secs() }
    }
}

impl WebhookResource {
    fn of(webhook: &Webhook, now: Timestamp) -> Self {
        let previous = webhook.previous_key_expires_at;
        WebhookResource {
            id: webhook.id.clone(),
            url: webhook.url.clone(),
            label: webhook.label.clone(),
            created_at: webhook.created_at.to_string(),
            status: webhook.status.name(),
            signing_key_id: webhook.signing_key_id.clone(),
            signing_key_created_at: webhook.signing_key_created_at.to_string(),
            previous_key_expires_at: (previous > now).then(|| previous.to_string()),
            signing_key: None,
            verification_key: verification_key(&webhook.signing_key),
        }
    }

    /// With the key, for the answer that shows it once.
    fn with_key(webhook: &Webhook, now: Timestamp) -> Self {
        let signing_key = Some(symmetric_key(&webhook.signing_key).to_owned());
        WebhookResource { signing_key, ..WebhookResource::of(webhook, now) }
    }
}

/// The id of a path's webhook, if it exists. Checked before the body is: 404 comes before 400.
async fn existing(state: &AppState, id: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let Path(id) = id.map_err(|_| unknown())?;
    // PostgreSQL refuses a NUL, and no id has one.
    if id.contains('\0') {
        return Err(unknown());
    }
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let webhook = webhooks::by_id(&mut reader, &id).await.map_err(Problem::internal)?;
    webhook.map(|webhook| webhook.id).ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::not_found("no webhook has this id")
}

fn refused(error: WebhookError) -> Problem {
    match error {
        WebhookError::Url(error) => json::refusal("url", error.to_string().replace("webhook url: ", "is not taken: ")),
        WebhookError::Label(error) => json::refusal("label", format!("is refused: {error}")),
        error @ WebhookError::TooMany => json::refusal("url", format!("is not taken: {error}")),
        WebhookError::Unknown => unknown(),
        error @ WebhookError::PreviousKeys { .. } => Problem::previous_keys_valid(error.to_string()),
        WebhookError::Store(error) => Problem::unchanged(error),
    }
}
