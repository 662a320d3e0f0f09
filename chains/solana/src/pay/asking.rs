//! The questions to the endpoints of Solana that paying needs: what an attempt is made of, whether mint and recipient
//! can be paid, whether a guard stands. It also hands transactions to endpoints.
//!
//! Promises:
//! - If an endpoint does not answer one of these calls, it still serves all other reads as before.
//! - Whether a guard stands counts only at a final slot, and only if as many endpoints as must agree report the same
//!   and no endpoint that was asked differs.
//! - No node is asked to send a transaction again by itself. Rent is asked for and never a constant.
//! - What one endpoint reported lately counts for that endpoint only.

use std::fmt::Debug;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use landfall_chain::{
    Acting, Address, AssetId, BlockRef, BlockSource, BroadcastResponse, Carried, FeeMarket, GuardQuote, GuardTerms,
    Guarded, Intent, KeyReport, Maker, Mark, PayingChain, Proof, Quote, Read, Readiness, Reclaim, ReclaimQuote, Route,
    SourceError, TxId, U256, Unpayable,
};
use landfall_rpc::{Call, Lately, Need};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ata::TokenProgram;
use crate::calls::{TRANSACTION, failed};
use crate::dialect::{Endpoint, Pool};
use crate::error::SolanaError;
use crate::holdings::read_accounts;
use crate::mint::terms;
use crate::networks;
use crate::pay::standing::{self, Account};
use crate::pay::{PayError, fees, guard, maker, reclaim, responses, token};
use crate::signatures::{FIRST_AVAILABLE, SIGNATURES};
use crate::source::SolanaSource;

const RENT: &str = "getMinimumBalanceForRentExemption";
const FEES: &str = "getRecentPrioritizationFees";
const SIMULATE: &str = "simulateTransaction";
const SEND: &str = "sendTransaction";
const BALANCE: &str = "getBalance";
const ACCOUNTS: &str = "getMultipleAccounts";
/// All of it is of one commitment, that of the blockhash.
const COMMITMENT: &str = "confirmed";

/// How long the rent of a guard counts, and how an account stands that a token is paid to, where it is there. Each attempt is
/// tried with them before it is signed.
const RENT_COUNTS: Duration = Duration::from_secs(60);
const TARGET_COUNTS: Duration = Duration::from_secs(2);

/// What an endpoint, by its place in the pool, reported and need not be asked for again at once.
#[derive(Debug)]
pub(crate) struct LatelyRead {
    /// Lamports.
    rents: Lately<usize, u64>,
    targets: Lately<(usize, Address), Target>,
}

impl Default for LatelyRead {
    fn default() -> Self {
        LatelyRead { rents: Lately::of(RENT_COUNTS), targets: Lately::of(TARGET_COUNTS) }
    }
}

/// How an account stands that a token is paid to.
#[derive(Clone, Copy, Default, Debug)]
struct Target {
    demands_memo: bool,
    /// It must be made first.
    is_missing: bool,
}

impl Target {
    fn of(account: Option<&Account>, program: TokenProgram) -> Self {
        // Anybody may send lamports there before it is made.
        let account = account.filter(|account| TokenProgram::of(&account.owner) == Some(program));
        Target { demands_memo: standing::demands_memo(account), is_missing: account.is_none() }
    }
}

#[derive(Deserialize)]
struct Response<T> {
    value: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireFee {
    prioritization_fee: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSimulated {
    err: Option<Value>,
    units_consumed: Option<u64>,
    logs: Option<Vec<String>>,
}

/// The data is the text, and how it is written.
#[derive(Deserialize)]
struct WireAccount {
    lamports: u64,
    owner: String,
    data: (String, String),
}

impl PayingChain for SolanaSource {
    async fn fee_market(&self) -> Result<FeeMarket, SourceError> {
        Err(SourceError::permanent("Solana has no price of gas; what an attempt is made of says its quote"))
    }

    async fn readiness(&self, intent: &Intent) -> Result<Readiness, SourceError> {
        Ok(readiness(self, intent).await?)
    }

    async fn acting(&self, _: &Intent) -> Result<Acting, SourceError> {
        Ok(Acting::Already)
    }

    async fn delegated(&self, _: &Address) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    async fn is_delegated(&self, _: &Address, _: &BlockRef) -> Result<bool, SourceError> {
        Ok(false)
    }

    async fn quote(&self, _: &Address, carried: &Carried) -> Result<Quote, SourceError> {
        let error = PayError::OtherRoute(carried.intent().map_or("clearing", |intent| intent.route.name()));
        Err(SolanaError::NoPayment { chain: self.pool.chain(), error }.into())
    }

    async fn surcharge(&self) -> Result<U256, SourceError> {
        Ok(U256::ZERO)
    }

    async fn guard_quote(
        &self,
        sponsor: &Address,
        intent: &Intent,
        recent: &BlockRef,
    ) -> Result<GuardQuote, SourceError> {
        Ok(guard_quote(self, sponsor, intent, recent).await?)
    }

    async fn reclaim_quote(
        &self,
        sponsor: &Address,
        intents: &[Intent],
        recent: &BlockRef,
    ) -> Result<ReclaimQuote, SourceError> {
        Ok(reclaim_quote(&self.pool, sponsor, intents, recent).await?)
    }

    async fn nonce_at(&self, _: &Address, _: Option<&BlockRef>) -> Result<u64, SourceError> {
        Ok(0)
    }

    async fn has_code(&self, _: &Address, _: &BlockRef) -> Result<bool, SourceError> {
        Ok(false)
    }

    async fn owned(&self, address: &Address) -> Result<U256, SourceError> {
        let asked = |endpoint| -> BoxFuture<'_, Result<u64, SolanaError>> {
            let params = json!([address.to_string(), { "commitment": COMMITMENT }]);
            Box::pin(async move {
                let answer = ask::<Response<u64>>(endpoint, BALANCE, params).await;
                Ok(answer.map_err(|error| endpoint.lacks(format!("does not report balances: {error}")))?.value)
            })
        };
        let lamports = self.pool.call(Need { methods: &[BALANCE], ..Need::default() }, asked).await?;
        Ok(U256::from(lamports))
    }

    async fn broadcast(&self, tx: &TxId, raw: &[u8]) -> BroadcastResponse {
        let how = json!({
            "encoding": "base64", "skipPreflight": true, "maxRetries": 0, "preflightCommitment": COMMITMENT,
        });
        self.pool.broadcast(tx, (&[SEND], json!([STANDARD.encode(raw), how])), &responses::WORDS).await
    }

    async fn is_shown(&self, mark: &Mark, at: &BlockRef) -> Result<bool, SourceError> {
        if self.pool.must_agree() <= 1 {
            return Ok(true);
        }
        let blocks = self.blocks(at.number..=at.number, Read::FULL).await?;
        let block = blocks.iter().find(|block| block.header.block == *at && block.proof == Proof::TwoEndpoints);
        let block = block.ok_or_else(|| SourceError::transient(format!("two endpoints do not report block {at}")))?;
        Ok(block.marks.contains(mark))
    }

    async fn key_report(&self, intent: &Intent, at: &BlockRef) -> Result<KeyReport, SourceError> {
        let (is_used, reported_by) = is_made(&self.pool, intent, at).await?;
        Ok(KeyReport { is_used, reported_by })
    }

    async fn was_made(&self, intent: &Intent, from: u64, at: &BlockRef) -> Result<bool, SourceError> {
        Ok(was_made(&self.pool, intent, (from, at)).await?)
    }

    async fn maker(&self, intent: &Intent, at: &BlockRef) -> Result<Option<Maker>, SourceError> {
        Ok(maker_of(&self.pool, intent, at).await?)
    }
}

/// What an attempt is made of, all by one endpoint, so that it belongs together.
async fn guard_quote(
    source: &SolanaSource,
    sponsor: &Address,
    intent: &Intent,
    recent: &BlockRef,
) -> Result<GuardQuote, SolanaError> {
    let (pool, lately) = (&source.pool, &source.lately);
    check_chain(pool, intent)?;
    let written = written(sponsor, intent).map_err(wrong(pool))?;
    let ask = |endpoint| -> BoxFuture<'_, Result<GuardQuote, SolanaError>> {
        let (sponsor, written) = (*sponsor, written.clone());
        Box::pin(async move {
            let quoted = quote_of((endpoint, lately), sponsor, intent, (recent, written)).await;
            quoted.map_err(|error| endpoint.lacks(format!("does not serve those who pay: {error}")))
        })
    };
    pool.call(Need { methods: &[RENT, FEES, SIMULATE], ..Need::default() }, ask).await
}

async fn quote_of(
    (endpoint, lately): (&Endpoint, &LatelyRead),
    sponsor: Address,
    intent: &Intent,
    (recent, written): (&BlockRef, Vec<String>),
) -> Result<GuardQuote, SolanaError> {
    let blockhash = recent.hash;
    let rent = rent(endpoint, lately).await?;
    // One lamport more, where the same sum is paid: blocks must show which account is the guard.
    let is_paid = intent.asset == AssetId::Native && intent.amount == U256::from(rent);
    let rent = if is_paid { rent.saturating_add(1) } else { rent };
    let paid: Vec<WireFee> = ask(endpoint, FEES, json!([written])).await?;
    let compute_price = fees::price(paid.into_iter().map(|fee| fee.prioritization_fee).collect());
    let Target { demands_memo: memo, is_missing: makes_account } = match target_of(endpoint, lately, intent).await? {
        Ok(target) => target,
        Err(why) => return Ok(GuardQuote::Refused(why)),
    };
    let tried = GuardTerms { blockhash, rent, compute_limit: fees::LIMIT_MAX, compute_price: 0, memo, makes_account };
    let raw = guard::unsigned(&Guarded { sponsor, intent: intent.clone(), terms: tried });
    let raw = raw.map_err(|error| SolanaError::NoPayment { chain: endpoint.chain, error })?;
    let simulated = simulated(endpoint, &raw, recent).await?;
    if let Simulated::Failed(..) = simulated {
        // It may have failed by this.
        lately.rents.forget(&endpoint.index);
    }
    Ok(match simulated {
        Simulated::Used(compute_limit) => GuardQuote::Terms(GuardTerms { compute_limit, compute_price, ..tried }),
        Simulated::NotYet => GuardQuote::NotYet,
        Simulated::Failed(err, _) if is_poor(&err) => GuardQuote::Poor,
        Simulated::Failed(_, said) => GuardQuote::Refused(said),
    })
}

/// What became of a transaction that was tried.
enum Simulated {
    /// It would go through, with this compute limit.
    Used(u32),
    /// The blockhash is not known.
    NotYet,
    /// The error, and the node's words, cleaned.
    Failed(Value, String),
}

/// Tries a transaction without signatures on the blockhash of `recent`.
async fn simulated(endpoint: &Endpoint, raw: &[u8], recent: &BlockRef) -> Result<Simulated, SolanaError> {
    let how = json!({ "encoding": "base64", "sigVerify": false, "commitment": COMMITMENT });
    let simulated: Response<WireSimulated> = ask(endpoint, SIMULATE, json!([STANDARD.encode(raw), how])).await?;
    let WireSimulated { err, units_consumed, logs } = simulated.value;
    let Some(err) = err else {
        let used = units_consumed.ok_or_else(|| endpoint.unusable(SIMULATE, "it does not say what was used"))?;
        return Ok(Simulated::Used(fees::limit(used)));
    };
    if err == "BlockhashNotFound" {
        tracing::debug!(chain = %endpoint.chain, endpoint = %endpoint.id, "the blockhash of {recent} is not known");
        return Ok(Simulated::NotYet);
    }
    let last =
        logs.unwrap_or_default().into_iter().rfind(|line| line.contains("Error") || line.contains("insufficient"));
    let said = endpoint.clean(&format!("{err}; {}", last.unwrap_or_default()));
    Ok(Simulated::Failed(err, said))
}

/// What a transaction that takes back guards is made of, all by one endpoint.
async fn reclaim_quote(
    pool: &Pool,
    sponsor: &Address,
    intents: &[Intent],
    recent: &BlockRef,
) -> Result<ReclaimQuote, SolanaError> {
    let mut guards = Vec::with_capacity(intents.len());
    for intent in intents {
        check_chain(pool, intent)?;
        guards.push(guard_of(pool, intent)?);
    }
    let ask = |endpoint| -> BoxFuture<'_, Result<ReclaimQuote, SolanaError>> {
        let (sponsor, intents, guards) = (*sponsor, intents.to_vec(), guards.clone());
        Box::pin(async move {
            let accounts = accounts_of(endpoint, &guards).await?;
            let is_absent = |account: &Option<Account>| account.as_ref().is_none_or(|account| account.lamports == 0);
            let absent: Vec<usize> =
                accounts.iter().enumerate().filter(|(_, account)| is_absent(account)).map(|(at, _)| at).collect();
            if !absent.is_empty() {
                return Ok(ReclaimQuote::Absent(absent));
            }
            let lamports: Vec<u64> = accounts.iter().flatten().map(|account| account.lamports).collect();
            let guards = intents.into_iter().zip(lamports.iter().copied()).collect();
            let tried = Reclaim { sponsor, guards, blockhash: recent.hash, compute_limit: fees::LIMIT_MAX };
            let wrong = |error| SolanaError::NoPayment { chain: endpoint.chain, error };
            let unsigned = reclaim::reclaim(&tried).map_err(wrong)?;
            let signatures = vec![[0; 64]; unsigned.signers().len()];
            let (raw, _) = unsigned.signed(&signatures).ok_or_else(|| endpoint.unusable(SIMULATE, "no signatures"))?;
            let quoted = simulated(endpoint, &raw, recent).await;
            let quoted = quoted.map_err(|error| endpoint.lacks(format!("does not try a reclaim: {error}")))?;
            Ok(match quoted {
                Simulated::Used(compute_limit) => ReclaimQuote::Terms { lamports, compute_limit },
                Simulated::NotYet => ReclaimQuote::NotYet,
                Simulated::Failed(err, _) if is_poor(&err) => ReclaimQuote::Poor,
                Simulated::Failed(_, said) => ReclaimQuote::Refused(said),
            })
        })
    };
    pool.call(Need { methods: &[ACCOUNTS, SIMULATE], ..Need::default() }, ask).await
}

/// What an account without data must have: a guard.
async fn rent(endpoint: &Endpoint, lately: &LatelyRead) -> Result<u64, SolanaError> {
    if let Some(rent) = lately.rents.get(&endpoint.index) {
        return Ok(rent);
    }
    let rent: u64 = ask(endpoint, RENT, json!([0, { "commitment": COMMITMENT }])).await?;
    if rent == 0 {
        return Err(endpoint.unusable(RENT, "an account for nothing"));
    }
    lately.rents.keep(endpoint.index, rent);
    Ok(rent)
}

/// How the account stands that is paid, or why nothing is paid there.
async fn target_of(
    endpoint: &Endpoint,
    lately: &LatelyRead,
    intent: &Intent,
) -> Result<Result<Target, String>, SolanaError> {
    let wrong = |error| SolanaError::NoPayment { chain: endpoint.chain, error };
    let Some((mint, program)) = token::token(intent).map_err(wrong)? else { return Ok(Ok(Target::default())) };
    let [_, target] = token::accounts(intent, &mint, program).map_err(wrong)?.map(Address::Solana);
    if let Some(target) = lately.targets.get(&(endpoint.index, target)) {
        return Ok(Ok(target));
    }
    let account = accounts_of(endpoint, &[target]).await?.into_iter().flatten().next();
    let why = account.as_ref().and_then(|account| standing::not_of(&intent.destination, account));
    Ok(why.map_or_else(|| Ok(Target::of(account.as_ref(), program)), Err))
}

/// Whether the simulation failed because the sponsor owns too little: it pays the fee, its account is the first, and the
/// guard of instruction 0 is made of its lamports alone.
fn is_poor(err: &Value) -> bool {
    ["AccountNotFound", "InsufficientFundsForFee"].iter().any(|name| err == name)
        || err["InsufficientFundsForRent"]["account_index"] == 0
        || err["InstructionError"] == json!([0, { "Custom": 1 }])
}

/// The accounts that it writes to: others who write there pay for the same room in a block.
fn written(sponsor: &Address, intent: &Intent) -> Result<Vec<String>, PayError> {
    let mut written = vec![*sponsor];
    written.extend(intent.guard());
    match token::token(intent)? {
        None => written.extend([intent.payer, intent.destination]),
        Some((mint, program)) => written.extend(token::accounts(intent, &mint, program)?.map(Address::Solana)),
    }
    // A treasury pays for what it gives.
    written.sort_unstable();
    written.dedup();
    Ok(written.iter().map(Address::to_string).collect())
}

/// Whether the recipient is a wallet, the mint one that is sent, and enough there.
async fn readiness(source: &SolanaSource, intent: &Intent) -> Result<Readiness, SolanaError> {
    let (pool, lately) = (&source.pool, &source.lately);
    check_chain(pool, intent)?;
    let token = token::token(intent).map_err(wrong(pool))?;
    let Route::Guard { decimals, .. } = intent.route else {
        return Ok(not_ready("its route is another"));
    };
    if intent.guard() == Some(intent.destination) {
        let why = format!("{} is the account that this very transfer makes once; send to a wallet", intent.destination);
        return Ok(Readiness::Unpayable(Unpayable::Destination, why));
    }
    let mut keys = vec![intent.destination, intent.payer];
    if let Some((mint, program)) = token {
        keys.push(Address::Solana(mint));
        keys.extend(token::accounts(intent, &mint, program).map_err(wrong(pool))?.map(Address::Solana));
    }
    let ask = |endpoint| -> BoxFuture<'_, Result<Readiness, SolanaError>> {
        let keys = keys.clone();
        Box::pin(async move {
            let accounts = accounts_of(endpoint, &keys).await?;
            let [recipient, payer, mint, source, target] = std::array::from_fn(|at| accounts.get(at)?.as_ref());
            if let Some(why) = standing::no_wallet(&intent.destination, recipient) {
                return Ok(Readiness::Unpayable(Unpayable::Destination, why));
            }
            let unpayable = match token {
                None => {
                    let rent = rent(endpoint, lately).await;
                    let rent = rent.map_err(|error| endpoint.lacks(format!("does not report rent: {error}")))?;
                    standing::unpayable_sol(intent, [payer, recipient], rent)
                }
                Some((_, program)) => {
                    if let Some(why) = unsendable(endpoint, mint, program, decimals)? {
                        return Ok(not_ready(&format!("mint {}: {why}", intent.asset)));
                    }
                    let unpayable = standing::unpayable_token(intent, [source, target]);
                    let stands = Target::of(target, program);
                    // Who makes an account pays for it, so whether one is missing is asked each time.
                    if let Some(key) = keys.last().filter(|_| unpayable.is_none() && !stands.is_missing) {
                        lately.targets.keep((endpoint.index, *key), stands);
                    }
                    unpayable
                }
            };
            Ok(unpayable.map_or(Readiness::Ready, |(what, why)| Readiness::Unpayable(what, why)))
        })
    };
    pool.call(Need { methods: &[ACCOUNTS, RENT], ..Need::default() }, ask).await
}

/// Why a mint is not sent; `None` where it is.
fn unsendable(
    endpoint: &Endpoint,
    mint: Option<&Account>,
    program: TokenProgram,
    decimals: u8,
) -> Result<Option<String>, SolanaError> {
    let Some(Account { owner, data, .. }) = mint else { return Ok(Some("it has no account".to_owned())) };
    if TokenProgram::of(owner) != Some(program) {
        return Ok(Some("it is not kept by the program that is listed".to_owned()));
    }
    let terms = terms(program, data).map_err(|error| endpoint.lacks(format!("does not report mints: {error}")))?;
    Ok(token::unsendable(&terms, decimals))
}

/// The accounts as they stand now, in the order of `keys`.
async fn accounts_of(endpoint: &Endpoint, keys: &[Address]) -> Result<Vec<Option<Account>>, SolanaError> {
    let names: Vec<String> = keys.iter().map(Address::to_string).collect();
    let how = json!({ "commitment": COMMITMENT, "encoding": "base64" });
    let reported = ask::<Response<Vec<Option<WireAccount>>>>(endpoint, ACCOUNTS, json!([names, how])).await;
    let reported = reported.map_err(|error| endpoint.lacks(format!("does not report accounts: {error}")))?.value;
    if reported.len() != keys.len() {
        return Err(endpoint.lacks(format!("reports {} accounts for {} keys", reported.len(), keys.len())));
    }
    let read = |WireAccount { lamports, owner, data: (text, _) }: WireAccount| {
        let data = STANDARD.decode(text).map_err(|_| endpoint.lacks("reports accounts in no base64".to_owned()))?;
        Ok(Account { lamports, owner, data })
    };
    reported.into_iter().map(|account| account.map(read).transpose()).collect()
}

fn not_ready(why: &str) -> Readiness {
    Readiness::NotReady(why.to_owned())
}

/// Whether the guard is there, at a final slot that is not below `at`, and the endpoints that report it.
async fn is_made(pool: &Pool, intent: &Intent, at: &BlockRef) -> Result<(bool, Vec<String>), SolanaError> {
    check_chain(pool, intent)?;
    let guard = guard_of(pool, intent)?;
    let key = [super::solana(&guard).map_err(wrong(pool))?];
    let reached = at.number;
    let ask = |endpoint| -> BoxFuture<'_, Result<bool, SolanaError>> {
        Box::pin(async move {
            let accounts = read_accounts(endpoint, &key, reached).await;
            let accounts =
                accounts.map_err(|error| endpoint.lacks(format!("does not report guard {guard}: {error}")))?;
            Ok(accounts.value.first().is_some_and(|account| account.as_ref().is_some_and(|it| it.lamports > 0)))
        })
    };
    alike_by(pool, (guard, reached, &[ACCOUNTS]), ask).await
}

/// Who made the guard.
async fn maker_of(pool: &Pool, intent: &Intent, at: &BlockRef) -> Result<Option<Maker>, SolanaError> {
    check_chain(pool, intent)?;
    let guard = guard_of(pool, intent)?;
    let ask = |endpoint| -> BoxFuture<'_, Result<Option<Maker>, SolanaError>> {
        let (named, payer, slot) = (guard.to_string(), intent.payer.to_string(), at.number);
        Box::pin(async move {
            match maker::reported(endpoint, (&named, &payer), slot).await {
                // One that keeps less says nothing.
                Ok(None) => Err(endpoint.lacks(format!("does not know who made guard {named}"))),
                Ok(maker) => Ok(maker),
                Err(error) => Err(endpoint.lacks(format!("does not report who made guard {named}: {error}"))),
            }
        })
    };
    alike(pool, (guard, at.number, &[SIGNATURES, TRANSACTION]), ask).await
}

/// Whether the guard was ever there since slot `from`.
async fn was_made(pool: &Pool, intent: &Intent, (from, at): (u64, &BlockRef)) -> Result<bool, SolanaError> {
    check_chain(pool, intent)?;
    let guard = guard_of(pool, intent)?;
    let ask = |endpoint| -> BoxFuture<'_, Result<bool, SolanaError>> {
        let (named, slots) = (guard.to_string(), (from, at.number));
        Box::pin(async move {
            let was_made = maker::was_made(endpoint, &named, slots).await;
            was_made.map_err(|error| endpoint.lacks(format!("does not report what named guard {named}: {error}")))
        })
    };
    alike(pool, (guard, at.number, &[SIGNATURES, TRANSACTION, FIRST_AVAILABLE]), ask).await
}

fn guard_of(pool: &Pool, intent: &Intent) -> Result<Address, SolanaError> {
    intent.guard().ok_or(PayError::OtherRoute(intent.route.name())).map_err(wrong(pool))
}

/// What as many endpoints as must agree report of a guard. If anybody who was asked differs, it is an error.
async fn alike<'p, T: Copy + PartialEq + Debug + Send + Sync>(
    pool: &'p Pool,
    asked: (Address, u64, &'static [&'static str]),
    ask: impl Fn(&'p Endpoint) -> BoxFuture<'p, Result<T, SolanaError>> + Send + Sync,
) -> Result<T, SolanaError> {
    Ok(alike_by(pool, asked, ask).await?.0)
}

/// As [`alike`], and the endpoints that report it.
async fn alike_by<'p, T: Copy + PartialEq + Debug + Send + Sync>(
    pool: &'p Pool,
    (guard, slot, methods): (Address, u64, &'static [&'static str]),
    ask: impl Fn(&'p Endpoint) -> BoxFuture<'p, Result<T, SolanaError>> + Send + Sync,
) -> Result<(T, Vec<String>), SolanaError> {
    let agree = pool.must_agree();
    let differ = |reported: &[(&Endpoint, T)]| reported.iter().any(|(_, answer)| *answer != reported[0].1);
    let enough = |reported: &[(&Endpoint, T)]| reported.len() >= agree || differ(reported);
    let need = Need { first: slot, last: slot, methods };
    let responses = pool.call_each(need, Vec::new(), ask, enough).await?;
    let reported = responses.reported;
    if reported.len() >= agree && !differ(&reported) {
        return Ok((reported[0].1, reported.iter().map(|(endpoint, _)| endpoint.id.clone()).collect()));
    }
    let each = |(endpoint, answer): &(&Endpoint, T)| format!("{} reports {answer:?}", endpoint.id);
    let reports = reported.iter().map(each).collect::<Vec<_>>().join(", ");
    let missing = responses.missing.join("; ");
    Err(SolanaError::GuardUnreported { chain: pool.chain(), guard, slot, agree, reports, missing })
}

/// The answer to one call.
async fn ask<T: DeserializeOwned>(endpoint: &Endpoint, method: &'static str, params: Value) -> Result<T, SolanaError> {
    let answer = endpoint.ask_aside(&[Call { method, params }]).await?.into_iter().next();
    let answer = answer.ok_or_else(|| endpoint.unusable(method, "no answer"))?;
    let answer = answer.map_err(|error| failed(endpoint, method, &error))?;
    endpoint.parse(method, &answer)
}

fn check_chain(pool: &Pool, intent: &Intent) -> Result<(), SolanaError> {
    let chain = pool.chain();
    let is_ours = networks::network(chain).is_some_and(|network| network.chain_ref == intent.chain_ref);
    is_ours.then_some(()).ok_or_else(|| SolanaError::OtherChain { chain, chain_ref: intent.chain_ref.clone() })
}

fn wrong(pool: &Pool) -> impl Fn(PayError) -> SolanaError {
    let chain = pool.chain();
    move |error| SolanaError::NoPayment { chain, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sponsor_that_owns_too_little_is_not_taken_for_a_payment_that_is_refused() {
        let of_the_sponsor = [
            json!("AccountNotFound"),
            json!("InsufficientFundsForFee"),
            json!({ "InsufficientFundsForRent": { "account_index": 0 } }),
            json!({ "InstructionError": [0, { "Custom": 1 }] }),
        ];
        assert!(of_the_sponsor.iter().all(is_poor));
        let of_the_payment = [
            json!({ "InstructionError": [0, { "Custom": 0 }] }),
            json!({ "InstructionError": [3, { "Custom": 1 }] }),
            json!({ "InsufficientFundsForRent": { "account_index": 1 } }),
            json!("AccountInUse"),
        ];
        assert!(!of_the_payment.iter().any(is_poor));
    }
}
