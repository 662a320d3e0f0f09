//! Accounts and their addresses, as operators write them: flags and CSV files.
//!
//! Pure: only the store compares them with what is on record.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use landfall_chain::address::AddressError;
use landfall_chain::network::UnknownChain;
use landfall_chain::{Address, Chain};

use crate::identity::{IdError, IdentityStatus, check_id};
use crate::request::{self, Request, RequestIdError};

/// How many bad rows of a file are reported at once.
const BAD_ROWS_MAX: usize = 20;
const COLUMNS: [&str; 4] = ["account_id", "type", "chains", "address"];

/// How funds are held. The legacy names LEDGER and ONCHAIN are no longer accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccountType {
    Omnibus,
    Segregated,
}

/// What an account's identity lets it do. Derived, never stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccountStatus {
    Active,
    Frozen,
    Closed,
}

/// An account and some of its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewAccount {
    pub id: String,
    /// `None`: the default identity, or the one that an existing account has.
    pub identity_id: Option<String>,
    pub kind: AccountType,
    pub addresses: BTreeSet<(Chain, Address)>,
}

/// On which chains a new account gets the address that the signer derives for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Derived {
    On(BTreeSet<Chain>),
    /// On every chain that is followed when the account is opened.
    Everywhere,
}

/// A row of a CSV file and its line, counted from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub line: u64,
    pub account: NewAccount,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AccountError {
    #[error("unknown account type {0:?}: expected SEGREGATED or OMNIBUS")]
    Type(String),
    #[error("it has {cells} cells, and the header {columns}")]
    Cells { cells: usize, columns: usize },
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("{0:?}: expected CHAIN=ADDRESS or CHAIN,CHAIN..=ADDRESS, for example BASE_MAINNET=0x...")]
    Spec(String),
    #[error(transparent)]
    Chain(#[from] UnknownChain),
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// The bad rows of a CSV file, a line for each.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}", .0.join("\n"))]
pub struct CsvError(Vec<String>);

impl AccountType {
    pub const ALL: [AccountType; 2] = [AccountType::Omnibus, AccountType::Segregated];

    pub const fn name(self) -> &'static str {
        match self {
            AccountType::Omnibus => "OMNIBUS",
            AccountType::Segregated => "SEGREGATED",
        }
    }
}

impl AccountStatus {
    pub const ALL: [AccountStatus; 3] = [AccountStatus::Active, AccountStatus::Frozen, AccountStatus::Closed];

    /// The status of an account whose identity has this status. An account is frozen if the identity is neither cleared
    /// to transact nor closed for ever.
    pub const fn of(identity: IdentityStatus) -> Self {
        match identity {
            IdentityStatus::Active => AccountStatus::Active,
            IdentityStatus::PendingOnboarding | IdentityStatus::Suspended | IdentityStatus::Rejected => {
                AccountStatus::Frozen
            }
            IdentityStatus::Terminated => AccountStatus::Closed,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            AccountStatus::Active => "ACTIVE",
            AccountStatus::Frozen => "FROZEN",
            AccountStatus::Closed => "CLOSED",
        }
    }
}

impl fmt::Display for AccountType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AccountType {
    type Err = AccountError;

    fn from_str(text: &str) -> Result<Self, AccountError> {
        AccountType::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| AccountError::Type(text.to_owned()))
    }
}

impl NewAccount {
    /// From the flags of `account add`: `specs` are `CHAIN[,CHAIN..]=ADDRESS`.
    ///
    /// # Errors
    /// An id that is empty, long or not plain; an unknown chain; a malformed address.
    pub fn from_specs(id: &str, kind: AccountType, specs: &[String]) -> Result<Self, AccountError> {
        check_id("account id", id)?;
        let mut addresses = BTreeSet::new();
        for spec in specs {
            let (chains, address) = spec.split_once('=').ok_or_else(|| AccountError::Spec(spec.clone()))?;
            addresses.extend(on_chains(chains.split(','), address)?);
        }
        Ok(NewAccount { id: id.to_owned(), identity_id: None, kind, addresses })
    }

    /// The request that opens it. The account's own id is no part of the digest: it follows from the request's id. Nor
    /// is what `derived` comes to: the same request is sent again after other chains were configured.
    ///
    /// # Errors
    /// A request id that is empty, long or not plain.
    pub fn request(&self, id: &str, derived: &Derived) -> Result<Request, RequestIdError> {
        let identity = self.identity_id.as_deref().unwrap_or_default();
        let fields = [identity.as_bytes(), self.kind.name().as_bytes()].into_iter();
        let given = self.addresses.iter().flat_map(|(chain, address)| [chain.name().as_bytes(), address.as_bytes()]);
        // No address that is given is empty, and no chain has the name "*".
        let derived: Vec<&[u8]> = match derived {
            Derived::On(chains) => chains.iter().flat_map(|chain| [chain.name().as_bytes(), b""]).collect(),
            Derived::Everywhere => vec![b"*"],
        };
        request::of(id, "account/v1", fields.chain(given).chain(derived))
    }
}

/// Reads a CSV file with the header `account_id,type,chains,address` and optionally `identity_id`; chains are separated
/// by `|`. A row with only empty cells is ignored: spreadsheets write such rows where something was cleared.
///
/// # Errors
/// Every bad row (the first 20 of them) with its line.
pub fn parse_csv(text: &str) -> Result<Vec<Row>, CsvError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(text.as_bytes());
    let columns = Columns::of(reader.headers().map_err(|error| CsvError(vec![csv_fault(&error)]))?)?;
    let mut rows = Vec::new();
    let mut faults = Vec::new();
    for record in reader.records() {
        let row = match record {
            Ok(record) if record.iter().all(str::is_empty) => continue,
            Ok(record) => {
                let line = record.position().map_or(0, |position| line_of(text, position));
                columns
                    .read(&record)
                    .map(|account| Row { line, account })
                    .map_err(|error| format!("line {line}: {error}"))
            }
            Err(error) => Err(csv_fault(&error)),
        };
        match row {
            Ok(row) => rows.push(row),
            Err(fault) => faults.push(fault),
        }
        if faults.len() >= BAD_ROWS_MAX {
            faults.push("more rows may be bad; these are the first".to_owned());
            break;
        }
    }
    if faults.is_empty() { Ok(rows) } else { Err(CsvError(faults)) }
}

struct Columns {
    count: usize,
    required: [usize; 4],
    identity_id: Option<usize>,
}

impl Columns {
    fn of(header: &csv::StringRecord) -> Result<Self, CsvError> {
        let fault = |what: String| {
            CsvError(vec![format!(
                "line 1: {what}; the header is account_id,type,chains,address and optionally identity_id"
            )])
        };
        let place = |name: &str| header.iter().position(|column| column == name);
        if let Some(unknown) = header.iter().find(|column| !COLUMNS.contains(column) && *column != "identity_id") {
            return Err(fault(format!("unknown column {unknown:?}")));
        }
        let mut required = [0; 4];
        for (at, name) in required.iter_mut().zip(COLUMNS) {
            *at = place(name).ok_or_else(|| fault(format!("column {name} is missing")))?;
        }
        Ok(Columns { count: header.len(), required, identity_id: place("identity_id") })
    }

    fn read(&self, record: &csv::StringRecord) -> Result<NewAccount, AccountError> {
        if record.len() != self.count {
            return Err(AccountError::Cells { cells: record.len(), columns: self.count });
        }
        let [id, kind, chains, address] = self.required.map(|at| record.get(at).unwrap_or_default());
        check_id("account_id", id)?;
        let identity_id = self.identity_id.and_then(|at| record.get(at)).filter(|id| !id.is_empty());
        if let Some(identity_id) = identity_id {
            check_id("identity_id", identity_id)?;
        }
        Ok(NewAccount {
            id: id.to_owned(),
            identity_id: identity_id.map(str::to_owned),
            kind: kind.parse()?,
            addresses: on_chains(chains.split('|'), address)?.collect(),
        })
    }
}

fn on_chains<'a>(
    chains: impl Iterator<Item = &'a str>,
    address: &str,
) -> Result<impl Iterator<Item = (Chain, Address)>, AccountError> {
    let chains: Vec<Chain> = chains.map(|chain| chain.trim().parse()).collect::<Result<_, UnknownChain>>()?;
    let mut addresses = Vec::with_capacity(chains.len());
    for chain in chains {
        addresses.push((chain, Address::parse(chain.family(), address.trim())?));
    }
    Ok(addresses.into_iter())
}

/// The line on which a record starts: its position is before the empty lines that precede it.
fn line_of(text: &str, position: &csv::Position) -> u64 {
    let from = usize::try_from(position.byte()).ok().and_then(|byte| text.get(byte..)).unwrap_or_default();
    let empty_lines =
        from.bytes().take_while(|byte| matches!(byte, b'\r' | b'\n')).filter(|byte| *byte == b'\n').count();
    position.line() + u64::try_from(empty_lines).unwrap_or(0)
}

fn csv_fault(error: &csv::Error) -> String {
    match error.position() {
        Some(position) => format!("line {}: {error}", position.line()),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

    #[test]
    fn an_account_is_read_from_flags() {
        let specs = [format!("BASE_MAINNET,ETHEREUM_MAINNET={ADDRESS}"), format!("POLYGON_MAINNET={ADDRESS}")];
        let account = NewAccount::from_specs("acc-1", AccountType::Segregated, &specs).unwrap();
        let chains: Vec<Chain> = account.addresses.iter().map(|(chain, _)| *chain).collect();
        assert_eq!(chains, [Chain::EthereumMainnet, Chain::PolygonMainnet, Chain::BaseMainnet]);
    }

    #[test]
    fn bad_flags_are_refused_with_what_is_wrong() {
        let cases = [
            ("", "BASE_MAINNET=0x1", "account id \"\": expected 1 to 128 visible ASCII characters without spaces"),
            (
                "a",
                "BASE_MAINNET",
                "\"BASE_MAINNET\": expected CHAIN=ADDRESS or CHAIN,CHAIN..=ADDRESS, for example BASE_MAINNET=0x...",
            ),
            (
                "a",
                "BASE_MAINET=0x1",
                "unknown chain \"BASE_MAINET\"; the chains are ETHEREUM_MAINNET, POLYGON_MAINNET, ETHEREUM_TESTNET, OPTIMISM_SEPOLIA, BASE_MAINNET, BASE_SEPOLIA, OPTIMISM_MAINNET, POLYGON_AMOY, SOLANA_MAINNET, SOLANA_DEVNET",
            ),
            ("a", "BASE_MAINNET=0x1", "malformed EVM address \"0x1\": expected 0x and 40 hexadecimal digits"),
        ];
        for (id, spec, expected) in cases {
            let error = NewAccount::from_specs(id, AccountType::Omnibus, &[spec.to_owned()]).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert_eq!(
            "LEDGER".parse::<AccountType>().unwrap_err().to_string(),
            "unknown account type \"LEDGER\": expected SEGREGATED or OMNIBUS"
        );
    }

    #[test]
    fn an_account_is_frozen_or_closed_by_its_identity_alone() {
        let expected = ["FROZEN", "ACTIVE", "FROZEN", "FROZEN", "CLOSED"];
        assert_eq!(IdentityStatus::ALL.map(|status| AccountStatus::of(status).name()), expected);
    }

    #[test]
    fn requests_for_other_accounts_differ_and_the_order_of_addresses_does_not_count() {
        let base = NewAccount::from_specs("", AccountType::Omnibus, &[]).map(drop);
        assert!(base.is_err(), "an id is needed where the operator chooses it");
        let of = |identity: &str, kind, specs: &[String]| {
            let account = NewAccount::from_specs("a", kind, specs).unwrap();
            let account = NewAccount { identity_id: Some(identity.to_owned()), ..account };
            account.request("r", &Derived::On([].into())).unwrap().digest
        };
        let (one, two) = (format!("BASE_MAINNET={ADDRESS}"), format!("POLYGON_MAINNET={ADDRESS}"));
        let both = of("i", AccountType::Omnibus, &[one.clone(), two.clone()]);
        assert_eq!(both, of("i", AccountType::Omnibus, &[two.clone(), one.clone()]));
        let others = [
            of("j", AccountType::Omnibus, &[one.clone(), two.clone()]),
            of("i", AccountType::Segregated, &[one.clone(), two.clone()]),
            of("i", AccountType::Omnibus, &[one]),
            of("i", AccountType::Omnibus, &[two]),
        ];
        assert!(!others.contains(&both));
    }

    #[test]
    fn which_addresses_are_derived_is_part_of_the_request_and_those_that_give_all_are_as_ever() {
        let of = |specs: &[String], derived: Derived| {
            let account = NewAccount::from_specs("a", AccountType::Omnibus, specs).unwrap();
            account.request("r", &derived).unwrap().digest
        };
        let given = format!("BASE_MAINNET={ADDRESS}");
        let given = [given];
        let on = |chains: &[Chain]| Derived::On(chains.iter().copied().collect());
        let digests = [
            of(&given, on(&[])),
            of(&given, on(&[Chain::PolygonMainnet])),
            of(&[], on(&[Chain::PolygonMainnet])),
            of(&[], on(&[Chain::BaseMainnet, Chain::PolygonMainnet])),
            of(&[], Derived::Everywhere),
        ];
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest), "{index}");
        }
        // As stores have them of requests from before addresses were derived.
        assert_eq!(hex::encode(&digests[0][..8]), "b6ad6f43f59bb31b");
    }

    #[test]
    fn a_csv_file_is_read_and_every_bad_row_is_reported_with_its_line() {
        let good = format!(
            "account_id,type,chains,address\na,SEGREGATED,BASE_MAINNET|POLYGON_MAINNET,{ADDRESS}\n\nb,OMNIBUS,BASE_SEPOLIA,{ADDRESS}\n"
        );
        let rows = parse_csv(&good).unwrap();
        assert_eq!(
            rows.iter().map(|row| (row.line, row.account.addresses.len())).collect::<Vec<_>>(),
            [(2, 2), (4, 1)]
        );

        let bad = format!(
            "account_id,type,chains,address\na,ONCHAIN,BASE_MAINNET,{ADDRESS}\nb,OMNIBUS,BASE,{ADDRESS}\nc,OMNIBUS\n"
        );
        let faults = parse_csv(&bad).unwrap_err().to_string();
        let lines: Vec<&str> = faults.lines().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(lines, ["line 2", "line 3", "line 4"], "{faults}");
    }

    #[test]
    fn rows_of_separators_only_are_passed_over_and_a_row_with_any_cell_filled_is_not() {
        let file = |rows: &str| format!("account_id,type,chains,address,identity_id\n{rows}");
        let good = format!("a,SEGREGATED,BASE_MAINNET,{ADDRESS},\n");
        let lines = |text: &str| parse_csv(text).map(|rows| rows.iter().map(|row| row.line).collect::<Vec<_>>());
        for cleared in [",,,,", ",,,,\n,,,,\n,,,,\n", " , ,\t, , \n", ",,\n,\n,,,,,,\n", "\"\",,,,\n\n,,,,\r\n"] {
            assert_eq!(lines(&file(&format!("{good}{cleared}"))), Ok(vec![2]), "{cleared:?}");
        }
        assert_eq!(lines(&file(&format!(",,,,\n{good},,,,\n{good}"))), Ok(vec![3, 5]));
        assert_eq!(lines(&file(",,,,\n")), Ok(vec![]));
        for (partial, expected) in [
            ("b,,,,", "line 3: unknown account type \"\": expected SEGREGATED or OMNIBUS"),
            (",,,,x", "line 3: account_id \"\": expected 1 to 128 visible ASCII characters without spaces"),
            (",,x", "line 3: it has 3 cells, and the header 5"),
            (",,,,,,x", "line 3: it has 7 cells, and the header 5"),
        ] {
            let error = parse_csv(&file(&format!("{good}{partial}\n,,,,\n"))).unwrap_err().to_string();
            assert_eq!(error, expected, "{partial}");
        }
    }

    #[test]
    fn a_csv_header_that_is_not_ours_is_refused() {
        let error = parse_csv("account_id,type,chain,address\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "line 1: unknown column \"chain\"; the header is account_id,type,chains,address and optionally identity_id"
        );
        assert!(parse_csv("").unwrap_err().to_string().contains("column account_id is missing"));
    }
}
