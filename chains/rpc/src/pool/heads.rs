//! Who leads among the endpoints, and how many are missing while some of them cool down.
//!
//! Promises: the newest block is never below what was agreed to be final. An endpoint in the minority does not lead
//! while another can, nor an unresponsive one beside one that responds. While no endpoint can be read from, a poll
//! waits for the first that may be asked again, for a second at most.

use std::sync::Arc;

use landfall_chain::BlockRef;
use tokio::time::Instant;

use crate::dialect::Dialect;
use crate::error::RpcError;
use crate::pool::Pool;
use crate::pool::agree::is_below;
use crate::pool::endpoint::{Endpoint, Shortage};

/// How many blocks ahead another branch may be without leading, while it is open which branch will win.
const AHEAD_MAX: u64 = 1;

impl<D: Dialect> Pool<D> {
    /// The newest block of the best healthy endpoint, which leads from now on. The best is not in the minority, not
    /// unresponsive, and has the highest number; at the same number the leader stays, else the fastest leads. An
    /// endpoint that ends below the newest block that was `agreed` to be final lags, or is on another chain: it does
    /// not lead.
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
            // With two branches, an endpoint that has not answered this poll reports an old state.
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

    /// What is missing now, while some endpoints cool down.
    pub(crate) fn shortage(&self) -> Shortage {
        let agreed = self.agreement().newest();
        match self.heads().filter(|(latest, _)| reaches(latest, agreed.as_ref())).count() {
            0 => Shortage::Everybody,
            responses if responses < self.statuses.agree() => Shortage::Votes,
            _ => Shortage::Nothing,
        }
    }

    /// When the first cool-down ends, where no endpoint can be read from or asked before, and that is soon.
    pub(crate) fn first_cooled_down(&self) -> Option<Instant> {
        if self.shortage() != Shortage::Everybody || self.endpoints.iter().any(|endpoint| endpoint.is_polled()) {
            return None;
        }
        let cools_down = self.endpoints.iter().filter(|endpoint| !endpoint.is_of_wrong_chain());
        let first = cools_down.filter_map(|endpoint| endpoint.cools_down_until(Shortage::Everybody)).min()?;
        (first <= Instant::now() + self.timings.first_cooled_down_max).then_some(first)
    }

    /// When the first endpoint without an open poll may be asked again; those of the last round were asked at
    /// `asked_at`.
    pub(crate) fn next_poll(&self, asked_at: Instant) -> Option<Instant> {
        let shortage = self.shortage();
        let idle = self.endpoints.iter().filter(|endpoint| !endpoint.is_polled());
        let first = idle.map(|endpoint| endpoint.cools_down_until(shortage).unwrap_or(asked_at)).min()?;
        Some(first.max(asked_at + self.timings.again_after))
    }
}

fn reaches(latest: &BlockRef, agreed: Option<&BlockRef>) -> bool {
    agreed.is_none_or(|agreed| !is_below(latest, agreed))
}
