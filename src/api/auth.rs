//! `Authorization: Bearer <API_KEY>` and, once a public key is paired, `X-Request-Signature`.
//!
//! Promises: no request is acted upon before both are good. They are checked in this order: size, key, rate of the key,
//! form of the signature, a place, body, the key once more, signature, nonce. So a client without a key, or over its
//! rate, holds no place, and nothing of its body is kept. A malformed key and a key of the other environment are
//! refused without asking the store. An unknown key and a wrong secret take the same path and get the same answer. Keys
//! are read from the store for each request and cached nowhere, so a revoked key is refused at once. Which routes a key
//! may use is decided by `scope`.

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;

use crate::api::AppState;
use crate::api::json;
use crate::api::nonces::Taken;
use crate::api::places::Place;
use crate::api::problem::Problem;
use crate::api::scope::Caller;
use crate::key::request_signature::{self, Nonce, SignatureError, SignedRequest};
use crate::key::{ApiKey, PublicKey};
use crate::store::keys::{self, KnownKey};
use crate::store::nonces;

const SIGNATURE: &str = "x-request-signature";
/// How a refusal names whose rate or share is used up.
const OF_KEY: &str = "with this API key";

/// Lets a request through when it carries a valid key and, where that is paired, a valid signature.
pub(super) async fn require_key(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (mut request, place) = authenticate(&state, request).await?;
    request.extensions_mut().insert(place.clone());
    Ok(place.keep_for(next.run(request).await))
}

async fn authenticate(state: &AppState, request: Request) -> Result<(Request, Place), Problem> {
    let limits = &state.settings.limits;
    if declared_length(request.headers()).is_some_and(|length| length > limits.body_bytes) {
        return Err(Problem::payload_too_large(limits.body_bytes));
    }
    let key = offline(state, request.headers()).map_err(Problem::unauthorized)?;
    let known = on_time(state, on_record(state, &key)).await?;
    state.gate.check_key(key.id()).map_err(|wait| Problem::rate_limited(OF_KEY, wait))?;
    let (mut parts, body) = request.into_parts();
    token(&known, &parts.headers)?;
    let place = state.gate.places.take(key.id()).map_err(|why| Problem::no_place(why, OF_KEY))?;
    let is_awaited = !body.is_end_stream();
    let body = read(state, body, &place).await?;
    // While the body arrived, the key may have been revoked or paired.
    let known = if is_awaited { on_time(state, on_record(state, &key)).await? } else { known };
    let token = token(&known, &parts.headers)?;
    if let Some(token) = &token {
        let nonce = signature(state, &known, (token, &parts), &body)?;
        on_time(state, take(state, &parts.method, nonce)).await?;
    }
    state.last_used.note(key.id(), state.clock.now());
    let (key_id, scopes, is_signed) = (known.key.id, known.key.scopes, token.is_some());
    parts.extensions.insert(Caller { key_id, scopes, is_signed, patience: limits.request_timeout });
    Ok((Request::from_parts(parts, Body::from(body)), place))
}

/// Checks that the key of a request has not been revoked since. For a request that has waited, before anything is
/// reported to it.
pub(super) async fn still_valid(state: &AppState, caller: &Caller) -> Result<(), Problem> {
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let known = keys::known(&mut reader, &caller.key_id).await.map_err(Problem::internal)?;
    if known.is_some_and(|known| !known.is_revoked) { Ok(()) } else { Err(revoked()) }
}

fn revoked() -> Problem {
    Problem::unauthorized("the API key is revoked".to_owned())
}

/// Checks what needs no store: the key's form and its environment.
fn offline(state: &AppState, headers: &HeaderMap) -> Result<ApiKey, String> {
    let text = bearer(headers).ok_or("expected one header `Authorization: Bearer <API_KEY>`")?;
    let key: ApiKey = text.parse().map_err(|error: crate::key::KeyError| error.to_string())?;
    if key.environment() == state.settings.environment {
        Ok(key)
    } else {
        let ours = state.settings.environment;
        Err(format!("this is a {} key and this is the {ours} environment", key.environment()))
    }
}

/// The token, if there is exactly one header and its scheme is Bearer. The case of a scheme does not matter (RFC 9110,
/// 11.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}

/// A header that occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut headers = headers.get_all(name).iter();
    let (Some(header), None) = (headers.next(), headers.next()) else { return None };
    header.to_str().ok()
}

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn on_record(state: &AppState, key: &ApiKey) -> Result<KnownKey, Problem> {
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let found = keys::known(&mut reader, key.id()).await.map_err(Problem::internal)?;
    // No secret has this hash, so an unknown key costs the same comparison as a wrong secret.
    let stored = found.as_ref().map_or_else(|| vec![0; 32], |known| known.key.secret_hash.clone());
    let is_right = key.verify(&stored);
    // The prefix is not part of the hash: a key with another prefix would verify, so the environment is compared too.
    match found.filter(|known| is_right && known.key.environment == key.environment()) {
        Some(known) if known.is_revoked => Err(revoked()),
        Some(known) => Ok(known),
        None => Err(Problem::unauthorized("the API key is not known".to_owned())),
    }
}

/// The whole body, up to the limit. A larger body takes more places.
async fn read(state: &AppState, body: Body, place: &Place) -> Result<Vec<u8>, Problem> {
    let limits = &state.settings.limits;
    let bytes_each = state.gate.places.bytes_each(limits.body_bytes);
    let collect = async {
        let (mut chunks, mut read) = (body.into_data_stream(), Vec::new());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| json::cut_off())?;
            if read.len() + chunk.len() > limits.body_bytes {
                return Err(Problem::payload_too_large(limits.body_bytes));
            }
            let count = (read.len() + chunk.len()).div_ceil(bytes_each);
            place.count_as(count).map_err(|why| Problem::no_place(why, OF_KEY))?;
            read.extend_from_slice(&chunk);
        }
        Ok(read)
    };
    tokio::time::timeout(limits.request_timeout, collect).await.map_err(|_| Problem::request_timeout())?
}

/// The signature of a request that must be signed, if its form is right; `None` if the key is not paired.
fn token(known: &KnownKey, headers: &HeaderMap) -> Result<Option<String>, Problem> {
    if !known.is_paired {
        return Ok(None);
    }
    let missing = "this API key is paired with a public key: expected one header `X-Request-Signature: <JWT>`";
    let token = only(headers, SIGNATURE).ok_or_else(|| Problem::unauthorized(missing.to_owned()))?;
    request_signature::check_form(token).map_err(unsigned)?;
    Ok(Some(token.to_owned()))
}

/// The nonce of a signed request, once its signature was verified.
fn signature(
    state: &AppState,
    known: &KnownKey,
    (token, parts): (&str, &Parts),
    body: &[u8],
) -> Result<Nonce, Problem> {
    let now = state.clock.now();
    let valid = known.public_keys.iter().filter(|(_, until)| until.is_none_or(|until| now < until));
    let valid: Vec<PublicKey> = valid.map(|(key, _)| key.clone()).collect();
    let request = SignedRequest {
        key_id: &known.key.id,
        host: &state.settings.host,
        method: parts.method.as_str(),
        uri: parts.uri.path_and_query().map_or("", |uri| uri.as_str()),
        body,
        now,
    };
    request_signature::verify(token, &valid, &request).map_err(unsigned)
}

fn unsigned(error: SignatureError) -> Problem {
    Problem::unauthorized(format!("X-Request-Signature {error}"))
}

/// Takes a nonce. That of a request that may change something goes into the store, which all instances share and which
/// outlives them. That of a request that only reads is kept in memory, since it harms nobody if it is answered twice.
async fn take(state: &AppState, method: &Method, nonce: Nonce) -> Result<(), Problem> {
    let replayed = || Problem::unauthorized("X-Request-Signature has a nonce that was used before".to_owned());
    if method == Method::GET || method == Method::HEAD {
        return match state.nonces.take(nonce, state.clock.now()) {
            Taken::First => Ok(()),
            Taken::Again => Err(replayed()),
            Taken::Full => Err(Problem::overloaded()),
        };
    }
    let mut tx = state.db.begin().await.map_err(Problem::unchanged)?;
    let first = nonces::take(&mut tx, &nonce.hash, nonce.expires).await.map_err(Problem::unchanged)?;
    tx.commit().await.map_err(Problem::unchanged)?;
    if first { Ok(()) } else { Err(replayed()) }
}

async fn on_time<T>(state: &AppState, work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let timeout = state.settings.limits.request_timeout;
    tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| Err(Problem::timeout()))
}
