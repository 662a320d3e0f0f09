//! Reads prices of native currencies from a URL that answers JSON.
//!
//! Promises: a price is not recorded if it is no number, out of its bounds, older than it may be, or ten times more or
//! less than the last one. The last price then stays, and the log says why. Once the last one is too old, that is an
//! alarm. Nothing about transfers is decided here. Errors show the host of the URL and nothing else of it.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_chain::with_causes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

use crate::gas::{Observation, PRICE_DECIMALS, Price, PriceSource};
use crate::store::{Db, StoreError, prices};
use crate::time::{Clock, Pulse, Timestamp};

/// The time for a whole question: name, connection, TLS, answer, body.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// No answer is longer.
const BODY_BYTES_MAX: usize = 1 << 20;
/// A price that is so many times more or less than the last one is for a person to set.
const CHANGE_TIMES_MAX: u64 = 10;
/// How often the loop looks whether it is to end.
const STOP_POLL: Duration = Duration::from_millis(200);

/// Where prices come from, and which are believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PriceFeed {
    pub url: Url,
    pub every: Duration,
    /// How long a price is good for, and how old it may be when it comes.
    pub max_age: Duration,
    /// By symbol.
    pub quotes: BTreeMap<String, QuoteRule>,
}

/// Where one price stands in the answer, and which is believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuoteRule {
    /// JSON pointers (RFC 6901): to a number or a decimal, in USD; and to the Unix time in seconds at which it was observed.
    pub price: String,
    pub time: Option<String>,
    pub least: Price,
    pub most: Price,
}

/// Reads prices, in each process that runs: what another one has recorded already is not recorded again.
#[derive(Debug)]
pub struct PriceReader {
    feed: PriceFeed,
    http: reqwest::Client,
    db: Db,
}

/// Why an answer is of no use.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("{0}")]
    Http(String),
    #[error("HTTP status {0}")]
    Status(u16),
    #[error("an answer of more than {BODY_BYTES_MAX} bytes")]
    TooLong,
    #[error("no JSON: {0}")]
    NoJson(serde_json::Error),
}

/// Why a price is not believed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Unbelieved {
    #[error("nothing at {0}")]
    Missing(String),
    #[error("{0} is no price")]
    NoPrice(String),
    #[error("{price} is not from {least} to {most}")]
    OutOfBounds { price: Price, least: Price, most: Price },
    #[error("it was observed {0} s ago")]
    Old(u64),
    #[error("its time {0} is no Unix time in seconds")]
    NoTime(String),
    #[error(
        "{price} is {CHANGE_TIMES_MAX} times more or less than {last}, the last one: if it is right, `landfall gas price set`"
    )]
    Leap { price: Price, last: Price },
}

impl PriceReader {
    /// # Errors
    /// When no client can be built, for example without any root certificates.
    pub fn new(feed: PriceFeed, db: Db) -> reqwest::Result<Self> {
        // Installed once per process; a second call changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder()
            .timeout(ANSWER_TIME_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("Landfall/", env!("CARGO_PKG_VERSION")));
        let is_encrypted = feed.url.scheme() == "https";
        // The system's certificates are read only for TLS.
        let http = if is_encrypted { builder.build() } else { builder.tls_certs_only([]).build() }?;
        Ok(PriceReader { feed, http, db })
    }

    /// Asks once, and records what is believed and new. What is not is logged.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn tick(&self, clock: &Clock) -> Result<(), StoreError> {
        let host = self.feed.url.host_str().unwrap_or_default();
        let answer = match self.ask().await {
            Ok(answer) => answer,
            Err(why) => {
                warn!("{host} gives no prices: {why}");
                return Ok(());
            }
        };
        let now = clock.now();
        for (symbol, rule) in &self.feed.quotes {
            let mut reader = self.db.read().await?;
            let last = prices::of_moment(&mut reader, symbol, now).await?.map(|last| last.price);
            let good_until = prices::good_until(&mut reader, symbol).await?;
            drop(reader);
            // While the last one is good for more than half of its time, the same is not recorded again.
            let is_good = good_until.is_some_and(|until| until > now.plus(self.feed.max_age / 2));
            match rule.read(&answer, self.feed.max_age, last, now) {
                Ok(price) if last == Some(price) && is_good => {}
                Ok(price) => self.record(symbol, price, now).await?,
                Err(why) => warn!("the price of {symbol} that {host} gives is not believed: {why}"),
            }
        }
        Ok(())
    }

    /// Asks until `stop`.
    pub async fn run(self, clock: Clock, pulse: Pulse, stop: CancellationToken) {
        while !stop.is_cancelled() {
            pulse.beat(clock.now());
            if let Err(error) = self.tick(&clock).await {
                warn!("prices cannot be recorded and will be read again: {error}");
            }
            let next = clock.now().plus(self.feed.every);
            while !stop.is_cancelled() && clock.now() < next {
                pulse.beat(clock.now());
                tokio::time::sleep(STOP_POLL).await;
            }
        }
    }

    async fn ask(&self) -> Result<Value, Unread> {
        let failed = |error: reqwest::Error| Unread::Http(with_causes(&error.without_url()));
        let mut response = self.http.get(self.feed.url.clone()).send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(Unread::Status(response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > BODY_BYTES_MAX {
                return Err(Unread::TooLong);
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(Unread::NoJson)
    }

    async fn record(&self, symbol: &str, price: Price, now: Timestamp) -> Result<(), StoreError> {
        let observation = Observation { symbol: symbol.to_owned(), price, source: PriceSource::Http, at: now };
        let mut tx = self.db.begin().await?;
        prices::insert(&mut tx, &observation, Some(now.plus(self.feed.max_age))).await?;
        tx.commit().await?;
        info!("one {symbol} costs {price} USD");
        Ok(())
    }
}

impl QuoteRule {
    fn read(
        &self,
        answer: &Value,
        max_age: Duration,
        last: Option<Price>,
        now: Timestamp,
    ) -> Result<Price, Unbelieved> {
        if let Some(pointer) = &self.time {
            let time = answer.pointer(pointer).ok_or_else(|| Unbelieved::Missing(pointer.clone()))?;
            let secs = time.as_u64().ok_or_else(|| Unbelieved::NoTime(shown(time)))?;
            let age = now.since(Timestamp::from_secs(secs));
            if age > max_age {
                return Err(Unbelieved::Old(age.as_secs()));
            }
        }
        let quoted = answer.pointer(&self.price).ok_or_else(|| Unbelieved::Missing(self.price.clone()))?;
        let price = price_of(quoted).ok_or_else(|| Unbelieved::NoPrice(shown(quoted)))?;
        let QuoteRule { least, most, .. } = self;
        if price < *least || price > *most {
            return Err(Unbelieved::OutOfBounds { price, least: *least, most: *most });
        }
        match last {
            Some(last) if price.is_times(last, CHANGE_TIMES_MAX) => Err(Unbelieved::Leap { price, last }),
            Some(_) | None => Ok(price),
        }
    }
}

/// A number, or a text that is one; digits beyond those of a price are cut off.
fn price_of(quoted: &Value) -> Option<Price> {
    let text = match quoted {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let digits = usize::from(PRICE_DECIMALS);
    let cut = match text.split_once('.') {
        Some((whole, fraction)) if fraction.len() > digits && fraction.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{whole}.{}", &fraction[..digits])
        }
        Some(_) | None => text,
    };
    cut.parse().ok()
}

/// The beginning of a value of somebody else.
fn shown(value: &Value) -> String {
    const CHARS_MAX: usize = 40;
    let text: String = value.to_string().chars().take(CHARS_MAX).collect();
    text.escape_default().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const MAX_AGE: Duration = Duration::from_secs(900);

    fn price(text: &str) -> Price {
        text.parse().unwrap()
    }

    fn rule(time: bool) -> QuoteRule {
        let time = time.then(|| "/ether/at".to_owned());
        QuoteRule { price: "/ether/usd".to_owned(), time, least: price("500"), most: price("20000") }
    }

    fn read(quoted: &Value, last: Option<&str>) -> Result<String, String> {
        let answer = json!({ "ether": { "usd": quoted } });
        let read = rule(false).read(&answer, MAX_AGE, last.map(price), Timestamp::from_secs(NOW));
        read.map(|price| price.to_string()).map_err(|why| why.to_string())
    }

    #[test]
    fn a_number_or_a_decimal_within_its_bounds_is_a_price() {
        for (quoted, expected) in [
            (json!(3_021.45), "3021.45"),
            (json!(3_000), "3000"),
            (json!("3021.450"), "3021.45"),
            (json!("3021.123456789012345678"), "3021.123456789012"),
            (json!(500), "500"),
            (json!("20000"), "20000"),
        ] {
            assert_eq!(read(&quoted, None).as_deref(), Ok(expected), "{quoted}");
        }
    }

    #[test]
    fn what_is_no_price_or_out_of_bounds_is_not_believed() {
        for (quoted, expected) in [
            (json!("three thousand"), r#"\"three thousand\" is no price"#),
            (json!("3e3"), r#"\"3e3\" is no price"#),
            (json!(-3_000), "-3000 is no price"),
            (json!(0), "0 is no price"),
            (json!(null), "null is no price"),
            (json!([3_000]), "[3000] is no price"),
            (json!("1\u{1b}[31m"), r#"\"1\\u001b[31m\" is no price"#),
            (json!(499.99), "499.99 is not from 500 to 20000"),
            (json!(20_001), "20001 is not from 500 to 20000"),
        ] {
            assert_eq!(read(&quoted, None).unwrap_err(), expected, "{quoted}");
        }
        let missing = rule(false).read(&json!({}), MAX_AGE, None, Timestamp::from_secs(NOW)).unwrap_err();
        assert_eq!(missing.to_string(), "nothing at /ether/usd");
    }

    #[test]
    fn a_price_ten_times_off_the_last_one_is_for_a_person_to_set() {
        assert_eq!(read(&json!(5_001), Some("500.2")).as_deref(), Ok("5001"));
        assert_eq!(read(&json!(501), Some("5000")).as_deref(), Ok("501"));
        for (quoted, last) in [(5_000, "500"), (500, "5000"), (15_000, "1.5")] {
            let why = read(&json!(quoted), Some(last)).unwrap_err();
            assert!(why.contains("10 times more or less than"), "{why}");
        }
    }

    #[test]
    fn a_price_that_was_observed_too_long_ago_is_not_believed() {
        let of = |at: Value| {
            let answer = json!({ "ether": { "usd": 3_000, "at": at } });
            rule(true).read(&answer, MAX_AGE, None, Timestamp::from_secs(NOW))
        };
        assert_eq!(of(json!(NOW - 900)), Ok(price("3000")));
        assert_eq!(of(json!(NOW + 5)), Ok(price("3000")), "its clock is ahead of ours");
        assert_eq!(of(json!(NOW - 901)), Err(Unbelieved::Old(901)));
        assert_eq!(of(json!("2027")), Err(Unbelieved::NoTime(r#"\"2027\""#.to_owned())));
        let without = rule(true).read(&json!({ "ether": { "usd": 3_000 } }), MAX_AGE, None, Timestamp::from_secs(NOW));
        assert_eq!(without, Err(Unbelieved::Missing("/ether/at".to_owned())));
    }
}
