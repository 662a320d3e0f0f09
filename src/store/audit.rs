//! The audit: insert only, in the transaction of the decision.

use landfall_chain::Chain;

use crate::overrides::AuditEntry;
use crate::store::sql::{execute, fetch_all, statements};
use crate::store::{Connection, StoreError, Tx, parsed};
use crate::time::Timestamp;

statements! {
    APPEND = "INSERT INTO audit (id, at_us, actor, action, chain, what, reason) VALUES ($1, $2, $3, $4, $5, $6, $7) \
              ON CONFLICT (id) DO NOTHING";
    NEWEST = "SELECT at_us, actor, action, chain, what, reason FROM audit \
              WHERE $1 = '' OR chain = $1 OR ($1 = 'CHAINS' AND chain <> '') ORDER BY at_us DESC, id DESC LIMIT $2";
}

/// Which entries are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    All,
    /// Chains, whichever.
    Chains,
    Chain(Chain),
}

pub async fn append(tx: &mut Tx, entry: &AuditEntry) -> Result<(), StoreError> {
    let AuditEntry { at, actor, action, what, reason, .. } = entry;
    execute!(tx, APPEND, entry.id(), at.0, actor, action, entry.chain_name(), what, reason).map(drop)
}

/// At most `limit` entries, newest first.
pub async fn newest(connection: &mut impl Connection, about: About, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
    type Row = (i64, String, String, String, String, String);
    let about = match about {
        About::All => "",
        About::Chains => "CHAINS",
        About::Chain(chain) => chain.name(),
    };
    let rows = fetch_all!(connection, Row, NEWEST, about, i64::from(limit))?;
    let entries = rows.into_iter().map(|(at, actor, action, chain, what, reason)| {
        let chain = (!chain.is_empty()).then(|| parsed("chain", &chain)).transpose()?;
        Ok(AuditEntry { at: Timestamp(at), actor, action, chain, what, reason })
    });
    entries.collect()
}
