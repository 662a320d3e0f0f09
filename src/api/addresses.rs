//! `POST /v2/accounts/{account_id}/addresses`: a further address to receive at, for accounts that are pooled.
//!
//! Promises: the same request gives the same address, for ever, also after the store was set back.

use std::collections::BTreeSet;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use landfall_chain::{Address, Chain};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::accounts::{
    AccountAddress, account_id, contradiction, count_addresses, created, families, read_chains, replay, underivable,
    unknown,
};
use crate::api::json::{self, Faults, Sent};
use crate::api::problem::Problem;
use crate::api::query::Query;
use crate::api::scope::Caller;
use crate::api::{AppState, auth, openapi};
use crate::key::Scope;
use crate::overrides::Author;
use crate::registry::{self, AddAddressesError};
use crate::request::{self, Request};

/// Further addresses of an account, of this request alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FurtherAddresses {
    account_id: String,
    request_id: String,
    /// One for each family of the chains.
    addresses: Vec<AccountAddress>,
}

/// Where an account is to get a further address.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAddressForm {
    /// The client's own name for this request: sent again with the same body, it makes nothing new.
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    pub(super) request_id: String,
    #[schema(value_type = Vec<openapi::ChainName>, min_items = 1, max_items = 10)]
    pub(super) chains: Vec<String>,
}

/// Add an address to an account
///
/// An extension of the interface, for `OMNIBUS` accounts: a further address to receive at, whose key this service holds. It is the
/// same on all EVM chains, and watched from the next block of each chain on. Transfers are not paid from it. A request that
/// is sent again with the same body is answered 200 with the same address.
#[utoipa::path(
    post,
    path = "/v2/accounts/{account_id}/addresses",
    operation_id = "add_account_address",
    tag = "Accounts",
    security(("bearer" = ["write"])),
    extensions(("x-landfall-extension" = json!(true))),
    params(("account_id" = String, Path, description = "The `id` of the account.")),
    request_body(content = NewAddressForm, content_type = "application/json"),
    responses(
        (status = 201, description = "The address, added by this request.", body = FurtherAddresses),
        (status = 200, description = "The address, added when this request first came.", body = FurtherAddresses),
        (status = 400, description = "A field is missing, unknown or malformed, or the account has as many addresses as it may.",
            body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No account has this id.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "Another request had this `request_id` (`IDEMPOTENCY_MISMATCH`), the account is `SEGREGATED` \
            (`ACCOUNT_SEGREGATED`), or its identity can have no more accounts (`ACCOUNT_NOT_ACTIVE`).", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "The signer cannot be reached or none is configured (`SIGNER_UNAVAILABLE`); nothing was done. \
            Send it again after `Retry-After` seconds; without this header an operator must act first.", body = Problem,
            content_type = "application/problem+json", headers(("Retry-After" = u64))),
    ),
)]
pub(super) async fn add(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Sent,
) -> Result<(StatusCode, Json<FurtherAddresses>), Problem> {
    let id = account_id(id)?;
    Query::parse(query.as_deref(), &[]).check()?;
    let (request, chains) = json::parse::<NewAddressForm>(&headers, body)?.read(&id)?;
    count_addresses(&state, &caller, families(&chains).len())?;
    let signer = state.settings.signer.as_deref();
    let derived = registry::derive_further(&state.db, signer, &request, &id, &chains).await;
    let may_read = caller.scopes.give(Scope::Read);
    let derived = derived.map_err(|error| refusal(error, may_read))?;
    let actor = caller.actor();
    let turn = state.turns.take(&caller.key_id).await;
    auth::still_valid(&state, &caller).await?;
    let by = Author { actor: &actor, reason: "", now: state.clock.now() };
    let added = registry::add_addresses(&state.db, &request, &id, &derived, &by).await;
    drop(turn);
    let (addresses, made) = added.map_err(|error| refusal(error, may_read))?;
    Ok((created(made), Json(FurtherAddresses::of(id, request, &addresses, &chains))))
}

/// Which account has an address is shown only to who may read accounts.
pub(super) fn refusal(error: AddAddressesError, may_read: bool) -> Problem {
    match error {
        AddAddressesError::Replay(error) => replay(error),
        AddAddressesError::NoAccount(_) => unknown(),
        AddAddressesError::Segregated(_) => Problem::account_segregated(),
        AddAddressesError::NotActive { status, .. } => Problem::account_closed(status),
        AddAddressesError::Derive(error) => underivable(error),
        AddAddressesError::Refused(error) => contradiction(error, "chains", may_read),
    }
}

impl NewAddressForm {
    /// The account is part of the request: the same id for another account is another request.
    pub(super) fn read(&self, account_id: &str) -> Result<(Request, BTreeSet<Chain>), Problem> {
        let mut faults = Faults::default();
        let chains: BTreeSet<Chain> = read_chains(&self.chains, "chains", &mut faults).into_iter().collect();
        let fields = std::iter::once(account_id).chain(chains.iter().map(|chain| chain.name())).map(str::as_bytes);
        let request = faults.take("request_id", request::of(&self.request_id, "account_address/v1", fields));
        Ok((faults.check(request)?, chains))
    }
}

impl FurtherAddresses {
    fn of(account_id: String, request: Request, addresses: &[Address], chains: &BTreeSet<Chain>) -> Self {
        let of_family = |address: &Address| {
            let chains = chains.iter().filter(|chain| chain.family() == address.family()).copied().collect();
            AccountAddress::of(address, &chains, true)
        };
        FurtherAddresses { account_id, request_id: request.id, addresses: addresses.iter().map(of_family).collect() }
    }
}
