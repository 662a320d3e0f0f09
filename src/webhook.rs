//! Webhooks as operators register them: which URLs are taken, and the key that signs for one.
//!
//! Only what the URL itself says is judged here; what its name resolves to is judged where it is connected to.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::{Host, Url};

const URL_CHARS_MAX: usize = 2_048;
const SIGNING_KEY_PREFIX: &str = "whsec_";

/// Why a URL is not taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WebhookUrlError {
    #[error("webhook url: {0}")]
    Malformed(String),
    #[error("webhook url: longer than 2048 characters")]
    TooLong,
    #[error("webhook url: scheme {0:?}; expected https (or http together with --allow-private)")]
    Scheme(String),
    #[error("webhook url: credentials and fragments are not taken")]
    Extras,
    #[error("webhook url: {0} is not reachable from the internet; --allow-private takes it all the same")]
    Private(String),
}

/// Checks a webhook's URL. `allow_private` takes plain http and addresses of private networks.
///
/// # Errors
/// See [`WebhookUrlError`].
pub fn check_url(text: &str, allow_private: bool) -> Result<Url, WebhookUrlError> {
    if text.len() > URL_CHARS_MAX {
        return Err(WebhookUrlError::TooLong);
    }
    let url = Url::parse(text).map_err(|error| WebhookUrlError::Malformed(error.to_string()))?;
    match url.scheme() {
        "https" => {}
        "http" if allow_private => {}
        other => return Err(WebhookUrlError::Scheme(other.to_owned())),
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(WebhookUrlError::Extras);
    }
    let host = url.host().ok_or_else(|| WebhookUrlError::Malformed("no host".to_owned()))?;
    if !allow_private && is_private(&host) {
        return Err(WebhookUrlError::Private(host.to_string()));
    }
    Ok(url)
}

/// A signing key from 32 random bytes, in the form of Standard Webhooks.
pub fn signing_key(random: [u8; 32]) -> String {
    format!("{SIGNING_KEY_PREFIX}{}", STANDARD.encode(random))
}

/// The bytes of a signing key.
///
/// # Errors
/// A text that is no signing key.
pub fn signing_key_bytes(key: &str) -> Result<Vec<u8>, base64::DecodeError> {
    STANDARD.decode(key.strip_prefix(SIGNING_KEY_PREFIX).unwrap_or(key))
}

fn is_private(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost") || !name.contains('.')
        }
        Host::Ipv4(address) => is_private_ip(IpAddr::V4(*address)),
        Host::Ipv6(address) => is_private_ip(address.to_ipv4_mapped().map_or(IpAddr::V6(*address), IpAddr::V4)),
    }
}

fn is_private_ip(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            let shared = first == 100 && (64..128).contains(&second);
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_broadcast()
                || first == 0
                || first >= 224
                || shared
        }
        // Only 2000::/3 is routed.
        IpAddr::V6(v6) => v6.segments()[0] & 0xe000 != 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_https_urls_are_taken() {
        for url in [
            "https://example.com/hook",
            "https://example.com:8443/a?b=c",
            "https://93.184.216.34/",
            "https://[2606:2800::1]/",
        ] {
            assert!(check_url(url, false).is_ok(), "{url}");
        }
    }

    #[test]
    fn urls_that_point_inside_need_leave() {
        let urls = [
            "https://localhost/",
            "https://api.localhost/",
            "https://intranet/",
            "https://127.0.0.1/",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://10.1.2.3/",
            "https://192.168.0.1/",
            "https://169.254.169.254/",
            "https://100.64.0.1/",
            "https://0.0.0.0/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[fd00::1]/",
            "https://[fe80::1]/",
        ];
        for url in urls {
            assert!(matches!(check_url(url, false), Err(WebhookUrlError::Private(_))), "{url}");
            assert!(check_url(url, true).is_ok(), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_with_what_is_wrong() {
        let cases = [
            (
                "http://example.com/",
                "webhook url: scheme \"http\"; expected https (or http together with --allow-private)",
            ),
            (
                "ftp://example.com/",
                "webhook url: scheme \"ftp\"; expected https (or http together with --allow-private)",
            ),
            ("https://user@example.com/", "webhook url: credentials and fragments are not taken"),
            ("https://example.com/#x", "webhook url: credentials and fragments are not taken"),
            ("example.com", "webhook url: relative URL without a base"),
        ];
        for (url, expected) in cases {
            assert_eq!(check_url(url, false).unwrap_err().to_string(), expected);
        }
        assert!(check_url("http://example.com/", true).is_ok());
    }
}
