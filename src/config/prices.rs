//! The section `[transfers.prices]`: a URL that answers what native currencies cost.
//!
//! The URL may hold a key, so no error shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use url::{Host, Url};

use crate::config::{ConfigError, key};
use crate::gas::Price;
use crate::prices::{PriceFeed, QuoteRule};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PricesSection {
    url: String,
    #[serde(default = "every_secs")]
    every_secs: u64,
    #[serde(default = "max_age_secs")]
    max_age_secs: u64,
    symbols: BTreeMap<String, SymbolSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SymbolSection {
    price: String,
    #[serde(default)]
    time: Option<String>,
    least: String,
    most: String,
}

const fn every_secs() -> u64 {
    60
}

const fn max_age_secs() -> u64 {
    900
}

impl PricesSection {
    pub(super) fn check(self) -> Result<PriceFeed, ConfigError> {
        let url = Url::parse(&self.url).ok().filter(is_safe).ok_or_else(|| {
            key("transfers.prices.url", "expected a URL that begins with https://; http:// only on this machine")
        })?;
        for (name, secs, least) in
            [("every_secs", self.every_secs, 10), ("max_age_secs", self.max_age_secs, 2 * self.every_secs)]
        {
            if !(least..=86_400).contains(&secs) {
                return Err(key(&format!("transfers.prices.{name}"), format!("expected {least} to 86400")));
            }
        }
        if self.symbols.is_empty() {
            let what = "no currency is named; add a section such as [transfers.prices.symbols.ETH]";
            return Err(key("transfers.prices.symbols", what));
        }
        let quotes = self.symbols.into_iter().map(|(symbol, section)| {
            let rule = section.check(&format!("transfers.prices.symbols.{symbol}"))?;
            Ok((symbol, rule))
        });
        Ok(PriceFeed {
            url,
            every: Duration::from_secs(self.every_secs),
            max_age: Duration::from_secs(self.max_age_secs),
            quotes: quotes.collect::<Result<_, ConfigError>>()?,
        })
    }
}

/// Whoever could answer in place of the other side would set our prices.
fn is_safe(url: &Url) -> bool {
    let is_here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || url.scheme() == "http" && is_here
}

impl SymbolSection {
    fn check(self, at: &str) -> Result<QuoteRule, ConfigError> {
        for (name, pointer) in [("price", Some(&self.price)), ("time", self.time.as_ref())] {
            if pointer.is_some_and(|pointer| !pointer.starts_with('/')) {
                let what = "expected a JSON pointer, such as /ethereum/usd";
                return Err(key(&format!("{at}.{name}"), what));
            }
        }
        let bound = |name: &str, text: &str| {
            let what = "expected a decimal of USD in quotes, more than 0, such as \"500\"";
            text.parse::<Price>().map_err(|_| key(&format!("{at}.{name}"), what))
        };
        let (least, most) = (bound("least", &self.least)?, bound("most", &self.most)?);
        if least > most {
            return Err(key(&format!("{at}.least"), format!("expected no more than {at}.most")));
        }
        Ok(QuoteRule { price: self.price, time: self.time, least, most })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::config::Config;
    use crate::prices::PriceFeed;

    const ETH: &str = "[transfers.prices.symbols.ETH]\nprice = \"/eth/usd\"\nleast = \"500\"\nmost = \"20000\"";

    fn parse(keys: &str, symbol: &str) -> Result<PriceFeed, String> {
        let text = format!(
            "[chains.ETHEREUM_TESTNET]\nrpc = [\"http://a\"]\n[transfers]\nsigner = \"unix:s\"\n[transfers.prices]\n{keys}\n{symbol}\n"
        );
        let config = Config::parse("landfall.toml", &text, |_| Some("canary".to_owned()));
        config.map(|config| config.prices.unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn prices_come_from_a_url_each_minute_and_are_good_for_a_quarter_of_an_hour() {
        let feed = parse("url = \"https://prices.example/all?key=${KEY}\"", ETH).unwrap();
        assert_eq!(feed.url.as_str(), "https://prices.example/all?key=canary");
        assert_eq!((feed.every, feed.max_age), (Duration::from_secs(60), Duration::from_secs(900)));
        let rule = &feed.quotes["ETH"];
        assert_eq!((rule.least.to_string(), rule.most.to_string()), ("500".to_owned(), "20000".to_owned()));
    }

    #[test]
    fn what_cannot_be_a_source_of_prices_is_refused_and_its_key_not_shown() {
        let url = "url = \"https://prices.example/${KEY}\"";
        let cases = [
            (
                "url = \"http://prices.example/${KEY}\"".to_owned(),
                ETH.to_owned(),
                "transfers.prices.url: expected a URL",
            ),
            ("url = \"${KEY}\"".to_owned(), ETH.to_owned(), "transfers.prices.url: expected a URL"),
            (format!("{url}\nevery_secs = 9"), ETH.to_owned(), "transfers.prices.every_secs: expected 10 to 86400"),
            (
                format!("{url}\nmax_age_secs = 60"),
                ETH.to_owned(),
                "transfers.prices.max_age_secs: expected 120 to 86400",
            ),
            (
                format!("{url}\n[transfers.prices.symbols]"),
                String::new(),
                "transfers.prices.symbols: no currency is named",
            ),
            (
                url.to_owned(),
                ETH.replace("/eth/usd", "eth.usd"),
                "transfers.prices.symbols.ETH.price: expected a JSON pointer",
            ),
            (url.to_owned(), ETH.replace("\"500\"", "\"0\""), "transfers.prices.symbols.ETH.least: expected a decimal"),
            (
                url.to_owned(),
                ETH.replace("\"500\"", "\"30000\""),
                "transfers.prices.symbols.ETH.least: expected no more than",
            ),
        ];
        for (keys, symbol, expected) in cases {
            let refused = parse(&keys, &symbol).unwrap_err();
            assert!(refused.contains(expected) && !refused.contains("canary"), "{keys}: {refused}");
        }
    }
}
