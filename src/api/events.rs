//! `GET /v2/events` (an extension of the interface): every event in one sequence, for clients that read instead of
//! being called.
//!
//! Promises: a client that reads after the last `next` gets no event twice and misses none, whatever was committed
//! late. `event` is byte for byte what webhooks are sent. A request may wait for an event. While it waits it takes no
//! place from others, and a stop ends it at once. If its key was revoked meanwhile, it gets no event.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, RawQuery, State};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::accounts::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::api::auth;
use crate::api::long_poll::Refused;
use crate::api::places::Place;
use crate::api::problem::{ParameterError, Problem};
use crate::api::query::{self, Query};
use crate::api::scope::Caller;
use crate::api::webhook_bodies::{
    IdentityEnvelope, TransferFailedEnvelope, TransferReconciliationEnvelope, TransferSubmittedEnvelope,
};
use crate::api::{AppState, openapi};
use crate::event::FEED_TYPES;
use crate::store::feed::{self, FeedFilter, Numbered};

const PARAMETERS: [&str; 5] = ["after", "account_id", "type", "limit", "wait"];
/// The longest that a request may wait for an event. Shorter than the half minute after which proxies give up.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(25);
/// Every language reads JSON's integers exactly up to here.
const SEQ_MAX: u64 = 1 << 53;

/// A part of the feed, in its order.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventList {
    #[schema(max_items = 100)]
    events: Vec<FeedEntry>,
    /// Send it as `after` next time. Every matching event up to this number has been returned, so it grows even when
    /// nothing matches.
    #[schema(minimum = 0)]
    next: u64,
}

/// An event and its number.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FeedEntry {
    /// Its place in the feed: 1, 2, 3 .. without gaps. It never changes while the store lives. A store that was built
    /// anew gives other numbers to the same event ids.
    #[schema(minimum = 1)]
    seq: u64,
    /// Byte for byte what webhooks are sent.
    #[schema(value_type = EventEnvelope)]
    event: Box<RawValue>,
}

/// An event as it is signed and sent; its `type` says which.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it says in the document what stored bytes are")]
enum EventEnvelope {
    Deposit(DepositEnvelope),
    Identity(IdentityEnvelope),
    TransferSubmitted(TransferSubmittedEnvelope),
    TransferReconciliation(TransferReconciliationEnvelope),
    TransferFailed(TransferFailedEnvelope),
}

/// A change of a deposit as it is signed and sent.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DepositEnvelope {
    #[schema(format = "uuid")]
    id: String,
    #[schema(schema_with = openapi::deposit_event_type)]
    r#type: String,
    data: DepositEvent,
}

/// The deposit as it was when the event was made. Deduplicate on (`dedup_key`, `status`).
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DepositEvent {
    #[schema(format = "uuid")]
    id: String,
    #[schema(format = "uuid")]
    dedup_key: String,
    account_id: String,
    account_address: String,
    #[schema(schema_with = openapi::source_type)]
    source_type: String,
    source_address: String,
    currency_symbol: String,
    #[schema(pattern = r"^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$")]
    amount: String,
    #[schema(value_type = openapi::ChainName)]
    destination_chain: String,
    transaction_hash: String,
    #[schema(schema_with = openapi::deposit_status)]
    status: String,
    #[schema(format = DateTime)]
    confirmed_at: String,
    #[schema(format = DateTime)]
    created_at: String,
}

/// What a request asks for.
struct Asked {
    filter: FeedFilter,
    after: u64,
    limit: u8,
    wait: Duration,
}

/// The events that answer it.
struct Page {
    events: Vec<Numbered>,
    next: u64,
}

/// Read the event feed
///
/// Every event in one sequence without gaps, beside what webhooks are sent: to catch up after an outage, to reconcile,
/// or instead of a webhook. Begin with `after=0`, then send the last `next`. Nothing is ever inserted below a number
/// that was given out. Test events of webhooks are not in it.
#[utoipa::path(
    get,
    path = "/v2/events",
    operation_id = "list_events",
    tag = "Events",
    security(("bearer" = ["read"])),
    extensions(("x-landfall-extension" = json!(true))),
    params(
        ("after" = Option<u64>, Query, nullable = false, minimum = 0, maximum = 9_007_199_254_740_992_u64,
            description = "Only events with a higher number: the last `next`. 0 when it is missing. One that no event has reached \
                           yet is refused: the store was built anew, so begin with 0."),
        ("account_id" = Option<String>, Query, nullable = false,
            description = "Only events of this account, and of the identity that it belongs to.",
            min_length = 1, pattern = r"^[^\u0000-\u001F\u007F-\u009F\uFFFD]+$"),
        ("type" = inline(Option<openapi::EventType>), Query, nullable = false, description = "Only events of this type."),
        ("limit" = inline(Option<openapi::AccountPageLimit>), Query, nullable = false,
            description = "How many events an answer has at most."),
        ("wait" = Option<u8>, Query, nullable = false, minimum = 0, maximum = 25,
            description = "How many seconds to wait for an event when there is none yet; 0 when it is missing. At most 200 requests may \
                           wait with one API key (429 beyond)."),
    ),
    responses(
        (status = 200, description = "The next events that match; none when there are none, or none came in time.",
            body = EventList),
        (status = 400, description = "A parameter is unknown, repeated or malformed, or `after` is beyond the newest event.",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(state): State<AppState>,
    Extension(place): Extension<Place>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Json<EventList>, Problem> {
    let asked = Asked::parse(query.as_deref())?;
    let page = read(&state, &asked, asked.after).await?;
    // Only after reading: whether a number is too high is known only then.
    if page.next < asked.after {
        return Err(beyond(page.next));
    }
    let page = if page.events.is_empty() && !asked.wait.is_zero() {
        wait(&state, &asked, page, (&place, &caller)).await?
    } else {
        page
    };
    page.show().map(Json)
}

/// The events after `after`, up to the newest one.
async fn read(state: &AppState, asked: &Asked, after: u64) -> Result<Page, Problem> {
    let limit = asked.limit;
    let mut reader = state.db.read().await.map_err(Problem::internal)?;
    // First the newest number, then the page up to it. An event that is numbered in between belongs to the next page;
    // otherwise the `next` of a filter could pass it.
    let last = feed::last(&mut reader).await.map_err(Problem::internal)?;
    let found = feed::page(&mut reader, &asked.filter, (after, last), u32::from(limit)).await;
    let events = found.map_err(Problem::internal)?;
    let is_full = events.len() >= usize::from(limit);
    let next = events.last().filter(|_| is_full).map_or(last, |event| event.seq);
    Ok(Page { events, next })
}

/// The first page with an event in it; the empty page if the time is over or the server stops.
async fn wait(
    state: &AppState,
    asked: &Asked,
    empty: Page,
    (place, caller): (&Place, &Caller),
) -> Result<Page, Problem> {
    let _seat = state.tail.seat(&caller.key_id).map_err(|refused| match refused {
        Refused::ByKey { most } => Problem::too_many_wait(most),
        Refused::ByAll => Problem::overloaded(),
    })?;
    place.leave();
    let mut tail = state.tail.listen();
    let over = tokio::time::sleep(asked.wait);
    tokio::pin!(over);
    let mut seen = empty.next;
    loop {
        let reported = tokio::select! {
            reported = tail.wait_for(|recent| recent.last > seen) => reported.map(|recent| (recent.last, recent.may_match(&asked.filter, seen))),
            () = &mut over => break,
            () = state.stop.cancelled() => break,
        };
        match reported {
            Ok((last, false)) => seen = last,
            Ok((_, true)) => {
                let _reading = state.tail.reading.acquire().await.map_err(|_| Problem::failed())?;
                let page = read(state, asked, seen).await?;
                if !page.events.is_empty() {
                    auth::still_valid(state, caller).await?;
                    return Ok(page);
                }
                seen = seen.max(page.next);
            }
            // The loop that reads new events has ended.
            Err(_) => break,
        }
    }
    Ok(Page { events: Vec::new(), next: seen })
}

fn beyond(last: u64) -> Problem {
    let detail =
        format!("is beyond the newest event, {last}: the store was built anew, or this is no `next` of this feed");
    Problem::invalid(vec![ParameterError { parameter: "after".to_owned(), detail }])
}

impl Asked {
    fn parse(raw: Option<&str>) -> Result<Self, Problem> {
        let mut query = Query::parse(raw, &PARAMETERS);
        let after = query.optional("after", |text| query::integer(text, SEQ_MAX)).unwrap_or(0);
        let account_id = query.optional("account_id", query::text);
        let kind = query.optional("type", kind);
        let limit = query.optional("limit", |text| query::limit(text, LIMIT_MAX)).unwrap_or(LIMIT_DEFAULT);
        let wait = query.optional("wait", |text| query::integer(text, WAIT_MAX.as_secs())).unwrap_or(0);
        query.check()?;
        Ok(Asked { filter: FeedFilter { account_id, kind }, after, limit, wait: Duration::from_secs(wait) })
    }
}

impl Page {
    fn show(self) -> Result<EventList, Problem> {
        let entry = |Numbered { seq, payload }| {
            let event = RawValue::from_string(payload).map_err(|error| unreadable(seq, &error))?;
            Ok(FeedEntry { seq, event })
        };
        let events = self.events.into_iter().map(entry).collect::<Result<_, Problem>>()?;
        Ok(EventList { events, next: self.next })
    }
}

/// A stored event is no JSON, although only this program writes events.
fn unreadable(seq: u64, error: &serde_json::Error) -> Problem {
    tracing::error!("event {seq} of the feed cannot be read: {error}");
    Problem::failed()
}

fn kind(text: &str) -> Result<String, String> {
    let known = FEED_TYPES.into_iter().find(|known| *known == text);
    known.map(str::to_owned).ok_or_else(|| format!("must be one of {}", FEED_TYPES.join(", ")))
}
