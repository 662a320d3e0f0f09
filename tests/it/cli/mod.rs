//! The command line as an operator meets it: the real binary, its exit codes, its messages for bad input.

pub(crate) mod addresses;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod nobodys;
pub(crate) mod prices;
pub(crate) mod printable;
pub(crate) mod signer;
pub(crate) mod webhooks;

use std::path::Path;
use std::process::{Command, Output};

use landfall::account::{AccountType, NewAccount};
use landfall::balance::{HeldAfter, Readings};
use landfall::deposit::{Deposit, DepositId, DepositStatus, Leg};
use landfall::incident::{Incident, IncidentKind};
use landfall::store::{Db, cursors, deposits, incidents, unattributed, unexplained};
use landfall::time::Timestamp;
use landfall_chain::{
    Address, AssetId, AssetTransfer, Block, BlockHash, BlockRef, Chain, Debits, Header, Lane, Proof, Rejected,
    SenderRule, Signers, TxId, TxLife, TxRef, U256, Verdict,
};
use serde_json::Value;
use tempfile::TempDir;

const ADDRESS: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
pub(crate) const CONFIG: &str =
    "[api]\nenvironment = \"test\"\n[chains.ETHEREUM_TESTNET]\nrpc = [\"http://127.0.0.1:9/canary\"]\n";

/// A folder with a configuration, to run the binary in.
pub(crate) struct Desk(TempDir);

impl Desk {
    pub(crate) fn new(config: &str) -> Self {
        let desk = Desk(crate::harness::postgres::folder());
        std::fs::write(desk.0.path().join("landfall.toml"), config).unwrap();
        desk
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let output = Command::new(env!("CARGO_BIN_EXE_landfall")).current_dir(self.0.path()).args(arguments).output();
        let output = output.unwrap();
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        assert!(!String::from_utf8_lossy(&said).contains("canary"), "a secret is told");
        output
    }

    /// The result of a command that must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The one line of a command that must be refused.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
        text(&output.stderr).trim_end().to_owned()
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn add<'a>(account: &'a str, kind: &'a str, address: &'a str) -> [&'a str; 8] {
    ["account", "add", "--account", account, "--type", kind, "--address", address]
}

#[test]
fn a_missing_config_is_named() {
    let desk = Desk::new(CONFIG);
    let line = desk.refused(&["--config", "other.toml", "status"]);
    assert_eq!(
        line,
        "landfall: cannot read config other.toml: No such file or directory (os error 2); --config names another file"
    );
}

#[test]
fn a_config_with_an_unknown_key_is_refused_by_its_name() {
    let desk = Desk::new(&format!("{CONFIG}polls = 3\n"));
    for command in ["run", "migrate", "health", "status"] {
        let line = desk.refused(&[command]);
        assert!(
            line.starts_with(
                "landfall: config key chains.ETHEREUM_TESTNET.polls: unknown field `polls`, expected one of "
            ),
            "{line}"
        );
    }
}

#[test]
fn an_unknown_chain_a_malformed_address_and_a_wrong_checksum_are_refused() {
    let desk = Desk::new(CONFIG);
    let cases = [
        (format!("BASE={ADDRESS}"), "landfall: unknown chain \"BASE\"; the chains are ETHEREUM_MAINNET, "),
        (
            "BASE_MAINNET=0x5aAe".to_owned(),
            "landfall: malformed EVM address \"0x5aAe\": expected 0x and 40 hexadecimal digits",
        ),
        (
            "BASE_MAINNET=0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed".to_owned(),
            "landfall: wrong checksum in address 0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed: its EIP-55 form is 0x5aAeb",
        ),
    ];
    for (address, expected) in cases {
        let line = desk.refused(&add("a", "SEGREGATED", &address));
        assert!(line.starts_with(expected), "{line}");
    }
    assert!(!desk.path("landfall.db").exists(), "bad input leaves nothing behind");
    let line = desk.refused(&add("a", "LEDGER", &format!("BASE_MAINNET={ADDRESS}")));
    assert_eq!(line, "landfall: unknown account type \"LEDGER\": expected SEGREGATED or OMNIBUS");
}

#[test]
fn accounts_are_added_once_and_listed() {
    let desk = Desk::new(CONFIG);
    let both = format!("ETHEREUM_TESTNET,BASE_SEPOLIA={ADDRESS}");
    desk.ok(&add("a", "SEGREGATED", &both));
    let again = desk.run(&add("a", "SEGREGATED", &both));
    assert_eq!(
        (again.status.code(), text(&again.stdout)),
        (Some(0), "account a is watched on 2 addresses\n".to_owned())
    );
    assert_eq!(
        text(&again.stderr),
        "landfall: BASE_SEPOLIA is not configured; add a section [chains.BASE_SEPOLIA]; until then nothing is watched there\n"
    );
    let listed: Value = serde_json::from_str(&desk.ok(&["account", "list", "--json"])).unwrap();
    let expected = serde_json::json!({
        "id": "a", "identity_id": "default", "type": "SEGREGATED", "addresses": [
            {"chain": "BASE_SEPOLIA", "address": ADDRESS, "watched_from": 0},
            {"chain": "ETHEREUM_TESTNET", "address": ADDRESS, "watched_from": 0},
        ],
    });
    assert_eq!(listed, expected);

    let line = desk.refused(&add("a", "OMNIBUS", &both));
    assert_eq!(line, "landfall: account a exists with type SEGREGATED, not OMNIBUS");
    let line = desk.refused(&add("b", "SEGREGATED", &both));
    assert_eq!(line, format!("landfall: {ADDRESS} on ETHEREUM_TESTNET belongs to account a already"));
}

#[test]
fn a_csv_file_is_imported_whole_or_not_at_all() {
    let desk = Desk::new(CONFIG);
    desk.ok(&["migrate"]);
    let header = "account_id,type,chains,address,identity_id\n";
    let other = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359";
    let import = |rows: &str| {
        std::fs::write(desk.path("accounts.csv"), format!("{header}{rows}")).unwrap();
        desk.run(&["account", "import", "accounts.csv"])
    };
    let bad = import(&format!("a,SEGREGATED,BASE_MAINNET,{ADDRESS},\nb,SEGREGATED,BASE_MAINNET,0x1,\n"));
    assert_eq!(bad.status.code(), Some(2));
    let line = text(&bad.stderr);
    assert_eq!(
        line,
        "landfall: accounts.csv: nothing was imported: line 3: malformed EVM address \"0x1\": expected 0x and 40 hexadecimal digits\n"
    );

    let bad = import(&format!("a,SEGREGATED,BASE_MAINNET,{ADDRESS},\nb,SEGREGATED,BASE_MAINNET,{ADDRESS},\n"));
    assert_eq!(
        text(&bad.stderr),
        format!(
            "landfall: accounts.csv: nothing was imported: line 3: {ADDRESS} on BASE_MAINNET belongs to account a already\n"
        )
    );
    assert_eq!(desk.ok(&["account", "list"]), "");

    let bad = import(&format!("a,SEGREGATED,BASE_MAINNET,{ADDRESS},nobody\n"));
    assert_eq!(
        text(&bad.stderr),
        "landfall: accounts.csv: nothing was imported: line 2: there is no identity nobody; `landfall identity add --identity nobody \
         --type INDIVIDUAL` makes it, --create-identities all that the file names\n"
    );

    let rows = format!(
        "a,SEGREGATED,BASE_MAINNET|POLYGON_MAINNET,{ADDRESS},\na,SEGREGATED,BASE_MAINNET,{other},default\na,SEGREGATED,BASE_MAINNET,{other},\n"
    );
    let imported = import(&rows);
    assert_eq!((imported.status.code(), text(&imported.stdout)), (Some(0), "3 rows imported\n".to_owned()));
    let reported = text(&imported.stderr);
    assert_eq!(reported.matches("until then nothing is watched there").count(), 2, "{reported}");
    assert!(import(&rows).status.success(), "the same rows again are no error");
    let listed: Value = serde_json::from_str(&desk.ok(&["account", "list", "--json"])).unwrap();
    assert_eq!(listed["addresses"].as_array().unwrap().len(), 3);
}

#[test]
fn an_import_makes_the_identities_that_its_file_names_when_it_is_reported_to() {
    let desk = Desk::new(CONFIG);
    desk.ok(&["migrate"]);
    desk.ok(&["identity", "add", "--identity", "firm", "--type", "BUSINESS"]);
    let rows = format!(
        "account_id,type,chains,address,identity_id\na,SEGREGATED,BASE_MAINNET,{ADDRESS},person-1\n\
         b,SEGREGATED,POLYGON_MAINNET,{ADDRESS},firm\nc,OMNIBUS,BASE_SEPOLIA,{ADDRESS},\n"
    );
    std::fs::write(desk.path("accounts.csv"), rows).unwrap();
    let import = ["account", "import", "accounts.csv", "--create-identities"];
    assert_eq!(desk.ok(&import), "identity person-1 is ACTIVE\n3 rows imported\n");
    assert_eq!(desk.ok(&import), "3 rows imported\n", "once");
    let listed = desk.ok(&["identity", "list"]);
    assert!(listed.contains("person-1 INDIVIDUAL ACTIVE") && listed.contains("firm BUSINESS ACTIVE"), "{listed}");
}

#[test]
fn a_key_is_printed_alone_and_only_its_hash_is_kept() {
    let desk = Desk::new(CONFIG);
    let key = desk.ok(&["key", "create", "--name", "backend"]);
    let key = key.strip_suffix('\n').unwrap();
    assert!(key.starts_with("lf_test_") && key.len() == 65 && !key.contains(char::is_whitespace), "{key}");
    let stored = std::fs::read(desk.path("landfall.db")).unwrap();
    let wal = std::fs::read(desk.path("landfall.db-wal")).unwrap_or_default();
    let secret = &key.as_bytes()[16..59];
    assert!(![stored, wal].concat().windows(secret.len()).any(|window| window == secret));
    for _ in 1..50 {
        desk.ok(&["key", "create", "--name", "more"]);
    }
    let line = desk.refused(&["key", "create", "--name", "one too many"]);
    assert_eq!(line, "landfall: there are 50 keys already, the most that are allowed");
    assert_eq!(
        desk.refused(&["key", "create", "--name", " "]),
        "landfall: a key needs a name that says what it is for"
    );
}

#[test]
fn a_key_is_listed_paired_and_revoked_for_good() {
    const KEYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/keys");
    let desk = Desk::new(CONFIG);
    assert!(desk.refused(&["key", "list"]).starts_with("landfall: "), "there is no store to look at");
    let key = desk.ok(&["key", "create", "--name", "backend", "--scope", "read,webhooks"]);
    let (id, secret) = (&key[8..16], &key.trim()[16..]);
    let listed = || -> Value { serde_json::from_str(&desk.ok(&["key", "list", "--json"])).unwrap() };
    let fresh = listed();
    assert_eq!((&fresh["id"], &fresh["name"], &fresh["signed"]), (&id.into(), &"backend".into(), &false.into()));
    assert_eq!(fresh["scopes"], serde_json::json!(["read", "webhooks"]));
    assert_eq!((&fresh["last_used_at"], &fresh["revoked_at"]), (&Value::Null, &Value::Null));

    let pem = format!("{KEYS}/ed25519.pub.pem");
    let pair_refused = |file: &str| desk.refused(&["key", "pair", id, "--public-key", file, "--reason", "their key"]);
    let paired = desk.ok(&["key", "pair", id, "--public-key", &pem, "--reason", "their key"]);
    assert!(paired.starts_with(&format!("API key {id} is paired with the EdDSA key ")), "{paired}");
    assert!(paired.contains(&format!("with sub {id} and aud 127.0.0.1:8080")), "{paired}");
    assert_eq!(listed()["signed"], true);
    let again = desk.refused(&["key", "pair", id, "--public-key", &pem, "--reason", "their key"]);
    assert!(again.starts_with("landfall: ") && again.contains(id), "{again}");
    // The neutral point, with which anybody signs.
    let neutral = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n-----END PUBLIC KEY-----\n";
    std::fs::write(desk.path("neutral.pem"), neutral).unwrap();
    let anybodys = pair_refused("neutral.pem");
    assert_eq!(anybodys, "landfall: neutral.pem: the key is of small order: anybody could sign with it");
    let small = pair_refused(&format!("{KEYS}/rsa1024.pub.pem"));
    assert!(small.contains("rsa1024.pub.pem") && small.contains("2048"), "{small}");
    let missing = pair_refused("no-such.pem");
    assert_eq!(missing, "landfall: cannot read no-such.pem: No such file or directory (os error 2)");

    assert_eq!(desk.ok(&["key", "revoke", id, "--reason", "it leaked"]), format!("API key {id} is revoked\n"));
    let revoked = listed();
    assert!(revoked["revoked_at"].is_string(), "{revoked}");
    let line = desk.ok(&["key", "list"]);
    assert!(line.starts_with(&format!("{id}  backend  read,webhooks, signed, created ")), "{line}");
    assert!(line.contains(", never used, revoked ") && !line.contains(secret), "{line}");
    let gone = pair_refused(&format!("{KEYS}/p256.pub.pem"));
    assert!(gone.contains("revoked"), "{gone}");
    assert!(desk.refused(&["key", "revoke", "nosuch00", "--reason", "it leaked"]).contains("nosuch00"));
}

#[test]
fn what_is_done_about_keys_stands_in_the_audit_and_needs_a_reason_once_there_is_one() {
    const PEM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/keys/ed25519.pub.pem");
    let desk = Desk::new(CONFIG);
    let audit = || -> Vec<Value> {
        let entries = desk.ok(&["audit", "list", "--json"]);
        entries.lines().rev().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let key = desk.ok(&["key", "create", "--name", "backend", "--scope", "read,webhooks"]);
    let id = &key[8..16];
    for refused in [&["key", "pair", id, "--public-key", PEM][..], &["key", "revoke", id]] {
        assert!(desk.refused(refused).contains("--reason"), "{refused:?}");
        assert!(desk.refused(&[refused, &["--reason", " "]].concat()).contains("needs a reason"), "{refused:?}");
    }
    assert_eq!(audit().len(), 1, "nothing was done but the first");
    let paired = desk.ok(&["key", "pair", id, "--public-key", PEM, "--reason", "their key"]);
    desk.refused(&["key", "pair", id, "--public-key", PEM, "--reason", "once more"]);
    for reason in ["it leaked", "did I?"] {
        assert_eq!(desk.ok(&["key", "revoke", id, "--reason", reason]), format!("API key {id} is revoked\n"));
    }
    let fingerprint = paired.lines().next().unwrap().rsplit(' ').next().unwrap();
    let reported =
        audit().into_iter().map(|entry| [&entry["action"], &entry["what"], &entry["reason"]].map(Value::clone));
    let expected = [
        ["create_key", &format!("{id} with read,webhooks"), ""],
        ["pair_key", &format!("{id} with {fingerprint}"), "their key"],
        ["revoke_key", id, "it leaked"],
    ];
    assert_eq!(reported.collect::<Vec<_>>(), expected.map(|entry| entry.map(Value::from)));
    assert!(audit().iter().all(|entry| entry["actor"].is_string() && entry["chain"].is_null()));
}

#[test]
fn a_webhook_gives_its_secret_once_and_needs_leave_to_point_inside() {
    let desk = Desk::new(CONFIG);
    desk.ok(&["migrate"]);
    let line = desk.refused(&["webhook", "add", "--url", "https://127.0.0.1/hook"]);
    assert_eq!(
        line,
        "landfall: webhook url: 127.0.0.1 is not reachable from the internet; `--allow-private 127.0.0.1/32` lets it be sent to"
    );
    let added = desk.ok(&[
        "webhook",
        "add",
        "--url",
        "http://127.0.0.1:1/hook",
        "--allow-private",
        "127.0.0.0/8",
        "--label",
        "me",
        "--json",
    ]);
    let added: Value = serde_json::from_str(&added).unwrap();
    assert_eq!(added.as_object().unwrap().len(), 2);
    assert!(added["id"].as_str().unwrap().starts_with("wh_"));
    assert!(added["secret"].as_str().unwrap().starts_with("whsec_"));
}

#[test]
fn a_store_that_cannot_be_written_is_one_clear_line() {
    let desk = Desk::new(&format!("[store]\nurl = \"sqlite:/proc/landfall.db\"\n{CONFIG}"));
    let line = desk.refused(&add("a", "SEGREGATED", &format!("BASE_MAINNET={ADDRESS}")));
    assert_eq!(
        line,
        "landfall: cannot write /proc/landfall.db: No such file or directory (os error 2); check the path and its permissions"
    );
}

#[test]
fn a_folder_without_write_permission_is_one_clear_line() {
    let desk = Desk::new(CONFIG);
    let folder = desk.path("sealed");
    std::fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o555);
    std::fs::write(desk.path("landfall.toml"), format!("[store]\nurl = \"sqlite:sealed/landfall.db\"\n{CONFIG}"))
        .unwrap();
    set_mode(desk.0.path(), 0o755);
    // root may write anywhere, so the binary is run as nobody when the test is run by root.
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    if is_root() {
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        let copy = desk.path("landfall");
        std::fs::copy(env!("CARGO_BIN_EXE_landfall"), &copy).unwrap();
        command.arg(copy);
    }
    let output = command.current_dir(desk.0.path()).arg("migrate").output().unwrap();
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert_eq!(
        line,
        "landfall: cannot write sealed/landfall.db: Permission denied (os error 13); check the path and its permissions\n"
    );
    set_mode(&folder, 0o755);
}

#[test]
fn status_and_health_cannot_report_without_a_store_and_do_not_make_one() {
    let desk = Desk::new(CONFIG);
    for command in ["status", "health"] {
        let line = desk.refused(&[command]);
        assert!(line.starts_with("landfall: there is no store at landfall.db yet"), "{line}");
    }
    assert!(!desk.path("landfall.db").exists());
    desk.ok(&["migrate"]);
    let health = desk.run(&["health"]);
    assert_eq!(health.status.code(), Some(1));
    assert_eq!(text(&health.stdout), "unhealthy\n  ETHEREUM_TESTNET: never watched; is `landfall run` running?\n");
    let status: Value = serde_json::from_str(&desk.ok(&["status", "--json"])).unwrap();
    assert_eq!(
        status,
        serde_json::json!({
            "chains": [], "events": {"pending": 0, "oldest_secs": null, "oldest_due_secs": null},
            "feed": {"last": 0, "lag_secs": null}, "webhooks": [], "sinks": [],
        })
    );
}

#[test]
fn the_store_is_beside_the_configuration_and_one_that_is_new_is_reported() {
    let (desk, elsewhere) = (Desk::new(CONFIG), crate::harness::postgres::folder());
    let config = desk.path("landfall.toml");
    let from_elsewhere = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.current_dir(elsewhere.path()).arg("--config").arg(&config).args(arguments).output().unwrap()
    };
    let address = format!("ETHEREUM_TESTNET={ADDRESS}");
    let added = from_elsewhere(&add("a", "SEGREGATED", &address));
    assert!(added.status.success(), "{}", text(&added.stderr));
    let made =
        format!("landfall: there was no store at sqlite:{}: a new one is made\n", desk.path("landfall.db").display());
    assert_eq!(text(&added.stderr), made);
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0, "nothing is made elsewhere");

    let again = desk.run(&["key", "create", "--name", "n"]);
    assert_eq!((again.status.success(), text(&again.stderr)), (true, String::new()), "it is there already");
    assert!(desk.ok(&["account", "list"]).starts_with("a SEGREGATED"));
    assert!(text(&from_elsewhere(&["account", "list"]).stdout).starts_with("a SEGREGATED"));
}

#[test]
fn an_empty_log_filter_is_as_none() {
    // The first lines of `run`, which ends with a store that has no schema.
    let desk =
        Desk::new(&CONFIG.replace("[api]\n", "[admin]\nlisten = \"127.0.0.1:0\"\n[api]\nlisten = \"127.0.0.1:0\"\n"));
    let logged = |filter: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.current_dir(desk.0.path()).args(["run", "--no-migrate"]).env_remove("LANDFALL_LOG");
        if let Some(filter) = filter {
            command.env("LANDFALL_LOG", filter);
        }
        text(&command.output().unwrap().stderr).lines().count()
    };
    let usual = logged(None);
    assert!(usual > 1, "a log line, and the error");
    assert_eq!([logged(Some("")), logged(Some(" ")), logged(Some("off"))], [usual, usual, 1]);
}

#[test]
fn run_without_migration_refuses_another_schema() {
    let desk =
        Desk::new(&CONFIG.replace("[api]\n", "[admin]\nlisten = \"127.0.0.1:0\"\n[api]\nlisten = \"127.0.0.1:0\"\n"));
    let output = desk.run(&["run", "--no-migrate"]);
    assert_eq!(output.status.code(), Some(2));
    let lines = text(&output.stderr);
    let last = lines.lines().last().unwrap();
    assert_eq!(last, "landfall: the store has no tables yet: run `landfall migrate`");
}

#[test]
fn what_cannot_be_explained_is_refused_before_any_node_is_asked() {
    let desk = Desk::new(CONFIG);
    let hash = format!("0x{}", "ab".repeat(32));
    let cases = [
        (["BASE", &hash], "error: invalid value 'BASE' for '<CHAIN>': unknown chain \"BASE\"; the chains are "),
        (["BASE_MAINNET", &hash], "landfall: BASE_MAINNET is not configured; add a section [chains.BASE_MAINNET]"),
        (["SOLANA_MAINNET", &hash], "landfall: malformed transaction \"0xabab"),
        (
            ["ETHEREUM_TESTNET", "0xab"],
            "landfall: malformed transaction \"0xab\": expected 0x and 64 hexadecimal digits",
        ),
        (["ETHEREUM_TESTNET", &hash[2..]], "landfall: malformed transaction \"abab"),
        (["ETHEREUM_TESTNET", &hash], "landfall: there is no store at landfall.db yet"),
    ];
    for ([chain, tx], expected) in cases {
        let line = desk.refused(&["deposit", "explain", chain, tx]);
        assert!(line.starts_with(expected), "{line}");
    }
    desk.ok(&["migrate"]);
    let line = desk.refused(&["deposit", "explain", "ETHEREUM_TESTNET", &hash]);
    assert!(line.contains("127.0.0.1:9"), "a node that does not answer is no unknown transaction: {line}");
}

#[test]
fn native_is_declared_as_top_level_or_trace_and_nothing_else() {
    for (value, chain, expected) in [
        ("top_level", "ETHEREUM_TESTNET", None),
        ("trace", "ETHEREUM_TESTNET", None),
        ("traces", "ETHEREUM_TESTNET", Some("config key chains.ETHEREUM_TESTNET.native: unknown variant `traces`")),
    ] {
        let desk =
            Desk::new(&format!("[chains.{chain}]\nrpc = [\"http://127.0.0.1:9/canary\"]\nnative = \"{value}\"\n"));
        match expected {
            None => drop(desk.ok(&["migrate"])),
            Some(expected) => assert!(desk.refused(&["migrate"]).contains(expected)),
        }
    }
}

#[test]
fn what_a_person_decides_about_a_chain_needs_a_reason_and_stands_in_the_audit() {
    let desk = Desk::new(CONFIG);
    let halt = ["chain", "halt", "ETHEREUM_TESTNET", "--reason", "node moves"];
    assert!(desk.refused(&halt).starts_with("landfall: there is no store at landfall.db yet"));
    desk.ok(&["migrate"]);
    desk.ok(&halt);
    desk.ok(&["chain", "resume", "ETHEREUM_TESTNET", "--reason", "node moved"]);
    let agree = ["finality", "--agree", "1", "--for", "30m", "--reason", "one node is down"];
    desk.ok(&[&["chain", "override", "ETHEREUM_TESTNET"], agree.as_slice()].concat());
    let on_chain = |rest: &[&str]| desk.refused(&[&["chain", "override", "ETHEREUM_TESTNET"], rest].concat());
    let cases = [
        (
            on_chain(&["accept-reorg", "--reason", "x"]),
            "ETHEREUM_TESTNET: no reorg below what was final is open; `landfall incident list` shows what is",
        ),
        (
            on_chain(&["confirm", "--through", "7", "--reason", "x"]),
            "ETHEREUM_TESTNET: block 7 is not on our chain's record; `landfall status` shows how far that reaches",
        ),
        (
            on_chain(&["finality", "--agree", "2", "--for", "30m", "--reason", "x"]),
            "ETHEREUM_TESTNET: --agree: expected 1, for one endpoint (http or https) is configured",
        ),
        (on_chain(&["clear", "--reason", " "]), "a decision needs a reason: --reason TEXT"),
        (
            desk.refused(&["chain", "halt", "BASE_MAINNET", "--reason", "x"]),
            "BASE_MAINNET is not configured; add a section [chains.BASE_MAINNET]",
        ),
        (
            desk.refused(&["incident", "resolve", "inc_1", "--reason", "x"]),
            "there is no open incident inc_1; `landfall incident list` shows those that are",
        ),
        (desk.refused(&["incident", "show", "inc_1"]), "there is no incident inc_1"),
    ];
    for (line, expected) in cases {
        assert_eq!(line, format!("landfall: {expected}"));
    }
    desk.ok(&["chain", "override", "ETHEREUM_TESTNET", "clear", "--reason", "it is back"]);
    assert_eq!(desk.ok(&["incident", "list", "--json"]), "");
    let audit = desk.ok(&["chain", "audit", "--json"]);
    let entries: Vec<Value> = audit.lines().rev().map(|line| serde_json::from_str(line).unwrap()).collect();
    let reported: Vec<[&str; 2]> =
        entries.iter().map(|entry| [entry["action"].as_str().unwrap(), entry["reason"].as_str().unwrap()]).collect();
    let expected =
        [["halt", "node moves"], ["resume", "node moved"], ["finality", "one node is down"], ["clear", "it is back"]];
    assert_eq!(reported, expected);
    assert!(entries.iter().all(|entry| !entry["actor"].as_str().unwrap().is_empty()));
    desk.ok(&["key", "create", "--name", "backend"]);
    let lines = |arguments: &[&str]| desk.ok(arguments).lines().count();
    assert_eq!((lines(&["audit", "list"]), lines(&["chain", "audit"])), (5, 4), "the key is of no chain");
    for (chain, count) in [("ETHEREUM_TESTNET", 4), ("BASE_MAINNET", 0)] {
        assert_eq!(lines(&["audit", "list", "--chain", chain]), count, "{chain}");
        assert_eq!(lines(&["chain", "audit", chain]), count, "{chain}");
    }
}

#[test]
fn the_openapi_document_is_printed() {
    let desk = Desk::new(CONFIG);
    assert_eq!(desk.ok(&["openapi"]), include_str!("../../../openapi.json"));
}

#[test]
fn who_reads_no_more_ends_a_command_quietly_and_a_full_disk_is_one_clear_line() {
    let reported_to = |stdout: std::process::Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        let output = command.arg("openapi").stdout(stdout).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(reported_to(writer.into()), (Some(141), String::new()));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said = "landfall: stdout cannot be written: No space left on device (os error 28)\n";
    assert_eq!(reported_to(full.into()), (Some(2), said.to_owned()));
}

/// A payment to us on Solana, and one into another account of ours.
async fn on_record(desk: &Desk) -> DepositId {
    let db = Db::open(&format!("sqlite:{}", desk.path("landfall.db").display()).parse().unwrap()).await.unwrap();
    let (chain, ours, payer) = (Chain::SolanaMainnet, Address::Solana([1; 32]), Address::Solana([2; 32]));
    let id = "alice".to_owned();
    let account =
        NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses: [(chain, ours)].into() };
    landfall::registry::add_accounts(&db, &[account], Timestamp(0)).await.unwrap();
    let named = |number: u64, byte: u8| BlockRef { number, hash: BlockHash([byte; 32]) };
    let header = Header { block: named(7, 7), parent: named(6, 6), time_secs: 1_790_000_000 };
    let transfer = AssetTransfer {
        tx: TxRef { id: TxId::Solana([3; 64]), life: TxLife::Block },
        asset: AssetId::Native,
        sender: payer,
        sender_rule: SenderRule::Instruction,
        recipient: ours,
        amount: U256::from(2_500_000_000_u64),
        nth: 0,
    };
    let AssetTransfer { tx, asset, sender, sender_rule, recipient, amount, nth } = transfer.clone();
    let leg_hash =
        Leg { chain_ref: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", tx: tx.id, asset, recipient, amount, nth }.hash();
    let deposit = Deposit {
        id: leg_hash.deposit_id(),
        leg_hash,
        account_id: "alice".to_owned(),
        source_account_id: None,
        chain,
        tx,
        asset,
        sender,
        sender_rule,
        recipient,
        amount,
        nth,
        symbol: "SOL".to_owned(),
        decimals: 9,
        status: DepositStatus::Pending,
        created_at: Timestamp::from_secs(header.time_secs),
        confirmed_at: None,
        is_self_transfer: false,
    };
    let block = Block {
        header,
        txs: Vec::new(),
        transfers: Vec::new(),
        debits: Debits::Net(Vec::new()),
        unattributed: Vec::new(),
        fees: Vec::new(),
        marks: Vec::new(),
        rejected: Vec::new(),
        fee_recipient: None,
        proof: Proof::OneEndpoint,
        signers: Signers::default(),
        inside: None,
    };
    let rejected = Rejected { transfer, verdict: Verdict::IneligibleTokenAccount };
    let mut tx = db.begin().await.unwrap();
    cursors::connect(&mut tx, chain, &block, true).await.unwrap();
    deposits::insert(&mut tx, &deposit).await.unwrap();
    deposits::include(&mut tx, &deposit, &block.header.block, Lane::Block).await.unwrap();
    unattributed::insert(&mut tx, chain, &block.header.block, &leg_hash, &rejected).await.unwrap();
    tx.commit().await.unwrap();
    db.close().await;
    deposit.id
}

#[tokio::test]
async fn a_deposit_is_shown_with_the_rule_of_its_sender_and_the_inbox_with_its_reasons() {
    let desk = Desk::new(CONFIG);
    desk.ok(&["migrate"]);
    let id = on_record(&desk).await.to_string();
    let [ours, payer] = [[1; 32], [2; 32]].map(|bytes| Address::Solana(bytes).to_string());
    let shown: Value = serde_json::from_str(&desk.ok(&["deposit", "show", &id, "--json"])).unwrap();
    assert_eq!(shown["id"], id);
    assert_eq!((&shown["source_address"], &shown["source_rule"]), (&payer.clone().into(), &"instruction".into()));
    assert_eq!((&shown["amount"], &shown["base_units"]), (&"2.5".into(), &"2500000000".into()));
    let hash = Address::Solana([7; 32]).to_string();
    assert_eq!(shown["block"], serde_json::json!({ "number": 7, "hash": hash, "canonical": true, "lane": "roots" }));
    let reported = desk.ok(&["deposit", "show", &id]);
    assert!(reported.contains(&format!("from {payer} (instruction)")), "{reported}");
    let other = desk.run(&["deposit", "show", "615684f4-6776-8c35-b3dd-17080e18a784"]);
    assert_eq!(other.status.code(), Some(1));
    assert_eq!(desk.run(&["deposit", "show", "no-id"]).status.code(), Some(2));

    let line = desk.ok(&["deposit", "unattributed", "--json"]);
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["reason"], &line["account_id"]), (&"ineligible_token_account".into(), &"alice".into()));
    assert_eq!((&line["destination_address"], &line["base_units"]), (&ours.into(), &"2500000000".into()));
    assert_eq!((&line["block_number"], &line["final"]), (&7.into(), &false.into()));
    assert_eq!(line["block_time"], "2026-09-21T14:13:20Z");
    assert_eq!(desk.ok(&["deposit", "unattributed", "--chain", "BASE_MAINNET"]), "");
    let reported = desk.ok(&["deposit", "unattributed", "--chain", "SOLANA_MAINNET"]);
    assert!(reported.contains("ineligible_token_account") && reported.contains(" to alice at "), "{reported}");
    assert!(desk.refused(&["deposit", "unattributed", "--chain", "SOLANA"]).contains("unknown chain"));

    // Behind it what no transaction explains: 2.5 SOL came in block 7. What is explained is not shown.
    let held = |number, amount: u64| HeldAfter { number, amount: U256::from(amount) };
    let of = |had, has| {
        let address = Address::Solana([1; 32]);
        Readings { chain: Chain::SolanaMainnet, address, asset: AssetId::Native, had, has }
    };
    let db = Db::open(&format!("sqlite:{}", desk.path("landfall.db").display()).parse().unwrap()).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    for readings in [
        of(held(5, 500_000_000), held(7, 3_000_000_000)),
        of(held(6, 500_000_000), held(8, 3_000_000_007)),
        of(held(6, 500_000_000), held(9, 0)),
    ] {
        unexplained::insert(&mut tx, &readings, Timestamp(1_800_000_000_000_000)).await.unwrap();
    }
    // That a balance contradicts CONFIRMED deposits is an incident, which names whose balance of what.
    let (at, kind) = (Timestamp(1_800_000_000_000_000), IncidentKind::BalanceShort);
    let short = Incident::open(Chain::SolanaMainnet, kind, "it is short".to_owned(), Some(9), at);
    let short = short.about_balance(Address::Solana([1; 32]), AssetId::Native);
    incidents::meet(&mut tx, &short).await.unwrap();
    tx.commit().await.unwrap();
    db.close().await;
    let listed: Value = serde_json::from_str(&desk.ok(&["incident", "list", "--json"])).unwrap();
    let whose = Address::Solana([1; 32]).to_string();
    assert_eq!((&listed["address"], &listed["asset"]), (&whose.as_str().into(), &"native".into()));
    assert_eq!((&listed["kind"], &listed["deposit_id"]), (&"balance_short".into(), &Value::Null));
    let listed = desk.ok(&["incident", "list"]);
    assert!(listed.contains(&format!("SOLANA_MAINNET balance_short (native of {whose}), met at ")), "{listed}");
    let lines = desk.ok(&["deposit", "unattributed", "--json"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    let expected = serde_json::json!({
        "chain": "SOLANA_MAINNET", "reason": "unexplained_balance", "account_id": "alice",
        "destination_address": Address::Solana([1; 32]).to_string(), "asset": "native", "currency_symbol": null,
        "amount": null, "base_units": "-3000000000", "since_block_number": 6, "had_base_units": "500000000",
        "came_base_units": "2500000000", "left_base_units": "0", "block_number": 9, "held_base_units": "0",
        "found_at": "2027-01-15T08:00:00Z",
    });
    assert_eq!(lines[1], expected);
    assert_eq!((&lines[2]["base_units"], &lines[2]["block_number"]), (&"7".into(), &8.into()));
    assert_eq!(desk.ok(&["deposit", "unattributed", "--chain", "BASE_MAINNET"]), "");
    let reported = desk.ok(&["deposit", "unattributed", "--chain", "SOLANA_MAINNET"]);
    let line = format!(
        "2027-01-15T08:00:00Z unexplained_balance      -3000000000 base units of native of alice at {} on SOLANA_MAINNET \
         above 6 through 9\n",
        Address::Solana([1; 32])
    );
    assert!(reported.contains(&line), "{reported}");
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn a_backfill_of_bad_input_is_one_clear_line() {
    let desk = Desk::new(CONFIG);
    let range = ["--from", "1", "--to", "2"];
    let line = |verb: &str, chain: &str, more: &[&str]| {
        desk.refused(&[&[verb, "--chain", chain], range.as_slice(), more].concat())
    };
    let chain = "ETHEREUM_TESTNET";
    for verb in ["backfill", "rescan"] {
        let unknown =
            "error: invalid value 'ETHEREUM' for '--chain <CHAIN>': unknown chain \"ETHEREUM\"; the chains are ";
        assert!(line(verb, "ETHEREUM", &[]).starts_with(unknown));
        assert_eq!(
            line(verb, chain, &[]),
            "landfall: there is no store at landfall.db yet: `landfall run` or `landfall migrate` makes it"
        );
    }
    desk.ok(&add("alice", "SEGREGATED", &format!("{chain}={ADDRESS}")));
    let unconfigured = "landfall: BASE_MAINNET is not configured; add a section [chains.BASE_MAINNET]";
    assert_eq!(line("backfill", "BASE_MAINNET", &[]), unconfigured);
    assert_eq!(line("rescan", "BASE_MAINNET", &[]), unconfigured);
    let proof = line("backfill", chain, &["--proof", "headers"]);
    let unknown = "error: invalid value 'headers' for '--proof <receipts|logs>': unknown proof \"headers\"; expected receipts or logs";
    assert!(proof.starts_with(unknown), "{proof}");
    let address = line("backfill", chain, &["--address", "0x1"]);
    assert_eq!(address, "landfall: malformed EVM address \"0x1\": expected 0x and 40 hexadecimal digits");
    let both = line("backfill", chain, &["--address", ADDRESS, "--account", "alice"]);
    assert!(both.contains("cannot be used with"), "{both}");
    let endless = desk.refused(&["backfill", "--chain", chain, "--address", ADDRESS]);
    let expected = format!("landfall: {chain} is searched block by block; say with --from where to begin");
    assert_eq!(endless.lines().last(), Some(expected.as_str()));
    let silent = line("backfill", chain, &[]);
    assert!(
        silent.lines().last().unwrap().starts_with("landfall: ETHEREUM_TESTNET: endpoint 127.0.0.1:9 failed"),
        "{silent}"
    );
}
