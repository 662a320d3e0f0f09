//! Backfill with `proof = "logs"`: how many Transfer logs one CPU-second of this process searches for a million watched
//! addresses, by the search alone and by all that `landfall backfill` does.

use std::collections::HashSet;
use std::time::Duration;

use landfall_chain::{Address, AddressSource, Found, Native, ReadProof, Watched};
use landfall_evm::EvmSource;

use crate::node::{LISTED_PERCENT, Made, Node};
use crate::past::{Past, Took};
use crate::{LOGGED, Size, network, process, ratio, token};

const TXS: usize = 180;
const LOGS: u32 = 400;
const GOAL: u64 = 500_000;

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let (blocks, many) = (size.pick(40, 400, 1_000), size.pick(10_000_u64, 1_000_000, 1_000_000));
    let watched: HashSet<[u8; 20]> = (0..many).map(address).collect();
    let least = size.pick(Duration::from_millis(100), Duration::from_secs(3), Duration::from_secs(10));
    let made =
        Made { blocks, txs: TXS, logs: usize::try_from(LOGS)?, listed: token(&network(LOGGED)?)?, finality_depth: 0 };
    let node = Node::start(&made)?;
    let past = Past::new(&network(Native::TOP_LEVEL)?, &node.url, blocks, many).await?;
    for (name, native) in
        [("native by logs: headers only", LOGGED), ("native by transactions: all of them", Native::TOP_LEVEL)]
    {
        let network = network(native)?;
        let source = EvmSource::new(network.clone(), std::slice::from_ref(&node.url))?;
        source.check().await?;
        let is_watched = |address: &Address| matches!(address, Address::Evm(address) if watched.contains(address));
        // Learns the node's limits.
        let Found::Linked(first) = source.candidates(1..=blocks, Watched::Asked(&is_watched)).await? else {
            anyhow::bail!("logs are searched by range")
        };
        anyhow::ensure!(u64::try_from(first.headers.len())? == blocks, "blocks are missing");
        let (begun, mut rounds) = (process::cpu()?, 0_u32);
        while process::cpu()? - begun < least {
            source.candidates(1..=blocks, Watched::Asked(&is_watched)).await?;
            rounds += 1;
        }
        let searching = Logs::of(blocks, rounds, process::cpu()? - begun)?;
        println!(
            "Transfer logs per CPU-second, the search alone, {name}: {searching}; {} of {blocks} blocks are to be read",
            first.hits.len()
        );
        let (mut took, mut rounds) = (Took::default(), 0_u32);
        while took.cpu < least / 3 {
            took += past.read(&network, ReadProof::Candidate).await?;
            rounds += 1;
        }
        println!(
            "Transfer logs per CPU-second, all that `landfall backfill` does over a store of {many} watched addresses, {name}: {}; \
             {} of {blocks} blocks read in full for their blooms; beside it {:.1} s to begin, once",
            Logs::of(blocks, rounds, took.cpu)?,
            first.hits.len(),
            took.begin.as_secs_f64() / f64::from(rounds)
        );
    }
    Ok(())
}

/// How many a CPU-second reads.
struct Logs {
    all: f64,
}

impl Logs {
    fn of(blocks: u64, rounds: u32, cpu: Duration) -> anyhow::Result<Self> {
        let read = f64::from(LOGS) * f64::from(u32::try_from(blocks)?) * f64::from(rounds);
        Ok(Logs { all: ratio(read, cpu.as_secs_f64()) })
    }
}

impl std::fmt::Display for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Logs { all } = self;
        write!(
            f,
            "{:.0} downloaded and searched, which are the listed ones (goal >= {GOAL}); {all:.0} counting those that need not \
             be downloaded; {:.0} blocks",
            all * f64::from(LISTED_PERCENT) / 100.0,
            ratio(*all, f64::from(LOGS))
        )
    }
}

fn address(index: u64) -> [u8; 20] {
    let mut bytes = [0x77; 20];
    bytes[..8].copy_from_slice(&index.to_be_bytes());
    bytes
}
