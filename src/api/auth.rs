//! `Authorization: Bearer <API_KEY>`, before anything else is looked at.
//!
//! A malformed key and one of the other environment are refused without asking the store; an unknown key and a wrong
//! secret take the same path and get the same answer.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::api::AppState;
use crate::api::problem::Problem;
use crate::key::ApiKey;
use crate::store::keys;

/// Lets a request through when it carries a valid key.
pub(super) async fn require_key(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let key = offline(&state, request.headers()).map_err(Problem::unauthorized)?;
    if !is_on_record(&state, &key).await? {
        return Err(Problem::unauthorized("the API key is not known".to_owned()));
    }
    Ok(next.run(request).await)
}

/// What can be told without the store.
fn offline(state: &AppState, headers: &HeaderMap) -> Result<ApiKey, String> {
    let text = bearer(headers).ok_or("expected one header `Authorization: Bearer <API_KEY>`")?;
    let key: ApiKey = text.parse().map_err(|error: crate::key::KeyError| error.to_string())?;
    if key.environment() == state.environment {
        Ok(key)
    } else {
        Err(format!("this is a {} key and this is the {} environment", key.environment(), state.environment))
    }
}

/// The token, when there is exactly one header and its scheme is Bearer; a scheme's case does not matter (RFC 9110, 11.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut headers = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(header), None) = (headers.next(), headers.next()) else { return None };
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}

async fn is_on_record(state: &AppState, key: &ApiKey) -> Result<bool, Problem> {
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let found = keys::by_id(&mut reader, key.id()).await.map_err(Problem::internal)?;
    // No secret has this hash: an unknown key costs the same comparison as a wrong secret.
    let stored = found.map_or_else(|| vec![0; 32], |row| row.secret_hash);
    Ok(key.verify(&stored))
}
