//! Where the chain ends, and what of it is final, as one endpoint says.

use landfall_chain::{BlockRef, Finality, Header, Tag, Tip};
use serde_json::json;
use serde_json::value::RawValue;

use crate::error::EvmError;
use crate::headers::{BY_NUMBER, HeaderOnly, proved_header, read_headers};
use crate::pool::Endpoint;
use crate::rpc::{Answer, Call, NodeError};

/// Besu's and EIP-1474's code for a block that a tag does not name yet.
const UNKNOWN_BLOCK: i64 = -39_001;

pub(crate) async fn read_tip(endpoint: &Endpoint, finality: &Finality) -> Result<Tip, EvmError> {
    let rule = finality.rule;
    let tag = rule.tag.map(|tag| match tag {
        Tag::Finalized => "finalized",
        Tag::Safe => "safe",
    });
    let tagged = |tag| Call { method: BY_NUMBER, params: json!([tag, false]) };
    let calls: Vec<Call> = std::iter::once("latest").chain(tag).map(tagged).collect();
    let mut answers = endpoint.ask(&calls).await?.into_iter();
    let latest = match answers.next() {
        Some(Ok(answer)) => header_of(endpoint, &answer)?,
        Some(Err(error)) => return Err(endpoint.refused(BY_NUMBER, &error)),
        None => None,
    };
    let latest = latest.ok_or_else(|| endpoint.unusable(BY_NUMBER, "no latest block"))?.block;
    let finalized = match (rule.tag, answers.next()) {
        (None, _) => confirmed(endpoint, latest, rule.confirmations).await?,
        (Some(_), Some(answer)) => tagged_block(endpoint, answer)?,
        (Some(_), None) => None,
    };
    if let Some(finalized) = finalized
        && (finalized.number > latest.number || finalized.number == latest.number && finalized != latest)
    {
        let reason = format!("block {finalized} is called final, but the latest is {latest}");
        return Err(endpoint.unusable(BY_NUMBER, &reason));
    }
    Ok(Tip { latest, finalized, tiers: vec![None; finality.tiers.len()], waiting: None })
}

/// The block at `number`, when it is final.
pub(crate) async fn read_final_at(
    endpoint: &Endpoint,
    finality: &Finality,
    number: u64,
) -> Result<Option<BlockRef>, EvmError> {
    let tip = read_tip(endpoint, finality).await?;
    if tip.finalized.is_none_or(|finalized| finalized.number < number) {
        return Ok(None);
    }
    Ok(read_headers(endpoint, number..=number).await?.first().map(|header| header.block))
}

/// With 12 and a newest block 100: block 88.
async fn confirmed(endpoint: &Endpoint, latest: BlockRef, count: u64) -> Result<Option<BlockRef>, EvmError> {
    let Some(number) = latest.number.checked_sub(count) else { return Ok(None) };
    let headers = read_headers(endpoint, number..=number).await?;
    Ok(headers.first().map(|header| header.block))
}

/// The block that a tag names. Nodes say `null` or "finalized block not found" while there is none.
fn tagged_block(endpoint: &Endpoint, answer: Answer) -> Result<Option<BlockRef>, EvmError> {
    match answer {
        Ok(answer) => Ok(header_of(endpoint, &answer)?.map(|header| header.block)),
        Err(error) if names_no_block(&error) => Ok(None),
        Err(error) => Err(endpoint.refused(BY_NUMBER, &error)),
    }
}

/// geth and bor: "finalized block not found", "safe block not found"; Besu: code -39001, "Unknown block".
fn names_no_block(error: &NodeError) -> bool {
    let message = error.message.to_lowercase();
    error.code == UNKNOWN_BLOCK || message.contains("block not found") || message.contains("unknown block")
}

fn header_of(endpoint: &Endpoint, answer: &RawValue) -> Result<Option<Header>, EvmError> {
    let block: Option<HeaderOnly<'_>> = endpoint.parse(BY_NUMBER, answer)?;
    block.map(|block| proved_header(endpoint, block.number.0, &block)).transpose()
}
