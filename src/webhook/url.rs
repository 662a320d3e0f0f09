//! Which URLs a webhook may have, and which addresses each may lead to: the guard against requests to our internal
//! network.
//!
//! Promises: a URL that its text alone shows to be wrong is refused when it is registered. Every address is vetted
//! again at each connection. Parsers differ in what they tolerate, so a URL that is written oddly is refused. Pure:
//! names are resolved by `resolver`.

use std::net::IpAddr;

use url::{Host, Url};

use crate::webhook::address::{AllowedNetworks, is_public};

const URL_CHARS_MAX: usize = 2_048;
const NAME_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;
/// Lower ports are those of mail, shells and the like, to which a POST could send a command.
const PORT_MIN: u16 = 1_024;
/// Names that only a network's own resolver knows (RFC 6761, RFC 6762, RFC 8375, ICANN's reserved ones), by their end.
const INSIDE: [&str; 15] = [
    "localhost",
    "local",
    "localdomain",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "in-addr.arpa",
    "ip6.arpa",
    "onion",
    "test",
    "invalid",
];

/// Why a URL is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WebhookUrlError {
    #[error("webhook url: {0}")]
    Malformed(String),
    #[error("webhook url: longer than 2048 characters")]
    TooLong,
    /// Another scheme than http is not shown: what was written in its place may be a secret.
    #[error("webhook url: {}expected https", if .0 == "http" { "scheme \"http\"; " } else { "" })]
    Scheme(String),
    #[error("webhook url: credentials and fragments are not taken")]
    Extras,
    #[error("webhook url: port {0}; expected 443 or one from 1024 on")]
    Port(u16),
    #[error("webhook url: {0} is not reachable from the internet")]
    Private(String),
}

/// The protocol to a webhook.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scheme {
    Https,
    /// Only to an internal network that an operator allowed.
    Http,
}

/// A webhook's host: an address, or a name that has addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    Address(IpAddr),
    Name(String),
}

impl WebhookUrlError {
    /// Whether an operator could allow it (allowed networks).
    pub fn needs_allowance(&self) -> bool {
        match self {
            WebhookUrlError::Scheme(scheme) => scheme == "http",
            WebhookUrlError::Private(_) | WebhookUrlError::Port(_) => true,
            WebhookUrlError::Malformed(_) | WebhookUrlError::TooLong | WebhookUrlError::Extras => false,
        }
    }
}

/// Checks the text of a webhook's URL. `allowed` permits plain http, any port and internal names too.
///
/// # Errors
/// See [`WebhookUrlError`].
pub fn check_url(text: &str, allowed: &AllowedNetworks) -> Result<Url, WebhookUrlError> {
    let malformed = |what: &str| WebhookUrlError::Malformed(what.to_owned());
    if text.chars().count() > URL_CHARS_MAX {
        return Err(WebhookUrlError::TooLong);
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(malformed("spaces, backslashes and control characters are not taken"));
    }
    let url = Url::parse(text).map_err(|error| malformed(&error.to_string()))?;
    match url.scheme() {
        "https" => {}
        "http" if !allowed.is_empty() => {}
        other => return Err(WebhookUrlError::Scheme(other.to_owned())),
    }
    let rest = text.split_once(':').and_then(|(_, rest)| rest.strip_prefix("//"));
    let authority = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let authority = authority.filter(|authority| !authority.is_empty()).ok_or_else(|| malformed("no host"))?;
    if authority.contains('@') || !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(WebhookUrlError::Extras);
    }
    if authority.contains('%') {
        return Err(malformed("an encoded host is not taken"));
    }
    let port = url.port_or_known_default().unwrap_or_default();
    if allowed.is_empty() && port != 443 && port < PORT_MIN {
        return Err(WebhookUrlError::Port(port));
    }
    match target(&url)? {
        Target::Address(address) => vet_address(&url, address, allowed)?,
        Target::Name(name) if allowed.is_empty() && is_inside(&name) => return Err(WebhookUrlError::Private(name)),
        Target::Name(name) if !is_name(&name) => return Err(malformed("the host is no name of the DNS")),
        Target::Name(_) => {}
    }
    // The parsed URL is returned, so that events are sent to exactly what was checked here.
    if url.as_str().len() > URL_CHARS_MAX { Err(WebhookUrlError::TooLong) } else { Ok(url) }
}

/// The host of a URL, before names are resolved.
///
/// # Errors
/// A URL without a host.
pub fn target(url: &Url) -> Result<Target, WebhookUrlError> {
    match url.host() {
        Some(Host::Domain(name)) => Ok(Target::Name(name.to_owned())),
        Some(Host::Ipv4(address)) => Ok(Target::Address(address.into())),
        Some(Host::Ipv6(address)) => Ok(Target::Address(address.into())),
        None => Err(WebhookUrlError::Malformed("no host".to_owned())),
    }
}

impl Scheme {
    /// # Errors
    /// A scheme that no webhook has.
    pub fn of(url: &Url) -> Result<Self, WebhookUrlError> {
        match url.scheme() {
            "https" => Ok(Scheme::Https),
            "http" => Ok(Scheme::Http),
            other => Err(WebhookUrlError::Scheme(other.to_owned())),
        }
    }

    /// Whether a webhook may be reached with this scheme at `address`. Without encryption only internal networks.
    pub fn may_reach(self, address: IpAddr, allowed: &AllowedNetworks) -> bool {
        match self {
            Scheme::Https => is_public(address) || allowed.contain(address),
            Scheme::Http => !is_public(address) && allowed.contain(address),
        }
    }
}

/// Whether a webhook may be sent to `address` under this URL.
///
/// # Errors
/// [`WebhookUrlError::Private`], with the URL's host and never with what its name stands for.
pub fn vet_address(url: &Url, address: IpAddr, allowed: &AllowedNetworks) -> Result<(), WebhookUrlError> {
    let scheme = Scheme::of(url)?;
    if scheme.may_reach(address, allowed) {
        Ok(())
    } else if scheme == Scheme::Http && is_public(address) {
        Err(WebhookUrlError::Scheme("http".to_owned()))
    } else {
        Err(WebhookUrlError::Private(url.host_str().unwrap_or_default().to_owned()))
    }
}

/// RFC 1035, 2.3.4.
fn is_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= NAME_CHARS_MAX && name.split('.').all(|label| (1..=LABEL_CHARS_MAX).contains(&label.len()))
}

fn is_inside(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    !name.contains('.')
        || INSIDE.iter().any(|end| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}
