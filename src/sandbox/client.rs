//! A client of the API: asks over HTTP for what the events reported.

use anyhow::bail;
use serde_json::Value;

use crate::key::ApiKey;
use crate::sandbox::books::Shown;

/// So few that there is more than one page.
const PAGE_DEPOSITS: u8 = 5;
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
        let first = format!("{}?account_id={account_id}&limit={PAGE_DEPOSITS}", self.url);
        let mut url = first.clone();
        let mut shown = Shown::new();
        for _ in 0..PAGES_MAX {
            let request = self.client.get(&url).header("authorization", format!("Bearer {}", self.key.reveal()));
            let answer = request.send().await?;
            let status = answer.status();
            let text = answer.text().await?;
            let page: Value = serde_json::from_str(&text).unwrap_or_default();
            let Some(deposits) = page["deposits"].as_array().filter(|_| status.is_success()) else {
                bail!("{url} answered {status}: {text}");
            };
            let field = |deposit: &Value, name: &str| deposit[name].as_str().unwrap_or_default().to_owned();
            shown.extend(deposits.iter().map(|deposit| (field(deposit, "id"), field(deposit, "status"))));
            match page["cursor"].as_str() {
                Some(cursor) => url = format!("{first}&cursor={cursor}"),
                None => return Ok(shown),
            }
        }
        bail!("{first} has no last page")
    }
}
