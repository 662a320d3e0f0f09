//! The section `[nats]`: where events are published beside the webhooks.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use url::Url;

use crate::config::{ConfigError, key, url};
use crate::delivery::{NatsOptions, REPLICAS_MAX};

const NAME_MAX: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NatsSection {
    urls: Vec<String>,
    #[serde(default)]
    credentials: Option<PathBuf>,
    #[serde(default)]
    ca: Option<PathBuf>,
    #[serde(default = "stream")]
    stream: String,
    #[serde(default = "subject")]
    subject: String,
    #[serde(default = "replicas")]
    replicas: usize,
}

fn stream() -> String {
    "LANDFALL".to_owned()
}

fn subject() -> String {
    "landfall".to_owned()
}

fn replicas() -> usize {
    1
}

impl NatsSection {
    /// The section, if its keys fit together. Relative paths start in `folder`.
    pub(super) fn check(self, folder: &Path) -> Result<NatsOptions, ConfigError> {
        if self.urls.is_empty() {
            return Err(key("nats.urls", "at least one URL is needed, such as nats://localhost:4222"));
        }
        let urls = self.urls.iter().enumerate();
        let urls = urls.map(|(index, url)| check_url(&format!("nats.urls[{index}]"), url)).collect::<Result<_, _>>()?;
        if !is_name(&self.stream) {
            return Err(key("nats.stream", "expected 1 to 64 letters, digits, _ or -"));
        }
        if !self.subject.split('.').all(is_name) {
            let what = "expected letters, digits, _ or -, in parts separated by dots; the type of the event and the account follow";
            return Err(key("nats.subject", what));
        }
        if !(1..=REPLICAS_MAX).contains(&self.replicas) {
            return Err(key("nats.replicas", format!("expected 1 to {REPLICAS_MAX}")));
        }
        let [credentials, ca] = [self.credentials, self.ca].map(|path| path.map(|path| folder.join(path)));
        let NatsSection { stream, subject, replicas, .. } = self;
        Ok(NatsOptions { urls, credentials, ca, stream, subject, replicas })
    }
}

/// The URL may hold a password: nothing of it is reported.
fn check_url(at: &str, text: &str) -> Result<Url, ConfigError> {
    let url = url(at, text, "nats://USER:PASSWORD@HOST:PORT")?;
    match url.scheme() {
        "nats" | "tls" if url.host_str().is_some_and(|host| !host.is_empty()) => Ok(url),
        "nats" | "tls" => Err(key(at, "a host is missing")),
        _ => Err(key(at, "expected nats://HOST:PORT, or tls://HOST:PORT where the server speaks TLS")),
    }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const CHAIN: &str = "[chains.ETHEREUM_TESTNET]\nrpc = [\"http://a\"]\n";

    fn parse(section: &str) -> Result<Config, String> {
        let variable = |name: &str| (name == "KEY").then(|| "canary".to_owned());
        Config::parse("landfall.toml", &format!("{CHAIN}{section}"), variable).map_err(|error| error.to_string())
    }

    #[test]
    fn the_section_has_defaults_and_its_secrets_are_not_shown() {
        assert!(parse("").unwrap().nats.is_none(), "without the section nothing is published");
        let nats = parse("[nats]\nurls = [\"nats://me:${KEY}@a:4222\", \"tls://b\"]\n").unwrap().nats.unwrap();
        assert_eq!((nats.stream.as_str(), nats.subject.as_str(), nats.replicas), ("LANDFALL", "landfall", 1));
        assert_eq!(nats.urls[0].password(), Some("canary"));
        let shown = format!("{nats:?}");
        assert!(shown.contains("a:4222, b") && !shown.contains("canary"), "{shown}");
    }

    #[test]
    fn bad_input_is_one_line_that_names_the_key() {
        let url = "urls = [\"nats://a\"]";
        let cases = [
            ("".to_owned(), "nats: missing field `urls`"),
            ("urls = []".to_owned(), "nats.urls: at least one URL is needed, such as nats://localhost:4222"),
            (
                "urls = [\"nats://a\", \"https://${KEY}\"]".to_owned(),
                "nats.urls[1]: expected nats://HOST:PORT, or tls://HOST:PORT where the server speaks TLS",
            ),
            ("urls = [\"a/${KEY}\"]".to_owned(), "nats.urls[0]: malformed URL: relative URL without a base"),
            ("urls = [\"nats:///${KEY}\"]".to_owned(), "nats.urls[0]: a host is missing"),
            (
                "urls = [\"nats://me:12/${KEY}@a:4222\"]".to_owned(),
                "nats.urls[0]: the URL cannot be taken apart: expected nats://USER:PASSWORD@HOST:PORT, where @ : / ? # % in a name, a \
                 password or a value are written %40 %3A %2F %3F %23 %25 (percent-encoded)",
            ),
            (format!("{url}\nstream = \"a.b\""), "nats.stream: expected 1 to 64 letters, digits, _ or -"),
            (
                format!("{url}\nsubject = \"a..b\""),
                "nats.subject: expected letters, digits, _ or -, in parts separated by dots; the type of the event and the account follow",
            ),
            (
                format!("{url}\nsubject = \"a.>\""),
                "nats.subject: expected letters, digits, _ or -, in parts separated by dots; the type of the event and the account follow",
            ),
            (format!("{url}\nreplicas = 0"), "nats.replicas: expected 1 to 5"),
            (format!("{url}\nreplicas = 6"), "nats.replicas: expected 1 to 5"),
            (
                format!("{url}\nwindow = 1"),
                "nats.window: unknown field `window`, expected one of `urls`, `credentials`, `ca`, `stream`, `subject`, `replicas`",
            ),
        ];
        for (keys, expected) in cases {
            let error = parse(&format!("[nats]\n{keys}\n")).unwrap_err();
            assert_eq!(error, format!("config key {expected}"));
        }
    }
}
