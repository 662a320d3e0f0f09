//! `POST /v2/crypto/transfers`, `GET /v2/crypto/transfers` and `GET /v2/crypto/transfers/{transfer_id}`, and the resource
//! they show.
//!
//! Promises: a request that comes again is answered by what it made, while its chain and asset are listed; both forms of
//! the destination are one request; a refusal records nothing.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use landfall_chain::{Address, Asset, AssetId, Chain, Network, what_of_nobody};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::amount::{payable, to_decimal};
use crate::api::accounts::created;
use crate::api::by_hand::TransferAsked;
use crate::api::json::{self, Faults, Object, Sent};
use crate::api::problem::Problem;
use crate::api::query::{self, Query};
use crate::api::scope::Caller;
use crate::api::time_bound::TimeBound;
use crate::api::{AppState, auth, cursor, openapi};
use crate::event::{FailureData, FeeData, TransferData};
use crate::gas::GasCurrency;
use crate::identity;
use crate::registry::{self, AcceptError, Terms};
use crate::store::transfers::{self, TransferFilter};
use crate::time::Timestamp;
use crate::transfer::{Order, RequestId, Transfer, TransferId, TransferKind, TransferStatus};

const LIMIT_DEFAULT: u8 = 25;
const LIMIT_MAX: u8 = 100;
const IDENTITY_IDS_MAX: usize = 25;
const LIST_PARAMETERS: [&str; 11] = [
    "account_id",
    "identity_ids",
    "identity_id",
    "destination_chain",
    "currency_symbol",
    "status",
    "start_time",
    "end_time",
    "request_id",
    "limit",
    "cursor",
];

/// Money that an account sends; the service pays the gas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Transfer)]
pub struct TransferResource {
    /// Follows from `request_id`: the same request makes the same transfer, for ever.
    #[schema(format = "uuid")]
    pub id: String,
    #[schema(format = "uuid")]
    pub request_id: String,
    /// The account that pays.
    pub account_id: String,
    pub identity_id: String,
    /// The address that pays.
    pub source_address: String,
    pub address_destination: AddressDestination,
    /// As in `address_destination`.
    pub destination_address: String,
    /// As in `address_destination`.
    #[schema(value_type = openapi::ChainName)]
    pub destination_chain: &'static str,
    /// The account that is paid, when the address is one of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub destination_account_id: Option<String>,
    /// The ticker of the asset.
    pub currency_symbol: String,
    /// In the asset's major unit, without exponent and without trailing zeros.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub amount: String,
    #[schema(schema_with = openapi::transfer_status)]
    pub status: &'static str,
    /// The transaction that carries it; empty while no canonical block has one. A reorg may change it.
    pub transaction_hash: String,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
    /// When it was first handed to a node; omitted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    pub submitted_at: Option<String>,
    /// When it was decided that it is final; omitted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    pub confirmed_at: Option<String>,
    /// Why it is FAILED or DROPPED; omitted otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub failure_details: Option<FailureDetails>,
    /// Until when a block may include it; omitted until it is signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false, extensions(("x-landfall-extension" = json!(true))))]
    pub expires_at: Option<String>,
    /// What its transactions cost; omitted until it has ended and one is final.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, extensions(("x-landfall-extension" = json!(true))))]
    pub network_fee: Option<NetworkFeeResource>,
}

/// What the transactions of a transfer cost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NetworkFee)]
pub struct NetworkFeeResource {
    /// In the native currency's major unit.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    pub amount: String,
    /// The ticker of the chain's native currency.
    pub currency_symbol: String,
    /// Omitted until there is a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$", nullable = false)]
    pub usd: Option<String>,
    #[schema(schema_with = openapi::paid_by)]
    pub paid_by: &'static str,
    /// Omitted until there is a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = openapi::charged_to)]
    pub charged_to: Option<&'static str>,
}

/// Where money goes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressDestination {
    /// EIP-55 or one case on EVM chains, base58 on Solana. There the owner, never one of its token accounts.
    pub address: String,
    #[schema(value_type = openapi::ChainName)]
    pub chain: String,
}

/// Why a transfer is FAILED or DROPPED.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureDetails {
    #[schema(schema_with = openapi::failure_code)]
    pub code: &'static str,
    /// For people who look for the cause; not for end customers.
    pub reason: String,
    /// The transaction that landed and did not pay; omitted where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub transaction_hash: Option<String>,
}

/// A page of transfers, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferList {
    #[schema(max_items = 100)]
    transfers: Vec<TransferResource>,
    /// Send it as `cursor`, with the same filters, to get the next page. Omitted on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cursor: Option<String>,
}

/// A transfer that is asked for. The destination is either `address_destination`, which is preferred, or both of
/// `destination_address` and `destination_chain`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTransferForm {
    /// A UUID: sent again with the same content, it makes nothing new.
    #[schema(format = "uuid")]
    request_id: String,
    /// The account that pays.
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    account_id: String,
    /// As `GET /v2/assets` lists it on the chain.
    currency_symbol: String,
    /// In the asset's major unit, more than 0: digits, and at most one point with digits on both sides.
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$")]
    amount: String,
    #[serde(default)]
    #[schema(value_type = Option<AddressDestination>, nullable = false)]
    address_destination: Option<Object<AddressDestination>>,
    #[serde(default)]
    #[schema(nullable = false)]
    destination_address: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<openapi::ChainName>, nullable = false)]
    destination_chain: Option<String>,
}

/// Send money
///
/// The transfer is `ACCEPTED`: its money is reserved, and the service signs it, carries it to the chain and pays the gas. A block
/// must include it within 5 minutes; what is proved not to be included is `DROPPED`. A request that comes again with the same
/// content answers 200 with the same transfer while that is under way, and 409 `DUPLICATE_TRANSACTION` once it has ended.
#[utoipa::path(
    post,
    path = "/v2/crypto/transfers",
    operation_id = "create_transfer",
    tag = "Transfers",
    security(("bearer" = ["transfers"])),
    request_body(content = NewTransferForm, content_type = "application/json"),
    responses(
        (status = 201, description = "The transfer, accepted by this request.", body = TransferResource),
        (status = 200, description = "The transfer, accepted when this request first came.", body = TransferResource),
        (status = 400, description = "A field is missing, unknown or malformed, or names nothing that there is.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The request was processed and its transfer has ended (`DUPLICATE_TRANSACTION`), another request \
            had this `request_id` (`IDEMPOTENCY_MISMATCH`), or the account is not active (`ACCOUNT_NOT_ACTIVE`).", body = Problem,
            content_type = "application/problem+json"),
        (status = 422, description = "The account's address was imported (`SOURCE_NOT_MANAGED`), the asset cannot be sent \
         here (`ASSET_NOT_SENDABLE`), the address has less available than is to be \
            paid (`INSUFFICIENT_FUNDS`), a policy leaves too little room (`TRANSACTION_LIMIT_EXCEEDED`), or the gas \
            credit is used up and nothing is billed beyond it (`GAS_CREDIT_EXHAUSTED`).", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "What the account has is not known at the moment (`BALANCE_UNKNOWN`), no signer is configured \
            (`TRANSFERS_NOT_CONFIGURED`), or an operator has stopped the sending (`SENDING_HALTED`). Send it again after `Retry-After` seconds; without this header an operator must act \
            first.", body = Problem, content_type = "application/problem+json", headers(("Retry-After" = u64))),
    ),
)]
pub(super) async fn create(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Sent,
) -> Result<(StatusCode, Json<TransferResource>), Problem> {
    Query::parse(query.as_deref(), &[]).check()?;
    let form = json::parse::<NewTransferForm>(&headers, body)?;
    let field = form.destination_field();
    let order = form.read(&state.settings.networks)?;
    let turn = state.turns.take(&caller.key_id).await;
    auth::still_valid(&state, &caller).await?;
    let terms = Terms { can_sign: state.settings.signer.is_some(), over_credit: state.settings.over_credit };
    let accepted = registry::accept_transfer(&state.db, &order, terms, state.clock.now()).await;
    drop(turn);
    let (transfer, made) = accepted.map_err(|error| refusal(error, &order.asset, field))?;
    Ok((created(made), Json(TransferResource::of(&transfer))))
}

/// List transfers
///
/// Newest first. An unknown account has none. Parameters that are not listed here are refused, and so are repeated ones but
/// `identity_ids`.
#[utoipa::path(
    get,
    path = "/v2/crypto/transfers",
    operation_id = "list_transfers",
    tag = "Transfers",
    security(("bearer" = ["read"])),
    params(
        ("account_id" = Option<String>, Query, nullable = false, min_length = 1,
            pattern = r"^[^\u0000-\u001F\u007F-\u009F\uFFFD]+$", description = "Only transfers of this account."),
        ("identity_ids" = inline(Option<Vec<openapi::FilterText>>), Query, nullable = false, explode, max_items = 25,
            description = "Only transfers of these identities; sent once for each, at most 25 times."),
        ("identity_id" = inline(Option<openapi::FilterText>), Query, nullable = false,
            description = "One more of `identity_ids`."),
        ("destination_chain" = Option<openapi::ChainName>, Query, nullable = false,
            description = "Only transfers on this chain."),
        ("currency_symbol" = Option<String>, Query, nullable = false, min_length = 1,
            pattern = r"^[^\u0000-\u001F\u007F-\u009F\uFFFD]+$",
            description = "Only transfers of this asset; upper and lower case differ."),
        ("status" = inline(Option<openapi::TransferStatusName>), Query, nullable = false,
            description = "Only transfers with this status."),
        ("start_time" = Option<String>, Query, nullable = false, format = DateTime,
            description = "Only transfers with a `created_at` at or after this time: RFC 3339, at most 9 fractional digits."),
        ("end_time" = Option<String>, Query, nullable = false, format = DateTime,
            description = "Only transfers with a `created_at` at or before this time. Not before `start_time`."),
        ("request_id" = Option<String>, Query, nullable = false, format = "uuid",
            extensions(("x-landfall-extension" = json!(true))),
            description = "Only the transfer of this request, an extension of the interface."),
        ("limit" = inline(Option<openapi::AccountPageLimit>), Query, nullable = false,
            description = "How many transfers a page has at most."),
        ("cursor" = Option<String>, Query, nullable = false,
            description = "The `cursor` of the page before; the filters must be the same."),
    ),
    responses(
        (status = 200, description = "A page of transfers.", body = TransferList),
        (status = 400, description = "A parameter is unknown, repeated or malformed.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(state): State<AppState>,
    RawQuery(query): RawQuery,
) -> Result<Json<TransferList>, Problem> {
    let page = Page::parse(query.as_deref())?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    // One more than is shown, to see whether there is another page.
    let found = transfers::list(&mut reader, &page.filter, u32::from(page.limit) + 1).await;
    Ok(Json(page.show(&found.map_err(Problem::internal)?)))
}

/// Get a transfer
#[utoipa::path(
    get,
    path = "/v2/crypto/transfers/{transfer_id}",
    operation_id = "get_transfer",
    tag = "Transfers",
    security(("bearer" = ["read"])),
    params(("transfer_id" = String, Path, format = "uuid", description = "The `id` of the transfer.")),
    responses(
        (status = 200, description = "The transfer.", body = TransferResource),
        (status = 400, description = "The request takes no query parameters.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No transfer has this id.", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn by_id(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<TransferResource>, Problem> {
    let unknown = || Problem::not_found("no transfer has this id");
    let id: TransferId = id.ok().and_then(|Path(id)| id.parse().ok()).ok_or_else(unknown)?;
    Query::parse(query.as_deref(), &[]).check()?;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    let transfer = transfers::by_id(&mut reader, id).await.map_err(Problem::internal)?;
    let transfer = transfer.filter(|transfer| transfer.kind == TransferKind::Payment);
    Ok(Json(TransferResource::of(&transfer.ok_or_else(unknown)?)))
}

/// What contradicts the record, in the API's words. Amounts are those of `asset`; `field` has the destination.
pub(super) fn refusal(error: AcceptError, asset: &Asset, field: &str) -> Problem {
    match error {
        AcceptError::Mismatch { transfer } => Problem::other_transfer(transfer),
        AcceptError::Duplicate { transfer, status } => Problem::duplicate_transaction(transfer, status),
        AcceptError::NoAccount(_) => json::refusal("account_id", "names no account".to_owned()),
        AcceptError::ToItself => json::refusal(field, "is the address that pays; send to another one".to_owned()),
        AcceptError::ToSponsor => {
            json::refusal(field, "is an address that pays for transactions here; send to another one".to_owned())
        }
        AcceptError::NotActive { status, .. } => Problem::account_not_active(status),
        error @ AcceptError::Quarantined(_) => Problem::account_quarantined(error.to_string()),
        error @ AcceptError::NotManaged { .. } => Problem::source_not_managed(error.to_string()),
        error @ AcceptError::NotSendable { .. } => Problem::asset_not_sendable(error.to_string()),
        AcceptError::Insufficient { amount, available } => {
            let [amount, available] = [amount, available].map(|amount| to_decimal(amount, asset.decimals));
            let symbol = &asset.symbol;
            Problem::insufficient_funds(format!(
                "{amount} {symbol} are to be paid, and {available} {symbol} are available"
            ))
        }
        AcceptError::OverLimit(exceeded) => Problem::over_limit(exceeded),
        AcceptError::CreditExhausted { needed, remaining } => Problem::gas_credit_exhausted(needed, remaining),
        AcceptError::BalanceUnknown(chain) => Problem::balance_unknown(&[chain.name().to_owned()], &[]),
        error @ AcceptError::Halted(_) => Problem::sending_halted(error.to_string()),
        AcceptError::NotConfigured => Problem::transfers_not_configured(),
        AcceptError::Store(error) => Problem::unchanged(error),
    }
}

impl NewTransferForm {
    /// What an operator asks for.
    pub(super) fn by_hand(asked: TransferAsked) -> Self {
        let TransferAsked { request_id, account_id, symbol, amount, destination, chain } = asked;
        let to = AddressDestination { address: destination, chain: chain.name().to_owned() };
        NewTransferForm {
            request_id,
            account_id,
            currency_symbol: symbol,
            amount,
            address_destination: Some(Object(to)),
            destination_address: None,
            destination_chain: None,
        }
    }

    /// What is asked for. Symbol and amount are checked where the destination is right.
    pub(super) fn read(self, networks: &[Network]) -> Result<Order, Problem> {
        let mut faults = Faults::default();
        let request_id = faults.take("request_id", self.request_id.parse::<RequestId>());
        faults.take("account_id", identity::check_id("an account's id", &self.account_id));
        let destination = self.destination(&mut faults);
        let destination = destination.and_then(|place| place.read(networks, &mut faults));
        let asset = destination.as_ref().and_then(|(network, _)| asset(network, &self.currency_symbol, &mut faults));
        let amount = asset.and_then(|asset| faults.take("amount", payable(&self.amount, asset.decimals)));
        let all = request_id.zip(destination).zip(asset.zip(amount));
        let ((request_id, (network, destination)), (asset, amount)) = faults.check(all)?;
        let (account_id, chain, asset) = (self.account_id, network.chain, asset.clone());
        let chain_ref = network.chain_ref.clone();
        // Each network lists its native currency.
        let gas = GasCurrency::of(network).ok_or_else(Problem::failed)?;
        Ok(Order { request_id, account_id, chain, chain_ref, asset, amount, destination, gas })
    }

    /// The field that has the destination's address.
    pub(super) const fn destination_field(&self) -> &'static str {
        if self.address_destination.is_some() { "address_destination.address" } else { "destination_address" }
    }

    /// The destination in whichever of its two forms it was sent, and the names of its fields there.
    fn destination(&self, faults: &mut Faults) -> Option<Place> {
        match (&self.address_destination, &self.destination_address, &self.destination_chain) {
            (Some(Object(AddressDestination { address, chain })), None, None) => Some(Place {
                address: ("address_destination.address", address.clone()),
                chain: ("address_destination.chain", chain.clone()),
            }),
            (None, Some(address), Some(chain)) => Some(Place {
                address: ("destination_address", address.clone()),
                chain: ("destination_chain", chain.clone()),
            }),
            (None, Some(_), None) => refused(faults, "destination_chain", "is required beside destination_address"),
            (None, None, Some(_)) => refused(faults, "destination_address", "is required beside destination_chain"),
            (None, None, None) => refused(faults, "address_destination", "is required: {\"address\", \"chain\"}"),
            (Some(_), ..) => {
                let detail = "must be sent alone, without destination_address and destination_chain";
                refused(faults, "address_destination", detail)
            }
        }
    }
}

/// A destination as it was sent: the name of each field, and its text.
struct Place {
    address: (&'static str, String),
    chain: (&'static str, String),
}

impl Place {
    fn read<'n>(&self, networks: &'n [Network], faults: &mut Faults) -> Option<(&'n Network, Address)> {
        let (field, text) = &self.chain;
        let chain: Chain = faults.take(field, openapi::chain(text))?;
        let Some(network) = networks.iter().find(|network| network.chain == chain) else {
            return refused(faults, field, "is not followed by this service: `GET /v2/assets` tells which chains are");
        };
        let (field, text) = &self.address;
        let address = faults.take(field, Address::parse(chain.family(), text))?;
        if let Some(what) = what_of_nobody(chain, &address) {
            return refused(faults, field, &format!("is {what}: nobody could spend what is sent there"));
        }
        if network.assets.iter().any(|asset| asset.id == AssetId::Token(address)) {
            return refused(faults, field, "is the token itself; send to the address of who is to be paid");
        }
        Some((network, address))
    }
}

/// The asset with this symbol. No two listed assets of a chain may have it, for then it does not say what is to be paid.
fn asset<'n>(network: &'n Network, symbol: &str, faults: &mut Faults) -> Option<&'n Asset> {
    let mut named = network.assets.iter().filter(|asset| asset.symbol == symbol);
    match (named.next(), named.next()) {
        (Some(asset), None) => Some(asset),
        (None, _) => {
            let symbols: Vec<&str> = network.assets.iter().map(|asset| asset.symbol.as_str()).collect();
            let detail = format!("is not listed on {}: they are {}", network.chain, symbols.join(", "));
            refused(faults, "currency_symbol", &detail)
        }
        (Some(_), Some(_)) => refused(faults, "currency_symbol", &format!("names several assets of {}", network.chain)),
    }
}

fn refused<T>(faults: &mut Faults, field: &str, detail: &str) -> Option<T> {
    faults.refuse(field, detail);
    None
}

/// What a list request asks for.
struct Page {
    filter: TransferFilter,
    limit: u8,
}

impl Page {
    fn parse(raw: Option<&str>) -> Result<Self, Problem> {
        let mut query = Query::parse_with_lists(raw, &LIST_PARAMETERS, &["identity_ids"]);
        let mut identity_ids = query.list("identity_ids", IDENTITY_IDS_MAX, query::text);
        identity_ids.extend(query.optional("identity_id", query::text));
        identity_ids.sort_unstable();
        identity_ids.dedup();
        let start = query.optional("start_time", str::parse::<TimeBound>);
        let end = query.optional("end_time", str::parse::<TimeBound>);
        if start.zip(end).is_some_and(|(start, end)| start > end) {
            query.refuse("start_time", "must not be after end_time");
        }
        let statuses = TransferStatus::ALL.map(TransferStatus::name).join(", ");
        let status = |text: &str| text.parse().map_err(|_: String| format!("must be one of {statuses}"));
        let mut filter = TransferFilter {
            kind: Some(TransferKind::Payment),
            account_id: query.optional("account_id", query::text),
            identity_ids,
            chain: query.optional("destination_chain", openapi::chain),
            symbol: query.optional("currency_symbol", query::text),
            status: query.optional("status", status),
            request_id: query.optional("request_id", str::parse),
            start: start.map(TimeBound::lower),
            end: end.map(TimeBound::upper),
            after: None,
        };
        let limit = query.optional("limit", |text| query::limit(text, LIMIT_MAX)).unwrap_or(LIMIT_DEFAULT);
        // A cursor belongs to its filters, so they are checked first.
        query.check()?;
        filter.after = query.optional("cursor", |text| place(text, &filter));
        query.check()?;
        Ok(Page { filter, limit })
    }

    /// The answer, when `found` is what the store has: up to one more than a page.
    fn show(&self, found: &[Transfer]) -> TransferList {
        let limit = usize::from(self.limit);
        let shown = &found[..found.len().min(limit)];
        let last = shown.last().filter(|_| found.len() > limit);
        let cursor =
            |last: &Transfer| cursor::encode_place(filters(&self.filter), last.created_at, last.id.0.as_bytes());
        TransferList { transfers: shown.iter().map(TransferResource::of).collect(), cursor: last.map(cursor) }
    }
}

fn place(text: &str, filter: &TransferFilter) -> Result<(Timestamp, TransferId), cursor::CursorError> {
    let (at, id) = cursor::decode_place(text, filters(filter))?;
    Ok((at, TransferId(Uuid::from_slice(&id).map_err(|_| cursor::CursorError::Malformed)?)))
}

/// A filter that is not set counts as an empty field, which no set one is.
fn filters(filter: &TransferFilter) -> [u8; 8] {
    let TransferFilter { account_id, identity_ids, chain, symbol, status, request_id, start, end, kind: _, after: _ } =
        filter;
    let time = |at: &Option<Timestamp>| at.map_or(String::new(), |at| at.0.to_string());
    let fields = [
        "transfers".to_owned(),
        account_id.clone().unwrap_or_default(),
        chain.map_or(String::new(), |chain| chain.name().to_owned()),
        symbol.clone().unwrap_or_default(),
        status.map_or(String::new(), |status| status.name().to_owned()),
        request_id.map_or(String::new(), |id| id.to_string()),
        time(start),
        time(end),
    ];
    cursor::hash_of(fields.iter().chain(identity_ids).map(String::as_bytes))
}

impl TransferResource {
    /// The resource that shows `transfer`.
    pub fn of(transfer: &Transfer) -> Self {
        let data = TransferData::of(transfer);
        TransferResource {
            id: data.id,
            request_id: data.request_id,
            account_id: data.account_id.to_owned(),
            identity_id: data.identity_id.to_owned(),
            source_address: data.source_address,
            address_destination: AddressDestination {
                address: data.address_destination.address,
                chain: data.address_destination.chain.to_owned(),
            },
            destination_address: data.destination_address,
            destination_chain: data.destination_chain,
            destination_account_id: data.destination_account_id.map(str::to_owned),
            currency_symbol: data.currency_symbol.to_owned(),
            amount: data.amount,
            status: data.status,
            transaction_hash: data.transaction_hash,
            created_at: data.created_at,
            updated_at: data.updated_at,
            submitted_at: data.submitted_at,
            confirmed_at: data.confirmed_at,
            failure_details: data.failure_details.map(|FailureData { code, reason, transaction_hash }| {
                FailureDetails { code, reason: reason.to_owned(), transaction_hash }
            }),
            expires_at: data.expires_at,
            network_fee: data.network_fee.map(|FeeData { amount, currency_symbol, usd, paid_by, charged_to }| {
                let currency_symbol = currency_symbol.to_owned();
                NetworkFeeResource { amount, currency_symbol, usd, paid_by, charged_to }
            }),
        }
    }
}
