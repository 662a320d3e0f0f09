//! The OpenAPI document, generated from the handlers and their types; `openapi.json` is its committed text.
//!
//! Values of enums come from the domain's own lists, so that the document cannot fall behind. The interface's
//! `*_UNSPECIFIED` values are left out: they are refused in requests and never appear in answers.

use std::borrow::Cow;

use landfall_chain::{Chain, Family};
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, Object, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type,
};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, Header, OpenApi, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{Modify, OpenApi as _, PartialSchema, ToSchema};

use crate::account::{AccountStatus, AccountType};
use crate::api::deposits::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::api::examples::{Examples, operations};
use crate::api::problem::Code;
use crate::api::webhook_bodies::{Pushed, TestEnvelope};
use crate::api::{accounts, assets};
use crate::deposit::DepositStatus;
use crate::event::{
    DEPOSIT_EVENT, FEED_TYPES, IDENTITY_EVENT, SPONSOR, TEST_EVENT, TRANSFER_FAILED_EVENT,
    TRANSFER_RECONCILIATION_EVENT, TRANSFER_SUBMITTED_EVENT,
};
use crate::gas::ChargedTo;
use crate::identity::{IdentityStatus, IdentityType, SubStatus};
use crate::policy::{Period, PolicyStatus};
use crate::transfer::{Announcement, FailureCode, TransferStatus};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Landfall", version = "2", description = "Landfall watches blockchains for money that arrives at the accounts of a custody service. It confirms each deposit \
        when it is final, and tells of it by signed webhooks and by this API.\n\nThe first request: make a key by \
        `landfall key create --name me`, which prints it, and send \
        `curl -H \"Authorization: Bearer <API_KEY>\" http://127.0.0.1:8080/v2/accounts`. With the key behind `Authorize` each \
        operation on this page can be tried.\n\nWhatever is refused is told as a `Problem`, but for what cannot \
        be read as a request: a head that is malformed or does not name one host (400), that has more than 100 headers or is over 4 KiB above \
        what is taken (431; usually 20 KiB), or a transfer coding other than chunked (501). That is answered without a body and without `X-Request-Id`.\n\nAt most a quarter of the requests that are answered \
        at a time are of one API key, and a large body counts as several: more are `RATE_LIMITED`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")),
    paths(
        super::accounts::open, super::accounts::list, super::accounts::by_id, super::addresses::add, super::balances::of_account,
        super::coverage::of_account,
        super::assets::list, super::deposits::list, super::deposits::by_id,
        super::events::list,
        super::identities::open, super::identities::by_id,
        super::transfers::create, super::transfers::list, super::transfers::by_id,
        super::policies::by_id, super::gas::credit,
        super::webhooks::list, super::webhooks::create, super::webhooks::by_id, super::webhooks::delete,
        super::webhooks::rotate_key, super::webhooks::test,
    ),
    tags(
        (name = "Accounts", description = "What holds money on chains, under addresses of its own."),
        (name = "Assets", description = "What is credited."),
        (name = "Deposits", description = "Money that arrived on a chain at an account's address."),
        (name = "Events", description = "The changes of deposits, transfers and identities, in one sequence."),
        (name = "Gas credit", description = "What sending costs. It is beyond the interface."),
        (name = "Identities", description = "Who accounts belong to."),
        (name = "Transaction limits", description = "What may be sent in a period."),
        (name = "Transfers", description = "Money that an account sends; the service pays the gas."),
        (name = "Webhooks", description = "Receivers of events. What `x-landfall-extension` marks is beyond the interface."),
    ),
    components(schemas(TestEnvelope)),
    security(("bearer" = [])),
    modifiers(&Bearer, &Everywhere, &Pushed, &Examples),
)]
struct Document;

struct Bearer;

/// What all operations have in common: signatures, refusals, and the headers of answers.
struct Everywhere;

/// The interface's `Chain`: the type itself lives on the lowest floor and knows no OpenAPI.
pub(super) struct ChainName;

/// How many deposits a page has.
pub(super) struct PageLimit;

/// How many accounts a page has, or events.
pub(super) struct AccountPageLimit;

/// The status of a transfer.
pub(super) struct TransferStatusName;

/// An address that is to be watched, and the chains of one family that it is watched on; or chains without an address.
pub(super) struct NewAccountAddress;

/// A text to filter by. No stored text is empty or has control characters.
pub(super) struct FilterText;

pub(super) fn openapi() -> OpenApi {
    Document::openapi()
}
/// What an event is about.
pub(super) struct EventType;

/// The document, as it is committed.
pub fn openapi_json() -> String {
    let json = openapi().to_pretty_json();
    let mut json = json.expect("the document holds strings and numbers, which always serialise");
    json.push('\n');
    json
}

impl Modify for Bearer {
    fn modify(&self, document: &mut OpenApi) {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.description = Some("An API key: `Authorization: Bearer <API_KEY>`.".to_owned());
        let signature = "Compulsory once a public key is paired with the API key (`landfall key pair`): a JWT with the \
                         paired key's algorithm (EdDSA, ES256 or RS256) and the claims `sub` (id of the API key: its 8 \
                         characters behind `lf_live_` or `lf_test_`), `aud` (host), `method`, `uri` (path and query as \
                         sent), `bodyHash` (SHA-256 of the body in lower case hex), `nonce` (16 to 128 characters, never \
                         used before), `iat` and `exp` (whole seconds, at most 60 apart). The nonces of requests that only \
                         read are remembered by each instance of the service for itself, until it restarts.";
        let header = ApiKeyValue::with_description("X-Request-Signature", signature);
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
        components.add_security_scheme("signature", SecurityScheme::ApiKey(ApiKey::Header(header)));
    }
}

/// A header of every answer.
const REQUEST_ID: &str = "X-Request-Id";
/// Operations whose body may be left out. The derive can say so only of bodies that may also be `null`.
const BODY_OPTIONAL: [&str; 1] = ["rotate_webhook_key"];

impl Modify for Everywhere {
    fn modify(&self, document: &mut OpenApi) {
        for operation in document.paths.paths.values_mut().flat_map(operations) {
            let is_optional = operation.operation_id.as_deref().is_some_and(|id| BODY_OPTIONAL.contains(&id));
            if let Some(RefOr::T(body)) = operation.request_body.as_mut().filter(|_| is_optional) {
                body.required = Some(Required::False);
            }
            let keys = operation.security.iter_mut().flatten();
            let signed: Vec<_> = keys.map(|key| key.clone().add::<_, [&str; 0], &str>("signature", [])).collect();
            operation.security.get_or_insert_default().extend(signed);
            for code in Code::EVERYWHERE {
                let status = code.status().as_str().to_owned();
                match operation.responses.responses.get_mut(&status) {
                    Some(RefOr::T(other)) => other.description = format!("{} {}", other.description, code.meaning()),
                    _ => drop(operation.responses.responses.insert(status, refusal(code).into())),
                }
            }
            for response in operation.responses.responses.values_mut() {
                if let RefOr::T(response) = response {
                    let id = Ref::new(format!("#/components/headers/{REQUEST_ID}"));
                    response.headers.insert(REQUEST_ID.to_owned(), RefOr::Ref(id));
                }
            }
        }
        let id = text_header("Names this request in our logs.");
        document.components.get_or_insert_default().headers.insert(REQUEST_ID.to_owned(), RefOr::T(id));
    }
}

/// The response with which a request is refused by this code.
fn refusal(code: Code) -> utoipa::openapi::Response {
    let problem = Content::new(Some(Ref::from_schema_name("Problem")));
    let response = ResponseBuilder::new().description(code.meaning()).content("application/problem+json", problem);
    match code {
        Code::RateLimited | Code::Overloaded => {
            let seconds = Header::new(ObjectBuilder::new().schema_type(Type::Integer));
            response.header("Retry-After", seconds).build()
        }
        Code::MethodNotAllowed => response.header("Allow", text_header("The methods that it has.")).build(),
        Code::Unauthorized => response.header("WWW-Authenticate", text_header("`Bearer`.")).build(),
        _ => response.build(),
    }
}

fn text_header(description: &str) -> Header {
    let mut header = Header::new(ObjectBuilder::new().schema_type(Type::String));
    header.description = Some(description.to_owned());
    header
}

impl PartialSchema for ChainName {
    fn schema() -> RefOr<Schema> {
        one_of("A network.", Chain::ALL.map(Chain::name)).into()
    }
}

impl PartialSchema for TransferStatusName {
    fn schema() -> RefOr<Schema> {
        transfer_status().into()
    }
}

impl PartialSchema for PageLimit {
    fn schema() -> RefOr<Schema> {
        limit(LIMIT_MAX, LIMIT_DEFAULT)
    }
}

impl PartialSchema for AccountPageLimit {
    fn schema() -> RefOr<Schema> {
        limit(accounts::LIMIT_MAX, accounts::LIMIT_DEFAULT)
    }
}

impl PartialSchema for FilterText {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1));
        text.pattern(Some(r"^[^\u0000-\u001F\u007F-\u009F\uFFFD]+$")).into()
    }
}

impl PartialSchema for NewAccountAddress {
    fn schema() -> RefOr<Schema> {
        let evm = text_of(
            "evm-address",
            "^0x[0-9A-Fa-f]{40}$",
            "In any case of letters; a wrong EIP-55 checksum is refused.",
        );
        let solana = text_of("solana-address", "^[1-9A-HJ-NP-Za-km-z]{32,44}$", "Base58 of 32 bytes.");
        let families = OneOfBuilder::new().item(address_of(Family::Evm, evm)).item(address_of(Family::Solana, solana));
        families.item(derived_address()).into()
    }
}

impl ToSchema for FilterText {}

impl ToSchema for NewAccountAddress {}
impl PartialSchema for EventType {
    fn schema() -> RefOr<Schema> {
        event_type().into()
    }
}

impl ToSchema for EventType {}

impl ToSchema for PageLimit {}

impl ToSchema for TransferStatusName {}

impl ToSchema for AccountPageLimit {}

impl ToSchema for ChainName {
    fn name() -> Cow<'static, str> {
        "Chain".into()
    }
}

pub(super) fn source_type() -> Object {
    one_of("`ACCOUNT` when the sender is one of our accounts, else `ON_CHAIN`.", ["ON_CHAIN", "ACCOUNT"])
}

pub(super) fn deposit_status() -> Object {
    let names = [DepositStatus::Pending, DepositStatus::Confirmed, DepositStatus::Failed].map(DepositStatus::name);
    let meaning =
        "`PENDING` was seen and is not final, `CONFIRMED` is final for ever, `FAILED` did not happen after all.";
    one_of(meaning, names)
}

pub(super) fn transfer_status() -> Object {
    let meaning = "`ACCEPTED` is validated and reserved, `SUBMITTED` is on its way to a final block; `CONFIRMED`, `FAILED` and `DROPPED` \
                   are the end: the latter two were not paid, and never will be.";
    one_of(meaning, TransferStatus::ALL.map(TransferStatus::name))
}

pub(super) fn failure_code() -> Object {
    one_of("What a program decides on.", FailureCode::ALL.map(FailureCode::name))
}

pub(super) fn paid_by() -> Object {
    one_of("Who paid the chain: an address of the service.", [SPONSOR])
}

pub(super) fn charged_to() -> Object {
    let meaning = "`CREDIT`: the gas credit paid all of it; `BILLED`: it, or a part of it, is billed; `PLATFORM`: nobody is charged.";
    one_of(meaning, ChargedTo::names())
}

pub(super) fn policy_status() -> Object {
    one_of("`REMOVED` limits nothing any more.", PolicyStatus::ALL.map(PolicyStatus::name))
}

pub(super) fn policy_scope() -> Object {
    one_of("Whose transfers count together.", ["ORGANIZATION", "IDENTITY", "ACCOUNT"])
}

pub(super) fn period() -> Object {
    let meaning =
        "`TRANSACTION` is each transfer alone; `DAY`, `WEEK` and `MONTH` are the last 24 hours, 7 days and 30 days.";
    one_of(meaning, Period::ALL.map(Period::name))
}

pub(super) fn event_type() -> Object {
    one_of("What the event is about.", FEED_TYPES)
}

pub(super) fn deposit_event_type() -> Object {
    one_of("What the event is about.", [DEPOSIT_EVENT])
}

pub(super) fn identity_event_type() -> Object {
    one_of("What the event is about.", [IDENTITY_EVENT])
}

pub(super) fn transfer_submitted_type() -> Object {
    one_of("What the event is about.", [TRANSFER_SUBMITTED_EVENT])
}

pub(super) fn transfer_reconciliation_type() -> Object {
    one_of("What the event is about.", [TRANSFER_RECONCILIATION_EVENT])
}

pub(super) fn transfer_failed_type() -> Object {
    one_of("What the event is about.", [TRANSFER_FAILED_EVENT])
}

pub(super) fn stage() -> Object {
    let meaning = "`INCLUDED`: a canonical block has it; `DISPLACED`: a reorg took that block back; `CONFIRMED`: it is final for ever.";
    one_of(meaning, [Announcement::Included, Announcement::Displaced, Announcement::Confirmed].map(Announcement::name))
}

pub(super) fn block_number() -> Object {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let number = number.format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)));
    number.description(Some("Of the block that has it, or had it; on Solana a slot.")).build()
}

pub(super) fn test_event_type() -> Object {
    one_of("What the event is about.", [TEST_EVENT])
}

pub(super) fn account_type() -> Object {
    one_of("`OMNIBUS` is pooled, `SEGREGATED` one wallet on chain.", AccountType::ALL.map(AccountType::name))
}

pub(super) fn account_status() -> Object {
    let meaning = "`FROZEN` while its identity is suspended, `CLOSED` when that is terminated. Deposits are recorded in any case.";
    one_of(meaning, AccountStatus::ALL.map(AccountStatus::name))
}

pub(super) fn identity_type() -> Object {
    one_of("Whether the identity is a person.", IdentityType::ALL.map(IdentityType::name))
}

pub(super) fn identity_status() -> Object {
    one_of("Where the identity stands.", IdentityStatus::ALL.map(IdentityStatus::name))
}

pub(super) fn sub_status() -> Object {
    let names: Vec<&str> = std::iter::once("").chain(SubStatus::ALL.map(SubStatus::name)).collect();
    let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names));
    schema.description(Some("What the identity waits for; empty when it waits for nothing.")).build()
}

pub(super) fn asset_type() -> Object {
    one_of("`BASE` is the native currency; `SPL_TOKEN` is a mint of either token program.", assets::TYPES)
}

/// Reads a chain's name.
pub(super) fn chain(text: &str) -> Result<Chain, String> {
    text.parse().map_err(|_| format!("must be one of {}", Chain::ALL.map(Chain::name).join(", ")))
}

pub(super) fn code() -> Object {
    let row = |code: Code| format!("| `{}` | {} | {} |\n", code.name(), code.status().as_u16(), code.meaning());
    let rows: String = Code::ALL.map(row).concat();
    let table = format!("What a program decides on.\n\n| code | status | meaning |\n| --- | --- | --- |\n{rows}");
    let names = Code::ALL.map(Code::name);
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).description(Some(table)).build()
}

/// An address of this family, with at least one of its chains.
fn address_of(family: Family, address: Object) -> Object {
    let object = on_chains(Chain::ALL.into_iter().filter(|chain| chain.family() == family));
    object.property("address", address).required("address").build()
}

/// Chains of any family without an address: on each of them it is derived.
fn derived_address() -> Object {
    on_chains(Chain::ALL.into_iter()).description(Some("Derived: this service holds the key.")).build()
}

fn on_chains(chains: impl Iterator<Item = Chain>) -> ObjectBuilder {
    let names: Vec<&str> = chains.map(Chain::name).collect();
    let name = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names));
    let chains = ArrayBuilder::new().items(name).min_items(Some(1)).max_items(Some(Chain::ALL.len()));
    let object = ObjectBuilder::new().property("chains", chains).required("chains");
    object.additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

fn text_of(format: &str, pattern: &str, description: &str) -> Object {
    let text = ObjectBuilder::new().schema_type(Type::String).format(Some(SchemaFormat::Custom(format.to_owned())));
    text.pattern(Some(pattern)).description(Some(description)).build()
}

fn limit(max: u8, default: u8) -> RefOr<Schema> {
    let schema =
        ObjectBuilder::new().schema_type(Type::Integer).format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)));
    schema.minimum(Some(1)).maximum(Some(max)).default(Some(default.into())).into()
}

fn one_of<const N: usize>(description: &str, names: [&'static str; N]) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).description(Some(description)).build()
}
