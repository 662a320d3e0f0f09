//! Which signer's journal belongs to this store, and how far it was compared with what is on record.

use landfall_chain::Chain;

use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, uint};

/// The signer that a chain's sender asks, and its journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compared {
    pub signer: String,
    /// All entries up to this one are on record, or were noticed to be missing.
    pub through: u64,
    /// The newest entry that was seen.
    pub newest: u64,
    /// Why nothing is signed before a person adopts the signer.
    pub strange: Option<String>,
}

statements! {
    COMPARED = "INSERT INTO signer_journals (chain, signer_id, compared_seq, newest_seq) VALUES ($1, $2, $3, $4) \
                ON CONFLICT (chain) DO UPDATE SET compared_seq = excluded.compared_seq, newest_seq = excluded.newest_seq, strange = NULL";
    SEEN = "UPDATE signer_journals SET newest_seq = $1 WHERE chain = $2 AND newest_seq < $1";
    STRANGE = "UPDATE signer_journals SET strange = $1 WHERE chain = $2";
    JOURNAL_OF = "SELECT signer_id, compared_seq, newest_seq, strange FROM signer_journals WHERE chain = $1";
    ADOPT = "DELETE FROM signer_journals WHERE chain = $1";
}

/// Records how far the journal of `signer` was compared, and its newest entry.
pub async fn compared(
    tx: &mut Tx,
    chain: Chain,
    signer: &str,
    (through, newest): (u64, u64),
) -> Result<(), StoreError> {
    execute!(tx, COMPARED, chain.name(), signer, int(through), int(newest)).map(drop)
}

/// Records that the journal has an entry with this number.
pub async fn seen(tx: &mut Tx, chain: Chain, newest: u64) -> Result<(), StoreError> {
    execute!(tx, SEEN, int(newest), chain.name()).map(drop)
}

/// Records why nothing is signed before a person adopts the signer.
pub async fn strange(tx: &mut Tx, chain: Chain, why: &str) -> Result<(), StoreError> {
    execute!(tx, STRANGE, why, chain.name()).map(drop)
}

/// The journal that the chain's sender compares; `None` before the first time, and once a person has adopted a signer.
pub async fn of_chain(connection: &mut impl Connection, chain: Chain) -> Result<Option<Compared>, StoreError> {
    type Row = (String, i64, i64, Option<String>);
    let compared = |(signer, through, newest, strange): Row| {
        Ok(Compared { signer, through: uint("entry", through)?, newest: uint("entry", newest)?, strange })
    };
    fetch_optional!(connection, Row, JOURNAL_OF, chain.name())?.map(compared).transpose()
}

/// The signer that is asked next is the chain's from then on; returns whether there was one.
pub async fn adopt(tx: &mut Tx, chain: Chain) -> Result<bool, StoreError> {
    Ok(execute!(tx, ADOPT, chain.name())? > 0)
}
