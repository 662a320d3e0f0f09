//! What endpoints agree on as final.
//!
//! Promises: a block is reported as final only when as many endpoints as must agree call it final and show the same
//! hash at its number. It stays reported, and nothing lower is reported after it. Pure: who is asked, and when, is
//! `pool`'s. The hashes that it needs are asked for with the next poll, so that agreeing costs no request.

use std::collections::{BTreeMap, BTreeSet};

use landfall_chain::{BlockHash, BlockRef};

/// How many numbers are asked for at once for one rule while endpoints are not at the same one.
const WANTED_MAX: usize = 4;

/// What one healthy endpoint reports.
#[derive(Clone, Debug)]
pub(crate) struct Vote {
    /// Its place among the endpoints.
    pub(crate) index: usize,
    pub(crate) id: String,
    pub(crate) latest: BlockRef,
    /// The newest final number by each rule.
    pub(crate) finals: Vec<Option<u64>>,
    pub(crate) hashes: BTreeMap<u64, BlockHash>,
}

/// What was agreed on so far, by rule: the network's, then those of its tiers.
#[derive(Debug)]
pub(crate) struct Agreement {
    agreed: Vec<Option<BlockRef>>,
    wanted: Vec<BTreeSet<u64>>,
    waiting: Option<String>,
}

impl Agreement {
    /// Nothing yet, by so many `rules`.
    pub(crate) fn new(rules: usize) -> Self {
        Agreement { agreed: vec![None; rules], wanted: vec![BTreeSet::new(); rules], waiting: None }
    }

    /// What is final by the rule of the network.
    pub(crate) fn finalized(&self) -> Option<BlockRef> {
        self.agreed.first().copied().flatten()
    }

    /// The same by the rules of the tiers.
    pub(crate) fn tiers(&self) -> Vec<Option<BlockRef>> {
        self.agreed.iter().skip(1).copied().collect()
    }

    /// The newest block that was agreed to be final, by whatever rule.
    pub(crate) fn newest(&self) -> Option<BlockRef> {
        self.agreed.iter().copied().flatten().max_by_key(|block| block.number)
    }

    pub(crate) fn waiting(&self) -> Option<String> {
        self.waiting.clone()
    }

    /// The numbers whose hashes would help.
    pub(crate) fn wanted(&self) -> BTreeSet<u64> {
        self.wanted.iter().flatten().copied().collect()
    }

    /// Whether a hash is missing for a rule by which nothing was ever final.
    pub(crate) fn is_first_to_come(&self) -> bool {
        self.agreed.iter().zip(&self.wanted).any(|(agreed, wanted)| agreed.is_none() && !wanted.is_empty())
    }

    /// Takes in what the endpoints report now. Returns those that contradict what others agree on: their place, their
    /// block and the agreed one. `others` says why the other endpoints have no vote.
    pub(crate) fn hear(&mut self, votes: &[Vote], must: usize, others: &str) -> Vec<(usize, BlockRef, BlockRef)> {
        let asked = self.wanted.first().cloned().unwrap_or_default();
        for rule in 0..self.agreed.len() {
            let known = self.agreed[rule].map_or(0, |agreed| agreed.number);
            if let Some(agreed) = newest_agreed(votes, rule, must)
                && self.agreed[rule].is_none_or(|before| before.number < agreed.number)
            {
                self.agreed[rule] = Some(agreed);
            }
            let now = self.agreed[rule];
            let wanted = &mut self.wanted[rule];
            if let Some(target) = target(votes, rule, must).filter(|target| now.is_none() || *target > known) {
                wanted.insert(target);
            }
            wanted.retain(|number| now.is_none_or(|agreed| *number > agreed.number));
            while wanted.len() > WANTED_MAX {
                // The oldest stays: all will have answered it at some time. The newest stay, for they are the goal.
                let second = wanted.iter().nth(1).copied();
                second.map(|second| wanted.remove(&second));
            }
        }
        self.waiting = self.why_waiting(votes, must, &asked, others);
        // One endpoint against another proves no lie: only where two agree is a third one wrong.
        if must > 1 { votes.iter().filter_map(|vote| contradiction(vote, votes, must)).collect() } else { Vec::new() }
    }

    /// The block at `number`, when `must` endpoints call it final and show the same one.
    pub(crate) fn at(votes: &[Vote], number: u64, must: usize) -> Option<BlockRef> {
        agreed_at(votes, 0, number, must)
    }

    /// `asked` are the numbers whose hashes were asked for before.
    fn why_waiting(&self, votes: &[Vote], must: usize, asked: &BTreeSet<u64>, others: &str) -> Option<String> {
        if votes.len() < must {
            let asked = votes.len();
            return Some(format!(
                "{asked} of the {must} endpoints that must agree on what is final can be asked; {others}"
            ));
        }
        if let Some(finalized) = self.finalized() {
            let below: Vec<&str> =
                votes.iter().filter(|vote| is_below(&vote.latest, &finalized)).map(|vote| &*vote.id).collect();
            let there = votes.len() - below.len();
            if there < must {
                return Some(format!(
                    "{there} of the {must} endpoints that must agree have reached block {finalized}, which is final \
                     already: not {}",
                    below.join(", ")
                ));
            }
        }
        let naming = votes.iter().filter(|vote| vote.finals.first().is_some_and(Option::is_some)).count();
        if naming < must {
            return Some(format!("{naming} of the {must} endpoints that must agree call any block final"));
        }
        let target = target(votes, 0, must)?;
        if let Some(finalized) = self.finalized().filter(|finalized| finalized.number >= target) {
            return why_no_newer(votes, &finalized, must);
        }
        let says = |number: u64| {
            votes.iter().filter_map(move |vote| {
                let is_final = vote.finals[0].is_some_and(|newest| newest >= number);
                vote.hashes.get(&number).filter(|_| is_final).map(|hash| (hash, &vote.id))
            })
        };
        let disputed = self.wanted[0].iter().rev().chain([&target]).find(|number| {
            let mut hashes = says(**number).map(|(hash, _)| hash);
            hashes.next().is_some_and(|first| hashes.any(|other| other != first))
        });
        let Some(disputed) = disputed else {
            let number = self.wanted[0].intersection(asked).next()?;
            return why_not_shown(votes, *number, must);
        };
        let (agreeing, count) = (largest_group(says(*disputed).map(|(hash, _)| *hash)), votes.len());
        let said: Vec<String> = says(*disputed).map(|(hash, id)| format!("{id} shows {hash}")).collect();
        Some(format!("{agreeing} of {count} endpoints agree on block {disputed}, and {must} must: {}", said.join(", ")))
    }
}

/// Whether a chain that ends at `latest` cannot hold the final block `agreed`.
pub(crate) fn is_below(latest: &BlockRef, agreed: &BlockRef) -> bool {
    latest.number < agreed.number || latest.number == agreed.number && latest.hash != agreed.hash
}

/// Which endpoints call nothing newer final than what was agreed on, while others do. For some seconds that is usual;
/// the caller warns only after longer. The text stays the same as long as the same endpoints stand still.
fn why_no_newer(votes: &[Vote], agreed: &BlockRef, must: usize) -> Option<String> {
    let is_newer = |vote: &&Vote| vote.finals[0].is_some_and(|newest| newest > agreed.number);
    let (newer, behind): (Vec<&Vote>, Vec<&Vote>) = votes.iter().partition(is_newer);
    let behind: Vec<&str> = behind.iter().map(|vote| &*vote.id).collect();
    let (there, behind) = (newer.len(), behind.join(", "));
    (there > 0).then(|| {
        format!("{there} of the {must} endpoints that must agree call a newer block final than {agreed}: not {behind}")
    })
}

/// Which endpoints call `number` final, as many do, and do not show its block. An answer may be under way, so this too
/// is usual for some seconds.
fn why_not_shown(votes: &[Vote], number: u64, must: usize) -> Option<String> {
    let says = votes.iter().filter(|vote| vote.finals[0].is_some_and(|newest| newest >= number));
    let (showing, without): (Vec<&Vote>, Vec<&Vote>) = says.partition(|vote| vote.hashes.contains_key(&number));
    let without: Vec<&str> = without.iter().map(|vote| &*vote.id).collect();
    let (there, without) = (showing.len(), without.join(", "));
    (there < must).then(|| {
        format!(
            "{there} of the {must} endpoints that must agree show block {number}, which they call final: not {without}"
        )
    })
}

/// The newest number that as many endpoints call final as must agree.
fn target(votes: &[Vote], rule: usize, must: usize) -> Option<u64> {
    let mut finals: Vec<u64> = votes.iter().filter_map(|vote| vote.finals[rule]).collect();
    finals.sort_unstable_by(|a, b| b.cmp(a));
    finals.get(must.checked_sub(1)?).copied()
}

fn newest_agreed(votes: &[Vote], rule: usize, must: usize) -> Option<BlockRef> {
    let highest = target(votes, rule, must)?;
    let numbers: BTreeSet<u64> = votes.iter().flat_map(|vote| vote.hashes.range(..=highest).map(|(n, _)| *n)).collect();
    numbers.into_iter().rev().find_map(|number| agreed_at(votes, rule, number, must))
}

/// Where `vote` shows another block than those that agree on what is final, also when it calls nothing final there.
/// Only by the rule of the network: where two endpoints agree by that of a tier, the branch of a third may still win.
fn contradiction(vote: &Vote, votes: &[Vote], must: usize) -> Option<(usize, BlockRef, BlockRef)> {
    vote.hashes.iter().rev().find_map(|(number, hash)| {
        let agreed = agreed_at(votes, 0, *number, must)?;
        (agreed.hash != *hash).then_some((vote.index, BlockRef { number: *number, hash: *hash }, agreed))
    })
}

fn agreed_at(votes: &[Vote], rule: usize, number: u64, must: usize) -> Option<BlockRef> {
    let mut counts: BTreeMap<BlockHash, usize> = BTreeMap::new();
    for vote in votes.iter().filter(|vote| vote.finals[rule].is_some_and(|newest| newest >= number)) {
        if let Some(hash) = vote.hashes.get(&number) {
            *counts.entry(*hash).or_default() += 1;
        }
    }
    let mut agreed = counts.into_iter().filter(|(_, count)| *count >= must.max(1)).map(|(hash, _)| hash);
    match (agreed.next(), agreed.next()) {
        (Some(hash), None) => Some(BlockRef { number, hash }),
        // Two camps, each large enough: neither is believed.
        (Some(_), Some(_)) | (None, _) => None,
    }
}

fn largest_group(hashes: impl Iterator<Item = BlockHash>) -> usize {
    let mut counts: BTreeMap<BlockHash, usize> = BTreeMap::new();
    hashes.for_each(|hash| *counts.entry(hash).or_default() += 1);
    counts.into_values().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(fork: u8) -> BlockHash {
        BlockHash([fork; 32])
    }

    /// An endpoint that calls `newest` final and shows these hashes.
    fn vote(index: usize, newest: u64, hashes: &[(u64, u8)]) -> Vote {
        let hashes = hashes.iter().map(|(number, fork)| (*number, hash(*fork))).collect();
        let latest = BlockRef { number: newest.max(1_000), hash: hash(0) };
        Vote { index, id: format!("n{index}"), latest, finals: vec![Some(newest)], hashes }
    }

    fn agreement() -> Agreement {
        Agreement::new(1)
    }

    fn number(agreement: &Agreement) -> Option<u64> {
        agreement.finalized().map(|block| block.number)
    }

    #[test]
    fn two_agree_on_the_lower_of_their_final_blocks_once_both_show_it() {
        let mut agreement = agreement();
        agreement.hear(&[vote(0, 9, &[(9, 1)]), vote(1, 7, &[(7, 1)])], 2, "");
        assert_eq!((number(&agreement), agreement.wanted()), (None, BTreeSet::from([7])));
        assert!(agreement.is_first_to_come());
        agreement.hear(&[vote(0, 9, &[(9, 1), (7, 1)]), vote(1, 8, &[(8, 1), (7, 1)])], 2, "");
        assert_eq!((number(&agreement), agreement.wanted()), (Some(7), BTreeSet::from([8])));
        assert_eq!(agreement.waiting(), None);
    }

    #[test]
    fn what_was_reported_is_never_taken_back_or_lowered() {
        let mut agreement = agreement();
        agreement.hear(&[vote(0, 9, &[(9, 1)])], 1, "");
        agreement.hear(&[vote(0, 5, &[(5, 1)])], 1, "");
        assert_eq!(number(&agreement), Some(9));
        agreement.hear(&[vote(0, 9, &[(9, 2)])], 1, "");
        assert_eq!(agreement.finalized(), Some(BlockRef { number: 9, hash: hash(1) }));
        agreement.hear(&[], 1, "n0 is down");
        assert_eq!(number(&agreement), Some(9));
        let waiting = "0 of the 1 endpoints that must agree on what is final can be asked; n0 is down";
        assert_eq!(agreement.waiting().as_deref(), Some(waiting));
    }

    #[test]
    fn a_fork_between_two_is_reported_and_nobody_is_believed() {
        let mut agreement = agreement();
        let liars = agreement.hear(&[vote(0, 9, &[(9, 1)]), vote(1, 9, &[(9, 2)])], 2, "");
        assert_eq!((number(&agreement), liars), (None, vec![]));
        let waiting = agreement.waiting().unwrap();
        assert!(waiting.starts_with("1 of 2 endpoints agree on block 9, and 2 must: n0 shows 0x01"), "{waiting}");
    }

    #[test]
    fn two_outvote_a_third_and_two_camps_nobody() {
        let mut three = agreement();
        let liars = three.hear(&[vote(0, 9, &[(9, 1)]), vote(1, 9, &[(9, 2)]), vote(2, 12, &[(9, 1)])], 2, "");
        assert_eq!(three.finalized(), Some(BlockRef { number: 9, hash: hash(1) }));
        assert_eq!(liars.iter().map(|(index, ..)| *index).collect::<Vec<_>>(), [1]);
        let mut four = agreement();
        let camps = [1, 1, 2, 2].map(|fork| vote(0, 9, &[(9, fork)]));
        assert!(four.hear(&camps, 2, "").is_empty());
        assert_eq!(number(&four), None);
    }

    #[test]
    fn one_that_calls_too_much_final_is_not_followed() {
        let mut agreement = agreement();
        agreement.hear(&[vote(0, 100, &[(100, 1), (7, 1)]), vote(1, 7, &[(7, 1)])], 2, "");
        assert_eq!(number(&agreement), Some(7));
    }

    #[test]
    fn a_slow_endpoint_agrees_in_the_end_however_fast_the_others_move() {
        let mut agreement = agreement();
        let asked: Vec<u64> = (0..40)
            .scan(BTreeSet::new(), |seen, step| {
                let fast = 100 + step;
                // The slow one answers each fourth poll, to what was wanted when it was asked.
                if step % 4 == 0 {
                    *seen = agreement.wanted();
                }
                let reported: Vec<(u64, u8)> = seen.iter().map(|number| (*number, 1)).collect();
                let wanted: Vec<(u64, u8)> = agreement.wanted().iter().map(|number| (*number, 1)).collect();
                agreement.hear(&[vote(0, fast, &wanted), vote(1, fast - step % 4 - 4, &reported)], 2, "");
                Some(number(&agreement).unwrap_or_default())
            })
            .collect();
        assert!(asked.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(asked[39] > 125, "{asked:?}");
    }

    #[test]
    fn who_calls_a_block_final_and_never_shows_it_is_named_once_it_was_asked_for() {
        let mut agreement = agreement();
        agreement.hear(&[vote(0, 9, &[(9, 1)]), vote(1, 9, &[(9, 1)])], 2, "");
        let reported: Vec<Option<String>> = (10..13)
            .map(|newest| {
                agreement.hear(&[vote(0, newest, &[(newest, 1), (10, 1)]), vote(1, newest + 5, &[])], 2, "");
                agreement.waiting()
            })
            .collect();
        let waiting = "1 of the 2 endpoints that must agree show block 10, which they call final: not n1".to_owned();
        assert_eq!(reported, [None, Some(waiting.clone()), Some(waiting)]);
        assert_eq!(number(&agreement), Some(9));
    }

    #[test]
    fn too_few_that_call_anything_final_is_a_reason_to_wait() {
        let mut agreement = agreement();
        let mut silent = vote(1, 0, &[]);
        silent.finals = vec![None];
        agreement.hear(&[vote(0, 9, &[(9, 1)]), silent], 2, "");
        let waiting = "1 of the 2 endpoints that must agree call any block final";
        assert_eq!(agreement.waiting().as_deref(), Some(waiting));
    }
}
