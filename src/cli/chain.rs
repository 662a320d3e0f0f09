//! `landfall chain halt|resume|override|audit`.

use std::time::Duration;

use anyhow::ensure;
use clap::Subcommand;
use landfall_chain::Chain as ChainName;

use crate::cli::{Why, as_operator, audit, duration};
use crate::config::{Config, agreeing};
use crate::store::Db;
use crate::store::audit::About;

#[derive(Subcommand, Debug)]
pub(super) enum Chain {
    /// Stop following a chain at its next tick, until it is resumed.
    Halt {
        chain: ChainName,
        #[command(flatten)]
        why: Why,
    },
    /// Let a halted chain go on.
    Resume {
        chain: ChainName,
        #[command(flatten)]
        why: Why,
    },
    /// Override a chain's rules for some time.
    Override {
        chain: ChainName,
        #[command(subcommand)]
        action: Override,
    },
    /// As `landfall audit list`, of what was decided about chains alone.
    Audit {
        /// Only about this one.
        chain: Option<ChainName>,
        /// A JSON object for each entry, one a line.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand, Debug)]
pub(super) enum Override {
    /// Follow, once, the reorg below what was final that the open incident names; CONFIRMED deposits stay so.
    AcceptReorg {
        #[command(flatten)]
        why: Why,
    },
    /// Let fewer endpoints agree on what is final.
    Finality {
        /// How many must agree.
        #[arg(long, value_name = "N")]
        agree: u32,
        /// For how long, for example 30m.
        #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
        time: Duration,
        #[command(flatten)]
        why: Why,
    },
    /// Confirm what is in our chain's blocks up to this one, although it is not final.
    Confirm {
        /// The block's number, inclusive.
        #[arg(long, value_name = "BLOCK")]
        through: u64,
        /// For how long, for example 30m.
        #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "24h")]
        time: Duration,
        #[command(flatten)]
        why: Why,
    },
    /// End every override of the chain.
    Clear {
        #[command(flatten)]
        why: Why,
    },
}

impl Chain {
    pub(super) async fn run(self, db: &Db, config: &Config) -> anyhow::Result<()> {
        if let Some(chain) = self.name() {
            let readable = config.chain(chain)?.readable();
            if let Chain::Override { action: Override::Finality { agree, .. }, .. } = &self {
                let are_there = usize::try_from(*agree).is_ok_and(|agree| agree <= readable);
                ensure!(are_there, "{chain}: --agree: {}", agreeing(readable));
            }
        }
        match self {
            Chain::Halt { chain, why } => {
                as_operator(&why.reason, async |operator| operator.halt(db, chain).await).await?;
                say!("{chain} halts at its next tick, until `landfall chain resume {chain} --reason TEXT`");
            }
            Chain::Resume { chain, why } => {
                as_operator(&why.reason, async |operator| operator.resume(db, chain).await).await?;
                say!("{chain} goes on");
            }
            Chain::Override { chain, action } => action.run(db, chain).await?,
            Chain::Audit { chain, json } => {
                audit::list(db, chain.map_or(About::Chains, About::Chain), json).await?;
            }
        }
        Ok(())
    }
}

impl Chain {
    /// The chain that the command is about.
    fn name(&self) -> Option<ChainName> {
        match self {
            Chain::Halt { chain, .. } | Chain::Resume { chain, .. } | Chain::Override { chain, .. } => Some(*chain),
            Chain::Audit { .. } => None,
        }
    }
}

impl Override {
    async fn run(self, db: &Db, chain: ChainName) -> anyhow::Result<()> {
        match self {
            Override::AcceptReorg { why } => {
                let down_to = as_operator(&why.reason, async |operator| operator.accept_reorg(db, chain).await).await?;
                say!("{chain} may take back its blocks above {down_to}, once, within an hour");
            }
            Override::Finality { agree, time, why } => {
                as_operator(&why.reason, async |operator| operator.agree(db, chain, agree, time).await).await?;
                say!("{chain}: {agree} endpoints need to agree, for {} s", time.as_secs());
            }
            Override::Confirm { through, time, why } => {
                let block =
                    as_operator(&why.reason, async |operator| operator.confirm_through(db, chain, through, time).await);
                say!("{chain}: block {} counts as final, for {} s", block.await?, time.as_secs());
            }
            Override::Clear { why } => {
                let cleared = as_operator(&why.reason, async |operator| operator.clear(db, chain).await).await?;
                say!("{chain}: {cleared} overrides ended");
            }
        }
        Ok(())
    }
}
