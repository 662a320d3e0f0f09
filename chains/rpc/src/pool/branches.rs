//! Whether the endpoints follow one branch: what they show at one number that two of them have reached.
//!
//! Promises: where most endpoints show one block, one that shows another is in the minority and does not lead. Without
//! a majority, the leader stays until another endpoint is well ahead, so that the newest block does not swing from
//! branch to branch. A result stands until all that have reached the next number have reported it. It no longer
//! decides who leads once the majority stands still. Nobody is quarantined: either branch may still win. Pure: the
//! hash is asked for with the next poll, where that costs no request of its own.

use std::collections::{BTreeMap, BTreeSet};

use landfall_chain::BlockHash;

use crate::pool::agree::Vote;

/// How many times votes are counted without the hash of an endpoint that has reached the number, before the others
/// decide.
const RESPONSES_MAX: u32 = 10;
/// How many times votes are counted while the majority stands still and the minority goes on, or while only one
/// endpoint votes, before the result no longer counts.
const STILL_MAX: u32 = 100;

#[derive(Debug, Default)]
pub(crate) struct Branches {
    compared: Option<u64>,
    /// How many times votes were counted since that number was asked for.
    responses: u32,
    /// The places of those that do not show what most show.
    minorities: BTreeSet<usize>,
    differ: Option<String>,
    /// The newest number of those that are not in the minority, and how many times votes were counted since.
    newest: u64,
    still: u32,
    /// How many times in a row only one endpoint voted.
    alone: u32,
}

impl Branches {
    /// Counts what the healthy endpoints report now.
    pub(crate) fn hear(&mut self, votes: &[Vote]) {
        let mut reached: Vec<u64> = votes.iter().map(|vote| vote.latest.number).collect();
        reached.sort_unstable_by(|a, b| b.cmp(a));
        let Some(second) = reached.get(1).copied() else {
            self.compared = None;
            self.alone += 1;
            if self.alone > STILL_MAX {
                *self = Branches::default();
            }
            return;
        };
        self.alone = 0;
        self.watch(votes);
        if let Some(number) = self.compared {
            let there: Vec<&Vote> = votes.iter().filter(|vote| vote.latest.number >= number).collect();
            self.responses += 1;
            let have_reported = there.iter().all(|vote| vote.hashes.contains_key(&number));
            if there.len() > 1 && !have_reported && self.responses < RESPONSES_MAX {
                return;
            }
            self.judge(number, &there);
        }
        // Also where all reported it just now: a branch that comes with the next poll shows there before it leads.
        (self.compared, self.responses) = (Some(second), 0);
    }

    /// The number whose hash would help.
    pub(crate) fn wanted(&self) -> Option<u64> {
        self.compared
    }

    /// Whether the endpoint at `index` shows another block than most, while the majority goes on.
    pub(crate) fn is_minority(&self, index: usize) -> bool {
        self.still <= STILL_MAX && self.minorities.contains(&index)
    }

    /// Whether they differ and there is no majority.
    pub(crate) fn is_split(&self) -> bool {
        self.differ.is_some() && self.minorities.is_empty()
    }

    /// Who shows what, where they differ.
    pub(crate) fn differ(&self) -> Option<String> {
        self.differ.clone()
    }

    /// Whether the majority goes on.
    fn watch(&mut self, votes: &[Vote]) {
        let newest = |minorities: bool| {
            let of = votes.iter().filter(|vote| self.minorities.contains(&vote.index) == minorities);
            of.map(|vote| vote.latest.number).max()
        };
        let (followed, minority) = (newest(false).unwrap_or_default(), newest(true).unwrap_or_default());
        if followed > self.newest || followed >= minority {
            (self.newest, self.still) = (followed, 0);
        } else {
            self.still += 1;
        }
    }

    /// Decides by the votes that are `there`. An endpoint that shows no hash follows no branch that another could
    /// corroborate.
    fn judge(&mut self, number: u64, there: &[&Vote]) {
        let reported = || there.iter().filter_map(|vote| vote.hashes.get(&number).map(|hash| (*vote, *hash)));
        if reported().count() < 2 {
            return;
        }
        let mut counts: BTreeMap<BlockHash, usize> = BTreeMap::new();
        reported().for_each(|(_, hash)| *counts.entry(hash).or_default() += 1);
        let most = counts.values().copied().max().unwrap_or_default();
        let mut of_most = counts.iter().filter(|(_, count)| **count == most).map(|(hash, _)| *hash);
        let followed = of_most.next().filter(|_| of_most.next().is_none());
        let shows_another = |vote: &Vote, followed: BlockHash| vote.hashes.get(&number) != Some(&followed);
        let of_others = reported().find(|(vote, _)| !self.minorities.contains(&vote.index)).map(|(_, hash)| hash);
        let minorities: BTreeSet<usize> = match (followed, of_others) {
            (Some(followed), _) => {
                there.iter().filter(|vote| shows_another(vote, followed)).map(|vote| vote.index).collect()
            }
            // Votes are equal: what most showed before stands.
            (None, Some(others)) => {
                let in_minority = there.iter().filter(|vote| self.minorities.contains(&vote.index));
                in_minority.filter(|vote| shows_another(vote, others)).map(|vote| vote.index).collect()
            }
            (None, None) => BTreeSet::new(),
        };
        if minorities != self.minorities {
            (self.minorities, self.newest, self.still) = (minorities, 0, 0);
        }
        self.differ = (counts.len() > 1).then(|| {
            let said: Vec<String> = reported().map(|(vote, hash)| format!("{} shows {hash}", vote.id)).collect();
            format!("endpoints follow different branches: of block {number}, {}", said.join(", "))
        });
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::BlockRef;

    use super::*;

    fn hash(branch: u8) -> BlockHash {
        BlockHash([branch; 32])
    }

    /// An endpoint whose newest block is `latest`, on `branch`, and that reports what is `wanted`.
    fn vote(index: usize, latest: u64, branch: u8, wanted: Option<u64>) -> Vote {
        let numbers = wanted.into_iter().filter(|number| *number <= latest).chain([latest]);
        let hashes = numbers.map(|number| (number, hash(branch))).collect();
        let latest = BlockRef { number: latest, hash: hash(branch) };
        Vote { index, id: format!("n{index}"), latest, finals: vec![None], hashes }
    }

    /// One poll of endpoints at (newest number, branch).
    fn poll(branches: &mut Branches, heads: &[(u64, u8)]) {
        let wanted = branches.wanted();
        let vote = |(index, (latest, branch)): (usize, &(u64, u8))| vote(index, *latest, *branch, wanted);
        branches.hear(&heads.iter().enumerate().map(vote).collect::<Vec<_>>());
    }

    #[test]
    fn most_say_who_strays_whoever_is_ahead() {
        let mut branches = Branches::default();
        poll(&mut branches, &[(10, 1), (11, 2), (9, 1)]);
        assert_eq!((branches.wanted(), branches.differ()), (Some(10), None));
        poll(&mut branches, &[(11, 1), (12, 2), (10, 1)]);
        assert!(
            branches.is_minority(1) && !branches.is_minority(0) && !branches.is_minority(2) && !branches.is_split()
        );
        let text = branches.differ().unwrap();
        assert!(text.starts_with("endpoints follow different branches: of block 10, n0 shows 0x01"), "{text}");
        for _ in 0..2 {
            poll(&mut branches, &[(12, 1), (12, 1), (12, 1)]);
        }
        assert!(!branches.is_minority(1) && branches.differ().is_none());
    }

    #[test]
    fn what_most_showed_stands_while_one_of_them_is_a_poll_behind() {
        let mut branches = Branches::default();
        let mut minority = |heads: &[(u64, u8)]| {
            (0..2).for_each(|_| poll(&mut branches, heads));
            branches.is_minority(1) && branches.differ().is_some()
        };
        assert!(minority(&[(10, 1), (20, 2), (10, 1)]));
        assert!(minority(&[(11, 1), (20, 2), (10, 1)]), "one against one at block 11");
        assert!(minority(&[(11, 1), (20, 2)]), "the third is not heard");
        assert!(!minority(&[(12, 2), (20, 2), (10, 1)]));
    }

    #[test]
    fn of_two_that_differ_nobody_strays() {
        let mut branches = Branches::default();
        for number in [10, 11] {
            poll(&mut branches, &[(number, 1), (number + 5, 2)]);
        }
        assert!(branches.is_split() && !branches.is_minority(0) && !branches.is_minority(1));
        // While one has no vote for some time, nothing says that they agree.
        poll(&mut branches, &[(12, 1)]);
        assert!(branches.is_split() && branches.wanted().is_none());
        (0..STILL_MAX).for_each(|_| poll(&mut branches, &[(12, 1)]));
        assert!(!branches.is_split());
    }

    #[test]
    fn who_has_reached_a_number_and_never_reports_its_hash_strays_once_others_agree() {
        let mut branches = Branches::default();
        poll(&mut branches, &[(10, 1), (30, 2), (10, 1)]);
        for _ in 0..RESPONSES_MAX {
            let wanted = branches.wanted();
            assert!(!branches.is_minority(1));
            branches.hear(&[vote(0, 20, 1, wanted), vote(1, 30, 2, None), vote(2, 20, 1, wanted)]);
        }
        assert!(branches.is_minority(1) && !branches.is_split());
    }

    #[test]
    fn most_that_stand_still_lead_nobody_who_goes_on() {
        let mut branches = Branches::default();
        let mut is_minority_after = |polls: u32, latest: u64| {
            (0..polls).for_each(|_| poll(&mut branches, &[(100, 1), (latest, 2), (100, 1)]));
            branches.is_minority(1)
        };
        assert!(is_minority_after(2, 101));
        assert!(is_minority_after(STILL_MAX - 1, 150));
        assert!(!is_minority_after(4, 200));
    }

    #[test]
    fn most_that_go_on_lead_however_far_ahead_a_stray_once_was() {
        let mut branches = Branches::default();
        poll(&mut branches, &[(100, 1), (100, 1), (100, 1)]);
        poll(&mut branches, &[(100, 1), (5_000, 1), (100, 1)]);
        for number in 101..101 + u64::from(STILL_MAX) * 2 {
            poll(&mut branches, &[(number, 1), (5_000, 2), (number, 1)]);
        }
        assert!(branches.is_minority(1));
    }
}
