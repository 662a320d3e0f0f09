//! The keystore: a directory with both seeds, sealed, and the journal. One process at a time has it open.
//!
//! | file | what is in it |
//! |---|---|
//! | `wallets.age`, `sponsors.age` | the words of a seed; `age -d` opens them without Landfall |
//! | `journal` | what was signed, see [`crate::journal`] |
//! | `lock` | the number of the process that has it open |
//!
//! Promises: nothing is ever overwritten, but a seed by itself under another passphrase ([`Keystore::rotate_passphrase`]); what
//! others may read is not opened; a second process is refused.

mod rotation;

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::iter;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use age::{DecryptError, Decryptor, EncryptError, Encryptor, scrypt};
use zeroize::Zeroizing;

use crate::journal::{self, JournalError};
use crate::keys::Keys;
use crate::{Passphrase, Token, Words, WordsError};

const WALLETS: &str = "wallets.age";
const SPONSORS: &str = "sponsors.age";
/// The name of the journal in it.
pub const JOURNAL: &str = "journal";
const LOCK: &str = "lock";

/// How costly each try of a passphrase is: 2^18 rounds of scrypt, 256 MiB, about a second. It is what `age` uses.
pub const WORK_FACTOR: u8 = 18;
/// What is opened at most. It is not measured, as the crate does: a busy machine would refuse its own keystore.
const WORK_FACTOR_MAX: u8 = 22;
/// The most bytes of a sealed file, and of the words in it.
const SEALED_BYTES_MAX: u64 = 4096;

/// A keystore that this process has open. It is free again when this is dropped.
#[derive(Debug)]
pub struct Keystore {
    dir: PathBuf,
    pub(crate) keys: Keys,
    /// Held open: the lock ends with it.
    _lock: File,
}

/// What a keystore is made of.
#[derive(Clone, Copy, Debug)]
pub struct NewKeystore<'k> {
    /// The seed of accounts.
    pub wallets: &'k Words,
    /// The seed of sponsors; never the same.
    pub sponsors: &'k Words,
    /// What opens both.
    pub passphrase: &'k Passphrase,
    /// [`WORK_FACTOR`]; tests take a lower one.
    pub work_factor: u8,
    /// Seconds since 1970.
    pub created_at: u64,
}

/// Why a keystore cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum KeystoreError {
    /// The system refuses.
    #[error("cannot use {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others may read it.
    #[error("{path} can be read by others: chmod {mode} {path}")]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// What it should be.
        mode: &'static str,
    },
    /// Another process has it open.
    #[error("the keystore {dir} is in use by {by}")]
    InUse {
        /// Which keystore.
        dir: PathBuf,
        /// Whose it is.
        by: String,
    },
    /// There is one already.
    #[error("{0} is there already; a keystore is never overwritten")]
    Exists(PathBuf),
    /// Both seeds have the same words.
    #[error("the words of wallets and sponsors are the same: each seed has its own")]
    SameWords,
    /// Another passphrase sealed it.
    #[error("the passphrase does not open {0}")]
    WrongPassphrase(PathBuf),
    /// It is no sealed file of ours.
    #[error("{path} is damaged: restore it from a copy, or import the words into a new keystore")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<DecryptError>,
    },
    /// What was sealed in it are no words.
    #[error("{path} holds no words of a seed")]
    Words {
        /// The file.
        path: PathBuf,
        /// What is wrong with them.
        #[source]
        source: WordsError,
    },
    /// The seed could not be sealed.
    #[error("cannot seal {path}")]
    Seal {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<EncryptError>,
    },
    /// Its journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl NewKeystore<'_> {
    /// Makes the keystore in `dir`, which is made, or is empty. The id of its signer.
    ///
    /// # Errors
    /// There is one already, the words are the same, or the system refuses.
    pub fn create(&self, dir: &Path) -> Result<String, KeystoreError> {
        if self.wallets == self.sponsors {
            return Err(KeystoreError::SameWords);
        }
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_dir(dir)?,
            made => made.map_err(cannot_use(dir))?,
        }
        let _lock = lock(dir)?;
        for name in [WALLETS, SPONSORS, JOURNAL] {
            let path = dir.join(name);
            if path.exists() {
                return Err(KeystoreError::Exists(path));
            }
        }
        let by = (self.passphrase, self.work_factor);
        seal(self.wallets, by, &dir.join(WALLETS))?;
        seal(self.sponsors, by, &dir.join(SPONSORS))?;
        let id = journal::create(&dir.join(JOURNAL), self.created_at)?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(cannot_use(dir))?;
        Ok(id)
    }
}

impl Keystore {
    /// Opens the keystore in `dir` for this process alone.
    ///
    /// # Errors
    /// Another process has it open, others may read it, or the passphrase is another.
    pub fn open(dir: &Path, passphrase: &Passphrase) -> Result<Self, KeystoreError> {
        check_dir(dir)?;
        let lock = lock(dir)?;
        let [wallets, sponsors] = rotation::open_seeds(dir, passphrase)?;
        Ok(Keystore { dir: dir.to_owned(), keys: Keys::new(&wallets, &sponsors), _lock: lock })
    }

    /// The same, but the keys of sponsors are those of a token: their seed is used no more.
    pub fn with_token(self, token: Token) -> Self {
        Keystore { keys: self.keys.with_token(token), ..self }
    }

    /// Where its journal is.
    pub fn journal(&self) -> PathBuf {
        self.dir.join(JOURNAL)
    }
}

/// Whether anybody but the owner may read, write or enter it.
pub(crate) fn is_open_to_others(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & 0o077 != 0
}

/// A file that was not there, and that its owner alone may read.
pub(crate) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn check_dir(dir: &Path) -> Result<(), KeystoreError> {
    let metadata = fs::metadata(dir).map_err(cannot_use(dir))?;
    if is_open_to_others(&metadata) {
        return Err(KeystoreError::Open { path: dir.to_owned(), mode: "700" });
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File, KeystoreError> {
    let path = dir.join(LOCK);
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = opened.map_err(cannot_use(&path))?;
    match file.try_lock() {
        Ok(()) => {
            let noted = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
            noted.map_err(cannot_use(&path))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut process = String::new();
            // Empty for the moment between the lock and the note.
            let by = match file.take(32).read_to_string(&mut process) {
                Ok(1..) => format!("process {process}"),
                Ok(0) | Err(_) => "another process".to_owned(),
            };
            Err(KeystoreError::InUse { dir: dir.to_owned(), by })
        }
        Err(TryLockError::Error(source)) => Err(KeystoreError::Io { path, source }),
    }
}

/// Writes the words of a seed into a new file, whole and on disk.
fn seal(words: &Words, (passphrase, work_factor): (&Passphrase, u8), path: &Path) -> Result<(), KeystoreError> {
    let cannot = |source| KeystoreError::Seal { path: path.to_owned(), source: Box::new(source) };
    let mut recipient = scrypt::Recipient::new(passphrase.0.clone());
    recipient.set_work_factor(work_factor);
    let encryptor = Encryptor::with_recipients(iter::once(&recipient as _)).map_err(cannot)?;
    let mut sealed = Vec::new();
    let seal = || {
        let mut writer = encryptor.wrap_output(&mut sealed)?;
        writer.write_all(words.phrase().as_bytes())?;
        writer.write_all(b"\n")?;
        writer.finish()
    };
    seal().map_err(|error| cannot(error.into()))?;
    let mut file = new_file(path).map_err(cannot_use(path))?;
    file.write_all(&sealed).and_then(|()| file.sync_all()).map_err(cannot_use(path))
}

fn unseal(path: &Path, passphrase: &Passphrase) -> Result<Words, KeystoreError> {
    let file = File::open(path).map_err(cannot_use(path))?;
    if is_open_to_others(&file.metadata().map_err(cannot_use(path))?) {
        return Err(KeystoreError::Open { path: path.to_owned(), mode: "600" });
    }
    let mut identity = scrypt::Identity::new(passphrase.0.clone());
    identity.set_max_work_factor(WORK_FACTOR_MAX);
    // Whole at once: a buffer that grows leaves copies behind.
    let mut phrase = Zeroizing::new(Vec::with_capacity(8192));
    let unsealed = Decryptor::new_buffered(io::BufReader::new(file.take(SEALED_BYTES_MAX)))
        .and_then(|decryptor| decryptor.decrypt(iter::once(&identity as _)))
        .and_then(|words| Ok(words.take(SEALED_BYTES_MAX).read_to_end(&mut phrase)?));
    unsealed.map_err(|error| match error {
        DecryptError::DecryptionFailed | DecryptError::KeyDecryptionFailed | DecryptError::NoMatchingKeys => {
            KeystoreError::WrongPassphrase(path.to_owned())
        }
        source => KeystoreError::Damaged { path: path.to_owned(), source: Box::new(source) },
    })?;
    let text = std::str::from_utf8(&phrase).unwrap_or_default();
    text.parse().map_err(|source| KeystoreError::Words { path: path.to_owned(), source })
}

fn cannot_use(path: &Path) -> impl FnOnce(io::Error) -> KeystoreError {
    let path = path.to_owned();
    move |source| KeystoreError::Io { path, source }
}
