//! Accounts and the watched addresses, which are one thing to an operator and two to the watcher.
//!
//! To add an address takes the lock of its chain's cursor row, so that the block from which it is watched is exact.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use landfall_chain::{Address, Chain, what_of_nobody};
use sqlx_macros::FromRow;

use crate::account::{AccountType, NewAccount};
use crate::identity::{DEFAULT_IDENTITY, IdentityStatus};
use crate::request::Made;
use crate::store::balances::Reason;
use crate::store::cursors::Cursor;
use crate::store::error::expect;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, Listed, ORGANIZATION, StoreError, Tx, balances, int, parsed, sponsors, uint};
use crate::time::Timestamp;

/// How many addresses an account may have, each chain of one counted: responses about an account include all of them at
/// once.
pub(super) const ADDRESSES_MAX: u64 = 10_000;

/// How many members of a watch list one statement updates: each has a time limit, and an import has millions.
const LOWERED_AT_ONCE: i64 = 10_000;

/// A member of a chain's watch list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedAddress {
    /// Its number in the order of adding.
    pub seq: u64,
    pub address: Address,
    /// It is no account's: it pays for transactions, and nothing else of it is recorded.
    pub is_sponsor: bool,
}

/// An account with its addresses, each with the first block that is matched against it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccountRow {
    pub id: String,
    pub identity_id: String,
    pub kind: AccountType,
    pub addresses: Vec<(Chain, Address, u64)>,
}

#[derive(Debug, thiserror::Error)]
pub enum AddAccountError {
    #[error("account {id} exists with type {recorded}, not {given}")]
    OtherType { id: String, recorded: AccountType, given: AccountType },
    #[error("account {id} exists with identity {recorded}, not {given}")]
    OtherIdentity { id: String, recorded: String, given: String },
    #[error("there is no identity {0}")]
    NoIdentity(String),
    #[error("identity {id} is {status} and can open no accounts")]
    Closed { id: String, status: IdentityStatus },
    #[error(
        "account {id} has {most} addresses already, the most that are allowed (one on two chains counts twice); open another account"
    )]
    TooMany { id: String, most: u64 },
    #[error("{address} on {chain} belongs to account {owner} already")]
    OtherOwner { address: Address, chain: Chain, owner: String },
    #[error("{address} on {chain} pays for transactions here, and can be no account's")]
    Sponsors { address: Address, chain: Chain },
    #[error("{address} on {chain} is {what}: nobody can spend what is sent there")]
    Nobodys { address: Address, chain: Chain, what: &'static str },
    #[error(transparent)]
    Store(#[from] StoreError),
}

statements! {
    ACCOUNT = "SELECT type, identity_id FROM accounts WHERE id = $1";
    // Who changes the identity and who opens an account wait for each other: the change reports the account, or the
    // account is opened after it.
    IDENTITY = "SELECT status FROM identities WHERE id = $1 AND organization_id = $2" [" FOR KEY SHARE"] "";
    INSERT_ACCOUNT = "INSERT INTO accounts (id, organization_id, identity_id, type, created_us, request_id) \
                      VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING";
    SET_REQUEST = "UPDATE accounts SET request_id = $2 WHERE id = $1";
    COUNT = "SELECT COUNT(*) FROM watched_addresses WHERE account_id = $1";
    OWNER = "SELECT account_id FROM watched_addresses WHERE chain = $1 AND address = $2";
    // $2 is $4 addresses of $3 bytes each, concatenated: one statement for all of them, because others wait for its
    // lock.
    OWNERS = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $4) \
              SELECT w.address, w.account_id FROM n CROSS JOIN watched_addresses AS w \
              WHERE w.chain = $1 AND w.address = substr(" ["CAST("] "$2" [" AS BYTEA)"] ", i * $3 + 1, $3)";
    WATCH = "INSERT INTO watched_addresses (chain, address, account_id, seq, from_number) \
             WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $4) \
             SELECT $1, substr(" ["CAST("] "$2" [" AS BYTEA)"] ", i * $3 + 1, $3), $5, $6 + i, $7 FROM n";
    WATCHED_BETWEEN = "SELECT address, account_id FROM watched_addresses WHERE chain = $1 AND address >= $2 AND address <= $3 ORDER BY address LIMIT $4";
    // One statement for both, each by its index: numbers of the one are between those of the other.
    WATCHED_SINCE = "SELECT w.seq, w.address, w.pays FROM \
                     (SELECT * FROM (SELECT seq, address, FALSE AS pays FROM watched_addresses WHERE chain = $1 AND seq > $2 ORDER BY seq LIMIT $3) AS a \
                     UNION ALL SELECT * FROM (SELECT watch_seq, address, TRUE FROM sponsors WHERE chain = $1 AND watch_seq > $2 ORDER BY watch_seq LIMIT $3) AS s) AS w \
                     ORDER BY w.seq LIMIT $3";
    ADDRESSES_OF = "SELECT address FROM watched_addresses WHERE chain = $1 AND account_id = $2 ORDER BY address";
    // An address that was added before its chain was followed is matched from the chain's first followed block on.
    WATCHED_FROM = "SELECT from_number, (SELECT MIN(native_settings.from_number) FROM native_settings WHERE native_settings.chain = $1) \
                    FROM watched_addresses WHERE chain = $1 AND address = $2";
    // For a plain column PostgreSQL may seek the minimum in its own index, and pass over all that were added earlier.
    REPORTED_LATER = "SELECT MIN(seq + 0), MAX(seq + 0) FROM watched_addresses WHERE chain = $1 AND from_number > $2";
    LOWER_FROM = "UPDATE watched_addresses SET from_number = $1 \
                  WHERE chain = $2 AND from_number > $1 AND seq BETWEEN $3 AND $4";
    ACCOUNTS = "SELECT id, identity_id, type FROM accounts WHERE organization_id = $1 ORDER BY id";
    ADDRESSES = "SELECT account_id, chain, address, from_number, \
                 (SELECT MIN(s.from_number) FROM native_settings AS s WHERE s.chain = w.chain) \
                 FROM watched_addresses AS w ORDER BY account_id, chain, address";
}

/// The watch lists of some chains, locked for the transaction, to add to.
#[derive(Debug)]
pub struct WatchLists {
    ends: BTreeMap<Chain, WatchListEnd>,
}

#[derive(Debug)]
struct WatchListEnd {
    /// The first block that will be matched against what is added.
    from_number: u64,
    seq: u64,
    seq_before: u64,
}

impl WatchLists {
    /// Locks the lists of `chains`, in the chains' order, so that two transactions that add cannot deadlock.
    pub async fn lock(tx: &mut Tx, chains: &BTreeSet<Chain>) -> Result<Self, StoreError> {
        let mut ends = BTreeMap::new();
        for chain in chains {
            let Cursor { at, watch_seq: seq, .. } = Cursor::lock(tx, *chain).await?;
            let from_number = at.map_or(0, |at| at.number + 1);
            ends.insert(*chain, WatchListEnd { from_number, seq, seq_before: seq });
        }
        Ok(WatchLists { ends })
    }

    /// Adds an account, or addresses to an existing one. What is on record already stays as it is.
    pub async fn add(&mut self, tx: &mut Tx, account: &NewAccount, now: Timestamp) -> Result<(), AddAccountError> {
        let has = match ensure_account(tx, account, now).await? {
            Made::Now => 0,
            Made::Before => count(tx, &account.id).await?,
        };
        self.watch_all(tx, account, has, now).await
    }

    /// Opens the account that the request with this id asks for. If an operator has already restored an account with
    /// its id, adds to that.
    pub async fn open(
        &mut self,
        tx: &mut Tx,
        account: &NewAccount,
        request_id: &str,
        now: Timestamp,
    ) -> Result<(), AddAccountError> {
        let opened = insert_account(tx, account, request_id, now).await?;
        if opened == 0 {
            self.add(tx, account, now).await?;
            execute!(tx, SET_REQUEST, &account.id, request_id)?;
            return Ok(());
        }
        self.watch_all(tx, account, 0, now).await
    }

    /// Watches the addresses of an account that already has `has` addresses.
    async fn watch_all(
        &mut self,
        tx: &mut Tx,
        account: &NewAccount,
        has: u64,
        now: Timestamp,
    ) -> Result<(), AddAccountError> {
        let new = new_addresses(tx, account, has).await?;
        for (chain, addresses) in new {
            let end = self.ends.get_mut(&chain).ok_or(StoreError::Moved { chain })?;
            let Listed { bytes, width, len } = Listed::of(&addresses);
            let (id, first, from) = (&account.id, int(end.seq + 1), int(end.from_number));
            let inserted = execute!(tx, WATCH, chain.name(), bytes, width, len, id, first, from)?;
            expect("insert watched addresses", addresses.len() as u64, inserted)?;
            end.seq += inserted;
            balances::first(tx, chain, &addresses, (Reason::Added, end.from_number), now).await?;
        }
        Ok(())
    }

    /// Publishes what was added: watchers match the next block against it.
    pub async fn publish(self, tx: &mut Tx) -> Result<(), StoreError> {
        for (chain, end) in self.ends {
            if end.seq != end.seq_before {
                Cursor::set_watch_seq(tx, chain, end.seq).await?;
            }
        }
        Ok(())
    }
}

/// Those addresses of the account that are not watched yet, by chain and in their order, each once. The account already
/// has `has` addresses.
///
/// # Errors
/// An address that belongs to another account or that nobody can spend from, and more addresses than an account may
/// have.
async fn new_addresses(
    connection: &mut impl Connection,
    account: &NewAccount,
    mut has: u64,
) -> Result<BTreeMap<Chain, Vec<Address>>, AddAccountError> {
    let mut by_chain: BTreeMap<Chain, Vec<Address>> = BTreeMap::new();
    for (chain, address) in &account.addresses {
        by_chain.entry(*chain).or_default().push(*address);
    }
    let mut owners: HashMap<(Chain, Address), String> = HashMap::new();
    for (chain, addresses) in &by_chain {
        let Listed { bytes, width, len } = Listed::of(addresses);
        for (bytes, owner) in fetch_all!(connection, (Vec<u8>, String), OWNERS, chain.name(), bytes, width, len)? {
            let address = Address::from_bytes(&bytes);
            let address = address.map_err(|error| StoreError::inconsistent("watched address", error))?;
            owners.insert((*chain, address), owner);
        }
    }
    let mut paying: BTreeSet<(Chain, Address)> = BTreeSet::new();
    for chain in account.addresses.iter().map(|(chain, _)| *chain).collect::<BTreeSet<_>>() {
        let sponsors = sponsors::of_chain(connection, chain).await?;
        paying.extend(sponsors.iter().filter_map(|sponsor| Some((chain, sponsor.address?))));
    }
    let mut new: BTreeMap<Chain, Vec<Address>> = BTreeMap::new();
    for (chain, address) in &account.addresses {
        match owners.get(&(*chain, *address)) {
            Some(owner) if *owner == account.id => continue,
            Some(owner) => {
                return Err(AddAccountError::OtherOwner { address: *address, chain: *chain, owner: owner.clone() });
            }
            None => {}
        }
        if paying.contains(&(*chain, *address)) {
            return Err(AddAccountError::Sponsors { address: *address, chain: *chain });
        }
        // An address that is on record already stays watched.
        if let Some(what) = what_of_nobody(*chain, address) {
            return Err(AddAccountError::Nobodys { address: *address, chain: *chain, what });
        }
        if has >= ADDRESSES_MAX {
            return Err(AddAccountError::TooMany { id: account.id.clone(), most: ADDRESSES_MAX });
        }
        has += 1;
        new.entry(*chain).or_default().push(*address);
    }
    Ok(new)
}

/// At most `limit` members of the chain's watch list with numbers above `seq`, in order.
pub async fn watched_since(
    connection: &mut impl Connection,
    chain: Chain,
    seq: u64,
    limit: u32,
) -> Result<Vec<WatchedAddress>, StoreError> {
    let rows = fetch_all!(connection, (i64, Vec<u8>, bool), WATCHED_SINCE, chain.name(), int(seq), i64::from(limit))?;
    let watched = rows.into_iter().map(|(seq, bytes, is_sponsor)| {
        let address =
            Address::from_bytes(&bytes).map_err(|error| StoreError::inconsistent("watched address", error))?;
        Ok(WatchedAddress { seq: uint("seq", seq)?, address, is_sponsor })
    });
    watched.collect()
}

/// The account that owns this address; `None` if it is not watched.
pub async fn owner(
    connection: &mut impl Connection,
    chain: Chain,
    address: &Address,
) -> Result<Option<String>, StoreError> {
    let row = fetch_optional!(connection, (String,), OWNER, chain.name(), address.as_bytes())?;
    Ok(row.map(|(owner,)| owner))
}

/// Watched addresses of a chain from the first to the last, both inclusive, each with its account; at most `limit`, the
/// lowest first.
pub async fn between(
    connection: &mut impl Connection,
    chain: Chain,
    (first, last): (&Address, &Address),
    limit: u32,
) -> Result<Vec<(Address, String)>, StoreError> {
    let (first, last) = (first.as_bytes(), last.as_bytes());
    let rows = fetch_all!(connection, (Vec<u8>, String), WATCHED_BETWEEN, chain.name(), first, last, i64::from(limit))?;
    let entry = |(bytes, account_id): (Vec<u8>, String)| {
        let address = Address::from_bytes(&bytes);
        Ok((address.map_err(|error| StoreError::inconsistent("watched address", error))?, account_id))
    };
    rows.into_iter().map(entry).collect()
}

pub async fn addresses_of(
    connection: &mut impl Connection,
    chain: Chain,
    account_id: &str,
) -> Result<Vec<Address>, StoreError> {
    let rows = fetch_all!(connection, (Vec<u8>,), ADDRESSES_OF, chain.name(), account_id)?;
    let address = |(bytes,): (Vec<u8>,)| {
        Address::from_bytes(&bytes).map_err(|error| StoreError::inconsistent("watched address", error))
    };
    rows.into_iter().map(address).collect()
}

/// The first block that is matched against an address; `None` if it is not watched.
pub async fn watched_from(
    connection: &mut impl Connection,
    chain: Chain,
    address: &Address,
) -> Result<Option<u64>, StoreError> {
    let row = fetch_optional!(connection, (i64, Option<i64>), WATCHED_FROM, chain.name(), address.as_bytes())?;
    row.map(|(from, first)| matched_from(from, first)).transpose()
}

/// The first block that is matched against an address. It was added when block `from` was the next one; the chain is
/// followed from block `first` on. Computed at each call: when a chain is first followed it may have millions.
pub(super) fn matched_from(from: i64, first: Option<i64>) -> Result<u64, StoreError> {
    uint("from_number", first.map_or(from, |first| from.max(first)))
}

/// The blocks from `number` on will be read again: addresses that were to be watched from a later one are matched from
/// `number` on.
pub async fn lower_from(tx: &mut Tx, chain: Chain, number: u64) -> Result<(), StoreError> {
    let reported = fetch_optional!(tx, (Option<i64>, Option<i64>), REPORTED_LATER, chain.name(), int(number))?;
    let Some((Some(mut from), Some(last))) = reported else { return Ok(()) };
    while from <= last {
        let to = from + (LOWERED_AT_ONCE - 1);
        execute!(tx, LOWER_FROM, int(number), chain.name(), from, to)?;
        from = to + 1;
    }
    Ok(())
}

pub async fn list(connection: &mut impl Connection) -> Result<Vec<AccountRow>, StoreError> {
    #[derive(FromRow)]
    struct Row {
        id: String,
        identity_id: String,
        r#type: String,
    }
    let rows = fetch_all!(connection, Row, ACCOUNTS, ORGANIZATION)?;
    let mut addresses: BTreeMap<String, Vec<(Chain, Address, u64)>> = BTreeMap::new();
    type AddressRow = (String, String, Vec<u8>, i64, Option<i64>);
    for (account_id, chain, bytes, from, first) in fetch_all!(connection, AddressRow, ADDRESSES)? {
        let address =
            Address::from_bytes(&bytes).map_err(|error| StoreError::inconsistent("watched address", error))?;
        let entry = (parsed("chain", &chain)?, address, matched_from(from, first)?);
        addresses.entry(account_id).or_default().push(entry);
    }
    let accounts = rows.into_iter().map(|row| {
        let addresses = addresses.remove(&row.id).unwrap_or_default();
        Ok(AccountRow {
            kind: parsed("account type", &row.r#type)?,
            identity_id: row.identity_id,
            addresses,
            id: row.id,
        })
    });
    accounts.collect()
}

/// How many addresses an account has: one on two chains counts twice.
async fn count(connection: &mut impl Connection, account_id: &str) -> Result<u64, StoreError> {
    let row = fetch_optional!(connection, (i64,), COUNT, account_id)?;
    row.map_or(Ok(0), |(count,)| uint("count of addresses", count))
}

/// Checks that nothing on record contradicts an account that is first given `more` other addresses. Returns how many of
/// its addresses are new to it, and whether it is new itself.
///
/// # Errors
/// As [`WatchLists::add`].
pub async fn check(
    connection: &mut impl Connection,
    account: &NewAccount,
    more: u64,
) -> Result<(u64, Made), AddAccountError> {
    let made = recorded(connection, account).await?;
    let has = match made {
        Made::Before => count(connection, &account.id).await?,
        Made::Now => {
            check_identity(connection, account).await?;
            0
        }
    };
    let new = new_addresses(connection, account, has + more).await?;
    Ok((new.values().map(|addresses| addresses.len() as u64).sum(), made))
}

/// Creates the account, or finds the same one on record (also if another process has just created it).
async fn ensure_account(tx: &mut Tx, account: &NewAccount, now: Timestamp) -> Result<Made, AddAccountError> {
    if let Made::Before = recorded(tx, account).await? {
        return Ok(Made::Before);
    }
    if insert_account(tx, account, "", now).await? == 1 {
        return Ok(Made::Now);
    }
    match recorded(tx, account).await? {
        Made::Before => Ok(Made::Before),
        Made::Now => Err(StoreError::inconsistent("account", "it is not there").into()),
    }
}

/// Whether the account is on record; an error if that one differs.
async fn recorded(connection: &mut impl Connection, account: &NewAccount) -> Result<Made, AddAccountError> {
    let NewAccount { id, identity_id, kind, .. } = account;
    let recorded = fetch_optional!(connection, (String, String), ACCOUNT, id)?;
    let Some((recorded_kind, recorded)) = recorded else { return Ok(Made::Now) };
    let recorded_kind: AccountType = parsed("account type", &recorded_kind)?;
    if recorded_kind != *kind {
        return Err(AddAccountError::OtherType { id: id.clone(), recorded: recorded_kind, given: *kind });
    }
    match identity_id {
        Some(given) if *given != recorded => {
            Err(AddAccountError::OtherIdentity { id: id.clone(), recorded, given: given.clone() })
        }
        Some(_) | None => Ok(Made::Before),
    }
}

/// Checks that the identity of a new account may open one; returns its id.
async fn check_identity<'a>(
    connection: &mut impl Connection,
    account: &'a NewAccount,
) -> Result<&'a str, AddAccountError> {
    let identity = account.identity_id.as_deref().unwrap_or(DEFAULT_IDENTITY);
    let status = fetch_optional!(connection, (String,), IDENTITY, identity, ORGANIZATION)?;
    let (status,) = status.ok_or_else(|| AddAccountError::NoIdentity(identity.to_owned()))?;
    let status: IdentityStatus = parsed("identity status", &status)?;
    if status.may_open_accounts() {
        Ok(identity)
    } else {
        Err(AddAccountError::Closed { id: identity.to_owned(), status })
    }
}

/// The status of an identity, which nobody changes before the end of this transaction.
pub async fn lock_status(connection: &mut impl Connection, identity_id: &str) -> Result<IdentityStatus, StoreError> {
    let status = fetch_optional!(connection, (String,), IDENTITY, identity_id, ORGANIZATION)?;
    let (status,) = status.ok_or_else(|| StoreError::inconsistent("identity", "it is not there"))?;
    parsed("identity status", &status)
}

/// Creates the account unless one with its id exists; returns how many were created.
async fn insert_account(
    tx: &mut Tx,
    account: &NewAccount,
    request_id: &str,
    now: Timestamp,
) -> Result<u64, AddAccountError> {
    let identity = check_identity(tx, account).await?;
    let NewAccount { id, kind, .. } = account;
    Ok(execute!(tx, INSERT_ACCOUNT, id, ORGANIZATION, identity, kind.name(), now.0, request_id)?)
}
