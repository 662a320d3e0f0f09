//! What a listed mint is, as the chain has it: who keeps it, and on which terms.
//!
//! Promises: asked aside, so that a node that refuses or lags is as good as before for all else; an account that is not
//! there, is not told as it should be or is older than what was reached already is a failure to tell, and says nothing of
//! the mint. Deliberately not here: what `mint` reads, and anything that decides about a credit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall_chain::{Address, AssetFacts, AssetId, AssetSource, SourceError};
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
struct Told {
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
    /// How many bytes it has; old nodes do not tell.
    space: Option<usize>,
}

impl AssetSource for SolanaSource {
    async fn facts(&self, asset: &AssetId, reached: Option<u64>) -> Result<Option<AssetFacts>, SourceError> {
        let AssetId::Token(Address::Solana(_)) = asset else { return Ok(None) };
        Ok(Some(self.mint_facts(&asset.to_string(), reached).await?))
    }
}

impl SolanaSource {
    /// As the first endpoint says that tells it.
    async fn mint_facts(&self, mint: &str, reached: Option<u64>) -> Result<AssetFacts, SolanaError> {
        let slot = reached.unwrap_or_default();
        let mut last = None;
        for endpoint in self.pool.of_use(Need { first: slot, last: slot, methods: &[ACCOUNT] }).await {
            match self.told_facts(endpoint, mint, reached).await {
                Ok(facts) => return Ok(facts),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| self.pool.nobody()))
    }

    async fn told_facts(
        &self,
        endpoint: &Endpoint,
        mint: &str,
        reached: Option<u64>,
    ) -> Result<AssetFacts, SolanaError> {
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
            program,
            listed_programs: self.reader.programs_of(mint).into_iter().map(|one| one.name().to_owned()).collect(),
            terms: terms.map_err(|error| unusable(&error.to_string()))?,
        })
    }
}

/// The account, at a slot that is final and not below the one that was reached.
async fn read_account(endpoint: &Endpoint, key: &str, reached: Option<u64>) -> Result<Account, SolanaError> {
    let how = match reached {
        Some(slot) => json!({ "commitment": "finalized", "encoding": "base64", "minContextSlot": slot }),
        None => json!({ "commitment": "finalized", "encoding": "base64" }),
    };
    let answers = endpoint.ask_aside(&[Call { method: ACCOUNT, params: json!([key, how]) }]).await?;
    let answer = answers.into_iter().next().ok_or_else(|| endpoint.unusable(ACCOUNT, "no answer"))?;
    let answer: Raw = answer.map_err(|error| failed(endpoint, ACCOUNT, &error))?;
    let Told { context, value } = endpoint.parse(ACCOUNT, &answer)?;
    if reached.is_some_and(|reached| context.slot < reached) {
        return Err(endpoint.lacks(format!("tells account {key} of slot {}, which is behind", context.slot)));
    }
    value.ok_or_else(|| endpoint.lacks(format!("shows no account {key}")))
}
