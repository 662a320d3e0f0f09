//! The interface to browse and to try: `/docs/`, Swagger UI served by the binary, and the document itself, `/openapi.json`.
//!
//! Both without a key: they hold what `openapi.json` holds, and nothing of this service. The page loads nothing from
//! elsewhere, and may not: its policy says so to the browser.

use axum::Router;
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::api::openapi::openapi;
use crate::api::problem::Problem;

const DOCUMENT: &str = "/openapi.json";
/// Swagger UI sets styles of its own and draws its pictures from `data:`.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
);

pub(super) fn routes() -> Router {
    // Without `none` the page would send the document to a validator in the internet.
    let config = Config::new([DOCUMENT]).validator_url("none").show_extensions(true);
    let page = SwaggerUi::new("/docs").url(DOCUMENT, openapi()).config(config);
    Router::from(page).method_not_allowed_fallback(async || Problem::method_not_allowed()).layer(map_response(
        async |mut response: Response| {
            if response.status() == StatusCode::NOT_FOUND {
                return Problem::nothing_here().into_response();
            }
            response.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY);
            response
        },
    ))
}
