//! The other harness: a chain with real hashes behind JSON-RPC servers, followed by the real EVM source into a real
//! SQLite store, tick by tick.
//!
//! `world` asks whether the watcher is right when its source is; this asks whether both are when the nodes are not.
//! The chain's own ledger says what is true; [`Follower::audit`] counts what the store makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::{DepositStatus, Leg, LegHash};
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::store::deposits::{self, DepositFilter};
use landfall::time::Timestamp;
use landfall::watcher::{Settings, Start, TickError, Ticked, Watcher};
use landfall_chain::{
    Address, AssetId, AssetTransfer, BlockRef, FinalityRule, Lane, Native, Network, ReadProof, TxId, TxLife, TxRef,
    U256,
};
use landfall_evm::EvmSource;
use landfall_node::{BAIT, Block, Chain, Server};
use sha2::{Digest, Sha256};

use crate::books;
use crate::postgres::{Engine, TestStore};
use crate::world::{CHAIN, FAILED_GRACE};

const DEPOSITS_MAX: u32 = 1_000_000;
/// How long nothing may be got on with once every server behaves.
const REST_MAX: Duration = Duration::from_secs(60);
const WEI_PER_GWEI: u64 = 1_000_000_000;

/// One chain, its servers, and who follows them.
pub(crate) struct Follower {
    pub(crate) chain: Chain,
    pub(crate) servers: Vec<Server>,
    store: TestStore,
    watcher: Watcher<EvmSource>,
    watched: BTreeSet<Address>,
    now: Timestamp,
}

/// What the store has, compared with what the chain knows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Audit {
    /// Legs of final blocks to watched addresses.
    pub(crate) legs: usize,
    /// Of those, not CONFIRMED.
    pub(crate) missing: usize,
    /// CONFIRMED, and no leg of a final block.
    pub(crate) phantom: usize,
    /// CONFIRMED or announced more than once.
    pub(crate) twice: usize,
    /// Seen on a branch that never won, and believed for a while.
    pub(crate) baits: usize,
}

impl Audit {
    pub(crate) fn is_clean(&self) -> bool {
        (self.missing, self.phantom, self.twice) == (0, 0, 0)
    }
}

impl Follower {
    /// Follows `chain` through as many servers as there are seeds, from block 1 on.
    pub(crate) async fn new(chain: Chain, seeds: &[u64], watched: Vec<Address>) -> Self {
        let store = TestStore::fresh(Engine::Sqlite).await;
        let mut servers = Vec::new();
        for seed in seeds {
            servers.push(Server::start(chain.clone(), *seed).await.unwrap());
        }
        let now = Timestamp(1_800_000_000_000_000);
        let account = |(number, address): (usize, &Address)| NewAccount {
            id: format!("account-{number}"),
            identity_id: None,
            kind: AccountType::Segregated,
            addresses: [(CHAIN, *address)].into(),
        };
        let accounts: Vec<NewAccount> = watched.iter().enumerate().map(account).collect();
        registry::add_accounts(&store.db, &accounts, now).await.unwrap();
        let watcher = watcher(&servers, &store);
        Follower { chain, servers, store, watcher, watched: watched.into_iter().collect(), now }
    }

    pub(crate) async fn tick(&mut self) -> Result<Ticked, TickError> {
        self.watcher.tick(self.now).await
    }

    /// A new process: all it knows is what is on record.
    pub(crate) fn restart(&mut self) {
        self.watcher = watcher(&self.servers, &self.store);
    }

    /// The newest connected block; block 0 before the first tick.
    pub(crate) async fn cursor(&self) -> BlockRef {
        let cursor = Cursor::load(&mut self.store.db.read().await.unwrap(), CHAIN).await.unwrap();
        cursor.at.unwrap_or_else(|| self.chain.block(0).expect("mined").reference())
    }

    /// Whether the cursor is the chain's newest block.
    pub(crate) async fn is_there(&self) -> bool {
        self.cursor().await == self.chain.latest()
    }

    /// Ticks until the newest block is connected and everything final is settled. Errors that may pass are let pass.
    pub(crate) async fn rest(&mut self) -> Result<(), String> {
        let mut begun = Instant::now();
        loop {
            match self.tick().await {
                Ok(ticked)
                    if (ticked.connected, ticked.confirmed, ticked.failed) == (0, 0, 0) && self.is_there().await =>
                {
                    return Ok(());
                }
                Ok(ticked) if ticked.connected + ticked.confirmed + ticked.failed > 0 => begun = Instant::now(),
                Ok(_) => {}
                Err(error) if error.may_pass() && begun.elapsed() < REST_MAX => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(format!("does not come to rest: {error}")),
            }
            if begun.elapsed() > REST_MAX {
                return Err("does not come to rest".to_owned());
            }
        }
    }

    /// Every server behaves, and the chain goes on until all that ever was is final and every grace has passed.
    pub(crate) async fn settle(&mut self, finality_depth: u64) -> Result<(), String> {
        self.servers.iter().for_each(Server::behave);
        for _ in 0..3 {
            self.chain.mine_empty(finality_depth + 1);
            self.rest().await?;
            self.now = self.now.plus(FAILED_GRACE);
        }
        Ok(())
    }

    pub(crate) async fn audit(&self) -> Audit {
        let through = self.chain.finalized().map_or(0, |finalized| finalized.number);
        let blocks = self.chain.blocks();
        let legs: BTreeSet<LegHash> =
            blocks.iter().filter(|block| block.number() <= through).flat_map(|block| self.legs(block)).collect();
        let db = &self.store.db;
        let all = deposits::list(&mut db.read().await.unwrap(), &DepositFilter::default(), DEPOSITS_MAX).await.unwrap();
        let confirmed: Vec<LegHash> = all
            .iter()
            .filter(|deposit| deposit.status == DepositStatus::Confirmed)
            .map(|deposit| {
                let (tx, asset, recipient, amount, nth) =
                    (deposit.tx.id, deposit.asset, deposit.recipient, deposit.amount, deposit.nth);
                Leg { chain_ref: &network().chain_ref, tx, asset, recipient, amount, nth }.hash()
            })
            .collect();
        let mut announced: BTreeMap<(String, String), u64> = BTreeMap::new();
        for event in books::events(db).await.into_iter().filter(|event| event.status == "CONFIRMED") {
            *announced.entry((event.aggregateid, event.status)).or_default() += 1;
        }
        let distinct: BTreeSet<LegHash> = confirmed.iter().copied().collect();
        let repeated = announced.values().filter(|times| **times > 1).count();
        Audit {
            legs: legs.len(),
            missing: legs.difference(&distinct).count(),
            phantom: distinct.difference(&legs).count(),
            twice: confirmed.len() - distinct.len() + repeated,
            baits: all.iter().filter(|deposit| deposit.amount == U256::from(BAIT)).count(),
        }
    }

    /// What the block pays to watched addresses in listed assets.
    fn legs(&self, block: &Block) -> Vec<LegHash> {
        let network = network();
        let roots = block.ledger().iter().filter(|leg| leg.lane == Lane::Roots).map(|leg| leg.transfer.clone());
        let withdrawals = block.withdrawals().iter().map(|one| withdrawal(one.index, one.address.into(), one.amount));
        let legs = roots.chain(withdrawals).filter(|leg| self.watched.contains(&leg.recipient));
        let listed = legs.filter(|leg| network.asset(&leg.asset).is_some());
        let hash = |leg: AssetTransfer| {
            let AssetTransfer { tx, asset, recipient, amount, nth, .. } = leg;
            Leg { chain_ref: &network.chain_ref, tx: tx.id, asset, recipient, amount, nth }.hash()
        };
        listed.map(hash).collect()
    }
}

/// The leg of a beacon withdrawal, by DESIGN's words and not by the source's code.
fn withdrawal(index: u64, recipient: [u8; 20], gwei: u64) -> AssetTransfer {
    let name = [&13_u32.to_be_bytes()[..], b"withdrawal/v1", &8_u32.to_be_bytes(), &index.to_be_bytes()].concat();
    AssetTransfer {
        tx: TxRef { id: TxId::Evm(Sha256::digest(name).into()), life: TxLife::Block },
        asset: AssetId::Native,
        sender: Address::Evm([0; 20]),
        recipient: Address::Evm(recipient),
        amount: U256::from(gwei) * U256::from(WEI_PER_GWEI),
        nth: 0,
    }
}

/// Sepolia, by its `finalized` tag, without traces.
pub(crate) fn network() -> Network {
    let network = landfall_evm::network(CHAIN).expect("an EVM chain");
    Network { native: Native::TOP_LEVEL, finality: FinalityRule::FINALIZED.into(), ..network }
}

/// The listed token.
pub(crate) fn usdc() -> landfall_node::Address {
    let token = network().assets.iter().find_map(|asset| match asset.id {
        AssetId::Token(Address::Evm(contract)) => Some(contract),
        AssetId::Token(Address::Solana(_)) | AssetId::Native => None,
    });
    token.expect("Sepolia lists USDC").into()
}

/// Whether the full counts are asked for.
pub(crate) fn full() -> bool {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    let full = std::env::var("LANDFALL_FULL");
    full.is_ok_and(|value| value == "1")
}

fn watcher(servers: &[Server], store: &TestStore) -> Watcher<EvmSource> {
    let urls: Vec<_> = servers.iter().map(|server| server.url().parse().unwrap()).collect();
    let source = EvmSource::new(network(), &urls).unwrap();
    let endpoints = source.endpoints();
    let (poll, proof) = (Duration::from_millis(10), ReadProof::Full);
    let start = Start::Number(1);
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None };
    Watcher::new(source, endpoints, store.db.clone(), network(), settings)
}
