//! Another passphrase for a keystore.
//!
//! | step | what a crash behind it leaves | what opens it |
//! |---|---|---|
//! | both seeds are sealed anew beside the old files, and read back | the old files, and new ones beside | either passphrase |
//! | `wallets.age` is replaced | one new file, and the other new one beside | the new passphrase |
//! | `sponsors.age` is replaced | nothing of the old passphrase | the new passphrase |
//!
//! Promises: each step is on disk before the next; at no moment no passphrase opens it. Who opens it afterwards brings it to one
//! of both ends. The journal is not touched. What was copied before still opens with the old passphrase.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Keystore, KeystoreError, SPONSORS, WALLETS, cannot_use, check_dir, lock, seal, unseal};
use crate::{Passphrase, Words};

/// A seed, and whether it came from the file beside.
struct Found {
    words: Words,
    is_beside: bool,
}

impl Keystore {
    /// Seals both seeds under another passphrase. What a crash cut off is finished by the same call.
    ///
    /// # Errors
    /// Another process has it open, `old` does not open it, or the system refuses.
    pub fn rotate_passphrase(
        dir: &Path,
        old: &Passphrase,
        new: &Passphrase,
        work_factor: u8,
    ) -> Result<(), KeystoreError> {
        check_dir(dir)?;
        let _lock = lock(dir)?;
        let seeds = match open_seeds(dir, old) {
            // Behind the first replacement only the new one opens it.
            Err(wrong @ KeystoreError::WrongPassphrase(_)) if is_beside(dir) => {
                return open_seeds(dir, new).map(drop).map_err(|_| wrong);
            }
            opened => opened?,
        };
        for (name, words) in [WALLETS, SPONSORS].into_iter().zip(&seeds) {
            let path = beside(dir, name);
            seal(words, (new, work_factor), &path)?;
            if unseal(&path, new)? != *words {
                let source = io::Error::other("what was sealed reads back otherwise");
                return Err(KeystoreError::Io { path, source });
            }
        }
        sync(dir)?;
        for name in [WALLETS, SPONSORS] {
            replace(dir, name)?;
        }
        Ok(())
    }
}

/// Both seeds, of wallets and of sponsors. What a rotation left is brought to the end that this passphrase opens.
pub(super) fn open_seeds(dir: &Path, passphrase: &Passphrase) -> Result<[Words; 2], KeystoreError> {
    let wallets = find(dir, WALLETS, passphrase)?;
    let sponsors = find(dir, SPONSORS, passphrase)?;
    for (name, found) in [(WALLETS, &wallets), (SPONSORS, &sponsors)] {
        let path = beside(dir, name);
        if found.is_beside {
            replace(dir, name)?;
        } else if path.exists() {
            fs::remove_file(&path).map_err(cannot_use(&path))?;
        }
    }
    Ok([wallets.words, sponsors.words])
}

fn find(dir: &Path, name: &str, passphrase: &Passphrase) -> Result<Found, KeystoreError> {
    match unseal(&dir.join(name), passphrase) {
        Ok(words) => Ok(Found { words, is_beside: false }),
        // A torn one beside says nothing.
        Err(wrong @ KeystoreError::WrongPassphrase(_)) => {
            unseal(&beside(dir, name), passphrase).map(|words| Found { words, is_beside: true }).map_err(|_| wrong)
        }
        Err(error) => Err(error),
    }
}

fn beside(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.new"))
}

fn is_beside(dir: &Path) -> bool {
    [WALLETS, SPONSORS].iter().any(|name| beside(dir, name).exists())
}

/// The file beside becomes the file.
fn replace(dir: &Path, name: &str) -> Result<(), KeystoreError> {
    let path = dir.join(name);
    fs::rename(beside(dir, name), &path).map_err(cannot_use(&path))?;
    sync(dir)
}

fn sync(dir: &Path) -> Result<(), KeystoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(cannot_use(dir))
}
