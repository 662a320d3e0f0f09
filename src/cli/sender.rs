//! `landfall sender halt|resume|recover|delegate|status`.

use std::path::Path;

use anyhow::{Context, ensure};
use clap::Subcommand;
use landfall_chain::{Chain, Delegate};
use serde::Serialize;

use crate::app;
use crate::cli::{How, existing, json_line, load, open_existing};
use crate::health::SenderReport;
use crate::operator::Operator;
use crate::store::Db;
use crate::store::delegates::Taken;
use crate::time::Clock;
use crate::transfer::{DELEGATE_TIME, SponsorState};

#[derive(Subcommand, Debug)]
pub(super) enum Sender {
    /// Stop all sending: nothing more is accepted, signed or sent. What was sent is watched to its end.
    Halt {
        /// On this chain only.
        #[arg(long)]
        chain: Option<Chain>,
        #[command(flatten)]
        how: How,
    },
    /// Let the sending go on.
    Resume {
        /// On this chain only.
        #[arg(long)]
        chain: Option<Chain>,
        #[command(flatten)]
        how: How,
    },
    /// After the store was set back: sign nothing before final blocks show what it may not know. It ends by itself.
    Recover {
        /// On this chain only.
        #[arg(long)]
        chain: Option<Chain>,
        #[command(flatten)]
        how: How,
    },
    /// Have another listed delegate pay what a delegate pays: each new transfer takes it, and earlier ones keep theirs. It signs
    /// nothing before a final block 390 s later, so what is accepted within some minutes is DROPPED: halt the chain first.
    Delegate {
        /// For example BASE_MAINNET.
        #[arg(long)]
        chain: Chain,
        /// The name of the delegate.
        #[arg(long, value_name = "NAME")]
        set: String,
        #[command(flatten)]
        how: How,
    },
    /// Show, for each chain, who sends and what is under way.
    Status {
        /// A JSON object for each chain, one a line.
        #[arg(long)]
        json: bool,
    },
}

/// What became of a change of delegates.
#[derive(Serialize)]
struct Switch {
    chain: &'static str,
    /// Each with all its addresses.
    delegate: String,
    before: String,
    /// False where it was in use already, and where nothing was to be changed.
    changed: bool,
}

/// What a decision makes of the sending on a chain, or would: it is `halted`, `resumed` or `recovering`.
#[derive(Serialize)]
struct Decided {
    chain: &'static str,
    sending: &'static str,
}

#[derive(Serialize)]
struct Line {
    chain: &'static str,
    /// Null where nothing is under way, and there are no sponsors.
    sender: Option<SenderReport>,
}

impl Sender {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        let chains = |chain: Option<Chain>| chain.map_or_else(|| Chain::ALL.to_vec(), |chain| vec![chain]);
        match self {
            Sender::Halt { chain, how } => {
                let db = existing(config).await?;
                how.decide(async |by| by.halt_sending(&db, &chains(chain)).await).await?;
                let text = format!("sending {} stopped on {}", how.is(), chain.map_or("every chain", Chain::name));
                show(&chains(chain), "halted", &text, &how)?;
            }
            Sender::Resume { chain, how } => {
                let db = existing(config).await?;
                let resumed = how.decide(async |by| by.resume_sending(&db, &chains(chain)).await).await?;
                let (goes, was) = if how.dry_run { ("would go", "is") } else { ("goes", "was") };
                let text = format!("sending {goes} on; it {was} stopped on {} chains", resumed.len());
                show(&resumed, "resumed", &text, &how)?;
            }
            Sender::Recover { chain, how } => {
                let config = load(config)?;
                ensure!(
                    config.signer.is_some(),
                    "no chain is sent on: [transfers] names no signer, and without one a recovery never ends"
                );
                let db = open_existing(&config.store).await?;
                // Also where nobody sends now: the store is as old there when somebody does.
                how.decide(async |by| by.recover_sending(&db, &chains(chain)).await).await?;
                let recovers = if how.dry_run { "would recover" } else { "recovers" };
                let text = format!("sending {recovers} on {}", chain.map_or("every chain", Chain::name));
                show(&chains(chain), "recovering", &text, &how)?;
            }
            Sender::Delegate { chain, set, how } => {
                let config = load(config)?;
                let network = app::network(chain, config.chain(chain)?)?;
                let names = || network.delegates.iter().map(Delegate::name).collect::<Vec<_>>().join(", ");
                let delegate = network.delegates.iter().find(|listed| listed.name() == set);
                let delegate = delegate
                    .with_context(|| format!("{chain} lists no delegate {set:?}; expected one of: {}", names()))?;
                let db = open_existing(&config.store).await?;
                let took = async |by: Operator<'_>| by.take_delegate(&db, (&network, delegate)).await;
                let switch = Switch::of(chain, delegate, &how.decide(took).await?, how.dry_run);
                say!("{}", if how.json { json_line(&switch)? } else { switch.text() });
            }
            Sender::Status { json } => {
                let config = load(config)?;
                let db = open_existing(&config.store).await?;
                for chain in config.chains.keys() {
                    let line = Line::of(&db, *chain).await?;
                    say!("{}", if json { json_line(&line)? } else { line.text() });
                }
            }
        }
        Ok(())
    }
}

/// Shows what a decision makes of the sending on `chains`.
fn show(chains: &[Chain], sending: &'static str, text: &str, how: &How) -> anyhow::Result<()> {
    if !how.json {
        say!("{text}");
        return Ok(());
    }
    for chain in chains {
        say!("{}", json_line(&Decided { chain: chain.name(), sending })?);
    }
    Ok(())
}

impl Switch {
    fn of(chain: Chain, delegate: &Delegate, before: &Taken, dry_run: bool) -> Self {
        let changed = !before.is(delegate) && !dry_run;
        Switch { chain: chain.name(), delegate: delegate.to_string(), before: before.delegate.clone(), changed }
    }

    fn text(&self) -> String {
        let Switch { chain, delegate, before, changed } = self;
        match changed {
            true => format!(
                "new transfers on {chain} are paid by {delegate}, in place of {before}; the first of them is signed behind a \
                 final block at least {} s later",
                DELEGATE_TIME.as_secs()
            ),
            false if delegate == before => format!("new transfers on {chain} are paid by {delegate} already"),
            false => format!("new transfers on {chain} would be paid by {delegate}, in place of {before}"),
        }
    }
}

impl Line {
    async fn of(db: &Db, chain: Chain) -> anyhow::Result<Self> {
        let sender = SenderReport::read(&mut db.read().await?, chain, Clock::system().now()).await?;
        Ok(Line { chain: chain.name(), sender })
    }

    fn text(&self) -> String {
        let chain = self.chain;
        let Some(sender) = &self.sender else { return format!("{chain} nothing is under way; it has no sponsors") };
        let SenderReport { waiting, in_flight, expiring, sponsors, .. } = sender;
        let active = sponsors.iter().filter(|sponsor| sponsor.state == SponsorState::Active.name()).count();
        let leader = sender.leader.as_deref().unwrap_or("nobody");
        let halted = sender.halted.as_ref().map_or(String::new(), |halted| format!("; stopped {halted}"));
        let delegate =
            sender.delegate.as_ref().map_or(String::new(), |delegate| format!("; wallets pay by {delegate}"));
        let recovers = sender.recovering.as_ref().map_or(String::new(), |recovery| format!("; recovers {recovery}"));
        let oldest = sender.oldest_secs.map_or(String::new(), |secs| format!(", the oldest for {secs} s"));
        format!(
            "{chain} sent by {leader}: {waiting} wait, {in_flight} under way, {expiring} out of time{oldest}; {active} of {} \
             sponsors active{delegate}{halted}{recovers}",
            sponsors.len()
        )
    }
}
