//! What the tests share: a keystore in a directory of its own, a clock that is set, and requests.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use landfall_chain::{
    Address, AssetId, Carried, Carrier, Delegate, Family, Intent, KeyPath, Refusal, Route, SignRequest, Signed,
    SignedIntent, Signer, SignerUnavailable, U256,
};
use landfall_signer::{Embedded, KeystoreError, NewKeystore, Passphrase, Policy, Sendable, Words};

pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const CHAIN: &str = "eip155:8453";
pub(crate) const SOLANA: &str = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1";
pub(crate) const TOKEN: Address = Address::Evm([3; 20]);
pub(crate) const WALLETS: &str = "test test test test test test test test test test test junk";
pub(crate) const SPONSORS: &str = "legal winner thank year wave sausage worth useful legal winner thank yellow";
/// Least work: what is tested here is not how long a passphrase holds.
pub(crate) const WORK_FACTOR: u8 = 1;

/// A directory with a keystore, and the signer's clock.
pub(crate) struct World {
    dir: tempfile::TempDir,
    pub(crate) now: Arc<AtomicU64>,
    pub(crate) id: String,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let id = create(&dir.path().join("keys")).unwrap();
        World { dir, now: Arc::new(AtomicU64::new(NOW)), id }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().join("keys")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir().join("journal")
    }

    pub(crate) fn try_open(&self) -> Result<Embedded, KeystoreError> {
        self.try_open_by(policy())
    }

    fn try_open_by(&self, policy: Policy) -> Result<Embedded, KeystoreError> {
        let now = self.now.clone();
        Embedded::open(&self.dir(), &passphrase("secret"), policy, Arc::new(move || now.load(Ordering::Relaxed)))
    }

    pub(crate) fn open(&self) -> Embedded {
        self.open_by(policy())
    }

    /// As [`World::open`], where this may be signed. A process that another test starts holds copies of all locks for the moment
    /// before it is another program.
    pub(crate) fn open_by(&self, policy: Policy) -> Embedded {
        for _ in 0..500 {
            match self.try_open_by(policy.clone()) {
                Err(KeystoreError::InUse { .. }) => thread::sleep(Duration::from_millis(10)),
                opened => return opened.unwrap(),
            }
        }
        panic!("the keystore stays locked");
    }

    pub(crate) fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.dir().join(name), Permissions::from_mode(mode)).unwrap();
    }
}

pub(crate) fn create(dir: &Path) -> Result<String, KeystoreError> {
    let new = NewKeystore {
        wallets: &WALLETS.parse().unwrap(),
        sponsors: &SPONSORS.parse::<Words>().unwrap(),
        passphrase: &passphrase("secret"),
        work_factor: WORK_FACTOR,
        created_at: NOW,
    };
    new.create(dir)
}

pub(crate) fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(text.to_owned().into())
}

pub(crate) fn route() -> Route {
    Route::Erc3009 { name: "USD Coin".to_owned(), version: "2".to_owned() }
}

/// What may act for wallets.
pub(crate) const IMPLEMENTATIONS: [Address; 2] = [Address::Evm([0x63; 20]), Address::Evm([0x64; 20])];

pub(crate) fn by_delegate(which: usize) -> Route {
    let [manager, ids, times, executions] = [0xdb, 0xc8, 0x10, 0x14].map(|byte| Address::Evm([byte; 20]));
    let implementation = IMPLEMENTATIONS[which];
    Route::Delegate(Delegate::Metamask { implementation, manager, ids, times, executions })
}

pub(crate) fn policy() -> Policy {
    let plain = AssetId::Token(Address::Evm([5; 20]));
    let assets = vec![(AssetId::Token(TOKEN), route()), (AssetId::Native, by_delegate(0)), (plain, by_delegate(1))];
    let sol = vec![(AssetId::Native, Route::Guard { program: None, decimals: 9 })];
    Policy::new([
        Sendable {
            chain_ref: CHAIN.to_owned(),
            assets,
            caps: Vec::new(),
            cost_max: 10_u128.pow(16),
            refill_max: 10_u128.pow(17),
        },
        Sendable {
            chain_ref: SOLANA.to_owned(),
            assets: sol,
            caps: Vec::new(),
            cost_max: 10_000_000,
            refill_max: 10_u128.pow(9),
        },
    ])
}

pub(crate) fn wallet() -> KeyPath {
    KeyPath::of_wallet(Family::Evm, "alice", "")
}

pub(crate) fn sponsor() -> KeyPath {
    KeyPath::of_sponsor(Family::Evm, CHAIN, 0)
}

/// Of alice, whose address is the vector's.
pub(crate) fn intent(transfer: u8) -> Intent {
    Intent {
        transfer_id: [transfer; 16],
        chain_ref: CHAIN.to_owned(),
        route: route(),
        asset: AssetId::Token(TOKEN),
        payer: Address::parse(Family::Evm, "0x3938bbC3dF0e431A1d5CB2d801B84e51163cB51e").unwrap(),
        destination: Address::Evm([2; 20]),
        amount: U256::from(5_000_000),
        deadline: NOW + 300,
    }
}

pub(crate) fn of_intent(intent: Intent) -> SignRequest {
    SignRequest::Intent { path: wallet(), intent, heals: 0 }
}

pub(crate) async fn one(signer: &Embedded, request: SignRequest) -> Result<Signed, Refusal> {
    signer.sign(&[request]).await.unwrap().pop().unwrap()
}

pub(crate) async fn unavailable(signer: &Embedded, request: SignRequest) -> SignerUnavailable {
    signer.sign(&[request]).await.unwrap_err()
}

/// A carrier of an intent that is signed first.
pub(crate) async fn carrier(signer: &Embedded, intent: Intent) -> Carrier {
    let signature = one(signer, of_intent(intent.clone())).await.unwrap().bytes;
    let sponsor = signer.addresses(&[sponsor()]).await.unwrap()[0];
    let carried = Carried::Payment { signed: SignedIntent { intent, signature }, authorization: None };
    Carrier { sponsor, carried, nonce: 7, gas_limit: 100_000, max_fee: 3_000_000_000, tip: 1_000_000_000 }
}
