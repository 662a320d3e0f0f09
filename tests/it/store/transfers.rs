//! Transfers: who changes one says which row it read. Who read another one than there is changes nothing.

use landfall::store::{StoreError, transfers};
use landfall::transfer::{Evidence, FailureCode, RequestId, State, Transfer, TransferId, TransferKind, WINDOW};
use landfall_chain::{AssetId, U256};

use super::cast::{CHAIN, NOW, address, prepare, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    who_read_an_older_version_or_another_state_of_a_transfer_changes_nothing,
    of_two_who_read_the_same_transfer_one_changes_it,
);

/// What alice pays a stranger.
fn transfer() -> Transfer {
    let request_id: RequestId = "00000000-0000-4000-8000-000000000001".parse().unwrap();
    let (id, source) = (TransferId::of("default", request_id), address(0xa1));
    Transfer {
        id,
        kind: TransferKind::Payment,
        request_id,
        account_id: "alice".to_owned(),
        identity_id: "default".to_owned(),
        chain: CHAIN,
        asset: AssetId::Native,
        symbol: "ETH".to_owned(),
        decimals: 18,
        amount: U256::from(5),
        source,
        source_tag: String::new(),
        destination: address(0x77),
        destination_account_id: None,
        state: State::Accepted,
        reason: None,
        tx: None,
        created_at: NOW,
        updated_at: NOW,
        submitted_at: None,
        confirmed_at: None,
        deadline: NOW.plus(WINDOW),
        is_signed: false,
        route: "erc3009".to_owned(),
        intent_key: id.intent_key("eip155:11155111", &source),
        cancelled_at: None,
        obstacle: None,
        version: 0,
        network_fee: None,
    }
}

async fn accepted(store: &TestStore) -> Transfer {
    prepare(store).await;
    write(store, async |tx| transfers::insert(tx, &transfer()).await.unwrap()).await;
    stored(store).await
}

async fn stored(store: &TestStore) -> Transfer {
    transfers::by_id(&mut store.db.read().await.unwrap(), transfer().id).await.unwrap().unwrap()
}

/// The states that it entered, in their order.
async fn states(store: &TestStore) -> Vec<String> {
    let history = transfers::history(&mut store.db.read().await.unwrap(), transfer().id).await.unwrap();
    history.into_iter().map(|change| change.state).collect()
}

/// Who read it as `before` leaves it in this state.
async fn change(store: &TestStore, before: &Transfer, state: State) -> Result<(), StoreError> {
    let after = Transfer { state, version: before.version + 1, ..before.clone() };
    let mut tx = store.db.begin().await?;
    transfers::change(&mut tx, before, &after, (Evidence::HandedOver.name(), None, &[])).await?;
    tx.commit().await
}

/// It has changed nothing, and nobody who tries it again changes that.
fn assert_fenced(refused: &StoreError) {
    assert!(matches!(refused, StoreError::RowsAffected { expected: 1, actual: 0, .. }), "{refused}");
    assert!(!refused.may_pass(), "{refused}");
}

async fn who_read_an_older_version_or_another_state_of_a_transfer_changes_nothing(store: TestStore) {
    let first = accepted(&store).await;
    assert_eq!(first, transfer());
    change(&store, &first, State::Carried).await.unwrap();
    let carried = stored(&store).await;
    change(&store, &carried, State::Included).await.unwrap();
    // A reorg took it back: its state is what it was, and its version is not.
    change(&store, &stored(&store).await, State::Carried).await.unwrap();
    let now = stored(&store).await;
    assert_eq!((carried.state, carried.version, now.state, now.version), (State::Carried, 1, State::Carried, 3));
    let entered = ["accepted", "carried", "included", "carried"];
    let others = [
        first,
        carried,
        Transfer { state: State::Included, ..now.clone() },
        Transfer { state: State::Accepted, ..now.clone() },
        Transfer { version: 4, ..now.clone() },
    ];
    for before in &others {
        assert_fenced(&change(&store, before, State::Expiring).await.unwrap_err());
        assert_eq!(stored(&store).await, now, "{before:?}");
        assert_eq!(states(&store).await, entered, "{before:?}");
    }
    let dropped = State::Dropped(FailureCode::WindowElapsed);
    change(&store, &now, dropped).await.unwrap();
    assert_fenced(&change(&store, &now, State::Included).await.unwrap_err());
    assert_eq!((stored(&store).await.state, states(&store).await.len()), (dropped, entered.len() + 1));
}

async fn of_two_who_read_the_same_transfer_one_changes_it(store: TestStore) {
    let read = accepted(&store).await;
    let states_after = [State::Carried, State::Dropped(FailureCode::NeverSigned)];
    let (one, other) = tokio::join!(change(&store, &read, states_after[0]), change(&store, &read, states_after[1]));
    let (state, refused) = match (one, other) {
        (Ok(()), Err(refused)) => (states_after[0], refused),
        (Err(refused), Ok(())) => (states_after[1], refused),
        both => panic!("{both:?}"),
    };
    assert_fenced(&refused);
    let stored = stored(&store).await;
    assert_eq!((stored.state, stored.version), (state, 1));
    assert_eq!(states(&store).await, ["accepted", state.name()]);
}
