//! What operators ask for at the command line: the transfer is the one that a client would have got, and a refusal bears
//! the code that a client would have been answered.

use axum::http::StatusCode;
use landfall::api::{Refusal, TransferAsked, create_transfer};
use landfall::gas::OverCredit;
use landfall::overrides::Author;
use landfall::registry::Terms;
use landfall::request::Made;
use landfall::transfer::Transfer;

use super::transfers::{Bench, PATH, REQUEST, pay};
use crate::cli::{CONFIG, Desk, text};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, address};

const STRANGER: u8 = 0x77;
const TERMS: Terms = Terms { can_sign: true, over_credit: OverCredit::Bill };

/// The same as [`pay`] asks for.
fn asked(amount: &str) -> TransferAsked {
    TransferAsked {
        request_id: REQUEST.to_owned(),
        account_id: "alice".to_owned(),
        symbol: "USDC".to_owned(),
        amount: amount.to_owned(),
        destination: address(STRANGER).to_string(),
        chain: CHAIN,
    }
}

async fn create(bench: &Bench, asked: TransferAsked, dry_run: bool) -> Result<(Transfer, Made), Refusal> {
    let (networks, world) = ([bench.world.network.clone()], &bench.world);
    let by = Author { actor: "ops", reason: "a refund", now: world.now() };
    create_transfer(world.db(), &networks, (TERMS, dry_run), asked, &by).await
}

async fn audited(bench: &Bench) -> Vec<(String, String)> {
    rows(bench.world.db(), "SELECT actor, what FROM audit WHERE action = 'create_transfer'").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_and_a_client_who_ask_for_the_same_get_the_same_transfer_and_it_is_in_the_audit() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        let (tried, made) = create(&bench, asked("2"), true).await.unwrap();
        assert_eq!((made, bench.count().await, bench.available().await.as_str()), (Made::Now, 0, "10"));
        assert_eq!(audited(&bench).await, []);
        let (transfer, made) = create(&bench, asked("2"), false).await.unwrap();
        assert_eq!((made, transfer.id, bench.available().await.as_str()), (Made::Now, tried.id, "8"));
        let [(actor, what)] = &audited(&bench).await[..] else { panic!("one entry") };
        assert!(
            actor == "ops" && what.contains("2 USDC of alice") && what.contains(&transfer.id.to_string()),
            "{what}"
        );
        assert_eq!(create(&bench, asked("2"), false).await.unwrap(), (transfer.clone(), Made::Before));
        let (status, shown) = bench.post(&pay(REQUEST, "2")).await;
        assert_eq!((status, shown["id"].as_str()), (StatusCode::OK, Some(transfer.id.to_string().as_str())));
        assert_eq!(bench.get(&format!("{PATH}/{}", transfer.id)).await.1, shown);
        assert_eq!((audited(&bench).await.len(), bench.count().await), (1, 1));
        bench.world.close().await;
    }
}

#[tokio::test]
async fn what_a_client_is_refused_an_operator_is_refused_with_the_same_code() {
    let bench = Bench::on(Engine::Sqlite).await;
    let cases = [
        (asked("1e3"), "INVALID_ARGUMENT", "amount"),
        (asked("0"), "INVALID_ARGUMENT", "amount"),
        (TransferAsked { symbol: "DOGE".to_owned(), ..asked("1") }, "INVALID_ARGUMENT", "currency_symbol"),
        (TransferAsked { account_id: "nobody".to_owned(), ..asked("1") }, "INVALID_ARGUMENT", "account_id"),
        (
            TransferAsked { destination: "0x1".to_owned(), ..asked("1") },
            "INVALID_ARGUMENT",
            "address_destination.address",
        ),
        (TransferAsked { request_id: "1".to_owned(), ..asked("1") }, "INVALID_ARGUMENT", "request_id"),
        (TransferAsked { account_id: "bob".to_owned(), ..asked("1") }, "SOURCE_NOT_MANAGED", "bob"),
        (asked("10.000001"), "INSUFFICIENT_FUNDS", "10 USDC are available"),
    ];
    for (asked, code, detail) in cases {
        let refusal = create(&bench, asked.clone(), false).await.unwrap_err();
        assert!(refusal.code == code && refusal.detail.contains(detail), "{asked:?}: {refusal}");
        assert!(!refusal.meaning.is_empty());
    }
    create(&bench, asked("1"), false).await.unwrap();
    let other = create(&bench, asked("2"), false).await.unwrap_err();
    assert_eq!(other.code, "IDEMPOTENCY_MISMATCH");
    assert_eq!((bench.count().await, audited(&bench).await.len()), (1, 1));
    bench.world.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_command_line_a_refusal_has_its_code_and_what_to_do_and_exit_code_2() {
    let bench = Bench::on(Engine::Sqlite).await;
    let transfers = "[transfers]\nsigner = \"unix:signer.sock\"\n";
    let desk = Desk::new(&format!("store.url = \"{}\"\n{transfers}{CONFIG}", bench.world.store.url));
    let to = address(STRANGER).to_string();
    let create = |amount, more: &[&str]| {
        let asked = ["transfer", "create", "alice", "--chain", "ETHEREUM_TESTNET", "--asset", "ETH", "--to", &to];
        let refused = desk.refused(&[&asked[..], &["--amount", amount, "--reason", "a refund"], more].concat());
        // The id comes first: who is refused repeats the request with it, and pays once.
        let (request, refusal) = refused.split_once('\n').unwrap();
        let id = request.rsplit_once(' ').unwrap().1;
        assert_eq!(request, format!("request {id}: repeat it with --request-id {id}"));
        refusal.to_owned()
    };
    let malformed = create("1e3", &[]);
    assert!(
        malformed.starts_with("landfall: INVALID_ARGUMENT: amount ") && malformed.contains(". The request"),
        "{malformed}"
    );
    // The world's time is not this machine's, so nobody knows what Alice has now.
    for more in [&[][..], &["--dry-run"], &["--json"]] {
        let unknown = create("0.000000001", more);
        assert!(unknown.starts_with("landfall: BALANCE_UNKNOWN: ") && unknown.contains("Send it again"), "{unknown}");
    }
    let far = desk.run(&[
        "transfer",
        "create",
        "alice",
        "--chain",
        "BASE_SEPOLIA",
        "--asset",
        "ETH",
        "--to",
        &to,
        "--amount",
        "1",
        "--reason",
        "x",
    ]);
    assert!(text(&far.stderr).contains("BASE_SEPOLIA is not configured") && far.status.code() == Some(2));
    assert_eq!(bench.count().await, 0);
    bench.world.close().await;
}
