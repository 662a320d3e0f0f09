//! Sources over the nodes of a test, and what comes back from them.

use landfall_chain::{Block, BlockRef, BlockSource, Chain, Legs, Read, ReadProof, SourceError, Tip};
use landfall_cluster::{Ledger, Node, hash};
use landfall_solana::{EndpointUrl, Options, Sample, SolanaSource, Timings, network};

/// A source over these nodes, which compares no blocks but those that are read in full.
pub(crate) fn source(nodes: &[&Node]) -> SolanaSource {
    source_with(nodes, Timings::PRODUCTION)
}

/// The same, with other waits.
pub(crate) fn source_with(nodes: &[&Node], timings: Timings) -> SolanaSource {
    let urls = nodes.iter().map(|node| EndpointUrl::from(node.url().parse::<url::Url>().unwrap())).collect();
    let options = Options { timings, ..Options::default() };
    let source = SolanaSource::at(&network(Chain::SolanaMainnet).unwrap(), urls, &options).unwrap();
    source.with_sample(Sample { one_in: 0, key: 0 })
}

/// Two nodes with the same blocks, 10 to 15; the first is a block ahead, so that it leads and is asked first.
pub(crate) async fn two() -> (Node, Node, SolanaSource) {
    let ledger = Ledger::of(10..=15);
    let (ahead, other) = (ledger.branch_at(15), ledger);
    ahead.produce(16, Vec::new());
    let (ahead, other) = (Node::start(&ahead).await, Node::start(&other).await);
    let source = source(&[&ahead, &other]);
    leads(&source, 16).await;
    (ahead, other, source)
}

/// That this is the newest block; who reported it leads from now on.
pub(crate) async fn leads(source: &SolanaSource, latest: u64) {
    assert_eq!(settled(source).await.latest.number, latest);
    // A poll that is under way still would report later what is so by then.
    source.check().await.ok();
}

/// Hears every endpoint that may be asked: a tip waits only a moment for who is late, and goes without his voice when the
/// machine stands still. First a poll that was under way, then what they say now, then the hash that is worth asking for.
pub(crate) async fn hear_all(source: &SolanaSource) {
    for _ in 0..3 {
        // Some are meant to fail.
        source.check().await.ok();
    }
}

/// The tip when all have been heard.
pub(crate) async fn settled(source: &SolanaSource) -> Tip {
    hear_all(source).await;
    source.tip().await.unwrap()
}

pub(crate) async fn blocks(source: &SolanaSource, first: u64, last: u64) -> Result<Vec<Block>, SourceError> {
    source.blocks(first..=last, Read { legs: Legs::Explained, proof: ReadProof::Candidate, ..Read::FULL }).await
}

/// The slots of the blocks that come back, each of which stands on the one before it.
pub(crate) async fn slots(source: &SolanaSource, first: u64, last: u64) -> Vec<u64> {
    let blocks = blocks(source, first, last).await.unwrap();
    assert!(blocks.windows(2).all(|pair| pair[1].header.parent == pair[0].header.block), "{blocks:?}");
    blocks.iter().map(|block| block.header.block.number).collect()
}

/// The block in `slot` of the first branch.
pub(crate) fn at(slot: u64) -> BlockRef {
    BlockRef { number: slot, hash: hash(slot, 0) }
}
