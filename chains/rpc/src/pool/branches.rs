//! Whether the endpoints follow one branch: what they show at one number that two of them have reached.
//!
//! Promises: where most show one block, who shows another does not lead; where no most is, who leads goes on to lead until
//! another is well ahead, so that the newest block does not swing from branch to branch. Nobody is convicted: either branch
//! may yet win. Pure: the hash is asked for with the next poll, where that costs no request of its own.

use std::collections::{BTreeMap, BTreeSet};

use landfall_chain::BlockHash;

use crate::pool::agree::Voice;

/// How often an endpoint that has reached a number may be heard without its hash there, before another number is compared.
const HEARD_MAX: u32 = 10;

#[derive(Debug, Default)]
pub(crate) struct Branches {
    compared: Option<u64>,
    heard: u32,
    /// The places of those that do not show what most show.
    strays: BTreeSet<usize>,
    differ: Option<String>,
}

impl Branches {
    /// Takes in what the healthy endpoints say now.
    pub(crate) fn hear(&mut self, voices: &[Voice]) {
        let mut reached: Vec<u64> = voices.iter().map(|voice| voice.latest.number).collect();
        reached.sort_unstable_by(|a, b| b.cmp(a));
        let Some(second) = reached.get(1).copied() else {
            *self = Branches::default();
            return;
        };
        if let Some(number) = self.compared {
            let told = |voice: &Voice| voice.hashes.get(&number).map(|hash| (voice.index, voice.id.clone(), *hash));
            let told: Vec<(usize, String, BlockHash)> = voices.iter().filter_map(told).collect();
            if told.len() > 1 {
                self.judge(number, &told);
            }
            self.heard += 1;
            let there = reached.iter().filter(|latest| **latest >= number).count();
            if told.len() < there.max(2) && self.heard < HEARD_MAX {
                return;
            }
        }
        (self.compared, self.heard) = (Some(second), 0);
    }

    /// The number whose hash would help.
    pub(crate) fn wanted(&self) -> Option<u64> {
        self.compared
    }

    /// Whether the endpoint at `index` shows another block than most.
    pub(crate) fn is_stray(&self, index: usize) -> bool {
        self.strays.contains(&index)
    }

    /// Whether they differ, and no most says who follows the better branch.
    pub(crate) fn is_split(&self) -> bool {
        self.differ.is_some() && self.strays.is_empty()
    }

    /// Who shows what, where they differ.
    pub(crate) fn differ(&self) -> Option<String> {
        self.differ.clone()
    }

    fn judge(&mut self, number: u64, told: &[(usize, String, BlockHash)]) {
        let mut counts: BTreeMap<BlockHash, usize> = BTreeMap::new();
        told.iter().for_each(|(.., hash)| *counts.entry(*hash).or_default() += 1);
        let most = counts.values().copied().max().unwrap_or_default();
        let mut of_most = counts.iter().filter(|(_, count)| **count == most).map(|(hash, _)| *hash);
        let followed = of_most.next().filter(|_| of_most.next().is_none());
        let is_stray = |hash: &BlockHash| followed.is_some_and(|followed| followed != *hash);
        self.strays = told.iter().filter(|(.., hash)| is_stray(hash)).map(|(index, ..)| *index).collect();
        self.differ = (counts.len() > 1).then(|| {
            let said: Vec<String> = told.iter().map(|(_, id, hash)| format!("{id} shows {hash}")).collect();
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

    /// An endpoint whose newest block is `latest`, on `branch`, and that tells what is `wanted`.
    fn voice(index: usize, latest: u64, branch: u8, wanted: Option<u64>) -> Voice {
        let numbers = wanted.into_iter().filter(|number| *number <= latest).chain([latest]);
        let hashes = numbers.map(|number| (number, hash(branch))).collect();
        let latest = BlockRef { number: latest, hash: hash(branch) };
        Voice { index, id: format!("n{index}"), latest, finals: vec![None], hashes }
    }

    /// One poll of endpoints at (newest number, branch).
    fn poll(branches: &mut Branches, heads: &[(u64, u8)]) {
        let wanted = branches.wanted();
        let voice = |(index, (latest, branch)): (usize, &(u64, u8))| voice(index, *latest, *branch, wanted);
        branches.hear(&heads.iter().enumerate().map(voice).collect::<Vec<_>>());
    }

    #[test]
    fn most_say_who_strays_whoever_is_ahead() {
        let mut branches = Branches::default();
        poll(&mut branches, &[(10, 1), (11, 2), (9, 1)]);
        assert_eq!((branches.wanted(), branches.differ()), (Some(10), None));
        poll(&mut branches, &[(11, 1), (12, 2), (10, 1)]);
        assert!(branches.is_stray(1) && !branches.is_stray(0) && !branches.is_stray(2) && !branches.is_split());
        let text = branches.differ().unwrap();
        assert!(text.starts_with("endpoints follow different branches: of block 10, n0 shows 0x01"), "{text}");
        poll(&mut branches, &[(12, 1), (12, 1), (12, 1)]);
        poll(&mut branches, &[(12, 1), (12, 1), (12, 1)]);
        assert!(!branches.is_stray(1) && branches.differ().is_none());
    }

    #[test]
    fn of_two_that_differ_nobody_strays() {
        let mut branches = Branches::default();
        for number in [10, 11] {
            poll(&mut branches, &[(number, 1), (number + 5, 2)]);
        }
        assert!(branches.is_split() && !branches.is_stray(0) && !branches.is_stray(1));
        // What was said of one that is no longer heard counts no longer.
        poll(&mut branches, &[(12, 1)]);
        assert!(!branches.is_split() && branches.wanted().is_none());
    }

    #[test]
    fn one_that_never_tells_holds_up_no_comparison() {
        let mut branches = Branches::default();
        poll(&mut branches, &[(10, 1), (10, 2), (10, 1)]);
        let silent = |branches: &mut Branches, latest: u64| {
            let wanted = branches.wanted();
            let told = [voice(0, latest, 1, wanted), voice(1, latest, 2, wanted), voice(2, latest, 1, None)];
            branches.hear(&told);
        };
        (0..HEARD_MAX).for_each(|_| silent(&mut branches, 20));
        assert_eq!(branches.wanted(), Some(20), "another number is compared");
        assert!(branches.is_split(), "one against one, and nothing of the third");
    }
}
