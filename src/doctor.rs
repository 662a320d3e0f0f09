//! Checks what sending needs, each part by asking it now: the signer, sponsors, tokens and delegates, prices, the clock.
//!
//! It changes nothing, signs nothing and sends nothing. What it asks is what the sender asks before it signs. A chain
//! without sponsors needs nothing of it.

use std::fmt;
use std::time::Duration;

use landfall_chain::{
    Address, AddressSource, AssetId, BlockRef, BlockSource, Chain, Family, Intent, KeyPath, Network, PayingChain,
    Readiness, Route, Signer, SourceError, U256,
};

use crate::amount::to_decimal;
use crate::gas::GasCurrency;
use crate::store::delegates::{self, Taken};
use crate::store::sponsors::{self, Sponsor};
use crate::store::{Connection, Db, StoreError, attempts, prices, sender_reports, wallets};
use crate::time::Timestamp;
use crate::transfer::SponsorState;

/// What a line may be about; docs/reference/status-and-health.md has a row for each, which a test keeps.
pub const KINDS: [&str; 10] =
    ["signer", "wallets", "journal", "requests", "endpoints", "clock", "fees", "sponsor", "asset", "price"];
/// How many wallets of each family are derived again.
const SAMPLE_MAX: u32 = 50;
/// How far the newest block's time may be from the clock's, or five block times if that is longer.
const CLOCK_MAX_SECS: u64 = 60;
const CLOCK_MAX_BLOCKS: u64 = 5;
/// A process that sends reports every ten seconds.
const REPORT_MAX: Duration = Duration::from_secs(30);
/// A price that is older is worth a warning.
const PRICE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// How something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// A person should know.
    Warn,
    /// Transfers wait, or will soon, until a person acts.
    Fail,
}

/// One thing that was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// `None` for what is of all chains.
    pub chain: Option<Chain>,
    pub verdict: Verdict,
    /// What was found, and what to do about it.
    pub what: String,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

impl Line {
    pub fn new(kind: &'static str, verdict: Verdict, what: impl Into<String>) -> Self {
        Line { kind, chain: None, verdict, what: what.into() }
    }

    fn on(self, chain: Chain) -> Self {
        Line { chain: Some(chain), ..self }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { kind, chain, verdict, what } = self;
        let chain = chain.map_or("", Chain::name);
        write!(f, "{:<4}  {chain:<18} {kind:<9} {what}", verdict.name())
    }
}

/// Whether the signer answers, and derives what is on record.
///
/// # Errors
/// When the store cannot be read.
pub async fn of_signer(db: &Db, signer: &dyn Signer) -> Result<Vec<Line>, StoreError> {
    let mut derived = 0;
    for family in [Family::Evm, Family::Solana] {
        let sample = wallets::sample(&mut db.read().await?, family, SAMPLE_MAX).await?;
        let path = |wallet: &wallets::Wallet| KeyPath::of_wallet(family, &wallet.account_id, &wallet.tag);
        let paths: Vec<KeyPath> = sample.iter().map(path).collect();
        let addresses = match signer.addresses(&paths).await {
            Ok(addresses) => addresses,
            Err(error) => {
                let what = format!("{error}: start it; nothing is signed or derived before");
                return Ok(vec![Line::new("signer", Verdict::Fail, what)]);
            }
        };
        for (wallet, address) in sample.iter().zip(addresses) {
            derived += 1;
            if wallet.address != address {
                let (account, recorded) = (&wallet.account_id, wallet.address);
                let what = format!(
                    "account {account} has {recorded} on record, and the signer derives {address}: its words are not those of \
                     this store"
                );
                return Ok(vec![answers(signer), Line::new("wallets", Verdict::Fail, what)]);
            }
        }
    }
    let what = format!("{derived} addresses were derived again, as they are on record");
    Ok(vec![answers(signer), Line::new("wallets", Verdict::Ok, what)])
}

fn answers(signer: &dyn Signer) -> Line {
    Line::new("signer", Verdict::Ok, format!("signer {} answers", signer.id()))
}

/// The same of a signer that a running process alone can ask, by what that process last reported on these chains.
///
/// # Errors
/// When the store cannot be read.
pub async fn of_running_signer(db: &Db, chains: &[Chain], now: Timestamp) -> Result<Line, StoreError> {
    let mut reader = db.read().await?;
    for chain in chains {
        let Some(report) = sender_reports::last(&mut reader, *chain).await? else { continue };
        if now.since(report.heartbeat_at) > REPORT_MAX {
            continue;
        }
        return Ok(match report.signer_away {
            None => Line::new("signer", Verdict::Ok, "a running process has the keystore open, and its signer answers"),
            Some((since, why)) => {
                Line::new("signer", Verdict::Fail, format!("it has not answered since {since}: {why}"))
            }
        });
    }
    let what =
        "another process has the keystore open, and none has reported for 30 s that it sends; is it `landfall run`?";
    Ok(Line::new("signer", Verdict::Fail, what))
}

/// What sending on a chain needs.
///
/// # Errors
/// When the store cannot be read.
pub async fn of_chain<C>(db: &Db, chain: &C, network: &Network, now: Timestamp) -> Result<Vec<Line>, StoreError>
where
    C: BlockSource + AddressSource + PayingChain,
{
    let known = sponsors::of_chain(&mut db.read().await?, network.chain).await?;
    let mut lines = vec![price(&mut db.read().await?, network, now).await?];
    let tip = chain.tip().await;
    match tip.map(|tip| (tip.latest, tip.finalized)) {
        Err(error) => {
            let what = format!("no endpoint says where the chain ends: {error}");
            lines.push(Line::new("endpoints", Verdict::Fail, what));
        }
        Ok((latest, finalized)) => {
            lines.push(Line::new("endpoints", Verdict::Ok, format!("the newest block is {}", latest.number)));
            lines.push(clock(chain, network, &latest, now).await);
            // Solana has no price of gas: what an attempt is made of is asked for with it.
            if network.chain.family() == Family::Evm {
                lines.push(fees(chain).await);
            }
            if let Some(at) = finalized {
                for sponsor in &known {
                    lines.push(sponsor_line(db, (chain, network), sponsor, &at).await?);
                }
                let in_use = delegates::taken(&mut db.read().await?, network.chain).await?.pop();
                lines.extend(assets(chain, network, (&known, in_use.as_ref()), &at).await);
            }
        }
    }
    if known.iter().all(|sponsor| sponsor.is_treasury) {
        let what = "it has none, so nothing is sent here: `landfall sponsor add`";
        lines.push(Line::new("sponsor", Verdict::Warn, what));
    }
    Ok(lines.into_iter().map(|line| line.on(network.chain)).collect())
}

async fn price(connection: &mut impl Connection, network: &Network, now: Timestamp) -> Result<Line, StoreError> {
    let Some(GasCurrency { symbol, .. }) = GasCurrency::of(network) else {
        return Ok(Line::new("price", Verdict::Fail, "the network lists no native currency"));
    };
    let set = format!("`landfall gas price set {symbol}`");
    Ok(match prices::of_moment(connection, &symbol, now).await? {
        None => Line::new("price", Verdict::Warn, format!("there is none of {symbol}, so no cost is charged: {set}")),
        Some(observed) => {
            let age = now.since(observed.at);
            let what = format!("{symbol} is {} USD, set {} s ago", observed.price, age.as_secs());
            if age > PRICE_MAX {
                Line::new("price", Verdict::Warn, format!("{what}: {set}"))
            } else {
                Line::new("price", Verdict::Ok, what)
            }
        }
    })
}

/// The time of the newest block beside the clock of this machine.
async fn clock(chain: &impl BlockSource, network: &Network, latest: &BlockRef, now: Timestamp) -> Line {
    let headers = match chain.headers(latest.number..=latest.number).await {
        Ok(headers) => headers,
        Err(error) => return Line::new("clock", Verdict::Fail, format!("the newest block cannot be read: {error}")),
    };
    let Some(header) = headers.first() else {
        return Line::new("clock", Verdict::Fail, "no endpoint shows the newest block");
    };
    let time = Timestamp::from_secs(header.time_secs);
    let limit = CLOCK_MAX_SECS.max(network.block_time_ms * CLOCK_MAX_BLOCKS / 1_000);
    let (behind, ahead) = (now.since(time).as_secs(), time.since(now).as_secs());
    if behind > limit {
        let what = format!(
            "the newest block is {behind} s old, so nothing is signed: the chain stands still, or the clock is ahead"
        );
        return Line::new("clock", Verdict::Fail, what);
    }
    if ahead > limit {
        return Line::new(
            "clock",
            Verdict::Fail,
            format!("the newest block is {ahead} s in the future: set the clock"),
        );
    }
    Line::new("clock", Verdict::Ok, format!("the newest block is {} s from the clock", behind.max(ahead)))
}

async fn fees(chain: &impl PayingChain) -> Line {
    match chain.fee_market().await {
        Ok(market) => {
            let what = format!("the base fee is {} wei, and {} wei more are usual", market.base_fee, market.tip);
            Line::new("fees", Verdict::Ok, what)
        }
        Err(error) => Line::new("fees", Verdict::Fail, format!("no endpoint says what gas costs: {error}")),
    }
}

/// A sponsor's state, means, code and nonce.
async fn sponsor_line<C>(
    db: &Db,
    (chain, network): (&C, &Network),
    sponsor: &Sponsor,
    at: &BlockRef,
) -> Result<Line, StoreError>
where
    C: AddressSource + PayingChain,
{
    let number = sponsor.number;
    let line = |verdict, what: String| Ok(Line::new("sponsor", verdict, format!("sponsor {number} {what}")));
    let Some(address) = sponsor.address else {
        return line(
            Verdict::Fail,
            "has no address: it is derived when `landfall run` runs with its signer".to_owned(),
        );
    };
    let last = attempts::last_nonce(&mut db.read().await?, network.chain, &address).await?;
    let seen = match asked_of(chain, network, &address, at).await {
        Ok(seen) => seen,
        Err(error) => return line(Verdict::Fail, format!("({address}) cannot be asked about: {error}")),
    };
    let Seen { balance, has_code, nonce, surcharge } = seen;
    let first = sponsor.first_nonce.unwrap_or(nonce);
    let used = last.map_or(first, |last| first.max(last + 1));
    let decimals = network.asset(&AssetId::Native).map_or(0, |native| native.decimals);
    let has = format!("({address}) has {}", to_decimal(balance, decimals));
    match sponsor.state {
        SponsorState::Quarantined => line(
            Verdict::Fail,
            format!("({address}) is quarantined: find out who else uses its key, then `landfall sponsor release`"),
        ),
        SponsorState::Active | SponsorState::Paused if has_code => line(
            Verdict::Fail,
            format!("({address}) has code, so that nodes take one transaction at a time: use another one"),
        ),
        SponsorState::Active | SponsorState::Paused if network.chain.family() == Family::Evm && nonce > used => line(
            Verdict::Fail,
            format!(
                "({address}) has sent {nonce} transactions, and {used} are on record: somebody else uses its key, or the store is an old copy"
            ),
        ),
        SponsorState::Active if sponsor.is_treasury && balance < U256::from(network.sending.refill_to) => {
            line(Verdict::Warn, format!("{has}, less than a refill may take: fund it"))
        }
        SponsorState::Active if balance < U256::from(network.sending.first_cost).saturating_add(surcharge) => {
            line(Verdict::Fail, format!("{has}, less than one transfer costs: fund it"))
        }
        SponsorState::Active if balance < network.sending.floor_with(surcharge) => {
            line(Verdict::Warn, format!("{has}, less than its floor: fund it"))
        }
        SponsorState::Paused => line(Verdict::Warn, format!("{has}, and is paused: `landfall sponsor resume`")),
        SponsorState::Active => line(Verdict::Ok, has),
    }
}

/// What the chain shows of a sponsor.
struct Seen {
    balance: U256,
    has_code: bool,
    nonce: u64,
    /// What the chain takes of a usual transaction on top of gas.
    surcharge: U256,
}

async fn asked_of<C>(chain: &C, network: &Network, address: &Address, at: &BlockRef) -> Result<Seen, SourceError>
where
    C: AddressSource + PayingChain,
{
    let balance = chain.owned(address).await?;
    // On Solana nobody counts transactions, and no sponsor can have code.
    let has_code = match network.chain.family() {
        Family::Evm => chain.account_states(&[*address], at).await?.first().is_some_and(|state| state.has_code),
        Family::Solana => false,
    };
    let (nonce, surcharge) = (chain.nonce_at(address, Some(at)).await?, chain.surcharge().await?);
    Ok(Seen { balance, has_code, nonce, surcharge })
}

/// Whether each asset with a route could be signed for now, and whether the chain says which keys are used.
async fn assets<C: PayingChain>(
    chain: &C,
    network: &Network,
    (known, in_use): (&[Sponsor], Option<&Taken>),
    at: &BlockRef,
) -> Vec<Line> {
    let Some(address) = known.iter().find_map(|sponsor| sponsor.address) else { return Vec::new() };
    let mut lines = Vec::new();
    for asset in &network.assets {
        let (symbol, first) = (&asset.symbol, asset.route.as_ref());
        for route in network.routes(asset) {
            let is_first = first == Some(&route);
            let (name, is_in_use) = match &route {
                Route::Delegate(delegate) => (delegate.name(), in_use.map_or(is_first, |taken| taken.is(delegate))),
                Route::Erc3009 { .. } | Route::Guard { .. } => (route.name(), true),
            };
            // New transfers do not need the others.
            let wrong = if is_in_use { Verdict::Fail } else { Verdict::Warn };
            let intent = trial(network, asset.id, &route, address);
            lines.push(match checked(chain, &intent, at).await {
                Ok(None) if !is_in_use => continue,
                Ok(None) => Line::new("asset", Verdict::Ok, format!("{symbol} can be sent by {name}")),
                Ok(Some(why)) => Line::new("asset", wrong, format!("{symbol} is not signed for by {name}: {why}")),
                Err(error) => Line::new("asset", wrong, format!("{symbol} by {name} cannot be asked about: {error}")),
            });
        }
    }
    lines
}

/// Why an intent of this kind would not be signed; `None` where it would.
async fn checked<C: PayingChain>(chain: &C, intent: &Intent, at: &BlockRef) -> Result<Option<String>, SourceError> {
    if let Readiness::NotReady(why) = chain.readiness(intent).await? {
        return Ok(Some(why));
    }
    let is_used = chain.is_used(intent, at).await?;
    Ok(is_used.then(|| "a key that nobody made is used, says the chain".to_owned()))
}

/// An intent that nobody signs: a sponsor pays itself.
fn trial(network: &Network, asset: AssetId, route: &Route, sponsor: Address) -> Intent {
    Intent {
        transfer_id: [0xd0; 16],
        chain_ref: network.chain_ref.clone(),
        route: route.clone(),
        asset,
        payer: sponsor,
        destination: sponsor,
        amount: U256::from(1),
        deadline: 1,
    }
}
