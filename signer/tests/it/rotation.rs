//! Another passphrase for a keystore: the old one is needed, and at no moment is there none that opens it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use landfall_chain::{Family, KeyPath, Signer};
use landfall_signer::{Keystore, KeystoreError, NewKeystore};

use crate::world::{SPONSORS, WALLETS, WORK_FACTOR, World, passphrase};

const OLD: &str = "secret";
const NEXT: &str = "another secret";
const FILES: [&str; 2] = ["wallets.age", "sponsors.age"];

fn rotate(dir: &Path, old: &str, new: &str) -> Result<(), KeystoreError> {
    unlocked(|| Keystore::rotate_passphrase(dir, &passphrase(old), &passphrase(new), WORK_FACTOR))
}

/// A process that another test starts holds copies of all locks for the moment before it is another program.
fn unlocked<T>(mut attempt: impl FnMut() -> Result<T, KeystoreError>) -> Result<T, KeystoreError> {
    for _ in 0..200 {
        match attempt() {
            Err(KeystoreError::InUse { .. }) => thread::sleep(Duration::from_millis(10)),
            ended => return ended,
        }
    }
    attempt()
}

fn opens(dir: &Path, text: &str) -> bool {
    match unlocked(|| Keystore::open(dir, &passphrase(text))) {
        Ok(_) => true,
        Err(KeystoreError::WrongPassphrase(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The files but for the lock, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let named = |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    let all = fs::read_dir(dir).unwrap().map(|entry| named(entry.unwrap()));
    all.filter(|(name, _)| name != "lock").collect()
}

/// The sealed files under the new passphrase, as a rotation would write them.
fn sealed_anew() -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("keys");
    let (wallets, sponsors, passphrase) = (WALLETS.parse().unwrap(), SPONSORS.parse().unwrap(), passphrase(NEXT));
    let new = NewKeystore {
        wallets: &wallets,
        sponsors: &sponsors,
        passphrase: &passphrase,
        work_factor: WORK_FACTOR,
        created_at: 1,
    };
    new.create(&dir).unwrap();
    files(&dir)
}

/// A keystore as a crash behind this step of its rotation leaves it: 0 none, 1 and 2 seeds beside, 3 and 4 replaced.
fn cut_off_behind(step: usize) -> World {
    let (world, anew) = (World::new(), sealed_anew());
    let write = |name: &str, of: &str| {
        fs::write(world.dir().join(name), &anew[of]).unwrap();
        world.chmod(name, 0o600);
    };
    for name in &FILES[..step.min(2)] {
        write(&format!("{name}.new"), name);
    }
    for name in &FILES[..step.saturating_sub(2)] {
        fs::rename(world.dir().join(format!("{name}.new")), world.dir().join(name)).unwrap();
    }
    world
}

#[tokio::test]
async fn another_passphrase_opens_the_same_keys_and_the_journal_is_not_touched() {
    let world = World::new();
    let journal = fs::read(world.journal()).unwrap();
    let paths = [Family::Evm, Family::Solana].map(|family| KeyPath::of_wallet(family, "alice", ""));
    let before = world.open().addresses(&paths).await.unwrap();
    rotate(&world.dir(), OLD, NEXT).unwrap();
    assert!(!opens(&world.dir(), OLD) && opens(&world.dir(), NEXT));
    assert_eq!(fs::read(world.journal()).unwrap(), journal);
    let names: Vec<String> = files(&world.dir()).into_keys().collect();
    assert_eq!(names, ["journal", "sponsors.age", "wallets.age"]);
    rotate(&world.dir(), NEXT, OLD).unwrap();
    let signer = world.open();
    assert_eq!((signer.addresses(&paths).await.unwrap(), signer.id()), (before, world.id.as_str()));
}

#[test]
fn without_the_old_passphrase_and_while_somebody_has_it_open_nothing_changes() {
    let world = World::new();
    let before = files(&world.dir());
    let wrong = rotate(&world.dir(), "guess", NEXT).unwrap_err();
    assert!(matches!(wrong, KeystoreError::WrongPassphrase(_)), "{wrong}");
    let held = world.open();
    let refused = rotate(&world.dir(), OLD, NEXT).unwrap_err();
    assert!(matches!(refused, KeystoreError::InUse { .. }), "{refused}");
    drop(held);
    world.chmod("", 0o755);
    assert!(matches!(rotate(&world.dir(), OLD, NEXT).unwrap_err(), KeystoreError::Open { .. }));
    world.chmod("", 0o700);
    assert_eq!(files(&world.dir()), before);
    assert!(opens(&world.dir(), OLD));
}

#[test]
fn wherever_it_is_cut_off_one_of_both_passphrases_opens_it_and_brings_it_to_its_end() {
    for step in 0..=4 {
        let by_old = step <= 2;
        // What is sealed beside as a whole is as good as what it would replace.
        let by_new = step >= 2;
        for (text, expected) in [(OLD, by_old), (NEXT, by_new)] {
            let world = cut_off_behind(step);
            assert_eq!(opens(&world.dir(), text), expected, "step {step}, {text}");
            if expected {
                let names: Vec<String> = files(&world.dir()).into_keys().collect();
                assert_eq!(names, ["journal", "sponsors.age", "wallets.age"], "step {step}, {text}");
                let other = if text == OLD { NEXT } else { OLD };
                assert!(opens(&world.dir(), text) && !opens(&world.dir(), other), "step {step}, {text}");
            }
        }
        let world = cut_off_behind(step);
        match rotate(&world.dir(), OLD, NEXT) {
            Err(KeystoreError::WrongPassphrase(_)) if step == 4 => {}
            ended => ended.unwrap(),
        }
        assert!(opens(&world.dir(), NEXT) && !opens(&world.dir(), OLD), "step {step}: the same call ends it");
    }
}

#[test]
fn a_file_beside_that_is_torn_or_of_somebody_else_is_no_way_in() {
    let world = cut_off_behind(2);
    let beside = world.dir().join("wallets.age.new");
    let whole = fs::read(&beside).unwrap();
    fs::write(&beside, &whole[..whole.len() / 2]).unwrap();
    assert!(!opens(&world.dir(), NEXT) && opens(&world.dir(), OLD));
    assert!(!beside.exists());
    let other = cut_off_behind(1);
    assert!(!opens(&other.dir(), NEXT), "one alone is not enough");
    assert!(opens(&other.dir(), OLD));
}
