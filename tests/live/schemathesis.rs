//! schemathesis against the real service: whatever `openapi.json` allows is answered as it says, and what it forbids is
//! refused.
//!
//! With a key and without, signed and unsigned; requests that are admitted run on either engine. The full run has
//! 50,000 cases and more. What it must know beside the document stands in `schemathesis/hooks.py`. Some of the transfers that
//! it asks for are accepted.

use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;

use crate::failure_codes::sponsors;
use crate::stage::{Engine, Stage, address, full, variable};
use crate::transfers::Bench;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/schemathesis");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
const KEYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/keys");

/// A service with a deposit and a transfer, and with what the document's examples need.
struct Scene {
    bench: Bench,
    /// The account that has money to send.
    payer: String,
}

/// How requests of a run are made.
struct Run<'a> {
    what: &'static str,
    url: &'a str,
    payer: &'a str,
    bearer: Option<&'a str>,
    /// Signed with the key that its API key is paired with.
    is_signed: bool,
    is_admitted: bool,
    /// The most cases of an operation; of all of them together comes more.
    examples: u32,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_answers_as_its_document_says_whatever_is_asked() {
    let (mut sqlite, mut postgres) = tokio::join!(Scene::on(Engine::Sqlite), Scene::on(Engine::Postgres));
    let (plain, signing) = (sqlite.key("plain", false), postgres.key("signing", true));
    let paired = sqlite.key("paired", true);
    let (wanted, examples, mode) = if full() { (50_000, 1_640, "full") } else { (2_000, 25, "bounded") };
    let admitted = [
        Run {
            what: "with a key",
            url: &sqlite.bench.api,
            payer: &sqlite.payer,
            bearer: Some(&plain),
            is_signed: false,
            is_admitted: true,
            examples,
        },
        Run {
            what: "signed",
            url: &postgres.bench.api,
            payer: &postgres.payer,
            bearer: Some(&signing),
            is_signed: true,
            is_admitted: true,
            examples,
        },
    ];
    let refused = Run {
        what: "without a key",
        url: &sqlite.bench.api,
        payer: &sqlite.payer,
        bearer: None,
        is_signed: false,
        is_admitted: false,
        examples: 10,
    };
    let unsigned = Run { what: "unsigned, where a signature is compulsory", bearer: Some(&paired), ..refused };
    let cases = at_once(&admitted);
    // What is refused has reported nothing of what the document says.
    assert!(cases >= wanted, "{cases} cases; {wanted} are wanted");
    let refusals = at_once(&[unsigned, refused]);
    println!("{mode}: {cases} cases that were admitted, {refusals} that were refused");
    for scene in [&mut sqlite, &mut postgres] {
        let accepted = scene.accepted();
        assert!(accepted > 0, "no transfer was accepted");
        println!("{accepted} transfers were accepted");
        let service = scene.bench.service.as_mut().unwrap();
        assert!(service.is_running(), "{}", service.log());
    }
}

/// How many cases these runs have together; each without a finding.
fn at_once(runs: &[Run<'_>]) -> u64 {
    std::thread::scope(|scope| {
        let running: Vec<_> = runs.iter().map(|run| scope.spawn(|| run.cases())).collect();
        running.into_iter().map(|run| run.join().unwrap()).sum()
    })
}

impl Scene {
    async fn on(engine: Engine) -> Self {
        let stage = Stage::new(engine).await;
        let no_rates = "environment = \"test\"\nip_requests_per_sec = 0\nkey_requests_per_sec = 0";
        stage.replace_in_config("environment = \"test\"", no_rates);
        let mut bench = Bench::on(stage).await;
        let payer = bench.get("/v2/accounts").await["accounts"][0]["id"].as_str().unwrap().to_owned();
        // One transfer has ended, and shows all its fields.
        bench.stage.ok(&["gas", "price", "set", "ETH", "3000", "--reason", "a test"]);
        let before = bench.sent().await;
        let id = bench.send(1, "1").await;
        bench.until_carried(before).await;
        bench.until_status(&id, "CONFIRMED").await;
        // What is accepted from now on is not carried: its events would go to each webhook that a case adds.
        sponsors(&bench, "pause");
        let spec = format!("ETHEREUM_TESTNET={}", address(0xb7));
        bench.stage.ok(&["account", "add", "--account", "alice", "--type", "SEGREGATED", "--address", &spec]);
        bench.stage.pay_native(address(0xb7), 7).await;
        bench.stage.node.mine(3).await.unwrap();
        bench.stage.until_status("0.000000000000000007", "CONFIRMED").await;
        let scene = Scene { bench, payer };

        // The identity that the document's example of an account belongs to.
        let document: Value = serde_json::from_str(&std::fs::read_to_string(DOCUMENT).unwrap()).unwrap();
        let form =
            &document["paths"]["/v2/identities"]["post"]["requestBody"]["content"]["application/json"]["example"];
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let post = client.post(format!("{}/v2/identities", scene.bench.api)).bearer_auth(scene.key("setter", false));
        let post = post.header("content-type", "application/json").body(form.to_string());
        assert_eq!(post.send().await.unwrap().status(), 201);
        scene
    }

    fn key(&self, name: &str, is_paired: bool) -> String {
        let stage = &self.bench.stage;
        let created = stage.ok(&["key", "create", "--name", name, "--scope", "read,write,webhooks,transfers"]);
        let key = created.trim().to_owned();
        if is_paired {
            let pem = format!("{KEYS}/ed25519.pub.pem");
            stage.ok(&["key", "pair", key_id(&key), "--public-key", &pem, "--reason", "a test"]);
        }
        key
    }

    /// How many transfers are accepted and wait.
    fn accepted(&self) -> usize {
        let listed = self.bench.stage.ok(&["transfer", "list", "--json"]);
        let statuses = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].clone());
        statuses.filter(|status| status == "ACCEPTED").count()
    }
}

impl Run<'_> {
    /// How many cases it has, none of which is a finding.
    fn cases(&self) -> u64 {
        let Run { what, is_admitted, .. } = self;
        let begun = Instant::now();
        let output = self.output();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{what}: {said}{}", String::from_utf8_lossy(&output.stderr));
        let operations = number(&said, " selected / ");
        let refused = format!("Authentication failed: {operations} operations returned only 401/403 responses");
        assert_eq!(said.contains(&refused), !is_admitted, "{what}: {said}");
        assert_eq!(said.contains("Authentication failed"), !is_admitted, "{what}: {said}");
        let cases = number(&said, " generated");
        if *is_admitted {
            // What one operation reports is asked of the next.
            let followed = number(&said, " covered / ");
            assert!(said.contains("\u{2705} Stateful\n") && followed > 0, "{what}: {said}");
            println!("{what}: {followed} links were followed");
        }
        println!("{what}: {cases} cases in {} s, 0 findings", begun.elapsed().as_secs());
        cases
    }

    fn output(&self) -> Output {
        let mut command = Command::new(variable("LANDFALL_PYTHON"));
        command.args(["-m", "schemathesis.cli", "run", DOCUMENT, "--url", self.url, "--seed", "1"]);
        // With a database of cases it compares each one with all of the best, which takes more time than all else.
        command.args(["--generation-database", "none", "--continue-on-failure"]);
        command.args(["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", &self.examples.to_string()]);
        // Our own checks stand for these.
        command.args(["--exclude-checks", "positive_data_acceptance,negative_data_rejection,not_a_server_error"]);
        command.envs([("SCHEMATHESIS_HOOKS", "hooks"), ("PYTHONPATH", FOLDER), ("PYTHONDONTWRITEBYTECODE", "1")]);
        command.env("LANDFALL_PAYER", self.payer);
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

/// The number that a report has before this text, in the first line that has one.
fn number(report: &str, text: &str) -> u64 {
    let of = |line: &str| line.split_once(text)?.0.rsplit(' ').next()?.replace(',', "").parse().ok();
    report.lines().find_map(of).unwrap_or_else(|| panic!("{report}"))
}
