//! What an account has: read at final blocks beside the watcher, kept fresh, and never a zero that was not read. The
//! chain's own sums are the judge.

mod readings;

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use landfall::account::{AccountType, NewAccount};
use landfall::api::{self, Limits, Settings};
use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::health::Status;
use landfall::identity::{Change, IdentityType, NewIdentity};
use landfall::key::{ApiKey, Environment, Scope, Scopes};
use landfall::registry;
use landfall::store::balances::{self, Reading};
use landfall::store::cursors::Cursor;
use landfall::time::Clock;
use landfall::watcher::{BalanceWatch, BalancesRead};
use landfall_chain::{Address, Asset, AssetId, BlockHash, BlockRef, Chain, Proof, U256};
use landfall_sim::{SimChain, SimLeg, SimTx};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{
    CHAIN, FAILED_GRACE, FINALITY_DEPTH, TOKEN, World, address, report, report_as, report_by, report_of, tester,
};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const CAROL: u8 = 0xca;
const PAYER: u8 = 0x01;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);

fn router(world: &World, retired: BTreeSet<Chain>, retired_tokens: BTreeSet<(Chain, Address)>) -> Router {
    let limits = Limits { ip_requests_per_sec: 0, key_requests_per_sec: 0, ..Limits::default() };
    let networks = vec![world.network.clone(), landfall_evm::network(Chain::BaseMainnet).unwrap()];
    let settings = Settings { limits, networks, retired, retired_tokens, ..Settings::of(Environment::Test) };
    api::Api::new(world.db().clone(), settings, world.clock()).router()
}

/// A world whose balances are read and served.
struct Bench {
    world: World,
    watch: BalanceWatch<SimChain>,
    router: Router,
    key: String,
    /// Whether its watcher says that it has read all blocks.
    follows: bool,
}

impl Bench {
    /// Where Alice is watched, and a block is final.
    async fn on(engine: Engine) -> Self {
        let mut bench = Bench::of(World::on(engine, 1).await).await;
        bench.world.watch("alice", address(ALICE)).await;
        bench.follow(FINALITY_DEPTH + 1).await;
        bench
    }

    async fn new() -> Self {
        Bench::on(Engine::Sqlite).await
    }

    async fn of(world: World) -> Self {
        let scopes = Scopes::of(&[Scope::Read]).unwrap();
        let random = [1; ApiKey::RANDOM_BYTES];
        let key =
            registry::create_key(world.db(), Environment::Test, ("test", &scopes), &random, &tester(world.now())).await;
        let key = key.unwrap().reveal();
        let mut bench = Bench::again(world, key);
        // The assets are followed from the first block on.
        assert_eq!(bench.read().await, BalancesRead::default());
        bench
    }

    /// As after a restart, with the assets that the world's network lists now.
    async fn restarted(mut self) -> Self {
        self.watch.release().await.unwrap();
        let mut bench = Bench::again(self.world, self.key);
        let assets = bench.world.network.assets.clone();
        bench.world.restart_listing(assets);
        bench
    }

    fn again(world: World, key: String) -> Self {
        let (watch, router) = (watch(&world, "one"), router(&world, BTreeSet::new(), BTreeSet::new()));
        Bench { watch, world, router, key, follows: true }
    }

    /// Mines empty blocks, and follows the chain to its end.
    async fn follow(&mut self, blocks: u64) {
        self.world.chain.mine_empty(blocks);
        self.world.catch_up().await;
    }

    /// As [`Bench::follow`], where a block cannot be traced.
    async fn follow_for_now(&mut self, blocks: u64) {
        self.world.chain.mine_empty(blocks);
        for _ in 0..20 {
            self.world.tick_or_fail_for_now().await;
        }
    }

    async fn read(&mut self) -> BalancesRead {
        self.watch.tick(self.world.now(), 0).await.unwrap()
    }

    /// Reads until nothing is due.
    async fn read_all(&mut self) {
        for _ in 0..1_000 {
            if self.read().await == BalancesRead::default() {
                return;
            }
        }
        panic!("there is always something due");
    }

    /// Until all that leaves is seen of whatever was added.
    async fn read_whole(&mut self) {
        self.follow(FINALITY_DEPTH).await;
        self.read_all().await;
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        if self.follows {
            report(&self.world).await;
        }
        let request = Request::builder().uri(path).header(header::AUTHORIZATION, format!("Bearer {}", self.key));
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (status, retry) = (response.status(), response.headers().get(header::RETRY_AFTER).cloned());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        let passes = body["detail"].as_str().is_some_and(|detail| detail.ends_with("; send it again later"));
        assert_eq!(passes, retry.is_some(), "{body}");
        (status, body)
    }

    async fn balances(&self, account: &str) -> (StatusCode, Value) {
        self.get(&format!("/v2/accounts/{account}/balances")).await
    }

    /// What the account has of an asset, in base units: in total, available, and at which block.
    async fn line(&self, account: &str, symbol: &str) -> (U256, U256, u64) {
        let (status, body) = self.balances(account).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let lines = body["balances"].as_array().unwrap();
        let mut found = lines.iter().filter(|line| line["symbol"] == symbol);
        let line = found.next().unwrap();
        assert_eq!(found.next(), None, "one line for each asset");
        let decimals = u8::try_from(line["decimals"].as_u64().unwrap()).unwrap();
        let [total, available] = ["total", "available"]
            .map(|field| landfall::amount::from_decimal(line[field].as_str().unwrap(), decimals).unwrap());
        (total, available, line["as_of_block"].as_u64().unwrap())
    }

    /// What the chain says that an address had after a block.
    fn has(&self, who: u8, asset: &AssetId, number: u64) -> U256 {
        self.world.chain.balance(&address(who), asset, number)
    }

    fn final_number(&self) -> u64 {
        self.world.chain.finalized().unwrap().number
    }

    async fn assert_unknown(&self, account: &str, chains: &str) {
        self.assert_refused(&format!("{account}/balances"), &format!("{chains} is not known; send it again later"))
            .await;
    }

    /// Until somebody acts: nobody is asked to come back.
    async fn assert_unknown_until(&self, path: &str, chains: &str, remedy: &str) {
        self.assert_refused(path, &format!("{chains} is not known until an operator {remedy}")).await;
    }

    async fn assert_refused(&self, path: &str, what: &str) {
        let (status, body) = self.get(&format!("/v2/accounts/{path}")).await;
        assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("BALANCE_UNKNOWN")), "{body}");
        assert_eq!(body["detail"], format!("what this account has on {what}"));
    }
}

fn watch(world: &World, owner: &str) -> BalanceWatch<SimChain> {
    watch_by(world, owner, 20)
}

/// As [`watch`], with so many addresses at once.
fn watch_by(world: &World, owner: &str, most: u32) -> BalanceWatch<SimChain> {
    BalanceWatch::new(world.chain.clone(), world.db().clone(), &world.network, most, owner.to_owned())
}

/// The way out where these tokens are no longer listed.
fn lists(tokens: &str) -> String {
    format!("lists {tokens} in [chains.ETHEREUM_TESTNET] again, or in its `retired`")
}

fn asset(who: u8, symbol: &str) -> Asset {
    Asset { id: AssetId::Token(address(who)), symbol: symbol.to_owned(), decimals: 6, from_block: 0, route: None }
}

fn pay(from: u8, nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(address(from), nonce, vec![SimLeg::native(address(from), address(to), amount)])
}

/// `PAYER` pays somebody with this token.
fn pay_of(asset: AssetId, nonce: u64, to: u8, amount: u64) -> SimTx {
    let leg = SimLeg { asset, ..SimLeg::native(address(PAYER), address(to), amount) };
    SimTx::new(address(PAYER), nonce, vec![leg])
}

fn pay_token(from: u8, nonce: u64, to: u8, amount: u64) -> SimTx {
    SimTx::new(
        address(from),
        nonce,
        vec![SimLeg { asset: TOKEN, ..SimLeg::native(address(from), address(to), amount) }],
    )
}

/// As if this had been read at the final block.
async fn set_amount(bench: &Bench, who: u8, asset: AssetId, amount: u64) {
    let (address, amount, number) = (&address(who), U256::from(amount), bench.final_number());
    let reading = Reading { address, asset, amount, number, hash: None, proof: Proof::TwoEndpoints };
    let mut tx = bench.world.db().begin().await.unwrap();
    assert!(balances::set(&mut tx, CHAIN, &reading, true, bench.world.now()).await.unwrap());
    tx.commit().await.unwrap();
}

async fn add(world: &World, account: &str, addresses: &[(Chain, Address)]) {
    let addresses = addresses.iter().copied().collect();
    let account = NewAccount { id: account.to_owned(), identity_id: None, kind: AccountType::Omnibus, addresses };
    registry::add_accounts(world.db(), &[account], world.now()).await.unwrap();
}

#[tokio::test]
async fn a_balance_is_read_at_once_and_is_never_a_zero_that_was_not_read() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
        assert_eq!(bench.read().await, BalancesRead { read: 1, unreported: 0, lacking: 0 });
        let at = bench.final_number();
        let [eth, usdc] = [AssetId::Native, TOKEN].map(|asset| bench.has(ALICE, &asset, at));
        let time = bench.world.now().to_string();
        let line = |symbol: &str, amount: U256, decimals: u8, kind: &str, contract: &str| {
            let amount = landfall::amount::to_decimal(amount, decimals);
            json!({
                "symbol": symbol, "total": amount, "available": amount, "decimals": decimals, "type": kind,
                "chain": "ETHEREUM_TESTNET", "contract_address": contract, "as_of_block": at, "as_of_time": time,
            })
        };
        let contract = TOKEN.to_string();
        let expected =
            json!({ "balances": [line("ETH", eth, 18, "BASE", ""), line("USDC", usdc, 6, "ERC20_TOKEN", &contract)] });
        assert_eq!(bench.balances("alice").await, (StatusCode::OK, expected.clone()));
        assert_eq!(bench.get("/v2/accounts/alice/balances?chain=ETHEREUM_TESTNET").await, (StatusCode::OK, expected));
        // She has no address there.
        let none = json!({ "balances": [] });
        assert_eq!(bench.get("/v2/accounts/alice/balances?chain=BASE_MAINNET").await, (StatusCode::OK, none));
        assert_eq!(bench.read().await, BalancesRead::default(), "nothing is read without a reason");
        bench.world.close().await;
    }
}

#[tokio::test]
async fn what_moved_is_read_once_it_is_final_and_what_left_is_not_available_before() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.read_all().await;
        let before = bench.final_number();
        let had = bench.has(ALICE, &AssetId::Native, before);
        let unchanged = (had, had, before);

        bench.world.chain.mine(vec![pay(PAYER, 0, ALICE, 5_000)]);
        bench.world.catch_up().await;
        bench.read_all().await;
        assert_eq!(bench.world.status_of(5_000).await, Pending);
        assert_eq!(bench.line("alice", "ETH").await, unchanged, "a deposit that is pending is not there");
        bench.follow(FINALITY_DEPTH).await;
        assert_eq!(bench.read().await.read, 1);
        let at = bench.final_number();
        assert_eq!(bench.world.status_of(5_000).await, Confirmed);
        assert_eq!(bench.line("alice", "ETH").await, (had + U256::from(5_000), had + U256::from(5_000), at));
        assert_eq!(bench.line("alice", "ETH").await.0, bench.has(ALICE, &AssetId::Native, at));

        // Somebody with her key pays without us: 700 and the fee, and 30 of the token.
        let had = bench.has(ALICE, &AssetId::Native, at);
        let tokens = bench.has(ALICE, &TOKEN, at);
        bench.world.chain.mine(vec![pay(ALICE, 0, BOB, 700), pay_token(ALICE, 1, BOB, 30)]);
        bench.world.catch_up().await;
        bench.read_all().await;
        let newest = bench.world.chain.latest().number;
        let left = bench.has(ALICE, &AssetId::Native, newest);
        assert!(left < had - U256::from(700), "there is a fee");
        assert_eq!(bench.line("alice", "ETH").await, (had, left, at), "it may not be spent twice");
        assert_eq!(bench.line("alice", "USDC").await, (tokens, tokens - U256::from(30), at));
        bench.follow(FINALITY_DEPTH).await;
        bench.read_all().await;
        let at = bench.final_number();
        assert_eq!(bench.line("alice", "ETH").await, (left, left, at));
        assert_eq!(bench.line("alice", "USDC").await.0, bench.has(ALICE, &TOKEN, at));
        assert_eq!(bench.read().await, BalancesRead::default());
        bench.world.close().await;
    }
}

#[tokio::test]
async fn what_a_reorg_took_back_is_available_again() {
    let mut bench = Bench::new().await;
    bench.read_all().await;
    let before = bench.line("alice", "ETH").await;
    let fork = bench.world.chain.latest().number;
    bench.world.chain.mine(vec![pay(ALICE, 0, BOB, 700)]);
    bench.world.catch_up().await;
    assert!(bench.line("alice", "ETH").await.1 < before.1);
    bench.world.chain.fork_at(fork);
    bench.follow(2).await;
    assert_eq!(bench.line("alice", "ETH").await, before);
    bench.world.close().await;
}

#[tokio::test]
async fn a_deposit_in_a_final_block_that_is_not_confirmed_is_in_the_total_and_not_available() {
    for engine in ENGINES {
        let mut bench = Bench::of(World::traced(engine, 1).await).await;
        bench.world.watch("alice", address(ALICE)).await;
        bench.follow(FINALITY_DEPTH + 1).await;
        bench.read_all().await;
        let (had, ..) = bench.line("alice", "ETH").await;
        // Nobody corroborates what one endpoint's trace shows.
        bench.world.chain.withhold_balances(true);
        let leg = SimLeg::inner(address(PAYER), address(ALICE), 5_000);
        bench.world.chain.mine(vec![SimTx::new(address(PAYER), 0, vec![leg])]);
        bench.follow(FINALITY_DEPTH).await;
        bench.read_all().await;
        assert_eq!(bench.world.status_of(5_000).await, Pending);
        let at = bench.final_number();
        assert_eq!(bench.line("alice", "ETH").await, (had + U256::from(5_000), had, at));
        bench.world.chain.withhold_balances(false);
        bench.world.pass(MINUTE * 60);
        bench.follow(1).await;
        assert_eq!(bench.world.status_of(5_000).await, Confirmed);
        let line = bench.line("alice", "ETH").await;
        assert_eq!((line.0, line.1), (had + U256::from(5_000), had + U256::from(5_000)));
        bench.world.close().await;
    }
}

#[tokio::test]
async fn a_chain_that_is_not_known_is_named_and_no_other_takes_its_place() {
    let mut bench = Bench::new().await;
    let who = address(BOB);
    add(&bench.world, "bob", &[(CHAIN, who), (Chain::BaseMainnet, who), (Chain::PolygonMainnet, who)]).await;
    bench.assert_unknown("bob", "ETHEREUM_TESTNET, BASE_MAINNET").await;
    bench.read_whole().await;
    bench.assert_unknown("bob", "BASE_MAINNET").await;
    let (status, body) = bench.get("/v2/accounts/bob/balances?chain=ETHEREUM_TESTNET").await;
    assert_eq!((status, body["balances"].as_array().unwrap().len()), (StatusCode::OK, 2), "{body}");
    bench.assert_refused("bob/balances?chain=BASE_MAINNET", "BASE_MAINNET is not known; send it again later").await;
    let polygon = "POLYGON_MAINNET";
    bench.assert_unknown_until("bob/balances?chain=POLYGON_MAINNET", polygon, "follows POLYGON_MAINNET").await;
    bench.world.close().await;
}

#[tokio::test]
async fn a_chain_that_was_followed_and_is_left_out_of_the_configuration_is_named_and_never_a_missing_line() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let (who, polygon) = (address(BOB), Chain::PolygonMainnet);
        add(&bench.world, "bob", &[(CHAIN, who), (polygon, who)]).await;
        add(&bench.world, "carol", &[(CHAIN, address(CAROL))]).await;
        bench.read_whole().await;
        // What nobody ever followed is no line that is missing.
        assert_eq!(bench.balances("bob").await.1["balances"].as_array().unwrap().len(), 2);
        let mut tx = bench.world.db().begin().await.unwrap();
        Cursor::place(&mut tx, polygon, &BlockRef { number: 7, hash: BlockHash([7; 32]) }).await.unwrap();
        tx.commit().await.unwrap();
        let remedy = "follows POLYGON_MAINNET again, or names it in `retired`";
        for path in ["bob/balances", "bob/balances?symbol=USDC"] {
            bench.assert_unknown_until(path, "POLYGON_MAINNET", remedy).await;
        }
        for path in ["bob/balances?chain=ETHEREUM_TESTNET", "carol/balances"] {
            let (status, body) = bench.get(&format!("/v2/accounts/{path}")).await;
            assert_eq!((status, body["balances"].as_array().unwrap().len()), (StatusCode::OK, 2), "{path}: {body}");
        }
        // Until somebody says that it was given up for good.
        bench.router = router(&bench.world, BTreeSet::from([polygon]), BTreeSet::new());
        assert_eq!(bench.balances("bob").await.1["balances"].as_array().unwrap().len(), 2);
        let path = "bob/balances?chain=POLYGON_MAINNET";
        bench.assert_unknown_until(path, "POLYGON_MAINNET", "follows POLYGON_MAINNET").await;
        bench.world.close().await;
    }
}

#[tokio::test]
async fn an_asset_that_is_no_longer_listed_is_named_where_there_was_some_and_never_a_missing_line() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let [read, deposited] = [asset(0x72, "EURC"), asset(0x73, "DAI")];
        bench.world.network.assets.extend([read.clone(), deposited.clone()]);
        let mut bench = bench.restarted().await;
        add(&bench.world, "carol", &[(CHAIN, address(CAROL))]).await;
        bench.read().await;
        bench.read_whole().await;
        // Of one of them Alice has got some that nobody has read yet.
        bench.world.chain.mine(vec![pay_of(deposited.id, 0, ALICE, 5)]);
        bench.world.catch_up().await;
        let lines = bench.balances("alice").await.1["balances"].as_array().unwrap().len();
        assert_eq!(lines, 4);
        for number in [0x72, 0x73] {
            set_amount(&bench, CAROL, AssetId::Token(address(number)), 0).await;
        }
        set_amount(&bench, ALICE, deposited.id, 0).await;
        set_amount(&bench, ALICE, read.id, 9).await;
        bench.world.network.assets.truncate(2);
        let mut bench = bench.restarted().await;
        let [first, second] = [read.id.to_string(), deposited.id.to_string()];
        let both = format!("{first}, {second}");
        let unknown = |tokens: &str| format!("ETHEREUM_TESTNET ({tokens})");
        bench.assert_unknown_until("alice/balances", &unknown(&both), &lists(&both)).await;
        // What passes is named with it, and is no reason to come back.
        bench.follows = false;
        bench.world.pass(MINUTE * 6);
        bench.assert_unknown_until("alice/balances", "ETHEREUM_TESTNET", &lists(&both)).await;
        bench.follows = true;
        // A symbol that the chain lists now may be the one that she had; which one had been read is not known.
        bench.world.network.assets[1].symbol = "DAI".to_owned();
        let mut bench = bench.restarted().await;
        // Not even when she got that, too.
        let now_dai = bench.world.network.assets[1].id;
        bench.world.chain.mine(vec![pay_of(now_dai, 1, ALICE, 6)]);
        bench.world.catch_up().await;
        for (symbol, tokens) in [("ETH", &first), ("DAI", &both)] {
            let path = format!("alice/balances?symbol={symbol}");
            bench.assert_unknown_until(&path, &unknown(tokens), &lists(tokens)).await;
        }
        let none = json!({ "balances": [] });
        assert_eq!(bench.get("/v2/accounts/alice/balances?chain=BASE_MAINNET").await, (StatusCode::OK, none));
        let (status, body) = bench.balances("carol").await;
        assert_eq!((status, body["balances"].as_array().unwrap().len()), (StatusCode::OK, 2), "{body}");
        // Until somebody says that they were given up for good, each of them.
        let tokens = [address(0x72), address(0x73)].map(|token| (CHAIN, token));
        bench.router = router(&bench.world, BTreeSet::new(), tokens[..1].iter().copied().collect());
        bench.assert_unknown_until("alice/balances", &unknown(&second), &lists(&second)).await;
        bench.router = router(&bench.world, BTreeSet::new(), tokens.into());
        assert_eq!(bench.balances("alice").await.1["balances"].as_array().unwrap().len(), 2);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn a_deposit_that_failed_makes_nothing_unknown_of_a_token_that_is_no_longer_listed() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let token = asset(0x72, "EURC");
        bench.world.network.assets.push(token.clone());
        let mut bench = bench.restarted().await;
        add(&bench.world, "bob", &[(CHAIN, address(BOB))]).await;
        bench.read().await;
        bench.read_whole().await;
        bench.world.chain.mine(vec![pay_of(token.id, 0, BOB, 5)]);
        bench.follow(FINALITY_DEPTH).await;
        bench.world.chain.mine(vec![pay_of(token.id, 1, ALICE, 6), pay_of(token.id, 2, BOB, 7)]);
        bench.world.catch_up().await;
        bench.world.chain.fork_at(bench.world.chain.latest().number - 1);
        for _ in 0..3 {
            bench.follow(FINALITY_DEPTH).await;
            bench.world.pass(FAILED_GRACE);
        }
        assert_eq!([bench.world.status_of(6).await, bench.world.status_of(7).await], [Failed; 2]);
        bench.read_all().await;
        bench.follow(1).await;
        for who in [ALICE, BOB] {
            set_amount(&bench, who, token.id, 0).await;
        }
        bench.world.network.assets.truncate(2);
        let bench = bench.restarted().await;
        let (status, body) = bench.balances("alice").await;
        assert_eq!((status, body["balances"].as_array().map(Vec::len)), (StatusCode::OK, Some(2)), "{body}");
        // Bob got some before.
        let token = token.id.to_string();
        bench.assert_unknown_until("bob/balances", &format!("ETHEREUM_TESTNET ({token})"), &lists(&token)).await;
        bench.world.abandon();
    }
}

#[tokio::test]
async fn of_tokens_that_had_one_symbol_one_after_the_other_each_that_was_deposited_is_named() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let always = bench.world.network.assets.clone();
        let in_turn = [0x72, 0x73, 0x74].map(|number| asset(number, "DAI"));
        for (nonce, token) in (0..).zip(&in_turn) {
            bench.world.network.assets = [&always[..], std::slice::from_ref(token)].concat();
            bench = bench.restarted().await;
            bench.read_whole().await;
            bench.world.chain.mine(vec![pay_of(token.id, nonce, ALICE, 5 + nonce)]);
            bench.follow(FINALITY_DEPTH).await;
            bench.read_all().await;
            // All of it has left.
            bench.follow(1).await;
            set_amount(&bench, ALICE, token.id, 0).await;
            bench.world.pass(MINUTE);
        }
        bench.world.network.assets = always;
        let bench = bench.restarted().await;
        let tokens = in_turn.map(|token| token.id.to_string()).join(", ");
        bench.assert_unknown_until("alice/balances", &format!("ETHEREUM_TESTNET ({tokens})"), &lists(&tokens)).await;
        let (_, body) = bench.get("/v2/crypto/deposits?account_id=alice&currency_symbol=DAI").await;
        let amounts: Vec<_> = body["deposits"].as_array().unwrap().iter().map(|deposit| &deposit["amount"]).collect();
        assert_eq!(amounts, ["0.000007", "0.000006", "0.000005"], "{body}");
        bench.world.abandon();
    }
}

#[tokio::test]
async fn an_address_that_was_added_makes_its_account_unknown_until_it_is_read() {
    let mut bench = Bench::new().await;
    bench.read_all().await;
    let (total, ..) = bench.line("alice", "ETH").await;
    let second = NewAccount {
        id: "alice".to_owned(),
        identity_id: None,
        kind: AccountType::Segregated,
        addresses: [(CHAIN, address(BOB))].into(),
    };
    registry::add_accounts(bench.world.db(), &[second], bench.world.now()).await.unwrap();
    bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
    bench.read_whole().await;
    let at = bench.final_number();
    assert_eq!(bench.line("alice", "ETH").await.0, total + bench.has(BOB, &AssetId::Native, at));

    // Between her own addresses nothing comes and nothing goes, whenever one looks.
    bench.world.chain.mine(vec![pay_token(ALICE, 0, BOB, 40)]);
    let sum = |bench: &Bench, at| bench.has(ALICE, &TOKEN, at) + bench.has(BOB, &TOKEN, at);
    let had = sum(&bench, at);
    for _ in 0..=FINALITY_DEPTH {
        bench.follow(1).await;
        bench.read().await;
        let (total, available, _) = bench.line("alice", "USDC").await;
        assert_eq!(total, had);
        assert!(available <= total);
    }
    assert_eq!(bench.line("alice", "USDC").await.1, had);
    bench.world.close().await;
}

#[tokio::test]
async fn an_asset_that_is_listed_later_makes_accounts_unknown_until_it_is_read() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.read_all().await;
        let third = asset(0x72, "EURC");
        bench.world.network.assets.push(third.clone());
        let mut bench = bench.restarted().await;
        bench.assert_unknown("alice", "ETHEREUM_TESTNET (EURC)").await;
        assert_eq!(bench.read().await, BalancesRead { read: 1, unreported: 0, lacking: 1 });
        // Some of it may have left while nobody looked for it.
        bench.assert_unknown("alice", "ETHEREUM_TESTNET (EURC)").await;
        let (status, body) = bench.get("/v2/accounts/alice/balances?symbol=USDC").await;
        assert_eq!((status, &body["balances"][0]["symbol"]), (StatusCode::OK, &json!("USDC")), "{body}");
        assert_eq!(body["balances"].as_array().unwrap().len(), 1, "{body}");
        bench.read_whole().await;
        let at = bench.final_number();
        assert_eq!(bench.line("alice", "EURC").await.0, bench.has(ALICE, &third.id, at));
        bench.world.close().await;
    }
}

#[tokio::test]
async fn nothing_of_a_frozen_or_closed_account_is_available_and_all_of_it_is_reported() {
    let mut bench = Bench::new().await;
    let acme = NewIdentity { kind: IdentityType::Business, label: "Acme".to_owned(), fiat_operations_enabled: false };
    registry::add_identity(bench.world.db(), "acme", &acme, bench.world.now()).await.unwrap();
    let account = NewAccount {
        id: "bob".to_owned(),
        identity_id: Some("acme".to_owned()),
        kind: AccountType::Segregated,
        addresses: [(CHAIN, address(BOB))].into(),
    };
    registry::add_accounts(bench.world.db(), &[account], bench.world.now()).await.unwrap();
    bench.read_whole().await;
    let (total, available, at) = bench.line("bob", "ETH").await;
    assert_eq!(total, available);
    for change in [Change::Suspend, Change::Terminate] {
        bench.world.operator().change_identity(bench.world.db(), "acme", change).await.unwrap();
        assert_eq!(bench.line("bob", "ETH").await, (total, U256::ZERO, at));
    }
    // What comes is in it all the same.
    bench.world.chain.mine(vec![pay(PAYER, 0, BOB, 5_000)]);
    bench.follow(FINALITY_DEPTH).await;
    bench.read_all().await;
    assert_eq!(bench.line("bob", "ETH").await, (total + U256::from(5_000), U256::ZERO, bench.final_number()));
    bench.world.close().await;
}

#[tokio::test]
async fn what_is_not_understood_is_refused_and_an_unknown_account_is_not_found() {
    let bench = Bench::new().await;
    for path in ["nobody/balances", "nobody/balances?chain=BASE_MAINNET", "%FF/balances"] {
        let (status, body) = bench.get(&format!("/v2/accounts/{path}")).await;
        assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("NOT_FOUND")), "{path}");
    }
    for query in
        ["chain=", "chain=base_mainnet", "chain=BASE_MAINNET&chain=BASE_MAINNET", "limit=5", "asset=USDC", "symbol="]
    {
        let (status, body) = bench.get(&format!("/v2/accounts/alice/balances?{query}")).await;
        assert_eq!((status, &body["code"]), (StatusCode::BAD_REQUEST, &json!("INVALID_ARGUMENT")), "{query}");
    }
    let (status, body) = bench.get("/v2/accounts/alice/balances?symbol=usdc").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    let detail = "is listed by no chain that is followed: `GET /v2/assets` shows which are";
    assert_eq!(body["errors"], json!([{ "parameter": "symbol", "detail": detail }]));
    bench.world.close().await;
}

#[tokio::test]
async fn what_may_have_left_an_address_before_it_was_watched_is_not_available() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        // Nobody looks for what leaves Bob yet.
        bench.world.chain.mine(vec![pay(BOB, 0, PAYER, 700)]);
        bench.world.catch_up().await;
        bench.world.watch("bob", address(BOB)).await;
        bench.read_all().await;
        let watched_from = bench.world.chain.latest().number + 1;
        for final_number in bench.final_number()..watched_from - 1 {
            assert_eq!(bench.final_number(), final_number);
            bench.assert_unknown("bob", "ETHEREUM_TESTNET").await;
            bench.follow(1).await;
            bench.read_all().await;
        }
        let at = bench.final_number();
        let has = bench.has(BOB, &AssetId::Native, at);
        assert_eq!(bench.line("bob", "ETH").await, (has, has, at));
        bench.world.close().await;
    }
}

#[tokio::test]
async fn what_left_while_its_asset_was_not_listed_is_not_available_when_it_is_listed_again() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.read_all().await;
        let known = bench.line("alice", "USDC").await;
        let (without, with) = (vec![bench.world.network.assets[0].clone()], bench.world.network.assets.clone());
        bench.world.network.assets = without;
        let mut bench = bench.restarted().await;
        bench.read_all().await;
        bench.world.chain.mine(vec![pay_token(ALICE, 0, BOB, 30)]);
        bench.world.catch_up().await;
        bench.world.network.assets = with;
        let mut bench = bench.restarted().await;
        bench.read().await;
        bench.assert_unknown("alice", "ETHEREUM_TESTNET (USDC)").await;
        bench.read_whole().await;
        let has = known.0 - U256::from(30);
        assert_eq!(bench.line("alice", "USDC").await, (has, has, bench.final_number()));
        bench.world.abandon();
    }
}

/// What the status report warns of.
async fn alarms(bench: &Bench) -> Vec<String> {
    report(&bench.world).await;
    let status = Status::read(bench.world.db(), bench.world.now()).await.unwrap();
    status.chains[0].alarms.clone()
}

#[tokio::test]
async fn an_address_that_is_not_reported_of_an_asset_is_named_with_it_and_since_when() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.chain.leave_unreported([TOKEN]);
        let since = bench.world.now();
        assert_eq!(bench.read().await.unreported, 1);
        let eth = bench.has(ALICE, &AssetId::Native, bench.final_number());
        let (_, body) = bench.get("/v2/accounts/alice/balances?symbol=ETH").await;
        assert_eq!(body["balances"][0]["total"], landfall::amount::to_decimal(eth, 18), "{body}");
        let mut asked = 1;
        for _ in 0..60 {
            bench.world.pass(MINUTE);
            bench.read().await;
            asked = bench.world.chain.holdings_reported();
        }
        assert!((3..=9).contains(&asked), "it is asked for again and less and less often: {asked}");
        let who = address(ALICE);
        let expected = [
            format!("balances: since {since} no endpoint reports who holds how much of {TOKEN}"),
            format!("balances: since {since} endpoints do not report alike how much of USDC {who} holds"),
        ];
        assert_eq!(alarms(&bench).await, expected);
        bench.world.chain.leave_unreported([]);
        bench.world.pass(MINUTE * 60);
        bench.read_all().await;
        assert_eq!(alarms(&bench).await, [""; 0]);
        assert_eq!(bench.line("alice", "USDC").await.0, bench.has(ALICE, &TOKEN, bench.final_number()));
        bench.world.close().await;
    }
}

#[tokio::test]
async fn nothing_is_reported_of_a_chain_that_is_halted_or_whose_newest_blocks_are_long_unread() {
    let mut bench = Bench::new().await;
    bench.read_all().await;
    let known = bench.line("alice", "ETH").await;
    bench.follows = false;
    bench.world.pass(MINUTE * 5);
    assert_eq!(bench.line("alice", "ETH").await, known);
    bench.world.pass(Duration::from_secs(1));
    bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
    // A block that was final may have been replaced.
    report_as(&bench.world, "halted").await;
    bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
    bench.follows = true;
    assert_eq!(bench.line("alice", "ETH").await, known);
    bench.world.close().await;
}

#[tokio::test]
async fn nothing_is_reported_of_a_chain_by_a_watcher_whose_clock_is_ahead_of_ours() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.read_all().await;
        let known = bench.line("alice", "ETH").await;
        bench.follows = false;
        for (ahead_secs, is_reported) in [(30, true), (31, false), (600, false)] {
            let (world, now) = (&bench.world, bench.world.now());
            let ahead = Clock::new(move || now.plus(Duration::from_secs(ahead_secs)));
            report_by(world, "following", &ahead).await;
            if is_reported {
                assert_eq!(bench.line("alice", "ETH").await, known);
            } else {
                bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
            }
        }
        // Its clock was put right, and its chain has not been read to the end since: what it said before is no time
        // that was.
        let ahead = bench.world.now().plus(Duration::from_secs(600));
        report_of(&bench.world, "failing", ahead, bench.world.now()).await;
        bench.assert_unknown("alice", "ETHEREUM_TESTNET").await;
        bench.world.close().await;
    }
}

#[tokio::test]
async fn what_may_have_left_in_a_block_that_long_waits_for_its_trace_is_not_available() {
    for engine in ENGINES {
        let mut bench = Bench::of(World::traced(engine, 1).await).await;
        bench.world.watch("alice", address(ALICE)).await;
        bench.follow(FINALITY_DEPTH + 1).await;
        bench.read_all().await;
        let (had, available, _) = bench.line("alice", "ETH").await;
        assert_eq!(had, available);
        // A contract pays 700 of hers out. The chain is followed to its end, and that block cannot be traced.
        let paid_at = bench.world.chain.latest().number + 1;
        bench.world.chain.withhold_traces([paid_at]);
        let leg = SimLeg::inner(address(ALICE), address(BOB), 700);
        bench.world.chain.mine(vec![SimTx::new(address(PAYER), 0, vec![leg])]);
        bench.follow_for_now(1).await;
        bench.assert_unknown("alice", "ETHEREUM_TESTNET (ETH)").await;
        let (status, body) = bench.get("/v2/accounts/alice/balances?symbol=USDC").await;
        assert_eq!((status, body["balances"][0]["symbol"].as_str()), (StatusCode::OK, Some("USDC")), "{body}");
        // Her account is frozen: nothing may leave, and what is there is reported.
        bench.world.operator().change_identity(bench.world.db(), "default", Change::Suspend).await.unwrap();
        assert_eq!(bench.line("alice", "ETH").await, (had, U256::ZERO, bench.final_number() - 2));
        bench.world.operator().change_identity(bench.world.db(), "default", Change::Reinstate).await.unwrap();
        bench.assert_unknown("alice", "ETHEREUM_TESTNET (ETH)").await;

        if engine == Engine::Sqlite {
            // The block is traced after all.
            bench.world.chain.withhold_traces([]);
            bench.world.pass(MINUTE * 10);
            bench.world.catch_up().await;
            assert_eq!(bench.line("alice", "ETH").await.1, had - U256::from(700));
        } else {
            // It never is, and she is read behind it: what left by it is in that.
            bench.follow_for_now(FINALITY_DEPTH).await;
            bench.assert_unknown("alice", "ETHEREUM_TESTNET (ETH)").await;
            bench.world.pass(DAY + MINUTE);
            bench.read_all().await;
            let at = bench.final_number();
            assert!(at >= paid_at);
            let left = bench.has(ALICE, &AssetId::Native, at);
            assert_eq!(left, had - U256::from(700));
            assert_eq!(bench.line("alice", "ETH").await, (left, left, at));
            bench.world.chain.withhold_traces([]);
            bench.world.pass(MINUTE * 10);
            bench.world.catch_up().await;
        }
        bench.world.close().await;
    }
}
