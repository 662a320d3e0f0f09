//! Under which host names the routes without a key are served.
//!
//! A page of another site could let its own name point to this machine, and then read what a browser here can reach. So
//! a request must name an address, `localhost`, or a configured name. Routes with a key need no such check: no page has
//! a key.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};

/// The router, which answers 421 under any name but these; `key` is the configuration key that adds a name.
pub fn only(router: Router, names: Vec<String>, key: &'static str) -> Router {
    let names: Arc<[String]> = names.into();
    router.layer(from_fn(move |request: Request, next: Next| {
        let is_ours = named(&request).is_none_or(|host| is_known(host, &names));
        async move { if is_ours { next.run(request).await } else { misdirected(key) } }
    }))
}

/// The host that a request names. HTTP/1.0, which no browser sends, may name none.
fn named(request: &Request) -> Option<&str> {
    let header = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or_default());
    request.uri().authority().map(|authority| authority.as_str()).or(header)
}

fn is_known(host: &str, names: &[String]) -> bool {
    let name = without_port(host);
    let literal = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    literal.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || !name.is_empty() && names.iter().any(|own| without_port(own).eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

fn misdirected(key: &str) -> Response {
    let text =
        format!("this is not served under that name: ask by an address or as localhost; {key} sets another name\n");
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}
