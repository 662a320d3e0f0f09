//! Watch lists with very many addresses: how many one account may have, and what taking up a chain costs.

use landfall::account::{AccountType, NewAccount};
use landfall::identity::{IdentityType, NewIdentity};
use landfall::registry::{self, AddAccountsError};
use landfall::store::accounts::{self, AddAccountError};
use landfall::store::{Connection, Db, Engine as Connected, coverage};
use landfall::time::Timestamp;
use landfall::watcher::Start;
use landfall_sim::SimChain;
use sqlx::AssertSqlSafe;

use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, World, address};

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
const ALICE: u8 = 0xa1;

pub(crate) async fn run(db: &Db, text: String) {
    let mut tx = db.begin().await.unwrap();
    match tx.engine() {
        Connected::Postgres(connection) => drop(sqlx::query(AssertSqlSafe(text)).execute(connection).await.unwrap()),
        Connected::Sqlite(connection) => drop(sqlx::query(AssertSqlSafe(text)).execute(connection).await.unwrap()),
    }
    tx.commit().await.unwrap();
}

/// Has an account watched on addresses with these numbers, as they were before the chain was started.
pub(crate) async fn watch_many(db: &Db, engine: Engine, account: &str, (from, to): (u32, u32)) {
    let bytes = match engine {
        Engine::Postgres => "decode(lpad(n::text, 40, '0'), 'hex')",
        Engine::Sqlite => "unhex(printf('%040d', n))",
    };
    let text = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM numbers WHERE n < {to}) \
         INSERT INTO watched_addresses (chain, address, account_id, seq, from_number) \
         SELECT 'ETHEREUM_TESTNET', {bytes}, '{account}', n, 0 FROM numbers"
    );
    run(db, text).await;
    run(db, format!("UPDATE cursors SET watch_seq = {to}")).await;
}

#[tokio::test]
async fn an_account_has_ten_thousand_addresses_at_most() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        let account = |id: &str, addresses: &[u8]| NewAccount {
            id: id.to_owned(),
            identity_id: None,
            kind: AccountType::Omnibus,
            addresses: addresses.iter().map(|byte| (CHAIN, address(*byte))).collect(),
        };
        let add = async |accounts: &[NewAccount]| registry::add_accounts(&store.db, accounts, NOW).await;
        add(&[account("many", &[1])]).await.unwrap();
        watch_many(&store.db, engine, "many", (1_000, 10_996)).await;
        // What is there already is none more, also between others; two more are one too many, on whichever lines they
        // stand.
        add(&[account("many", &[1, 2])]).await.unwrap();
        let refused = add(&[account("many", &[1, 3]), account("few", &[4]), account("many", &[5])]).await.unwrap_err();
        let AddAccountsError::Refused { index: 2, added: 0, error: AddAccountError::TooMany { .. } } = &refused else {
            panic!("{refused:?}")
        };
        assert!(refused.to_string().contains("account many has 10000 addresses already"), "{refused}");
        let refused = add(&[account("many", &[3]), account("many", &[5])]).await.unwrap_err();
        assert!(matches!(refused, AddAccountsError::Refused { index: 1, .. }), "{refused:?}");
        add(&[account("many", &[3]), account("few", &[4])]).await.unwrap();
        add(&[account("many", &[1, 2, 3])]).await.unwrap();
    }
}

#[tokio::test]
async fn of_a_list_in_many_parts_nothing_is_added_where_its_end_contradicts_its_beginning_or_what_is_on_record() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        let account = |number: u8, identity: Option<&str>, kind: AccountType| NewAccount {
            id: format!("account-{number}"),
            identity_id: identity.map(str::to_owned),
            kind,
            addresses: [(CHAIN, address(number))].into(),
        };
        let plain = |number: u8| account(number, None, AccountType::Omnibus);
        let (kind, label) = (IdentityType::Business, String::new());
        let acme = NewIdentity { kind, label, fiat_operations_enabled: false };
        registry::add_identity(&store.db, "acme", &acme, NOW).await.unwrap();
        registry::add_accounts(&store.db, &[plain(99)], NOW).await.unwrap();
        let taken = NewAccount { addresses: [(CHAIN, address(99))].into(), ..plain(60) };
        let twice = NewAccount { addresses: [(CHAIN, address(1))].into(), ..plain(60) };
        let other_identity = account(1, Some("acme"), AccountType::Omnibus);
        for last in [taken, twice, account(1, None, AccountType::Segregated), other_identity] {
            let list: Vec<NewAccount> = (1..50).map(plain).chain([last.clone()]).collect();
            let refused = registry::add_accounts(&store.db, &list, NOW).await.unwrap_err();
            assert!(matches!(refused, AddAccountsError::Refused { index: 49, added: 0, .. }), "{last:?}: {refused:?}");
            let there = accounts::list(&mut store.db.read().await.unwrap()).await.unwrap();
            assert_eq!(there.len(), 1, "{last:?}");
        }
        let list: Vec<NewAccount> = (1..50).map(plain).collect();
        registry::add_accounts(&store.db, &list, NOW).await.unwrap();
        registry::add_accounts(&store.db, &list, NOW).await.unwrap();
        let there = accounts::list(&mut store.db.read().await.unwrap()).await.unwrap();
        assert_eq!(there.iter().map(|account| account.addresses.len()).sum::<usize>(), 50);
        let watched = accounts::watched_since(&mut store.db.read().await.unwrap(), CHAIN, 0, 100).await.unwrap();
        assert_eq!(watched.iter().map(|it| it.seq).collect::<Vec<_>>(), (1..=50).collect::<Vec<u64>>());
    }
}

#[tokio::test]
async fn a_chain_with_a_long_watch_list_is_taken_up_without_writing_to_any_of_it() {
    for engine in ENGINES {
        let chain = SimChain::new(1);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        chain.mine_empty(40);
        let mut world = World::from(Start::Finalized, chain, TestStore::fresh(engine).await);
        world.watch("alice", address(ALICE)).await;
        watch_many(world.db(), engine, "alice", (2, 5_000)).await;
        // Whatever was imported before, the transaction that takes the chain up is short.
        run(world.db(), written_to_is_refused(engine)).await;
        if engine == Engine::Postgres {
            run(world.db(), TRIGGER.to_owned()).await;
        }
        world.catch_up().await;
        let first = 40 - FINALITY_DEPTH + 1;
        let mut reader = world.db().read().await.unwrap();
        let from = accounts::watched_from(&mut reader, CHAIN, &address(ALICE)).await.unwrap();
        assert_eq!(from, Some(first), "{engine:?}: it is told from where it is matched all the same");
        let listed = accounts::list(&mut reader).await.unwrap();
        assert_eq!(listed[0].addresses.len(), 5_000);
        assert!(listed[0].addresses.iter().all(|(.., from)| *from == first), "{engine:?}");
        let covered = coverage::of_account(&mut reader, "alice").await.unwrap();
        assert_eq!(covered.len(), 5_000);
        assert!(
            covered.iter().all(|of| (of.watched_from, of.complete_through) == (first, Some(40))),
            "{:?}",
            covered[0]
        );
        drop(reader);
        world.close().await;
    }
}

#[tokio::test]
async fn a_reorg_below_an_import_writes_down_a_part_of_it_at_a_time() {
    const IMPORTED: u32 = 25_000;
    for engine in ENGINES {
        let chain = SimChain::new(1);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        chain.mine_empty(40);
        let mut world = World::from(Start::Finalized, chain, TestStore::fresh(engine).await);
        world.catch_up().await;
        world.watch("alice", address(ALICE)).await;
        watch_many(world.db(), engine, "alice", (2, IMPORTED)).await;
        run(world.db(), "UPDATE watched_addresses SET from_number = 41 WHERE seq <> 100".to_owned()).await;
        if engine == Engine::Postgres {
            // A statement has 30 s there, which is some 1,200,000 addresses.
            for text in MANY_ARE_REFUSED {
                run(world.db(), text.to_owned()).await;
            }
        }
        world.chain.fork_at(38);
        world.chain.mine_empty(4);
        world.catch_up().await;
        let mut reader = world.db().read().await.unwrap();
        let listed = accounts::list(&mut reader).await.unwrap();
        let from = |number| listed[0].addresses.iter().filter(|(.., from)| *from == number).count();
        // One was added before the chain was started, and is matched from there.
        let first = 40 - FINALITY_DEPTH + 1;
        assert_eq!((from(39), from(first)), (IMPORTED as usize - 1, 1), "{engine:?}");
        drop(reader);
        world.abandon();
    }
}

/// What makes a statement that changes more than 10,000 watched addresses an error.
const MANY_ARE_REFUSED: [&str; 2] = [
    "CREATE FUNCTION refuse_many() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF (SELECT COUNT(*) FROM changed) > 10000 \
     THEN RAISE EXCEPTION ''too many''; END IF; RETURN NULL; END'",
    "CREATE TRIGGER few AFTER UPDATE ON watched_addresses REFERENCING NEW TABLE AS changed \
     FOR EACH STATEMENT EXECUTE FUNCTION refuse_many()",
];

const TRIGGER: &str =
    "CREATE TRIGGER unwritten BEFORE UPDATE ON watched_addresses FOR EACH ROW EXECUTE FUNCTION refuse()";

/// What makes every change of a watched address an error.
fn written_to_is_refused(engine: Engine) -> String {
    let text = match engine {
        Engine::Postgres => {
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''written to''; END'"
        }
        Engine::Sqlite => {
            "CREATE TRIGGER unwritten BEFORE UPDATE ON watched_addresses BEGIN SELECT RAISE(ABORT, 'written to'); END"
        }
    };
    text.to_owned()
}
