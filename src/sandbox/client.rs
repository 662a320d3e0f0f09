//! A client of the API: opens accounts and sends money over HTTP, and asks for what the events reported.

use anyhow::{bail, ensure};
use serde_json::Value;

use crate::key::ApiKey;
use crate::sandbox::books::Shown;

/// So few that there is more than one page.
const PAGE_ITEMS: u8 = 5;
/// Far more pages than the play has deposits.
const PAGES_MAX: usize = 100;

/// Where the interface is served, and the key to it.
#[derive(Clone, Debug)]
pub(super) struct Api {
    pub(super) url: String,
    pub(super) key: ApiKey,
    pub(super) client: reqwest::Client,
}

impl Api {
    /// Ids and statuses of the account's deposits, page by page.
    pub(super) async fn deposits(&self, account_id: &str) -> anyhow::Result<Shown> {
        self.listed("deposits", account_id).await
    }

    /// Ids and statuses of the account's transfers, page by page.
    pub(super) async fn transfers(&self, account_id: &str) -> anyhow::Result<Shown> {
        self.listed("transfers", account_id).await
    }

    /// What a path shows.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let (status, body) = self.answer(self.client.get(format!("{}{path}", self.url))).await?;
        ensure!(status == 200, "{path} answered {status}: {body}");
        Ok(body)
    }

    /// The status and the answer to a request.
    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let request = self.client.post(format!("{}{path}", self.url)).header("content-type", "application/json");
        self.answer(request.body(body.to_string())).await
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> anyhow::Result<(u16, Value)> {
        let answer = request.header("authorization", format!("Bearer {}", self.key.reveal())).send().await?;
        let status = answer.status().as_u16();
        Ok((status, serde_json::from_str(&answer.text().await?).unwrap_or_default()))
    }

    async fn listed(&self, what: &str, account_id: &str) -> anyhow::Result<Shown> {
        let first = format!("/v2/crypto/{what}?account_id={account_id}&limit={PAGE_ITEMS}");
        let mut url = first.clone();
        let mut shown = Shown::new();
        for _ in 0..PAGES_MAX {
            let page = self.get(&url).await?;
            let Some(items) = page[what].as_array() else { bail!("{url} lists no {what}: {page}") };
            let field = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
            shown.extend(items.iter().map(|item| (field(item, "id"), field(item, "status"))));
            match page["cursor"].as_str() {
                Some(cursor) => url = format!("{first}&cursor={cursor}"),
                None => return Ok(shown),
            }
        }
        bail!("{first} has no last page")
    }
}
