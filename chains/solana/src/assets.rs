//! What a listed mint is, as the chain has it: who keeps it, and on which terms.
//!
//! Promises: as many endpoints as must agree report the same. They are asked aside, so a node that refuses or lags
//! stays as healthy as before. An account that is missing, malformed, or older than what was reached already is a
//! failure, and says nothing of the mint. Deliberately not here: what `mint` reads, and what follows from it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use landfall_chain::{Address, AssetFacts, AssetId, AssetSource, SourceError, reported_alike};
use landfall_rpc::{Call, Need, Raw};
use serde::Deserialize;
use serde_json::json;

use crate::ata::TokenProgram;
use crate::calls::failed;
use crate::dialect::Endpoint;
use crate::error::SolanaError;
use crate::mint::terms;
use crate::source::SolanaSource;

const ACCOUNT: &str = "getAccountInfo";

#[derive(Deserialize)]
struct AccountResponse {
    context: Context,
    value: Option<Account>,
}

#[derive(Deserialize)]
struct Context {
    slot: u64,
}

/// The data is the text, and how it is written.
#[derive(Deserialize)]
struct Account {
    owner: String,
    data: (String, String),
    /// How many bytes it has; old nodes do not report it.
    space: Option<usize>,
}

impl AssetSource for SolanaSource {
    async fn facts(&self, asset: &AssetId, reached: u64) -> Result<Option<AssetFacts>, SourceError> {
        let AssetId::Token(Address::Solana(_)) = asset else { return Ok(None) };
        Ok(Some(self.mint_facts(&asset.to_string(), reached).await?))
    }
}

impl SolanaSource {
    /// When as many endpoints as must agree report it alike.
    async fn mint_facts(&self, mint: &str, reached: u64) -> Result<AssetFacts, SolanaError> {
        let (chain, agree) = (self.pool.chain(), self.pool.must_agree());
        let agreed = |reported: &[(&Endpoint, AssetFacts)]| {
            let reported: Vec<AssetFacts> = reported.iter().map(|(_, facts)| facts.clone()).collect();
            reported_alike(&reported, agree).cloned()
        };
        let read = |endpoint| -> BoxFuture<'_, Result<AssetFacts, SolanaError>> {
            Box::pin(async move {
                let facts = self.facts_of(endpoint, mint, reached).await;
                facts.map_err(|error| endpoint.lacks(format!("does not report what mint {mint} is: {error}")))
            })
        };
        let need = Need { first: reached, last: reached, methods: &[ACCOUNT] };
        let responses = self.pool.call_each(need, Vec::new(), read, |reported| agreed(reported).is_some()).await?;
        agreed(&responses.reported).ok_or_else(|| {
            let names: Vec<&str> = responses.reported.iter().map(|(endpoint, _)| endpoint.id.as_str()).collect();
            let (endpoints, missing) = (names.join(" and "), responses.missing.join("; "));
            SolanaError::MintUnreported { chain, mint: mint.to_owned(), agree, endpoints, missing }
        })
    }

    async fn facts_of(&self, endpoint: &Endpoint, mint: &str, reached: u64) -> Result<AssetFacts, SolanaError> {
        let Account { owner, data, space } = read_account(endpoint, mint, reached).await?;
        let unusable = |reason: &str| endpoint.unusable(ACCOUNT, &format!("mint {mint}: {reason}"));
        let (text, encoding) = data;
        let account = STANDARD.decode(&text).ok().filter(|_| encoding == "base64");
        let account = account.ok_or_else(|| unusable("its data is not told as base64"))?;
        if space.is_some_and(|space| space != account.len()) {
            return Err(unusable("its data is not all there"));
        }
        let keeper = TokenProgram::of(&owner);
        let terms = keeper.map(|program| terms(program, &account)).transpose();
        let program = match keeper {
            Some(program) => program.name().to_owned(),
            None if crate::base58::key(&owner).is_some() => owner,
            None => return Err(unusable("its owner is not 32 bytes in base58")),
        };
        Ok(AssetFacts {
            program: Some(program),
            listed_programs: self.reader.programs_of(mint).into_iter().map(|one| one.name().to_owned()).collect(),
            terms: terms.map_err(|error| unusable(&error.to_string()))?,
        })
    }
}

/// The account, at a slot that is final and not below the one that was reached.
async fn read_account(endpoint: &Endpoint, key: &str, reached: u64) -> Result<Account, SolanaError> {
    let how = json!({ "commitment": "finalized", "encoding": "base64", "minContextSlot": reached });
    let answers = endpoint.ask_aside(&[Call { method: ACCOUNT, params: json!([key, how]) }]).await?;
    let answer = answers.into_iter().next().ok_or_else(|| endpoint.unusable(ACCOUNT, "no answer"))?;
    let answer: Raw = answer.map_err(|error| failed(endpoint, ACCOUNT, &error))?;
    let AccountResponse { context, value } = endpoint.parse(ACCOUNT, &answer)?;
    if context.slot < reached {
        return Err(endpoint.lacks(format!("tells account {key} of slot {}, which is behind", context.slot)));
    }
    value.ok_or_else(|| endpoint.lacks(format!("shows no account {key}")))
}
