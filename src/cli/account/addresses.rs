//! `landfall account addresses`: what an account has, and a further address for it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use clap::Args;
use landfall_chain::{Address, Chain};
use serde::Serialize;

use crate::api::add_addresses;
use crate::app;
use crate::cli::{as_operator, complain_of_no_change, json_line, open_existing};
use crate::config::Config;
use crate::request::Made;
use crate::store::{Db, account_pages};

#[derive(Args, Debug)]
pub(in crate::cli) struct Addresses {
    /// The account's id.
    account: String,
    /// Only on this chain; with --add, where the address is to be watched, and without it on every configured chain. May be
    /// repeated.
    #[arg(long)]
    chain: Vec<Chain>,
    /// Give an OMNIBUS account a further address to receive at, as a client would by `POST /v2/accounts/{account_id}/addresses`:
    /// the same checks and refusals.
    #[arg(long, requires_all = ["request_id", "reason"])]
    add: bool,
    /// The name of the request: the same one gives the same address.
    #[arg(long, value_name = "ID", requires = "add")]
    request_id: Option<String>,
    /// Why, for the audit.
    #[arg(long, value_name = "TEXT", requires = "add")]
    reason: Option<String>,
    /// Show the address that would be added, and change nothing.
    #[arg(long, requires = "add")]
    dry_run: bool,
    /// A JSON object for each address, one a line.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    address: String,
    chains: Vec<&'static str>,
    /// Whether its key is held here.
    managed: bool,
}

impl Addresses {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<()> {
        let db = open_existing(&config.store).await?;
        match (&self.request_id, &self.reason) {
            (Some(request_id), Some(reason)) if self.add => self.add_one(config, &db, request_id, reason).await,
            _ => self.list(&db).await,
        }
    }

    async fn list(&self, db: &Db) -> anyhow::Result<()> {
        let Some(account) = account_pages::by_id(&mut db.read().await?, &self.account).await? else {
            bail!("there is no account {}; `landfall account list` shows those that there are", self.account);
        };
        let is_asked = |chain: &Chain| self.chain.is_empty() || self.chain.contains(chain);
        let asked = account.addresses.iter().filter(|(chain, _)| is_asked(chain));
        self.show(asked.map(|(chain, address)| (*chain, *address)), |address| account.managed.contains(address))
    }

    async fn add_one(&self, config: &Config, db: &Db, request_id: &str, reason: &str) -> anyhow::Result<()> {
        let configured: Vec<Chain> = config.chains.keys().copied().collect();
        let chains = if self.chain.is_empty() { configured } else { self.chain.clone() };
        let signer = app::signer_at_hand(config, db).await?;
        let asked = (request_id.to_owned(), chains.as_slice());
        let added = as_operator(reason, async |by| {
            let (signer, by) = (signer.as_deref(), by.author()?);
            anyhow::Ok(add_addresses(db, signer, &self.account, asked, (self.dry_run, &by)).await?)
        });
        let (addresses, made) = added.await?;
        let of_chain = |chain: &Chain| addresses.iter().find(|address| address.family() == chain.family());
        self.show(chains.iter().filter_map(|chain| Some((*chain, *of_chain(chain)?))), |_| true)?;
        match (made, self.dry_run) {
            (Made::Before, _) => complain!("landfall: it was asked for before; nothing was changed"),
            (Made::Now, true) => complain_of_no_change(),
            (Made::Now, false) => {}
        }
        Ok(())
    }

    fn show(
        &self,
        found: impl Iterator<Item = (Chain, Address)>,
        is_managed: impl Fn(&Address) -> bool,
    ) -> anyhow::Result<()> {
        let mut by_address: BTreeMap<Address, BTreeSet<Chain>> = BTreeMap::new();
        for (chain, address) in found {
            by_address.entry(address).or_default().insert(chain);
        }
        for (address, chains) in by_address {
            let (managed, chains) = (is_managed(&address), chains.into_iter().map(Chain::name).collect());
            let shown = Shown { address: address.to_string(), chains, managed };
            if self.json {
                say!("{}", json_line(&shown)?);
            } else {
                let held = if managed { "managed" } else { "imported" };
                say!("{} on {}, {held}", shown.address, shown.chains.join(", "));
            }
        }
        Ok(())
    }
}
