//! What owners hold: their own lamports, and what is in the associated token accounts of listed mints.
//!
//! Promises: an answer names its slot, which is final and not below the one that was agreed on; only such an answer
//! says that an account is not there. A token account counts when its program, mint and owner are those that it was
//! asked for; one that is not whole is not reported, never zero. An asset of an owner is reported only if as many
//! endpoints as must agree report it alike, each at a slot of its own. Asked aside: a failure says nothing of blocks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall_chain::{
    Address, AssetId, BlockRef, HoldingSource, Holdings, Proof, ReportedHolding, SourceError, U256,
    holdings_reported_alike,
};
use landfall_rpc::{Call, Need};
use serde::Deserialize;
use serde_json::json;

use crate::ata::TokenProgram;
use crate::calls::failed;
use crate::dialect::Endpoint;
use crate::error::SolanaError;
use crate::rules::TokenPlace;
use crate::source::SolanaSource;

const ACCOUNTS: &str = "getMultipleAccounts";
/// Of one call (agave: `MAX_MULTIPLE_ACCOUNTS` in rpc-client-api/src/request.rs).
const ACCOUNTS_MAX: usize = 100;
/// Where the fields of a token account stand, and how long one is without extensions.
const OWNER: usize = 32;
const AMOUNT: usize = 64;
const STATE: usize = 108;
const TOKEN_ACCOUNT_BYTES: usize = 165;
/// Initialised, and frozen by whoever may do that: it exists all the same.
const STATES: [u8; 2] = [1, 2];

#[derive(Deserialize)]
pub(crate) struct AccountsResponse {
    context: Context,
    pub(crate) value: Vec<Option<Account>>,
}

#[derive(Deserialize)]
struct Context {
    slot: u64,
}

/// The data is the text, and how it is written: as far as a token account goes.
#[derive(Deserialize)]
pub(crate) struct Account {
    pub(crate) lamports: u64,
    owner: String,
    data: (String, String),
}

/// An owner, and where its assets are, each with all places that count.
struct Wanted {
    owner: [u8; 32],
    assets: Vec<(AssetId, Vec<TokenPlace>)>,
}

/// What one endpoint reports, owner by owner.
type Amounts = Vec<Vec<Option<ReportedHolding>>>;

impl HoldingSource for SolanaSource {
    async fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> Result<Holdings, SourceError> {
        Ok(self.reported_holdings(addresses, assets, at).await?)
    }
}

impl SolanaSource {
    async fn reported_holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> Result<Holdings, SolanaError> {
        let chain = self.pool.chain();
        let wanted = addresses.iter().map(|address| match address {
            Address::Solana(owner) => Ok(self.wanted(*owner, assets)),
            Address::Evm(_) => Err(SolanaError::ForeignAddress { chain, address: *address }),
        });
        let wanted: Vec<Wanted> = wanted.collect::<Result<_, _>>()?;
        let agree = self.pool.must_agree();
        let believed = |reported: &[(&Endpoint, Amounts)]| {
            let reported: Vec<_> = reported.iter().map(|(_, amounts)| amounts.clone()).collect();
            holdings_reported_alike(&reported, (addresses.len(), assets.len()), agree)
        };
        let (wanted, reached) = (&wanted[..], at.number);
        let read = |endpoint| -> BoxRead<'_> {
            Box::pin(async move {
                let reported = of_endpoint(endpoint, wanted, reached).await;
                reported.map_err(|error| endpoint.lacks(format!("does not tell what owners hold: {error}")))
            })
        };
        let need = Need { first: at.number, last: at.number, methods: &[ACCOUNTS] };
        let enough = |reported: &[_]| believed(reported).iter().flatten().all(Option::is_some);
        let responses = self.pool.call_each(need, Vec::new(), read, enough).await?;
        if responses.reported.len() < agree {
            let names: Vec<&str> = responses.reported.iter().map(|(endpoint, _)| endpoint.id.as_str()).collect();
            let reported = format!("what owners hold is told by endpoint {} alone", names.join(" and "));
            let (missing, all_lack) =
                (responses.missing.join("; "), responses.is_not_found && responses.unanswered.is_empty());
            return Err(SolanaError::Unwitnessed { chain, reported, missing, all_lack });
        }
        let proof = if agree > 1 { Proof::TwoEndpoints } else { Proof::OneEndpoint };
        Ok(Holdings { proof, amounts: believed(&responses.reported) })
    }

    /// For how many owners one call reports what they hold of these assets.
    pub fn owners_of_a_call(&self, assets: &[AssetId]) -> usize {
        owners_of_a_call(&self.wanted([0; 32], assets))
    }

    fn wanted(&self, owner: [u8; 32], assets: &[AssetId]) -> Wanted {
        let assets = assets.iter().map(|asset| (*asset, self.reader.places_of(&owner, asset))).collect();
        Wanted { owner, assets }
    }
}

type BoxRead<'a> = futures_util::future::BoxFuture<'a, Result<Amounts, SolanaError>>;

impl Wanted {
    /// The owner's own account, then the others.
    fn keys(&self) -> impl Iterator<Item = [u8; 32]> {
        let places = self.assets.iter().flat_map(|(_, places)| places);
        std::iter::once(self.owner).chain(places.map(|place| place.account))
    }

    /// How much of each asset these accounts hold; they are in the order of the keys. `None` where a place holds
    /// something that is no token account.
    fn amounts(&self, accounts: &[Option<Account>]) -> Vec<Option<U256>> {
        let lamports = accounts.first().and_then(Option::as_ref).map_or(0, |account| account.lamports);
        let mut rest = accounts.get(1..).unwrap_or_default();
        let mut amounts = Vec::with_capacity(self.assets.len());
        for (asset, places) in &self.assets {
            let own = if *asset == AssetId::Native { U256::from(lamports) } else { U256::ZERO };
            let (here, behind) = rest.split_at(places.len().min(rest.len()));
            rest = behind;
            let mut tokens = places.iter().zip(here).map(|(place, account)| match account {
                Some(account) => tokens(account, place, &self.owner).map(U256::from),
                None => Some(U256::ZERO),
            });
            let sum = tokens.try_fold(own, |sum, more| Some(sum.saturating_add(more?)));
            amounts.push(sum.filter(|_| here.len() == places.len()));
        }
        amounts
    }
}

/// What is in a token account of `owner`; `None` when it is none.
fn tokens(account: &Account, place: &TokenPlace, owner: &[u8; 32]) -> Option<u64> {
    let (text, encoding) = &account.data;
    let data = STANDARD.decode(text).ok().filter(|_| encoding == "base64")?;
    if TokenProgram::of(&account.owner) != Some(place.program) {
        // Anybody may send lamports there before it is made.
        return Some(0);
    }
    if data.len() < TOKEN_ACCOUNT_BYTES || !STATES.contains(&data[STATE]) || data[..OWNER] != place.mint {
        return None;
    }
    if data[OWNER..AMOUNT] != *owner {
        // It was given away.
        return Some(0);
    }
    data[AMOUNT..].first_chunk().map(|amount| u64::from_le_bytes(*amount))
}

/// All owners have as many accounts as this `one`.
fn owners_of_a_call(one: &Wanted) -> usize {
    (ACCOUNTS_MAX / one.keys().count()).max(1)
}

async fn of_endpoint(endpoint: &Endpoint, wanted: &[Wanted], reached: u64) -> Result<Amounts, SolanaError> {
    let mut reported = Vec::with_capacity(wanted.len());
    let Some(first) = wanted.first() else { return Ok(reported) };
    let width = first.keys().count();
    for some in wanted.chunks(owners_of_a_call(first)) {
        let keys: Vec<[u8; 32]> = some.iter().flat_map(Wanted::keys).collect();
        let AccountsResponse { context, value } = read_accounts(endpoint, &keys, reached).await?;
        let number = context.slot;
        for (one, accounts) in some.iter().zip(value.chunks(width)) {
            let amounts = one.amounts(accounts).into_iter();
            reported.push(amounts.map(|amount| Some(ReportedHolding { amount: amount?, number })).collect());
        }
    }
    Ok(reported)
}

/// The accounts, all of one final slot that is not below `reached`, by the endpoint's own view.
pub(crate) async fn read_accounts(
    endpoint: &Endpoint,
    keys: &[[u8; 32]],
    reached: u64,
) -> Result<AccountsResponse, SolanaError> {
    let names: Vec<String> = keys.iter().map(|key| bs58::encode(key).into_string()).collect();
    let how = json!({
        "commitment": "finalized", "encoding": "base64", "minContextSlot": reached,
        "dataSlice": { "offset": 0, "length": TOKEN_ACCOUNT_BYTES },
    });
    let answers = endpoint.ask_aside(&[Call { method: ACCOUNTS, params: json!([names, how]) }]).await?;
    let answer = answers.into_iter().next().ok_or_else(|| endpoint.unusable(ACCOUNTS, "no answer"))?;
    let answer = answer.map_err(|error| failed(endpoint, ACCOUNTS, &error))?;
    let reported: AccountsResponse = endpoint.parse(ACCOUNTS, &answer)?;
    if reported.context.slot < reached {
        let reason = format!("it is of slot {}, and slot {reached} was reached", reported.context.slot);
        return Err(endpoint.unusable(ACCOUNTS, &reason));
    }
    if reported.value.len() != keys.len() {
        return Err(endpoint.unusable(ACCOUNTS, &format!("{} of {} accounts", reported.value.len(), keys.len())));
    }
    Ok(reported)
}
