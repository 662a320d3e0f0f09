//! Money out on Solana, end to end: real programs, the real program with its signer. What was paid is read from the node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall::time::Clock;
use landfall_chain::{
    Address, AssetId, BlockHash, BlockRef, Family, GuardTerms, Guarded, Intent, KeyPath, PayingChain, Reclaim,
    ReclaimQuote, Route, SignRequest, U256,
};
use landfall_signer::{Embedded, Passphrase, Policy, Sendable};
use serde_json::{Value, json};
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::{Keypair, Signer as _};
use uuid::Uuid;

use crate::solana::follower::{CHAIN, source};
use crate::solana::programs::{MINT_BYTES, TOKEN, TOKEN_2022, Token};
use crate::solana::stage::{PATIENCE, Stage, listed};
use crate::stage::{Engine, Service, free_port, make_keystore};

pub(crate) const SOL: u64 = 1_000_000_000;
/// Of two signatures.
const FEE: u64 = 10_000;
/// A token account without extensions; those of Token-2022 have some.
const TOKEN_ACCOUNT_BYTES: u64 = 165;
pub(crate) const CHAIN_REF: &str = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1";

/// A stage with a keystore, two accounts whose addresses are derived, a token, and sponsors that are funded.
pub(crate) struct Bench {
    pub(crate) stage: Stage,
    pub(crate) service: Option<Service>,
    /// The process that has the keys, where it is one of its own.
    pub(crate) signer: Option<Service>,
    client: reqwest::Client,
    pub(crate) api: String,
    pub(crate) key: String,
    pub(crate) token: Token,
    /// What alice pays from, and what bob is paid at.
    pub(crate) alice: Pubkey,
    pub(crate) bob: Pubkey,
    pub(crate) sponsors: Vec<Pubkey>,
}

impl Bench {
    pub(crate) async fn new(engine: Engine, program: (Pubkey, &str)) -> Self {
        let keystore = "signer = \"keystore:keys\"\npassphrase_file = \"passphrase\"";
        Bench::signing_by(Stage::new(engine).await, program, keystore, None).await
    }

    /// With this signer; the program reaches the cluster by way of `url` where one is given.
    pub(crate) async fn signing_by(stage: Stage, program: (Pubkey, &str), signer: &str, url: Option<&str>) -> Self {
        let token = stage.make_token(program.0, MINT_BYTES, |_, _| None).await;
        let sending = format!("[transfers]\n{signer}\n");
        stage.configure(&[], 100, &format!("{}{sending}", listed("TOK", &token, token.decimals, program.1)));
        if let Some(url) = url {
            stage.reach(url);
        }
        let port = free_port();
        stage.listen(&format!("127.0.0.1:{port}"));
        make_keystore(stage.folder());
        let scopes = ["key", "create", "--name", "live", "--scope", "read", "--scope", "write", "--scope", "transfers"];
        let key = stage.ok(&scopes).trim().to_owned();
        stage.ok(&["identity", "add", "--identity", "house", "--type", "BUSINESS"]);
        stage.ok(&["sponsor", "add", "--chain", CHAIN.name(), "--count", "2", "--reason", "a test"]);
        let service = Some(stage.start());
        let signer = signer.starts_with("signer = \"unix:").then(|| Service::start_signer(stage.folder()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let (api, nobody, sponsors) = (format!("http://127.0.0.1:{port}"), Pubkey::default(), Vec::new());
        let mut bench = Bench { stage, service, signer, client, api, key, token, alice: nobody, bob: nobody, sponsors };
        bench.until_served().await;
        bench.alice = bench.open("alice").await;
        bench.bob = bench.open("bob").await;
        bench.fund().await;
        bench
    }

    async fn until_served(&self) {
        let begun = Instant::now();
        while self.client.get(format!("{}/v2/assets", self.api)).send().await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn log(&self) -> String {
        self.service.as_ref().map(Service::log).unwrap_or_default()
    }

    /// An account with a derived address.
    async fn open(&self, name: &str) -> Pubkey {
        let asked = json!({ "request_id": name, "identity_id": "house", "type": "SEGREGATED" });
        let begun = Instant::now();
        let (status, opened) = loop {
            let answer = self.post("/v2/accounts", &asked).await;
            // The signer may not listen yet.
            if answer.0 != 503 || begun.elapsed() > PATIENCE {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(status, 201, "{opened}");
        opened["addresses"][0]["address"].as_str().unwrap_or_else(|| panic!("{opened}")).parse().unwrap()
    }

    /// Sponsors have SOL, and alice SOL and tokens.
    async fn fund(&mut self) {
        let begun = Instant::now();
        while self.sponsors.len() < 2 {
            assert!(begun.elapsed() < PATIENCE, "{}", self.log());
            let lines = self.stage.ok(&["sponsor", "list", "--json"]);
            let sponsors = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            self.sponsors = sponsors.filter_map(|sponsor| sponsor["address"].as_str()?.parse().ok()).collect();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for sponsor in &self.sponsors {
            self.stage.pay_sol(sponsor, SOL).await;
        }
        self.stage.pay_sol(&self.alice, SOL).await;
        self.stage.pay(&self.token, &self.alice, 10_000_000).await;
        self.stage.until_status("1", "CONFIRMED").await;
        self.stage.until_status("10", "CONFIRMED").await;
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.api)).bearer_auth(&self.key);
        answered(request.header("content-type", "application/json").body(body.to_string())).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = answered(self.client.get(format!("{}{path}", self.api)).bearer_auth(&self.key)).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// The id of alice's account.
    async fn account(&self) -> String {
        let accounts = self.get("/v2/accounts").await;
        let is_alices = |account: &&Value| account["addresses"][0]["address"] == self.alice.to_string();
        let alice = accounts["accounts"].as_array().unwrap().iter().find(is_alices).unwrap();
        alice["id"].as_str().unwrap().to_owned()
    }

    /// Waits until alice may spend so much.
    pub(crate) async fn until_available(&self, symbol: &str, amount: &str) {
        let (path, begun) = (format!("/v2/accounts/{}/balances?symbol={symbol}", self.account().await), Instant::now());
        loop {
            let asked = self.client.get(format!("{}{path}", self.api)).bearer_auth(&self.key);
            let (status, balances) = answered(asked).await;
            if status == 200 && balances["balances"][0]["available"] == amount {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{balances}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Asks for a transfer of alice's, until what she has is known.
    pub(crate) async fn send(&self, nth: u32, (symbol, amount): (&str, &str), to: &Pubkey) -> String {
        let body = json!({
            "request_id": format!("00000000-0000-4000-8000-{nth:012}"),
            "account_id": self.account().await,
            "currency_symbol": symbol,
            "amount": amount,
            "address_destination": { "address": to.to_string(), "chain": CHAIN.name() },
        });
        let begun = Instant::now();
        loop {
            let (status, answer) = self.post("/v2/crypto/transfers", &body).await;
            if status == 201 {
                return answer["id"].as_str().unwrap().to_owned();
            }
            assert!(status == 503 && begun.elapsed() < PATIENCE, "{status} {answer}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) fn explained(&self, id: &str) -> Value {
        serde_json::from_str(&self.stage.ok(&["transfer", "explain", id, "--json"])).unwrap()
    }

    pub(crate) async fn until_confirmed(&self, id: &str) -> Value {
        let begun = Instant::now();
        loop {
            let transfer = self.get(&format!("/v2/crypto/transfers/{id}")).await;
            if transfer["status"] == "CONFIRMED" {
                return transfer;
            }
            assert!(begun.elapsed() < PATIENCE, "{transfer:#}\n{:#}\n{}", self.explained(id), self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A transaction of the first sponsor that pays an intent.
    async fn guarded(&self, [path, payer]: [KeyPath; 2], intent: &Intent, makes_account: bool) -> SignRequest {
        let cluster = &self.stage.cluster;
        let (rent, blockhash) = (cluster.rent(0).await, BlockHash(cluster.blockhash().await.to_bytes()));
        let (compute_limit, compute_price) = (100_000, 0);
        let terms = GuardTerms { blockhash, rent, compute_limit, compute_price, memo: false, makes_account };
        let guarded = Guarded { sponsor: of(&self.sponsors[0]), intent: intent.clone(), terms };
        SignRequest::Guarded { path, payer, guarded }
    }

    /// Signs and sends it, and waits until it landed; returns its error, if it failed.
    async fn landed(&self, signer: &Embedded, request: SignRequest) -> Option<Value> {
        let cluster = &self.stage.cluster;
        let signed = landfall_chain::Signer::sign(signer, &[request]).await.unwrap().pop().unwrap().unwrap();
        let how = json!({ "encoding": "base64", "skipPreflight": true });
        cluster.rpc("sendTransaction", json!([STANDARD.encode(&signed.bytes), how])).await;
        let begun = Instant::now();
        loop {
            let asked = json!([[signed.tx.unwrap().to_string()]]);
            let status = cluster.rpc("getSignatureStatuses", asked).await["value"][0].take();
            if !status.is_null() {
                return Some(status["err"].clone()).filter(|error| !error.is_null());
            }
            assert!(begun.elapsed() < PATIENCE, "it did not land");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What the receiver was sent of a transfer, in the order in which it came.
    pub(crate) fn events(&self, id: &str) -> Vec<String> {
        let log = self.stage.receiver.log();
        let of = log.iter().filter(|received| received.field("id") == id);
        let stage_of = |received: &landfall::receiver::Received| match received.field("stage") {
            "" => received.field("status").to_owned(),
            stage => stage.to_owned(),
        };
        of.map(stage_of).collect()
    }

    /// What the signer was asked to sign for a transfer, made from what is on record of it.
    fn intent(&self, id: &str, (asset, route): (AssetId, Route), to: &Pubkey, amount: u64) -> Intent {
        Intent {
            transfer_id: *id.parse::<Uuid>().unwrap().as_bytes(),
            chain_ref: CHAIN_REF.to_owned(),
            route,
            asset,
            payer: of(&self.alice),
            destination: of(to),
            amount: U256::from(amount),
            deadline: self.explained(id)["intents"][0]["deadline"].as_u64().unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sol_and_a_token_are_paid_once_on_sqlite() {
    are_paid_once(Engine::Sqlite, (TOKEN, "spl_token")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sol_and_a_token_of_token_2022_are_paid_once_on_postgresql() {
    are_paid_once(Engine::Postgres, (TOKEN_2022, "token_2022")).await;
}

async fn are_paid_once(engine: Engine, program: (Pubkey, &str)) {
    let bench = Bench::new(engine, program).await;
    let (cluster, token) = (&bench.stage.cluster, bench.token);
    let before = cluster.lamports(&bench.alice).await;
    // To an account of ours, which has no account of the token yet.
    let of_token = bench.send(1, ("TOK", "2.5"), &bench.bob).await;
    let shown = bench.until_confirmed(&of_token).await;
    assert_ne!(shown["transaction_hash"], "");
    assert_eq!(cluster.tokens(&token.ata(&bench.bob)).await, 2_500_000);
    assert_eq!(cluster.tokens(&token.ata(&bench.alice)).await, 7_500_000);
    assert_eq!(cluster.lamports(&bench.alice).await, before, "she paid for nothing else");
    // To somebody who is not there yet.
    let carol = Keypair::new().pubkey();
    let of_sol = bench.send(2, ("SOL", "0.25"), &carol).await;
    bench.until_confirmed(&of_sol).await;
    assert_eq!(cluster.lamports(&carol).await, SOL / 4);
    assert_eq!(cluster.lamports(&bench.alice).await, before - SOL / 4);
    for id in [&of_token, &of_sol] {
        let is_reported = |events: &Vec<String>| events.len() >= 3;
        let events = bench.stage.until("three events", || bench.events(id), is_reported).await;
        assert_eq!(events, ["SUBMITTED", "INCLUDED", "CONFIRMED"]);
    }
    sponsors_are_even(&bench).await;
    are_not_signed(&bench, &token).await;
    let deposit = bench.stage.until_status("2.5", "CONFIRMED").await;
    assert_eq!(deposit["transaction_hash"], shown["transaction_hash"], "what left alice came to bob");
    a_second_attempt_pays_nothing(bench, (&of_token, &of_sol), &carol).await;
}

/// To the lamport: what the sponsors were given is what they own, what their transactions cost, the rent that was given to
/// bob's account included, and what is locked in guards.
async fn sponsors_are_even(bench: &Bench) {
    let cluster = &bench.stage.cluster;
    let (mut own, rent, given) = (0, cluster.rent(0).await, cluster.rent(TOKEN_ACCOUNT_BYTES).await);
    for sponsor in &bench.sponsors {
        own += cluster.lamports(sponsor).await;
    }
    let ledger = bench.stage.ok(&["gas", "ledger", "--json"]);
    let entries = ledger.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let costs: Vec<Value> = entries.filter(|entry| entry["kind"] == "COST").collect();
    let amounts: Vec<u64> = costs.iter().map(|cost| lamports_of(cost["amount"].as_str().unwrap())).collect();
    assert!(amounts.iter().any(|amount| *amount >= given) && amounts.iter().any(|amount| *amount < given), "{costs:?}");
    println!("lamports: {amounts:?} were paid, and each guard holds {rent}; an account of a token takes {given}");
    let guards: u64 = 2 * rent;
    assert_eq!(own + amounts.iter().sum::<u64>() + guards, 2 * SOL, "{costs:?}");
}

/// A decimal of SOL.
pub(crate) fn lamports_of(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    whole.parse::<u64>().unwrap() * SOL + format!("{part:0<9}").parse::<u64>().unwrap()
}

/// What would be lost or refused: it is not signed, and said why.
async fn are_not_signed(bench: &Bench, token: &Token) {
    let bobs = token.ata(&bench.bob);
    let cases = [
        ("TOK", "0.1", bobs, format!("is a token account; send to the wallet that owns it, {}", bench.bob)),
        ("TOK", "0.1", token.ata(&Keypair::new().pubkey()), "no key can have it; send to a wallet".to_owned()),
        ("SOL", "0.0001", Keypair::new().pubkey(), "would have 100000 lamports, and must have at least".to_owned()),
        ("SOL", "0.7499", bench.bob, "would keep 100000 lamports, and must keep none or at least".to_owned()),
    ];
    for (nth, (symbol, amount, to, words)) in (3..).zip(cases) {
        let id = bench.send(nth, (symbol, amount), &to).await;
        let begun = Instant::now();
        while !bench.log().contains(&words) {
            assert!(begun.elapsed() < PATIENCE, "{words}: {}", bench.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(bench.explained(&id)["intents"], json!([]), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_its_recipient_gave_away_is_not_paid() {
    let bench = Bench::new(Engine::Sqlite, (TOKEN, "spl_token")).await;
    let (stage, token, carol, mallory) = (&bench.stage, bench.token, Keypair::new(), Keypair::new().pubkey());
    let (payer, account) = (stage.cluster.payer.pubkey(), token.ata(&carol.pubkey()));
    let calls = [token.make_ata(&payer, &carol.pubkey()), token.hand_over(&account, &carol.pubkey(), &mallory)];
    stage.send(&calls, &[&carol]).await;
    let id = bench.send(1, ("TOK", "2.5"), &carol.pubkey()).await;
    let why = format!("belongs to {mallory} now");
    let is_kept = |explained: &String| explained.contains("DESTINATION_REFUSED") && explained.contains(&why);
    stage.until("a reason", || stage.ok(&["transfer", "explain", &id]), is_kept).await;
    assert_eq!(bench.explained(&id)["intents"], json!([]), "nothing is signed");
    assert_eq!(stage.cluster.tokens(&account).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_that_demands_a_memo_is_paid_with_one() {
    let bench = Bench::new(Engine::Sqlite, (TOKEN_2022, "token_2022")).await;
    let (token, carol) = (bench.token, Keypair::new());
    let payer = bench.stage.cluster.payer.pubkey();
    let demand = token.demand_memos(&payer, &carol.pubkey());
    let calls = [&[token.make_ata(&payer, &carol.pubkey())][..], &demand].concat();
    bench.stage.send(&calls, &[&carol]).await;
    let id = bench.send(1, ("TOK", "2.5"), &carol.pubkey()).await;
    let shown = bench.until_confirmed(&id).await;
    let cluster = &bench.stage.cluster;
    assert_eq!(cluster.tokens(&token.ata(&carol.pubkey())).await, 2_500_000);
    let how = json!([shown["transaction_hash"], { "encoding": "json", "maxSupportedTransactionVersion": 0 }]);
    let landed = cluster.rpc("getTransaction", how).await;
    assert!(landed["meta"]["logMessages"].to_string().contains(&id), "the memo is the transfer's id: {landed}");
}

/// With the very signer, when the service has ended: another attempt of each transfer, on a newer blockhash.
async fn a_second_attempt_pays_nothing(mut bench: Bench, (of_token, of_sol): (&str, &str), carol: &Pubkey) {
    let (code, _) = bench.service.take().unwrap().stop();
    assert_eq!(code, Some(0));
    let mint = of(&bench.token.mint);
    let of_tok = (AssetId::Token(mint), Route::Guard { program: Some(of(&bench.token.program)), decimals: 6 });
    let native = (AssetId::Native, Route::Guard { program: None, decimals: 9 });
    let assets = vec![of_tok.clone(), native.clone()];
    let policy = Policy::new([Sendable {
        chain_ref: CHAIN_REF.to_owned(),
        assets,
        caps: Vec::new(),
        cost_max: 10_000_000,
        refill_max: 0,
    }]);
    let keys = bench.stage.folder().join("keys");
    let passphrase = Passphrase::from_file(&bench.stage.folder().join("passphrase")).unwrap();
    let open = |later: u64| {
        let clock = Clock::system();
        let now = move || u64::try_from(clock.now().0 / 1_000_000).unwrap() + later;
        Embedded::open(&keys, &passphrase, policy.clone(), Arc::new(now)).unwrap()
    };
    let signer = open(0);
    let intents = [bench.intent(of_token, of_tok, &bench.bob, 2_500_000), bench.intent(of_sol, native, carol, SOL / 4)];
    let accounts = bench.stage.ok(&["account", "list", "--json"]);
    let is_alices = |line: &&str| line.contains(&bench.alice.to_string());
    let account: Value = serde_json::from_str(accounts.lines().find(is_alices).unwrap()).unwrap();
    let payer = KeyPath::of_wallet(Family::Solana, account["id"].as_str().unwrap(), "");
    let path = KeyPath::of_sponsor(Family::Solana, CHAIN_REF, 0);
    let cluster = &bench.stage.cluster;
    let rent = cluster.rent(0).await;
    for intent in &intents {
        assert_eq!(cluster.lamports(&guard(intent)).await, rent, "the guard stands");
        let request = bench.guarded([path, payer], intent, false).await;
        let status = bench.landed(&signer, request).await.unwrap();
        assert_eq!(status, json!({ "InstructionError": [0, { "Custom": 0 }] }), "the guard is in use: {status}");
        makers_are_found(&bench, intent).await;
    }
    assert_eq!(cluster.tokens(&bench.token.ata(&bench.bob)).await, 2_500_000, "once");
    assert_eq!(cluster.lamports(carol).await, SOL / 4, "once");
    an_account_is_made_only_where_that_was_decided(&bench, (&signer, [path, payer]), &intents[0]).await;
    drop(signer);
    guards_are_taken_back(&bench, [path, payer], &intents, open).await;
}

/// A recipient that closes its account before the attempt lands is given no rent.
async fn an_account_is_made_only_where_that_was_decided(
    bench: &Bench,
    (signer, paths): (&Embedded, [KeyPath; 2]),
    like: &Intent,
) {
    let (cluster, dave) = (&bench.stage.cluster, Keypair::new().pubkey());
    let mut intent = Intent { destination: of(&dave), amount: U256::from(1_000), ..like.clone() };
    intent.transfer_id[0] ^= 0x55;
    intent.deadline = u64::try_from(Clock::system().now().0 / 1_000_000).unwrap() + 200;
    let noted = SignRequest::Intent { path: paths[1], intent: intent.clone(), heals: 0 };
    landfall_chain::Signer::sign(signer, &[noted]).await.unwrap().pop().unwrap().unwrap();
    let owned = async || cluster.lamports(&bench.sponsors[0]).await;
    let before = owned().await;
    let failed = bench.landed(signer, bench.guarded(paths, &intent, false).await).await;
    assert!(failed.is_some(), "there is no account to pay to");
    assert_eq!((before - owned().await, cluster.lamports(&guard(&intent)).await), (FEE, 0), "its fee and nothing else");
    let before = owned().await;
    assert_eq!(bench.landed(signer, bench.guarded(paths, &intent, true).await).await, None);
    let account = bench.token.ata(&dave);
    assert_eq!(cluster.tokens(&account).await, 1_000);
    let given = cluster.rent(0).await + cluster.lamports(&account).await;
    assert_eq!(before - owned().await, FEE + given, "its fee, the guard, and the account");
}

/// By the sponsor's and the payer's keys, a day later by the signer's clock: all of it, once, and nothing is signed for these
/// transfers any more.
async fn guards_are_taken_back(
    bench: &Bench,
    [path, payer]: [KeyPath; 2],
    intents: &[Intent; 2],
    open: impl Fn(u64) -> Embedded,
) {
    let (cluster, sponsor) = (&bench.stage.cluster, of(&bench.sponsors[0]));
    let source = source(cluster, &landfall_solana::network(CHAIN).unwrap());
    let quoted = async || {
        let recent = BlockRef { number: 0, hash: BlockHash(cluster.blockhash().await.to_bytes()) };
        let begun = Instant::now();
        loop {
            match source.reclaim_quote(&sponsor, intents, &recent).await {
                Ok(quote) => return (quote, recent.hash),
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (quote, blockhash) = quoted().await;
    let ReclaimQuote::Terms { lamports, compute_limit } = quote else { panic!("{quote:?}") };
    let rent = cluster.rent(0).await;
    assert_eq!(lamports, [rent; 2]);
    let guards: Vec<(Intent, u64)> = intents.iter().cloned().zip(lamports).collect();
    let request = |blockhash| {
        let reclaim = Reclaim { sponsor, guards: guards.clone(), blockhash, compute_limit };
        SignRequest::Reclaim { path, payers: vec![payer; 2], reclaim }
    };
    let early = open(23 * 3_600);
    let refused =
        landfall_chain::Signer::sign(&early, &[request(blockhash)]).await.unwrap().pop().unwrap().unwrap_err();
    assert!(refused.0.contains("is kept until"), "{refused}");
    drop(early);
    let signer = open(25 * 3_600);
    let before = cluster.lamports(&bench.sponsors[0]).await;
    assert_eq!(bench.landed(&signer, request(blockhash)).await, None);
    assert_eq!(cluster.lamports(&bench.sponsors[0]).await, before - FEE + 2 * rent, "two signatures, one of each key");
    for intent in intents {
        assert_eq!(cluster.lamports(&guard(intent)).await, 0);
    }
    let again = BlockHash(cluster.blockhash().await.to_bytes());
    assert!(bench.landed(&signer, request(again)).await.is_some(), "there is nothing to take");
    assert_eq!(cluster.lamports(&bench.sponsors[0]).await, before - 2 * FEE + 2 * rent);
    assert_eq!(quoted().await.0, ReclaimQuote::Absent(vec![0, 1]));
    // Its absence is no proof: what named it is there for ever.
    let at = BlockRef { number: 0, hash: BlockHash([0; 32]) };
    let first = cluster.rpc("getFirstAvailableBlock", json!([])).await.as_u64().unwrap();
    for intent in intents {
        assert!(!source.is_used(intent, &at).await.unwrap() && source.was_made(intent, first, &at).await.unwrap());
        let paid_again = bench.guarded([path, payer], intent, false).await;
        let why = landfall_chain::Signer::sign(&signer, &[paid_again]).await.unwrap().pop().unwrap().unwrap_err();
        assert!(why.0.contains("was taken back"), "{why}");
    }
    let mut never = intents[0].clone();
    never.transfer_id[0] ^= 0x77;
    assert!(!source.was_made(&never, first, &at).await.unwrap());
    if let Some(earlier) = first.checked_sub(2) {
        let why = source.was_made(&never, earlier, &at).await.unwrap_err().to_string();
        assert!(why.contains("it keeps nothing below slot"), "who keeps less says nothing: {why}");
    }
}

fn guard(intent: &Intent) -> Pubkey {
    Pubkey::try_from(intent.guard().unwrap().as_bytes()).unwrap()
}

/// Who made a guard: the payer's own key, or somebody who sent lamports to its address.
async fn makers_are_found(bench: &Bench, paid: &Intent) {
    let cluster = &bench.stage.cluster;
    let source = source(cluster, &landfall_solana::network(CHAIN).unwrap());
    let maker = async |intent: &Intent| {
        let begun = Instant::now();
        loop {
            let at = BlockRef { number: 0, hash: BlockHash([0; 32]) };
            if let Ok(Some(maker)) = source.maker(intent, &at).await {
                return maker;
            }
            assert!(begun.elapsed() < PATIENCE, "nobody made it");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(maker(paid).await.is_payers);
    let mut never = paid.clone();
    never.transfer_id[0] ^= 0xff;
    let guard = Pubkey::try_from(never.guard().unwrap().as_bytes()).unwrap();
    let landed = bench.stage.pay_sol(&guard, SOL / 100).await;
    // More of it changes nothing.
    bench.stage.pay_sol(&guard, SOL / 50).await;
    let stranger = maker(&never).await;
    assert_eq!((stranger.tx, stranger.is_payers), (landed.tx, false));
}

fn of(key: &Pubkey) -> Address {
    Address::Solana(key.to_bytes())
}

async fn answered(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
}
