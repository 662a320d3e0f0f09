//! What the answers to `eth_getLogs` over ranges show, block by block: which listed contracts have a log there, and
//! whether one names a watched address.
//!
//! An answer is scanned as bytes, for most of what is in it concerns nobody. The scan accepts one shape only (no
//! spaces, flat objects, nothing removed). When anything else is met, or its counts disagree, the answer is parsed as
//! JSON. Promises: a block is never marked with less than the answer shows. Marking more costs a read.

use std::collections::HashMap;

use alloy::hex;
use alloy::primitives::{Address as Contract, B256};
use landfall_chain::Address;
use memchr::memmem::{self, Finder};
use memchr::{memchr, memchr_iter, memrchr};

use crate::logs::{ListedLog, Sources};

const TOPICS: &str = "\"topics\":[\"0x";
const NEXT_TOPIC: &[u8] = b"\",\"0x";
const HASH_DIGITS: usize = 64;
/// A topic that holds an address begins with 12 bytes of zero.
const ADDRESS_PADDING: &[u8] = b"000000000000000000000000";

/// The blocks that have logs.
pub(crate) struct Seen<'w> {
    sources: &'w Sources,
    watched: &'w (dyn Fn(&Address) -> bool + Sync),
    blocks: HashMap<u64, SeenBlock>,
}

/// What was seen of one block.
pub(crate) struct SeenBlock {
    pub(crate) hash: B256,
    /// For each source, whether it has a log there.
    pub(crate) shown: Box<[bool]>,
    pub(crate) is_hit: bool,
}

/// Why an answer is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadLogs {
    #[error("a log of a contract or with a topic that was not asked for")]
    NotAskedFor,
    #[error("two blocks with one number")]
    TwoBlocks,
    #[error("it cannot be read")]
    Malformed,
}

/// Finds a field, first at its place in the log before.
struct Field {
    name: Finder<'static>,
    at: usize,
}

/// The source of the last log, by its text: most logs have the same one as their neighbour.
struct LastSource<'t> {
    contract: &'t [u8],
    topic: &'t [u8],
    place: Option<usize>,
}

impl<'w> Seen<'w> {
    pub(crate) fn new(sources: &'w Sources, watched: &'w (dyn Fn(&Address) -> bool + Sync)) -> Self {
        Seen { sources, watched, blocks: HashMap::new() }
    }

    pub(crate) fn block(&self, number: u64) -> Option<&SeenBlock> {
        self.blocks.get(&number)
    }

    pub(crate) fn is_watched(&self, address: [u8; 20]) -> bool {
        (self.watched)(&Address::Evm(address))
    }

    /// Reads an answer; returns how many logs it has.
    pub(crate) fn add(&mut self, answer: &str) -> Result<usize, BadLogs> {
        match self.scan(answer.as_bytes())? {
            Some(logs) => Ok(logs),
            None => self.parse(answer),
        }
    }

    /// The scan of bytes; `None` when the answer has another shape. What it marked before does no harm: it was shown.
    fn scan(&mut self, answer: &[u8]) -> Result<Option<usize>, BadLogs> {
        // A removed log must not stand for one that is there.
        if memmem::find(answer, b"\"removed\":true").is_some() || memchr(b'\\', answer).is_some() {
            return Ok(None);
        }
        let objects = memchr_iter(b'{', answer).count();
        let (mut logs, mut behind) = (0, 0);
        let (mut hash, mut number) = (Field::new("\"blockHash\":\"0x"), Field::new("\"blockNumber\":\"0x"));
        let mut address = Field::new("\"address\":\"0x");
        let mut last = LastSource { contract: &[], topic: &[], place: None };
        let (mut last_hash, mut last_number): (&[u8], u64) = (&[], 0);
        for at in memmem::find_iter(answer, TOPICS) {
            let Some(log) = object_around(answer, behind, at) else { return Ok(None) };
            behind = log.end;
            let topics = &answer[at + TOPICS.len()..log.end];
            let log = &answer[log];
            let (Some(hash), Some(address)) = (hash.of(log, HASH_DIGITS), address.of(log, 40)) else { return Ok(None) };
            let Some(topics) = topics_of(topics) else { return Ok(None) };
            if hash != last_hash {
                let (Some(at), Some(hash)) = (number.start(log).and_then(|at| number_at(&log[at..])), decoded(hash))
                else {
                    return Ok(None);
                };
                last_number = at;
                self.block_at(at, hash.into())?;
            }
            last_hash = hash;
            if (address, topics[0]) != (last.contract, last.topic) {
                let (Some(contract), Some(topic)) = (decoded(address), decoded(topics[0])) else { return Ok(None) };
                let place = self.place(&contract.into(), &topic.into())?;
                last = LastSource { contract: address, topic: topics[0], place };
            }
            self.mark(last_number, last.place, topics[1..].iter().filter_map(|topic| padded_address(topic)));
            logs += 1;
        }
        let is_whole = logs == objects && (logs > 0 || answer == b"[]");
        Ok(is_whole.then_some(logs))
    }

    fn parse(&mut self, answer: &str) -> Result<usize, BadLogs> {
        let logs: Vec<ListedLog<'_>> = serde_json::from_str(answer).map_err(|_| BadLogs::Malformed)?;
        for log in logs.iter().filter(|log| log.removed != Some(true)) {
            let topic = log.topics.first().ok_or(BadLogs::NotAskedFor)?;
            let place = self.place(&log.address, topic)?;
            self.block_at(log.block_number.0, log.block_hash)?;
            let named = log.topics[1..].iter().filter_map(crate::legs::address_of).map(Address::Evm);
            self.mark(log.block_number.0, place, named);
        }
        Ok(logs.len())
    }

    /// The place of a log's source; `None` for one that was asked for only because another contract has its topic.
    fn place(&self, contract: &Contract, topic: &B256) -> Result<Option<usize>, BadLogs> {
        if !self.sources.asked_for(contract, topic) {
            return Err(BadLogs::NotAskedFor);
        }
        Ok(self.sources.position(contract, topic))
    }

    fn block_at(&mut self, number: u64, hash: B256) -> Result<(), BadLogs> {
        let shown = || vec![false; self.sources.len()].into_boxed_slice();
        let block = self.blocks.entry(number).or_insert_with(|| SeenBlock { hash, shown: shown(), is_hit: false });
        if block.hash == hash { Ok(()) } else { Err(BadLogs::TwoBlocks) }
    }

    fn mark(&mut self, number: u64, place: Option<usize>, mut named: impl Iterator<Item = Address>) {
        let Some(block) = self.blocks.get_mut(&number) else { return };
        if let Some(place) = place {
            block.shown[place] = true;
        }
        if !block.is_hit {
            block.is_hit = named.any(|address| (self.watched)(&address));
        }
    }
}

impl Field {
    fn new(name: &'static str) -> Self {
        Field { name: Finder::new(name), at: 0 }
    }

    /// Where its value begins.
    fn start(&mut self, log: &[u8]) -> Option<usize> {
        let name = self.name.needle();
        if !log.get(self.at..).is_some_and(|rest| rest.starts_with(name)) {
            self.at = self.name.find(log)?;
        }
        Some(self.at + name.len())
    }

    /// Its value of `digits` digits, up to the quote.
    fn of<'t>(&mut self, log: &'t [u8], digits: usize) -> Option<&'t [u8]> {
        let start = self.start(log)?;
        (log.get(start + digits) == Some(&b'"')).then(|| &log[start..start + digits])
    }
}

/// The flat object around `at`, which begins at or behind `from`.
fn object_around(answer: &[u8], from: usize, at: usize) -> Option<std::ops::Range<usize>> {
    let start = from + memrchr(b'{', answer.get(from..at)?)?;
    let end = at + memchr(b'}', &answer[at..])?;
    Some(start..end)
}

/// The topics of a log: one to four, `&[]` for those that it has not.
fn topics_of(text: &[u8]) -> Option<[&[u8]; 4]> {
    let mut topics: [&[u8]; 4] = [&[]; 4];
    let mut rest = text;
    for topic in &mut topics {
        (*topic, rest) = rest.split_at_checked(HASH_DIGITS)?;
        match rest.strip_prefix(NEXT_TOPIC) {
            Some(next) => rest = next,
            None => break,
        }
    }
    rest.starts_with(b"\"]").then_some(topics)
}

fn padded_address(topic: &[u8]) -> Option<Address> {
    topic.strip_prefix(ADDRESS_PADDING).and_then(decoded).map(Address::Evm)
}

fn decoded<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

fn number_at(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text.split(|byte| *byte == b'"').next()?).ok()?;
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_plain { u64::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{AssetId, Chain, Native, NativeSource, Network};

    use super::*;

    const ALICE: [u8; 20] = [0xa1; 20];

    fn sources() -> (Network, Sources) {
        let native = Native { source: NativeSource::LogTransfer, eip7708_from: Some(100) };
        let network = Network { native, ..crate::network(Chain::EthereumMainnet).unwrap() };
        let sources = Sources::of(&network);
        (network, sources)
    }

    fn usdc(network: &Network) -> String {
        let AssetId::Token(token) = network.assets[1].id else { panic!("a token") };
        token.to_string().to_lowercase()
    }

    fn word(address: [u8; 20]) -> String {
        format!("0x{}{}", "0".repeat(24), hex::encode(address))
    }

    fn log(contract: &str, number: u64, to: [u8; 20]) -> String {
        let (topic, from) = (crate::legs::TRANSFER, word([1; 20]));
        format!(
            "{{\"address\":\"{contract}\",\"topics\":[\"{topic}\",\"{from}\",\"{}\"],\"data\":\"0x{:064x}\",\"blockNumber\":\"{number:#x}\",\
             \"transactionHash\":\"0x{:064x}\",\"transactionIndex\":\"0x0\",\"blockHash\":\"0x{number:064x}\",\"logIndex\":\"0x0\",\"removed\":false}}",
            word(to),
            5,
            7
        )
    }

    fn hits(answer: &str) -> Result<(usize, Vec<u64>), BadLogs> {
        let (_, sources) = sources();
        let watched = |address: &Address| *address == Address::Evm(ALICE);
        let mut seen = Seen::new(&sources, &watched);
        let logs = seen.add(answer)?;
        let mut hits: Vec<u64> = seen.blocks.iter().filter(|(_, block)| block.is_hit).map(|(at, _)| *at).collect();
        hits.sort_unstable();
        Ok((logs, hits))
    }

    #[test]
    fn the_scan_and_the_parse_find_the_same_whatever_the_shape_of_the_answer() {
        let (network, sources) = sources();
        let usdc = usdc(&network);
        let plain = [log(&usdc, 5, [2; 20]), log(&usdc, 6, ALICE), log(&usdc, 6, [3; 20]), log(&usdc, 9, ALICE)];
        let plain = format!("[{}]", plain.join(","));
        let shapes = [
            plain.clone(),
            plain.replace(':', ": ").replace(',', ", "),
            plain.replace("\"removed\":false", "\"removed\":false,\"blockTimestamp\":\"0x1\""),
            plain
                .replace("{\"address\"", "{\"logIndex\":\"0x0\",\"address\"")
                .replace("\"logIndex\":\"0x0\",\"removed\"", "\"removed\""),
            plain.replace(&hex::encode(ALICE), &hex::encode_upper(ALICE)),
            plain.replace("topics", "t\\u006fpics"),
        ];
        for shape in shapes {
            assert_eq!(hits(&shape), Ok((4, vec![6, 9])), "{shape}");
        }
        let watched = |_: &Address| false;
        assert_eq!(Seen::new(&sources, &watched).scan(plain.as_bytes()), Ok(Some(4)), "the fast way is taken");
        assert_eq!(hits("[]"), Ok((0, vec![])));
    }

    #[test]
    fn a_removed_log_shows_nothing_and_credits_nobody() {
        let (network, sources) = sources();
        let removed = log(&usdc(&network), 6, ALICE).replace("false", "true");
        let watched = |_: &Address| true;
        let mut seen = Seen::new(&sources, &watched);
        seen.add(&format!("[{removed}]")).unwrap();
        assert!(seen.blocks.is_empty());
    }

    #[test]
    fn a_log_transfer_names_its_recipient_in_the_fourth_topic() {
        let (pol, topic) = ("0x0000000000000000000000000000000000001010", crate::legs::native::LOG_TRANSFER);
        let log = log(pol, 7, ALICE)
            .replace(&crate::legs::TRANSFER.to_string(), &format!("{topic}\",\"{}", word([0x10; 20])));
        assert_eq!(hits(&format!("[{log}]")), Ok((1, vec![7])));
    }

    #[test]
    fn what_was_not_asked_for_or_cannot_be_is_refused() {
        let (network, _) = sources();
        let usdc = usdc(&network);
        let other = log("0x00000000000000000000000000000000000000ff", 5, ALICE);
        assert_eq!(hits(&format!("[{other}]")), Err(BadLogs::NotAskedFor));
        let topic = log(&usdc, 5, ALICE).replace("ddf252ad", "ddf252ae");
        assert_eq!(hits(&format!("[{topic}]")), Err(BadLogs::NotAskedFor));
        let hash = [log(&usdc, 5, ALICE), log(&usdc, 5, ALICE).replace("\"blockHash\":\"0x0", "\"blockHash\":\"0x1")];
        assert_eq!(hits(&format!("[{}]", hash.join(","))), Err(BadLogs::TwoBlocks));
        for text in ["", "null", "{}", "[{}]", "[{\"topics\":[\"0x", "[1]"] {
            assert_eq!(hits(text), Err(BadLogs::Malformed), "{text}");
        }
    }
}
