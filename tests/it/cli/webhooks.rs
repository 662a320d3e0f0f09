//! `landfall webhook` as an operator meets it: the real binary, what it prints, and its exit codes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use landfall::time::Clock;
use landfall::webhook::{sign, signing_key};
use serde_json::Value;
use tempfile::TempDir;

const CONFIG: &str = "[api]\nenvironment = \"test\"\n[chains.ETHEREUM_TESTNET]\nrpc = [\"http://127.0.0.1:9/\"]\n";

fn desk() -> TempDir {
    let folder = crate::harness::postgres::folder();
    std::fs::write(folder.path().join("landfall.toml"), CONFIG).unwrap();
    folder
}

fn landfall(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.current_dir(folder).arg("webhook");
    command
}

fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    landfall(folder.path()).args(arguments).output().unwrap()
}

fn ok(folder: &TempDir, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(folder: &TempDir, arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(folder, arguments)).unwrap()
}

fn refused(folder: &TempDir, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap().trim_end().to_owned()
}

#[test]
fn a_webhook_is_listed_rotated_and_removed_and_its_key_is_reported_once() {
    let desk = desk();
    let url = "http://127.0.0.1:1/hook";
    let added =
        json(&desk, &["add", "--url", url, "--allow-private", "127.0.0.0/8", "--ed25519", "--label", "me", "--json"]);
    let (id, secret) = (added["id"].as_str().unwrap(), added["secret"].as_str().unwrap());
    assert!(added["verification_key"].as_str().unwrap().starts_with("whpk_"));
    let shown = json(&desk, &["show", id, "--json"]);
    assert_eq!(shown, json(&desk, &["list", "--json"]));
    for (field, value) in [("url", url), ("label", "me"), ("status", "ACTIVE"), ("allowed_networks", "127.0.0.0/8")] {
        assert_eq!(shown[field], value);
    }
    assert_eq!(shown["verification_key"], added["verification_key"]);
    assert!(shown.get("previous_key_expires_at").is_none());

    let rotated = json(&desk, &["rotate", id, "--previous-for", "1h", "--reason", "a test", "--json"]);
    assert_ne!(rotated["secret"], secret);
    let shown = json(&desk, &["show", id, "--json"]);
    assert!(shown["previous_key_expires_at"].is_string());
    for text in [ok(&desk, &["show", id]), ok(&desk, &["list"]), shown.to_string()] {
        assert!(text.contains(id) && !text.contains("whsec_") && !text.contains("whsk_"), "{text}");
    }
    let too_long = ["rotate", id, "--previous-for", "169h", "--reason", "a test"];
    assert_eq!(refused(&desk, &too_long), "landfall: --previous-for: at most 7 days");
    let again = ["rotate", id, "--reason", "a test"];
    for _ in 0..2 {
        ok(&desk, &again);
    }
    let said = refused(&desk, &again);
    assert!(said.starts_with("landfall: the keys of the last 3 rotations still sign, until 20"), "{said}");
    ok(&desk, &["rotate", id, "--previous-for", "0s", "--reason", "others know them"]);
    assert!(json(&desk, &["show", id, "--json"]).get("previous_key_expires_at").is_none());
    ok(&desk, &["remove", id, "--reason", "a test"]);
    assert_eq!(ok(&desk, &["list", "--json"]), "");
    let why = ["--reason", "a test"];
    for (verb, why) in [("show", &[][..]), ("rotate", &why), ("remove", &why), ("test", &[])] {
        let command = [&[verb, id], why].concat();
        assert_eq!(refused(&desk, &command), "landfall: no webhook has this id", "{verb}");
    }
}

#[test]
fn only_networks_are_allowed() {
    let desk = desk();
    // Which makes the store, and says so.
    ok(&desk, &["statuses"]);
    let line = refused(&desk, &["add", "--url", "https://10.1.2.3/", "--allow-private", "10.1.2.3/8"]);
    let reported = "'--allow-private <CIDR>': network 10.1.2.3/8: bits behind the prefix are set; write 10.0.0.0/8";
    assert!(line.contains(reported), "{line}");
    let line = refused(&desk, &["add", "--url", "https://10.1.2.3/", "--allow-private", "192.168.0.0/16"]);
    assert_eq!(
        line,
        "landfall: webhook url: 10.1.2.3 is not reachable from the internet; `--allow-private 10.1.2.3/32` lets it be sent to"
    );
    let line = refused(&desk, &["add", "--url", "http://hooks.internal/"]);
    assert_eq!(
        line,
        "landfall: webhook url: scheme \"http\"; expected https; `--allow-private` with the network of its addresses, such as \
         `--allow-private 10.0.0.0/8`, lets it be sent to"
    );
}

#[test]
fn the_statuses_that_are_sent_are_shown_and_changed() {
    let desk = desk();
    assert_eq!(ok(&desk, &["statuses"]), "sent: PENDING CONFIRMED FAILED\n");
    assert_eq!(ok(&desk, &["statuses", "FAILED", "CONFIRMED", "--reason", "a test"]), "sent: CONFIRMED FAILED\n");
    let without_reason = refused(&desk, &["statuses", "all"]);
    assert_eq!(without_reason, "landfall: a decision needs a reason: --reason TEXT");
    assert_eq!(ok(&desk, &["statuses"]), "sent: CONFIRMED FAILED\n");
    assert_eq!(refused(&desk, &["statuses", "DONE"]), "landfall: unknown deposit status \"DONE\"");
    assert_eq!(ok(&desk, &["statuses", "all", "--reason", "a test"]), "sent: PENDING CONFIRMED FAILED\n");
}

#[test]
fn listening_takes_any_path_prints_what_is_signed_and_what_it_refuses() {
    let desk = desk();
    let key = signing_key([7; 32]);
    std::fs::write(desk.path().join("key"), format!("{key}\n")).unwrap();
    let listening = ["listen", "--listen", "127.0.0.1:0", "--key-file", "key", "--json"];
    let mut child =
        landfall(desk.path()).args(listening).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("listening on http://").unwrap().trim_end_matches('/').to_owned();
    let body = r#"{"id":"e1","type":"webhook_test","data":{"webhook_id":"w"}}"#;
    let secs = Clock::system().now().0 / 1_000_000;
    let send = |method: &str, path: &str, signature: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nwebhook-id: e1\r\nwebhook-timestamp: {secs}\r\n\
             webhook-signature: {signature}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let ours = sign(&key, "e1", secs, body).unwrap();
    assert_eq!(send("POST", "/hooks", &sign(&signing_key([8; 32]), "e1", secs, body).unwrap()), "401");
    assert_eq!(send("PUT", "/", &ours), "405");
    assert_eq!(send("POST", "/hooks/of/mine", &ours), "200");
    let mut printed = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut printed).unwrap();
    assert_eq!(printed.trim_end(), r#"{"id":"e1","type":"webhook_test","data":{"webhook_id":"w"}}"#);
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    for refused in ["refused POST /hooks: not signed with this key\n", "refused PUT /: only POST is taken\n"] {
        assert!(rest.contains(refused), "{rest}");
    }
}
