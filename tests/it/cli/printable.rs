//! Texts that others chose are shown and control nothing: labels, names, reasons and receivers' answers, on a terminal
//! and as JSON; and the person whom the audit names.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use landfall::registry;
use landfall::store::{Db, Pools};
use landfall::time::Timestamp;
use serde_json::Value;

use crate::cli::{CONFIG, Desk, is_root};

/// Nobody's account.
const NAMELESS: u32 = 54_321;
/// It clears a screen, in two ways, colours, turns the order of letters, ends lines in five ways, and forges one.
const HOSTILE: &str =
    "a\u{1b}[2J\u{9b}31m\u{7}\u{202e}b\u{2066}\u{85}\u{2028}\u{2029}\r\n2026-01-01T00:00:00.000000Z - ceo halt x";
/// The same as it is shown.
const SHOWN: &str =
    "a\\u001b[2J\\u009b31m\\u0007\\u202eb\\u2066\\u0085\\u2028\\u2029\\r\\n2026-01-01T00:00:00.000000Z - ceo halt x";

fn does_something(character: char) -> bool {
    character != '\n' && character.is_control()
        || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[tokio::test]
async fn what_others_chose_is_seen_and_does_nothing_on_a_terminal_or_as_json() {
    let desk = Desk::new(CONFIG);
    desk.ok(&["identity", "add", "--identity", "i", "--type", "BUSINESS"]);
    desk.ok(&["identity", "suspend", "i", "--reason", "a test"]);
    desk.ok(&["key", "create", "--name", "n"]);
    let hook = ["webhook", "add", "--url", "http://127.0.0.1:1/", "--allow-private", "127.0.0.0/8", "--json"];
    let hook: Value = serde_json::from_str(&desk.ok(&hook)).unwrap();
    let hook = hook["id"].as_str().unwrap();
    let db = Db::open(&format!("sqlite:{}", desk.path("landfall.db").display()).parse().unwrap()).await.unwrap();
    let event = registry::test_webhook(&db, hook, &[7; 32], Timestamp(1)).await.unwrap();
    let event = event.id.to_string();
    // Written past what refuses such characters, but for the receiver's answer.
    let Pools::Sqlite { write, .. } = db.pools() else { panic!("SQLite") };
    for text in [
        "UPDATE identities SET label = $1 WHERE id = 'i'",
        "UPDATE api_keys SET name = $1",
        "UPDATE webhooks SET label = $1",
        "UPDATE audit SET actor = $1, reason = $1",
        "UPDATE identity_changes SET actor = $1, reason = $1",
    ] {
        assert!(sqlx::query(text).bind(HOSTILE).execute(write).await.unwrap().rows_affected() > 0, "{text}");
    }
    let attempt = "INSERT INTO attempts (event_id, webhook_id, attempt, started_us, duration_us, status, error, response_head) \
                   VALUES ($1, $2, 1, 1, 1, NULL, $3, $3)";
    sqlx::query(attempt).bind(&event).bind(hook).bind(HOSTILE).execute(write).await.unwrap();
    db.close().await;
    let commands: [(&[&str], usize); 7] = [
        (&["identity", "list"], 2),
        (&["identity", "show", "i"], 2),
        (&["key", "list"], 1),
        (&["webhook", "list"], 1),
        (&["webhook", "show", hook], 6),
        (&["event", "show", &event], 4),
        (&["audit", "list"], 3),
    ];
    for (command, lines) in commands {
        let text = desk.ok(command);
        assert_eq!(text.matches(does_something).collect::<Vec<_>>(), Vec::<&str>::new(), "{command:?}");
        assert!(text.contains(SHOWN), "{command:?}: {text}");
        assert_eq!(text.lines().count(), lines, "{command:?}: {text}");
        let json = desk.ok(&[command, &["--json"]].concat());
        assert_eq!(json.matches(does_something).collect::<Vec<_>>(), Vec::<&str>::new(), "{command:?}");
        let read: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(read.iter().any(|value| holds(value, HOSTILE)), "{command:?}: programs read what it was");
    }
}

fn holds(value: &Value, text: &str) -> bool {
    let in_list = value.as_array().is_some_and(|items| items.iter().any(|item| holds(item, text)));
    let in_object = value.as_object().is_some_and(|members| members.values().any(|member| holds(member, text)));
    in_list || in_object || value.as_str() == Some(text)
}

#[test]
fn what_would_do_something_is_refused_wherever_a_person_chooses_a_text() {
    let desk = Desk::new(CONFIG);
    desk.ok(&["identity", "add", "--identity", "i", "--type", "BUSINESS"]);
    let key = desk.ok(&["key", "create", "--name", "n"]);
    for character in ["\n", "\u{1b}", "\u{85}", "\u{9b}", "\u{2028}", "\u{202e}", "\u{2066}"] {
        let text = format!("a{character}b");
        for command in [
            &["identity", "add", "--identity", "j", "--type", "BUSINESS", "--label", &text][..],
            &["webhook", "add", "--url", "https://93.184.216.34/", "--label", &text],
            &["key", "create", "--name", &text],
            &["key", "revoke", &key[8..16], "--reason", &text],
            &["identity", "suspend", "i", "--reason", &text],
            &["chain", "halt", "ETHEREUM_TESTNET", "--reason", &text],
            &["webhook", "statuses", "FAILED", "--reason", &text],
        ] {
            let line = desk.refused(command);
            assert!(line.contains("control character"), "{command:?}: {line}");
        }
        let mut create = Command::new(env!("CARGO_BIN_EXE_landfall"));
        create.current_dir(desk.path("")).args(["key", "create", "--name", "n"]);
        let actor = create.env("LANDFALL_ACTOR", &text).output().unwrap();
        assert_eq!(actor.status.code(), Some(2), "{character:?}");
        assert!(String::from_utf8(actor.stderr).unwrap().contains("LANDFALL_ACTOR"), "{character:?}");
    }
    assert_eq!(desk.ok(&["audit", "list"]).lines().count(), 1, "nothing was done but the first key");
}

#[test]
fn the_audit_names_who_says_it_was_him_and_always_the_account_of_the_system() {
    let name = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let name = name.trim().to_owned();
    assert_eq!(actors(&Desk::new(CONFIG), None), [name.clone(), name.clone(), format!("olga (as {name})")]);
    // As in a container, whose user has no name.
    if is_root() {
        let desk = Desk::new(CONFIG);
        chown(desk.path(""), Some(NAMELESS), None).unwrap();
        assert_eq!(actors(&desk, Some(NAMELESS)), ["uid 54321", "uid 54321", "olga (as uid 54321)"]);
    }
}

/// Who the audit says made three keys: somebody whose environment names another, the same with an empty LANDFALL_ACTOR,
/// and with one.
fn actors(desk: &Desk, user: Option<u32>) -> Vec<String> {
    // Where whoever it is run as can read it.
    let program = desk.path("landfall");
    // By another process: a file that this one has open for writing is open in what other tests start meanwhile, and is busy.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_landfall")).arg(&program).status().unwrap();
    assert!(copied.success());
    for actor in [None, Some(""), Some("olga")] {
        let mut command = Command::new(&program);
        command.current_dir(desk.path("")).args(["key", "create", "--name", "n"]);
        command.env("USER", "ceo").env("LOGNAME", "ceo").env_remove("LANDFALL_ACTOR");
        command.envs(actor.map(|actor| ("LANDFALL_ACTOR", actor)));
        if let Some(user) = user {
            command.uid(user);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let audit = desk.ok(&["audit", "list", "--json"]);
    let entries = audit.lines().rev().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.map(|entry| entry["actor"].as_str().unwrap().to_owned()).collect()
}
