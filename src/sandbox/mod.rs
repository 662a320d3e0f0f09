//! The sandbox: Landfall doing its main job on a private chain, checked against that chain's own balances.
//!
//! Everything goes through the doors that operators and clients use: a configuration file, accounts, a key, a webhook,
//! HTTP. With `keep`, its folder and its node outlive it; nothing else does. It listens on this machine only.
//!
//! [`anvil`], [`token`] and [`delegate`] also serve the tests on a real node.

pub mod anvil;
mod books;
mod client;
mod cluster;
pub mod delegate;
mod folder;
mod keys;
mod node;
mod play;
mod screen;
mod sponsors;
mod stage;
pub mod surfpool;
pub mod token;
mod transfers;

pub use node::NodeError;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::pin::Pin;

use anyhow::{Context, bail};
use landfall_chain::{Asset, Chain, Network};
use tokio_util::sync::CancellationToken;

use crate::app::{self, App, Migrate};
use crate::key::Scope;
use crate::overrides::Author;
use crate::random;
use crate::receiver::Receiver;
use crate::registry::{self, NewWebhook};
use crate::resolver::Resolver;
use crate::sandbox::anvil::{Anvil, AnvilOptions};
use crate::sandbox::books::Books;
use crate::sandbox::client::Api;
use crate::sandbox::cluster::Cluster;
use crate::sandbox::folder::{Folder, Followed};
use crate::sandbox::screen::Screen;
use crate::sandbox::stage::{House, Person, Show, Stage};
use crate::sandbox::surfpool::{Surfpool, SurfpoolOptions};
use crate::time::Clock;

/// The network that the node stands in for, and its id; Landfall refuses a node with another one.
const CHAIN: Chain = Chain::EthereumTestnet;
const CHAIN_ID: u64 = 11_155_111;
/// How often a block comes after the play, for people who play on.
const BLOCK_SECS_AFTER: u64 = 2;

/// The options of the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's program.
    pub anvil: PathBuf,
    /// The script that starts a Solana cluster, `nodes/surfpool.mjs`; without it the play has no Solana.
    pub surfpool: Option<PathBuf>,
    /// End when everything was shown.
    pub once: bool,
    /// Leave the folder and the node behind.
    pub keep: bool,
}

/// Shows everything; whether all of it went well. Ends early when `asked` is done.
///
/// # Errors
/// If something that was waited for did not come, or the sandbox cannot be built.
pub async fn run(options: &Options, clock: Clock, asked: impl Future<Output = ()>) -> anyhow::Result<bool> {
    let mut asked = std::pin::pin!(asked);
    let screen = Screen::new(!options.once && std::io::stdout().is_terminal());
    let folder = Folder::create(options.keep)?;
    let node = AnvilOptions {
        binary: options.anvil.clone(),
        chain_id: CHAIN_ID,
        op_stack: false,
        log: folder.log_of("anvil"),
        keep: options.keep,
    };
    let nodes = tokio::select! {
        nodes = Nodes::start(options, &node, folder.log_of("surfpool")) => nodes?,
        () = &mut asked => bail!("asked to stop before the nodes had started"),
    };
    let books = with_nodes(options, &folder, &nodes, screen, clock, asked).await;
    if options.keep {
        say_what_is_kept(&folder, &nodes, screen);
    }
    let books = books?;
    if options.once {
        say_books(&books, screen);
    }
    Ok(books.faults.is_empty())
}

/// The nodes that it plays with.
struct Nodes {
    anvil: Anvil,
    surfpool: Option<Surfpool>,
}

impl Nodes {
    async fn start(options: &Options, anvil: &AnvilOptions, log: PathBuf) -> Result<Self, NodeError> {
        let anvil = Anvil::start(anvil).await?;
        let surfpool = match options.surfpool.clone() {
            Some(script) => Some(Surfpool::start(&SurfpoolOptions { script, log, keep: options.keep }).await?),
            None => None,
        };
        Ok(Nodes { anvil, surfpool })
    }

    /// The chains that Landfall is to follow.
    async fn followed(&self) -> Result<Vec<Followed>, NodeError> {
        let mut followed = vec![Followed { chain: CHAIN, rpc: self.anvil.url().to_owned(), genesis: None }];
        if let Some(node) = &self.surfpool {
            let genesis = Some(node.genesis().await?);
            followed.push(Followed { chain: cluster::CHAIN, rpc: node.url().to_owned(), genesis });
        }
        Ok(followed)
    }
}

/// Builds everything else around the nodes, gives the play, and stops Landfall in order.
async fn with_nodes(
    options: &Options,
    folder: &Folder,
    nodes: &Nodes,
    screen: Screen,
    clock: Clock,
    asked: Pin<&mut impl Future<Output = ()>>,
) -> anyhow::Result<Books> {
    let Nodes { anvil, surfpool } = nodes;
    keys::make(folder.path(), u64::try_from(clock.now().0 / 1_000_000)?)?;
    let config = folder.configure(&nodes.followed().await?)?;
    let network = app::network(CHAIN, config.chains.get(&CHAIN).context("the chain is configured")?)?;
    let payer = stage::prepare(anvil, &network).await?;
    let solana = config.chains.get(&cluster::CHAIN).map(|config| app::network(cluster::CHAIN, config)).transpose()?;
    if let (Some(node), Some(network)) = (surfpool, &solana) {
        cluster::prepare(node, network).await?;
    }
    let receiver = Receiver::start(clock.clone()).await?;
    let app = App::start(&config, Migrate::Always, clock).await?;
    let db = app.db().clone();
    let now = Clock::system().now();
    let this_machine = "127.0.0.0/8".parse().context("a network")?;
    let webhook = NewWebhook { url: receiver.url(), label: "sandbox", allowed_networks: &this_machine, ed25519: false };
    let by = Author { actor: "sandbox", reason: "", now };
    let added = registry::add_webhook(&db, Some(&Resolver::system()), &webhook, &random::bytes(), &by).await?;
    receiver.set_key(&added.signing_key);
    let api = Api {
        url: format!("http://{}", app.api_address()),
        key: registry::create_key(&db, config.environment, ("sandbox", &Scope::Admin.into()), &random::bytes(), &by)
            .await?,
        client: node::client()?,
    };
    let derived = stage::open(&db, &api).await?;
    let house =
        House { anvil, surfpool: surfpool.as_ref(), receiver: &receiver, db: &db, api: &api, derived: &derived };
    let show = Show { screen, once: options.once };
    let mut stage = Stage::set(house, &network, solana.as_ref(), payer, show).await?;
    let networks: Vec<Network> = [Some(network), solana].into_iter().flatten().collect();
    stage.set_prices(&networks).await?;
    say_who_is_there(&stage, &networks);

    let stop = CancellationToken::new();
    let running = async {
        let ended = app.run_until(stop.cancelled()).await;
        stop.cancel();
        ended
    };
    let shown = async {
        let shown = tokio::select! {
            shown = give(options, &mut stage, asked) => shown,
            () = stop.cancelled() => Err(anyhow::anyhow!("Landfall ended")),
        };
        stop.cancel();
        shown
    };
    let (ended, shown) = tokio::join!(running, shown);
    ended?;
    shown
}

/// Gives the play. Then, unless `once` is set, it lets people play.
async fn give(
    options: &Options,
    stage: &mut Stage<'_>,
    mut asked: Pin<&mut impl Future<Output = ()>>,
) -> anyhow::Result<Books> {
    let books = tokio::select! {
        books = stage.play() => books?,
        () = &mut asked => bail!("asked to stop before everything was shown"),
    };
    if !options.once || options.keep {
        stage.house.anvil.mine_every(BLOCK_SECS_AFTER).await?;
    }
    if !options.once {
        say_books(&books, stage.screen);
        if books.faults.is_empty() {
            say_what_to_try(stage);
            tokio::select! {
                never = stage.watch_on() => match never {},
                () = asked => stage.screen.note("asked to stop"),
            }
        }
    }
    Ok(books)
}

fn say_who_is_there(stage: &Stage<'_>, networks: &[Network]) {
    let screen = stage.screen;
    screen.note(&format!("node      anvil at {} stands in for {CHAIN} (chain id {CHAIN_ID})", stage.house.anvil.url()));
    match &stage.cluster {
        Some(Cluster { node, .. }) => {
            screen.note(&format!("node      surfpool at {} stands in for {}", node.url(), cluster::CHAIN));
        }
        None => screen.note("no Solana surfpool does not run here, or is not named in LANDFALL_SURFPOOL"),
    }
    for Asset { id, symbol, .. } in networks.iter().flat_map(|network| &network.assets) {
        screen.note(&format!("asset     {symbol}, {id}"));
    }
    for Person { name, account_id, address } in stage.people() {
        screen.note(&format!("account   {name} ({account_id}) has {address}"));
    }
    for sponsor in &stage.sponsored {
        screen.note(&format!("sponsor   {} pays the gas on {}", sponsor.address, sponsor.chain));
    }
}

fn say_books(books: &Books, screen: Screen) {
    for fault in &books.faults {
        screen.note(&format!("amiss     {fault}"));
    }
    screen.note(&books.of_transfers());
    screen.note(&books.to_string());
}

fn say_what_to_try(stage: &Stage<'_>) {
    let Stage { house: House { anvil, api, .. }, screen, payer, alice, .. } = stage;
    let (url, key, node, to) = (&api.url, api.key.reveal(), anvil.url(), alice.address);
    screen.note("\nAsk for alice's deposits:");
    screen.note(&format!(
        "  curl -H \"Authorization: Bearer {key}\" \"{url}/v2/crypto/deposits?account_id={}\"",
        alice.account_id
    ));
    screen.note("Send her 1 ETH more, and see it arrive here:");
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_sendTransaction","params":[{{"from":"{payer}","to":"{to}","value":"0xde0b6b3a7640000"}}]}}"#
    );
    screen.note(&format!("  curl -H 'Content-Type: application/json' -d '{call}' {node}"));
    screen.note("Ctrl-C ends it.\n");
}

fn say_what_is_kept(folder: &Folder, nodes: &Nodes, screen: Screen) {
    // `scripts/sandbox` runs a program that is not on PATH.
    let program = std::env::current_exe().map_or_else(|_| "landfall".into(), |path| path.display().to_string());
    screen.note(&format!("kept      folder {}", folder.path().display()));
    let surfpool = nodes.surfpool.as_ref().map(|node| (node.url(), node.pid()));
    for (url, pid) in [(nodes.anvil.url(), nodes.anvil.pid())].into_iter().chain(surfpool) {
        screen.note(&format!("kept      node at {url}, ended by: kill {pid}"));
    }
    screen.note(&format!("go on     {program} --config {} run", folder.config_path().display()));
}
