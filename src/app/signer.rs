//! The signer as it is configured: a keystore that this process opens and no other one meanwhile, or a process of its own
//! behind a socket, which may be away while this one starts.
//!
//! Promises: nothing is derived or signed by another seed than the one that the wallets on record were derived of. No
//! error shows a passphrase, nor what was configured in place of its path.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{
    Address, Family, JournalPage, KeyPath, Network, Refusal, Retry, SignRequest, Signed, Signer, SignerUnavailable,
    Signing, with_causes,
};
use landfall_signer::{
    Clock as SignerClock, Embedded, Keystore, KeystoreError, Passphrase, PassphraseError, Policy, Remote, Sendable,
    Token, TokenError, TokenPlace,
};
use tokio::sync::OnceCell;
use tracing::{info, warn};

use crate::app::{StartError, network};
use crate::config::{Config, KeystoreConfig, SignerConfig, TokenConfig};
use crate::random;
use crate::store::{Db, StoreError, wallets};
use crate::time::Clock;

const SIGNER: &str = "transfers.signer";
const PASSPHRASE: &str = "transfers.passphrase_file";
const TOKEN: &str = "pkcs11";
const PIN: &str = "pkcs11.pin_file";
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// The most that one transaction may cost its sponsor: 0.1 of an EVM chain's native currency, or so many times what its
/// file expects if that is more, and 0.01 SOL.
const EVM_COST_MAX: u128 = 100_000_000_000_000_000;
const EVM_COST_TIMES_MAX: u128 = 50;
const SOLANA_COST_MAX: u128 = 10_000_000;
/// How many wallets of each family are derived again before a signer is used.
const SAMPLE_MAX: u32 = 50;

/// What may be signed by a signer of its own: what the chains of this configuration list.
///
/// # Errors
/// When a chain is not configured as it must be.
pub fn policy(config: &Config) -> Result<Policy, StartError> {
    let networks = config.chains.iter().map(|(chain, settings)| network::network(*chain, settings));
    policy_of(config, &networks.collect::<Result<Vec<_>, _>>()?)
}

fn policy_of(config: &Config, networks: &[Network]) -> Result<Policy, StartError> {
    let sendable = |network: &Network| {
        let cost_max = match network.chain.family() {
            Family::Evm => EVM_COST_MAX.max(u128::from(network.sending.first_cost) * EVM_COST_TIMES_MAX),
            Family::Solana => SOLANA_COST_MAX,
        };
        let caps = network::caps(network, config.chain(network.chain)?)?;
        Ok::<_, StartError>(Sendable::of(network, caps, cost_max))
    };
    Ok(Policy::new(networks.iter().map(sendable).collect::<Result<Vec<_>, _>>()?))
}

/// Opens the signer, if one is configured; it may send what `networks` list. Waits while another process has its keystore
/// open. One behind a socket is not asked yet.
///
/// # Errors
/// Those that do not pass by waiting.
pub(super) async fn open(
    config: &Config,
    networks: &[Network],
    clock: &Clock,
) -> Result<Option<Arc<dyn Signer>>, StartError> {
    match &config.signer {
        None => Ok(None),
        Some(SignerConfig::Socket(path)) => Ok(Some(Arc::new(Remote::at(path)))),
        Some(SignerConfig::Keystore(keystore)) => {
            open_keystore(config, keystore, &policy_of(config, networks)?, clock).await.map(Some)
        }
    }
}

async fn open_keystore(
    config: &Config,
    KeystoreConfig { folder, passphrase_file }: &KeystoreConfig,
    policy: &Policy,
    clock: &Clock,
) -> Result<Arc<dyn Signer>, StartError> {
    let mut retry = Retry::new(RETRY_FIRST, RETRY_MAX);
    loop {
        let (folder, passphrase_file, policy) = (folder.clone(), passphrase_file.clone(), policy.clone());
        let (clock, token) = (clock.clone(), config.token.clone());
        let now = move || u64::try_from(clock.now().0 / 1_000_000).unwrap_or(0);
        // To open it takes a second of the processor.
        let opened = tokio::task::spawn_blocking(move || {
            let passphrase = passphrase(&passphrase_file)?;
            embedded(&folder, &passphrase, token.as_ref(), policy, Arc::new(now))
        });
        match opened.await.map_err(|error| failed(SIGNER, &error))? {
            Ok(signer) => {
                info!("the signer {} is open", signer.id());
                return Ok(Arc::new(signer));
            }
            Err(Unopened::Keystore(error @ KeystoreError::InUse { .. })) => {
                warn!("{error}; trying again");
                tokio::time::sleep(retry.next_delay(random::number())).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens a keystore for this process, and the token that has the keys of its sponsors, if one is configured.
///
/// # Errors
/// Either cannot be opened.
pub fn embedded(
    folder: &Path,
    passphrase: &Passphrase,
    token: Option<&TokenConfig>,
    policy: Policy,
    clock: SignerClock,
) -> Result<Embedded, Unopened> {
    let mut keystore = Keystore::open(folder, passphrase)?;
    if let Some(TokenConfig { module, label, pin_file }) = token {
        let pin = Passphrase::from_file(pin_file).map_err(|error| unread(PIN, "PIN", error))?;
        let place = TokenPlace { module: module.clone(), label: label.clone(), pin };
        keystore = keystore.with_token(Token::open(place)?);
    }
    Ok(Embedded::of(keystore, policy, clock)?)
}

/// The signer, for a command: one that another process has open is not waited for.
///
/// # Errors
/// Those of `open`, and where another process has its keystore open.
pub async fn signer_at_hand(config: &Config, db: &Db) -> Result<Option<Arc<dyn Signer>>, StartError> {
    let signer: Arc<dyn Signer> = match &config.signer {
        None => return Ok(None),
        Some(SignerConfig::Socket(path)) => Arc::new(Remote::at(path)),
        Some(SignerConfig::Keystore(KeystoreConfig { folder, passphrase_file })) => {
            let passphrase = passphrase(passphrase_file)?;
            // Nothing may be signed by it.
            Arc::new(embedded(folder, &passphrase, config.token.as_ref(), Policy::default(), Arc::new(|| 0))?)
        }
    };
    Ok(Some(Arc::new(Checked::check(signer, db.clone()).await?)))
}

/// Why a keystore is not open in this process.
#[derive(Debug, thiserror::Error)]
pub enum Unopened {
    #[error(transparent)]
    Keystore(#[from] KeystoreError),
    #[error(transparent)]
    Token(#[from] TokenError),
    /// What opens the one or the other.
    #[error("{key}: {what}")]
    Secret { key: &'static str, what: String },
}

impl From<Unopened> for StartError {
    fn from(error: Unopened) -> Self {
        match error {
            Unopened::Keystore(error) => failed(SIGNER, &error),
            Unopened::Token(error) => failed(TOKEN, &error),
            Unopened::Secret { key, what } => StartError::Signer { key, what },
        }
    }
}

fn passphrase(file: &Path) -> Result<Passphrase, Unopened> {
    Passphrase::from_file(file).map_err(|error| unread(PASSPHRASE, "passphrase", error))
}

/// The path is not shown: it may be a passphrase that was written in its place.
fn unread(key: &'static str, secret: &str, error: PassphraseError) -> Unopened {
    let what = match error {
        PassphraseError::Read { source, .. } => {
            format!("the file cannot be read: {source}; this key is the path of a file, never a {secret}")
        }
        PassphraseError::Open(_) => "the file can be read by others: its owner alone may read it, chmod 600".to_owned(),
        PassphraseError::Malformed { .. } => format!("the file holds no {secret} in its first line"),
    };
    Unopened::Secret { key, what }
}

fn failed(key: &'static str, error: &(dyn std::error::Error + 'static)) -> StartError {
    StartError::Signer { key, what: with_causes(error) }
}

/// A signer that is used once it derived a sample of the wallets on record as they are.
#[derive(Debug)]
pub(super) struct Checked {
    signer: Arc<dyn Signer>,
    db: Db,
    is_checked: OnceCell<()>,
}

/// Why a signer is not used.
#[derive(Debug, thiserror::Error)]
enum Unchecked {
    #[error(transparent)]
    Away(#[from] SignerUnavailable),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "it derives {derived} for account {account_id}, and {recorded} is on record: its words are not those of this store"
    )]
    Other { derived: Address, account_id: String, recorded: Address },
}

impl Checked {
    /// Checks it now. One that is away is checked before it is first used.
    ///
    /// # Errors
    /// It has another seed than the wallets on record, or the store cannot be read.
    pub(super) async fn check(signer: Arc<dyn Signer>, db: Db) -> Result<Self, StartError> {
        let checked = Checked { signer, db, is_checked: OnceCell::new() };
        match checked.be_checked().await {
            Ok(()) => {}
            Err(Unchecked::Away(error)) => warn!("nothing is signed or derived for now: {error}"),
            Err(Unchecked::Store(error)) if error.may_pass() => {
                warn!("nothing is signed or derived before the signer is checked: {error}");
            }
            Err(error @ (Unchecked::Other { .. } | Unchecked::Store(_))) => return Err(failed(SIGNER, &error)),
        }
        Ok(checked)
    }

    async fn be_checked(&self) -> Result<(), Unchecked> {
        self.is_checked.get_or_try_init(|| self.derive_again()).await.copied()
    }

    async fn derive_again(&self) -> Result<(), Unchecked> {
        for family in [Family::Evm, Family::Solana] {
            let sample = wallets::sample(&mut self.db.read().await?, family, SAMPLE_MAX).await?;
            let path = |wallet: &wallets::Wallet| KeyPath::of_wallet(family, &wallet.account_id, &wallet.tag);
            let paths: Vec<KeyPath> = sample.iter().map(path).collect();
            for (wallet, derived) in sample.into_iter().zip(self.signer.addresses(&paths).await?) {
                if wallet.address != derived {
                    let (account_id, recorded) = (wallet.account_id, wallet.address);
                    return Err(Unchecked::Other { derived, account_id, recorded });
                }
            }
        }
        Ok(())
    }

    async fn ready(&self) -> Result<&dyn Signer, SignerUnavailable> {
        match self.be_checked().await {
            Ok(()) => Ok(self.signer.as_ref()),
            Err(Unchecked::Away(error)) => Err(error),
            Err(error @ (Unchecked::Other { .. } | Unchecked::Store(_))) => Err(SignerUnavailable(error.to_string())),
        }
    }
}

impl Signer for Checked {
    fn id(&self) -> &str {
        self.signer.id()
    }

    fn addresses<'s>(&'s self, paths: &'s [KeyPath]) -> Signing<'s, Vec<Address>> {
        Box::pin(async move { self.ready().await?.addresses(paths).await })
    }

    fn sign<'s>(&'s self, requests: &'s [SignRequest]) -> Signing<'s, Vec<Result<Signed, Refusal>>> {
        Box::pin(async move { self.ready().await?.sign(requests).await })
    }

    fn journal<'s>(&'s self, chain_ref: &'s str, behind: u64) -> Signing<'s, JournalPage> {
        Box::pin(async move { self.ready().await?.journal(chain_ref, behind).await })
    }
}
