//! The questions to the endpoints of an EVM chain that carrying an intent needs: what gas costs, whether a token or a
//! delegate is ready, which nonce is next, whether a key was used. It also hands transactions to endpoints.
//!
//! Promises:
//! - If an endpoint does not answer one of these calls, it still serves all other reads as before.
//! - What is reported of a block is asked for by the block's hash (EIP-1898).
//! - Whether a key was used counts only if as many endpoints as must agree report the same, and no endpoint that was
//!   asked differs.
//! - Gas and prices are integers. No constant stands for the gas that something needs.

use std::fmt::{self, Display};
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall_chain::{
    Acting, Address, AssetId, BlockRef, BroadcastResponse, Carried, FeeMarket, GuardQuote, Intent, KeyReport, Maker,
    Mark, PayingChain, Quote, Readiness, ReclaimQuote, Route, SignedAuthorization, SourceError, TxId, U256, Unpayable,
};
use landfall_rpc::{Answer, Call, Lately, Need, NodeError, Raw};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::dialect::{Endpoint, Pool};
use crate::error::EvmError;
use crate::hex::{Amount, Data, Quantity};
use crate::holdings::BALANCE;
use crate::holdings::{CALL, CODE, by_hash, is_of_the_contract};
use crate::networks::tip_least;
use crate::pay::acting::{acting, delegate_readiness, delegated, is_delegated, is_listed};
use crate::pay::delegate::{UsedAt, designator};
use crate::pay::{
    PayError, address_word, authorization, authorizations, call, chain_id, contract, erc3009, evm, number_word,
    responses, surcharge, trial, used_at, value,
};
use crate::source::EvmSource;

const FEE_HISTORY: &str = "eth_feeHistory";
pub(super) const ESTIMATE: &str = "eth_estimateGas";
pub(super) const NONCE: &str = "eth_getTransactionCount";
const STORAGE: &str = "eth_getStorageAt";
const SEND: &str = "eth_sendRawTransaction";

/// How many of the newest blocks say what is usually added for who makes a block; and of each the middle transaction.
const FEE_BLOCKS: u64 = 10;
const FEE_PERCENTILE: u64 = 50;
/// No transaction may use more gas (EIP-7825).
const GAS_MAX: u64 = 1 << 24;

/// What `eth_feeHistory` answers. How full blocks were is left out: those are no integers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireFeeHistory {
    /// Of each block, then of the next one.
    base_fee_per_gas: Vec<Amount>,
    /// Of each block, for each percentile that was asked for.
    reward: Option<Vec<Vec<Amount>>>,
}

impl PayingChain for EvmSource {
    async fn fee_market(&self) -> Result<FeeMarket, SourceError> {
        let blocks = format!("{FEE_BLOCKS:#x}");
        let calls = [Call { method: FEE_HISTORY, params: json!([blocks, "latest", [FEE_PERCENTILE]]) }];
        let market = of_one(self.pool(), &[FEE_HISTORY], &calls, |endpoint, answers| {
            let history: WireFeeHistory = endpoint.parse(FEE_HISTORY, given(endpoint, FEE_HISTORY, &answers[0])?)?;
            let market = market(&history, tip_least(endpoint.chain));
            market.ok_or_else(|| endpoint.unusable(FEE_HISTORY, "no base fee, or one that nobody could pay"))
        });
        Ok(market.await?)
    }

    async fn readiness(&self, intent: &Intent) -> Result<Readiness, SourceError> {
        let (pool, gas_max) = (self.pool(), self.recipient_gas_max());
        check_chain(pool, &intent.chain_ref)?;
        evm(&intent.payer).map_err(wrong(pool))?;
        let readiness = match &intent.route {
            Route::Erc3009 { name, version } => token_readiness(self, intent, (name, version)).await?,
            Route::Delegate(delegate) => {
                delegate_readiness(pool, self.delegates(), (delegate, intent), gas_max).await?
            }
            Route::Guard { .. } => return Err(wrong(pool)(PayError::OtherRoute(intent.route.name())).into()),
        };
        let Readiness::Unpayable(Unpayable::Refused, _) = readiness else { return Ok(readiness) };
        // It is refused, whatever becomes of the question why.
        let reason = refused_because(pool, intent).await.ok().flatten();
        Ok(reason.map_or(readiness, |(what, why)| Readiness::Unpayable(what, why)))
    }

    async fn acting(&self, intent: &Intent) -> Result<Acting, SourceError> {
        match &intent.route {
            Route::Erc3009 { .. } | Route::Guard { .. } => Ok(Acting::Already),
            Route::Delegate(delegate) => Ok(acting(self.pool(), self.delegates(), (delegate, intent)).await?),
        }
    }

    async fn delegated(&self, wallet: &Address) -> Result<Option<u64>, SourceError> {
        Ok(delegated(self.pool(), self.delegates(), wallet).await?)
    }

    async fn is_delegated(&self, wallet: &Address, at: &BlockRef) -> Result<bool, SourceError> {
        Ok(is_delegated(self.pool(), self.delegates(), wallet, at).await?)
    }

    async fn quote(&self, sponsor: &Address, carried: &Carried) -> Result<Quote, SourceError> {
        let (pool, gas_max) = (self.pool(), self.recipient_gas_max());
        Ok(match quote(pool, sponsor, carried, gas_max).await? {
            Ok(limit) => {
                let size = surcharge::Size::of(sponsor, carried, limit).map_err(wrong(pool))?;
                Quote::Gas { limit, surcharge: surcharge::of_size(pool, size).await? }
            }
            Err(said) => Quote::Refused(said),
        })
    }

    async fn surcharge(&self) -> Result<U256, SourceError> {
        Ok(surcharge::usual(self.pool()).await?)
    }

    async fn guard_quote(&self, _: &Address, intent: &Intent, _: &BlockRef) -> Result<GuardQuote, SourceError> {
        let error = PayError::OtherRoute(intent.route.name());
        Err(EvmError::NoPayment { chain: self.pool().chain(), error }.into())
    }

    async fn reclaim_quote(&self, _: &Address, _: &[Intent], _: &BlockRef) -> Result<ReclaimQuote, SourceError> {
        Err(EvmError::NoPayment { chain: self.pool().chain(), error: PayError::OtherRoute(Route::GUARD) }.into())
    }

    async fn nonce_at(&self, address: &Address, at: Option<&BlockRef>) -> Result<u64, SourceError> {
        evm(address).map_err(wrong(self.pool()))?;
        if let Some(at) = at {
            let call = Call { method: NONCE, params: json!([address.to_string(), by_hash(at)]) };
            return Ok(agreed(
                self.pool(),
                at,
                ("how many transactions a sponsor sent", &[NONCE], &call),
                |endpoint, answer| {
                    let Quantity(nonce) = endpoint.parse(NONCE, answer)?;
                    Ok(nonce)
                },
            )
            .await?);
        }
        let calls = [nonce_of(address)];
        let nonce = of_one(self.pool(), &[NONCE], &calls, |endpoint, answers| {
            let Quantity(nonce) = endpoint.parse(NONCE, given(endpoint, NONCE, &answers[0])?)?;
            Ok(nonce)
        });
        Ok(nonce.await?)
    }

    async fn has_code(&self, address: &Address, at: &BlockRef) -> Result<bool, SourceError> {
        Ok(has_code(self.pool(), address, at).await?)
    }

    async fn owned(&self, address: &Address) -> Result<U256, SourceError> {
        evm(address).map_err(wrong(self.pool()))?;
        let calls = [Call { method: BALANCE, params: json!([address.to_string(), "latest"]) }];
        let owned = of_one(self.pool(), &[BALANCE], &calls, |endpoint, answers| {
            let Amount(owned) = endpoint.parse(BALANCE, given(endpoint, BALANCE, &answers[0])?)?;
            Ok(owned)
        });
        Ok(owned.await?)
    }

    async fn broadcast(&self, tx: &TxId, raw: &[u8]) -> BroadcastResponse {
        let params = json!([alloy::hex::encode_prefixed(raw)]);
        self.pool().broadcast(tx, (&[SEND], params), &responses::WORDS).await
    }

    /// Roots prove what blocks of EVM chains show.
    async fn is_shown(&self, _: &Mark, _: &BlockRef) -> Result<bool, SourceError> {
        Ok(true)
    }

    async fn key_report(&self, intent: &Intent, at: &BlockRef) -> Result<KeyReport, SourceError> {
        Ok(key_report(self.pool(), intent, at).await?)
    }

    async fn was_made(&self, _: &Intent, _: u64, _: &BlockRef) -> Result<bool, SourceError> {
        Err(EvmError::NoPayment { chain: self.pool().chain(), error: PayError::OtherRoute(Route::GUARD) }.into())
    }

    async fn maker(&self, _: &Intent, _: &BlockRef) -> Result<Option<Maker>, SourceError> {
        Ok(None)
    }
}

fn market(history: &WireFeeHistory, tip_least: u64) -> Option<FeeMarket> {
    let base_fee = u128::try_from(history.base_fee_per_gas.last()?.0).ok()?;
    let blocks = history.reward.iter().flatten();
    let mut tips: Vec<u128> = blocks.filter_map(|block| u128::try_from(block.first()?.0).ok()).collect();
    tips.sort_unstable();
    let usual = tips.get(tips.len() / 2).copied().unwrap_or_default();
    Some(FeeMarket { base_fee, tip: usual.max(tip_least.into()) })
}

/// How long a token's reported domain counts before the token is asked again. A signature for another domain pays nothing,
/// and each carrier is estimated with the signature itself.
const DOMAIN_COUNTS: Duration = Duration::from_secs(60);
/// How long it counts that a payer has no code. It gets some only by an authorization that its own key signs, and each
/// carrier is estimated with the signature itself.
const CODELESS_COUNTS: Duration = Duration::from_secs(2);

/// What need not be asked again at once: the domains of tokens, and which payers have no code.
#[derive(Debug)]
pub(crate) struct LatelyRead {
    domains: Lately<[u8; 32], ()>,
    codeless: Lately<[u8; 32], ()>,
}

impl Default for LatelyRead {
    fn default() -> Self {
        LatelyRead { domains: Lately::of(DOMAIN_COUNTS), codeless: Lately::of(CODELESS_COUNTS) }
    }
}

async fn token_readiness(
    source: &EvmSource,
    intent: &Intent,
    (name, version): (&str, &str),
) -> Result<Readiness, EvmError> {
    let (pool, delegates) = (source.pool(), source.delegates());
    let LatelyRead { domains, codeless } = source.lately();
    let contract = contract(&intent.asset).map_err(wrong(pool))?;
    let token = Address::Evm(contract);
    let payer = address_word(evm(&intent.payer).map_err(wrong(pool))?);
    let expected = erc3009::domain_separator(intent, name, version).map_err(wrong(pool))?;
    let mut calls = vec![trial::call(intent, trial::RECIPIENT_GAS_MAX).map_err(wrong(pool))?];
    let asks_domain = domains.get(&expected).is_none();
    if asks_domain {
        calls.push(call_of(&contract, &erc3009::DOMAIN_SEPARATOR, json!("latest")));
    }
    let asks_code = codeless.get(&payer).is_none();
    if asks_code {
        calls.push(code_of(&intent.payer));
    }
    of_one(pool, &[CALL, CODE], &calls, |endpoint, answers| {
        if asks_domain {
            let domain = match &answers[1] {
                Ok(answer) => endpoint.parse::<Data<'_>>(CALL, answer)?.to_array::<32>(),
                Err(error) if is_of_the_contract(error) => None,
                Err(error) => return Err(endpoint.refused(CALL, error)),
            };
            let Some(domain) = domain else {
                return Ok(Readiness::NotReady(format!("token {token} reports no DOMAIN_SEPARATOR")));
            };
            if domain != expected {
                let [reported, made] = [domain, expected].map(alloy::hex::encode_prefixed);
                let what = format!("token {token} reports the domain {reported}, and its name and version make {made}");
                return Ok(Readiness::NotReady(what));
            }
            domains.keep(domain, ());
        }
        if asks_code {
            let code = code(endpoint, &answers[calls.len() - 1])?;
            if code.is_empty() {
                codeless.keep(payer, ());
            } else if !is_listed(delegates, &code) {
                let what = "has code that is not listed, so that the token asks that (ERC-1271) and not its key";
                return Ok(Readiness::NotReady(format!("payer {} {what}", intent.payer)));
            }
        }
        tried_as(endpoint, intent, &answers[0], trial::RECIPIENT_GAS_MAX)
    })
    .await
}

/// Whether the payment would go through, by the answer to [`trial::call`].
pub(super) fn tried_as(
    endpoint: &Endpoint,
    intent: &Intent,
    answer: &Answer,
    gas_max: u64,
) -> Result<Readiness, EvmError> {
    let refused = trial::read(endpoint, intent, answer, gas_max)?;
    Ok(refused.map_or(Readiness::Ready, |(what, why)| Readiness::Unpayable(what, why)))
}

/// Why a token refuses a payment, by what it answers.
async fn refused_because(pool: &Pool, intent: &Intent) -> Result<Option<trial::Why>, EvmError> {
    let calls = trial::questions(intent).map_err(wrong(pool))?;
    of_one(pool, &[CALL], &calls, |endpoint, answers| Ok(trial::reason(endpoint, intent, answers))).await
}

/// The limit to set, or a node's words where it was tried and would fail.
///
/// A node that takes no authorizations in a call, or ignores them, is asked in the same breath what it takes without. To
/// a payment the delegate's code is put in place then; that leaves out what the authorization itself takes, so twice as much
/// is set. What takes delegates away does nothing else, so such a node says nothing of it.
///
/// A recipient of native currency may see who pays for the gas, and take more of it than it took from the payer. So each way is
/// asked once more as if the recipient had no code: what it takes is the difference.
async fn quote(
    pool: &Pool,
    sponsor: &Address,
    carried: &Carried,
    gas_max: u64,
) -> Result<Result<u64, String>, EvmError> {
    check_chain(pool, carried.chain_ref().unwrap_or_default())?;
    let (contract, data) = call(sponsor, carried).map_err(wrong(pool))?;
    let beside = authorizations(carried).map_err(wrong(pool))?;
    let (contract, data) = (Address::Evm(contract).to_string(), alloy::hex::encode_prefixed(data));
    let mut without = json!({ "from": sponsor.to_string(), "to": contract, "data": data });
    let value = value(carried);
    if !value.is_zero() {
        without["value"] = json!(format!("{value:#x}"));
    }
    let mut with = without.clone();
    if !beside.is_empty() {
        let tuples = beside.into_iter().map(authorization::for_node).collect::<Result<Vec<_>, _>>();
        with["authorizationList"] = json!(tuples.map_err(wrong(pool))?);
    }
    let mut ways = vec![(with, Map::new())];
    let is_clearing = match carried {
        Carried::Payment { authorization: Some(signed), .. } => {
            ways.push((without, in_place(signed).map_err(wrong(pool))?));
            false
        }
        Carried::Clearings(_) => {
            ways.push((without, Map::new()));
            true
        }
        Carried::Payment { authorization: None, .. } | Carried::Cancellation(_) | Carried::Refill(_) => false,
    };
    let recipient = match carried {
        Carried::Payment { signed, .. } if signed.intent.asset == AssetId::Native => Some(signed.intent.destination),
        // A sponsor has no code that could take more.
        Carried::Payment { .. } | Carried::Cancellation(_) | Carried::Clearings(_) | Carried::Refill(_) => None,
    };
    let mut calls: Vec<Call> = ways.iter().map(|(tx, state)| estimate_of(tx, state)).collect();
    if let Some(recipient) = recipient {
        calls.extend(ways.iter().map(|(tx, state)| {
            let mut state = state.clone();
            state.insert(recipient.to_string(), json!({ "code": "0x" }));
            estimate_of(tx, &state)
        }));
    }
    let count = ways.len();
    of_one(pool, &[ESTIMATE], &calls, |endpoint, answers| {
        let of_way = |way: usize| match (estimate(endpoint, &answers[way])?, recipient) {
            (Ok(gas), Some(to)) => Ok(estimate(endpoint, &answers[count + way])?.and_then(|bare| {
                let taken = gas.saturating_sub(bare);
                let why = || format!("a payment to {to} takes {taken} gas of a sponsor, and may take {gas_max}");
                (taken <= gas_max).then_some(gas).ok_or_else(why)
            })),
            (estimated, _) => Ok(estimated),
        };
        match (of_way(0), (count > 1).then(|| of_way(1))) {
            (Ok(Ok(with)), Some(Ok(Ok(without)))) if is_clearing && with <= without => {
                Err(endpoint.unusable(ESTIMATE, "what authorizations take is left out"))
            }
            (Ok(Ok(gas)), _) => Ok(limited(gas)),
            (_, Some(Ok(Ok(gas)))) if !is_clearing => Ok(limited(gas.saturating_mul(2))),
            (Ok(Err(said)), _) | (Err(_), Some(Ok(Err(said)))) => Ok(Err(said)),
            (Err(error), _) => Err(error),
        }
    })
    .await
}

fn estimate_of(tx: &Value, state: &Map<String, Value>) -> Call {
    let params = if state.is_empty() { json!([tx, "latest"]) } else { json!([tx, "latest", state]) };
    Call { method: ESTIMATE, params }
}

/// The state in which the code of an authorization acts for its wallet.
fn in_place(signed: &SignedAuthorization) -> Result<Map<String, Value>, PayError> {
    let code = alloy::hex::encode_prefixed(designator(&evm(&signed.authorization.implementation)?));
    Ok(Map::from_iter([(signed.authorization.wallet.to_string(), json!({ "code": code }))]))
}

/// What it takes, or the node's words where it was tried and would fail.
fn estimate(endpoint: &Endpoint, answer: &Answer) -> Result<Result<u64, String>, EvmError> {
    match answer {
        Ok(answer) => {
            let Quantity(gas) = endpoint.parse(ESTIMATE, answer)?;
            Ok(Ok(gas))
        }
        Err(error) if is_refused(error) => Ok(Err(error.message.clone())),
        Err(error) => Err(endpoint.refused(ESTIMATE, error)),
    }
}

fn limited(gas: u64) -> Result<u64, String> {
    if gas > GAS_MAX {
        Err(format!("it takes {gas} gas, and a transaction may use {GAS_MAX}"))
    } else {
        Ok((gas + gas.div_ceil(5)).min(GAS_MAX))
    }
}

/// Whether the transaction was tried and would fail, however much gas it had.
pub(super) fn is_refused(error: &NodeError) -> bool {
    is_of_the_contract(error) || error.message.contains("gas required exceeds allowance")
}

async fn key_report(pool: &Pool, intent: &Intent, at: &BlockRef) -> Result<KeyReport, EvmError> {
    check_chain(pool, &intent.chain_ref)?;
    let (methods, call): (&'static [&'static str], _) = match used_at(intent).map_err(wrong(pool))? {
        UsedAt::Call((contract, data)) => (&[CALL], call_of(&contract, &data, by_hash(at))),
        UsedAt::Slot(contract, slot) => {
            let (contract, slot) = (Address::Evm(contract).to_string(), alloy::hex::encode_prefixed(slot));
            (&[STORAGE], Call { method: STORAGE, params: json!([contract, slot, by_hash(at)]) })
        }
    };
    let report = agreed_by(pool, at, ("whether an intent was used", methods, &call), |endpoint, answer| {
        let word: Data<'_> = endpoint.parse(call.method, answer)?;
        match word.to_array::<32>() {
            Some(word) if word == number_word(0) => Ok(KeyState::Unused),
            Some(word) if word == number_word(1) => Ok(KeyState::Used),
            None if word.to_array::<0>().is_some() && matches!(intent.route, Route::Delegate(_)) => {
                Ok(KeyState::Silent)
            }
            // Such a word is no answer of a contract that keeps intents.
            Some(_) | None => Err(endpoint.unusable(call.method, "whether a key is used is neither true nor false")),
        }
    });
    let (state, reported_by) = report.await?;
    // A listed delegate may be missing on a chain. Nothing was ever used at an address without code.
    if state == KeyState::Silent
        && let UsedAt::Call((contract, _)) = used_at(intent).map_err(wrong(pool))?
        && has_code(pool, &Address::Evm(contract), at).await?
    {
        let (what, reports) = ("whether an intent was used", "a contract with code answers nothing".to_owned());
        let (chain, agree, missing) = (pool.chain(), pool.must_agree(), String::new());
        return Err(EvmError::Unagreed { chain, what, block: *at, agree, reports, missing });
    }
    Ok(KeyReport { is_used: state == KeyState::Used, reported_by })
}

/// Whether there is code at the address after the block `at`.
async fn has_code(pool: &Pool, address: &Address, at: &BlockRef) -> Result<bool, EvmError> {
    evm(address).map_err(wrong(pool))?;
    let call = Call { method: CODE, params: json!([address.to_string(), by_hash(at)]) };
    agreed(pool, at, ("whether an address has code", &[CODE], &call), |endpoint, answer| {
        let data: Data<'_> = endpoint.parse(CODE, answer)?;
        let mut code = Vec::new();
        data.append_to(&mut code);
        Ok(!code.is_empty())
    })
    .await
}

/// What a contract reports of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyState {
    Used,
    Unused,
    /// It answers nothing, as an address without code.
    Silent,
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyState::Used => "true",
            KeyState::Unused => "false",
            KeyState::Silent => "nothing",
        })
    }
}

/// What as many endpoints as must agree answer to `call`, at the block `at`. If anybody who was asked differs, it is an
/// error. `what` says what is asked for.
pub(super) async fn agreed<T: Copy + PartialEq + Send + Sync + Display>(
    pool: &Pool,
    at: &BlockRef,
    asked: (&'static str, &'static [&'static str], &Call),
    read: impl Fn(&Endpoint, &Raw) -> Result<T, EvmError> + Send + Sync,
) -> Result<T, EvmError> {
    Ok(agreed_by(pool, at, asked, read).await?.0)
}

/// As [`agreed`], and the endpoints that answer so.
async fn agreed_by<T: Copy + PartialEq + Send + Sync + Display>(
    pool: &Pool,
    at: &BlockRef,
    (what, methods, call): (&'static str, &'static [&'static str], &Call),
    read: impl Fn(&Endpoint, &Raw) -> Result<T, EvmError> + Send + Sync,
) -> Result<(T, Vec<String>), EvmError> {
    let (calls, agree, read) = (std::slice::from_ref(call), pool.must_agree(), &read);
    let ask = |endpoint| -> BoxFuture<'_, Result<T, EvmError>> {
        Box::pin(async move {
            let answers = answers(endpoint, calls).await;
            let reported = answers.and_then(|answers| read(endpoint, given(endpoint, call.method, &answers[0])?));
            reported.map_err(|error| endpoint.lacks(format!("does not report {what} by block {at}: {error}")))
        })
    };
    let differ = |reported: &[(&Endpoint, T)]| reported.iter().any(|(_, answer)| *answer != reported[0].1);
    let enough = |reported: &[(&Endpoint, T)]| reported.len() >= agree || differ(reported);
    let need = Need { first: at.number, last: at.number, methods };
    let responses = pool.call_each(need, Vec::new(), ask, enough).await?;
    let reported = responses.reported;
    if reported.len() >= agree && !differ(&reported) {
        return Ok((reported[0].1, reported.iter().map(|(endpoint, _)| endpoint.id.clone()).collect()));
    }
    let each = |(endpoint, answer): &(&Endpoint, T)| format!("{} reports {answer}", endpoint.id);
    let reports = reported.iter().map(each).collect::<Vec<_>>().join(", ");
    let missing = responses.missing.join("; ");
    Err(EvmError::Unagreed { chain: pool.chain(), what, block: *at, agree, reports, missing })
}

/// What the first endpoint reports that answers `calls`. `read` sees an answer to each.
pub(super) async fn of_one<T: Send>(
    pool: &Pool,
    methods: &'static [&'static str],
    calls: &[Call],
    read: impl Fn(&Endpoint, &[Answer]) -> Result<T, EvmError> + Send + Sync,
) -> Result<T, EvmError> {
    let read = &read;
    let ask = |endpoint| -> BoxFuture<'_, Result<T, EvmError>> {
        Box::pin(async move {
            let reported = answers(endpoint, calls).await.and_then(|answers| read(endpoint, &answers));
            reported.map_err(|error| endpoint.lacks(format!("does not serve those who pay: {error}")))
        })
    };
    pool.call(Need { methods, ..Need::default() }, ask).await
}

/// One answer to each of `calls`.
pub(super) async fn answers(endpoint: &Endpoint, calls: &[Call]) -> Result<Vec<Answer>, EvmError> {
    let answers = endpoint.ask_aside(calls).await?;
    if answers.len() == calls.len() {
        return Ok(answers);
    }
    let (method, reason) = (calls[0].method, format!("{} answers to {} calls", answers.len(), calls.len()));
    Err(endpoint.unusable(method, &reason))
}

pub(super) fn given<'a>(endpoint: &Endpoint, method: &'static str, answer: &'a Answer) -> Result<&'a Raw, EvmError> {
    answer.as_ref().map_err(|error| endpoint.refused(method, error))
}

pub(super) fn call_of(contract: &[u8; 20], data: &[u8], at: Value) -> Call {
    let data = alloy::hex::encode_prefixed(data);
    Call { method: CALL, params: json!([{ "to": Address::Evm(*contract).to_string(), "data": data }, at]) }
}

pub(super) fn code_of(address: &Address) -> Call {
    Call { method: CODE, params: json!([address.to_string(), "latest"]) }
}

pub(super) fn nonce_of(address: &Address) -> Call {
    Call { method: NONCE, params: json!([address.to_string(), "latest"]) }
}

pub(super) fn code(endpoint: &Endpoint, answer: &Answer) -> Result<Vec<u8>, EvmError> {
    let data: Data<'_> = endpoint.parse(CODE, given(endpoint, CODE, answer)?)?;
    let mut code = Vec::new();
    data.append_to(&mut code);
    Ok(code)
}

/// That what is signed is for this chain.
pub(super) fn check_chain(pool: &Pool, chain_ref: &str) -> Result<(), EvmError> {
    if chain_id(chain_ref).map_err(wrong(pool))? != pool.dialect().chain_id {
        return Err(EvmError::OtherChain { chain: pool.chain(), chain_ref: chain_ref.to_owned() });
    }
    Ok(())
}

pub(super) fn wrong(pool: &Pool) -> impl Fn(PayError) -> EvmError {
    let chain = pool.chain();
    move |error| EvmError::NoPayment { chain, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(text: &str) -> Option<FeeMarket> {
        market(&serde_json::from_str(text).unwrap(), 7)
    }

    #[test]
    fn a_transaction_offers_the_next_base_fee_and_what_is_usual_and_never_less_than_the_network_asks_for() {
        let whole = r#"{"oldestBlock":"0x1","baseFeePerGas":["0x1","0x2","0x3","0x4"],"gasUsedRatio":[0.5,0,1],
                       "reward":[["0x9"],["0x64"],["0x0"]]}"#;
        assert_eq!(history(whole), Some(FeeMarket { base_fee: 4, tip: 9 }));
        let cases = [
            (r#"{"baseFeePerGas":["0x5"],"reward":[["0x1"]]}"#, Some((5, 7))),
            (r#"{"baseFeePerGas":["0x0"],"reward":null}"#, Some((0, 7))),
            (r#"{"baseFeePerGas":["0x5"]}"#, Some((5, 7))),
            (r#"{"baseFeePerGas":["0x5"],"reward":[[],["0x8"]]}"#, Some((5, 8))),
            (r#"{"baseFeePerGas":[]}"#, None),
            (r#"{"baseFeePerGas":["0x1000000000000000000000000000000000"]}"#, None),
        ];
        for (text, expected) in cases {
            assert_eq!(history(text), expected.map(|(base_fee, tip)| FeeMarket { base_fee, tip }), "{text}");
        }
    }
}
