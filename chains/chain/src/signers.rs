//! Who signed a transaction, proved on demand. Recovering a signature costs too much to do for every transaction of a
//! block, and matters only for those that pay us.

use std::fmt;
use std::sync::Arc;

use crate::{SourceError, TxRef};

type Proof = dyn Fn(&TxRef) -> Result<(), SourceError> + Send + Sync;

/// Proves signers of one block's transactions. Clones share what they prove with; comparisons ignore it.
#[derive(Clone, Default)]
pub struct Signers(Option<Arc<Proof>>);

impl Signers {
    /// `prove` fails when the transaction's signer is not the one that its reference names.
    pub fn new(prove: impl Fn(&TxRef) -> Result<(), SourceError> + Send + Sync + 'static) -> Self {
        Signers(Some(Arc::new(prove)))
    }

    /// That `tx`, of this block, was signed by whom its reference names. Without a proof it succeeds: the chain has
    /// none, or what was read needs none.
    ///
    /// # Errors
    /// Another signer. The endpoint that reported otherwise has been dealt with; reading again may return the truth.
    pub fn prove(&self, tx: &TxRef) -> Result<(), SourceError> {
        self.0.as_ref().map_or(Ok(()), |prove| prove(tx))
    }
}

impl PartialEq for Signers {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Signers {}

impl fmt::Debug for Signers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Signers(on demand)" } else { "Signers(none)" })
    }
}
