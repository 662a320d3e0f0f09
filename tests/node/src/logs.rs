//! `eth_getLogs`: the filter, and how providers limit it.

use std::sync::Arc;

use alloy::primitives::{Address, B256};
use serde_json::Value;

use crate::answer::{Answer, Refused, hash};
use crate::block::{Block, MinedLog};
use crate::text;
use crate::view::View;

/// How much one call may ask for.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// Of a range: 5 to 7 is three blocks.
    pub blocks_max: u64,
    pub results_max: usize,
    /// Whose words are used.
    pub provider: Provider,
    /// A range that ends above the head is an error, as new geth and reth say it, and no short answer.
    pub is_strict: bool,
}

/// A provider, for its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provider {
    Reth,
    Infura,
    Alchemy,
    QuickNode,
}

impl Default for LogLimits {
    fn default() -> Self {
        LogLimits { blocks_max: 100_000, results_max: 20_000, provider: Provider::Reth, is_strict: true }
    }
}

impl LogLimits {
    fn too_wide(&self) -> Refused {
        let max = self.blocks_max;
        match self.provider {
            Provider::Reth => Refused::new(-32_602, format!("query exceeds max block range {max}")),
            Provider::Infura => Refused::new(-32_005, format!("range is too large, max is {max} blocks")),
            Provider::Alchemy => Refused::new(
                -32_600,
                format!(
                    "You can make eth_getLogs requests with up to a {max} block range. Based on your parameters, this block \
                 range should work: [0x0, {:#x}]",
                    max.saturating_sub(1)
                ),
            ),
            Provider::QuickNode => Refused::new(-32_614, format!("eth_getLogs is limited to a {max} range")),
        }
    }

    /// `from..=to` is as far as the results would have fitted.
    fn too_many(&self, from: u64, to: u64) -> Refused {
        let max = self.results_max;
        match self.provider {
            Provider::Reth => {
                Refused::new(-32_602, format!("query exceeds max results {max}, retry with the range {from}-{to}"))
            }
            Provider::Infura => Refused::new(
                -32_005,
                format!("query returned more than {max} results. Try with this block range [{from:#x}, {to:#x}]."),
            ),
            Provider::Alchemy => Refused::new(
                -32_602,
                format!(
                    "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range and no limit \
                 on the response size, or you can request any block range with a cap of {max} logs in the response. \
                 Based on your parameters and the response size limit, this block range should work: [{from:#x}, {to:#x}]"
                ),
            ),
            Provider::QuickNode => Refused::new(-32_005, "query returned more than 10000 results"),
        }
    }
}

pub(crate) fn find(view: &View<'_>, asked: &Value, limits: &LogLimits) -> Answer {
    let filter = Filter::of(asked)?;
    if let Some(hash) = asked.get("blockHash") {
        let unknown = || Refused::new(-32_000, "unknown block");
        let block = self::hash(hash).and_then(|hash| view.by_hash(hash)).ok_or_else(unknown)?;
        return Ok(text::list(filter.matches(block).map(|log| block.log_text(log))));
    }
    let (from, to) = range(view, asked, limits)?;
    let blocks: Vec<&Arc<Block>> = (from..=to).filter_map(|number| view.at(number)).collect();
    let mut found = 0;
    for block in &blocks {
        found += filter.matches(block).count();
        if found > limits.results_max {
            return Err(limits.too_many(from, block.number.saturating_sub(1).max(from)));
        }
    }
    Ok(text::list(blocks.iter().flat_map(|block| filter.matches(block).map(|log| block.log_text(log)))))
}

fn range(view: &View<'_>, asked: &Value, limits: &LogLimits) -> Result<(u64, u64), Refused> {
    let number = |key: &str| match asked[key].as_str() {
        None | Some("latest") => Some(view.head()),
        Some("earliest") => Some(0),
        Some("safe" | "finalized") => view.finalized().map(|block| block.number),
        Some(number) => u64::from_str_radix(number.trim_start_matches("0x"), 16).ok(),
    };
    let invalid = || Refused::new(-32_000, "invalid block range params");
    let (from, to) = number("fromBlock").zip(number("toBlock")).ok_or_else(invalid)?;
    if from > to {
        return Err(invalid());
    }
    if to - from >= limits.blocks_max {
        return Err(limits.too_wide());
    }
    if limits.is_strict && to > view.head() {
        return Err(Refused::new(-32_602, "block range extends beyond current head block"));
    }
    Ok((from, to.min(view.head())))
}

/// What logs are asked for.
struct Filter {
    /// Any, when empty.
    addresses: Vec<Address>,
    /// By position; any, when empty.
    topics: Vec<Vec<B256>>,
}

impl Filter {
    fn of(asked: &Value) -> Result<Self, Refused> {
        let invalid = || Refused::new(-32_602, "invalid filter");
        let addresses = some_or_many(&asked["address"]).map(|text| text.parse().ok());
        let topics = asked["topics"].as_array().map(Vec::as_slice).unwrap_or_default();
        let topics = topics.iter().map(|at| some_or_many(at).map(|text| text.parse().ok()).collect());
        Ok(Filter {
            addresses: addresses.collect::<Option<_>>().ok_or_else(invalid)?,
            topics: topics.collect::<Option<_>>().ok_or_else(invalid)?,
        })
    }

    fn matches<'a>(&'a self, block: &'a Block) -> impl Iterator<Item = &'a MinedLog> + Clone {
        block.logs.iter().filter(|log| {
            let mut topics = self.topics.iter().enumerate();
            (self.addresses.is_empty() || self.addresses.contains(&log.address))
                && topics.all(|(at, any)| any.is_empty() || log.topics.get(at).is_some_and(|topic| any.contains(topic)))
        })
    }
}

/// A text, a list of texts, or nothing.
fn some_or_many(value: &Value) -> impl Iterator<Item = &str> {
    let many = value.as_array().map(Vec::as_slice).unwrap_or_default();
    std::iter::once(value).chain(many).filter_map(Value::as_str)
}
