//! Receives Landfall's webhooks: verifies them, takes each change of a deposit once and credits on CONFIRMED, and takes each
//! change of an identity and of a transfer once.
//!
//! ```sh
//! SIGNING_KEY=whsec_.. PORT=9000 LEDGER=ledger.db cargo run --example receiver
//! ```
//!
//! Events come at least once. What makes crediting happen exactly once is one transaction: the change is noted under
//! (`dedup_key`, `status`), and only when that was not there yet, the account is credited. The 2xx is said after the commit.
//! An identity may come to the same status again, and a transfer to the same stage. So their changes are known by the `id`
//! of their envelope.

#![expect(
    clippy::disallowed_methods,
    reason = "an example of a receiver is a program of its own, and reads its own environment"
)]

use std::env::var;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde::Deserialize;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use standardwebhooks::Webhook;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS changes (dedup_key TEXT, status TEXT, PRIMARY KEY (dedup_key, status));
    CREATE TABLE IF NOT EXISTS other_changes (event_id TEXT PRIMARY KEY, object_id TEXT, change TEXT);
    CREATE TABLE IF NOT EXISTS credits (dedup_key TEXT PRIMARY KEY, account_id TEXT, amount TEXT, currency_symbol TEXT);
";

/// The envelope. `data` is read once the type is known.
#[derive(Deserialize)]
struct Event<'a> {
    id: &'a str,
    r#type: &'a str,
    #[serde(borrow)]
    data: &'a serde_json::value::RawValue,
}

#[derive(Deserialize)]
struct Deposit {
    dedup_key: String,
    status: String,
    account_id: String,
    /// A decimal text: never make it a float.
    amount: String,
    currency_symbol: String,
}

/// A change of an identity. Labels and reasons are left alone, and fields that are not known yet.
#[derive(Deserialize)]
struct IdentityChange {
    identity: Identity,
    affected_account_ids: Vec<String>,
}

#[derive(Deserialize)]
struct Identity {
    id: String,
    status: String,
}

/// A transfer, and where it stands on its way. CONFIRMED, FAILED and DROPPED are for ever; a `stage` before them may be
/// taken back by a reorg.
#[derive(Deserialize)]
struct Transfer {
    id: String,
    status: String,
    /// Of `transfer_reconciliation` only.
    stage: Option<String>,
    account_id: String,
    /// A decimal text: never make it a float.
    amount: String,
    currency_symbol: String,
}

struct Receiver {
    verifier: Webhook,
    ledger: SqlitePool,
}

impl Receiver {
    async fn receive(&self, headers: &HeaderMap, body: &[u8]) -> anyhow::Result<StatusCode> {
        // The bytes as they came: what is parsed and written again has another signature.
        if self.verifier.verify(body, headers).is_err() {
            return Ok(StatusCode::UNAUTHORIZED);
        }
        let event: Event<'_> = serde_json::from_slice(body)?;
        match event.r#type {
            "deposit_v2" => {
                let deposit: Deposit = serde_json::from_str(event.data.get())?;
                if self.take(&deposit).await? && deposit.status == "CONFIRMED" {
                    println!("credited {} {} to {}", deposit.amount, deposit.currency_symbol, deposit.account_id);
                }
            }
            "identity_status_update" => {
                let IdentityChange { identity, affected_account_ids } = serde_json::from_str(event.data.get())?;
                if self.note(event.id, &identity.id, &identity.status).await? {
                    println!("{} is {}: {}", identity.id, identity.status, affected_account_ids.join(" "));
                }
            }
            "transfer_submitted" | "transfer_reconciliation" | "transfer_failed" => {
                let transfer: Transfer = serde_json::from_str(event.data.get())?;
                let Transfer { id, status, stage, account_id, amount, currency_symbol } = &transfer;
                let change = stage.as_ref().unwrap_or(status);
                if self.note(event.id, id, change).await? {
                    println!("{amount} {currency_symbol} from {account_id}: {change}");
                }
            }
            // Types that are not known yet are taken and left alone, so that they are not sent again.
            _ => {}
        }
        Ok(StatusCode::NO_CONTENT)
    }

    /// Notes a change of a deposit and credits it when it is CONFIRMED; false when it was noted before.
    async fn take(&self, deposit: &Deposit) -> Result<bool, sqlx::Error> {
        let mut tx = self.ledger.begin_with("BEGIN IMMEDIATE").await?;
        let change = sqlx::query("INSERT INTO changes VALUES (?, ?) ON CONFLICT DO NOTHING");
        let noted = change.bind(&deposit.dedup_key).bind(&deposit.status).execute(&mut *tx).await?;
        if noted.rows_affected() == 0 {
            return Ok(false);
        }
        if deposit.status == "CONFIRMED" {
            let credit = sqlx::query("INSERT INTO credits VALUES (?, ?, ?, ?)").bind(&deposit.dedup_key);
            let credit = credit.bind(&deposit.account_id).bind(&deposit.amount).bind(&deposit.currency_symbol);
            credit.execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Notes a change of an identity or a transfer; false when it was noted before.
    async fn note(&self, event_id: &str, object_id: &str, change: &str) -> Result<bool, sqlx::Error> {
        let noted = sqlx::query("INSERT INTO other_changes VALUES (?, ?, ?) ON CONFLICT DO NOTHING").bind(event_id);
        let noted = noted.bind(object_id).bind(change).execute(&self.ledger).await?;
        Ok(noted.rows_affected() > 0)
    }
}

async fn answer(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    receiver.receive(&headers, &body).await.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        StatusCode::INTERNAL_SERVER_ERROR
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let ledger = var("LEDGER").unwrap_or_else(|_| "ledger.db".to_owned());
    let options = SqliteConnectOptions::new().filename(ledger).create_if_missing(true);
    let ledger = SqlitePool::connect_with(options.synchronous(SqliteSynchronous::Full)).await?;
    sqlx::raw_sql(TABLES).execute(&ledger).await?;
    let verifier = Webhook::new(&var("SIGNING_KEY")?)?;
    let routes = Router::new().route("/", post(answer)).with_state(Arc::new(Receiver { verifier, ledger }));
    let port: u16 = var("PORT").unwrap_or_else(|_| "9000".to_owned()).parse()?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, routes).await?;
    Ok(())
}
