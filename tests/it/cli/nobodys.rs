//! Addresses that are nobody's: refused in each way to add one (that of the API: `api_accounts`). One that became
//! nobody's later is still watched, and `status` reports it.

use landfall::deposit::DepositStatus::Pending;
use landfall_chain::{Address, Chain, Family};
use landfall_sim::{SimLeg, SimTx};

use crate::cli::{CONFIG, Desk};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{World, address, report};
use crate::past::long_lists::run;

const ZERO: &str = "0x0000000000000000000000000000000000000000";
/// Somebody's.
const OTHER: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

/// Chains, address, and what is reported of it.
fn cases() -> [(&'static str, &'static str, &'static str); 8] {
    [
        ("ETHEREUM_TESTNET", ZERO, "the zero address"),
        ("ETHEREUM_MAINNET", "0x0000000000000000000000000000000000000011", "a precompile"),
        ("POLYGON_MAINNET", "0x0000000000000000000000000000000000000100", "a precompile"),
        ("POLYGON_AMOY", "0x0000000000000000000000000000000000001010", "a system contract of Polygon"),
        ("BASE_MAINNET", "0x42000000000000000000000000000000000007ff", "a predeploy of the OP stack"),
        ("SOLANA_MAINNET", "11111111111111111111111111111111", "the system program"),
        ("SOLANA_MAINNET", "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA", "a token program"),
        ("SOLANA_DEVNET", "SysvarC1ock11111111111111111111111111111111", "a sysvar"),
    ]
}

#[test]
fn an_address_that_is_nobodys_is_refused_by_account_add_and_by_import() {
    let desk = Desk::new(CONFIG);
    desk.ok(&["migrate"]);
    for (chain, address, what) in cases() {
        let shown = Address::parse(chain.parse::<Chain>().unwrap().family(), address).unwrap();
        let expected = format!("{shown} on {chain} is {what}: nobody can spend what is sent there");
        let spec = format!("{chain}={address}");
        let refused = desk.refused(&["account", "add", "--account", "a", "--type", "OMNIBUS", "--address", &spec]);
        assert_eq!(refused, format!("landfall: {expected}"));

        let rows = format!(
            "account_id,type,chains,address\nb,SEGREGATED,ETHEREUM_TESTNET,{OTHER}\nb,SEGREGATED,{chain},{address}\n"
        );
        std::fs::write(desk.path("accounts.csv"), rows).unwrap();
        let refused = desk.refused(&["account", "import", "accounts.csv"]);
        assert_eq!(refused, format!("landfall: accounts.csv: nothing was imported: line 3: {expected}"));
        assert_eq!(desk.ok(&["account", "list"]), "");
    }
    // What is reserved on one chain may be somebody's on another.
    let spec = "ETHEREUM_MAINNET=0x4200000000000000000000000000000000000006";
    desk.ok(&["account", "add", "--account", "a", "--type", "OMNIBUS", "--address", spec]);
}

/// As if it had become nobody's later.
async fn watch_all_the_same(world: &World, engine: Engine, account: &str, address: Address) {
    world.watch(account, crate::harness::world::address(0xdd)).await;
    let literal = |address: &Address| match engine {
        Engine::Postgres => format!("decode('{}', 'hex')", hex::encode(address.as_bytes())),
        Engine::Sqlite => format!("x'{}'", hex::encode(address.as_bytes())),
    };
    for table in ["watched_addresses", "balances_due"] {
        let [old, new] = [literal(&crate::harness::world::address(0xdd)), literal(&address)];
        run(world.db(), format!("UPDATE {table} SET address = {new} WHERE address = {old}")).await;
    }
}

#[tokio::test]
async fn an_address_that_became_nobodys_later_goes_on_and_status_reports_it() {
    for engine in ENGINES {
        let mut world = World::on(engine, 1).await;
        world.watch("alice", address(0xa1)).await;
        assert_eq!(report(&world).await.nobodys, []);
        let zero = Address::parse(Family::Evm, ZERO).unwrap();
        watch_all_the_same(&world, engine, "old", zero).await;
        world.chain.mine(vec![SimTx::new(address(1), 0, vec![SimLeg::native(address(1), zero, 5)])]);
        world.catch_up().await;
        assert_eq!(world.status_of(5).await, Pending, "it goes on");

        let reported = report(&world).await;
        let [entry] = reported.nobodys.as_slice() else { panic!("one: {:?}", reported.nobodys) };
        assert_eq!((entry.address.as_str(), entry.account_id.as_str()), (ZERO, "old"));
        assert!(reported.alarms.is_empty(), "nobody can take it out: {:?}", reported.alarms);
        let expected = format!(
            "{ZERO} of account old is the zero address: nobody can spend what is sent there, and it is credited all the same"
        );
        assert_eq!(entry.to_string(), expected);
        let desk = Desk::new(&format!("[store]\nurl = \"{}\"\n{CONFIG}", world.store.url));
        let status = desk.ok(&["status"]);
        assert!(status.contains(&format!("  {expected}\n")), "{status}");
        assert!(desk.ok(&["status", "--json"]).contains(r#""nobodys":[{"address":"0x0000"#));
        world.chain.mine_empty(20);
        world.catch_up().await;
        world.close().await;
    }
}
