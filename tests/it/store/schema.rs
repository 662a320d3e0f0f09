//! The schema: migrating is repeatable and safe for two at once, a wrong version is reported, and both engines end with
//! the same tables, columns, keys and indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall::store::{Db, MIGRATIONS, OpenError, Pools};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::cast::{rows, run};
use crate::harness::postgres::{ENGINES, TestStore, folder};

on_both_engines!(
    migrating_again_changes_nothing,
    two_who_migrate_at_once_both_succeed,
    an_older_or_newer_schema_is_reported_and_not_used,
);

async fn migrating_again_changes_nothing(store: TestStore) {
    let before: Vec<(i64, Vec<u8>)> = rows(&store.db, "SELECT version, checksum FROM _sqlx_migrations").await;
    assert_eq!(before.len(), MIGRATIONS.len());
    store.db.migrate().await.unwrap();
    store.db.check_schema().await.unwrap();
    let again = Db::open(&store.url.parse().unwrap()).await.unwrap();
    again.migrate().await.unwrap();
    assert_eq!(rows::<(i64, Vec<u8>)>(&again, "SELECT version, checksum FROM _sqlx_migrations").await, before);
}

async fn an_older_or_newer_schema_is_reported_and_not_used(store: TestStore) {
    let expected = MIGRATIONS.last().unwrap().0;
    run(&store.db, "UPDATE _sqlx_migrations SET version = version + 1000").await;
    let error = store.db.check_schema().await.unwrap_err();
    let newer = format!(
        "the store's schema is version {}, this program needs version {expected}: a newer program has migrated it; run that one",
        expected + 1000
    );
    assert_eq!(error.to_string(), newer);
    assert!(!error.may_pass());
    assert!(matches!(store.db.migrate().await, Err(OpenError::Migrate(_))), "a newer schema is not written to");

    run(&store.db, "DELETE FROM _sqlx_migrations").await;
    let error = store.db.check_schema().await.unwrap_err().to_string();
    assert_eq!(error, "the store has no tables yet: run `landfall migrate`");
}

async fn two_who_migrate_at_once_both_succeed(store: TestStore) {
    let folder = folder();
    let url = match store.db.pools() {
        Pools::Postgres(_) => {
            run(&store.db, "DROP SCHEMA public CASCADE").await;
            run(&store.db, "CREATE SCHEMA public").await;
            store.url.clone()
        }
        Pools::Sqlite { .. } => format!("sqlite:{}", folder.path().join("landfall.db").display()),
    };
    let mut migrating = JoinSet::new();
    let start = Arc::new(Barrier::new(2));
    for _ in 0..2 {
        let (db, start) = (Db::open(&url.parse().unwrap()).await.unwrap(), Arc::clone(&start));
        migrating.spawn(async move {
            start.wait().await;
            db.migrate().await?;
            db.check_schema().await
        });
    }
    for migrated in migrating.join_all().await {
        assert!(migrated.is_ok(), "two instances that start together: {migrated:?}");
    }
}

#[tokio::test]
async fn both_engines_have_the_same_tables_columns_and_keys() {
    let [sqlite, postgres] = [TestStore::fresh(ENGINES[0]).await, TestStore::fresh(ENGINES[1]).await];
    let columns = "SELECT t.name, c.name, c.type, CASE WHEN c.\"notnull\" THEN 'NOT NULL' ELSE 'NULL' END \
                   FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c \
                   WHERE t.type = 'table' AND t.name NOT LIKE '\\_sqlx%' ESCAPE '\\'";
    let columns: BTreeSet<[String; 4]> = rows(&sqlite.db, columns).await.into_iter().map(four).collect();
    let expected = "SELECT CAST(table_name AS TEXT), CAST(column_name AS TEXT), \
                    REPLACE(UPPER(CAST(data_type AS TEXT)), 'BYTEA', 'BLOB'), \
                    CASE is_nullable WHEN 'NO' THEN 'NOT NULL' ELSE 'NULL' END FROM information_schema.columns \
                    WHERE table_schema = 'public' AND table_name NOT LIKE '\\_sqlx%'";
    let expected: BTreeSet<[String; 4]> = rows(&postgres.db, expected).await.into_iter().map(four).collect();
    assert_same("column", &columns, &expected);
    let types: BTreeSet<&str> = columns.iter().map(|[_, _, kind, _]| kind.as_str()).collect();
    assert_eq!(types, ["BIGINT", "BLOB", "BOOLEAN", "TEXT"].into(), "the portable types");

    let references = "SELECT t.name, f.\"from\", f.\"table\" FROM sqlite_master AS t \
                      JOIN pragma_foreign_key_list(t.name) AS f WHERE t.type = 'table'";
    let references: BTreeSet<(String, String, String)> = rows(&sqlite.db, references).await.into_iter().collect();
    let expected = "SELECT CAST(CAST(f.conrelid AS regclass) AS TEXT), CAST(c.attname AS TEXT), \
                    CAST(CAST(f.confrelid AS regclass) AS TEXT) FROM pg_constraint AS f \
                    JOIN pg_attribute AS c ON c.attrelid = f.conrelid AND c.attnum = f.conkey[1] WHERE f.contype = 'f'";
    let expected: BTreeSet<(String, String, String)> = rows(&postgres.db, expected).await.into_iter().collect();
    assert_same("reference", &references, &expected);
}

#[tokio::test]
async fn both_engines_have_the_same_indexes() {
    let [sqlite, postgres] = [TestStore::fresh(ENGINES[0]).await, TestStore::fresh(ENGINES[1]).await];
    type Row = (String, String, bool, bool, String, bool);
    let text = "SELECT t.name, i.name, i.\"unique\" <> 0, i.partial <> 0, c.name, c.\"desc\" <> 0 FROM sqlite_master AS t \
                JOIN pragma_index_list(t.name) AS i JOIN pragma_index_xinfo(i.name) AS c \
                WHERE t.type = 'table' AND c.\"key\" = 1 AND t.name NOT LIKE '\\_sqlx%' ESCAPE '\\' ORDER BY i.name, c.seqno";
    let mut indexes: BTreeMap<(String, String, bool, bool), Vec<String>> = BTreeMap::new();
    for (table, name, unique, partial, column, falling) in rows::<Row>(&sqlite.db, text).await {
        let column = if falling { format!("{column} DESC") } else { column };
        indexes.entry((table, name, unique, partial)).or_default().push(column);
    }
    let indexes: BTreeSet<_> = indexes
        .into_iter()
        .map(|((table, _, unique, partial), columns)| (table, unique, partial, columns.join(", ")))
        .collect();

    let text = "SELECT CAST(tablename AS TEXT), indexdef FROM pg_indexes \
                WHERE schemaname = 'public' AND tablename NOT LIKE '\\_sqlx%'";
    let expected = rows::<(String, String)>(&postgres.db, text).await.into_iter().map(|(table, text)| {
        let (head, rest) = text.split_once(" USING btree (").unwrap();
        let (columns, rest) = rest.split_once(')').unwrap();
        // SQLite compares texts by their bytes.
        let columns = columns.replace(" COLLATE \"C\"", "").replace('"', "");
        (table, head.starts_with("CREATE UNIQUE"), rest.starts_with(" WHERE"), columns)
    });
    assert_same("index", &indexes, &expected.collect());
}

fn four((a, b, c, d): (String, String, String, String)) -> [String; 4] {
    [a, b, c, d]
}

fn assert_same<T: Ord + std::fmt::Debug>(what: &str, sqlite: &BTreeSet<T>, postgres: &BTreeSet<T>) {
    assert!(!sqlite.is_empty(), "no {what} was found");
    let only = |these: &BTreeSet<T>, those: &BTreeSet<T>| format!("{:#?}", these.difference(those).collect::<Vec<_>>());
    let (only_sqlite, only_postgres) = (only(sqlite, postgres), only(postgres, sqlite));
    assert!(sqlite == postgres, "{what} on SQLite only: {only_sqlite}\n{what} on PostgreSQL only: {only_postgres}");
}
