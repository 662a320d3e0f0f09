//! The store's conformance suite: the same tests on SQLite and on PostgreSQL, a fresh database each.
//!
//! The tests are written once and listed in `on_both_engines!`, which makes one of each engine from each; one that is
//! not listed does not compile. What is looked up behind the store's back is looked up with SQL of the test's own.

macro_rules! on_both_engines {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            use crate::harness::postgres::{Engine, TestStore};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(TestStore::fresh(Engine::Sqlite).await).await;
                }
            )+
        }

        mod postgres {
            use crate::harness::postgres::{Engine, TestStore};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(TestStore::fresh(Engine::Postgres).await).await;
                }
            )+
        }
    };
}

mod accounts;
mod asset_facts;
mod backfills;
mod balances;
mod cast;
mod cursors;
mod deliveries;
mod deposits;
mod events;
mod feed;
mod movements;
mod opening;
mod replay;
mod schema;
mod sponsor_books;
mod statements;
mod status;
mod traces;
mod transactions;
mod transfers;
mod unattributed;
mod unexplained;
