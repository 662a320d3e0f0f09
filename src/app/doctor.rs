//! Composes what `landfall doctor` asks: the configured chains, and the signer as this process may reach it.

use std::sync::Arc;

use landfall_chain::{Chain, Signer, with_causes};
use landfall_signer::{JOURNAL, KeystoreError, Passphrase, Policy, Remote, verify};

use crate::app::signer::{Unopened, embedded};
use crate::app::{StartError, source};
use crate::config::{Config, KeystoreConfig, SignerConfig};
use crate::doctor::{self, Line, Verdict};
use crate::key::Environment;
use crate::store::{Db, OpenError};
use crate::time::Timestamp;

/// All lines, those of the signer first.
///
/// # Errors
/// What is wrong with the configuration; a store that cannot be read.
pub async fn examine(config: &Config, db: &Db, now: Timestamp) -> Result<Vec<Line>, StartError> {
    let chains: Vec<Chain> = config.chains.keys().copied().collect();
    let mut lines = match &config.signer {
        None => {
            let what = "no signer is configured, so nothing is sent and no address derived: the section [transfers]";
            return Ok(vec![Line::new("signer", Verdict::Warn, what)]);
        }
        Some(SignerConfig::Socket(path)) => {
            let mut lines = of_signer(db, &Remote::at(path)).await?;
            let what = "it is kept where the signer runs: `landfall signer verify-journal` there";
            lines.push(Line::new("journal", Verdict::Warn, what));
            lines
        }
        Some(SignerConfig::Keystore(keystore)) => of_keystore(db, (keystore, config), &chains, now).await?,
    };
    lines.push(requests(config));
    for (chain, settings) in &config.chains {
        let (source, network) = source(*chain, settings)?;
        lines.extend(doctor::of_chain(db, &source, &network, now).await.map_err(OpenError::Store)?);
    }
    Ok(lines)
}

/// Whether a stolen API key alone may create transfers.
fn requests(config: &Config) -> Line {
    let (verdict, what) = match (config.require_signed_requests, config.environment) {
        (true, Environment::Live | Environment::Test) => (Verdict::Ok, "a transfer is created by signed requests only"),
        (false, Environment::Test) => (Verdict::Ok, "a transfer is created also without a signed request"),
        (false, Environment::Live) => (
            Verdict::Warn,
            "whoever has an API key may create transfers: pair public keys, then set transfers.require_signed_requests",
        ),
    };
    Line::new("requests", verdict, what)
}

async fn of_signer(db: &Db, signer: &dyn Signer) -> Result<Vec<Line>, StartError> {
    Ok(doctor::of_signer(db, signer).await.map_err(OpenError::Store)?)
}

/// A keystore that a running process has open is asked about by what that process reported.
async fn of_keystore(
    db: &Db,
    (KeystoreConfig { folder, passphrase_file }, config): (&KeystoreConfig, &Config),
    chains: &[Chain],
    now: Timestamp,
) -> Result<Vec<Line>, StartError> {
    let mut lines = match Passphrase::from_file(passphrase_file) {
        // Nothing may be signed by it.
        Ok(passphrase) => match embedded(folder, &passphrase, config.token.as_ref(), Policy::default(), Arc::new(|| 0))
        {
            Ok(signer) => of_signer(db, &signer).await?,
            Err(Unopened::Keystore(KeystoreError::InUse { .. })) => {
                vec![doctor::of_running_signer(db, chains, now).await.map_err(OpenError::Store)?]
            }
            Err(Unopened::Keystore(error)) => {
                vec![Line::new("signer", Verdict::Fail, format!("the keystore does not open: {}", with_causes(&error)))]
            }
            Err(error @ (Unopened::Token(_) | Unopened::Secret { .. })) => {
                vec![Line::new("signer", Verdict::Fail, format!("the token does not open: {error}"))]
            }
        },
        // The path is not shown: it may be a passphrase that was written in its place.
        Err(_) => vec![Line::new("signer", Verdict::Fail, "the passphrase cannot be read: transfers.passphrase_file")],
    };
    lines.push(match verify(&folder.join(JOURNAL)) {
        Ok(verified) => Line::new("journal", Verdict::Ok, format!("it is whole: {} entries", verified.newest_seq)),
        Err(error) => {
            let what = format!("{}: nothing is signed before a person has looked", with_causes(&error));
            Line::new("journal", Verdict::Fail, what)
        }
    });
    Ok(lines)
}
