//! Prices of native currencies that a person sets.

use landfall_chain::Network;

use crate::gas::{GasCurrency, Observation, Price, PriceSource};
use crate::operator::{DecideError, Operator};
use crate::store::{Db, StoreError, prices};

/// Why a price was not set.
#[derive(Debug, thiserror::Error)]
pub enum SetPriceError {
    #[error(
        "{symbol} pays for no transactions here: the native currencies of the chains that are followed are {natives}"
    )]
    NotNative { symbol: String, natives: String },
    #[error(transparent)]
    Decide(#[from] DecideError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Operator<'_> {
    /// Sets what one `symbol` costs from now on; what waits for a price is priced by it. Returns what is on record of it.
    ///
    /// # Errors
    /// A currency that is none of the natives of `networks`.
    pub async fn set_price(
        &self,
        db: &Db,
        symbol: &str,
        price: Price,
        networks: &[Network],
    ) -> Result<Observation, SetPriceError> {
        let mut natives: Vec<String> =
            networks.iter().filter_map(GasCurrency::of).map(|currency| currency.symbol).collect();
        natives.sort_unstable();
        natives.dedup();
        if !natives.iter().any(|native| native == symbol) {
            return Err(SetPriceError::NotNative { symbol: symbol.to_owned(), natives: natives.join(", ") });
        }
        let mut tx = self.begin(db).await?;
        let observation = Observation { symbol: symbol.to_owned(), price, source: PriceSource::Table, at: self.now };
        prices::insert(&mut tx, &observation, None).await?;
        self.record(&mut tx, "set_price", &format!("{symbol} {price}")).await?;
        self.end(tx).await?;
        Ok(observation)
    }
}
