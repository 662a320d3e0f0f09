//! The sandbox: Landfall doing its main job on a private chain, checked against that chain's own balances.
//!
//! Everything goes through the doors that operators and clients use: a configuration file, accounts, a key, a webhook,
//! HTTP. Nothing outlives it but what `keep` names: its folder and its node. It listens on this machine only.
//!
//! [`anvil`], [`token`] and [`receiver`] also serve the tests on a real node.

pub mod anvil;
mod books;
mod client;
mod folder;
mod play;
pub mod receiver;
mod screen;
mod stage;
pub mod token;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::pin::Pin;

use anyhow::{Context, bail};
use landfall_chain::{Asset, Chain};
use tokio_util::sync::CancellationToken;

use crate::app::{self, App, Migrate};
use crate::random;
use crate::registry::{self, NewWebhook};
use crate::sandbox::anvil::{Anvil, AnvilOptions};
use crate::sandbox::books::Books;
use crate::sandbox::client::Api;
use crate::sandbox::folder::Folder;
use crate::sandbox::receiver::Receiver;
use crate::sandbox::screen::Screen;
use crate::sandbox::stage::{House, Stage};
use crate::time::Clock;

/// The network that the node stands in for, and its id; Landfall refuses a node with another one.
const CHAIN: Chain = Chain::EthereumTestnet;
const CHAIN_ID: u64 = 11_155_111;
/// How often a block comes after the play, for who goes on playing.
const BLOCK_SECS_AFTER: u64 = 2;

/// What was asked for on the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's program.
    pub anvil: PathBuf,
    /// End when everything was shown.
    pub once: bool,
    /// Leave the folder and the node behind.
    pub keep: bool,
}

/// Shows everything; whether all of it went well. Ends early when `asked` is done.
///
/// # Errors
/// When something that was waited for did not come, or the sandbox cannot be built.
pub async fn run(options: &Options, clock: Clock, asked: impl Future<Output = ()>) -> anyhow::Result<bool> {
    let mut asked = std::pin::pin!(asked);
    let screen = Screen::new(!options.once && std::io::stdout().is_terminal());
    let folder = Folder::create(options.keep)?;
    let node = AnvilOptions {
        binary: options.anvil.clone(),
        chain_id: CHAIN_ID,
        op_stack: false,
        log: folder.node_log(),
        keep: options.keep,
    };
    let anvil = tokio::select! {
        anvil = Anvil::start(&node) => anvil?,
        () = &mut asked => bail!("asked to stop before the node had started"),
    };
    let books = with_node(options, &folder, &anvil, screen, clock, asked).await;
    if options.keep {
        say_what_is_kept(&folder, &anvil, screen);
    }
    let books = books?;
    if options.once {
        say_books(&books, screen);
    }
    Ok(books.faults.is_empty())
}

/// Builds the rest around the node, gives the play, and stops Landfall in order.
async fn with_node(
    options: &Options,
    folder: &Folder,
    anvil: &Anvil,
    screen: Screen,
    clock: Clock,
    asked: Pin<&mut impl Future<Output = ()>>,
) -> anyhow::Result<Books> {
    let config = folder.configure(CHAIN, anvil.url())?;
    let network = app::network(CHAIN, config.chains.get(&CHAIN).context("the chain is configured")?)?;
    let payer = stage::prepare(anvil, &network).await?;
    let receiver = Receiver::start(clock.clone()).await?;
    let app = App::start(&config, Migrate::Always, clock).await?;
    let db = app.db().clone();
    let now = Clock::system().now();
    let webhook = NewWebhook { url: receiver.url(), label: "sandbox", allow_private: true };
    receiver.set_key(&registry::add_webhook(&db, &webhook, &random::bytes(), now).await?.signing_key);
    let api = Api {
        url: format!("http://{}/v2/crypto/deposits", app.api_address()),
        key: registry::create_key(&db, config.environment, "sandbox", &random::bytes(), now).await?,
        client: anvil::client()?,
    };
    let house = House { anvil, receiver: &receiver, db: &db, api: &api };
    let mut stage = Stage::set(house, &network, payer, screen, options.once).await?;
    say_who_is_there(&stage, &network.assets);

    let stop = CancellationToken::new();
    let running = async {
        let ended = app.run_until(stop.cancelled()).await;
        stop.cancel();
        ended
    };
    let shown = async {
        let shown = tokio::select! {
            shown = show(options, &mut stage, asked) => shown,
            () = stop.cancelled() => Err(anyhow::anyhow!("Landfall ended")),
        };
        stop.cancel();
        shown
    };
    let (ended, shown) = tokio::join!(running, shown);
    ended?;
    shown
}

/// Gives the play; then, unless it is for once, lets people play.
async fn show(
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

fn say_who_is_there(stage: &Stage<'_>, assets: &[Asset]) {
    let screen = stage.screen;
    screen.note(&format!("node      anvil at {} stands in for {CHAIN} (chain id {CHAIN_ID})", stage.house.anvil.url()));
    for Asset { id, symbol, .. } in assets {
        screen.note(&format!("asset     {symbol}, {id}"));
    }
    for person in [stage.alice, stage.bob] {
        screen.note(&format!("account   {} has {}", person.account_id, person.address));
    }
}

fn say_books(books: &Books, screen: Screen) {
    for fault in &books.faults {
        screen.note(&format!("amiss     {fault}"));
    }
    screen.note(&books.to_string());
}

fn say_what_to_try(stage: &Stage<'_>) {
    let Stage { house: House { anvil, api, .. }, screen, payer, alice, .. } = stage;
    let (url, key, node, to) = (&api.url, api.key.reveal(), anvil.url(), alice.address);
    screen.note("\nAsk for alice's deposits:");
    screen.note(&format!("  curl -H \"Authorization: Bearer {key}\" \"{url}?account_id={}\"", alice.account_id));
    screen.note("Send her 1 ETH more, and see it arrive here:");
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_sendTransaction","params":[{{"from":"{payer}","to":"{to}","value":"0xde0b6b3a7640000"}}]}}"#
    );
    screen.note(&format!("  curl -H 'Content-Type: application/json' -d '{call}' {node}"));
    screen.note("Ctrl-C ends it.\n");
}

fn say_what_is_kept(folder: &Folder, anvil: &Anvil, screen: Screen) {
    // scripts/sandbox runs a program that is on nobody's PATH.
    let program = std::env::current_exe().map_or_else(|_| "landfall".into(), |path| path.display().to_string());
    screen.note(&format!("kept      folder {}", folder.path().display()));
    screen.note(&format!("kept      node at {}, ended by: kill {}", anvil.url(), anvil.pid()));
    screen.note(&format!("go on     {program} --config {} run", folder.config_path().display()));
}
