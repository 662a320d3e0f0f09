//! Sponsors whose keys are in a token, played by SoftHSM2: made there, found again, signing, paying on a real node, and every
//! way not to open.
//!
//! The module reads its configuration once for each process, so each test plays in a process of its own.
#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "../it/world.rs"]
#[expect(dead_code, reason = "what the tests of the keystore share")]
mod world;

mod keys;
mod opening;
mod paying;
mod signing;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::session::Session;
use landfall_signer::{Embedded, Keystore, KeystoreError, Token, TokenError, TokenPlace};

use crate::world::{World, passphrase, policy};

const MODULE: &str = "LANDFALL_SOFTHSM";
const ALONE: &str = "LANDFALL_TEST_TOKEN_ALONE";
pub(crate) const LABEL: &str = "landfall";
pub(crate) const PIN: &str = "1234";

#[expect(
    clippy::disallowed_methods,
    reason = "how scripts/test says where the module is, and a test talks to its process"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

pub(crate) fn module() -> PathBuf {
    variable(MODULE).unwrap_or_else(|| panic!("{MODULE} is not set: `scripts/test token` sets it")).into()
}

/// Plays in a process of its own, which has one token. `name` is the test's.
pub(crate) fn alone(name: &str, play: impl Future<Output = ()>) {
    if variable(ALONE).is_some() {
        return tokio::runtime::Runtime::new().unwrap().block_on(play);
    }
    let dir = tempfile::tempdir().unwrap();
    let (conf, tokens) = (dir.path().join("conf"), dir.path().join("tokens"));
    fs::create_dir(&tokens).unwrap();
    fs::write(&conf, format!("directories.tokendir = {}\nobjectstore.backend = file\n", tokens.display())).unwrap();
    let run = |command: &mut Command| {
        let output = command.env("SOFTHSM2_CONF", &conf).env(ALONE, "1").output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        print!("{out}");
        assert!(output.status.success(), "{out}{err}");
    };
    let init = ["--init-token", "--free", "--label", LABEL, "--so-pin", "so-1234", "--pin", PIN];
    run(Command::new("softhsm2-util").args(["--module", module().to_str().unwrap()]).args(init));
    run(Command::new(env::current_exe().unwrap()).args(["--exact", name, "--nocapture", "--test-threads", "1"]));
}

pub(crate) fn place() -> TokenPlace {
    TokenPlace { module: module(), label: LABEL.to_owned(), pin: passphrase(PIN) }
}

/// A signer whose sponsors' keys are in the token. As [`World::open`], where a process is being started meanwhile.
pub(crate) fn open(world: &World) -> Embedded {
    with(world, Token::open(place()).unwrap())
}

pub(crate) fn with(world: &World, token: Token) -> Embedded {
    let mut opened = Keystore::open(&world.dir(), &passphrase("secret"));
    while matches!(opened, Err(KeystoreError::InUse { .. })) {
        std::thread::sleep(Duration::from_millis(10));
        opened = Keystore::open(&world.dir(), &passphrase("secret"));
    }
    let now = world.now.clone();
    let keystore = opened.unwrap().with_token(token);
    Embedded::of(keystore, policy(), Arc::new(move || now.load(Ordering::Relaxed))).unwrap()
}

pub(crate) fn refused(place: TokenPlace) -> TokenError {
    Token::open(place).unwrap_err()
}

/// What a person sees of the token with other programs, while a signer of this process is logged in.
pub(crate) fn beside() -> (Pkcs11, Session) {
    let pkcs11 = Pkcs11::new(module()).unwrap();
    let slots = pkcs11.get_slots_with_initialized_token().unwrap();
    let session = pkcs11.open_rw_session(slots[0]).unwrap();
    (pkcs11, session)
}

/// What was finalized goes on.
pub(crate) fn initialize() {
    let args = CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK);
    Pkcs11::new(module()).unwrap().initialize(args).unwrap();
}
