//! The page to browse the interface with: served by the binary, to anybody, whole, and with nothing from elsewhere.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use landfall::api::{Api, Settings, openapi_json, router};
use landfall::key::Environment;
use landfall::time::Clock;
use serde_json::Value;
use tower::ServiceExt;

use crate::harness::postgres::{Engine, TestStore};

async fn send(router: &Router, method: Method, path: &str) -> (StatusCode, HeaderMap, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    (parts.status, parts.headers, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn the_page_is_whole_and_loads_nothing_from_elsewhere() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    let router = router(store.db.clone(), Environment::Test);
    let (status, headers, _) = send(&router, Method::GET, "/docs").await;
    assert_eq!(
        (status, &headers[header::LOCATION]),
        (StatusCode::SEE_OTHER, &header::HeaderValue::from_static("/docs/"))
    );

    let (status, headers, page) = send(&router, Method::GET, "/docs/").await;
    assert_eq!(status, StatusCode::OK);
    assert!(headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/html"));
    let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("default-src 'self';") && !policy.contains("http"), "{policy}");
    assert!(headers.contains_key("x-request-id"));
    let links: Vec<&str> = [" src=\"", " href=\""]
        .iter()
        .flat_map(|attribute| page.split(attribute).skip(1))
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(links.len() >= 4, "{page}");
    for link in links {
        assert!(!link.contains("//"), "{link} is elsewhere");
        let (status, _, text) = send(&router, Method::GET, &format!("/docs/{}", link.trim_start_matches("./"))).await;
        assert!(status == StatusCode::OK && !text.is_empty(), "{link}: {status}");
    }
    let (_, _, start) = send(&router, Method::GET, "/docs/swagger-initializer.js").await;
    assert!(start.contains("\"/openapi.json\"") && start.contains("\"validatorUrl\": \"none\""), "{start}");

    let (status, _, document) = send(&router, Method::GET, "/openapi.json").await;
    assert_eq!(status, StatusCode::OK);
    let [served, printed]: [Value; 2] = [&document, &openapi_json()].map(|text| serde_json::from_str(text).unwrap());
    assert_eq!(served, printed);
}

#[tokio::test]
async fn what_the_page_does_not_have_is_refused_as_everywhere() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    let router = router(store.db.clone(), Environment::Test);
    for (method, path, expected) in [
        (Method::GET, "/docs/nothing.js", "NOT_FOUND"),
        (Method::GET, "/docs/../Cargo.toml", "NOT_FOUND"),
        (Method::POST, "/docs/", "METHOD_NOT_ALLOWED"),
        (Method::DELETE, "/openapi.json", "METHOD_NOT_ALLOWED"),
        (Method::GET, "/docsx", "UNAUTHORIZED"),
        (Method::GET, "/v2/assets", "UNAUTHORIZED"),
    ] {
        let (_, _, text) = send(&router, method, path).await;
        let problem: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}"));
        assert_eq!(problem["code"], expected, "{path}");
    }
}

#[tokio::test]
async fn the_page_is_served_under_its_own_name_alone_so_that_no_other_site_reads_it() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    let settings = Settings { host: "api.example.com:8443".to_owned(), ..Settings::of(Environment::Test) };
    let router = Api::new(store.db.clone(), settings, Clock::system()).router();
    let status = async |path: &str, host: &str| {
        let request = Request::get(path).header(header::HOST, host).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    for host in [
        "api.example.com",
        "API.example.com:1",
        "localhost",
        "localhost:8080",
        "127.0.0.1:8080",
        "[::1]:8080",
        "192.0.2.1",
    ] {
        assert_eq!(status("/docs/", host).await, 200, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "example.com",
        "",
        ":80",
        "[::1",
    ] {
        for path in ["/docs/", "/openapi.json"] {
            assert_eq!(status(path, host).await, 421, "{host}");
        }
        assert_eq!(status("/v2/assets", host).await, 401, "a site that has no key reads nothing there");
    }
}
