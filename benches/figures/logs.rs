//! Backfill with `proof = "logs"`: how many Transfer logs one CPU-second of this process searches for a million
//! watched addresses.

use std::collections::HashSet;
use std::time::Duration;

use landfall_chain::{Address, AddressSource, Found, Native, Watched};
use landfall_evm::EvmSource;

use crate::node::{LISTED_PERCENT, Made, Node};
use crate::{LOGGED, Size, network, process, ratio, token};

const TXS: usize = 180;
const LOGS: u32 = 400;
const GOAL: u64 = 500_000;

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let (blocks, watched) = (size.pick(40, 400, 1_000), size.pick(10_000_u64, 1_000_000, 1_000_000));
    let watched: HashSet<[u8; 20]> = (0..watched).map(address).collect();
    let least = size.pick(Duration::from_millis(300), Duration::from_secs(3), Duration::from_secs(10));
    let made =
        Made { blocks, txs: TXS, logs: usize::try_from(LOGS)?, listed: token(&network(LOGGED)?)?, finality_depth: 0 };
    let node = Node::start(&made)?;
    for (name, native) in
        [("native by logs: headers only", LOGGED), ("native by transactions: all of them", Native::TOP_LEVEL)]
    {
        let source = EvmSource::new(network(native)?, std::slice::from_ref(&node.url))?;
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
        let secs = (process::cpu()? - begun).as_secs_f64();
        let all = f64::from(LOGS) * f64::from(u32::try_from(blocks)?) * f64::from(rounds);
        let listed = all * f64::from(LISTED_PERCENT) / 100.0;
        println!(
            "Transfer logs per CPU-second, {name}: {:.0} downloaded and searched, which are the listed ones (goal >= {GOAL}); \
             {:.0} counting those that need not be downloaded; {:.0} blocks; {} of {blocks} blocks are to be read",
            ratio(listed, secs),
            ratio(all, secs),
            ratio(all, secs * f64::from(LOGS)),
            first.hits.len()
        );
    }
    Ok(())
}

fn address(index: u64) -> [u8; 20] {
    let mut bytes = [0x77; 20];
    bytes[..8].copy_from_slice(&index.to_be_bytes());
    bytes
}
