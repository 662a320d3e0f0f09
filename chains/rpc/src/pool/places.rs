//! Where endpoints are: URLs of the configuration, and what may be shown of them.
//!
//! Promises: an endpoint is named by host and port, and `#2` behind it where two share them. Path, query, credentials
//! and headers are in no name and no error. `http` and `https` are read from, `ws` and `wss` only wake up.

use landfall_chain::Chain;
use reqwest::header::HeaderMap;
use url::Url;

use crate::error::RpcError;
use crate::http::header_map;

/// Where an endpoint is, and what is sent along.
#[derive(Clone)]
pub struct EndpointUrl {
    /// `http` and `https` are read from; `ws` and `wss` only wake up.
    pub url: Url,
    /// Names and values; both may be secrets.
    pub headers: Vec<(String, String)>,
}

/// A URL that can be used, and what may be shown of it.
pub(crate) struct Place {
    pub(crate) id: String,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) wakes: bool,
}

impl Place {
    /// The places of all `urls`, in their order.
    pub(crate) fn all(chain: Chain, urls: Vec<EndpointUrl>) -> Result<Vec<Place>, RpcError> {
        let mut places: Vec<Place> = Vec::with_capacity(urls.len());
        for (index, url) in urls.into_iter().enumerate() {
            let place = Place::of(url, &places);
            places.push(place.map_err(|reason| match reason {
                Some(reason) => RpcError::Url { chain, position: index + 1, reason },
                None => RpcError::Header { chain, position: index + 1 },
            })?);
        }
        Ok(places)
    }

    /// `None` is a header that cannot be sent.
    fn of(EndpointUrl { url, headers }: EndpointUrl, before: &[Place]) -> Result<Self, Option<&'static str>> {
        let wakes = match url.scheme() {
            "http" | "https" => false,
            "ws" | "wss" => true,
            _ => return Err(Some("is neither http nor https nor wss")),
        };
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(Some("has no host"));
        };
        let host = format!("{host}:{port}");
        let is_same = |place: &&Place| place.wakes == wakes && place.id.split(['#', ' ']).next() == Some(&host);
        let number = match before.iter().filter(is_same).count() {
            0 => String::new(),
            taken => format!("#{}", taken + 1),
        };
        let id = format!("{host}{number}{}", if wakes { " (wake-ups)" } else { "" });
        let headers = header_map(&headers).ok_or(None)?;
        Ok(Place { id, url, headers, wakes })
    }
}

impl From<Url> for EndpointUrl {
    fn from(url: Url) -> Self {
        EndpointUrl { url, headers: Vec::new() }
    }
}

impl std::fmt::Debug for EndpointUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointUrl").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}
