//! The events' numbers in the feed, and its pages.
//!
//! Promises: numbers have no gaps. Of two events of one deposit, transfer or identity the earlier has the lower number.
//! Whoever sees a number sees every lower one, because only the holder of a lease writes them, one transaction after the other.
//! The cost of a page depends on what it shows, whatever its filter and however many events there are.

use sqlx_macros::FromRow;

use crate::event::IDENTITY_EVENT;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, int, uint};
use crate::time::Timestamp;

/// Which events are wanted: those that match all that is set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FeedFilter {
    /// Of this account, or of the identity that owns it.
    pub account_id: Option<String>,
    /// The envelope's `type`.
    pub kind: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbered {
    pub seq: u64,
    /// The envelope, byte for byte as it is signed and sent.
    pub payload: String,
}

/// The properties of an event that filters compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventKey {
    /// Empty for an event of an identity.
    pub account_id: String,
    pub kind: String,
}

#[derive(FromRow)]
struct Row {
    feed_seq: i64,
    payload: String,
}

statements! {
    LAST = "SELECT MAX(feed_seq) FROM events WHERE organization_id = $1 AND feed_seq IS NOT NULL";
    // The account or the type is in the order too. Otherwise a planner may take the index of all events and walk over
    // everybody's, because it expects that this account has many.
    PAGE = "SELECT feed_seq, payload FROM events WHERE organization_id = $1 AND feed_seq > $2 AND feed_seq <= $3 \
            ORDER BY feed_seq LIMIT $4";
    PAGE_OF_ACCOUNT = "SELECT feed_seq, payload FROM events WHERE organization_id = $1 AND feed_seq IS NOT NULL \
                       AND (account_id, feed_seq) > ($5, $2) AND (account_id, feed_seq) <= ($5, $3) \
                       ORDER BY account_id, feed_seq LIMIT $4";
    PAGE_OF_TYPE = "SELECT feed_seq, payload FROM events WHERE organization_id = $1 AND feed_seq IS NOT NULL \
                    AND (type, feed_seq) > ($5, $2) AND (type, feed_seq) <= ($5, $3) \
                    ORDER BY type, feed_seq LIMIT $4";
    PAGE_OF_BOTH = "SELECT feed_seq, payload FROM events WHERE organization_id = $1 AND feed_seq IS NOT NULL \
                    AND (account_id, type, feed_seq) > ($5, $6, $2) AND (account_id, type, feed_seq) <= ($5, $6, $3) \
                    ORDER BY account_id, type, feed_seq LIMIT $4";
    IDENTITY_OF = "SELECT identity_id FROM accounts WHERE id = $1";
    // Events of the account's identity, which name no account: the other part of an account's events.
    PAGE_OF_IDENTITY = "SELECT feed_seq, payload FROM events \
                        WHERE organization_id = $1 AND feed_seq IS NOT NULL AND aggregatetype = 'identity' \
                        AND (aggregateid, feed_seq) > ($5, $2) AND (aggregateid, feed_seq) <= ($5, $3) \
                        ORDER BY aggregateid, feed_seq LIMIT $4";
    KEYS = "SELECT account_id, type FROM events WHERE organization_id = $1 AND feed_seq > $2 AND feed_seq <= $3 \
            ORDER BY feed_seq";
    OLDEST_UNNUMBERED = "SELECT created_us FROM events \
                         WHERE organization_id = $1 AND feed_seq IS NULL AND aggregatetype <> 'webhook' \
                         ORDER BY created_us, aggregateid, position LIMIT 1";
    // The oldest, and with each the earlier ones of its deposit, in the order of their times. No event counts as older
    // than an earlier one of its deposit, whatever the writers' clocks said.
    NUMBER = "WITH oldest AS MATERIALIZED (SELECT aggregateid, position FROM events \
                WHERE organization_id = $1 AND feed_seq IS NULL AND aggregatetype <> 'webhook' \
                ORDER BY created_us, aggregateid, position LIMIT $3), \
              ends AS (SELECT aggregateid, MAX(position) AS position FROM oldest GROUP BY aggregateid), \
              timed AS (SELECT events.id, events.aggregateid, events.position, \
                MAX(events.created_us) OVER (PARTITION BY events.aggregateid ORDER BY events.position) AS at_us \
                FROM ends JOIN events ON events.aggregateid = ends.aggregateid AND events.position <= ends.position \
                WHERE events.feed_seq IS NULL), \
              numbered AS MATERIALIZED (SELECT id, ROW_NUMBER() OVER (ORDER BY at_us, aggregateid, position) AS nth FROM timed) \
              UPDATE events SET feed_seq = $2 + numbered.nth FROM numbered WHERE events.id = numbered.id";
}

/// The number of the newest event; 0 while there is none.
pub async fn last(connection: &mut impl Connection) -> Result<u64, StoreError> {
    let row = fetch_optional!(connection, (Option<i64>,), LAST, ORGANIZATION)?;
    row.and_then(|(last,)| last).map_or(Ok(0), |last| uint("feed number", last))
}

/// At most `limit` events that match, with numbers above `after` up to `through`, in their order.
pub async fn page(
    connection: &mut impl Connection,
    filter: &FeedFilter,
    (after, through): (u64, u64),
    limit: u32,
) -> Result<Vec<Numbered>, StoreError> {
    let (after, through, most) = (int(after), int(through), limit as usize);
    let limit = i64::from(limit);
    let mut rows = match (&filter.account_id, &filter.kind) {
        (None, None) => fetch_all!(connection, Row, PAGE, ORGANIZATION, after, through, limit)?,
        (Some(account), None) => {
            fetch_all!(connection, Row, PAGE_OF_ACCOUNT, ORGANIZATION, after, through, limit, account)?
        }
        (None, Some(kind)) => fetch_all!(connection, Row, PAGE_OF_TYPE, ORGANIZATION, after, through, limit, kind)?,
        (Some(account), Some(kind)) => {
            fetch_all!(connection, Row, PAGE_OF_BOTH, ORGANIZATION, after, through, limit, account, kind)?
        }
    };
    if let Some(account) = filter.account_id.as_ref().filter(|_| filter.takes(IDENTITY_EVENT))
        && let Some((identity,)) = fetch_optional!(connection, (String,), IDENTITY_OF, account)?
    {
        rows.extend(fetch_all!(connection, Row, PAGE_OF_IDENTITY, ORGANIZATION, after, through, limit, identity)?);
        rows.sort_by_key(|row| row.feed_seq);
        rows.truncate(most);
    }
    let read = |Row { feed_seq, payload }| Ok(Numbered { seq: uint("feed number", feed_seq)?, payload });
    rows.into_iter().map(read).collect()
}

/// The account and type of the events with numbers above `after` up to `through`, in their order.
pub async fn keys(connection: &mut impl Connection, (after, through): (u64, u64)) -> Result<Vec<EventKey>, StoreError> {
    let rows = fetch_all!(connection, (String, String), KEYS, ORGANIZATION, int(after), int(through))?;
    Ok(rows.into_iter().map(|(account_id, kind)| EventKey { account_id, kind }).collect())
}

/// When the oldest event without a number was written; `None` if each has one.
pub async fn oldest_unnumbered(connection: &mut impl Connection) -> Result<Option<Timestamp>, StoreError> {
    let row = fetch_optional!(connection, (i64,), OLDEST_UNNUMBERED, ORGANIZATION)?;
    Ok(row.map(|(at,)| Timestamp(at)))
}

/// Numbers about `limit` events, the oldest first; returns how many. The caller holds the lease of the feed, in the
/// same transaction.
///
/// # Errors
/// Also when the numbers would have a gap: then nothing of this transaction may be committed.
pub async fn number(tx: &mut Tx, limit: u32) -> Result<u64, StoreError> {
    let before = last(tx).await?;
    let numbered = execute!(tx, NUMBER, ORGANIZATION, int(before), i64::from(limit))?;
    let after = last(tx).await?;
    if after == before + numbered {
        Ok(numbered)
    } else {
        let what = format!("{numbered} events behind {before} end at {after}");
        Err(StoreError::inconsistent("feed numbers", what))
    }
}

impl FeedFilter {
    /// Whether an event may match: an event of an identity may be for any account.
    pub fn may_match(&self, keys: &EventKey) -> bool {
        let is_for = |account: &str| keys.account_id.is_empty() || keys.account_id == account;
        self.account_id.as_deref().is_none_or(is_for) && self.takes(&keys.kind)
    }

    fn takes(&self, kind: &str) -> bool {
        self.kind.as_deref().is_none_or(|wanted| wanted == kind)
    }
}
