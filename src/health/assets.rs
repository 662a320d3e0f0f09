//! What a chain reports of a listed asset, as `status` shows it.
//!
//! It repeats the record, and judges nothing: a difference is an incident already.

use std::fmt;

use serde::Serialize;

use crate::store::asset_facts::AssetRow;

/// A listed asset. A null field was not reported, or does not apply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AssetReport {
    pub symbol: String,
    /// The contract or mint.
    pub asset: String,
    /// The program that keeps it. Null while the chain has reported nothing of it, and where there is no code at its
    /// address.
    pub program: Option<String>,
    pub decimals: Option<u8>,
    pub extensions: Vec<String>,
    /// The powers by which others than its owner may move, stop, hide or shrink a holding.
    pub risks: Vec<String>,
    pub freeze_authority: Option<String>,
    pub permanent_delegate: Option<String>,
    /// The fee of each transfer: hundredths of a percent, and at most so many base units.
    pub transfer_fee_basis_points: Option<u16>,
    pub transfer_fee_maximum: Option<String>,
    /// How it differs from the configuration; empty when it does not.
    pub differs: String,
    pub reported_at: Option<String>,
    /// Why the last reading failed; empty if it did not.
    pub reason: String,
    /// Whether its deposits are held: nothing of it is CONFIRMED.
    pub held: bool,
}

impl AssetReport {
    pub(super) fn of(row: &AssetRow) -> Self {
        let reported = row.reported.as_ref();
        let terms = reported.and_then(|reported| reported.terms.as_ref());
        let fee = terms.and_then(|terms| terms.transfer_fee);
        AssetReport {
            symbol: row.symbol.clone(),
            asset: row.asset.to_string(),
            program: reported.and_then(|reported| reported.program.clone()),
            decimals: terms.map(|terms| terms.decimals),
            extensions: terms.map_or_else(Vec::new, |terms| terms.extensions.clone()),
            risks: terms.map_or_else(Vec::new, |terms| terms.risks.clone()),
            freeze_authority: terms.and_then(|terms| terms.freeze_authority).map(|who| who.to_string()),
            permanent_delegate: terms.and_then(|terms| terms.permanent_delegate).map(|who| who.to_string()),
            transfer_fee_basis_points: fee.map(|fee| fee.basis_points),
            transfer_fee_maximum: fee.map(|fee| fee.maximum.to_string()),
            differs: reported.map_or_else(String::new, |reported| reported.differs.clone()),
            reported_at: reported.map(|reported| reported.at.to_string()),
            reason: row.reason.clone(),
            held: row.is_held,
        }
    }

    /// What its program reports of it, as phrases.
    fn terms(&self) -> Vec<String> {
        let program = self.program.iter().map(|program| format!("kept by {program}"));
        let decimals = self.decimals.map(|decimals| format!("{decimals} decimals"));
        let freeze = self.freeze_authority.as_ref().map(|who| format!("{who} may freeze it"));
        let delegate = self.permanent_delegate.as_ref().map(|who| format!("{who} may take it from anybody"));
        let fee = self
            .transfer_fee_basis_points
            .zip(self.transfer_fee_maximum.as_ref())
            .map(|(points, most)| format!("transfer fee {points} basis points, at most {most} base units"));
        let list = |what: &str, names: &[String]| {
            Some(names.join(", ")).filter(|names| !names.is_empty()).map(|names| format!("{what} {names}"))
        };
        let lists = [list("extensions", &self.extensions), list("risks", &self.risks)];
        program.chain(decimals).chain(freeze).chain(delegate).chain(fee).chain(lists.into_iter().flatten()).collect()
    }
}

/// One line.
impl fmt::Display for AssetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): ", self.symbol, self.asset)?;
        match self.reported_at {
            Some(_) if self.program.is_none() => f.write_str("no contract")?,
            Some(_) => f.write_str(&self.terms().join("; "))?,
            None => f.write_str("the chain has not reported what it is")?,
        }
        if !self.differs.is_empty() {
            write!(f, "; differs from the configuration: {}", self.differs)?;
        }
        if !self.reason.is_empty() {
            write!(f, "; the last reading reported nothing: {}", self.reason)?;
        }
        if self.held {
            f.write_str("; nothing of it is CONFIRMED for now")?;
        }
        Ok(())
    }
}
