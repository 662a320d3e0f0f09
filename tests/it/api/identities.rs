//! Identities: what their states do to accounts, what they never do to deposits, and how operators change them.

use std::sync::Arc;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::DepositStatus::Confirmed;
use landfall::deposit::LegHash;
use landfall::identity::{Change, Identity, IdentityStatus, IdentityType, NewIdentity};
use landfall::operator::{ChangeIdentityError, Operator};
use landfall::registry::{self, AddAccountsError};
use landfall::store::accounts::AddAccountError;
use landfall::store::{Db, identities};
use landfall::time::Timestamp;
use landfall_sim::{SimLeg, SimTx};
use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::cli::{CONFIG, Desk};
use crate::harness::books::events;
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, World, address};

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
const ADDRESS: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
const OLGA: Operator<'static> = Operator { actor: "olga", reason: "a test", now: NOW, dry_run: false };

fn business(label: &str) -> NewIdentity {
    NewIdentity { kind: IdentityType::Business, label: label.to_owned(), fiat_operations_enabled: false }
}

fn account(id: &str, identity: &str, who: u8) -> NewAccount {
    let addresses = [(CHAIN, address(who))].into();
    NewAccount { id: id.to_owned(), identity_id: Some(identity.to_owned()), kind: AccountType::Segregated, addresses }
}

async fn identity(db: &Db, id: &str) -> Identity {
    identities::by_id(&mut db.read().await.unwrap(), id).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_deposit_to_a_frozen_or_closed_account_is_recorded_confirmed_and_announced_all_the_same() {
    for engine in ENGINES {
        let mut world = World::on(engine, 1).await;
        registry::add_identity(world.db(), "acme", &business("Acme"), NOW).await.unwrap();
        registry::add_accounts(world.db(), &[account("alice", "acme", 0xa1)], NOW).await.unwrap();
        let payment = |nonce: u64, amount: u64| {
            SimTx::new(address(1), nonce, vec![SimLeg::native(address(1), address(0xa1), amount)])
        };
        for (nonce, change) in [(0, Change::Suspend), (1, Change::Terminate)] {
            OLGA.change_identity(world.db(), "acme", change).await.unwrap();
            world.restart();
            world.chain.mine(vec![payment(nonce, nonce + 5)]);
            world.chain.mine_empty(FINALITY_DEPTH);
            world.catch_up().await;
            assert_eq!(world.status_of(nonce + 5).await, Confirmed, "{engine:?} {change:?}");
        }
        let announced = events(world.db()).await;
        assert_eq!(announced.len(), 4, "{engine:?}: PENDING and CONFIRMED of both");
        // What the account has may also grow: the operator's list may be imported again.
        let more = account("alice", "acme", 0xa2);
        registry::add_accounts(world.db(), &[more], NOW).await.unwrap();
        world.close().await;
    }
}

#[tokio::test]
async fn a_terminated_identity_opens_no_accounts_and_a_suspended_one_does() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        registry::add_identity(&store.db, "acme", &business("Acme"), NOW).await.unwrap();
        OLGA.change_identity(&store.db, "acme", Change::Suspend).await.unwrap();
        registry::add_accounts(&store.db, &[account("alice", "acme", 1)], NOW).await.unwrap();
        OLGA.change_identity(&store.db, "acme", Change::Terminate).await.unwrap();
        let refused = registry::add_accounts(&store.db, &[account("bob", "acme", 2)], NOW).await.unwrap_err();
        let AddAccountsError::Refused { index: 0, added: 0, error: AddAccountError::Closed { id, status } } = refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!((id.as_str(), status), ("acme", IdentityStatus::Terminated));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_change_an_identity_at_once_one_is_refused_by_what_the_other_did() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        for round in 0..10 {
            let id = format!("i-{round}");
            registry::add_identity(&store.db, &id, &business("Acme"), NOW).await.unwrap();
            let (start, mut changing) = (Arc::new(Barrier::new(2)), JoinSet::new());
            for _ in 0..2 {
                let (db, start, id) = (store.db.clone(), Arc::clone(&start), id.clone());
                changing.spawn(async move {
                    start.wait().await;
                    OLGA.change_identity(&db, &id, Change::Suspend).await
                });
            }
            let outcomes = changing.join_all().await;
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{engine:?}: {outcomes:?}");
            let refused = outcomes.iter().find_map(|outcome| outcome.as_ref().err()).unwrap();
            assert!(matches!(refused, ChangeIdentityError::Refused { .. }), "{refused:?}");
            let mut reader = store.db.read().await.unwrap();
            assert_eq!(identities::decisions(&mut reader, &id).await.unwrap().len(), 1, "one entry");
        }
    }
}

#[tokio::test]
async fn an_identity_never_has_the_id_of_a_deposit() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    let deposit = LegHash([7; 32]).deposit_id().to_string();
    let refused = registry::add_identity(&store.db, &deposit, &business("Acme"), NOW).await.unwrap_err();
    assert!(refused.to_string().contains("a UUID of version 8 names a deposit"), "{refused}");
    let own = "3f2b8c1e-0d4a-4b6f-9a57-1c2d3e4f5a6b";
    assert_eq!(registry::add_identity(&store.db, own, &business("Acme"), NOW).await.unwrap().id, own);
}

#[tokio::test]
async fn a_change_needs_a_reason_an_identity_and_a_state_that_allows_it() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        registry::add_identity(&store.db, "acme", &business("Acme"), NOW).await.unwrap();
        let without_reason = Operator { reason: " ", ..OLGA };
        let cases = [
            (
                OLGA,
                "nobody",
                Change::Suspend,
                "there is no identity nobody; `landfall identity list` shows those that are",
            ),
            (OLGA, "acme", Change::Reinstate, "identity acme: an identity that is ACTIVE cannot be reinstated"),
            (without_reason, "acme", Change::Suspend, "a decision needs a reason: --reason TEXT"),
            (
                OLGA,
                "default",
                Change::Terminate,
                "the identity default cannot be terminated: accounts that name no identity belong to it",
            ),
        ];
        for (operator, id, change, expected) in cases {
            let refused = operator.change_identity(&store.db, id, change).await.unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
        assert_eq!(identity(&store.db, "acme").await.status, IdentityStatus::Active);
        assert_eq!(identity(&store.db, "default").await.status, IdentityStatus::Active);
    }
}

#[tokio::test]
async fn accounts_that_name_no_identity_belong_to_the_default_one() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    let nameless = NewAccount { identity_id: None, ..account("alice", "", 1) };
    registry::add_accounts(&store.db, &[nameless], NOW).await.unwrap();
    let mut reader = store.db.read().await.unwrap();
    let (ids, _) = identities::accounts_behind(&mut reader, "default", None, 9).await.unwrap();
    assert_eq!(ids, ["alice"]);
}

#[test]
fn identities_are_added_once_listed_and_changed_from_the_command_line() {
    let desk = Desk::new(CONFIG);
    let add = ["identity", "add", "--identity", "acme", "--type", "BUSINESS", "--label", "Acme"];
    for _ in 0..2 {
        assert_eq!(desk.ok(&add), "identity acme is ACTIVE\n");
    }
    let other = ["identity", "add", "--identity", "acme", "--type", "INDIVIDUAL"];
    let refused = "landfall: identity acme is there already, with another type, label or entitlement";
    assert_eq!(desk.refused(&other), refused);
    let refused = desk.refused(&["identity", "add", "--identity", "a b", "--type", "BUSINESS"]);
    assert_eq!(refused, "landfall: identity id \"a b\": expected 1 to 128 visible ASCII characters without spaces");
    let refused = desk.refused(&["identity", "add", "--identity", "b", "--type", "PERSON"]);
    assert_eq!(refused, "landfall: unknown identity type \"PERSON\": expected INDIVIDUAL or BUSINESS");

    std::fs::write(
        desk.path("accounts.csv"),
        format!("account_id,type,chains,address,identity_id\na,SEGREGATED,BASE_MAINNET,{ADDRESS},acme\n"),
    )
    .unwrap();
    desk.ok(&["account", "import", "accounts.csv"]);
    let suspended = desk.ok(&["identity", "suspend", "acme", "--reason", "a fraud report"]);
    assert_eq!(suspended, "identity acme is SUSPENDED\n");
    let refused = desk.refused(&["identity", "suspend", "acme", "--reason", "again"]);
    assert_eq!(refused, "landfall: identity acme: an identity that is SUSPENDED cannot be suspended");
    desk.ok(&["identity", "reinstate", "acme", "--reason", "cleared"]);
    desk.ok(&["identity", "terminate", "acme", "--reason", "left us"]);
    let listed = desk.ok(&["identity", "list", "--json"]);
    let listed: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = serde_json::json!([
        { "id": "acme", "type": "BUSINESS", "label": "Acme", "status": "TERMINATED", "sub_status": "",
          "fiat_operations_enabled": false },
        { "id": "default", "type": "BUSINESS", "label": "", "status": "ACTIVE", "sub_status": "",
          "fiat_operations_enabled": false },
    ]);
    assert_eq!(Value::Array(listed), expected);
    let shown: Value = serde_json::from_str(&desk.ok(&["identity", "show", "acme", "--json"])).unwrap();
    assert_eq!((&shown["id"], &shown["status"]), (&expected[0]["id"], &expected[0]["status"]));
    let changes = shown["changes"].as_array().unwrap();
    let reported =
        |change: &Value| ["reason", "previous_status", "status"].map(|key| change[key].as_str().unwrap().to_owned());
    let expected = [
        ["a fraud report", "ACTIVE", "SUSPENDED"],
        ["cleared", "SUSPENDED", "ACTIVE"],
        ["left us", "ACTIVE", "TERMINATED"],
    ];
    assert_eq!(changes.iter().map(reported).collect::<Vec<_>>(), expected);
    assert!(changes.iter().all(|change| !change["actor"].as_str().unwrap().is_empty()), "who it was");
    let text = desk.ok(&["identity", "show", "acme"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "acme BUSINESS TERMINATED Acme"));
    assert!(lines[1].ends_with(" ACTIVE -> SUSPENDED: a fraud report"), "{text}");
    let refused = desk.refused(&["identity", "show", "nobody"]);
    assert_eq!(refused, "landfall: there is no identity nobody; `landfall identity list` shows those that are");
    desk.ok(&["account", "import", "accounts.csv"]);
    std::fs::write(
        desk.path("accounts.csv"),
        format!("account_id,type,chains,address,identity_id\nb,SEGREGATED,BASE_SEPOLIA,{ADDRESS},acme\n"),
    )
    .unwrap();
    let refused = desk.refused(&["account", "import", "accounts.csv"]);
    let expected =
        "landfall: accounts.csv: nothing was imported: line 2: identity acme is TERMINATED and can open no accounts";
    assert_eq!(refused, expected);
}
