//! Refusals as RFC 9457 problems: `type`, `title`, `status`, `detail`, and our `code` and `errors`.
//!
//! Every refusal of the interface is made here. A 500 says nothing of its cause to the client; the cause is logged,
//! once, where the problem is made.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::error;
use utoipa::ToSchema;

use crate::api::openapi;
use crate::store::StoreError;

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// What a client may decide on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    Unauthorized,
    InvalidArgument,
    NotFound,
    MethodNotAllowed,
    IdempotencyMismatch,
    Internal,
}

/// Why a request was refused (RFC 9457).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    #[serde(skip)]
    kind: Code,
    /// `urn:landfall:problem:` and the code.
    #[schema(format = "uri", examples("urn:landfall:problem:INVALID_ARGUMENT"))]
    r#type: String,
    /// The code in words.
    #[schema(value_type = String, examples("Invalid argument"))]
    title: &'static str,
    /// The HTTP status.
    #[schema(examples(400))]
    status: u16,
    /// What is wrong with this request, for people.
    #[schema(examples("limit must be an integer from 1 to 25"))]
    detail: String,
    #[schema(schema_with = openapi::code)]
    code: &'static str,
    /// What is wrong with which parameter; with `INVALID_ARGUMENT` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ParameterError>,
}

/// What is wrong with a parameter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(super) struct ParameterError {
    #[schema(examples("limit"))]
    pub parameter: String,
    #[schema(examples("must be an integer from 1 to 25"))]
    pub detail: String,
}

impl Code {
    pub(super) const ALL: [Code; 6] = [
        Code::Unauthorized,
        Code::InvalidArgument,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::IdempotencyMismatch,
        Code::Internal,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Code::Unauthorized => "UNAUTHORIZED",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::NotFound => "NOT_FOUND",
            Code::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Code::IdempotencyMismatch => "IDEMPOTENCY_MISMATCH",
            Code::Internal => "INTERNAL",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Code::Unauthorized => "Unauthorized",
            Code::InvalidArgument => "Invalid argument",
            Code::NotFound => "Not found",
            Code::MethodNotAllowed => "Method not allowed",
            Code::IdempotencyMismatch => "Idempotency mismatch",
            Code::Internal => "Internal error",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Code::Unauthorized => StatusCode::UNAUTHORIZED,
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Code::IdempotencyMismatch => StatusCode::CONFLICT,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl Problem {
    pub(super) fn unauthorized(detail: String) -> Self {
        Problem::new(Code::Unauthorized, detail)
    }

    pub(super) fn invalid(errors: Vec<ParameterError>) -> Self {
        let details: Vec<_> = errors.iter().map(|error| format!("{} {}", error.parameter, error.detail)).collect();
        Problem { errors, ..Problem::new(Code::InvalidArgument, details.join("; ")) }
    }

    pub(super) fn not_found(detail: &str) -> Self {
        Problem::new(Code::NotFound, detail.to_owned())
    }

    pub(super) fn method_not_allowed() -> Self {
        Problem::new(Code::MethodNotAllowed, "this path does not take this method; `Allow` tells which".to_owned())
    }

    pub(super) fn idempotency_mismatch() -> Self {
        let detail = "another request had this request_id: send the same body, or another request_id";
        Problem::new(Code::IdempotencyMismatch, detail.to_owned())
    }

    /// Logs the cause, which the client is not told.
    pub(super) fn internal(cause: StoreError) -> Self {
        error!(error = &cause as &dyn std::error::Error, "a request was answered with 500: {cause}");
        Problem::new(Code::Internal, "the request could not be answered; try again later".to_owned())
    }

    fn new(kind: Code, detail: String) -> Self {
        Problem {
            kind,
            r#type: format!("urn:landfall:problem:{}", kind.name()),
            title: kind.title(),
            status: kind.status().as_u16(),
            detail,
            code: kind.name(),
            errors: Vec::new(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.kind.status(), axum::Json(&self)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, MEDIA_TYPE);
        if self.kind == Code::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
