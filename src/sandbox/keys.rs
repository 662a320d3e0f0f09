//! The keystore of the sandbox: new words that nobody sees, in the sandbox's folder.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use landfall_signer::{NewKeystore, Passphrase, Words};

use crate::random;

/// The folder, and the file with its passphrase, as the configuration names them.
pub(super) const KEYSTORE: &str = "keys";
pub(super) const PASSPHRASE: &str = "passphrase";
/// Little work to open it: the money is for play.
const WORK_FACTOR: u8 = 10;

/// Makes the keystore in `folder`; `now_secs` is the time.
pub(super) fn make(folder: &Path, now_secs: u64) -> anyhow::Result<()> {
    let path = folder.join(PASSPHRASE);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    writeln!(file, "{}", hex::encode(random::bytes::<16>()))?;
    let passphrase = Passphrase::from_file(&path)?;
    let (wallets, sponsors) = (Words::random()?, Words::random()?);
    let new = NewKeystore {
        wallets: &wallets,
        sponsors: &sponsors,
        passphrase: &passphrase,
        work_factor: WORK_FACTOR,
        created_at: now_secs,
    };
    new.create(&folder.join(KEYSTORE)).context("no keystore can be made")?;
    Ok(())
}
