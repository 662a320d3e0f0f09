//! A store in a temporary folder, with as many watched addresses as are wanted.

use anyhow::Context;
use landfall::account::{AccountType, NewAccount};
use landfall::registry;
use landfall::store::{Connection, Db, Engine, StoreUrl, Tx};
use landfall::time::Timestamp;
use landfall::watcher::{Follower, Settings, Start};
use landfall_chain::{Address, Chain, Family, Network, ReadProof};
use landfall_evm::EvmSource;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use url::Url;

/// Whose payments the benchmarks make.
pub(crate) const PAYEE: [u8; 20] = [0xa1; 20];
pub(crate) const POLL: Duration = Duration::from_millis(100);

/// A store, until it is dropped.
pub(crate) struct Store {
    pub(crate) db: Db,
    folder: TempDir,
}

impl Store {
    /// One account with [`PAYEE`].
    pub(crate) async fn fresh(chain: Chain) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let db = open(&path(folder.path())).await?;
        db.migrate().await?;
        let account = NewAccount {
            id: "payee".to_owned(),
            identity_id: None,
            kind: AccountType::Omnibus,
            addresses: [(chain, payee(chain.family()))].into(),
        };
        registry::add_accounts(&db, &[account], Timestamp::EPOCH).await?;
        Ok(Store { db, folder })
    }

    /// Another one with the same content, of this one that is closed.
    pub(crate) async fn copy(&self) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::copy(self.path(), path(folder.path()))?;
        Ok(Store { db: open(&path(folder.path())).await?, folder })
    }

    pub(crate) fn path(&self) -> String {
        path(self.folder.path())
    }

    /// Where a file of this name would lie beside it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Watches so many addresses more, at once: an operator adds them by the thousand. The first payee stays.
    pub(crate) async fn watch(&self, chain: Chain, more: u64) -> anyhow::Result<()> {
        // In the order of their index: it would be read and written all over for each otherwise.
        const ADDRESSES: &str = "WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n <= $2), \
             drawn AS MATERIALIZED (SELECT n, randomblob($3) AS address FROM numbers) \
             INSERT INTO watched_addresses (chain, address, account_id, seq, from_number) \
             SELECT $1, address, 'payee', n, 0 FROM drawn ORDER BY address";
        const SEQ: &str = "UPDATE cursors SET watch_seq = $2 + 1 WHERE chain = $1";
        let more = i64::try_from(more)?;
        let mut tx = self.db.begin().await?;
        let bytes = i64::try_from(payee(chain.family()).as_bytes().len())?;
        let queries = [
            sqlx::query(ADDRESSES).bind(chain.name()).bind(more).bind(bytes),
            sqlx::query(SEQ).bind(chain.name()).bind(more),
        ];
        for query in queries {
            let touched = query.execute(sqlite(&mut tx)?).await?.rows_affected();
            anyhow::ensure!(touched > 0, "nothing was added");
        }
        Ok(tx.commit().await?)
    }

    /// Forgets where the chain was followed to, and every block of it; the owners stay.
    pub(crate) async fn forget_blocks(&self, chain: Chain) -> anyhow::Result<()> {
        const CURSOR: &str =
            "UPDATE cursors SET number = NULL, hash = NULL, final_number = NULL, final_hash = NULL WHERE chain = $1";
        const BLOCKS: &str = "DELETE FROM blocks WHERE chain = $1";
        let mut tx = self.db.begin().await?;
        for text in [CURSOR, BLOCKS] {
            sqlx::query(text).bind(chain.name()).execute(sqlite(&mut tx)?).await?;
        }
        Ok(tx.commit().await?)
    }
}

fn payee(family: Family) -> Address {
    match family {
        Family::Evm => Address::Evm(PAYEE),
        Family::Solana => Address::Solana([0xa1; 32]),
    }
}

/// A store that another process made.
pub(crate) async fn open(path: &str) -> anyhow::Result<Db> {
    let url: StoreUrl = format!("sqlite:{path}").parse()?;
    Ok(Db::open(&url).await?)
}

fn path(folder: &Path) -> String {
    folder.join("figures.db").display().to_string()
}

fn sqlite(tx: &mut Tx) -> anyhow::Result<&mut sqlx::SqliteConnection> {
    match tx.engine() {
        Engine::Sqlite(connection) => Some(connection),
        Engine::Postgres(_) => None,
    }
    .context("SQLite")
}

/// Follows the nodes' chain from block 1 on.
pub(crate) fn watcher(
    network: &Network,
    urls: &[Url],
    db: &Db,
    proof: ReadProof,
) -> anyhow::Result<Follower<Arc<EvmSource>>> {
    let source = EvmSource::new(network.clone(), urls)?;
    let endpoints = source.endpoints();
    let failed_grace = Duration::from_secs(3_600);
    let settings =
        Settings { start: Start::Number(1), proof, poll: POLL, failed_grace, finality_stall: None, block_stall: None };
    Ok(Follower::new(Arc::new(source), endpoints, db.clone(), network.clone(), settings))
}
