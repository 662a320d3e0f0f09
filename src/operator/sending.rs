//! Decisions of operators about sending: stop all transfers, which is obeyed before the next signature; begin a
//! recovery after the store was set back; adopt a signer as the one of this store. Another delegate pays when they say so.

use landfall_chain::{Chain, Delegate, Network};

use crate::operator::{DecideError, Operator};
use crate::store::delegates::Taken;
use crate::store::{Db, StoreError, authorizations, cancellations, delegates, halts, journals, recoveries};
use crate::transfer::RECOVERY_TIME;

impl Operator<'_> {
    /// Stops the sending on `chains`: nothing more is accepted, signed or sent there. What was sent is watched to its
    /// end.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn halt_sending(&self, db: &Db, chains: &[Chain]) -> Result<(), DecideError> {
        let mut tx = self.begin(db).await?;
        for chain in chains {
            halts::put(&mut tx, *chain, (self.actor, self.reason), self.now).await?;
            self.write_down(&mut tx, *chain, "halt_sending", "").await?;
        }
        Ok(self.end(tx).await?)
    }

    /// Has the senders of `chains` recover, for this store may be an old copy: nothing is signed there before a final block
    /// behind all that may have been signed until now.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn recover_sending(&self, db: &Db, chains: &[Chain]) -> Result<(), DecideError> {
        let mut tx = self.begin(db).await?;
        for chain in chains {
            recoveries::begin(&mut tx, *chain, self.reason, (self.now, self.now.plus(RECOVERY_TIME))).await?;
            self.write_down(&mut tx, *chain, "recover_sending", "").await?;
        }
        Ok(self.end(tx).await?)
    }

    /// The signer that is asked next, with its journal as it is then, is the one of this store; returns on how many chains
    /// there was one.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn adopt_signer(&self, db: &Db) -> Result<usize, DecideError> {
        let mut tx = self.begin(db).await?;
        let mut adopted = 0;
        for chain in &Chain::ALL {
            if let Some(known) = journals::of_chain(&mut tx, *chain).await? {
                adopted += usize::from(journals::adopt(&mut tx, *chain).await?);
                authorizations::forget_signatures(&mut tx, *chain).await?;
                cancellations::forget_signatures(&mut tx, *chain).await?;
                self.write_down(&mut tx, *chain, "adopt_signer", &format!("in place of {}", known.signer)).await?;
            }
        }
        self.end(tx).await?;
        Ok(adopted)
    }

    /// From now on each new transfer that a delegate pays takes `delegate`, which is one of the network's; earlier ones keep
    /// theirs. Returns the one that was in use before, its name and all its addresses.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn take_delegate(
        &self,
        db: &Db,
        (network, delegate): (&Network, &Delegate),
    ) -> Result<Taken, DecideError> {
        let chain = network.chain;
        let mut tx = self.begin(db).await?;
        if let Some(first) = network.delegates.first() {
            delegates::begin(&mut tx, chain, first, self.now).await?;
        }
        let before = delegates::taken(&mut tx, chain).await?.pop().ok_or_else(|| StoreError::Inconsistent {
            what: "delegate",
            reason: format!("none of {chain} is listed"),
        })?;
        if !before.is(delegate) {
            delegates::take(&mut tx, chain, (delegate, before.number), self.now).await?;
            let what = format!("{delegate} in place of {}", before.delegate);
            self.write_down(&mut tx, chain, "take_delegate", &what).await?;
            self.end(tx).await?;
        }
        Ok(before)
    }

    /// Lets the sending on `chains` go on; returns those on which it was stopped.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn resume_sending(&self, db: &Db, chains: &[Chain]) -> Result<Vec<Chain>, DecideError> {
        let mut tx = self.begin(db).await?;
        let mut resumed = Vec::new();
        for chain in chains {
            if halts::remove(&mut tx, *chain).await? {
                resumed.push(*chain);
                self.write_down(&mut tx, *chain, "resume_sending", "").await?;
            }
        }
        self.end(tx).await?;
        Ok(resumed)
    }
}
