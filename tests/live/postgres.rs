//! PostgreSQL for live tests: databases on the server of `scripts/test`, and servers of one's own to stop.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::Connection;
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::stage::{kept_port, variable};

/// PostgreSQL's code for a database that somebody is connected to.
const OBJECT_IN_USE: &str = "55006";
const PATIENCE_SECS: u32 = 30;

/// The URL of a database that nobody else uses.
pub(crate) async fn fresh_database() -> String {
    database("").await
}

/// The URL of a copy of the database at `url`, to which nobody is connected.
pub(crate) async fn copied_database(url: &str) -> String {
    let (_, name) = url.rsplit_once('/').unwrap();
    database(&format!("TEMPLATE {name}")).await
}

async fn database(options: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let server = variable("LANDFALL_TEST_POSTGRES");
    let name = format!("live_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut admin = sqlx::PgConnection::connect(&server).await.unwrap();
    let create = format!("CREATE DATABASE {name} {options}");
    // The server may not have seen yet that a process that was killed is gone.
    for _ in 0..PATIENCE_SECS {
        let created = sqlx::query(sqlx::AssertSqlSafe(create.clone())).execute(&mut admin).await;
        match created {
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(OBJECT_IN_USE) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            created => {
                created.unwrap();
                break;
            }
        }
    }
    admin.close().await.unwrap();
    let (base, _) = server.rsplit_once('/').unwrap();
    format!("{base}/{name}")
}

/// A server that can be stopped and started; stopped when dropped.
pub(crate) struct Server {
    folder: TempDir,
    port: u16,
    /// Keeps the port until the first start.
    kept: Cell<Option<TcpSocket>>,
}

impl Server {
    /// Makes a cluster; it does not run yet.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (port, kept) = kept_port();
        let server = Server { folder, port, kept: Cell::new(Some(kept)) };
        own(server.folder.path());
        let data = server.data();
        server.tool(
            "initdb",
            &["-D", data.to_str().unwrap(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"],
        );
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn start(&self) {
        let (data, folder) = (self.data(), self.folder.path().display());
        let options = format!("-p {} -c listen_addresses=127.0.0.1 -k {folder}", self.port);
        let log = self.folder.path().join("log");
        drop(self.kept.take());
        self.tool(
            "pg_ctl",
            &["-D", data.to_str().unwrap(), "-o", &options, "-l", log.to_str().unwrap(), "-w", "start"],
        );
    }

    /// As a crash would: connections are cut, nothing is flushed.
    pub(crate) fn stop_at_once(&self) {
        self.tool("pg_ctl", &["-D", self.data().to_str().unwrap(), "-m", "immediate", "-w", "stop"]);
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn tool(&self, name: &str, arguments: &[&str]) {
        assert!(self.try_tool(name, arguments), "{name} {arguments:?} failed");
    }

    fn try_tool(&self, name: &str, arguments: &[&str]) -> bool {
        let tool = Path::new(&variable("LANDFALL_TEST_PG_BIN")).join(name);
        let user = variable("LANDFALL_TEST_PG_USER");
        let mut command = if user.is_empty() {
            Command::new(tool)
        } else {
            // These tools refuse root.
            let mut command = Command::new("runuser");
            command.args(["-u", &user, "--"]).arg(tool);
            command
        };
        command.args(arguments).current_dir(self.folder.path()).stdout(std::process::Stdio::null());
        command.status().unwrap().success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be stopped already.
        self.try_tool("pg_ctl", &["-D", self.data().to_str().unwrap_or_default(), "-m", "immediate", "-w", "stop"]);
    }
}

/// Gives the folder to the user that the server runs as.
fn own(folder: &Path) {
    let user = variable("LANDFALL_TEST_PG_USER");
    if !user.is_empty() {
        assert!(Command::new("chown").arg(user).arg(folder).status().unwrap().success());
    }
}
