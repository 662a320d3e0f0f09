//! Pages to browse and try the interface: `/docs/`, Swagger UI served by the binary, and the document itself,
//! `/openapi.json`.
//!
//! Both are served without a key: they hold what `openapi.json` holds, and nothing of this service. They have places of
//! their own, so that clients without a key take no places from those with one. They are served only under the names of
//! `hosts`. The page loads nothing from elsewhere; its policy has the browser refuse it.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::api::AppState;
use crate::api::limits::counted_as;
use crate::api::middleware::client;
use crate::api::openapi::openapi;
use crate::api::problem::Problem;
use crate::hosts;

const DOCUMENT: &str = "/openapi.json";
/// Swagger UI sets styles of its own and draws its pictures from `data:`.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
);

pub(super) fn routes(state: &AppState) -> Router {
    // Without `none` the page would send the document to a validator in the internet.
    let config = Config::new([DOCUMENT]).validator_url("none").show_extensions(true);
    let page = SwaggerUi::new("/docs").url(DOCUMENT, openapi()).config(config);
    let page = Router::from(page).method_not_allowed_fallback(async || Problem::method_not_allowed());
    let page = page.layer(map_response(async |mut response: Response| {
        if response.status() == StatusCode::NOT_FOUND {
            return Problem::nothing_here().into_response();
        }
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY);
        response
    }));
    let page = page.layer(from_fn_with_state(state.clone(), place));
    hosts::only(page, vec![state.settings.host.clone()], "api.host")
}

async fn place(State(state): State<AppState>, request: Request, next: Next) -> Result<Response, Problem> {
    let address = counted_as(client(&request)).to_string();
    let place = state.gate.page_places.take(&address).map_err(|why| Problem::no_place(why, "for this address"))?;
    Ok(place.keep_for(next.run(request).await))
}
