//! Who leads among the endpoints, and what is lacked while some of them rest.
//!
//! Promises: no block below what was agreed to be final is ever the newest; who strays from the branch that most follow
//! does not lead, nor who was silent beside one that was not; while nobody can be read from, the first that
//! may be asked again is waited for, and for a second at most.

use std::sync::Arc;
use std::time::Duration;

use landfall_chain::BlockRef;
use tokio::time::Instant;

use crate::dialect::Dialect;
use crate::error::RpcError;
use crate::pool::Pool;
use crate::pool::agree::is_below;
use crate::pool::endpoint::{Endpoint, Shortage};

/// How long a poll waits for the first endpoint to have rested, where nobody can be asked before.
const FIRST_COOLED_DOWN_MAX: Duration = Duration::from_secs(1);
/// How long a poll that nobody has answered yet leaves those alone that failed, before they are asked again beside those that are
/// silent: who asks for the tip pauses only between his calls.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How many blocks ahead another branch may be without taking the lead, while nobody can report which will win.
const AHEAD_MAX: u64 = 1;

impl<D: Dialect> Pool<D> {
    /// The newest block that a healthy endpoint reported; who reported it leads from now on, and before others at its number.
    /// Who ends below the newest block that was `agreed` to be final lags, or is not on that chain: he does not lead.
    pub(crate) fn lead(&self, agreed: Option<BlockRef>) -> Result<BlockRef, D::Error> {
        let (mut leader, now) = (self.leader(), Instant::now());
        let (above, below): (Vec<_>, Vec<_>) = self.heads().partition(|(latest, _)| reaches(latest, agreed.as_ref()));
        let (is_split, minorities) = {
            let branches = self.branches();
            (branches.is_split(), above.iter().map(|(_, index)| branches.is_minority(*index)).collect::<Vec<_>>())
        };
        let best = above.into_iter().zip(minorities).max_by_key(|((latest, index), is_minority)| {
            let endpoint = &self.endpoints[*index];
            // Its newest blocks would be read elsewhere, and may not be there yet.
            let is_unresponsive = endpoint.unresponsive(now).is_some();
            // Of two branches, who has not answered this time speaks of what was.
            let leads = *leader == Some(endpoint.index) && !(is_split && endpoint.is_polled());
            let slowness = endpoint.latency_ms().unwrap_or(u64::MAX);
            let reach = latest.number + if is_split && leads { AHEAD_MAX } else { 0 };
            (!is_minority, !is_unresponsive, reach, leads, std::cmp::Reverse((slowness, *index)))
        });
        let best = best.map(|(head, _)| head);
        match (best, below.into_iter().max_by_key(|(latest, _)| latest.number), agreed) {
            (Some((latest, index)), ..) => {
                *leader = Some(self.endpoints[index].index);
                Ok(latest)
            }
            (None, Some((latest, index)), Some(agreed)) => {
                let (chain, endpoint) = (self.chain, self.endpoints[index].id.clone());
                Err(RpcError::BelowFinal { chain, endpoint, latest, agreed }.into())
            }
            (None, ..) => Err(self.nobody()),
        }
    }

    /// The newest blocks of the healthy endpoints, and their places.
    fn heads(&self) -> impl Iterator<Item = (BlockRef, usize)> {
        let now = Instant::now();
        let head = move |(index, endpoint): (usize, &Arc<Endpoint<D>>)| endpoint.vote(now, |said| (said.latest, index));
        self.endpoints.iter().enumerate().filter_map(head)
    }

    /// What is lacked now, while some endpoints rest.
    pub(crate) fn shortage(&self) -> Shortage {
        let agreed = self.agreement().newest();
        match self.heads().filter(|(latest, _)| reaches(latest, agreed.as_ref())).count() {
            0 => Shortage::Everybody,
            responses if responses < self.statuses.agree() => Shortage::Votes,
            _ => Shortage::Nothing,
        }
    }

    /// When the first endpoint will have rested, where nobody can be read from or asked before and that is soon.
    pub(crate) fn first_cooled_down(&self) -> Option<Instant> {
        if self.shortage() != Shortage::Everybody || self.endpoints.iter().any(|endpoint| endpoint.is_polled()) {
            return None;
        }
        let cools_down = self.endpoints.iter().filter(|endpoint| !endpoint.is_of_wrong_chain());
        let first = cools_down.filter_map(|endpoint| endpoint.cools_down_until(Shortage::Everybody)).min()?;
        (first <= Instant::now() + FIRST_COOLED_DOWN_MAX).then_some(first)
    }

    /// When the first endpoint of which no poll is under way may be asked again, behind those that were asked at `asked_at`.
    pub(crate) fn next_poll(&self, asked_at: Instant) -> Option<Instant> {
        let shortage = self.shortage();
        let idle = self.endpoints.iter().filter(|endpoint| !endpoint.is_polled());
        let first = idle.map(|endpoint| endpoint.cools_down_until(shortage).unwrap_or(asked_at)).min()?;
        Some(first.max(asked_at + AGAIN_AFTER))
    }
}

fn reaches(latest: &BlockRef, agreed: Option<&BlockRef>) -> bool {
    agreed.is_none_or(|agreed| !is_below(latest, agreed))
}
