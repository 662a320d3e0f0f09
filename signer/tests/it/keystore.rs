//! Who may open a keystore, and what it says to others.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use landfall_chain::{Family, KeyPath, Signer};
use landfall_signer::{Keystore, KeystoreError};

use crate::world::{World, create, passphrase};

/// Names the keystore that a process of the tests holds open.
const HELD: &str = "LANDFALL_TEST_HELD_KEYSTORE";

#[tokio::test]
async fn a_keystore_gives_the_same_addresses_each_time_it_is_opened() {
    let world = World::new();
    let paths = [Family::Evm, Family::Solana].map(|family| KeyPath::of_wallet(family, "alice", ""));
    for _ in 0..2 {
        let signer = world.open();
        assert_eq!(signer.id(), world.id);
        let addresses = signer.addresses(&paths).await.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = ["0x3938bbC3dF0e431A1d5CB2d801B84e51163cB51e", "H1WzkjCHNvGD2fKsM5Cee54W3kryZRLsFHYFPxgfH3fN"];
        assert_eq!(addresses, expected);
    }
}

#[test]
fn a_wrong_passphrase_is_said_to_be_wrong() {
    let world = World::new();
    let error = Keystore::open(&world.dir(), &passphrase("guess")).unwrap_err();
    assert!(matches!(error, KeystoreError::WrongPassphrase(_)), "{error:?}");
    assert_eq!(error.to_string(), format!("the passphrase does not open {}/wallets.age", world.dir().display()));
}

#[test]
fn what_others_may_read_is_not_opened_and_the_remedy_is_named() {
    let world = World::new();
    for name in ["wallets.age", "sponsors.age", "journal"] {
        for mode in [0o640, 0o604, 0o620] {
            world.chmod(name, mode);
            let path = world.dir().join(name).display().to_string();
            let error = world.try_open().unwrap_err().to_string();
            assert_eq!(error, format!("{path} can be read by others: chmod 600 {path}"));
        }
        world.chmod(name, 0o600);
    }
    world.chmod("", 0o750);
    let dir = world.dir().join("").display().to_string();
    let dir = dir.trim_end_matches('/');
    let error = world.try_open().unwrap_err().to_string();
    assert_eq!(error, format!("{dir} can be read by others: chmod 700 {dir}"));
    world.chmod("", 0o700);
    world.open();
}

#[test]
fn a_keystore_is_never_overwritten() {
    let world = World::new();
    let before = fs::read(world.dir().join("wallets.age")).unwrap();
    let error = create(&world.dir()).unwrap_err().to_string();
    assert!(error.ends_with("/wallets.age is there already; a keystore is never overwritten"), "{error}");
    assert_eq!(fs::read(world.dir().join("wallets.age")).unwrap(), before);
    fs::remove_file(world.dir().join("wallets.age")).unwrap();
    fs::remove_file(world.dir().join("sponsors.age")).unwrap();
    let error = create(&world.dir()).unwrap_err().to_string();
    assert!(error.ends_with("/journal is there already; a keystore is never overwritten"), "{error}");
}

#[test]
fn a_damaged_or_missing_file_is_named() {
    let world = World::new();
    let path = world.dir().join("sponsors.age");
    let sealed = fs::read(&path).unwrap();
    fs::write(&path, &sealed[..sealed.len() - 1]).unwrap();
    let error = world.try_open().unwrap_err().to_string();
    assert!(
        error.ends_with("sponsors.age is damaged: restore it from a copy, or import the words into a new keystore")
    );
    fs::remove_file(&path).unwrap();
    assert_eq!(world.try_open().unwrap_err().to_string(), format!("cannot use {}", path.display()));
    fs::write(&path, &sealed).unwrap();
    world.chmod("sponsors.age", 0o600);
    fs::remove_file(world.journal()).unwrap();
    let error = world.try_open().unwrap_err().to_string();
    assert!(error.starts_with(&format!("there is no journal {}: restore", world.journal().display())), "{error}");
}

#[test]
fn no_word_stands_in_any_file() {
    let world = World::new();
    for file in fs::read_dir(world.dir()).unwrap() {
        let content = fs::read(file.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&content);
        assert!(!text.contains("junk") && !text.contains("sausage"), "{text}");
    }
    assert!(!format!("{:?}", world.open()).contains("junk"));
}

#[test]
fn a_keystore_that_is_open_is_refused_and_free_again_when_it_is_closed() {
    let world = World::new();
    let first = world.open();
    let error = world.try_open().unwrap_err().to_string();
    let (dir, pid) = (world.dir(), std::process::id());
    assert_eq!(error, format!("the keystore {} is in use by process {pid}", dir.display()));
    drop(first);
    world.open();
}

#[test]
fn a_second_process_is_refused_and_learns_whose_the_keystore_is() {
    let world = World::new();
    let mut other = Command::new(env::current_exe().unwrap())
        .args(["--exact", "keystore::a_process_that_holds_a_keystore_until_it_is_killed", "--nocapture"])
        .env(HELD, world.dir())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(other.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("held")));
    let error = world.try_open().unwrap_err().to_string();
    assert_eq!(error, format!("the keystore {} is in use by process {}", world.dir().display(), other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
    world.open();
}

/// Not a test of its own: the other process of the test above.
#[test]
fn a_process_that_holds_a_keystore_until_it_is_killed() {
    #[expect(clippy::disallowed_methods, reason = "how the test above talks to its other process")]
    let Some(dir) = env::var_os(HELD) else { return };
    let _held = Keystore::open(Path::new(&dir), &passphrase("secret")).unwrap();
    println!("held");
    loop {
        std::thread::park();
    }
}
