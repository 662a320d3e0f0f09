//! Who signed a transaction, proved on demand: recovering a signature costs too much to do for every transaction of a
//! block, and matters for those that pay us.

use std::fmt;
use std::sync::Arc;

use crate::{SourceError, TxRef};

type Proof = dyn Fn(&TxRef) -> Result<(), SourceError> + Send + Sync;

/// Proves signers of one block's transactions. Clones share what stands behind it; comparing looks away from it.
#[derive(Clone, Default)]
pub struct Signers(Option<Arc<Proof>>);

impl Signers {
    /// `prove` fails when the transaction's signer is not the one that its reference names.
    pub fn new(prove: impl Fn(&TxRef) -> Result<(), SourceError> + Send + Sync + 'static) -> Self {
        Signers(Some(Arc::new(prove)))
    }

    /// That `tx`, of this block, was signed by whom its reference names. Without a proof nothing is wrong: the chain
    /// has none, or what was read needs none.
    ///
    /// # Errors
    /// Another signer; whoever reported otherwise has been dealt with, and reading again may bring the truth.
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
