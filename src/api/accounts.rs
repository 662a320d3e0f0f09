//! `POST /v2/accounts`, `GET /v2/accounts` and `GET /v2/accounts/{account_id}`, and the resource they show.
//!
//! An account is opened by a request that the client may send again. The account's status follows from the status of
//! its identity whenever it is shown.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use landfall_chain::{Address, Chain, Family};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::account::{AccountStatus, AccountType, Derived, NewAccount};
use crate::api::json::{self, Faults, Object, Sent, present};
use crate::api::problem::Problem;
use crate::api::query::{self, Query};
use crate::api::scope::Caller;
use crate::api::{AppState, auth, cursor, openapi};
use crate::identity::{self, SubStatus};
use crate::key::Scope;
use crate::overrides::Author;
use crate::registry::{self, DeriveError, OpenAccountError, ReplayError};
use crate::request::{Made, Request};
use crate::store::account_pages::{self, Account, AccountFilter};
use crate::store::accounts::AddAccountError;
use crate::time::Timestamp;

pub(super) const LIMIT_DEFAULT: u8 = 25;
pub(super) const LIMIT_MAX: u8 = 100;
const IDENTITY_IDS_MAX: usize = 25;
/// How many addresses one request may bring.
pub(super) const ADDRESSES_MAX: usize = 100;

/// An account, which holds balances on chains under addresses of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Account)]
pub(super) struct AccountResource {
    pub id: String,
    /// The `request_id` that opened it; empty for one that an operator registered.
    pub request_id: String,
    pub identity_id: String,
    #[schema(schema_with = openapi::identity_type)]
    pub identity_type: &'static str,
    #[schema(schema_with = openapi::account_type)]
    pub r#type: &'static str,
    pub addresses: Vec<AccountAddress>,
    #[schema(schema_with = openapi::account_status)]
    pub status: &'static str,
    #[schema(schema_with = openapi::identity_status)]
    pub identity_status: &'static str,
    #[schema(schema_with = openapi::sub_status)]
    pub identity_sub_status: &'static str,
}

/// An address and the chains that it is watched on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountAddress {
    #[schema(value_type = Vec<openapi::ChainName>)]
    pub chains: Vec<&'static str>,
    /// EIP-55 on EVM chains, base58 on Solana.
    pub address: String,
    /// Whether this service holds its key; without it nothing can be sent from here.
    #[schema(extensions(("x-landfall-extension" = json!(true))))]
    pub managed: bool,
}

/// A page of accounts, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountList {
    #[schema(max_items = 100)]
    accounts: Vec<AccountResource>,
    /// Send it as `cursor`, with the same filters, to get the next page. Omitted on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cursor: Option<String>,
}

/// An account that is to be opened.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAccountForm {
    /// The client's own name for this request: sent again with the same body, it opens nothing new.
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    request_id: String,
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    identity_id: String,
    #[schema(schema_with = openapi::account_type)]
    r#type: String,
    /// Left out, the account gets an address of its own on every chain that is followed, whose key this service holds.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Vec<openapi::NewAccountAddress>>, min_items = 1, max_items = 100, nullable = false)]
    addresses: Option<Vec<Object<AddressForm>>>,
}

/// An address that is to be watched, and on which chains. Without `address` it is derived.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AddressForm {
    chains: Vec<String>,
    #[serde(default, deserialize_with = "present")]
    address: Option<String>,
}

/// Open an account
///
/// An extension of the interface. The addresses are watched from the next block of each chain on; `GET
/// /v2/accounts/{account_id}/coverage` reports the number. A chain that this service does not follow is accepted too,
/// but no deposit is seen there: its `watched_from` is 0 until the chain is followed. `GET /v2/assets` reports which
/// chains are followed. A request that is sent again with the same body is answered 200 with the same account.
///
/// An address that is left out is derived: this service holds its key, and the account can send from it. It is the same on
/// all EVM chains. A `SEGREGATED` account has one address on each family of chains, given or derived.
#[utoipa::path(
    post,
    path = "/v2/accounts",
    operation_id = "create_account",
    tag = "Accounts",
    security(("bearer" = ["write"])),
    extensions(("x-landfall-extension" = json!(true))),
    request_body(content = NewAccountForm, content_type = "application/json"),
    responses(
        (status = 201, description = "The account, opened by this request.", body = AccountResource),
        (status = 200, description = "The account, opened when this request first came.", body = AccountResource),
        (status = 400, description = "A field is missing, unknown or malformed, the identity cannot open accounts, or an address \
            is another account's, or nobody's, as the zero address, precompiles and programs are.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Another request had this `request_id` (`IDEMPOTENCY_MISMATCH`).", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "An address is to be derived, and the signer cannot be reached or none is configured \
            (`SIGNER_UNAVAILABLE`); nothing was done. Send it again after `Retry-After` seconds; without this header an operator \
            must act first.", body = Problem, content_type = "application/problem+json", headers(("Retry-After" = u64))),
    ),
)]
pub(super) async fn open(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Sent,
) -> Result<(StatusCode, Json<AccountResource>), Problem> {
    Query::parse(query.as_deref(), &[]).check()?;
    let (request, account, derived) = json::parse::<NewAccountForm>(&headers, body)?.read()?;
    let chains = match derived {
        Derived::On(chains) => chains,
        Derived::Everywhere => state.settings.networks.iter().map(|network| network.chain).collect(),
    };
    let given: BTreeSet<&Address> = account.addresses.iter().map(|(_, address)| address).collect();
    count_addresses(&state, &caller, given.len() + families(&chains).len())?;
    let signer = state.settings.signer.as_deref();
    let derived = registry::derive_for_account(&state.db, signer, &request, &account, &chains).await;
    let derived = derived.map_err(|error| refusal(error, &caller))?;
    let actor = caller.actor();
    let turn = state.turns.take(&caller.key_id).await;
    auth::still_valid(&state, &caller).await?;
    let by = Author { actor: &actor, reason: "", now: state.clock.now() };
    let opened = registry::open_account(&state.db, &request, &account, &derived, &by).await;
    drop(turn);
    let (id, made) = opened.map_err(|error| refusal(error, &caller))?;
    Ok((created(made), Json(load(&state, &id).await.map_err(Problem::behind_change)?)))
}

/// List accounts
///
/// Newest first. A page may have fewer than `limit` accounts: it ends before the account with which it would have more
/// than 10,000 addresses, as many as one account may have. More accounts follow wherever there is a `cursor`.
/// Parameters that are not listed here are refused, and so are repeated ones but `identity_ids`.
#[utoipa::path(
    get,
    path = "/v2/accounts",
    operation_id = "list_accounts",
    tag = "Accounts",
    security(("bearer" = ["read"])),
    params(
        ("identity_ids" = inline(Option<Vec<openapi::FilterText>>), Query, nullable = false, explode, max_items = 25,
            description = "Only accounts of these identities; sent once for each, at most 25 times."),
        ("limit" = inline(Option<openapi::AccountPageLimit>), Query, nullable = false,
            description = "How many accounts a page has at most."),
        ("cursor" = Option<String>, Query, nullable = false,
            description = "The `cursor` of the page before; the filters must be the same."),
    ),
    responses(
        (status = 200, description = "A page of accounts.", body = AccountList),
        (status = 400, description = "A parameter is unknown, repeated or malformed.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(state): State<AppState>,
    RawQuery(query): RawQuery,
) -> Result<Json<AccountList>, Problem> {
    let page = Page::parse(query.as_deref())?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let found = account_pages::list(&mut reader, &page.filter, page.limit.into()).await;
    let (accounts, is_cut) = found.map_err(Problem::internal)?;
    Ok(Json(page.show(&accounts, is_cut)))
}

/// Get an account
#[utoipa::path(
    get,
    path = "/v2/accounts/{account_id}",
    operation_id = "get_account",
    tag = "Accounts",
    security(("bearer" = ["read"])),
    params(("account_id" = String, Path, description = "The `id` of the account.")),
    responses(
        (status = 200, description = "The account.", body = AccountResource),
        (status = 400, description = "The request takes no query parameters.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No account has this id.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn by_id(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<AccountResource>, Problem> {
    let id = account_id(id)?;
    Query::parse(query.as_deref(), &[]).check()?;
    Ok(Json(load(&state, &id).await?))
}

/// The id in a path. A text that no id can be is answered as an unknown id.
pub(super) fn account_id(id: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let id = id.ok().map(|Path(id)| id).filter(|id| identity::check_id("account id", id).is_ok());
    id.ok_or_else(unknown)
}

pub(super) fn unknown() -> Problem {
    Problem::not_found("no account has this id")
}

/// The status of the answer to a request that made something, now or earlier.
pub(super) fn created(made: Made) -> StatusCode {
    match made {
        Made::Now => StatusCode::CREATED,
        Made::Before => StatusCode::OK,
    }
}

/// Counts what a request brings against the rate of its key.
pub(super) fn count_addresses(state: &AppState, caller: &Caller, count: usize) -> Result<(), Problem> {
    let counted = state.gate.check_addresses(&caller.key_id, count);
    counted.map_err(|wait| Problem::rate_limited("that bring addresses, with this API key", wait))
}

/// An address that is derived is the same on all chains of its family.
pub(super) fn families(chains: &BTreeSet<Chain>) -> BTreeSet<Family> {
    chains.iter().map(|chain| chain.family()).collect()
}

pub(super) fn underivable(error: DeriveError) -> Problem {
    match error {
        DeriveError::NoSigner => Problem::no_signer(),
        DeriveError::Away(error) => Problem::signer_away(&error),
    }
}

pub(super) fn replay(error: ReplayError) -> Problem {
    match error {
        ReplayError::Mismatch => Problem::idempotency_mismatch(),
        ReplayError::Store(error) => Problem::unchanged(error),
    }
}

async fn load(state: &AppState, id: &str) -> Result<AccountResource, Problem> {
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let found = account_pages::by_id(&mut reader, id).await.map_err(Problem::internal)?;
    Ok(AccountResource::of(&found.ok_or_else(unknown)?))
}

/// The problem names the field that contradicts the record. Which account has an address is shown only to callers who
/// may read accounts.
fn refusal(error: OpenAccountError, caller: &Caller) -> Problem {
    let refused = match error {
        OpenAccountError::Replay(error) => return replay(error),
        OpenAccountError::Derive(error) => return underivable(error),
        OpenAccountError::Refused(error) => error,
    };
    contradiction(refused, "addresses", caller.scopes.give(Scope::Read))
}

/// As [`refusal`]; `addresses` is the field that brings them.
pub(super) fn contradiction(refused: AddAccountError, addresses: &str, may_read: bool) -> Problem {
    if let AddAccountError::OtherOwner { address, chain, .. } = &refused
        && !may_read
    {
        return json::refusal(
            addresses,
            format!("is refused: {address} on {chain} belongs to another account already"),
        );
    }
    let field = match refused {
        AddAccountError::Store(error) => return Problem::unchanged(error),
        AddAccountError::NoIdentity(_) | AddAccountError::Closed { .. } | AddAccountError::OtherIdentity { .. } => {
            "identity_id"
        }
        AddAccountError::OtherType { .. } => "type",
        AddAccountError::OtherOwner { .. }
        | AddAccountError::TooMany { .. }
        | AddAccountError::Sponsors { .. }
        | AddAccountError::Nobodys { .. } => addresses,
    };
    json::refusal(field, format!("is refused: {refused}"))
}

/// What a list request asks for.
struct Page {
    filter: AccountFilter,
    limit: u8,
}

impl Page {
    fn parse(raw: Option<&str>) -> Result<Self, Problem> {
        let mut query = Query::parse_with_lists(raw, &["identity_ids", "limit", "cursor"], &["identity_ids"]);
        let ids = query.list("identity_ids", IDENTITY_IDS_MAX, query::text);
        let ids: BTreeSet<String> = ids.into_iter().collect();
        let limit = query.optional("limit", |text| query::limit(text, LIMIT_MAX)).unwrap_or(LIMIT_DEFAULT);
        query.check()?;
        let mut filter = AccountFilter { identity_ids: ids.into_iter().collect(), after: None };
        filter.after = query.optional("cursor", |text| place(text, &filter));
        query.check()?;
        Ok(Page { filter, limit })
    }

    fn show(&self, accounts: &[Account], is_cut: bool) -> AccountList {
        let last = accounts.last().filter(|_| is_cut);
        let cursor = |last: &Account| cursor::encode_place(filters(&self.filter), last.created_at, last.id.as_bytes());
        AccountList { accounts: accounts.iter().map(AccountResource::of).collect(), cursor: last.map(cursor) }
    }
}

fn place(text: &str, filter: &AccountFilter) -> Result<(Timestamp, String), cursor::CursorError> {
    let (at, id) = cursor::decode_place(text, filters(filter))?;
    let id = String::from_utf8(id).ok().filter(|id| identity::check_id("account id", id).is_ok());
    Ok((at, id.ok_or(cursor::CursorError::Malformed)?))
}

fn filters(filter: &AccountFilter) -> [u8; 8] {
    let ids = filter.identity_ids.iter().map(|id| id.as_bytes());
    cursor::hash_of(std::iter::once(b"accounts".as_slice()).chain(ids))
}

impl NewAccountForm {
    fn read(&self) -> Result<(Request, NewAccount, Derived), Problem> {
        let NewAccountForm { request_id, identity_id, r#type, addresses } = self;
        let mut faults = Faults::default();
        faults.take("identity_id", identity::check_id("an identity's id", identity_id));
        let expected = |_| "must be SEGREGATED or OMNIBUS";
        let kind = faults.take("type", r#type.parse::<AccountType>().map_err(expected));
        let (given, derived) = match addresses {
            Some(addresses) => read_addresses(addresses, &mut faults),
            None => (BTreeSet::new(), Derived::Everywhere),
        };
        if let (Some(AccountType::Segregated), Derived::On(chains)) = (kind, &derived)
            && given.iter().any(|(chain, _)| families(chains).contains(&chain.family()))
        {
            let detail =
                "must give a SEGREGATED account one address on each family of chains, not one that is derived too";
            faults.refuse("addresses", detail);
        }
        let kind = faults.check(kind)?;
        let account = NewAccount { id: String::new(), identity_id: Some(identity_id.clone()), kind, addresses: given };
        let mut faults = Faults::default();
        let request = faults.take("request_id", account.request(request_id, &derived));
        Ok((faults.check(request)?, account, derived))
    }
}

/// The addresses that are given, and the chains of those that are not.
fn read_addresses(forms: &[Object<AddressForm>], faults: &mut Faults) -> (BTreeSet<(Chain, Address)>, Derived) {
    if forms.is_empty() || forms.len() > ADDRESSES_MAX {
        faults.refuse("addresses", format!("must be 1 to {ADDRESSES_MAX} addresses"));
    }
    let (mut given, mut derived) = (BTreeSet::new(), BTreeSet::new());
    for (at, Object(form)) in forms.iter().take(ADDRESSES_MAX).enumerate() {
        let at = format!("addresses[{at}]");
        let chains = read_chains(&form.chains, &format!("{at}.chains"), faults);
        let Some(text) = &form.address else {
            derived.extend(chains);
            continue;
        };
        for chain in chains {
            match Address::parse(chain.family(), text) {
                Ok(address) => drop(given.insert((chain, address))),
                // Reported once, however many chains the address is for.
                Err(error) => {
                    faults.refuse(format!("{at}.address"), format!("is refused on {chain}: {error}"));
                    break;
                }
            }
        }
    }
    (given, Derived::On(derived))
}

/// The chains of the list in the field `at`.
pub(super) fn read_chains(names: &[String], at: &str, faults: &mut Faults) -> Vec<Chain> {
    if names.is_empty() || names.len() > Chain::ALL.len() {
        faults.refuse(at, format!("must be 1 to {} chains", Chain::ALL.len()));
    }
    let names = names.iter().take(Chain::ALL.len()).enumerate();
    names.filter_map(|(index, name)| faults.take(format!("{at}[{index}]"), openapi::chain(name))).collect()
}

impl AccountResource {
    fn of(account: &Account) -> Self {
        let mut chains: BTreeMap<&Address, BTreeSet<Chain>> = BTreeMap::new();
        for (chain, address) in &account.addresses {
            chains.entry(address).or_default().insert(*chain);
        }
        let shown =
            |(address, chains): (&Address, _)| AccountAddress::of(address, &chains, account.managed.contains(address));
        let addresses = chains.into_iter().map(shown);
        AccountResource {
            id: account.id.clone(),
            request_id: account.request_id.clone(),
            identity_id: account.identity_id.clone(),
            identity_type: account.identity_kind.name(),
            r#type: account.kind.name(),
            addresses: addresses.collect(),
            status: AccountStatus::of(account.identity_status).name(),
            identity_status: account.identity_status.name(),
            identity_sub_status: SubStatus::text(account.identity_sub_status),
        }
    }
}

impl AccountAddress {
    pub(super) fn of(address: &Address, chains: &BTreeSet<Chain>, managed: bool) -> Self {
        let chains = chains.iter().map(|chain| chain.name()).collect();
        AccountAddress { chains, address: address.to_string(), managed }
    }
}
