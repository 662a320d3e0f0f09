//! The figures of Landfall's speed and memory, each beside its goal: `cargo bench --bench figures`.
//!
//! Another process of this same program shows the chain, so that processor time and memory of this one are Landfall's
//! alone. Figures that depend on the machine are reported as ratios of things measured in one run.
//! `LANDFALL_BENCH=small` ends within some minutes in a debug build and shows that everything works;
//! `LANDFALL_BENCH=full` watches 10,000,000 addresses. Names after `--` choose sections: `cargo bench --bench figures
//! -- requests logs receipts memory head solana delivery api signing sending guards record`. It judges nothing: a missed goal is
//! for the reader to see.

mod api;
mod caller;
mod cluster;
mod database;
mod delivery;
mod following;
mod head;
mod hooks;
mod logs;
mod memory;
mod node;
mod past;
mod process;
mod receipts;
mod record;
mod requests;
mod sending;
mod signing;
mod solana;
mod store;

use anyhow::Context;
use landfall_chain::{AssetId, Chain, FinalityRule, Native, NativeSource, Network};

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    Small,
    Usual,
    Full,
}

impl Size {
    /// # Errors
    /// A word that is no size.
    #[expect(clippy::disallowed_methods, reason = "the program's own setting, read once")]
    fn of_environment() -> anyhow::Result<Self> {
        match std::env::var("LANDFALL_BENCH").as_deref() {
            Err(_) => Ok(Size::Usual),
            Ok("small") => Ok(Size::Small),
            Ok("full") => Ok(Size::Full),
            Ok(other) => anyhow::bail!("LANDFALL_BENCH is {other:?}: expected small or full"),
        }
    }

    pub(crate) fn pick<T>(self, small: T, usual: T, full: T) -> T {
        match self {
            Size::Small => small,
            Size::Usual => usual,
            Size::Full => full,
        }
    }
}

fn main() -> anyhow::Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if words.first().map(String::as_str) == Some(node::SERVE) {
        return runtime.block_on(node::serve(&words[1..]));
    }
    if words.first().map(String::as_str) == Some(delivery::DELIVER) {
        return runtime.block_on(delivery::deliver(&words[1..]));
    }
    if words.first().map(String::as_str) == Some(api::SERVE) {
        return api::serve(&words[1..]);
    }
    if words.first().map(String::as_str) == Some(hooks::SERVE) {
        return runtime.block_on(hooks::serve());
    }
    if words.first().map(String::as_str) == Some(solana::LOAD) {
        return runtime.block_on(solana::load(&words[1..]));
    }
    if words.first().map(String::as_str) == Some(cluster::SERVE) {
        return runtime.block_on(cluster::serve());
    }
    if words.first().map(String::as_str) == Some(sending::door::SERVE) {
        return runtime.block_on(sending::door::serve(&words[1..]));
    }
    if words.first().map(String::as_str) == Some(following::FOLLOW) {
        return runtime.block_on(following::follow(&words[1..]));
    }
    let size = Size::of_environment()?;
    if words.is_empty() {
        words = [
            "requests", "logs", "receipts", "memory", "head", "solana", "delivery", "api", "signing", "sending",
            "guards", "record",
        ]
        .map(str::to_owned)
        .into();
    }
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("size {size:?}, {} processors, load {}", std::thread::available_parallelism()?, load.trim());
    if cfg!(debug_assertions) {
        println!("a debug build: that everything works is all it shows, no figure of it counts");
    }
    for section in words {
        println!("\n{section}");
        match section.as_str() {
            "requests" => runtime.block_on(requests::measure(size))?,
            "logs" => runtime.block_on(logs::measure(size))?,
            "receipts" => runtime.block_on(receipts::measure(size))?,
            "memory" => runtime.block_on(memory::measure(size))?,
            "solana" => runtime.block_on(solana::measure(size))?,
            "head" => runtime.block_on(head::measure(size))?,
            "api" => runtime.block_on(api::measure(size))?,
            "delivery" => runtime.block_on(delivery::measure(size))?,
            "signing" => runtime.block_on(signing::measure(size))?,
            "sending" => runtime.block_on(sending::measure(size))?,
            "guards" => runtime.block_on(sending::solana::measure(size))?,
            "record" => runtime.block_on(record::measure(size))?,
            other => anyhow::bail!("there is no section {other:?}"),
        }
    }
    println!("\nload {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    Ok(())
}

/// Sepolia with one listed token, which sees native movements in this way.
pub(crate) fn network(native: Native) -> anyhow::Result<Network> {
    let mut network = landfall_evm::network(Chain::EthereumTestnet).context("Sepolia is embedded")?;
    network.assets.truncate(2);
    Ok(Network { native, finality: FinalityRule::FINALIZED.into(), ..network })
}

/// A network whose transactions' own values all are in its logs. Each made block has one, as nearly every real one has.
pub(crate) const LOGGED: Native = Native { source: NativeSource::TopLevel, eip7708_from: Some(0) };

/// The listed token.
pub(crate) fn token(network: &Network) -> anyhow::Result<landfall_node::Address> {
    let tokens = network.assets.iter().find_map(|asset| match asset.id {
        AssetId::Token(landfall_chain::Address::Evm(token)) => Some(token.into()),
        AssetId::Token(landfall_chain::Address::Solana(_)) | AssetId::Native => None,
    });
    tokens.context("a listed token")
}

/// `part` of `whole` as a ratio; what is not measured counts as the smallest.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    part / whole.max(f64::MIN_POSITIVE)
}
