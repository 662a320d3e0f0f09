//! schemathesis against the real service: whatever `openapi.json` allows is answered as it says, and what it forbids is refused.
//!
//! With a key and without, signed and unsigned. `LANDFALL_FULL=1` runs 50,000 cases and more. What it must know beside
//! the document stands in `schemathesis/hooks.py`.

use std::process::{Command, Output};

use serde_json::Value;

use crate::stage::{Engine, Stage, address, free_port, variable};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/schemathesis");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
const KEYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/keys");

/// How requests of a run are made.
struct Run<'a> {
    what: &'static str,
    bearer: Option<&'a str>,
    /// Signed with the key that its API key is paired with.
    is_signed: bool,
    is_admitted: bool,
    /// The most cases of an operation; of all of them together comes more.
    examples: u32,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_answers_as_its_document_says_whatever_is_asked() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(0xb7)).await;
    let port = free_port();
    let api = format!("[api]\nlisten = \"127.0.0.1:{port}\"\nip_requests_per_sec = 0\nkey_requests_per_sec = 0");
    stage.replace_in_config("[api]\nlisten = \"127.0.0.1:0\"", &api);
    let scopes = ["--scope", "read,write,webhooks"];
    let key = |name| {
        let key = stage.ok(&[&["key", "create", "--name", name][..], &scopes].concat());
        key.trim().to_owned()
    };
    let (plain, signing) = (key("plain"), key("signing"));
    let pem = format!("{KEYS}/ed25519.pub.pem");
    stage.ok(&["key", "pair", key_id(&signing), "--public-key", &pem, "--reason", "a test"]);
    stage.pay_native(address(0xb7), 7).await;
    stage.node.mine(3).await.unwrap();
    let mut service = stage.start();
    stage.until_status("0.000000000000000007", "CONFIRMED").await;

    // The identity that the document's example of an account belongs to.
    let document: Value = serde_json::from_str(&std::fs::read_to_string(DOCUMENT).unwrap()).unwrap();
    let form = &document["paths"]["/v2/identities"]["post"]["requestBody"]["content"]["application/json"]["example"];
    let post =
        reqwest::Client::builder().no_proxy().build().unwrap().post(format!("http://127.0.0.1:{port}/v2/identities"));
    let post = post.header("authorization", format!("Bearer {plain}")).header("content-type", "application/json");
    assert_eq!(post.body(form.to_string()).send().await.unwrap().status(), 201);

    let (wanted, examples) = if full() { (50_000, 2_000) } else { (2_000, 25) };
    let runs = [
        Run { what: "with a key", bearer: Some(&plain), is_signed: false, is_admitted: true, examples },
        Run { what: "signed", bearer: Some(&signing), is_signed: true, is_admitted: true, examples },
        Run {
            what: "unsigned, where a signature is compulsory",
            bearer: Some(&signing),
            is_signed: false,
            is_admitted: false,
            examples: 10,
        },
        Run { what: "without a key", bearer: None, is_signed: false, is_admitted: false, examples: 10 },
    ];
    let mut cases = 0;
    for run in runs {
        let output = run.against(&format!("http://127.0.0.1:{port}"));
        let said = String::from_utf8_lossy(&output.stdout);
        let what = run.what;
        assert!(output.status.success(), "{what}: {said}{}", String::from_utf8_lossy(&output.stderr));
        let operations = number(&said, " selected / ");
        let refused = format!("Authentication failed: {operations} operations returned only 401/403 responses");
        assert_eq!(said.contains(&refused), !run.is_admitted, "{what}: {said}");
        assert_eq!(said.contains("Authentication failed"), !run.is_admitted, "{what}: {said}");
        let of_run = number(&said, " generated");
        if run.is_admitted {
            // What one operation tells is asked of the next.
            let followed = number(&said, " covered / ");
            assert!(said.contains("\u{2705} Stateful\n") && followed > 0, "{what}: {said}");
            println!("{what}: {followed} links were followed");
        }
        println!("{what}: {of_run} cases, 0 findings");
        cases += of_run;
        assert!(service.is_running(), "{what}: {}", service.log());
    }
    println!("{cases} cases");
    assert!(cases >= wanted, "{cases} cases; {wanted} are wanted");
}

impl Run<'_> {
    fn against(&self, url: &str) -> Output {
        let mut command = Command::new(variable("LANDFALL_PYTHON"));
        command.args(["-m", "schemathesis.cli", "run", DOCUMENT, "--url", url, "--seed", "1", "--continue-on-failure"]);
        command.args(["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", &self.examples.to_string()]);
        // Our own checks stand for these.
        command.args(["--exclude-checks", "positive_data_acceptance,not_a_server_error"]);
        command.envs([("SCHEMATHESIS_HOOKS", "hooks"), ("PYTHONPATH", FOLDER), ("PYTHONDONTWRITEBYTECODE", "1")]);
        if let Some(bearer) = self.bearer {
            command.args(["--header", &format!("Authorization: Bearer {bearer}")]);
            if self.is_signed {
                command.env("LANDFALL_KEY_ID", key_id(bearer));
                command.env("LANDFALL_SIGNING_KEY", format!("{KEYS}/ed25519.pem"));
            }
        }
        let folder = tempfile::tempdir().unwrap();
        command.current_dir(folder.path()).output().unwrap()
    }
}

/// The id in an API key: 8 characters behind `lf_test_`.
fn key_id(key: &str) -> &str {
    &key[8..16]
}

/// The number that a report has before this text.
fn number(report: &str, text: &str) -> u64 {
    let line = report.lines().find_map(|line| Some(line.split_once(text)?.0)).unwrap_or_else(|| panic!("{report}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn full() -> bool {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    let full = std::env::var("LANDFALL_FULL");
    full.is_ok_and(|value| value == "1")
}
