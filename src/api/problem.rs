//! Refusals as RFC 9457 problems: `type`, `title`, `status`, `detail`, and our `code`, `request_id` and `errors`.
//!
//! Every refusal of the API is made here, and `Code::ALL` is the table of them; the document and the tests follow it. A
//! 500 says nothing of its cause to the client. The cause is logged once, where the problem is made. The id of the
//! request is added by `middleware`, which knows it.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use landfall_chain::SignerUnavailable;
use serde::Serialize;
use tracing::{error, warn};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::account::AccountStatus;
use crate::api::openapi;
use crate::api::places::NoPlace;
use crate::api::policies::LimitResource;
use crate::gas::Usd;
use crate::key::Scope;
use crate::policy::Exceeded;
use crate::store::StoreError;
use crate::transfer::{TransferId, TransferStatus};

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");
/// After how long a client may try again when the API was overloaded.
const OVERLOADED_RETRY_SECS: u64 = 1;
/// After how long a client may try again while the database is away.
const AWAY_RETRY_SECS: u64 = 5;
/// After how long a client may ask again for balances that were not read yet.
const BALANCE_RETRY_SECS: u64 = 2;
/// The same while the signer is away.
const SIGNER_RETRY_SECS: u64 = 5;

/// What a client may base decisions on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    InvalidArgument,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    IdempotencyMismatch,
    DuplicateTransaction,
    AccountNotActive,
    AccountSegregated,
    PreviousKeysValid,
    PayloadTooLarge,
    SourceNotManaged,
    AssetNotSendable,
    InsufficientFunds,
    TransactionLimitExceeded,
    GasCreditExhausted,
    RateLimited,
    HeadersTooLarge,
    Internal,
    Overloaded,
    Timeout,
    BalanceUnknown,
    SignerUnavailable,
    TransfersNotConfigured,
    SendingHalted,
}

/// Why a request is refused.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    kind: Code,
    detail: String,
    errors: Vec<ParameterError>,
    retry_after_secs: Option<u64>,
    /// The transfer that a request made before.
    transfer: Option<(TransferId, Option<TransferStatus>)>,
    /// The policy that refuses a transfer.
    exceeded: Option<Box<Exceeded>>,
}

/// Why a request was refused (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
struct Shown<'a> {
    /// `urn:landfall:problem:` and the code.
    #[schema(value_type = String, format = "uri")]
    r#type: String,
    /// The code as a phrase.
    #[schema(value_type = String)]
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong with this request, for people.
    #[schema(value_type = String)]
    detail: &'a str,
    #[schema(schema_with = openapi::code)]
    code: &'static str,
    /// Names this request in our logs; also in the header `X-Request-Id` of every answer.
    #[schema(value_type = String)]
    request_id: &'a str,
    /// What is wrong with which parameter; with `INVALID_ARGUMENT` only.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<ParameterError>)]
    errors: &'a [ParameterError],
    /// The transfer that this `request_id` made before, if it made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "uuid", nullable = false)]
    transfer_id: Option<String>,
    /// What became of that transfer; with `DUPLICATE_TRANSACTION` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = openapi::transfer_status)]
    transfer_status: Option<&'static str>,
    /// The policy that refuses the transfer; with `TRANSACTION_LIMIT_EXCEEDED` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "uuid", nullable = false)]
    policy_id: Option<&'a str>,
    /// What that policy leaves in the period of its limit; with `TRANSACTION_LIMIT_EXCEEDED` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    left: Option<LimitResource>,
}

/// What is wrong with a parameter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(super) struct ParameterError {
    pub parameter: String,
    pub detail: String,
}

impl Code {
    /// In the order of their statuses.
    pub(super) const ALL: [Code; 26] = [
        Code::InvalidArgument,
        Code::Unauthorized,
        Code::Forbidden,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::IdempotencyMismatch,
        Code::DuplicateTransaction,
        Code::AccountNotActive,
        Code::AccountSegregated,
        Code::PreviousKeysValid,
        Code::PayloadTooLarge,
        Code::SourceNotManaged,
        Code::AssetNotSendable,
        Code::InsufficientFunds,
        Code::TransactionLimitExceeded,
        Code::GasCreditExhausted,
        Code::RateLimited,
        Code::HeadersTooLarge,
        Code::Internal,
        Code::Overloaded,
        Code::Timeout,
        Code::BalanceUnknown,
        Code::SignerUnavailable,
        Code::TransfersNotConfigured,
        Code::SendingHalted,
    ];
    /// The codes that every path may answer with.
    pub(super) const EVERYWHERE: [Code; 10] = [
        Code::Unauthorized,
        Code::Forbidden,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::PayloadTooLarge,
        Code::RateLimited,
        Code::HeadersTooLarge,
        Code::Internal,
        Code::Overloaded,
        Code::Timeout,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::Unauthorized => "UNAUTHORIZED",
            Code::Forbidden => "FORBIDDEN",
            Code::NotFound => "NOT_FOUND",
            Code::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Code::RequestTimeout => "REQUEST_TIMEOUT",
            Code::IdempotencyMismatch => "IDEMPOTENCY_MISMATCH",
            Code::DuplicateTransaction => "DUPLICATE_TRANSACTION",
            Code::AccountNotActive => "ACCOUNT_NOT_ACTIVE",
            Code::AccountSegregated => "ACCOUNT_SEGREGATED",
            Code::PreviousKeysValid => "PREVIOUS_KEYS_VALID",
            Code::PayloadTooLarge => "PAYLOAD_TOO_LARGE",
            Code::SourceNotManaged => "SOURCE_NOT_MANAGED",
            Code::AssetNotSendable => "ASSET_NOT_SENDABLE",
            Code::InsufficientFunds => "INSUFFICIENT_FUNDS",
            Code::TransactionLimitExceeded => "TRANSACTION_LIMIT_EXCEEDED",
            Code::GasCreditExhausted => "GAS_CREDIT_EXHAUSTED",
            Code::RateLimited => "RATE_LIMITED",
            Code::HeadersTooLarge => "HEADERS_TOO_LARGE",
            Code::Internal => "INTERNAL",
            Code::Overloaded => "OVERLOADED",
            Code::Timeout => "TIMEOUT",
            Code::BalanceUnknown => "BALANCE_UNKNOWN",
            Code::SignerUnavailable => "SIGNER_UNAVAILABLE",
            Code::TransfersNotConfigured => "TRANSFERS_NOT_CONFIGURED",
            Code::SendingHalted => "SENDING_HALTED",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Code::InvalidArgument => "Invalid argument",
            Code::Unauthorized => "Unauthorized",
            Code::Forbidden => "Forbidden",
            Code::NotFound => "Not found",
            Code::MethodNotAllowed => "Method not allowed",
            Code::RequestTimeout => "Request timeout",
            Code::IdempotencyMismatch => "Idempotency mismatch",
            Code::DuplicateTransaction => "Duplicate transaction",
            Code::AccountNotActive => "Account not active",
            Code::AccountSegregated => "Account segregated",
            Code::PreviousKeysValid => "Previous keys valid",
            Code::PayloadTooLarge => "Payload too large",
            Code::SourceNotManaged => "Source not managed",
            Code::AssetNotSendable => "Asset not sendable",
            Code::InsufficientFunds => "Insufficient funds",
            Code::TransactionLimitExceeded => "Transaction limit exceeded",
            Code::GasCreditExhausted => "Gas credit exhausted",
            Code::RateLimited => "Rate limited",
            Code::HeadersTooLarge => "Headers too large",
            Code::Internal => "Internal error",
            Code::Overloaded => "Overloaded",
            Code::Timeout => "Timeout",
            Code::BalanceUnknown => "Balance unknown",
            Code::SignerUnavailable => "Signer unavailable",
            Code::TransfersNotConfigured => "Transfers not configured",
            Code::SendingHalted => "Sending halted",
        }
    }

    pub(super) const fn status(self) -> StatusCode {
        match self {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::Unauthorized => StatusCode::UNAUTHORIZED,
            Code::Forbidden => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Code::IdempotencyMismatch
            | Code::DuplicateTransaction
            | Code::AccountNotActive
            | Code::AccountSegregated
            | Code::PreviousKeysValid => StatusCode::CONFLICT,
            Code::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::SourceNotManaged
            | Code::AssetNotSendable
            | Code::InsufficientFunds
            | Code::TransactionLimitExceeded
            | Code::GasCreditExhausted => StatusCode::UNPROCESSABLE_ENTITY,
            Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Code::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Code::Overloaded
            | Code::Timeout
            | Code::BalanceUnknown
            | Code::SignerUnavailable
            | Code::TransfersNotConfigured
            | Code::SendingHalted => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What it means and what to do, for the document.
    pub(super) const fn meaning(self) -> &'static str {
        match self {
            Code::InvalidArgument => "The request is malformed, or a part of it is missing, unknown or out of range.",
            Code::Unauthorized => "The API key or the signature of the request is missing or not valid.",
            Code::Forbidden => "The API key does not have the scope that this operation needs.",
            Code::NotFound => "There is nothing at this path, or no object with this id.",
            Code::MethodNotAllowed => "The path does not take this method; `Allow` names those it takes.",
            Code::RequestTimeout => "The body did not arrive in time.",
            Code::IdempotencyMismatch => "Another request had this `request_id`; take another one.",
            Code::DuplicateTransaction => {
                "This very request was processed, and its transfer has ended: `transfer_id` and `transfer_status` name it. To pay again, take another `request_id`."
            }
            Code::AccountNotActive => {
                "The account is frozen or closed: it pays nothing, and a closed one gets no further address."
            }
            Code::AccountSegregated => {
                "The account is SEGREGATED: it has one address on each family of chains, and gets no further one."
            }
            Code::PreviousKeysValid => {
                "Too many keys of the webhook still sign; rotate after `previous_key_expires_at`, or with a `previous_key_valid_secs` of 0."
            }
            Code::PayloadTooLarge => "The body is too large.",
            Code::SourceNotManaged => {
                "The account has no address on this chain whose key is held here: it has none, or one that was imported."
            }
            Code::AssetNotSendable => {
                "This asset cannot be sent on this chain; deposits of it are credited all the same."
            }
            Code::InsufficientFunds => {
                "The paying address has less available than is to be paid; `detail` has both amounts."
            }
            Code::TransactionLimitExceeded => {
                "A policy on transfers leaves too little room: `policy_id` names it, and `left` is what it leaves."
            }
            Code::GasCreditExhausted => {
                "The gas credit is used up or held by transfers under way, and this service bills nothing beyond it: `GET /v2/gas-credit` shows it."
            }
            Code::RateLimited => "Too many requests; send it again after `Retry-After` seconds.",
            Code::HeadersTooLarge => "The URI and the headers are too large.",
            Code::Internal => {
                "Internal failure; try again later, signed anew where it was signed: its nonce may be used."
            }
            Code::Overloaded => {
                "Too much at once, or the database cannot be reached; nothing was done, send it again after `Retry-After` seconds, signed anew where it was signed: its nonce may be used."
            }
            Code::Timeout => "It took too long; whether it was done is not known, so ask before sending it again.",
            Code::BalanceUnknown => {
                "What the account has is not known on a chain that `detail` names: not read yet, not final yet, or the chain is halted \
                 or was not read for 5 minutes. Send it again after `Retry-After` seconds. Without this header an operator must act \
                 first, as `detail` says: the chain is not followed, or an asset is no longer listed."
            }
            Code::SignerUnavailable => {
                "An address is to be derived, and the signer cannot be reached; nothing was done, send it again after `Retry-After` \
                 seconds. Without this header no signer is configured: send the address, or an operator must act first."
            }
            Code::TransfersNotConfigured => "This service sends nothing: no signer is configured.",
            Code::SendingHalted => {
                "An operator has stopped the sending of transfers on this chain; send it again later."
            }
        }
    }
}

impl Problem {
    pub(super) const fn code(&self) -> Code {
        self.kind
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn unauthorized(detail: String) -> Self {
        Problem::new(Code::Unauthorized, detail)
    }

    pub(super) fn invalid(errors: Vec<ParameterError>) -> Self {
        let details: Vec<_> = errors.iter().map(|error| format!("{} {}", error.parameter, error.detail)).collect();
        Problem { errors, ..Problem::new(Code::InvalidArgument, details.join("; ")) }
    }

    /// For a key without the scope of a route.
    pub(super) fn forbidden(scope: Scope) -> Self {
        Problem::new(Code::Forbidden, format!("this API key does not have the scope `{}`", scope.name()))
    }

    pub(super) fn rate_limited(whose: &str, retry_after_secs: u64) -> Self {
        let detail = format!("too many requests {whose}; send it again after {retry_after_secs} s");
        Problem { retry_after_secs: Some(retry_after_secs), ..Problem::new(Code::RateLimited, detail) }
    }

    /// For a key with which `most` requests wait already.
    pub(super) fn too_many_wait(most: usize) -> Self {
        let detail = format!("{most} requests wait for events with this API key, which is as many as may at a time");
        Problem { retry_after_secs: Some(OVERLOADED_RETRY_SECS), ..Problem::new(Code::RateLimited, detail) }
    }

    /// For a client that has its share of the places, or when all are taken.
    pub(super) fn no_place(why: NoPlace, whose: &str) -> Self {
        match why {
            NoPlace::All => Problem::overloaded(),
            NoPlace::Share => {
                let detail = format!("as many requests are being answered {whose} as may at a time; nothing was done");
                Problem { retry_after_secs: Some(OVERLOADED_RETRY_SECS), ..Problem::new(Code::RateLimited, detail) }
            }
        }
    }

    pub(super) fn overloaded() -> Self {
        let detail = "too many requests are being answered; nothing was done, send it again later".to_owned();
        Problem { retry_after_secs: Some(OVERLOADED_RETRY_SECS), ..Problem::new(Code::Overloaded, detail) }
    }

    /// For a change that the store has not made. If others kept it from being made, the answer says that nothing was
    /// done.
    pub(super) fn unchanged(cause: StoreError) -> Self {
        if !cause.is_locked_out() {
            return Problem::internal(cause);
        }
        warn!(
            error = &cause as &dyn std::error::Error,
            "a request was answered with 503, others being in its way: {cause}"
        );
        let detail = "others are changing what this needs; nothing was done, send it again later".to_owned();
        Problem { retry_after_secs: Some(OVERLOADED_RETRY_SECS), ..Problem::new(Code::Overloaded, detail) }
    }

    /// For an account with balances that are not known: the chains, each with the assets if only some are not known.
    /// `remedies` is what an operator must do first. With any, `Retry-After` is left out, because waiting alone does
    /// not help.
    pub(super) fn balance_unknown(names: &[String], remedies: &[String]) -> Self {
        let unknown = format!("what this account has on {} is not known", names.join(", "));
        if remedies.is_empty() {
            let detail = format!("{unknown}; send it again later");
            return Problem {
                retry_after_secs: Some(BALANCE_RETRY_SECS),
                ..Problem::new(Code::BalanceUnknown, detail)
            };
        }
        Problem::new(Code::BalanceUnknown, format!("{unknown} until an operator {}", remedies.join(", and ")))
    }

    /// For a request while the database is down or starts.
    fn away(cause: &StoreError) -> Self {
        let why = cause as &dyn std::error::Error;
        warn!(error = why, "a request was answered with 503, the database being out of reach: {cause}");
        let detail = "the database cannot be reached; nothing was done, send it again later".to_owned();
        Problem { retry_after_secs: Some(AWAY_RETRY_SECS), ..Problem::new(Code::Overloaded, detail) }
    }

    /// The same for a request that has changed something before: it must not report that nothing was done.
    pub(super) fn behind_change(self) -> Self {
        if self.kind == Code::Overloaded { Problem::failed() } else { self }
    }

    pub(super) fn timeout() -> Self {
        Problem::new(Code::Timeout, "it took too long; whether it was done is not known".to_owned())
    }

    pub(super) fn request_timeout() -> Self {
        Problem::new(Code::RequestTimeout, "the body did not arrive in time".to_owned())
    }

    pub(super) fn payload_too_large(most: usize) -> Self {
        Problem::new(Code::PayloadTooLarge, format!("the body has more than {most} bytes"))
    }

    pub(super) fn headers_too_large(most: usize) -> Self {
        Problem::new(Code::HeadersTooLarge, format!("the URI and the headers have more than {most} bytes"))
    }

    pub(super) fn not_found(detail: &str) -> Self {
        Problem::new(Code::NotFound, detail.to_owned())
    }

    pub(super) fn nothing_here() -> Self {
        Problem::not_found("there is nothing at this path")
    }

    pub(super) fn method_not_allowed() -> Self {
        Problem::new(
            Code::MethodNotAllowed,
            "this path does not take this method; `Allow` names those it takes".to_owned(),
        )
    }

    pub(super) fn idempotency_mismatch() -> Self {
        let detail = "another request had this request_id: send the same body, or another request_id";
        Problem::new(Code::IdempotencyMismatch, detail.to_owned())
    }

    /// As [`Problem::idempotency_mismatch`]; `transfer` is what the other request made, if that was one.
    pub(super) fn other_transfer(transfer: Option<TransferId>) -> Self {
        Problem { transfer: transfer.map(|id| (id, None)), ..Problem::idempotency_mismatch() }
    }

    pub(super) fn duplicate_transaction(transfer: TransferId, status: TransferStatus) -> Self {
        let detail = format!(
            "this request was processed: transfer {transfer} is {status}; to pay again, take another request_id"
        );
        Problem { transfer: Some((transfer, Some(status))), ..Problem::new(Code::DuplicateTransaction, detail) }
    }

    pub(super) fn account_not_active(status: AccountStatus) -> Self {
        Problem::new(Code::AccountNotActive, format!("the account is {}, and pays nothing", status.name()))
    }

    /// For an account whose address spent what nobody here signed for.
    pub(super) fn account_quarantined(detail: String) -> Self {
        Problem::new(Code::AccountNotActive, detail)
    }

    /// For an account that is to get a further address.
    pub(super) fn account_closed(status: AccountStatus) -> Self {
        Problem::new(Code::AccountNotActive, format!("the account is {}, and gets no further address", status.name()))
    }

    pub(super) fn account_segregated() -> Self {
        let detail = "the account is SEGREGATED: it has one address on each family of chains, and gets no further one";
        Problem::new(Code::AccountSegregated, detail.to_owned())
    }

    pub(super) fn source_not_managed(detail: String) -> Self {
        Problem::new(Code::SourceNotManaged, detail)
    }

    pub(super) fn asset_not_sendable(detail: String) -> Self {
        Problem::new(Code::AssetNotSendable, detail)
    }

    pub(super) fn insufficient_funds(detail: String) -> Self {
        Problem::new(Code::InsufficientFunds, detail)
    }

    pub(super) fn over_limit(exceeded: Exceeded) -> Self {
        let detail = exceeded.to_string();
        Problem { exceeded: Some(Box::new(exceeded)), ..Problem::new(Code::TransactionLimitExceeded, detail) }
    }

    /// `needed` is what the transfer may cost, if there is a price.
    pub(super) fn gas_credit_exhausted(needed: Option<Usd>, remaining: Usd) -> Self {
        let needed = needed.map_or(String::new(), |needed| format!("it may cost {needed} USD, and "));
        Problem::new(Code::GasCreditExhausted, format!("{needed}{remaining} USD are left of the gas credit"))
    }

    pub(super) fn transfers_not_configured() -> Self {
        Problem::new(Code::TransfersNotConfigured, "this service sends nothing: no signer is configured".to_owned())
    }

    pub(super) fn sending_halted(detail: String) -> Self {
        Problem::new(Code::SendingHalted, detail)
    }

    pub(super) fn no_signer() -> Self {
        let detail = "no signer is configured, so no address can be derived: send the address";
        Problem::new(Code::SignerUnavailable, detail.to_owned())
    }

    /// Logs the cause. The client does not see it.
    pub(super) fn signer_away(cause: &SignerUnavailable) -> Self {
        warn!("a request was answered with 503, because its address could not be derived: {cause}");
        let detail = "the signer cannot be reached, so no address was derived; nothing was done, send it again later";
        let problem = Problem::new(Code::SignerUnavailable, detail.to_owned());
        Problem { retry_after_secs: Some(SIGNER_RETRY_SECS), ..problem }
    }

    pub(super) fn previous_keys_valid(detail: String) -> Self {
        Problem::new(Code::PreviousKeysValid, detail)
    }

    /// Logs the cause. The client does not see it.
    pub(super) fn internal(cause: StoreError) -> Self {
        if cause.is_away() {
            return Problem::away(&cause);
        }
        if cause.is_crowded_out() {
            warn!("a request was answered with 503, having waited for a connection to the store: {cause}");
            return Problem::overloaded();
        }
        error!(error = &cause as &dyn std::error::Error, "a request was answered with 500: {cause}");
        Problem::failed()
    }

    /// For a failure that was logged already.
    pub(super) fn failed() -> Self {
        Problem::new(Code::Internal, "the request could not be answered; try again later".to_owned())
    }

    /// Makes this the body of `response`, with the id of its request. The headers stay.
    pub(super) fn write_to(&self, response: &mut Response, request_id: &str) {
        let shown = Shown {
            r#type: format!("urn:landfall:problem:{}", self.kind.name()),
            title: self.kind.title(),
            status: self.kind.status().as_u16(),
            detail: &self.detail,
            code: self.kind.name(),
            request_id,
            errors: &self.errors,
            transfer_id: self.transfer.map(|(id, _)| id.to_string()),
            transfer_status: self.transfer.and_then(|(_, status)| status).map(TransferStatus::name),
            policy_id: self.exceeded.as_ref().map(|exceeded| exceeded.policy_id.as_str()),
            left: self.exceeded.as_ref().map(|exceeded| LimitResource::of(&exceeded.left)),
        };
        let body = serde_json::to_vec(&shown).expect("a problem holds strings and numbers, which always serialise");
        // Without a length of its own the server sets that of the new body.
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body);
    }

    fn new(kind: Code, detail: String) -> Self {
        Problem { kind, detail, errors: Vec::new(), retry_after_secs: None, transfer: None, exceeded: None }
    }
}

/// In the document the schema of a problem is that of [`Shown`].
impl PartialSchema for Problem {
    fn schema() -> RefOr<Schema> {
        Shown::schema()
    }
}

impl ToSchema for Problem {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((ParameterError::name().into(), ParameterError::schema()));
        schemas.push((LimitResource::name().into(), LimitResource::schema()));
    }
}

/// Status and headers only. The body is written where the request's id is known.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
        if self.kind == Code::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(secs) = self.retry_after_secs {
            headers.insert(header::RETRY_AFTER, secs.into());
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_something_is_never_reported_that_nothing_was_done() {
        assert_eq!(Problem::overloaded().behind_change().kind, Code::Internal);
        assert_eq!(Problem::nothing_here().behind_change().kind, Code::NotFound);
    }
}
