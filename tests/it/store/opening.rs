//! Opening: who may read a SQLite file, what cannot be opened and how it is reported, and that no password is shown.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use landfall::store::{Db, OpenError, Pools, StoreUrl};
use landfall_chain::with_causes;
use sqlx::Connection as _;
use tokio::task::JoinSet;

use super::cast::prepare;
use crate::harness::postgres::{ENGINES, Engine, TestStore, create_database, folder};

#[tokio::test]
async fn a_sqlite_file_is_readable_by_its_owner_alone() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    prepare(&store).await;
    let path = Path::new(store.url.strip_prefix("sqlite:").unwrap());
    let files: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 2, "the database and its write-ahead log");
    for file in files {
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}: keys are in it", file.display());
    }
}

#[tokio::test]
async fn a_sqlite_file_that_others_may_read_is_so_no_longer_once_it_was_opened() {
    let folder = folder();
    let path = folder.path().join("landfall.db");
    let url = StoreUrl::Sqlite(path.clone());
    // Open, so that its write-ahead log stays.
    let first = Db::open(&url).await.unwrap();
    first.migrate().await.unwrap();
    let files = ["", "-wal", "-shm"].map(|end| Path::new(&format!("{}{end}", path.display())).to_owned());
    for file in &files {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let again = Db::open(&url).await.unwrap();
    for file in &files {
        let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}: keys are in it", file.display());
    }
    again.close().await;
    first.close().await;
}

#[tokio::test]
async fn a_sqlite_path_that_cannot_be_written_is_named_with_the_reason() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let read_only = folder.path().join("read-only.db");
    OpenOptions::new().create(true).write(true).truncate(true).mode(0o400).open(&read_only).unwrap();
    let mut cases = vec![
        (folder.path().join("missing").join("landfall.db"), "No such file or directory"),
        (folder.path().to_owned(), "Is a directory"),
        (file.join("landfall.db"), "Not a directory"),
    ];
    // Root may write what nobody may.
    if OpenOptions::new().append(true).open(&read_only).is_err() {
        cases.push((read_only.clone(), "Permission denied"));
    } else {
        Db::open(&StoreUrl::Sqlite(read_only)).await.unwrap();
    }
    for (path, reason) in cases {
        let error = Db::open(&StoreUrl::Sqlite(path.clone())).await.unwrap_err();
        assert!(matches!(error, OpenError::File { .. }), "{error:?}");
        assert!(!error.may_pass());
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot write {}: {reason}", path.display())), "{text}");
        assert!(text.ends_with("; check the path and its permissions"), "{text}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    let notes = "not a database, but somebody's notes\n".repeat(100);
    fs::write(&path, &notes).unwrap();
    let url: StoreUrl = format!("sqlite:{}", path.display()).parse().unwrap();
    let error = Db::open(&url).await.unwrap_err();
    assert!(error.to_string().contains("notes.txt") && error.to_string().contains("file is not a database"), "{error}");
    assert!(!error.may_pass());
    assert_eq!(fs::read_to_string(&path).unwrap(), notes);
}

#[tokio::test]
async fn no_statement_is_compiled_before_it_runs_on_postgresql() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let db = Db::open(&store.url.parse().unwrap()).await.unwrap();
    let Pools::Postgres(pool) = db.pools() else { panic!("PostgreSQL") };
    let jit: String = sqlx::query_scalar("SHOW jit").fetch_one(pool).await.unwrap();
    assert_eq!(jit, "off");
    db.close().await;
}

#[test]
fn a_store_url_is_read_and_never_shown_with_its_password() {
    let cases = [
        ("sqlite:landfall.db", "sqlite:landfall.db"),
        ("sqlite:///var/lib/landfall.db", "sqlite:/var/lib/landfall.db"),
        ("sqlite:/var/lib/landfall.db", "sqlite:/var/lib/landfall.db"),
        ("postgres://user:hunter2@db.example:6543/money?sslmode=disable", "postgres://db.example:6543/money"),
        ("postgresql://user:hunter2@db.example/money?sslmode=require", "postgres://db.example:5432/money"),
        (
            "postgres://db.example/money?user=u&password=hunter2&ssl-mode=verify-full",
            "postgres://db.example:5432/money",
        ),
        ("postgres://user:hunter2@[::1]:6543/money", "postgres://[::1]:6543/money"),
        ("postgres://user:pass%40word@[::1]:6543/money", "postgres://[::1]:6543/money"),
    ];
    for (given, shown) in cases {
        let url: StoreUrl = given.parse().unwrap();
        assert_eq!(url.to_string(), shown);
        assert_eq!(format!("{url:?}"), shown);
    }
    for given in
        ["", "landfall.db", "sqlite:", "sqlite://", "sqlite::memory:", "sqlite:a.db?mode=ro", "mysql://u:hunter2@h/d"]
    {
        let error = given.parse::<StoreUrl>().unwrap_err();
        assert_eq!(error.to_string(), "store.url: expected sqlite:PATH or postgres://USER@HOST/DATABASE", "{given}");
    }
}

#[test]
fn a_store_url_that_cannot_be_taken_apart_without_doubt_is_refused_and_nothing_of_it_is_shown() {
    let doubtful = [
        // The password has what stands between parts.
        "postgres://user:hun@ter2@db.example/money",
        "postgres://user:12/hunter2@db.example/money",
        "postgres://user:12?hunter2@db.example/money",
        "postgres://user:12#hunter2@db.example/money",
        "postgresql://hunter2@127.0.0.1:12/x@db.example/money",
        "postgres://127.0.0.1:12/hunter2#money",
        "postgres://127.0.0.1/money?user=user&password=hun@ter2",
        // They have no form at all.
        "postgres://user:hunter2@bad host/money",
        "postgres://user:hunter2@host:port/money",
        "postgres://user:hunter2@[::1/money",
        "postgres://127.0.0.1/money?sslmode=hunter2",
    ];
    for given in doubtful {
        let error = given.parse::<StoreUrl>().unwrap_err();
        let expected = "store.url: the URL cannot be taken apart: expected postgres://USER:PASSWORD@HOST/DATABASE, where @ : / ? # % in a \
                        name, a password or a value are written %40 %3A %2F %3F %23 %25 (percent-encoded)";
        assert_eq!((error.to_string().as_str(), error.may_pass()), (expected, false), "{given}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        // Whoever has one all the same.
        let url = StoreUrl::Postgres(given.into());
        let shown = format!("{url} {url:?}");
        assert!(
            shown == "postgres:// postgres://" || given.contains("sslmode") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_postgres_server_is_reached_by_an_ipv6_address() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let (server, database) = store.url.rsplit_once('/').unwrap();
    let (user, server) = server.rsplit_once('@').unwrap();
    let listener = match tokio::net::TcpListener::bind("[::1]:0").await {
        Ok(listener) => listener,
        // A machine without it: what is connected to is an address, and no name that is looked up.
        Err(_) => {
            let error = Db::open(&format!("{user}@[::1]:5432/{database}").parse().unwrap()).await.unwrap_err();
            assert!(!error.to_string().contains("lookup"), "{error}");
            return;
        }
    };
    let (port, server) = (listener.local_addr().unwrap().port(), server.to_owned());
    let mut forwarding = JoinSet::new();
    forwarding.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = tokio::net::TcpStream::connect(&server).await.unwrap();
            open.spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    });
    for url in [format!("{user}@[::1]:{port}/{database}"), format!("{user}@localhost:{port}/{database}?host=[::1]")] {
        let db = Db::open(&url.parse().unwrap()).await.unwrap();
        db.check_schema().await.unwrap();
        db.close().await;
    }
}

#[tokio::test]
async fn what_a_postgres_server_says_is_shown_without_user_and_parameters() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let (_, place) = store.url.rsplit_once('@').unwrap();
    let cases = [
        (format!("postgres://canary-user:canary@{place}"), "role \"***\" does not exist"),
        (format!("postgres://{place}?user=canary%2Duser"), "role \"***\" does not exist"),
        (format!("postgres://me:canary@{place}"), "role \"***\" does not exist"),
        (format!("postgres://postgres@{place}?options[canary.a b]=1"), "***"),
        (format!("{}?options=-c%20work_mem=canary", store.url), "***"),
    ];
    for (url, shown) in cases {
        let error = Db::open(&url.parse().unwrap()).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(error.to_string().contains(shown), "{url}: {error}");
        assert!(!text.contains("canary") && !text.contains("\"me\""), "{url}: {text}");
    }
    // A role that is gone while the process runs.
    let mut admin = sqlx::PgConnection::connect(&store.url).await.unwrap();
    let role = format!("canary_{}", std::process::id());
    let run = async |admin: &mut sqlx::PgConnection, text: String| {
        sqlx::query(sqlx::AssertSqlSafe(text)).execute(admin).await.unwrap()
    };
    run(&mut admin, format!("CREATE ROLE {role} LOGIN")).await;
    let db = Db::open(&format!("postgres://{role}@{place}").parse().unwrap()).await.unwrap();
    run(&mut admin, format!("DROP ROLE {role}")).await;
    let mut held = Vec::new();
    let error = loop {
        match db.read().await {
            Ok(reader) => held.push(reader),
            Err(error) => break error,
        }
    };
    drop(held);
    let text = format!("{} {error:?}", with_causes(&error));
    assert!(text.contains("***") && !text.contains("canary") && error.may_pass(), "{text}");
}

#[test]
fn a_database_on_another_machine_is_reached_only_as_its_url_says_whether_to_encrypt() {
    for there in [
        "postgres://user:hunter2@db.example/money",
        "postgresql://user:hunter2@10.0.0.7:6543/money?application_name=a",
        "postgres://user:hunter2@localhost/money?host=db.example",
        "postgres://user:hunter2@[fd00::1]/money",
        "postgres://user:hunter2@localhost.example/money",
    ] {
        let error = there.parse::<StoreUrl>().unwrap_err();
        assert!(!error.may_pass());
        let said = error.to_string();
        assert!(said.contains("write ?sslmode=verify-full") && !said.contains("hunter2"), "{there}: {said}");
        let mark = if there.contains('?') { '&' } else { '?' };
        assert!(format!("{there}{mark}sslmode=prefer").parse::<StoreUrl>().is_ok(), "{there}");
    }
    for here in [
        "postgres://user@localhost/money",
        "postgres://user@127.0.0.1:6543/money",
        "postgres://user@[::1]/money",
        "postgres://%2Frun%2Fpostgresql/money",
        "postgres:///money?host=/run/postgresql",
    ] {
        assert!(here.parse::<StoreUrl>().is_ok(), "{here}");
    }
}

#[tokio::test]
async fn a_postgres_server_that_is_down_may_come_back_and_a_wrong_database_may_not() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url: StoreUrl = format!("postgres://user:hunter2@{free}/money").parse().unwrap();
    let error = Db::open(&url).await.unwrap_err();
    assert!(error.may_pass(), "{error:?}");
    assert!(error.to_string().starts_with(&format!("cannot connect to postgres://{free}/money: ")), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{error:?}");

    let store = TestStore::fresh(Engine::Postgres).await;
    let (server, _) = store.url.rsplit_once('/').unwrap();
    let url: StoreUrl = format!("{server}/no_such_database").parse().unwrap();
    let error = Db::open(&url).await.unwrap_err();
    let said = error.to_string();
    assert!(said.ends_with("database \"no_such_database\" does not exist"), "{said}");
    assert!(!error.may_pass(), "somebody must create it");
}

#[tokio::test]
async fn a_postgres_database_that_has_no_place_for_every_character_is_refused_in_one_line_that_says_what_to_do() {
    let latin = create_database("ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0").await;
    let url: StoreUrl = latin.parse().unwrap();
    let error = Db::open(&url).await.unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with(&format!("{url} keeps text as LATIN1, ")), "{said}");
    assert!(said.contains("CREATE DATABASE .. ENCODING 'UTF8' TEMPLATE template0") && !said.contains('\n'), "{said}");
    assert!(!error.may_pass(), "somebody must make another");
    let bytes = create_database("ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0").await;
    assert!(Db::open(&bytes.parse().unwrap()).await.is_ok(), "it keeps all bytes as they come");
}

#[tokio::test]
async fn connections_that_the_server_ended_while_they_lay_idle_are_not_handed_out() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let db = Db::open(&store.url.parse().unwrap()).await.unwrap();
    let Pools::Postgres(pool) = db.pools() else { panic!("PostgreSQL") };
    let place = async || sqlx::query_scalar::<_, i32>("SELECT pg_backend_pid()").fetch_one(pool).await.unwrap();
    let before = [place().await, place().await];
    let mut admin = sqlx::PgConnection::connect(&store.url).await.unwrap();
    let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
               AND datname = current_database() AND application_name = 'landfall'";
    let ended: Vec<bool> = sqlx::query_scalar(end).fetch_all(&mut admin).await.unwrap();
    assert!(!ended.is_empty() && ended.iter().all(|ended| *ended), "{ended:?}");
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(pool.num_idle() > 0, "they are there to be taken");
    for _ in 0..=ended.len() {
        assert!(!before.contains(&place().await));
    }
}

/// Its connections are swept by nobody: sqlx's sweep may turn for ever (transact-rs/sqlx#3645).
#[tokio::test]
async fn an_open_store_runs_nothing_of_its_own() {
    let metrics = tokio::runtime::Handle::current().metrics();
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        let url: StoreUrl = store.url.parse().unwrap();
        let before = metrics.num_alive_tasks();
        let db = Db::open(&url).await.unwrap();
        db.begin().await.unwrap().commit().await.unwrap();
        // A connection goes back to its pool in a task, which ends.
        let settled = async {
            while metrics.num_alive_tasks() > before {
                tokio::task::yield_now().await
            }
        };
        let settled = tokio::time::timeout(std::time::Duration::from_secs(10), settled).await;
        assert!(settled.is_ok(), "{engine:?}: {} tasks more", metrics.num_alive_tasks() - before);
    }
}
