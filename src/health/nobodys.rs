//! Watched addresses that are nobody's. Such an address is refused when it is added, but a hard fork may turn one into
//! a precompile later. They are reported without an alarm, since nobody can remove them.

use std::fmt;

use landfall_chain::{Chain, nobodys};
use serde::Serialize;

use crate::store::{Reader, StoreError, accounts};

/// How many are reported for one chain.
const NOBODYS_MAX: usize = 20;

/// An address of an account that is nobody's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NobodysReport {
    pub address: String,
    pub account_id: String,
    /// What it is, for example a precompile.
    pub what: &'static str,
}

impl NobodysReport {
    pub(super) async fn read(reader: &mut Reader, chain: Chain) -> Result<Vec<Self>, StoreError> {
        let mut reports = Vec::new();
        for nobodys in nobodys(chain) {
            let limit = u32::try_from(NOBODYS_MAX - reports.len()).unwrap_or(0);
            let found = accounts::between(reader, chain, (&nobodys.first, &nobodys.last), limit).await?;
            reports.extend(found.into_iter().map(|(address, account_id)| {
                let (address, what) = (address.to_string(), nobodys.what);
                NobodysReport { address, account_id, what }
            }));
        }
        Ok(reports)
    }
}

impl fmt::Display for NobodysReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NobodysReport { address, account_id, what } = self;
        write!(
            f,
            "{address} of account {account_id} is {what}: nobody can spend what is sent there, and it is credited all the same"
        )
    }
}
