//! Keystores on the command line, and the start of a service with one: what is made, what is refused, and that no secret
//! is ever shown. A passphrase and the words of a seed have the text "canary" or stand in no output.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use landfall::store::wallets::{self, Wallet};
use landfall::store::{Db, StoreUrl};
use landfall::time::Timestamp;
use landfall_chain::{Address, Family};
use landfall_signer::{Keystore, NewKeystore, Passphrase, Words};

use crate::cli::{Desk, text};

pub(super) const JUNK: &str = "test test test test test test test test test test test junk";
const OTHER: &str = "legal winner thank year wave sausage worth useful legal winner thank yellow";
const EVM: &str = "0x3938bbC3dF0e431A1d5CB2d801B84e51163cB51e";
const SOLANA: &str = "H1WzkjCHNvGD2fKsM5Cee54W3kryZRLsFHYFPxgfH3fN";
const OPENED: [&str; 2] = ["--passphrase-file", "passphrase"];
pub(super) const CONFIG: &str = "[api]\nenvironment = \"test\"\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                      [chains.ETHEREUM_TESTNET]\nrpc = [\"http://127.0.0.1:9/canary\"]\n";
pub(super) const TRANSFERS: &str = "[transfers]\nsigner = \"keystore:keys\"\npassphrase_file = \"passphrase\"\n";

/// A folder with this configuration, a passphrase, and the words of two seeds.
pub(super) fn desk(config: &str) -> Desk {
    let desk = Desk::new(config);
    secret(&desk, "passphrase", "canary of a passphrase\n");
    secret(&desk, "wallets.words", JUNK);
    secret(&desk, "sponsors.words", OTHER);
    desk
}

fn secret(desk: &Desk, name: &str, content: &str) {
    std::fs::write(desk.path(name), content).unwrap();
    std::fs::set_permissions(desk.path(name), Permissions::from_mode(0o600)).unwrap();
}

/// Makes a keystore that is opened fast, with the seed of these words.
pub(super) fn keystore(desk: &Desk, wallets: &str) {
    let passphrase = Passphrase::from_file(&desk.path("passphrase")).unwrap();
    let [wallets, sponsors]: [Words; 2] =
        [wallets, "zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo wrong"].map(|words| words.parse().unwrap());
    let new =
        NewKeystore { wallets: &wallets, sponsors: &sponsors, passphrase: &passphrase, work_factor: 1, created_at: 1 };
    new.create(&desk.path("keys")).unwrap();
}

fn import<'a>(wallets: &'a str, sponsors: &'a str) -> Vec<&'a str> {
    [&["signer", "import", "keys", "--wallets", wallets, "--sponsors", sponsors][..], &OPENED].concat()
}

fn is_for_its_owner_alone(path: &Path) -> bool {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o077 == 0
}

#[test]
fn init_shows_the_words_of_both_seeds_once_and_without_a_terminal_only_to_who_asks_for_it() {
    let desk = desk(CONFIG);
    let init = [&["signer", "init", "keys"][..], &OPENED].concat();
    assert_eq!(
        desk.refused(&init),
        "landfall: the words are shown on a terminal, and some are asked back; for a script: --print-words-without-asking"
    );
    assert!(!desk.path("keys").exists());
    let init = [&init[..], &["--print-words-without-asking"]].concat();
    let shown = desk.ok(&init);
    let lines: Vec<&str> = shown.lines().collect();
    for (line, name) in lines.iter().zip(["wallets ", "sponsors "]) {
        let words: Words = line.strip_prefix(name).unwrap().parse().unwrap();
        assert_eq!(words.phrase().split(' ').count(), 24);
    }
    assert!(lines[2].starts_with("the keystore of signer ") && lines.len() == 3, "{}", lines[2]);
    for file in ["", "wallets.age", "sponsors.age", "journal"] {
        assert!(is_for_its_owner_alone(&desk.path("keys").join(file)), "{file}");
    }
    assert_eq!(desk.refused(&init), "landfall: keys is there already; nothing was made");
}

#[test]
fn words_that_are_imported_give_the_addresses_that_they_give_everywhere() {
    let desk = desk(CONFIG);
    desk.ok(&import("wallets.words", "sponsors.words"));
    let addresses = [&["signer", "addresses", "keys", "--account", "alice"][..], &OPENED].concat();
    let shown = desk.ok(&addresses);
    assert!(shown.lines().zip([EVM, SOLANA]).all(|(line, address)| line.ends_with(address)), "{shown}");
    assert!(shown.starts_with("evm     m/44'/60'/") && shown.contains("\nsolana  m/44'/501'/"), "{shown}");
}

#[test]
fn a_further_address_is_that_of_its_request() {
    let desk = desk(CONFIG);
    keystore(&desk, JUNK);
    let further = ["signer", "addresses", "keys", "--account", "alice", "--request", "r-1", "--json"];
    let shown = desk.ok(&[&further[..], &OPENED].concat());
    let of: Vec<serde_json::Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(of[0]["address"], "0x11ee8670498AB34227d05a29Bf2c40f813bEd70D");
    assert_eq!((&of[1]["family"], of.len()), (&serde_json::json!("solana"), 2));
}

#[test]
fn words_and_passphrases_that_others_can_read_or_that_are_none_are_refused() {
    let desk = desk(CONFIG);
    secret(&desk, "bad.words", "test canary test test test test test test test test test junk");
    for (file, mode) in [("open.words", 0o644), ("open", 0o640)] {
        std::fs::write(desk.path(file), JUNK).unwrap();
        std::fs::set_permissions(desk.path(file), Permissions::from_mode(mode)).unwrap();
    }
    let cases = [
        (import("open.words", "sponsors.words"), "the words in open.words can be read by others: chmod 600 open.words"),
        (
            import("bad.words", "sponsors.words"),
            "bad.words: word 2 is not of the list; expected are 12, 15, 18, 21 or 24 English words of BIP-39",
        ),
        (import("none.words", "sponsors.words"), "cannot read none.words: No such file or directory (os error 2)"),
        (
            import("wallets.words", "wallets.words"),
            "the words of wallets and sponsors are the same: each seed has its own",
        ),
        (
            vec!["signer", "init", "keys", "--passphrase-file", "open"],
            "the passphrase in open can be read by others: chmod 600 open",
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(desk.refused(&arguments), format!("landfall: {expected}"));
        assert!(!desk.path("keys").exists());
    }
}

#[test]
fn a_journal_is_verified_by_its_own_and_what_does_not_follow_is_refused() {
    let desk = desk(CONFIG);
    keystore(&desk, JUNK);
    let verify = ["signer", "verify-journal", "keys"];
    let whole = desk.ok(&verify);
    assert!(whole.contains(" is whole: 0 entries, ") && whole.lines().count() == 1, "{whole}");
    let journal = desk.path("keys").join("journal");
    let written = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, [&written[..], b"{\"seq\":1"].concat()).unwrap();
    assert!(desk.ok(&verify).contains("a last line of 8 bytes was torn by a crash"));
    std::fs::write(&journal, [&written[..], &written].concat()).unwrap();
    let refused = desk.refused(&verify);
    assert!(refused.contains("keys/journal line 2 ") && refused.contains("restored from a copy"), "{refused}");
}

/// What `landfall run` says at its end, which is exit code 2.
fn not_started(desk: &Desk) -> String {
    let output = desk.run(&["run"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    text(&output.stderr).lines().last().unwrap().to_owned()
}

#[test]
fn a_service_does_not_start_without_its_keystore_and_no_refusal_shows_a_secret() {
    let passphrase = "landfall: config key transfers.passphrase_file: the file ";
    let desk = desk(&format!("{CONFIG}{TRANSFERS}"));
    let refused = not_started(&desk);
    assert!(refused.starts_with("landfall: config key transfers.signer: cannot use "), "{refused}");
    keystore(&desk, JUNK);
    secret(&desk, "passphrase", "another canary\n");
    let refused = not_started(&desk);
    assert!(refused.starts_with("landfall: config key transfers.signer: the passphrase does not open "), "{refused}");
    secret(&desk, "passphrase", "\n");
    assert_eq!(not_started(&desk), format!("{passphrase}holds no passphrase in its first line"));
    std::fs::set_permissions(desk.path("passphrase"), Permissions::from_mode(0o644)).unwrap();
    let open = "can be read by others: its owner alone may read it, chmod 600";
    assert_eq!(not_started(&desk), format!("{passphrase}{open}"));
    // In place of the path.
    let inline = TRANSFERS.replace("\"passphrase\"", "\"canary of a passphrase\"");
    std::fs::write(desk.path("landfall.toml"), format!("{CONFIG}{inline}")).unwrap();
    let no_file =
        "cannot be read: No such file or directory (os error 2); this key is the path of a file, never a passphrase";
    assert_eq!(not_started(&desk), format!("{passphrase}{no_file}"));
    assert!(!desk.path("landfall.db").exists(), "nothing is written before");
}

#[test]
fn a_service_does_not_start_with_a_journal_that_is_not_whole_or_a_keystore_that_others_can_read() {
    let desk = desk(&format!("{CONFIG}{TRANSFERS}"));
    keystore(&desk, JUNK);
    let journal = desk.path("keys").join("journal");
    let written = std::fs::read(&journal).unwrap();
    let cut = [&written[..written.len() / 3], &written[written.len() / 2..]].concat();
    for (content, line) in [(cut, 1), ([&written[..], &written].concat(), 2)] {
        std::fs::write(&journal, &content).unwrap();
        let refused = not_started(&desk);
        assert!(refused.starts_with("landfall: config key transfers.signer: "), "{refused}");
        let remedy = "nothing is signed until it is restored from a copy";
        assert!(refused.contains(&format!("journal line {line} ")) && refused.ends_with(remedy), "{refused}");
        assert_eq!(std::fs::read(&journal).unwrap(), content, "a person may look at it as it was");
    }
    std::fs::write(&journal, &written).unwrap();
    for (name, mode) in [("wallets.age", 600), ("sponsors.age", 600), ("journal", 600), ("", 700)] {
        let path = desk.path("keys").join(name);
        let before = std::fs::metadata(&path).unwrap().permissions();
        std::fs::set_permissions(&path, Permissions::from_mode(before.mode() | 0o040)).unwrap();
        let refused = not_started(&desk);
        assert!(
            refused.contains(" can be read by others: chmod ") && refused.contains(&format!("{mode} ")),
            "{refused}"
        );
        std::fs::set_permissions(&path, before).unwrap();
    }
    assert!(!desk.path("landfall.db").exists(), "nothing is written before");
}

#[test]
fn a_service_waits_while_another_process_has_its_keystore_open_and_says_whose_it_is() {
    let desk = desk(&format!("{CONFIG}{TRANSFERS}"));
    keystore(&desk, JUNK);
    let held = Keystore::open(&desk.path("keys"), &Passphrase::from_file(&desk.path("passphrase")).unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.current_dir(desk.path("")).arg("run").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut service = command.spawn().unwrap();
    // If it ended by itself, its log would end.
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waits = format!("keys is in use by process {}; trying again", std::process::id());
    assert!(log.any(|line| line.contains(&waits)));
    assert!(!desk.path("landfall.db").exists(), "it does nothing meanwhile");
    drop(held);
    assert!(log.any(|line| line.contains("the signer ") && line.ends_with(" is open")));
    service.kill().unwrap();
    service.wait().unwrap();
}

#[tokio::test]
async fn a_service_does_not_start_with_another_seed_than_that_of_the_wallets_on_record() {
    let desk = desk(&format!("{CONFIG}{TRANSFERS}"));
    keystore(&desk, OTHER);
    desk.ok(&["migrate"]);
    let add = ["account", "add", "--account", "alice", "--type", "OMNIBUS", "--address"];
    desk.ok(&[&add[..], &[&format!("ETHEREUM_TESTNET={EVM}")]].concat());
    let db = Db::open(&StoreUrl::Sqlite(desk.path("landfall.db"))).await.unwrap();
    let wallet = Wallet {
        address: Address::parse(Family::Evm, EVM).unwrap(),
        account_id: "alice".to_owned(),
        tag: String::new(),
        path: "m/44'/60'/0'/0/0".to_owned(),
        key_id: "test".to_owned(),
    };
    let mut tx = db.begin().await.unwrap();
    wallets::add(&mut tx, &wallet, Timestamp(0)).await.unwrap();
    tx.commit().await.unwrap();
    db.close().await;
    let refused = not_started(&desk);
    assert!(refused.starts_with("landfall: config key transfers.signer: it derives 0x"), "{refused}");
    let why = format!("for account alice, and {EVM} is on record: its words are not those of this store");
    assert!(refused.ends_with(&why), "{refused}");
}
