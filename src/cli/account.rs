//! `landfall account add|addresses|import|list|release|sweep`.

mod addresses;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use landfall_chain::Chain;
use serde::Serialize;

use crate::account::{AccountType, NewAccount, parse_csv};
use crate::amount::to_decimal;
use crate::app;
use crate::cli::transfer::Shown;
use crate::cli::{How, existing, json_line, load, open_existing, open_or_make};
use crate::config::Config;
use crate::gas::GasCurrency;
use crate::identity::{IdentityType, NewIdentity};
use crate::random;
use crate::registry::{self, AddAccountsError, SweepOrder, Swept};
use crate::request::Made;
use crate::store::accounts::{self, AccountRow, AddAccountError};
use crate::store::{Db, identities};
use crate::time::Clock;
use crate::transfer::{RequestId, Transfer};

#[derive(Subcommand, Debug)]
pub(super) enum Account {
    /// Add an account, or addresses to one.
    Add {
        /// The account's id.
        #[arg(long, value_name = "ID")]
        account: String,
        /// SEGREGATED or OMNIBUS.
        #[arg(long, value_name = "TYPE")]
        r#type: String,
        /// An address and the chains it is watched on; may be repeated.
        #[arg(long, required = true, value_name = "CHAIN[,CHAIN..]=ADDRESS")]
        address: Vec<String>,
    },
    /// Add accounts from a CSV file: account_id,type,chains,address and optionally identity_id; chains separated by |.
    Import {
        file: PathBuf,
        /// Make the identities that the file names and that are not there: INDIVIDUAL, ACTIVE, as `identity add` does.
        #[arg(long)]
        create_identities: bool,
    },
    /// Show the addresses of an account, and whether their keys are held here; or give it a further one.
    Addresses(addresses::Addresses),
    /// Show the accounts and their addresses.
    List {
        /// A JSON object for each account, one a line.
        #[arg(long)]
        json: bool,
    },
    /// Let an account pay again, when a person has checked what left its address that nobody here signed for.
    Release {
        /// The account's id.
        id: String,
        #[command(flatten)]
        how: How,
    },
    /// Bring what an account's further addresses have to the address that pays: one transfer for each address, which the
    /// platform pays for and no client sees.
    Sweep(Sweep),
}

#[derive(Args, Debug)]
pub(super) struct Sweep {
    /// The account's id.
    id: String,
    /// For example BASE_MAINNET.
    #[arg(long)]
    chain: Chain,
    /// The ticker of the asset on that chain.
    #[arg(long, value_name = "SYMBOL")]
    asset: String,
    /// A UUID: one request empties each address once, however often it comes. A new one where it is missing.
    #[arg(long, value_name = "UUID")]
    request_id: Option<RequestId>,
    #[command(flatten)]
    how: How,
}

/// An account as `account list --json` shows it.
#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    identity_id: &'a str,
    r#type: &'static str,
    addresses: Vec<ListedAddress>,
}

/// An address that signs again.
#[derive(Serialize)]
struct Released<'a> {
    account_id: &'a str,
    address: String,
}

#[derive(Serialize)]
struct ListedAddress {
    chain: &'static str,
    address: String,
    /// The first block that is matched against it; 0 is the chain's start.
    watched_from: u64,
}

impl Account {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        match self {
            Account::Add { account, r#type, address } => {
                let account = NewAccount::from_specs(&account, r#type.parse()?, &address)?;
                let (config, accounts) = (load(config)?, std::slice::from_ref(&account));
                registry::add_accounts(&open_or_make(&config.store).await?, accounts, Clock::system().now()).await?;
                let count = account.addresses.len();
                say!("account {} is watched on {count} address{}", account.id, if count == 1 { "" } else { "es" });
                report_unconfigured(&config, accounts);
                Ok(())
            }
            Account::Import { file, create_identities } => import(config, &file, create_identities).await,
            Account::Addresses(addresses) => addresses.run(&load(config)?).await,
            Account::List { json } => list(&existing(config).await?, json).await,
            Account::Release { id, how } => release(&existing(config).await?, &id, &how).await,
            Account::Sweep(sweep) => sweep.run(&load(config)?).await,
        }
    }
}

async fn release(db: &Db, id: &str, how: &How) -> anyhow::Result<()> {
    let released = how.decide(async |operator| {
        let released = operator.release_wallets(db, id).await?;
        ensure!(
            !released.is_empty(),
            "no address of account {id} is quarantined; `landfall incident list` shows what is"
        );
        anyhow::Ok(released)
    });
    let signs = if how.dry_run { "would sign" } else { "signs" };
    for address in released.await? {
        let text = format!("{address} of account {id} {signs} again");
        say!(
            "{}",
            if how.json { json_line(&Released { account_id: id, address: address.to_string() })? } else { text }
        );
    }
    Ok(())
}

async fn import(config: &Path, file: &Path, create_identities: bool) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let rows = parse_csv(&text).with_context(|| format!("{}: nothing was imported", file.display()))?;
    let (lines, accounts): (Vec<u64>, Vec<NewAccount>) = rows.into_iter().map(|row| (row.line, row.account)).unzip();
    let config = load(config)?;
    let db = open_or_make(&config.store).await?;
    if create_identities {
        make_identities(&db, &accounts).await?;
    }
    match registry::add_accounts(&db, &accounts, Clock::system().now()).await {
        Err(AddAccountsError::Refused { index, added, error }) => {
            let line = lines.get(index).copied().unwrap_or_default();
            bail!("{}: {}: line {line}: {error}{}", file.display(), so_far(added), remedy(&error));
        }
        Err(AddAccountsError::Store { added, error }) => bail!("{}: {}: {error}", file.display(), so_far(added)),
        Ok(()) => {}
    }
    say!("{} rows imported", lines.len());
    report_unconfigured(&config, &accounts);
    Ok(())
}

/// Makes the identities that are named and missing. An existing one stays as it is.
async fn make_identities(db: &Db, accounts: &[NewAccount]) -> anyhow::Result<()> {
    let new = NewIdentity { kind: IdentityType::Individual, label: String::new(), fiat_operations_enabled: false };
    let named: BTreeSet<&String> = accounts.iter().filter_map(|account| account.identity_id.as_ref()).collect();
    for id in named {
        if identities::by_id(&mut db.read().await?, id).await?.is_none() {
            let made = registry::add_identity(db, id, &new, Clock::system().now()).await?;
            say!("identity {} is {}", made.id, made.status);
        }
    }
    Ok(())
}

/// What a person can do about the error.
fn remedy(error: &AddAccountError) -> String {
    let AddAccountError::NoIdentity(id) = error else { return String::new() };
    format!(
        "; `landfall identity add --identity {id} --type INDIVIDUAL` makes it, --create-identities all that the file names"
    )
}

/// How much of a file was imported before it stopped.
fn so_far(added: usize) -> String {
    if added == 0 {
        return "nothing was imported".to_owned();
    }
    format!("{added} rows were imported, and stay so; import the file again for the others")
}

/// Names the chains that accounts were added on and that this configuration does not follow.
fn report_unconfigured(config: &Config, accounts: &[NewAccount]) {
    let chains: BTreeSet<Chain> =
        accounts.iter().flat_map(|account| &account.addresses).map(|(chain, _)| *chain).collect();
    for error in chains.into_iter().filter_map(|chain| config.chain(chain).err()) {
        complain!("landfall: {error}; until then nothing is watched there");
    }
}

impl Sweep {
    async fn run(self, config: &Config) -> anyhow::Result<()> {
        let Sweep { id, chain, asset, request_id, how } = self;
        let mut network = app::network(chain, config.chain(chain)?)?;
        config.restrict(std::slice::from_mut(&mut network));
        let listed = network.assets.iter().find(|listed| listed.symbol == asset);
        let asset = listed.with_context(|| format!("{chain} lists no asset {asset}"))?.clone();
        let gas = GasCurrency::of(&network).with_context(|| format!("{chain} has no native currency"))?;
        let request_id = request_id.unwrap_or_else(|| RequestId::random(random::bytes()));
        let order = SweepOrder { request_id, account_id: id, chain, chain_ref: network.chain_ref, asset, gas };
        let db = open_existing(&config.store).await?;
        let can_sign = config.signer.is_some();
        let swept = how
            .decide(async |by| anyhow::Ok(registry::sweep(&db, &order, (can_sign, by.dry_run), &by.author()?).await?));
        let Swept { transfers, unknown, is_more } = swept.await?;
        for (transfer, made) in &transfers {
            let Transfer { id, amount, decimals, source, destination, symbol, .. } = transfer;
            let amount = to_decimal(*amount, *decimals);
            let before = if *made == Made::Before { ", asked for before" } else { "" };
            let text = format!("transfer {id}: {amount} {symbol} from {source} to {destination}{before}");
            say!("{}", if how.json { json_line(&Shown::of(transfer))? } else { text });
        }
        if transfers.is_empty() && !how.json {
            say!("no further address of account {} has {} on {chain}", order.account_id, order.asset.symbol);
        }
        for address in &unknown {
            complain!("landfall: what {address} has is not known at the moment; sweep again later, as a new request");
        }
        if is_more {
            complain!("landfall: more addresses have something; sweep again, as a new request");
        }
        if !how.dry_run && !how.json {
            say!("request {request_id}");
        }
        Ok(())
    }
}

async fn list(db: &Db, json: bool) -> anyhow::Result<()> {
    for account in accounts::list(&mut db.read().await?).await? {
        if json {
            say!("{}", json_line(&Listed::of(&account))?);
            continue;
        }
        say!("{} {} (identity {})", account.id, account.kind, account.identity_id);
        for (address, chains) in by_address(&account) {
            say!("  {address} on {}", chains.join(", "));
        }
    }
    Ok(())
}

impl<'a> Listed<'a> {
    fn of(account: &'a AccountRow) -> Self {
        let AccountRow { id, identity_id, kind, addresses } = account;
        let addresses = addresses.iter().map(|(chain, address, from)| ListedAddress {
            chain: chain.name(),
            address: address.to_string(),
            watched_from: *from,
        });
        Listed { id, identity_id, r#type: AccountType::name(*kind), addresses: addresses.collect() }
    }
}

fn by_address(account: &AccountRow) -> BTreeMap<String, Vec<&'static str>> {
    let mut chains: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for (chain, address, _) in &account.addresses {
        chains.entry(address.to_string()).or_default().push(chain.name());
    }
    chains
}
